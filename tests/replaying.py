"""Logs as lists of entries, and a table in memory folded from such a list: for folding it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.replay.log_reader import EntriesGoneError
from lakefold_committer.replay.replay import replay
from lakefold_table.formats import BUILT_IN
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import (
    append,
    changed,
    creation,
    entries,
    fold_at,
    opened,
    versions_at,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakefold_committer.replay.version_replay import Replayed, Verdict
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry
    from lakefold_table.position import LogId

NAME = "replay"
HERE = f"memory://{NAME}/t"


class Listed:
    """Entries by their positions. What isn't among them is gone."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = {entry.position: entry for entry in entries}

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `lakefold_committer.replay.log_reader.Entries`."""
        del topic
        values = {position.offset: entry for position, entry in self.entries.items() if position.log == log}
        missing = set(offsets) - values.keys()
        if missing:
            raise EntriesGoneError(f"no message is at {min(missing)} any more")
        return {offset: values[offset] for offset in offsets}


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda e: setattr(e, "table", HERE))


def bad(name: str = "bad") -> Envelope:
    return here(changed(append(name), lambda e: setattr(e.lance, "read_version", 999)))


ALL = [
    bad("before there is a table"),
    here(creation()),
    here(append("f", app="a", batch=1)),
    bad(),
    here(append("again", app="a", batch=1)),
    here(append("g", fragments=2, app="b", batch=7)),
    here(append("r", read=2)),
    here(append("h", read=2)),
]


def listed(*without: int) -> Listed:
    return Listed(entry for entry in entries(ALL, 0) if entry.position.offset not in without)


def replayed(log: Listed | None = None, first: int | None = None, last: int | None = None) -> list[Replayed]:
    return list(replay(StoredTable(BUILT_IN.first, versions_at(HERE)), log or listed(), first, last))


def verdicts(log: Listed | None = None, first: int | None = None) -> list[Verdict]:
    return [each.verdict for each in replayed(log, first)]


def fold_all(*sizes: int) -> TableWriter:
    table, offset = opened(HERE), 0
    for size in sizes:
        fold_at(table, ALL[offset : offset + size], offset)
        offset += size
    return table
