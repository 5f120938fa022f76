"""The outcome index on a real topic: each outcome is read once, back and forth, as far as needed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.recovery.outcome_index import OutcomeIndex
from lakefold_committer.recovery.recovery_context import LastCommit
from lakefold_table.entry import Invalid
from lakefold_table.errors import RetryError
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakefold_table.entry import Outcome
    from tests.integration.conftest import TopicNames


class Counting(OutcomeIndex):
    """Notes what it reads."""

    def __init__(self, own: OwnLog) -> None:
        super().__init__(own.admin, own.topics, 0)
        self.read: list[int] = []

    def outcomes(self, first: int, tables: Collection[str] | None = None) -> Iterator[tuple[int, Outcome]]:
        """See `OutcomeIndex.outcomes`."""
        for offset, outcome in super().outcomes(first, tables):
            self.read.append(offset)
            yield offset, outcome


def test_it_reads_what_it_does_not_know_yet(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    witness, fresh = Counting(own), Counting(own)

    def version(since: int, table_id: str = "id") -> int | None:
        commit = witness.newest_committed(TABLE, table_id, since)
        return None if commit is None else commit.version

    assert version(0) is None
    with own.reporter() as reporter:

        def report(*versions: int) -> int:
            made = [replace(own.committed(version, version), table_id="id") for version in versions]
            end = reporter.report(made, [], versions[-1] + 1, own.stamp(versions[-1] + 1))
            # Decided is not yet marked: the broker does that a moment later.
            own.answers()
            return end

        first = report(1, 2, 3)
        second = report(4, 5)
        assert (version(0), version(first), version(second)) == (5, 5, None)
        assert (version(0), version(1)) == (5, 5)
        assert len(witness.read) == 5
        report(6)
        assert version(second) == 6
        assert len(witness.read) == 6
        witness = fresh
        assert version(second) == 6
        assert len(witness.read) == 1
        assert (version(first), version(0), version(1)) == (6, 6, 6)
        # Each time it went further back it met a table that it knew.
        assert (len(witness.read), len(set(witness.read))) == (8, 6)
        assert version(0, table_id="") == 6
        assert version(10_000) is None


def test_all_of_them_are_read_once_for_tables_that_are_not_there(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:

        def report(first: int, *outcomes: Outcome) -> None:
            reporter.report([*outcomes], [], first + len(outcomes), own.stamp(first + len(outcomes)))
            own.answers()

        once = replace(own.committed(0, 9), table_id="once")
        refused = replace(own.committed(1, 4), table="memory://lake/refused", result=Invalid("no"))
        branch = replace(own.committed(2, 3), branch="b")
        report(0, once, refused, branch, replace(own.committed(3, 1), table_id="again"))
        witness = Counting(own)

        def last(uri: str) -> tuple[int, str, int] | None:
            commit = witness.last_committed(uri)
            return None if commit is None else (commit.version, commit.table_id, commit.position.offset)

        for _ in range(3):
            assert last(TABLE) == (1, "again", 3), "the last one, not the highest"
            assert last(f"{TABLE}/tree/b") == (3, "", 2)
            assert last("memory://lake/refused") is None
            assert last("memory://lake/never") is None
        assert len(witness.read) == 4
        report(4, own.committed(4, 2))
        commit = LastCommit(2, own.committed(4, 2).position, "again")
        witness.add_own(TABLE, commit)
        witness.add_own("memory://lake/new%2Dtable", commit)
        assert last(TABLE) == last("memory://lake/new-table") == (2, "again", 4)
        assert last("memory://lake/never") is None
        assert len(witness.read) == 4, "it reads nothing that it was given"


class Stumbling(Counting):
    """Loses the brokers once."""

    left = 2

    def outcomes(self, first: int, tables: Collection[str] | None = None) -> Iterator[tuple[int, Outcome]]:
        """See `OutcomeIndex.outcomes`."""
        for outcome in super().outcomes(first, tables):
            if self.left == 0:
                self.left = -1
                raise RetryError("no broker answers")
            self.left -= 1
            yield outcome


def test_an_interrupted_read_continues_from_there(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        made = [own.committed(number, number + 1) for number in range(5)]
        reporter.report(made, [], 5, own.stamp(5))
        own.answers()
    witness = Stumbling(own)
    with pytest.raises(RetryError):
        witness.last_committed(TABLE)
    commit = witness.last_committed(TABLE)
    assert commit is not None
    assert commit.version == 5
    assert witness.read == [0, 1, 2, 2, 3, 4]


def test_queries_do_not_pile_up_behind_the_one_that_reads(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        reporter.report([own.committed(0, 1)], [], 1, own.stamp(1))
        own.answers()
    reached, release = threading.Event(), threading.Event()

    class Slow(Counting):
        def outcomes(
            self, first: int, tables: Collection[str] | None = None
        ) -> Iterator[tuple[int, Outcome]]:
            """See `OutcomeIndex.outcomes`."""
            reached.set()
            assert release.wait(PATIENCE_S)
            return super().outcomes(first, tables)

    witness = Slow(own)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(witness.last_committed, "memory://lake/never")
        assert reached.wait(PATIENCE_S)
        with pytest.raises(RetryError, match="the outcomes are being read"):
            witness.last_committed(TABLE)
        release.set()
        assert first.result(PATIENCE_S) is None
    assert witness.last_committed(TABLE) is not None
