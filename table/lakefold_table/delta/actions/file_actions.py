"""The actions about files: a logical file is added or removed, a file with changed rows is named.

A logical file is a data file, without the rows of its deletion vector. It is identified by its path together
with the id of its deletion vector (Delta fact 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from lakefold_table.delta.actions.fields import (
    FLAG,
    LONG,
    TEXT,
    TEXT_MAP,
    ActionField,
    no_members,
    struct_of,
)
from lakefold_table.values import value

Texts = Mapping[str, str | None]
FileKey = tuple[str, str]
"""A path as it is written in the log, and the id of the deletion vector; empty without one."""


@value()
class DeletionVector:
    """Where the deleted rows of a logical file are stored, and how many they are.

    `storage_type`: `i` in the action itself, `u` in a file of the table, `p` in a file anywhere.
    `path_or_inline`: the rows, or how the file is named. `offset`: the position in the file, None if it is
    not given. `size`: bytes of the rows, without length and checksum.
    """

    FIELDS: ClassVar = (
        ActionField("storageType", "storage_type", TEXT, required=True),
        ActionField("pathOrInlineDv", "path_or_inline", TEXT, required=True),
        ActionField("offset", "offset", LONG),
        ActionField("sizeInBytes", "size", LONG, required=True),
        ActionField("cardinality", "cardinality", LONG, required=True),
    )

    storage_type: str
    path_or_inline: str
    size: int
    cardinality: int
    offset: int | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def unique_id(self) -> str:
        """What distinguishes it from other deletion vectors of the file."""
        name = f"{self.storage_type}{self.path_or_inline}"
        return name if self.offset is None else f"{name}@{self.offset}"


_VECTOR = struct_of(DeletionVector, "an object that describes a deletion vector")


def _key(path: str, vector: DeletionVector | None) -> FileKey:
    return path, "" if vector is None else vector.unique_id


@value()
class AddFile:
    """A logical file that is part of the table, from this version on or with new information.

    `path`: as in the log, percent-encoded. `modified_ms`: in milliseconds since 1970. `stats`: JSON as text.
    """

    NAME: ClassVar = "add"
    FIELDS: ClassVar = (
        ActionField("path", "path", TEXT, required=True),
        ActionField("partitionValues", "partition_values", TEXT_MAP, required=True),
        ActionField("size", "size", LONG, required=True),
        ActionField("modificationTime", "modified_ms", LONG, required=True),
        ActionField("dataChange", "data_change", FLAG, required=True),
        ActionField("stats", "stats", TEXT),
        ActionField("tags", "tags", TEXT_MAP),
        ActionField("deletionVector", "deletion_vector", _VECTOR),
        ActionField("baseRowId", "base_row_id", LONG),
        ActionField("defaultRowCommitVersion", "default_row_commit_version", LONG),
        ActionField("clusteringProvider", "clustering_provider", TEXT),
    )

    path: str
    partition_values: Texts
    size: int
    modified_ms: int
    data_change: bool
    stats: str | None = None
    tags: Texts | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def key(self) -> FileKey:
        """What identifies the logical file."""
        return _key(self.path, self.deletion_vector)


@value()
class RemoveFile:
    """A logical file that is no part of the table any more.

    As a tombstone it keeps vacuum from deleting the data file. `deleted_ms`: in milliseconds since 1970; None
    if it is not known, then the tombstone counts as expired.
    """

    NAME: ClassVar = "remove"
    FIELDS: ClassVar = (
        ActionField("path", "path", TEXT, required=True),
        ActionField("deletionTimestamp", "deleted_ms", LONG),
        ActionField("dataChange", "data_change", FLAG, required=True),
        ActionField("extendedFileMetadata", "extended", FLAG),
        ActionField("partitionValues", "partition_values", TEXT_MAP),
        ActionField("size", "size", LONG),
        ActionField("stats", "stats", TEXT),
        ActionField("tags", "tags", TEXT_MAP),
        ActionField("deletionVector", "deletion_vector", _VECTOR),
        ActionField("baseRowId", "base_row_id", LONG),
        ActionField("defaultRowCommitVersion", "default_row_commit_version", LONG),
    )

    path: str
    data_change: bool
    deleted_ms: int | None = None
    extended: bool | None = None
    partition_values: Texts | None = None
    size: int | None = None
    stats: str | None = None
    tags: Texts | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def key(self) -> FileKey:
        """What identifies the logical file."""
        return _key(self.path, self.deletion_vector)


def removal_of(file: AddFile, *, data_change: bool) -> RemoveFile:
    """Returns the action that removes a file as it is in the table, at no time yet."""
    return RemoveFile(
        file.path,
        data_change,
        extended=True,
        partition_values=file.partition_values,
        size=file.size,
        stats=file.stats,
        tags=file.tags,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
    )


@value()
class ChangeFile:
    """A file that holds the rows that a version changed, for readers of the change data feed (`cdc`)."""

    NAME: ClassVar = "cdc"
    FIELDS: ClassVar = (
        ActionField("path", "path", TEXT, required=True),
        ActionField("partitionValues", "partition_values", TEXT_MAP, required=True),
        ActionField("size", "size", LONG, required=True),
        ActionField("dataChange", "data_change", FLAG, required=True),
        ActionField("tags", "tags", TEXT_MAP),
    )

    path: str
    size: int
    data_change: bool
    partition_values: Texts = field(default_factory=no_members)
    tags: Texts | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)
