"""Whether this release may read a table, and may commit to it, by its protocol (Delta facts 6.1, 6.2, 6.3).

A feature that is unknown is refused by its name: to ignore it could lose rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.features import BY_NAME, FEATURES
from lakefold_table.delta.table_features.type_widening import unknown_change
from lakefold_table.errors import DamagedError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol

LISTED_READER: Final = 3
LISTED_WRITER: Final = 7
"""The protocol versions that list their features; none is higher."""
NEEDS: Final = {
    "rowTracking": "domainMetadata",
    "clustering": "domainMetadata",
    "icebergCompatV1": "columnMapping",
    "icebergCompatV2": "columnMapping",
}
"""Features that a table may only have together with another one."""
_NEWER: Final = "use a newer release, or another client for this table"
_MALFORMED: Final = "the protocol action must be one that Delta's protocol allows"


def reader_features(protocol: TableProtocol) -> frozenset[str]:
    """Returns the names of the features that a reader of the table must know."""
    if protocol.reader == LISTED_READER:
        return frozenset(protocol.reader_features or ())
    return frozenset(each.name for each in FEATURES if 0 < each.reader <= protocol.reader)


def writer_features(protocol: TableProtocol) -> frozenset[str]:
    """Returns the names of the features that a writer of the table must know; those of readers included."""
    if protocol.writer == LISTED_WRITER:
        return frozenset(protocol.writer_features or ()) | reader_features(protocol)
    named = (each.name for each in FEATURES if 0 < each.writer <= protocol.writer)
    return frozenset(named) | reader_features(protocol)


def unknown_features(protocol: TableProtocol) -> frozenset[str]:
    """Returns the names of the features of a table that this release doesn't know or can't read."""
    names = writer_features(protocol)
    return frozenset(name for name in names if name not in BY_NAME or BY_NAME[name].read_refused)


def check_protocol(protocol: TableProtocol, where: str = "") -> None:
    """Raises `DamagedError` if no table may have this protocol action."""
    for fault in _faults(protocol):
        raise DamagedError(f"the table's protocol is malformed: {fault}", where=where, hint=_MALFORMED)


def check_readable(protocol: TableProtocol, where: str = "") -> None:
    """Raises `InvalidError` if the table needs what this release can't read."""
    check_protocol(protocol, where)
    if protocol.reader > LISTED_READER:
        message = f"the table needs reader version {protocol.reader}, the highest known is {LISTED_READER}"
        raise InvalidError(message, where=where, hint=_NEWER)
    for name in sorted(reader_features(protocol)):
        feature = BY_NAME.get(name)
        if feature is None or feature.read_refused:
            reason = "unknown to this release" if feature is None else feature.read
            raise InvalidError(f"the table needs the feature {name}: {reason}", where=where, hint=_NEWER)


def check_types(metadata: TableMetadata, where: str = "") -> None:
    """Raises `InvalidError` if the type of a column was changed in a way that a reader here doesn't know.

    Raises `DamagedError` if there is no schema.
    """
    name = unknown_change(metadata)
    if name:
        message = f"the metadata of the column {name!r} list a change of its type that is unknown"
        raise InvalidError(message, where=where, hint=_NEWER)


def check_committable(protocol: TableProtocol, metadata: TableMetadata, where: str = "") -> None:
    """Raises `InvalidError` if the table needs what this release can't read or can't commit."""
    check_readable(protocol, where)
    if protocol.writer > LISTED_WRITER:
        message = f"the table needs writer version {protocol.writer}, the highest known is {LISTED_WRITER}"
        raise InvalidError(message, where=where, hint=_NEWER)
    for name in sorted(writer_features(protocol)):
        feature = BY_NAME.get(name)
        if feature is None:
            reason = "unknown to this release"
        elif feature.refused_if is not None and feature.refused_if(metadata):
            reason = feature.write
        else:
            continue
        raise InvalidError(f"the table has the feature {name}: {reason}", where=where, hint=_NEWER)


def proposed_faults(protocol: TableProtocol) -> Iterator[tuple[str, str]]:
    """Yields which rules a protocol action breaks that a proposal may not break, each with what to do.

    A table of another client may break them, and is read all the same.
    """
    names = writer_features(protocol)
    for name, needed in NEEDS.items():
        if name in names and needed not in names:
            yield f"the feature {name} needs the feature {needed}", f"add {needed} to the table's protocol"
    if protocol.writer != LISTED_WRITER:
        return
    for name in sorted(protocol.writer_features or ()):
        feature = BY_NAME.get(name)
        if feature is not None and feature.readers and name not in reader_features(protocol):
            hint = f"have reader version {LISTED_READER}, and add it to readerFeatures"
            yield f"readers must know the feature {name} as well, which is in writerFeatures alone", hint


def _faults(protocol: TableProtocol) -> Iterable[str]:
    if protocol.reader < 1 or protocol.writer < 1:
        yield "versions begin with 1"
    if protocol.reader == LISTED_READER and protocol.reader_features is None:
        yield f"reader version {LISTED_READER} needs readerFeatures"
    if protocol.writer == LISTED_WRITER and protocol.writer_features is None:
        yield f"writer version {LISTED_WRITER} needs writerFeatures"
    if protocol.reader < LISTED_READER and protocol.reader_features:
        yield f"readerFeatures need reader version {LISTED_READER}"
    if protocol.writer < LISTED_WRITER and protocol.writer_features:
        yield f"writerFeatures need writer version {LISTED_WRITER}"
    if protocol.reader == LISTED_READER and protocol.writer < LISTED_WRITER:
        yield f"reader version {LISTED_READER} needs writer version {LISTED_WRITER}"
    lacking = sorted(frozenset(protocol.reader_features or ()) - frozenset(protocol.writer_features or ()))
    if lacking:
        yield f"{', '.join(lacking)} must be in writerFeatures as well"
