"""Logs as lists of entries, for folding them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.relog import EntriesGoneError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakefold_table.entry import Entry, LogId


class Listed:
    """Entries by their positions. What isn't among them is gone."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = {one.position: one for one in entries}

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `lakefold_committer.relog.Entries`."""
        del topic
        found = {position.offset: one for position, one in self.entries.items() if position.log == log}
        missing = set(offsets) - found.keys()
        if missing:
            raise EntriesGoneError(f"nothing stands at {min(missing)} any more")
        return {offset: found[offset] for offset in offsets}
