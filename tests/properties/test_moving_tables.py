"""A table that is moved about between logs, by acceptance and by hand, with foreign clients in between.

Whatever the order: a batch is in the table once, what was committed is never answered otherwise, a Duplicate
is there, and positions don't go back within a log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakefold_committer.fold.binding import LossOverride
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.rebinding import publish_move
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed, Duplicate, Entry, Result
from lakefold_table.errors import FencedError, GapError
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import MAX_MOVES, Rebinding, RebindReason
from lakefold_table.position import Position
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, LOG, append, changed, creation, entries, versions_at
from tests.foreign import commit, wipe
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import LogId

NAME = "moving-tables"
HERE = f"memory://{NAME}/t"
TOPIC = "transactions"
LOGS = (LOG, replace(LOG, topic_id="made again"), replace(LOG, partition=1), replace(LOG, cluster_id="other"))


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda e: setattr(e, "table", HERE))


class Moving(RuleBasedStateMachine):
    """A table and four logs. `answers`: the version of each position that was committed."""

    def __init__(self) -> None:
        super().__init__()
        MemoryStorage.forget(NAME)
        self.logs: dict[LogId, list[Envelope]] = {log: [] for log in LOGS}
        self.answers: dict[Position, int] = {}
        self.reached: dict[LogId, int] = {}
        self.owner: tuple[LogId, TableWriter] | None = None

    def teardown(self) -> None:
        """Leaves nothing behind."""
        MemoryStorage.forget(NAME)

    @initialize()
    def begin(self) -> None:
        """The table is created."""
        self.logs[LOG].append(here(creation()))
        self.fold(LOG, 0, accept=False, stays=False)

    @rule(
        log=st.sampled_from(LOGS),
        numbers=st.lists(st.integers(1, 12), min_size=1, max_size=3),
        back=st.integers(0, 4),
        accept=st.booleans(),
        stays=st.booleans(),
    )
    def deliver(self, log: LogId, numbers: list[int], back: int, *, accept: bool, stays: bool) -> None:
        """New entries in a log, and some that were in it before; to the last committer or a new committer."""
        first = max(0, len(self.logs[log]) - back)
        self.logs[log] += [here(append(f"f{number}", app="a", batch=number)) for number in numbers]
        self.fold(log, first, accept=accept, stays=stays)

    @rule(log=st.sampled_from(LOGS))
    def rebind(self, log: LogId) -> None:
        """By hand, to a log of which all is taken for answered."""
        self.move(RebindReason.REBOUND, Position(log, len(self.logs[log]) - 1, TOPIC))

    @rule()
    def detach(self) -> None:
        """By hand."""
        self.move(RebindReason.DETACHED, None)

    @rule(wiped=st.booleans())
    def foreign(self, *, wiped: bool) -> None:
        """Another client's version, which may wipe the marks."""
        commit(HERE, "update_config" if wiped else "delete", wipe if wiped else None)

    @invariant()
    def each_batch_is_there_once(self) -> None:
        """No file is in the table twice."""
        names = self.names()
        assert len(names) == len(set(names)), names

    @invariant()
    def positions_grow_within_a_log(self) -> None:
        """As long as the marks remember that log."""
        if not self.answers:
            return
        marks = open_table(StoredTable(FORMAT, versions_at(HERE))).marks
        for log in LOGS:
            if len(marks.moves) < MAX_MOVES:
                assert marks.offset_of(log) >= self.reached.get(log, -1)
            self.reached[log] = marks.offset_of(log)

    def names(self) -> list[str]:
        """The files in the table."""
        newest = versions_at(HERE).latest()
        state = StoredTable(FORMAT, versions_at(HERE)).read_state(newest) if newest else None
        assert state is None or isinstance(state, LanceState)
        return [] if state is None else [fragment.files[0].path for fragment in state.fragments]

    def fold(self, log: LogId, first: int, *, accept: bool, stays: bool) -> None:
        """A committer of this log folds its entries from `first` on, unless it stops."""
        owner, self.owner = self.owner, None
        try:
            kept = owner[1] if stays and owner is not None and owner[0] == log else None
            table = kept or self.opened(log, accept=accept)
            outcomes = table.fold(entries(self.logs[log][first:], first, log)).outcomes
        except (GapError, FencedError):
            return
        self.owner = (log, table)
        for outcome, entry in zip(outcomes, entries(self.logs[log][first:], first, log), strict=False):
            self.check(entry, outcome.result)

    def opened(self, log: LogId, *, accept: bool) -> TableWriter:
        """The table, as a committer of this log opens it."""
        by = LossOverride(log, TOPIC, 0, lambda _, before: before) if accept else None
        recovery = RecoveryContext(log, lambda: len(self.logs[log]), accept=by)
        return TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery)

    def check(self, entry: Entry, result: Result) -> None:
        """The answer holds, and is that which was given before."""
        before = self.answers.get(entry.position)
        if isinstance(result, Committed):
            assert before in {None, result.version}
            self.answers[entry.position] = result.version
        elif not isinstance(result, Duplicate):
            assert before is None, (entry.position, result)
        if isinstance(result, Committed | Duplicate) and entry.batch_id is not None:
            assert f"f{entry.batch_id}-0.lance" in self.names()

    def move(self, why: RebindReason, after: Position | None) -> None:
        """A verb's version."""

        def decide(table: FoldedTable) -> Rebinding:
            return Rebinding(why, table.marks.position, after)

        publish_move(StoredTable(FORMAT, versions_at(HERE)), decide)


TestMoving = Moving.TestCase
TestMoving.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
