"""What the outcomes report of a table, and a table that is older: restored to a backup, or deleted."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_committer.fold.fold import FoldedTable
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.recovery.outcome_index import ANYBODY, OutcomeIndex, Reported
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.client.topic_names import Topics
from lakefold_table.entry import Committed, Invalid, Outcome
from lakefold_table.errors import RetryError, StopError
from lakefold_table.marks.record import OUTCOMES
from lakefold_table.position import Position
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, LOG, append, changed, creation, fold_at, versions_at
from tests.foreign import commit, wipe
from tests.memory_storage import MemoryStorage
from tests.reported import Outcomes
from tests.waiting import until

NAME = "witness"
HERE = f"memory://{NAME}/t"
AT = Position(LOG, 0, "transactions")


@pytest.fixture
def outcomes() -> Iterator[Outcomes]:
    yield Outcomes()
    MemoryStorage.forget(NAME)


def recovery(outcomes: Outcomes) -> RecoveryContext:
    return RecoveryContext(LOG, lambda: 100, outcome_index=outcomes, outcomes_offset=lambda: outcomes.end)


def fold_on(outcomes: Outcomes, first: int, count: int) -> None:
    """Entries, each answered by a committer that has just opened the table."""
    for offset in range(first, first + count):
        table = TableWriter(
            StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery(outcomes)
        )
        envelope = append(f"f{offset}", app="a", batch=offset) if offset else creation()
        outcomes.report(fold_at(table, [changed(envelope, lambda e: setattr(e, "table", HERE))], offset))


def open_it(outcomes: Outcomes) -> FoldedTable:
    return open_table(StoredTable(FORMAT, versions_at(HERE)), recovery(outcomes))


def clean_up(*numbers: int) -> None:
    for number in numbers:
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))


def test_a_version_records_from_which_outcome_to_read(outcomes: Outcomes) -> None:
    fold_on(outcomes, 0, 3)
    properties = StoredTable(FORMAT, versions_at(HERE)).own_properties(3)
    assert properties is not None
    assert properties[OUTCOMES] == "0@4"
    open_it(outcomes)
    assert outcomes.asked[-1] == 4


def test_a_table_set_back_is_not_folded_on(outcomes: Outcomes) -> None:
    fold_on(outcomes, 0, 4)
    clean_up(3, 4)
    with pytest.raises(StopError) as caught:
        open_it(outcomes)
    assert "the table is at version 2, its marks at version 2 and transactions/0@1" in caught.value.message
    assert "version 4 was reported, with transactions/0@3" in caught.value.message
    assert "lakefold rebind" in caught.value.hint
    assert caught.value.where == HERE


def test_a_table_set_back_that_others_went_on_with(outcomes: Outcomes) -> None:
    """Its number says nothing then."""
    fold_on(outcomes, 0, 4)
    clean_up(3, 4)
    for _ in range(5):
        commit(HERE, "delete")
    with pytest.raises(StopError, match="is at version 7, its marks at version 2"):
        open_it(outcomes)


def test_versions_that_were_cleaned_up_are_no_sign_of_a_backup(outcomes: Outcomes) -> None:
    fold_on(outcomes, 0, 4)
    for _ in range(2):
        commit(HERE, "delete")
    clean_up(1, 2, 3, 4)
    assert open_it(outcomes).marks.version == 4
    clean_up(5)
    assert open_it(outcomes).marks.version == 4


def test_wiped_marks_whose_versions_are_gone(outcomes: Outcomes) -> None:
    """The table looks as if it had never been folded; an old batch would be folded twice."""
    fold_on(outcomes, 0, 3)
    commit(HERE, "update_config", wipe)
    assert open_it(outcomes).marks.version == 3
    clean_up(1, 2, 3)
    with pytest.raises(
        StopError, match=r"has no marks, but transactions/0@2, .* was folded into its version 3"
    ):
        open_it(outcomes)


def test_outcomes_of_other_tables_and_branches_say_nothing(outcomes: Outcomes) -> None:
    fold_on(outcomes, 0, 2)
    table_id = open_it(outcomes).marks.table_id
    far = Committed(99)
    outcomes.report(
        [
            Outcome(AT, "memory://other/t", far, table_id=table_id),
            Outcome(AT, HERE, far, table_id="that lay here before"),
            Outcome(AT, HERE, far, table_id=table_id, branch="b"),
            Outcome(AT, HERE, Invalid("no")),
        ]
    )
    assert open_it(outcomes).version == 2
    outcomes.report([Outcome(AT, HERE, far, table_id=table_id)])
    with pytest.raises(StopError, match="version 99 was reported"):
        open_it(outcomes)


def test_the_outcomes_of_another_partition_are_not_asked(outcomes: Outcomes) -> None:
    fold_on(outcomes, 0, 2)
    asked = len(outcomes.asked)
    stray = replace(recovery(outcomes), log=replace(LOG, partition=3))
    open_table(StoredTable(FORMAT, versions_at(HERE)), stray)
    assert len(outcomes.asked) == asked


HEIGHTS = st.lists(st.integers(1, 9), max_size=12)


@given(HEIGHTS, HEIGHTS, st.integers(0, 25))
def test_reported_gives_the_highest_from_any_offset_on(
    older: list[int], newer: list[int], since: int
) -> None:
    def reported(versions: list[int], first: int) -> Reported:
        reported = Reported()
        for number, version in enumerate(versions):
            reported.add(first + number, Outcome(AT, HERE, Committed(version), table_id="id"))
        return reported

    both = reported(newer, len(older))
    both.put_before(reported(older, 0))
    highest = max([*older, *newer][since:], default=None)
    for table_id in ("id", ANYBODY):
        actual = both.newest(HERE, table_id, since)
        assert (None if actual is None else actual.version) == highest
    assert both.newest(HERE, "another", 0) is None


class Door:
    """A lock that counts who has come to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.come = 0

    def __enter__(self) -> None:
        self.come += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Reading(OutcomeIndex):
    """Reads nothing, and counts how often. The first read waits until it may end."""

    def __init__(self, faults: int = 0) -> None:
        super().__init__(None, None, Topics(), 0)  # type: ignore[arg-type]
        self._lock = self.door = Door()  # type: ignore[assignment]
        self.reads, self.faults, self.go_on = 0, faults, threading.Event()

    def _read(self, since: int) -> None:
        self.reads += 1
        self.go_on.wait()
        if self.reads > 1 and self.faults:
            self.faults -= 1
            raise RetryError("no broker answers")
        self._low = min(since, self._low) if self._low >= 0 else since


def ask_at_once(index: Reading, sinces: list[int]) -> list[BaseException | None]:
    """The first asks and reads; while it reads, the others ask. Returns how each ended."""
    with ThreadPoolExecutor(len(sinces)) as pool:
        asked = []
        for count, since in enumerate(sinces, 1):
            asked.append(pool.submit(index.newest_committed, HERE, "id", since))
            until(lambda count=count: index.door.come == count, "the query to come to the lock")  # type: ignore[misc]
        index.go_on.set()
        return [each.exception() for each in asked]


def test_tables_that_are_opened_at_once_share_a_read() -> None:
    index = Reading()
    assert ask_at_once(index, [5] * 8) == [None] * 8
    assert index.reads == 2, "the first had begun before the others asked"
    assert index.newest_committed(HERE, "id", 5) is None
    assert index.reads == 3, "who asks later needs what was reported meanwhile"


def test_a_read_that_failed_serves_nobody() -> None:
    index = Reading(faults=2)
    errors = ask_at_once(index, [5] * 5)
    assert sorted(type(error).__name__ for error in errors) == ["NoneType"] * 3 + ["RetryError"] * 2
    assert index.reads == 4


def test_a_read_from_a_later_offset_does_not_serve_who_needs_earlier_ones() -> None:
    index = Reading()
    assert ask_at_once(index, [5, 5, 5, 3]) == [None] * 4
    assert index._low == 3
