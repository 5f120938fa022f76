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
    action,
    member,
    no_members,
    struct_of,
)

Texts = Mapping[str, str | None]
FileKey = tuple[str, str]
"""A path as it is written in the log, and the id of the deletion vector; empty without one."""


@action
class DeletionVector:
    """Where the deleted rows of a logical file are stored, and how many they are.

    `storage_type`: `i` in the action itself, `u` in a file of the table, `p` in a file anywhere.
    `path_or_inline`: the rows, or how the file is named. `offset`: the position in the file, None if it is
    not given. `size`: bytes of the rows, without length and checksum.
    """

    storage_type: str = member("storageType", TEXT)
    path_or_inline: str = member("pathOrInlineDv", TEXT)
    size: int = member("sizeInBytes", LONG)
    cardinality: int = member("cardinality", LONG)
    offset: int | None = member("offset", LONG, default=None, at=2)
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def unique_id(self) -> str:
        """Distinguishes the deletion vector from others of the file."""
        name = f"{self.storage_type}{self.path_or_inline}"
        return name if self.offset is None else f"{name}@{self.offset}"


_VECTOR = struct_of(DeletionVector, "an object that describes a deletion vector")


def _key(path: str, vector: DeletionVector | None) -> FileKey:
    return path, "" if vector is None else vector.unique_id


@action
class AddFile:
    """A logical file that is part of the table, from this version on or with new information.

    `path`: as in the log, percent-encoded. `modified_ms`: in milliseconds since 1970. `stats`: JSON as text.
    """

    NAME: ClassVar = "add"
    path: str = member("path", TEXT)
    partition_values: Texts = member("partitionValues", TEXT_MAP)
    size: int = member("size", LONG)
    modified_ms: int = member("modificationTime", LONG)
    data_change: bool = member("dataChange", FLAG)
    stats: str | None = member("stats", TEXT, default=None)
    tags: Texts | None = member("tags", TEXT_MAP, default=None)
    deletion_vector: DeletionVector | None = member("deletionVector", _VECTOR, default=None)
    base_row_id: int | None = member("baseRowId", LONG, default=None)
    default_row_commit_version: int | None = member("defaultRowCommitVersion", LONG, default=None)
    clustering_provider: str | None = member("clusteringProvider", TEXT, default=None)
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def key(self) -> FileKey:
        """Identifies the logical file."""
        return _key(self.path, self.deletion_vector)


@action
class RemoveFile:
    """A logical file that is no longer part of the table.

    As a tombstone it keeps vacuum from deleting the data file. `deleted_ms`: in milliseconds since 1970; None
    if it is not known, then the tombstone counts as expired.
    """

    NAME: ClassVar = "remove"
    path: str = member("path", TEXT)
    data_change: bool = member("dataChange", FLAG)
    deleted_ms: int | None = member("deletionTimestamp", LONG, default=None, at=1)
    extended: bool | None = member("extendedFileMetadata", FLAG, default=None)
    partition_values: Texts | None = member("partitionValues", TEXT_MAP, default=None)
    size: int | None = member("size", LONG, default=None)
    stats: str | None = member("stats", TEXT, default=None)
    tags: Texts | None = member("tags", TEXT_MAP, default=None)
    deletion_vector: DeletionVector | None = member("deletionVector", _VECTOR, default=None)
    base_row_id: int | None = member("baseRowId", LONG, default=None)
    default_row_commit_version: int | None = member("defaultRowCommitVersion", LONG, default=None)
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def key(self) -> FileKey:
        """Identifies the logical file."""
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


@action
class ChangeFile:
    """A file that holds the rows that a version changed, for readers of the change data feed (`cdc`)."""

    NAME: ClassVar = "cdc"
    path: str = member("path", TEXT)
    size: int = member("size", LONG)
    data_change: bool = member("dataChange", FLAG)
    partition_values: Texts = member(
        "partitionValues", TEXT_MAP, default_factory=no_members, required=True, at=1
    )
    tags: Texts | None = member("tags", TEXT_MAP, default=None)
    extra: Mapping[str, Any] = field(default_factory=no_members)
