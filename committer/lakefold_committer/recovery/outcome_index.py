"""An index of the outcomes topic: for each table the newest version that was reported as committed.

A table that was restored to an earlier copy looks like any other, and a table whose store is not mounted
looks as if it never existed. Only the outcomes, which are stored in Kafka, show that the table had later
versions. Each outcome is read once for all tables, and only as far back as a table needs. The topic is read
from its start, once, if a table does not exist.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from lakefold_committer.recovery.recovery_context import LastCommit
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.accepted_signers import EVERYBODY, AcceptedSigners
from lakefold_log.read.outcomes import read_outcomes
from lakefold_table.branch_names import TREE, root_of
from lakefold_table.entry import Committed, Outcome
from lakefold_table.errors import RetryError
from lakefold_table.uri import Location, parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics

ANYBODY = ""
LONGEST_WAIT_S = 0.5
"""How long a query waits while another one reads the topic, before it raises `RetryError`."""


@dataclass
class Reported:
    """The highest version of each table among some outcomes, at or after any offset.

    `heights`: by table and table id, the offset and commit of each outcome whose version no later outcome
    reaches. Offsets ascend and versions descend, so mostly a list has a single element.
    """

    heights: dict[tuple[str, str], list[tuple[int, LastCommit]]] = field(default_factory=dict)

    def add(self, offset: int, outcome: Outcome) -> None:
        """Adds the outcome at `offset`, which is higher than all offsets added before."""
        if not isinstance(outcome.result, Committed):
            return
        commit = LastCommit(outcome.result.version, outcome.position, outcome.table_id)
        for table_id in {outcome.table_id, ANYBODY}:
            heights = self.heights.setdefault((root_of(outcome.table, outcome.branch), table_id), [])
            while heights and heights[-1][1].version <= commit.version:
                heights.pop()
            heights.append((offset, commit))

    def put_before(self, older: Reported) -> None:
        """Adds outcomes whose offsets are all lower than all added before."""
        for name, before in older.heights.items():
            heights = self.heights.setdefault(name, [])
            least = heights[0][1].version if heights else -1
            heights[:0] = [(offset, commit) for offset, commit in before if commit.version > least]

    def newest(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """Returns the commit with the highest version that was reported at or after offset `since`.

        Returns None if none was reported.
        """
        heights = self.heights.get((uri, table_id), ())
        return next((commit for offset, commit in heights if offset >= since), None)


class LastCommitted:
    """The last proposal of each branch that was reported as committed.

    It grows with the number of branches that existed, not with the queries: nothing is kept of a branch that
    never existed.
    """

    def __init__(self) -> None:
        self._last: dict[Location, LastCommit] = {}

    def add(self, outcome: Outcome) -> None:
        """Adds an outcome whose offset is higher than all offsets added before."""
        if isinstance(outcome.result, Committed):
            commit = LastCommit(outcome.result.version, outcome.position, outcome.table_id)
            self._last[_branch_key(outcome.table, outcome.branch)] = commit

    def add_commit(self, uri: str, commit: LastCommit) -> None:
        """Adds a commit that will be reported after all that were added before."""
        self._last[_branch_key(uri, "")] = commit

    def of(self, uri: str) -> LastCommit | None:
        """Returns the last commit of the branch at this root, None if none was reported."""
        return self._last.get(_branch_key(uri, ""))


@lru_cache(4096)
def _branch_key(table: str, branch: str) -> Location:
    """Returns the same key for each spelling of a URI."""
    return parse_location(root_of(table, branch))


class OutcomeIndex:
    """The outcomes of a partition (see `ReportedVersions`). Any thread may use it.

    `signers` decides which reporters' outcomes count.
    """

    def __init__(
        self,
        admin: Admin,
        topics: Topics,
        partition: int,
        signers: AcceptedSigners = EVERYBODY,
    ) -> None:
        self._signers = signers
        self._admin, self._topics, self._partition = admin, topics, partition
        self._lock = threading.Lock()
        self._reported = Reported()
        self._topic_id = ""
        self._low = self._high = -1
        self._reads_begun = self._last_read = 0
        self._reading_all = threading.Lock()
        self._stored, self._own = LastCommitted(), LastCommitted()
        self._read_below = 0
        self._all_read = False

    def newest_committed(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """See `ReportedVersions`. Raises `RetryError` if no broker answers.

        A read that another query began after this query was called serves both.
        """
        if not table_id:
            return self._newest_of_any(uri, since)
        begun = self._reads_begun
        with self._lock:
            # While the committer reports, each read finds new outcomes and needs clients of its own: tables
            # that are opened at once would wait for as many reads.
            if self._last_read <= begun or not 0 <= self._low <= since:
                self._reads_begun += 1
                self._read(since)
                self._last_read = self._reads_begun
            return self._reported.newest(uri, table_id, since)

    def last_committed(self, uri: str) -> LastCommit | None:
        """See `ReportedVersions`. Reads all outcomes first; if that fails, the next call continues there.

        No other committer reports in this partition any more, so all later outcomes are passed to `add_own`.
        """
        own = self._own.of(uri)
        if own is not None:
            return own
        if not self._all_read:
            # A client may send many names of tables that don't exist. They must not block all worker threads.
            if not self._reading_all.acquire(timeout=LONGEST_WAIT_S):
                where = f"{self._topics.outcomes}/{self._partition}"
                hint = "nothing has to be done: the committer tries again"
                raise RetryError("the outcomes are being read", where=where, hint=hint)
            try:
                self._read_all()
            finally:
                self._reading_all.release()
        return self._stored.of(uri)

    def add_own(self, uri: str, commit: LastCommit) -> None:
        """See `ReportedVersions`."""
        self._own.add_commit(uri, commit)

    def _read_all(self) -> None:
        if self._all_read:
            return
        start = watermarks(self._admin, self._topics.outcomes, self._partition).start
        for offset, outcome in self.outcomes(max(self._read_below, start)):
            self._stored.add(outcome)
            self._read_below = offset + 1
        self._all_read = True

    def _newest_of_any(self, uri: str, since: int) -> LastCommit | None:
        """Returns the highest version of any table that was ever at `uri`.

        Only tables without marks need it, so the result is not kept for the next query.
        """
        start = watermarks(self._admin, self._topics.outcomes, self._partition).start
        reported = Reported()
        main = uri.partition(f"/{TREE}/")[0]
        for offset, outcome in self.outcomes(max(since, start), (uri, main)):
            reported.add(offset, outcome)
        return reported.newest(uri, ANYBODY, since)

    def _read(self, since: int) -> None:
        """Reads those outcomes from offset `since` on that have not been read yet."""
        with self._admin.consumers.keeping():
            self._read_new(since)

    def _read_new(self, since: int) -> None:
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
        """Yields the outcomes from offset `first` on with their offsets, only those of `tables` if given."""
        return read_outcomes(
            self._admin, self._topics, self._partition, first, tables=tables, signers=self._signers
        )

    def _take(self, into: Reported, outcomes: Iterable[tuple[int, Outcome]], end: int) -> None:
        for offset, outcome in outcomes:
            if offset >= end:
                break
            into.add(offset, outcome)
