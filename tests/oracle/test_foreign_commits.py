"""Others commit between our versions, and on them: both continue, nothing is lost (good-neighbour)."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected, Result
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from lakefold_table.marks.marks import MARK
from lakefold_table.uri import canonical
from tests.folding import LOG, entries
from tests.oracle.committing import fold, owned, proposal, state, written

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())])
Operation = Callable[[lance.LanceDataset], object]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"a": list(numbers), "s": [f"row {n}" for n in numbers]}, schema=SCHEMA)


def creation(table: Path) -> Envelope:
    envelope = Envelope(table=canonical(str(table)))
    envelope.create.SetInParent()
    envelope.lance.uuid = "creation"
    envelope.lance.overwrite.schema.extend(schema_from_arrow(SCHEMA).fields)
    return envelope


def begun(table: Path) -> TableWriter:
    """A table with the rows 1 to 6 in three versions and fragments of ours, folded up to offset 3."""
    owner = owned(table)
    assert fold(owner, [creation(table)], 0) == [Committed(1)]
    for offset in (1, 2, 3):
        fragments = written(table, rows(2 * offset - 1, 2 * offset))
        (result,) = fold(owner, [proposal(table, fragments, offset, f"u{offset}")], offset)
        assert isinstance(result, Committed)
    return owner


def values(table: Path) -> list[int]:
    dataset = lance.dataset(str(table))
    dataset.validate()
    return sorted(dataset.to_table(columns=["a"])["a"].to_pylist())


def overwritten(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(rows(50, 51), dataset.uri, mode="overwrite")


def restored(dataset: lance.LanceDataset) -> None:
    lance.dataset(dataset.uri, version=2).restore()


OPERATIONS: dict[str, Operation] = {
    "append": lambda dataset: lance.write_dataset(rows(40, 41), dataset.uri, mode="append"),
    "delete": lambda dataset: dataset.delete("a = 2 or a > 4"),
    "delete of all": lambda dataset: dataset.delete("true"),
    "update": lambda dataset: dataset.update({"s": "'new'"}, where="a > 3"),
    "merge insert": lambda dataset: (
        dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(rows(6, 7))
    ),
    "added column": lambda dataset: dataset.add_columns({"twice": "a * 2"}),
    "added empty column": lambda dataset: dataset.add_columns(pa.field("x", pa.int64())),
    "renamed column": lambda dataset: dataset.alter_columns({"path": "s", "name": "text"}),  # type: ignore[dict-item]
    "dropped column": lambda dataset: dataset.drop_columns(["s"]),
    "overwrite": overwritten,
    "restore": restored,
    "config": lambda dataset: dataset.update_config({"k": "v"}),
    "metadata": lambda dataset: dataset.update_metadata({"owner": "me"}),
    "wiped metadata": lambda dataset: dataset.update_metadata({"owner": "me"}, replace=True),
    "schema metadata": lambda dataset: dataset.update_schema_metadata({"unit": "m"}),
    "index": lambda dataset: dataset.create_scalar_index("a", "BTREE"),
    "compaction": lambda dataset: dataset.optimize.compact_files(),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


def fitting(table: Path, number: int) -> Envelope:
    """An Append of a single row built on the newest version, with any columns besides `a`."""
    dataset = lance.dataset(str(table))
    row = {field.name: pa.nulls(1, field.type) for field in dataset.schema}
    row["a"] = pa.array([number], pa.int64())
    fragments = written(table, pa.table(row, schema=dataset.schema))
    return proposal(table, fragments, dataset.version, f"n{number}")


@every_operation
def test_the_committer_takes_in_what_others_commit(operation: Operation, tmp_path: Path) -> None:
    table = tmp_path / "t"
    owner = begun(table)
    operation(lance.dataset(str(table)))
    expected = values(table)
    newest = lance.dataset(str(table)).version
    (result,) = fold(owner, [fitting(table, 100)], 4)
    assert isinstance(result, Committed)
    assert (result.version, result.rebased) == (newest + 1, False)
    assert values(table) == sorted([*expected, 100])
    assert owner.table.marks.offset_of(LOG) == 4
    # A committer that opens the table finds it, and answers a writer that sends it again.
    opened = owned(table)
    assert opened.table.marks.offset_of(LOG) == 4
    assert isinstance(fold(opened, [fitting(table, 101)], 5)[0], Committed)
    assert 101 in values(table)
    assert fold(opened, [fitting(table, 100)], 6) == [Duplicate(newest + 1)]


def _name(operation: Operation) -> str:
    return next(name for name, each in OPERATIONS.items() if each is operation)


def verdict_of_pylance(table: Path, read: int, fragments: list[FragmentMetadata]) -> str:
    try:
        lance.LanceDataset.commit(str(table), lance.LanceOperation.Append(fragments), read_version=read)
    except CommitConflictError as error:
        return "retryable" if error.retryable else "incompatible"
    return "committed"


def verdict(result: Result) -> str:
    if isinstance(result, Rejected):
        return "retryable" if result.conflict.retryable else "incompatible"
    return type(result).__name__.lower()


# pylance commits files whose column has another name by now, and gives up after a Restore.
OTHERWISE = {"renamed column": "retryable", "restore": "retryable"}


@every_operation
def test_an_append_built_before_gets_the_verdict_that_pylance_gives(
    operation: Operation, tmp_path: Path
) -> None:
    table, copy = tmp_path / "t", tmp_path / "copy"
    owner = begun(table)
    fragments = written(table, rows(100))
    operation(lance.dataset(str(table)))
    shutil.copytree(table, copy)
    expected = verdict_of_pylance(copy, 4, fragments)
    (result,) = fold(owner, [proposal(table, fragments, 4)], 4)
    assert verdict(result) == OTHERWISE.get(_name(operation), expected)
    values(table)
    if expected == "committed" == verdict(result):
        assert values(table) == values(copy)


def outcome_of(action: Callable[[], object]) -> str:
    try:
        action()
    except (OSError, ValueError) as error:
        return type(error).__name__
    return "done"


@every_operation
def test_others_commit_from_an_old_handle_over_our_versions(operation: Operation, tmp_path: Path) -> None:
    """Their conflict check reads our transactions, and gives the verdict that pylance's own give."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    owner = begun(ours)
    shutil.copytree(ours, theirs)
    stale = [lance.dataset(str(path), version=4) for path in (ours, theirs)]
    both = [rows(10), rows(11, 12)]
    fold(owner, [proposal(ours, written(ours, each), 4, f"v{n}") for n, each in enumerate(both)], 4)
    for each in both:
        lance.write_dataset(each, str(theirs), mode="append")
    assert outcome_of(lambda: operation(stale[0])) == outcome_of(lambda: operation(stale[1]))
    assert values(ours) == values(theirs)
    assert isinstance(fold(owner, [fitting(ours, 100)], 6)[0], Committed)
    assert values(ours) == sorted([*values(theirs), 100])


def test_an_old_handle_appends_over_many_of_our_versions(tmp_path: Path) -> None:
    table = tmp_path / "t"
    owner = begun(table)
    stale = lance.dataset(str(table), version=1)
    for offset in range(4, 24):
        fold(owner, [fitting(table, 10 + offset)], offset)
    lance.write_dataset(rows(99), stale, mode="append")
    assert values(table) == [*range(1, 7), *range(14, 34), 99]
    assert lance.dataset(str(table)).version == 25


def test_positions_never_go_back(tmp_path: Path) -> None:
    """A Restore restores old marks, a replacement removes them; the log is not folded again."""
    table = tmp_path / "t"
    owner = begun(table)
    folded = [proposal(table, [], 1, f"u{offset}") for offset in (1, 2, 3)]
    for spoil in (
        lambda: lance.dataset(str(table), version=1).restore(),
        lambda: lance.dataset(str(table)).update_metadata({}, replace=True),
        lambda: lance.dataset(str(table)).update_metadata({MARK: "broken"}),
        lambda: lance.dataset(str(table), version=2).restore(),
    ):
        spoil()
        before = lance.dataset(str(table)).count_rows()
        for committer in (owned(table), owned(table)):
            answers = committer.fold(entries(folded, 1)).outcomes
            assert [type(answer.result) for answer in answers] == [Committed] * 3
        assert lance.dataset(str(table)).count_rows() == before
        assert owned(table).table.marks.offset_of(LOG) == 3
    assert owner.table.version == 4


def test_a_clone_is_folded_as_a_table_of_its_own(tmp_path: Path) -> None:
    table, clone = tmp_path / "t", tmp_path / "clone"
    begun(table)
    lance.dataset(str(table)).shallow_clone(str(clone), 4)
    assert MARK in lance.dataset(str(clone)).metadata
    owner = owned(clone)
    assert owner.table.marks.offset_of(LOG) == -1
    lance.write_dataset(rows(50), str(clone), mode="append")
    owner = owned(clone)
    assert owner.table.marks.offset_of(LOG) == -1
    assert isinstance(fold(owner, [fitting(clone, 100)], 2)[0], Committed)
    assert values(clone) == [1, 2, 3, 4, 5, 6, 50, 100]
    assert values(table) == [1, 2, 3, 4, 5, 6]
    assert owned(clone).table.marks.table_id != owned(table).table.marks.table_id


def test_a_branch_goes_on_by_itself(tmp_path: Path) -> None:
    table = tmp_path / "t"
    owner = begun(table)
    branch = lance.dataset(str(table)).create_branch("next")
    lance.write_dataset(rows(50), branch.uri, mode="append")
    assert isinstance(fold(owner, [fitting(table, 100)], 4)[0], Committed)
    assert values(table) == [1, 2, 3, 4, 5, 6, 100]
    assert sorted(lance.dataset(branch.uri).to_table()["a"].to_pylist()) == [1, 2, 3, 4, 5, 6, 50]
    assert owned(Path(branch.uri)).table.marks.offset_of(LOG) == -1


def test_a_field_id_that_was_given_again_turns_no_column_into_another(tmp_path: Path) -> None:
    """A column that never had a file is dropped, and its id goes to the next one at once (Lance fact 4.2)."""
    table, copy = tmp_path / "t", tmp_path / "copy"
    owner = begun(table)
    lance.dataset(str(table)).add_columns(pa.field("x", pa.int64()))
    built = lance.dataset(str(table))
    row = rows(100).append_column("x", pa.array([777], pa.int64()))
    fragments = written(table, row)
    built.drop_columns(["x"])
    lance.dataset(str(table)).add_columns(pa.field("y", pa.int64()))
    assert [field.id for field in state(table).head.fields] == [0, 1, 2]
    shutil.copytree(table, copy)
    assert verdict_of_pylance(copy, built.version, fragments) == "committed"
    assert lance.dataset(str(copy)).to_table(filter="a = 100")["y"].to_pylist() == [777]
    (result,) = fold(owner, [proposal(table, fragments, built.version)], 4)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert result.conflict.field_ids == (2,)
    assert "field ids [2] refer to other columns" in result.conflict.message
    assert values(table) == [1, 2, 3, 4, 5, 6]


def test_columns_that_are_gone_without_another_in_their_place(tmp_path: Path) -> None:
    table = tmp_path / "t"
    owner = begun(table)
    fragments = written(table, rows(100))
    lance.dataset(str(table)).drop_columns(["s"])
    newest = lance.dataset(str(table)).version
    (old,) = fold(owner, [proposal(table, fragments, 4)], 4)
    assert isinstance(old, Committed)
    assert values(table) == [1, 2, 3, 4, 5, 6, 100]
    (new,) = fold(owner, [proposal(table, fragments, newest, "again")], 5)
    assert isinstance(new, Invalid)
    assert "field ids [1] are not in the table's schema, which has [0]" in new.message


def test_a_table_made_by_pylance_is_folded_from_there_on(tmp_path: Path) -> None:
    """Earlier versions are read if an entry was built on such a version."""
    table = tmp_path / "t"
    lance.write_dataset(rows(1, 2), str(table))
    fragments = written(table, rows(100))
    for number in (3, 4):
        lance.write_dataset(rows(number), str(table), mode="append")
    lance.dataset(str(table)).delete("a = 3")
    (result,) = fold(owned(table), [proposal(table, fragments, 1)], 0)
    assert isinstance(result, Committed)
    assert values(table) == [1, 2, 4, 100]
    late = written(table, rows(101))
    overwritten(lance.dataset(str(table)))
    (result,) = fold(owned(table), [proposal(table, late, 1, "late")], 1)
    assert verdict(result) == "incompatible"


def test_versions_cleaned_up_by_others(tmp_path: Path) -> None:
    """What is not known any more is not guessed; what still exists counts."""
    table = tmp_path / "t"
    owner = begun(table)
    fragments = written(table, rows(100))
    dataset = lance.dataset(str(table))
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert [version["version"] for version in lance.dataset(str(table)).versions()] == [4]
    assert isinstance(fold(owner, [proposal(table, fragments, 4)], 4)[0], Committed)
    assert isinstance(fold(owned(table), [proposal(table, [], 2, "empty")], 5)[0], Committed)
