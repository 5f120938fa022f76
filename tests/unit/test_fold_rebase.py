"""Entries built on older versions: later versions decide, and what is not known is reported."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from lakefold_committer.fold.fold import FoldedTable
from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.entry import Committed, Conflict, Invalid, Rejected
from lakefold_table.format import Fetched, VersionSummary
from lakefold_table.lance.conflicts import OLDEST_READ_VERSION, Footprint, History
from lakefold_table.lance.kinds import Kind
from tests.folding import (
    FORMAT,
    INPUTS,
    SCHEMA,
    URI,
    MemoryTable,
    append,
    changed,
    column,
    created,
    entries,
    known_history,
    packed_of,
    parsed_packed,
    reserve,
    with_packed,
)


def after(
    kinds: Mapping[Kind, int], *, version: int = 10, since: int = 0, fields: Sequence[Field] = SCHEMA
) -> MemoryTable:
    """A table at a version, of which is known what the versions after `since` did."""
    state = created().state
    head = type(state.head)()
    head.CopyFrom(state.head)
    head.version = version
    del head.fields[:]
    head.fields.extend(fields)
    made = replace(state, head=head, history=History(since, kinds))
    return MemoryTable(FoldedTable(URI, made), offset=100)


def summary(version: int, kind: str) -> VersionSummary:
    return VersionSummary(version, kind, {}, begins_clone=False, footprint=Footprint(Kind(kind)))


def conflict(table: MemoryTable, envelope: Envelope, fetched: Fetched | None = None) -> Conflict:
    folded = table.fold_group(entries([envelope], 100), INPUTS, fetched)
    (outcome,) = folded.outcomes
    assert isinstance(outcome.result, Rejected)
    assert folded.publication is None
    return outcome.result.conflict


@pytest.mark.parametrize("kind", [Kind.OVERWRITE, Kind.UPDATE_MEM_WAL_STATE])
def test_an_append_never_follows_these(kind: Kind) -> None:
    actual = conflict(after({kind: 7}), append(read=6))
    assert (actual.retryable, actual.other_version, actual.other_operation) == (False, 7, kind.value)


@pytest.mark.parametrize("kind", [Kind.MERGE, Kind.PROJECT, Kind.RESTORE, Kind.UNKNOWN])
def test_an_append_can_be_built_again_after_these(kind: Kind) -> None:
    actual = conflict(after({kind: 7}), append(read=6))
    assert (actual.retryable, actual.other_version, actual.other_operation) == (True, 7, kind.value)
    assert "build it again on the newest version" in actual.message


def test_a_reservation_follows_what_does_not_restart_the_ids() -> None:
    assert conflict(after({Kind.RESTORE: 7}), reserve(1, read=6)).retryable is False
    for kind in (Kind.MERGE, Kind.PROJECT, Kind.APPEND, Kind.UPDATE_MEM_WAL_STATE):
        assert isinstance(after({kind: 7}).result(reserve(1, read=6)), Committed)


def test_what_was_read_is_no_conflict() -> None:
    kinds = dict.fromkeys(Kind, 7)
    assert isinstance(after(kinds).result(append(read=7)), Committed)


def test_a_read_version_of_long_ago() -> None:
    version = OLDEST_READ_VERSION + 5
    actual = conflict(after({}, version=version), append(read=4))
    assert actual.retryable
    assert actual.other_version == version
    assert "more than 10000 versions behind" in actual.message
    assert (
        FORMAT.requirements(after({}, version=version).state, entries([append(read=4)], 0)).operations_since
        is None
    )
    assert isinstance(after({}, version=version).result(append(read=5)), Committed)


def test_versions_of_which_nothing_is_known() -> None:
    actual = conflict(after({}, since=6), append(read=5))
    assert actual.retryable
    assert "versions up to 6 are gone" in actual.message
    assert isinstance(after({}, since=6).result(append(read=6)), Committed)


def test_the_core_asks_for_what_it_must_know() -> None:
    state = after({Kind.PROJECT_KEEPING_NULLABILITY: 8}, since=6).state
    needs = FORMAT.requirements(state, entries([append(read=read) for read in (10, 9, 7, 4, 99, 0)], 0))
    assert needs.operations_since == 4
    assert needs.schemas == {7, 4}
    known = FORMAT.requirements(state, entries([append(read=8)], 0))
    assert (known.operations_since, known.schemas) == (None, frozenset())


def test_it_does_not_ask_for_the_schema_of_what_is_refused_anyway() -> None:
    state = after({Kind.RESTORE: 8}).state
    assert FORMAT.requirements(state, entries([append(read=7)], 0)).schemas == frozenset()


def test_the_summaries_of_older_versions_are_added() -> None:
    state = after({Kind.APPEND: 9}, since=6).state
    summaries = [summary(number, kind) for number, kind in [(6, "merge"), (5, "append"), (4, "merge")]]
    informed = FORMAT.with_history(state, iter(summaries))
    assert known_history(informed) == (3, {Kind.APPEND: 9, Kind.MERGE: 6})
    assert FORMAT.with_history(state, []).history == state.history


def test_a_foreign_version_goes_on_with_what_is_known() -> None:
    own = after({Kind.APPEND: 10}).state
    foreign = after({}, version=11, since=11).state
    deleting = changed(append(), lambda e: e.lance.delete.SetInParent()).lance
    foreign = replace(foreign, transaction=deleting)
    assert known_history(FORMAT.follow_foreign(own, foreign)) == (0, {Kind.APPEND: 10, Kind.DELETE: 11})
    unknown = replace(foreign, transaction=None)
    assert known_history(FORMAT.follow_foreign(own, unknown)) == (0, {Kind.APPEND: 10, Kind.UNKNOWN: 11})


def test_nothing_is_known_of_the_versions_before_a_gap() -> None:
    """A version that is missing may have done anything."""
    own = after({Kind.APPEND: 10}).state
    foreign = replace(after({}, version=13, since=13).state, transaction=append().lance)
    assert known_history(FORMAT.follow_foreign(own, foreign)) == (13, {})
    last = summary(12, "delete")
    assert known_history(FORMAT.follow_foreign(own, foreign, [last])) == (12, {Kind.APPEND: 13})
    both = [summary(11, "merge"), last]
    kinds = {Kind.APPEND: 13, Kind.MERGE: 11, Kind.DELETE: 12}
    assert known_history(FORMAT.follow_foreign(own, foreign, both)) == (0, kinds)


RENAMED = (column("a", 0, nullable=False), column("t", 1, "string"))
RETYPED = (column("a", 0, nullable=False), column("s", 1, "large_string"))
MOVED = (column("a", 0, nullable=False), column("p", 2, "struct"), column("s", 1, "string", parent=2))
DROPPED = SCHEMA[:1]


def reading(fields: Sequence[Field] | None, now: Sequence[Field] = SCHEMA) -> MemoryTable | Conflict:
    """An Append read at version 6, whose schema was `fields`, right before a change at version 7 to `now`."""
    table = after({Kind.PROJECT_KEEPING_NULLABILITY: 7}, fields=now)
    folded = table.fold_group(entries([append(read=6)], 100), INPUTS, Fetched(schemas={6: fields}))
    result = folded.outcomes[0].result
    return result.conflict if isinstance(result, Rejected) else table


@pytest.mark.parametrize(
    "before", [RENAMED, RETYPED, MOVED, DROPPED], ids=["name", "type", "parent", "absent"]
)
def test_a_field_id_of_another_column_is_refused(before: tuple[Field, ...]) -> None:
    """Lance gives a dropped column's id to a new column, and the rows would read as that (Lance fact 4.2)."""
    actual = reading(before)
    assert isinstance(actual, Conflict)
    assert actual.retryable
    assert actual.field_ids == (1,)
    assert actual.other_version == 7
    assert "field ids [1] refer to other columns than in version 6" in actual.message
    assert "schema of version 10" in actual.message


def test_a_field_id_of_a_dropped_column_is_not_read() -> None:
    assert isinstance(reading(SCHEMA, now=DROPPED), MemoryTable)


@pytest.mark.parametrize("is_packed", [False, True], ids=["message", "packed"])
def test_a_field_id_of_a_dropped_column_is_not_in_two_files_of_a_fragment(*, is_packed: bool) -> None:
    """Pylance calls such a table corrupt."""
    table = after({Kind.PROJECT_KEEPING_NULLABILITY: 7})
    envelope = append(read=6)
    files = envelope.lance.append.fragments[0].files
    files.add().CopyFrom(files[0])
    files[0].fields[:], files[1].fields[:], files[1].path = [0, 2], [1, 2], "other.lance"
    (item,) = entries([envelope], 100)
    if is_packed:
        item = with_packed(item, *parsed_packed(encode(envelope)))
        assert packed_of(item) is not None
    fetched = Fetched(schemas={6: (*SCHEMA, column("dropped", 2))})
    result = table.fold_group([item], INPUTS, fetched).outcomes[0].result
    assert isinstance(result, Invalid)
    assert "field ids [2] are in the fragment twice" in result.message


def test_field_ids_that_mean_the_same_are_folded() -> None:
    more = (*SCHEMA, column("new", 2))
    assert isinstance(reading(SCHEMA, now=more), MemoryTable)
    nullable = (column("a", 0), SCHEMA[1])
    assert isinstance(reading(nullable), MemoryTable)


def test_a_schema_that_is_gone_cannot_vouch_for_field_ids() -> None:
    actual = reading(None)
    assert isinstance(actual, Conflict)
    assert actual.retryable
    assert "the schema of version 6 was removed" in actual.message


def test_field_ids_of_no_schema_are_wrong_in_themselves() -> None:
    table = after({Kind.PROJECT_KEEPING_NULLABILITY: 8})
    envelope = append(read=6)
    envelope.lance.append.fragments[0].files[0].fields[1] = 44
    folded = table.fold_group(entries([envelope], 100), INPUTS, Fetched(schemas={6: SCHEMA}))
    assert isinstance(folded.outcomes[0].result, Invalid)


def test_thousands_of_changed_fields_are_listed_up_to_a_bound() -> None:
    wide = tuple(column(f"c{number}", number) for number in range(3000))
    other = tuple(column(f"d{number}", number) for number in range(3000))
    table = after({Kind.PROJECT_KEEPING_NULLABILITY: 8}, fields=wide)
    envelope = append(read=6)
    file = envelope.lance.append.fragments[0].files[0]
    file.fields[:] = file.column_indices[:] = range(3000)
    actual = conflict(table, envelope, Fetched(schemas={6: other}))
    assert len(actual.field_ids) == 1000
    assert len(actual.message) < 300


def test_a_state_is_never_changed() -> None:
    table = after({Kind.DELETE: 7})
    state = table.state
    before = (state.head.SerializeToString(deterministic=True), state.fragments, state.history)
    table.fold(append(read=6))
    assert (state.head.SerializeToString(deterministic=True), state.fragments, state.history) == before
