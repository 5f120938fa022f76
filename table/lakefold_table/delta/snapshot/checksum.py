"""Version checksum files: whether a snapshot is what its writer counted (Delta fact 2.6)."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.fields import (
    LONG,
    TEXT,
    FieldKind,
    action,
    member,
    members_of,
    no_members,
    read_fields,
    struct_of,
)
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.json_text import parse_object, to_json, type_name
from lakefold_table.delta.snapshot.snapshot import APPS
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot


def _array_of(kind: type[Any]) -> FieldKind:
    def read(items: list[Any], where: str) -> tuple[Any, ...]:
        for item in items:
            if not isinstance(item, dict):
                raise DamagedError(f"an object is expected, not {type_name(item)}", where=where)
        return tuple(read_fields(kind, item, where) for item in items)

    return FieldKind("an array of objects", lambda value: isinstance(value, list), read)


@action
class VersionChecksum:
    """What a checksum file says of its version. Fields that we don't compare are in `extra`."""

    size_bytes: int = member("tableSizeBytes", LONG)
    files: int = member("numFiles", LONG)
    metadata_actions: int = member("numMetadata", LONG)
    protocol_actions: int = member("numProtocol", LONG)
    metadata: TableMetadata = member("metadata", struct_of(TableMetadata, "an object"))
    protocol: TableProtocol = member("protocol", struct_of(TableProtocol, "an object"))
    transaction: str | None = member("txnId", TEXT, default=None)
    in_commit_ms: int | None = member("inCommitTimestampOpt", LONG, default=None)
    apps: tuple[AppTransaction, ...] | None = member(
        "setTransactions", _array_of(AppTransaction), default=None
    )
    domains: tuple[DomainMetadata, ...] | None = member(
        "domainMetadata", _array_of(DomainMetadata), default=None
    )
    extra: Mapping[str, Any] = field(default_factory=no_members)


def checksum_file(snapshot: DeltaSnapshot, transaction: str) -> bytes:
    """Returns the checksum file of a version. `transaction`: the txnId in its commitInfo."""
    document: dict[str, Any] = {
        "txnId": transaction,
        "tableSizeBytes": snapshot.size_bytes,
        "numFiles": len(snapshot.files),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [members_of(app) for app in snapshot.apps.values()],
        "domainMetadata": [members_of(each) for each in snapshot.live_domains.values()],
        "metadata": members_of(snapshot.metadata),
        "protocol": members_of(snapshot.protocol),
    }
    if snapshot.in_commit_ms is not None:
        document["inCommitTimestampOpt"] = snapshot.in_commit_ms
    return to_json(document).encode()


_HINT: Final = (
    "if files of the log were changed or lost, restore the table from a copy; if only this checksum file is "
    "wrong, remove it"
)


def version_checksum(data: bytes) -> VersionChecksum | None:
    """Returns what a checksum file says, None if it is not what the protocol says.

    Then the version is as one without such a file: its writer died while it wrote, or wrote it before the
    protocol had metadata and protocol in it.
    """
    try:
        return read_fields(VersionChecksum, parse_object(data, ""), "")
    except DamagedError:
        return None


def check_snapshot(snapshot: DeltaSnapshot, checksum: VersionChecksum, where: str = "") -> None:
    """Raises `DamagedError`, which names what differs, if a snapshot is not what its writer counted."""
    differing = list(_differences(snapshot, checksum))
    if differing:
        message = f"version {snapshot.version} is not what its writer recorded: {'; '.join(differing)}"
        raise DamagedError(message, where=where, hint=_HINT)


def _differences(snapshot: DeltaSnapshot, checksum: VersionChecksum) -> Iterator[str]:
    counts = [
        ("files", len(snapshot.files), checksum.files),
        ("bytes", snapshot.size_bytes, checksum.size_bytes),
        ("metaData actions", 1, checksum.metadata_actions),
        ("protocol actions", 1, checksum.protocol_actions),
    ]
    for name, count, recorded in counts:
        if count != recorded:
            yield f"{count} {name} instead of {recorded}"
    if snapshot.metadata.id != checksum.metadata.id:
        yield "another table's metaData"
    if _plain(snapshot.metadata) != _plain(checksum.metadata):
        yield "another metaData action"
    if _features(snapshot.protocol) != _features(checksum.protocol):
        yield "another protocol action"
    if checksum.apps is not None and not _same_apps(snapshot, checksum.apps):
        yield "other versions of applications"
    if checksum.domains is not None:
        recorded_domains = {each.domain: each.configuration for each in checksum.domains if not each.removed}
        if {d.domain: d.configuration for d in snapshot.live_domains.values()} != recorded_domains:
            yield "other domain metadata"


def _same_apps(snapshot: DeltaSnapshot, recorded: Iterable[AppTransaction]) -> bool:
    known = {app.app_id: app.version for app in snapshot.apps.values()}
    theirs = {app.app_id: app.version for app in recorded}
    if snapshot.metadata.configuration.get(APPS) is None:
        return known == theirs
    # Each client has forgotten those that had expired when it wrote its file.
    return all(known[app] == theirs[app] for app in known.keys() & theirs.keys())


def _plain(metadata: TableMetadata) -> tuple[object, ...]:
    return (
        metadata.schema_text,
        metadata.partition_columns,
        {name: text for name, text in metadata.configuration.items() if text is not None},
    )


def _features(protocol: TableProtocol) -> tuple[object, ...]:
    return (
        protocol.reader,
        protocol.writer,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )
