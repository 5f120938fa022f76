"""A proposal that changes nothing, sent so that its key is folded: what it shares and conflicts with.

Promise: nothing-counts (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from lakefold_committer.fold.grouping import Limits
from lakefold_ingest.delta.proposals import key_proposal
from lakefold_ingest.lance.proposals import nothing
from lakefold_ingest.proposals.key import MAX_BATCH_ID, Key
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.table_actions import MOST_BATCH, AppTransaction
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.lance.conflicts.footprint import Filter, Footprint, Indexing, KeyChanges
from lakefold_table.lance.conflicts.rule import always
from lakefold_table.lance.conflicts.rules import RULES
from lakefold_table.lance.conflicts.transaction_footprint import footprint_of
from lakefold_table.lance.kinds import Kind
from tests.folding import FORMAT, URI, append, created, entries, groups_of, results
from tests.unit.test_delta_format import THIRD_ID, Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

ALL = KeyChanges(frozenset({"a"}), frozenset({"b"}), replaces=True)


def of_nothing(batch: int, read: int = 1, app: str = "app") -> Envelope:
    return nothing(URI, Key(app, batch), read)


def touching_everything(kind: Kind) -> Footprint:
    """What an operation touches that meets every other one."""
    return Footprint(
        kind,
        frozenset({1}),
        frozenset({1}),
        fields=frozenset({0, 1}),
        schema=frozenset({0}),
        carries_reuse=True,
        indexing=Indexing(),
        config=ALL,
        table_metadata=ALL,
        schema_metadata=True,
        field_metadata=frozenset({0}),
        describes=True,
        inserted=Filter((0,), b"12345678"),
        bases=((1, "a", "b"),),
    )


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.UNKNOWN])
def test_a_lance_proposal_of_nothing_conflicts_with_no_operation(kind: Kind) -> None:
    empty, other = footprint_of(of_nothing(0).lance), touching_everything(kind)
    for ours, theirs in ((empty, other), (other, empty)):
        for rule in RULES[ours.kind].get(theirs.kind, ()):
            assert rule.condition is not always
            assert rule.condition(ours, theirs, 2) is None, rule.when


def test_many_lance_proposals_of_nothing_share_a_version_with_each_other_and_with_rows() -> None:
    limits = Limits(100, 1_000_000)
    table = created()
    many = entries([of_nothing(batch) for batch in range(50)], 1)
    (group,) = groups_of(many, FORMAT, limits, table.state)
    folded = table.fold_group(group)
    assert results(folded) == [Committed(2)] * 50
    assert table.made.WhichOneof("operation") == "update_config"
    for mixed in (
        [of_nothing(50, 2), append("a", read=2), of_nothing(51, 2), append("b", read=2)],
        [append("c", read=3), of_nothing(52, 2), append("d", read=3)],
        [append("e", read=4), of_nothing(53, 2)],
    ):
        (group,) = groups_of(entries(mixed, table.offset + 100), FORMAT, limits, table.state)
        folded = table.fold_group(group)
        assert {type(result) for result in results(folded)} == {Committed}
        assert table.made.WhichOneof("operation") == "append"
        appends = sum(each.lance.HasField("append") for each in mixed)
        assert len(table.made.append.fragments) == appends
        table.offset += 200
    assert sum(fragment.physical_rows for fragment in table.state.fragments) == 5 * 3


def test_its_key_is_known_afterwards_and_its_properties_are_recorded() -> None:
    table = created()
    table.fold(of_nothing(3))
    other = append("again", app="app", batch=3)
    assert isinstance(table.reopened().result(other), Duplicate)
    with_properties = of_nothing(4, 2)
    with_properties.lance.transaction_properties["why"] = "because"
    folded = table.fold(of_nothing(5, 2), with_properties)
    assert [type(result) for result in results(folded)] == [Committed], "it has a version of its own"


def test_a_delta_proposal_of_nothing_shares_a_commit_and_conflicts_with_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    many = [key_proposal(table.uri, Key("app", batch)) for batch in range(20)]
    blind = table.propose(table.file("a", 1), read=0)
    answers = table.fold(*many, blind, key_proposal(table.uri, Key("app", 20)), log=THIRD_ID)
    assert answers == [
        Committed(1),
        *[Committed(1)] * 19,
        Committed(1, rebased=False, rows_added=1),
        Committed(1),
    ]
    reading = table.propose(table.file("b", 2), read=1, read_whole_table=True, isolation="serializable")
    shared = table.fold(key_proposal(table.uri, Key("app", 21)), reading, log=str(UUID(int=1)))
    late = table.fold(key_proposal(table.uri, Key("app", 22)), log=str(UUID(int=2)))
    assert [type(each) for each in (*shared, *late)] == [Committed] * 3
    assert table.rows() == [1, 2]


@pytest.mark.parametrize(("batch", "number"), [(0, 0), (MOST_BATCH, MOST_BATCH), (MAX_BATCH_ID, -1)])
def test_a_number_that_no_txn_action_can_have_is_known_all_the_same(
    tmp_path: Path, batch: int, number: int
) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    proposal, other = (key_proposal(table.uri, Key("app", each)) for each in (batch, 5))
    assert list(parse_actions(proposal.delta.actions)) == [AppTransaction("app", number)]
    answers = [table.fold(proposal, log=str(UUID(int=each)))[0] for each in (1, 2)]
    assert answers == [Committed(1), Duplicate(1)]
    assert [type(each) for each in table.fold(other, log=str(UUID(int=3)))] == [Committed]
