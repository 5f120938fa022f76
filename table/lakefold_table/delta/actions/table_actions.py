"""The actions about the table itself: schema, protocol, applications, domains; and those of checkpoints."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from lakefold_table.delta.actions.fields import (
    FLAG,
    LONG,
    TEXT,
    TEXT_MAP,
    TEXTS,
    action,
    member,
    no_members,
    struct_of,
)
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile, Texts
from lakefold_table.delta.json_text import is_long
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


RESTORE_TABLE: Final = "RESTORE"
"""The operation that makes an earlier version the newest again, as Delta's clients name it."""
MOST_BATCH: Final = 2**63 - 1
"""The highest number of a batch that fits into a `txn` action."""
_MOST_DIGITS: Final = 18
"""The most digits of a version that is written as text: it is a long."""
_NUMBER: Final = re.compile(rf"[0-9]{{1,{_MOST_DIGITS}}}", re.ASCII)
_METRICS: Final = "operationMetrics"
_COPIED: Final = ("numTargetRowsCopied", "numCopiedRows", "num_target_rows_copied", "num_copied_rows")
_UPDATED: Final = (
    "numTargetRowsUpdated",
    "numUpdatedRows",
    "num_target_rows_updated",
    "num_updated_rows",
)
_INSERTED: Final = ("numTargetRowsInserted", "num_target_rows_inserted")
_DELETED: Final = (
    "numTargetRowsDeleted",
    "numDeletedRows",
    "num_target_rows_deleted",
    "num_deleted_rows",
)
"""The names of metrics: delta-spark's of MERGE, and of DELETE and UPDATE; those of delta-rs."""


@action
class FileFormat:
    """The format of the data files. Tables that can be created today have `parquet`."""

    provider: str = member("provider", TEXT, default="parquet", required=True)
    options: Texts = member("options", TEXT_MAP, default_factory=no_members)
    extra: Mapping[str, Any] = field(default_factory=no_members)


@action
class TableMetadata:
    """The metadata of a table. `schema_text`: the schema as JSON; `configuration`: the table's properties.

    The text is empty if there is no schema yet, as delta-spark allows (Delta fact 2.8).
    """

    NAME: ClassVar = "metaData"
    id: str = member("id", TEXT)
    schema_text: str = member("schemaString", TEXT, default="")
    file_format: FileFormat = member(
        "format", struct_of(FileFormat, "an object"), default=FileFormat(), required=True, at=3
    )
    partition_columns: tuple[str, ...] = member("partitionColumns", TEXTS, default=(), required=True)
    configuration: Texts = member("configuration", TEXT_MAP, default_factory=no_members, required=True)
    name: str | None = member("name", TEXT, default=None, at=1)
    description: str | None = member("description", TEXT, default=None, at=2)
    created_ms: int | None = member("createdTime", LONG, default=None, at=6)
    extra: Mapping[str, Any] = field(default_factory=no_members)

    def is_on(self, name: str) -> bool:
        """Returns whether a property of the table is set to true."""
        return (self.configuration.get(name) or "").lower() == "true"

    @property
    def maps_columns(self) -> bool:
        """Whether the files have columns by other names than the schema (Delta's column mapping)."""
        return self.configuration.get("delta.columnMapping.mode") not in (None, "none")


@action
class TableProtocol:  # noqa: PLW1641 - `action` gives it one
    """What a client must implement to read and to write the table.

    Lists of features exist from reader version 3 and writer version 7 on. Their order means nothing, so
    protocols that differ in it alone are equal.
    """

    NAME: ClassVar = "protocol"
    reader: int = member("minReaderVersion", LONG)
    writer: int = member("minWriterVersion", LONG)
    reader_features: tuple[str, ...] | None = member("readerFeatures", TEXTS, default=None)
    writer_features: tuple[str, ...] | None = member("writerFeatures", TEXTS, default=None)
    extra: Mapping[str, Any] = field(default_factory=no_members)

    def __eq__(self, other: object) -> bool:
        """Returns whether both require the same."""
        return isinstance(other, TableProtocol) and self._required == other._required

    @property
    def _required(self) -> tuple[object, ...]:
        features = (
            None if each is None else frozenset(each) for each in (self.reader_features, self.writer_features)
        )
        return self.reader, self.writer, *features, self.extra


@action
class AppTransaction:
    """How far an application has written into the table: the last version of its own count (`txn`)."""

    NAME: ClassVar = "txn"
    app_id: str = member("appId", TEXT)
    version: int = member("version", LONG)
    updated_ms: int | None = member("lastUpdated", LONG, default=None)
    extra: Mapping[str, Any] = field(default_factory=no_members)


@action
class DomainMetadata:
    """The configuration of a named domain. `removed`: the domain has none any more."""

    NAME: ClassVar = "domainMetadata"
    domain: str = member("domain", TEXT)
    configuration: str = member("configuration", TEXT)
    removed: bool = member("removed", FLAG, default=False, required=True)
    extra: Mapping[str, Any] = field(default_factory=no_members)


@action
class CommitInfo:
    """Where a commit came from: any JSON object, in `extra`. It changes nothing in the table."""

    NAME: ClassVar = "commitInfo"
    IN_COMMIT: ClassVar = "inCommitTimestamp"
    USER_METADATA: ClassVar = "userMetadata"
    extra: Mapping[str, Any] = field(default_factory=no_members)

    @classmethod
    def of_copied(cls, rows: int) -> CommitInfo:
        """Returns what says that an operation wrote so many rows again as they were."""
        return cls({_METRICS: {_COPIED[0]: str(rows)}})

    @property
    def operation(self) -> str:
        """The name of the operation, empty if none is given."""
        name = self.extra.get("operation")
        return name if isinstance(name, str) else ""

    @property
    def restored(self) -> int | None:
        """The version that a RESTORE restored, None if it names none, or the operation is another one.

        delta-spark writes it as a number, delta-rs as text. Both may name a time instead.
        """
        parameters = self.extra.get("operationParameters")
        if self.operation != RESTORE_TABLE or not isinstance(parameters, dict):
            return None
        version = parameters.get("version")
        if isinstance(version, str) and len(version) <= _MOST_DIGITS and version.isdecimal():
            version = int(version)
        return version if is_long(version) and version >= 0 else None

    @property
    def user_metadata(self) -> str | None:
        """The text that a user had the commit record, None without one."""
        text = self.extra.get(self.USER_METADATA)
        return text if isinstance(text, str) else None

    @property
    def rows_copied(self) -> int:
        """How many rows an operation wrote again as they were, 0 if it does not say so."""
        return self._metric(_COPIED) or 0

    def rows_changed(self, added: int, removed: int | None) -> tuple[int, int] | None:
        """Returns how many rows are new, and how many are gone, by the metrics of an operation.

        `added`, `removed`: the rows of the files that it added and removed, the latter None if they are not
        known. Returns None if the metrics don't say how many rows are in both, or don't fit these numbers.
        """
        copied, updated, deleted = map(self._metric, (_COPIED, _UPDATED, _DELETED))
        if copied is None or (updated is None and deleted is None):
            return None
        gone = (updated or 0) + (deleted or 0)
        new = (updated or 0) + (self._metric(_INSERTED) or 0)
        fits = added - copied == new and removed in (None, gone + copied)
        return (new, gone) if fits else None

    def _metric(self, names: Sequence[str]) -> int | None:
        metrics = self.extra.get(_METRICS)
        given = [metrics.get(name) for name in names] if isinstance(metrics, dict) else []
        texts = (str(each) for each in given if isinstance(each, str) or is_long(each))
        return max((int(text) for text in texts if _NUMBER.fullmatch(text)), default=None)

    @property
    def in_commit_ms(self) -> int | None:
        """The time at which the commit counts as made, in milliseconds since 1970; None if not given."""
        at = self.extra.get(self.IN_COMMIT)
        return at if is_long(at) else None


@action
class CheckpointMetadata:
    """The version of a checkpoint that follows the second specification of checkpoints."""

    NAME: ClassVar = "checkpointMetadata"
    version: int = member("version", LONG)
    tags: Texts | None = member("tags", TEXT_MAP, default=None)
    extra: Mapping[str, Any] = field(default_factory=no_members)


@action
class Sidecar:
    """A file that holds a part of a checkpoint's file actions. `path`: a name in `_delta_log/_sidecars`."""

    NAME: ClassVar = "sidecar"
    path: str = member("path", TEXT)
    size: int = member("sizeInBytes", LONG)
    modified_ms: int = member("modificationTime", LONG)
    tags: Texts | None = member("tags", TEXT_MAP, default=None)
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
BY_NAME: Mapping[str, type[Any]] = {kind.NAME: kind for kind in get_args(Action) if kind is not UnknownAction}
"""The class of each action, by its name in the log."""
