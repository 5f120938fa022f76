"""The conflict rules, held against the matrix that was measured with pylance (Lance facts 5.2 and 5.3)."""

import pytest

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts import RULES, Footprint, History
from lakefold_table.lance.kinds import SCHEMA_CHANGING, Kind, kind_of

OK, RETRY, NEVER = None, True, False

# Rows "Append" of 5.2 and "ReserveFragments" of 5.3; each kind is one or several columns there.
MATRIX: dict[Kind, tuple[bool | None, bool | None]] = {
    Kind.APPEND: (OK, OK),
    Kind.DELETE: (OK, OK),
    Kind.UPDATE: (OK, OK),
    Kind.OVERWRITE: (NEVER, NEVER),
    Kind.CREATE_INDEX: (OK, OK),
    Kind.REWRITE: (OK, OK),
    Kind.MERGE: (RETRY, OK),
    Kind.MERGE_KEEPING_NULLABILITY: (OK, OK),
    Kind.PROJECT: (RETRY, OK),
    Kind.PROJECT_KEEPING_NULLABILITY: (OK, OK),
    # pylance: never. Decision 0009.
    Kind.RESTORE: (RETRY, NEVER),
    Kind.UPDATE_CONFIG: (OK, OK),
    Kind.DATA_REPLACEMENT: (OK, OK),
    Kind.DATA_OVERLAY: (OK, OK),
    Kind.RESERVE_FRAGMENTS: (OK, OK),
    Kind.UPDATE_MEM_WAL_STATE: (NEVER, OK),
    Kind.UPDATE_BASES: (OK, OK),
    Kind.CLONE: (OK, OK),
    # Not in the matrix: pylance fails if it doesn't know; the writer can build its proposal again.
    Kind.UNKNOWN: (RETRY, RETRY),
}


def conflict_of(kind: Kind, read_version: int, history: History) -> Conflict | None:
    verdict = history.verdict(Footprint(kind), read_version)
    return verdict if isinstance(verdict, Conflict) else None


def after(kind: Kind, version: int = 5) -> History:
    return History(1, {Kind.OVERWRITE: 1, kind: version})


@pytest.mark.parametrize("other", Kind)
@pytest.mark.parametrize(("column", "mine"), [(0, Kind.APPEND), (1, Kind.RESERVE_FRAGMENTS)])
def test_the_matrix(column: int, mine: Kind, other: Kind) -> None:
    expected = MATRIX[other][column]
    conflict = conflict_of(mine, 4, after(other))
    assert (None if conflict is None else conflict.retryable) == expected
    if conflict is not None:
        assert (conflict.other_version, conflict.other_operation) == (5, other.value)
        assert (str(other) in conflict.message) is (other is not Kind.UNKNOWN)
        assert "version 5" in conflict.message


@pytest.mark.parametrize("other", Kind)
def test_what_was_read_does_not_conflict(other: Kind) -> None:
    for mine in (Kind.APPEND, Kind.RESERVE_FRAGMENTS):
        assert conflict_of(mine, 5, after(other)) is None


def test_each_kind_has_rules() -> None:
    assert set(RULES) == set(Kind)


def test_an_incompatible_conflict_goes_before_a_retryable_one() -> None:
    history = History(0, {Kind.MERGE: 9, Kind.RESTORE: 3, Kind.OVERWRITE: 6})
    conflict = conflict_of(Kind.APPEND, 2, history)
    assert conflict is not None
    assert (conflict.retryable, conflict.other_version, conflict.other_operation) == (False, 6, "overwrite")
    assert "may mean something else" in conflict.message


def test_the_newest_of_equal_conflicts_is_named() -> None:
    conflict = conflict_of(Kind.APPEND, 2, History(0, {Kind.MERGE: 4, Kind.PROJECT: 7}))
    assert conflict is not None
    assert (conflict.retryable, conflict.other_version) == (True, 7)
    assert "build it again on the newest version" in conflict.message


def test_a_history_goes_on() -> None:
    history = History(5, {Kind.APPEND: 7}).extended(8, Kind.DELETE).extended(9, Kind.APPEND)
    assert history == History(5, {Kind.APPEND: 9, Kind.DELETE: 8})


@pytest.mark.parametrize("kind", Kind)
def test_field_ids_are_sure_since_the_last_change_of_the_schema(kind: Kind) -> None:
    history = History(3, {kind: 7})
    assert history.schema_since == (7 if kind in SCHEMA_CHANGING else 3)


def test_every_operation_of_the_message_has_a_kind() -> None:
    oneof = Transaction.DESCRIPTOR.oneofs_by_name["operation"]
    for operation in oneof.fields:
        transaction = Transaction()
        getattr(transaction, operation.name).SetInParent()
        assert kind_of(transaction).value == operation.name
    assert kind_of(Transaction()) is Kind.UNKNOWN
    assert kind_of(None) is Kind.UNKNOWN
    names = {operation.name for operation in oneof.fields}
    assert names == {kind.value for kind in Kind} - {
        "unknown",
        "merge_keeping_nullability",
        "project_keeping_nullability",
    }


def test_schema_changes_that_keep_nullability_are_kinds_of_their_own() -> None:
    merge, project = Transaction(), Transaction()
    merge.merge.preserves_nullability = True
    project.project.preserves_nullability = True
    assert kind_of(merge) is Kind.MERGE_KEEPING_NULLABILITY
    assert kind_of(project) is Kind.PROJECT_KEEPING_NULLABILITY
