"""The witness on a real outcomes topic: each outcome is read once, back and forth, as far as is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.witness import OutcomesWitness
from tests.integration.own_log import TABLE, OwnLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakefold_table.entry import Outcome
    from tests.integration.conftest import TopicNames


class Counting(OutcomesWitness):
    """Notes what it reads."""

    def __init__(self, own: OwnLog) -> None:
        super().__init__(own.config, own.admin, own.topics, 0)
        self.read: list[int] = []

    def outcomes(self, first: int, tables: Collection[str] | None = None) -> Iterator[tuple[int, Outcome]]:
        """See `OutcomesWitness.outcomes`."""
        for offset, outcome in super().outcomes(first, tables):
            self.read.append(offset)
            yield offset, outcome


def test_it_reads_what_it_does_not_know_yet(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    witness, fresh = Counting(own), Counting(own)

    def version(since: int, table_id: str = "id") -> int | None:
        found = witness.newest_committed(TABLE, table_id, since)
        return None if found is None else found.version

    assert version(0) is None
    with own.reporter() as reporter:

        def report(*versions: int) -> int:
            made = [replace(own.committed(one, one), table_id="id") for one in versions]
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
        # Each time it went further back it met one that it knew.
        assert (len(witness.read), len(set(witness.read))) == (8, 6)
        assert version(0, table_id="") == 6
        assert version(10_000) is None
