"""The actions about the table itself: schema, protocol, applications, domains; and those of checkpoints."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from lakefold_table.delta.actions.fields import (
    FLAG,
    LONG,
    TEXT,
    TEXT_MAP,
    TEXTS,
    ActionField,
    no_members,
    struct_of,
)
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile, Texts
from lakefold_table.delta.json_text import is_long
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping


@value()
class FileFormat:
    """The format of the data files. Tables that can be created today have `parquet`."""

    FIELDS: ClassVar = (
        ActionField("provider", "provider", TEXT, required=True),
        ActionField("options", "options", TEXT_MAP),
    )

    provider: str = "parquet"
    options: Texts = field(default_factory=no_members)
    extra: Mapping[str, Any] = field(default_factory=no_members)


@value()
class TableMetadata:
    """The metadata of a table. `schema_text`: the schema as JSON; `configuration`: the table's properties."""

    NAME: ClassVar = "metaData"
    FIELDS: ClassVar = (
        ActionField("id", "id", TEXT, required=True),
        ActionField("name", "name", TEXT),
        ActionField("description", "description", TEXT),
        ActionField("format", "file_format", struct_of(FileFormat, "an object"), required=True),
        ActionField("schemaString", "schema_text", TEXT, required=True),
        ActionField("partitionColumns", "partition_columns", TEXTS, required=True),
        ActionField("createdTime", "created_ms", LONG),
        ActionField("configuration", "configuration", TEXT_MAP, required=True),
    )

    id: str
    schema_text: str
    file_format: FileFormat = FileFormat()
    partition_columns: tuple[str, ...] = ()
    configuration: Texts = field(default_factory=no_members)
    name: str | None = None
    description: str | None = None
    created_ms: int | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)

    def is_on(self, name: str) -> bool:
        """Returns whether a property of the table is set to true."""
        return (self.configuration.get(name) or "").lower() == "true"

    @property
    def maps_columns(self) -> bool:
        """Whether the files have columns by other names than the schema (Delta's column mapping)."""
        return self.configuration.get("delta.columnMapping.mode") not in (None, "none")


@value()
class TableProtocol:
    """What a client must implement to read and to write the table.

    Lists of features exist from reader version 3 and writer version 7 on.
    """

    NAME: ClassVar = "protocol"
    FIELDS: ClassVar = (
        ActionField("minReaderVersion", "reader", LONG, required=True),
        ActionField("minWriterVersion", "writer", LONG, required=True),
        ActionField("readerFeatures", "reader_features", TEXTS),
        ActionField("writerFeatures", "writer_features", TEXTS),
    )

    reader: int
    writer: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)


@value()
class AppTransaction:
    """How far an application has written into the table: the last version of its own count (`txn`)."""

    NAME: ClassVar = "txn"
    FIELDS: ClassVar = (
        ActionField("appId", "app_id", TEXT, required=True),
        ActionField("version", "version", LONG, required=True),
        ActionField("lastUpdated", "updated_ms", LONG),
    )

    app_id: str
    version: int
    updated_ms: int | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)


@value()
class DomainMetadata:
    """The configuration of a named domain. `removed`: the domain has none any more."""

    NAME: ClassVar = "domainMetadata"
    FIELDS: ClassVar = (
        ActionField("domain", "domain", TEXT, required=True),
        ActionField("configuration", "configuration", TEXT, required=True),
        ActionField("removed", "removed", FLAG, required=True),
    )

    domain: str
    configuration: str
    removed: bool = False
    extra: Mapping[str, Any] = field(default_factory=no_members)


@value()
class CommitInfo:
    """Where a commit came from: any JSON object, in `extra`. It changes nothing in the table."""

    NAME: ClassVar = "commitInfo"
    IN_COMMIT: ClassVar = "inCommitTimestamp"
    FIELDS: ClassVar = ()

    extra: Mapping[str, Any] = field(default_factory=no_members)

    @property
    def operation(self) -> str:
        """The name of the operation, empty if none is given."""
        name = self.extra.get("operation")
        return name if isinstance(name, str) else ""

    @property
    def in_commit_ms(self) -> int | None:
        """The time at which the commit counts as made, in milliseconds since 1970; None if not given."""
        at = self.extra.get(self.IN_COMMIT)
        return at if is_long(at) else None


@value()
class CheckpointMetadata:
    """The version of a checkpoint that follows the second specification of checkpoints."""

    NAME: ClassVar = "checkpointMetadata"
    FIELDS: ClassVar = (
        ActionField("version", "version", LONG, required=True),
        ActionField("tags", "tags", TEXT_MAP),
    )

    version: int
    tags: Texts | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)


@value()
class Sidecar:
    """A file that holds a part of a checkpoint's file actions. `path`: a name in `_delta_log/_sidecars`."""

    NAME: ClassVar = "sidecar"
    FIELDS: ClassVar = (
        ActionField("path", "path", TEXT, required=True),
        ActionField("sizeInBytes", "size", LONG, required=True),
        ActionField("modificationTime", "modified_ms", LONG, required=True),
        ActionField("tags", "tags", TEXT_MAP),
    )

    path: str
    size: int
    modified_ms: int
    tags: Texts | None = None
    extra: Mapping[str, Any] = field(default_factory=no_members)


@value()
class UnknownAction:
    """An action that this release doesn't know. It is never needed to read the table (Delta fact 1.2)."""

    name: str
    content: Any


Action = (
    AddFile
    | RemoveFile
    | ChangeFile
    | TableMetadata
    | TableProtocol
    | AppTransaction
    | DomainMetadata
    | CommitInfo
    | CheckpointMetadata
    | Sidecar
    | UnknownAction
)
KINDS = (
    AddFile,
    RemoveFile,
    ChangeFile,
    TableMetadata,
    TableProtocol,
    AppTransaction,
    DomainMetadata,
    CommitInfo,
    CheckpointMetadata,
    Sidecar,
)
BY_NAME: Mapping[str, type[Any]] = {kind.NAME: kind for kind in KINDS}
"""The class of each action, by its name in the log."""
