"""Rows whose files hold a column that was dropped meanwhile: folded as pylance folds them.

No new column gets an id that a data file of the table lists, so no client reads what the file says of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata, write_fragments

from lakefold_table.entry import Committed, Rejected
from tests.oracle.committing import commit
from tests.oracle.operations import both_ways, check_agreement, version_of
from tests.oracle.readable import altered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.oracle.operations import Act, Both

Operation = lance.LanceOperation
Z = 3
"""The field id of the column that goes."""


def rows(first: int, end: int) -> pa.Table:
    numbers = list(range(first, end))
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "place": [{"x": number} for number in numbers],
            "z": pa.array(numbers, pa.int64()),
        }
    )


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    stable: bool = request.param
    lance.write_dataset(rows(0, 20), str(path), max_rows_per_file=10, enable_stable_row_ids=stable)
    return path


def drop(*names: str) -> Act:
    def act(dataset: lance.LanceDataset) -> None:
        dataset.drop_columns(list(names))

    return act


def new(dataset: lance.LanceDataset, *names: str) -> FragmentMetadata:
    """A fragment with these columns, by the schema of the dataset that was opened before."""
    (fragment,) = write_fragments(rows(100, 110).select(list(names)), dataset, mode="append")
    assert isinstance(fragment, FragmentMetadata)
    return fragment


def with_files_of(
    each: FragmentMetadata, other: FragmentMetadata, struck: Sequence[int] = ()
) -> FragmentMetadata:
    """The first fragment with the second fragment's files behind its own, in which fields are struck out."""
    form, more = json.loads(json.dumps(each.to_json())), json.loads(json.dumps(other.to_json()))
    for file in form["files"]:
        file["fields"] = [-2 if number in struck else number for number in file["fields"]]
    form["files"] += more["files"]
    return FragmentMetadata.from_json(json.dumps(form))


def append(dataset: lance.LanceDataset) -> None:
    commit(dataset, Operation.Append([new(dataset, "a", "place", "z")]))


def update_of_rows(dataset: lance.LanceDataset) -> None:
    fragment = new(dataset, "a", "place", "z")
    commit(dataset, Operation.Update(removed_fragment_ids=[0], new_fragments=[fragment]))


def update_of_columns(dataset: lance.LanceDataset) -> None:
    """Writes a and z again, and says so of a only: an Update that modifies z conflicts with the drop."""
    fragment = dataset.get_fragments()[0].metadata
    changed = with_files_of(fragment, new(dataset, "a", "z"), struck=[0, Z])
    update = Operation.Update([], [changed], [], fields_modified=[0], update_mode="rewrite_columns")
    commit(dataset, update)


@pytest.mark.parametrize("act", [append, update_of_rows, update_of_columns])
def test_the_version_is_as_pylance_makes_it(act: Act, table: Path) -> None:
    both = both_ways(table, act, between=drop("z"))
    check_agreement(both)
    files = [file for fragment in version_of(both.ours).manifest.fragments for file in fragment.files]
    assert any(Z in file.fields for file in files)


def test_a_column_made_afterwards_reads_none_of_its_values(table: Path) -> None:
    both = both_ways(table, append, between=drop("z"))
    check_agreement(both)
    for path in (both.theirs, both.ours):
        lance.dataset(str(path)).add_columns(pa.field("z", pa.int64()))
        assert lance.dataset(str(path)).to_table()["z"].null_count == 32
    assert version_of(both.ours).manifest.fields == version_of(both.theirs).manifest.fields


def test_a_part_of_a_nested_column_may_be_dropped(table: Path) -> None:
    check_agreement(both_ways(table, append, between=drop("place")))


def test_a_file_of_nothing_else_is_left_out(table: Path) -> None:
    """Pylance lists it, and then its own `validate()` calls the table corrupt."""

    def apart(dataset: lance.LanceDataset) -> None:
        commit(dataset, Operation.Append([with_files_of(new(dataset, "a", "place"), new(dataset, "z"))]))

    both = both_ways(table, apart, between=drop("z"))
    assert isinstance(both.result, Committed)
    theirs, ours = lance.dataset(str(both.theirs)), lance.dataset(str(both.ours))
    with pytest.raises(OSError, match="did not have any fields in common"):
        theirs.validate()
    ours.validate()
    assert ours.to_table().equals(theirs.to_table())


def test_a_fragment_of_nothing_else_is_refused(table: Path) -> None:
    """It would have rows without a file, which pylance's `validate()` calls corrupt."""

    def hollow(dataset: lance.LanceDataset) -> None:
        commit(dataset, Operation.Append([new(dataset, "z")]))

    check_refused(both_ways(table, hollow, between=drop("z")), "a fragment has no other fields")


@pytest.mark.parametrize("packed", [False, True])
def test_values_of_a_column_that_was_cast_are_not_lost(table: Path, *, packed: bool) -> None:
    """Pylance commits the rows with nulls."""

    def cast(dataset: lance.LanceDataset) -> None:
        dataset.alter_columns(altered("z", data_type=pa.int32()))

    both = both_ways(table, append, between=cast, packed=packed)
    check_refused(both, "another column got the name 'z' since version 1, so values would be lost")
    assert lance.dataset(str(both.theirs)).to_table()["z"].null_count == 10


@pytest.mark.parametrize(
    "other", [pa.int64(), pa.struct([("w", pa.int64())]), pa.struct([("x", pa.int64())])], ids=str
)
def test_values_of_a_column_that_another_replaced_are_not_lost(table: Path, other: pa.DataType) -> None:
    """Files name only the fields in a struct. So the struct's own name is looked for, too."""

    def replace(dataset: lance.LanceDataset) -> None:
        dataset.drop_columns(["place"])
        dataset.add_columns(pa.schema([pa.field("place", other)]))

    check_refused(both_ways(table, append, between=replace), "another column got the name 'place")


def test_an_id_that_was_used_again_is_refused(table: Path) -> None:
    """Z is in no file of its own here, so pylance gives its id to the next column."""
    lance.dataset(str(table)).drop_columns(["z"])
    lance.dataset(str(table)).add_columns(pa.field("late", pa.int64()))

    def late(dataset: lance.LanceDataset) -> None:
        values = rows(0, 5).select(["a", "place"]).append_column("late", pa.array(range(5), pa.int64()))
        commit(dataset, Operation.Append(write_fragments(values, dataset, mode="append")))

    def again(dataset: lance.LanceDataset) -> None:
        dataset.drop_columns(["late"])
        dataset.add_columns(pa.field("other", pa.int64()))

    check_refused(both_ways(table, late, between=again), "refer to other columns")


def check_refused(both: Both, reason: str) -> None:
    assert isinstance(both.result, Rejected), both.result
    assert both.result.conflict.retryable
    assert reason in both.result.conflict.message


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_append(packed: bool, table: Path) -> None:  # noqa: FBT001 - a parameter of the test
    def large(dataset: lance.LanceDataset) -> None:
        commit(dataset, Operation.Append([new(dataset, "a", "place", "z") for _ in range(20)]))

    check_agreement(both_ways(table, large, between=drop("z"), packed=packed))


def test_a_large_append_with_a_file_of_nothing_else_is_refused(table: Path) -> None:
    """No file is left out of fragments that are kept encoded."""

    def apart(dataset: lance.LanceDataset) -> None:
        commit(dataset, Operation.Append([with_files_of(new(dataset, "a"), new(dataset, "z"))]))

    check_refused(both_ways(table, apart, between=drop("z"), packed=True), "a fragment has no other fields")
