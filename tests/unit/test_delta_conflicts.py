"""Each rule by which a proposal for a Delta table conflicts with a commit, met and just not met."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.conflicts.footprint import footprint_of
from lakefold_table.delta.conflicts.rules import (
    RULES,
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    conflict_of,
    isolation_level,
)
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.proposal import DeltaTableProposal, proposal_in
from lakefold_table.delta.snapshot.reconciliation import Reconciliation
from lakefold_table.entry import Committed, Invalid, Rejected
from tests.delta_logs.actions import (
    LISTED,
    PROTOCOL,
    SCHEMA,
    UUID,
    Members,
    add,
    domain,
    metadata,
    remove,
    text,
    txn,
    vector,
)
from tests.unit.test_delta_format import FIRST_ID, SECOND_ID, THIRD_ID, Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.delta.conflicts.footprint import CommitFootprint

BLIND: Members = {"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}
MERGE: Members = {"commitInfo": {"operation": "MERGE"}}


def commit(*actions: Members) -> CommitFootprint:
    return footprint_of(7, parse_actions(text(actions)))


def proposal(*actions: Members, **reads: object) -> DeltaTableProposal:
    envelope = Envelope(table="file:///t")
    envelope.delta.actions = text(actions)
    envelope.delta.read_version = 6
    for name, value in reads.items():
        if isinstance(value, list):
            getattr(envelope.delta, name).extend(value)
        else:
            setattr(envelope.delta, name, value)
    made = proposal_in(envelope)
    assert made is not None
    return made


MET = {
    "protocol changed": (proposal(add("a")), commit(MERGE, PROTOCOL), ()),
    "metadata changed": (proposal(add("a")), commit(MERGE, metadata()), ()),
    "domain metadata": (proposal(domain("d")), commit(MERGE, domain("d")), ("d",)),
    "concurrent transaction": (proposal(add("a"), read_app_ids=["x"]), commit(MERGE, txn("x", 1)), ("x",)),
    "concurrent append": (proposal(add("a"), read_whole_table=True), commit(MERGE, add("b")), ("b",)),
    "concurrent delete, read": (proposal(add("a"), read_files=["b"]), commit(MERGE, remove("b")), ("b",)),
    "concurrent delete, delete": (proposal(remove("b")), commit(MERGE, remove("b")), ("b",)),
}


def test_each_rule_has_a_case() -> None:
    assert [rule.name for rule in RULES] == list(MET)


@pytest.mark.parametrize("name", MET)
def test_a_rule_applies_with_its_evidence(name: str) -> None:
    ours, theirs, keys = MET[name]
    conflict = conflict_of(ours, [theirs], SERIALIZABLE)
    assert conflict is not None
    assert (conflict.other_version, conflict.other_operation, conflict.keys) == (7, "MERGE", keys)
    assert conflict.retryable
    (rule,) = (rule for rule in RULES if rule.name == name)
    assert rule.when in conflict.message


NOT_MET = {
    "appends": (proposal(add("a")), commit(MERGE, add("b"))),
    "another file": (proposal(remove("a"), read_files=["a"]), commit(MERGE, remove("b"), add("c"))),
    "another domain": (proposal(domain("d")), commit(domain("e"))),
    "another application": (proposal(add("a"), txn("x", 1)), commit(txn("x", 1))),
    "rows stored otherwise": (
        proposal(remove("a", dataChange=False), add("b", dataChange=False), read_whole_table=True),
        commit(BLIND, add("c")),
    ),
    "files rearranged": (proposal(add("a"), read_whole_table=True), commit(add("b", dataChange=False))),
}


@pytest.mark.parametrize("name", NOT_MET)
def test_no_rule_applies(name: str) -> None:
    ours, theirs = NOT_MET[name]
    assert conflict_of(ours, [theirs], SERIALIZABLE) is None


@pytest.mark.parametrize(
    ("info", "level", "conflicts"),
    [(BLIND, SERIALIZABLE, 1), (BLIND, WRITE_SERIALIZABLE, 0), (MERGE, WRITE_SERIALIZABLE, 1)],
)
def test_blind_appends_pass_beside_reads_of_the_lower_level(
    info: Members, level: str, conflicts: int
) -> None:
    ours = proposal(add("a"), read_predicates=["x = 1"])
    assert (conflict_of(ours, [commit(info, add("b"))], level) is not None) == bool(conflicts)


def test_a_change_of_the_metadata_that_has_read_rows_conflicts_with_blind_appends_at_either_level() -> None:
    ours = proposal(metadata(), read_whole_table=True)
    for level in (SERIALIZABLE, WRITE_SERIALIZABLE):
        conflict = conflict_of(ours, [commit(BLIND, add("b"))], level)
        assert conflict is not None
        assert conflict.keys == ("b",)


def test_a_predicate_selects_files_by_their_values() -> None:
    table = TableMetadata(UUID, SCHEMA, partition_columns=("x",))
    ours = proposal(add("a"), read_predicates=["x = 1", "x = 3"])
    for other, level in ((add, SERIALIZABLE), (remove, WRITE_SERIALIZABLE)):
        theirs = [commit(MERGE, other(name, partitionValues={"x": name})) for name in "2341"]
        assert conflict_of(ours, theirs[::2], level, table) is None
        conflict = conflict_of(ours, theirs, level, table)
        assert conflict is not None
        assert conflict.keys == ("3",)
        unknown = conflict_of(ours, theirs, level)
        assert unknown is not None
        assert unknown.keys == ("2",)
    conflict = conflict_of(ours, [commit(remove("z"))], WRITE_SERIALIZABLE, table)
    assert conflict is not None
    assert conflict.keys == ("z",)


def test_the_first_version_that_conflicts_is_named() -> None:
    passing, refusing = commit(add("b")), commit(remove("b"))
    conflict = conflict_of(proposal(remove("b")), [passing, refusing], SERIALIZABLE)
    assert conflict is not None
    assert "a commit" in conflict.message


@pytest.mark.parametrize(
    ("proposed", "property_value", "level"),
    [
        ("", None, SERIALIZABLE),
        ("", "WriteSerializable", WRITE_SERIALIZABLE),
        ("", "Serializable", SERIALIZABLE),
        (WRITE_SERIALIZABLE, "Serializable", WRITE_SERIALIZABLE),
    ],
)
def test_the_level_is_the_proposals_own_or_the_tables(
    proposed: str, property_value: str | None, level: str
) -> None:
    assert isolation_level(proposed, property_value) == level


def test_a_constraint_conflicts_with_any_rows_that_were_added_meanwhile() -> None:
    """Its writer has not checked them, whatever it says of what it has read."""
    ours = proposal(metadata(**{"delta.constraints.c": "x > 0"}))
    for level in (SERIALIZABLE, WRITE_SERIALIZABLE):
        for theirs, keys in ((add("b"), ("b",)), (remove("b"), ()), (add("b", dataChange=False), ())):
            conflict = conflict_of(ours, [commit(BLIND, theirs)], level, checks_rows=True)
            assert (() if conflict is None else conflict.keys) == keys


def test_rows_that_a_restore_brings_back_are_added_also_if_more_are_deleted() -> None:
    """The rows that are deleted after it may be others."""
    actions = (remove("a", vector("before", 1)), add("a", vector("after", 2)))
    assert not commit(MERGE, *actions).added
    restored = commit({"commitInfo": {"operation": "RESTORE"}}, *actions)
    assert [file.path for file in restored.added] == ["a"]


def test_the_same_protocol_in_another_order_is_no_change(tmp_path: Path) -> None:
    """Also if the commits of two clients, or two actions of files that sum up several, repeat it."""
    table = Table(tmp_path / "t")
    assert table.fold(table.propose(LISTED, metadata())) == [Committed(0)]
    lists = {name: each[::-1] for name, each in LISTED["protocol"].items() if isinstance(each, list)}
    reversed_ = {"protocol": {**LISTED["protocol"], **lists}}
    assert reversed_ != LISTED
    (table.path / commit_path(1)).write_bytes(text([reversed_]))
    ours = table.propose(reversed_, read=0)
    late = table.propose(table.file("a.parquet", 1), read=0)
    answers = [
        answer for each, log in ((ours, FIRST_ID), (late, SECOND_ID)) for answer in table.fold(each, log=log)
    ]
    assert [type(each) for each in answers] == [Committed, Committed], answers
    summed = Reconciliation()
    summed.add_commit(parse_actions(text([LISTED, reversed_, metadata()])), compacted=True)
    assert summed.snapshot(1).protocol.writer_features


def test_a_protocol_that_lacks_what_others_added_meanwhile_conflicts_with_it(tmp_path: Path) -> None:
    """As that of a RESTORE: when it was built, it took nothing away."""
    table = Table(tmp_path / "t")
    assert table.fold(table.propose(LISTED, metadata())) == [Committed(0)]
    features = [*LISTED["protocol"]["writerFeatures"], "vacuumProtocolCheck"]
    readers = [*LISTED["protocol"]["readerFeatures"], "vacuumProtocolCheck"]
    more = {"protocol": {**LISTED["protocol"], "writerFeatures": features, "readerFeatures": readers}}
    (added,) = table.fold(table.propose(more, read=0), log=FIRST_ID)
    assert isinstance(added, Committed), added
    (old,) = table.fold(table.propose(LISTED, metadata(), read=0), log=SECOND_ID)
    assert isinstance(old, Rejected), old
    assert old.conflict.retryable
    (taking,) = table.fold(table.propose(LISTED, metadata(), read=1), log=THIRD_ID)
    assert isinstance(taking, Invalid), taking
    broken = metadata('{"type": "struct", "fields": [1]}')
    (late,) = table.fold(table.propose(broken, read=0), log=log_id(4))
    assert isinstance(late, Rejected), late
    assert "changed the table's protocol" in late.conflict.message
    (none,) = table.fold(table.propose(broken, read=1), log=log_id(5))
    assert isinstance(none, Invalid), none
