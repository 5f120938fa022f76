"""What the outcomes topic tells of a table: the newest version that was reported, and that there was one.

A table that was set back to a backup looks like any other, and one whose store is away like none. Only the
outcomes, which lie elsewhere, know that it had been further. Each outcome is read once for all tables, and
only as far back as a table asks for; to the topic's start once, where there is no table.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from lakefold_committer.recovery.recovery_context import LastCommit
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.read.trust import EVERYBODY
from lakefold_table.branch_names import TREE, root_of
from lakefold_table.entry import Committed
from lakefold_table.errors import RetryError
from lakefold_table.uri import place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakefold_log.client.admin import Admin, KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.trust import Trust
    from lakefold_table.entry import Outcome
    from lakefold_table.uri import Place

ANYBODY = ""
LONGEST_WAIT_S = 0.5
"""So long a question waits for the answer to another one, before it is put off."""


@dataclass
class Reported:
    """Of some outcomes the highest version of each table, from any offset on.

    `heights`: by table and table id, for each outcome that no later one of the same exceeds, its offset and
    what it tells; offsets ascend and versions descend, so there is mostly one.
    """

    heights: dict[tuple[str, str], list[tuple[int, LastCommit]]] = field(default_factory=dict)

    def add(self, offset: int, outcome: Outcome) -> None:
        """Takes in the outcome at `offset`, which lies behind all others."""
        if not isinstance(outcome.result, Committed):
            return
        told = LastCommit(outcome.result.version, outcome.position, outcome.table_id)
        for table_id in {outcome.table_id, ANYBODY}:
            heights = self.heights.setdefault((root_of(outcome.table, outcome.branch), table_id), [])
            while heights and heights[-1][1].version <= told.version:
                heights.pop()
            heights.append((offset, told))

    def put_before(self, older: Reported) -> None:
        """Takes in what outcomes tell that lie before all of these."""
        for name, before in older.heights.items():
            heights = self.heights.setdefault(name, [])
            least = heights[0][1].version if heights else -1
            heights[:0] = [one for one in before if one[1].version > least]

    def newest(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """The highest version of the table that was told at or behind offset `since`."""
        heights = self.heights.get((uri, table_id), ())
        return next((told for offset, told in heights if offset >= since), None)


class LastCommitted:
    """Of each line the last proposal that was reported committed. Grows with the lines that there were.

    Not with the names that are asked for: nothing is kept of a line that never was.
    """

    def __init__(self) -> None:
        self._last: dict[Place, LastCommit] = {}

    def add(self, outcome: Outcome) -> None:
        """Takes in an outcome that lies behind all others."""
        if isinstance(outcome.result, Committed):
            told = LastCommit(outcome.result.version, outcome.position, outcome.table_id)
            self._last[_line(outcome.table, outcome.branch)] = told

    def hear(self, uri: str, told: LastCommit) -> None:
        """Takes in what will be reported behind all others."""
        self._last[_line(uri, "")] = told

    def of(self, uri: str) -> LastCommit | None:
        """What is known of the line at this root."""
        return self._last.get(_line(uri, ""))


@lru_cache(4096)
def _line(table: str, branch: str) -> Place:
    """One place may be spelled in two ways."""
    return place(root_of(table, branch))


class OutcomesWitness:
    """The witness of one partition (`ReportedVersions`), for any thread. `trust`: whose outcomes count."""

    def __init__(
        self,
        config: KafkaConfig,
        admin: Admin,
        topics: Topics,
        partition: int,
        trust: Trust = EVERYBODY,
    ) -> None:
        self._trust = trust
        self._config, self._admin, self._topics, self._partition = config, admin, topics, partition
        self._lock = threading.Lock()
        self._reported = Reported()
        self._topic_id = ""
        self._low = self._high = -1
        self._reading_all = threading.Lock()
        self._told, self._heard = LastCommitted(), LastCommitted()
        self._told_below = 0
        self._all_told = False

    def newest_committed(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """See `ReportedVersions`. Raises `RetryError` where no broker answers."""
        if not table_id:
            return self._newest_of_any(uri, since)
        with self._lock:
            self._read(since)
            return self._reported.newest(uri, table_id, since)

    def last_committed(self, uri: str) -> LastCommit | None:
        """See `ReportedVersions`. Reads all outcomes first, and goes on from there if that is cut short.

        Nobody else reports in this partition any more, so that what is heard is all that comes after them.
        """
        heard = self._heard.of(uri)
        if heard is not None:
            return heard
        if not self._all_told:
            # Others' tasks must not all wait here, whatever names somebody sends.
            if not self._reading_all.acquire(timeout=LONGEST_WAIT_S):
                where = f"{self._topics.outcomes}/{self._partition}"
                raise RetryError("its outcomes are being read", where=where, hint="this ends by itself")
            try:
                self._read_all()
            finally:
                self._reading_all.release()
        return self._told.of(uri)

    def heard(self, uri: str, told: LastCommit) -> None:
        """See `ReportedVersions`."""
        self._heard.hear(uri, told)

    def _read_all(self) -> None:
        if self._all_told:
            return
        start = watermarks(self._admin, self._topics.outcomes, self._partition).start
        for offset, outcome in self.outcomes(max(self._told_below, start)):
            self._told.add(outcome)
            self._told_below = offset + 1
        self._all_told = True

    def _newest_of_any(self, uri: str, since: int) -> LastCommit | None:
        """Of whatever lay there. Asked of tables without marks only, so nothing is kept for the next one."""
        start = watermarks(self._admin, self._topics.outcomes, self._partition).start
        reported = Reported()
        main = uri.partition(f"/{TREE}/")[0]
        for offset, outcome in self.outcomes(max(since, start), (uri, main)):
            reported.add(offset, outcome)
        return reported.newest(uri, ANYBODY, since)

    def _read(self, since: int) -> None:
        """Reads what isn't known yet of the outcomes from `since` on."""
        topic = self._topics.outcomes
        topic_id = describe(self._admin, topic).topic_id
        start, end = watermarks(self._admin, topic, self._partition)
        first = min(max(since, start), end)
        if topic_id != self._topic_id or self._low < 0:
            self._reported, self._topic_id = Reported(), topic_id
            self._low = self._high = first
        if first < self._low:
            older = Reported()
            self._take(older, self.outcomes(first), self._low)
            self._reported.put_before(older)
            self._low = first
        if end > self._high:
            self._take(self._reported, self.outcomes(self._high), end)
            self._high = end

    def outcomes(self, first: int, tables: Collection[str] | None = None) -> Iterator[tuple[int, Outcome]]:
        """The outcomes from offset `first` on, of all tables or of some."""
        return read_outcomes(
            self._config, self._topics, self._partition, first, tables=tables, trust=self._trust
        )

    def _take(self, into: Reported, outcomes: Iterable[tuple[int, Outcome]], end: int) -> None:
        for offset, outcome in outcomes:
            if offset >= end:
                break
            into.add(offset, outcome)
