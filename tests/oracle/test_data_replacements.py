"""A DataReplacement folded by us makes the manifest that pylance makes of it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from lakefold_table.entry import Invalid
from tests.oracle.committing import rows
from tests.oracle.operations import both_ways, check_agreement

Act = Callable[[lance.LanceDataset], object]
Operation = lance.LanceOperation


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Columns a and s in one file, c in another, n and m in none; all but m are indexed."""
    path = tmp_path / "table"
    dataset = lance.write_dataset(
        rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=bool(request.param)
    )
    dataset.add_columns({"c": "a * 2"})
    dataset.add_columns(pa.schema([pa.field("n", pa.int64()), pa.field("m", pa.int64())]))
    for column in ("a", "c", "n"):
        dataset.create_scalar_index(column, "BTREE")
    dataset.create_scalar_index("s", "BITMAP")
    dataset.delete("a < 3")
    return path


def file(
    table: str,
    columns: Mapping[str, Sequence[object]],
    name: str = "new",
    version: Literal["2.1", "2.2"] = "2.2",
) -> DataFile:
    values = pa.table({key: list(value) for key, value in columns.items()})
    with LanceFileWriter(f"{table}/data/{name}.lance", values.schema, version=version) as writer:
        writer.write_batch(values)
    return DataFile.create(lance.dataset(table), f"{name}.lance")


def replacing(
    fragments: Sequence[int],
    columns: Mapping[str, Sequence[object]],
    version: Literal["2.1", "2.2"] = "2.2",
) -> Act:
    """New values for these columns of these fragments, from a file for each."""

    def act(dataset: lance.LanceDataset) -> None:
        groups = [
            Operation.DataReplacementGroup(number, file(dataset.uri, columns, f"new-{number}", version))
            for number in fragments
        ]
        commit(dataset, groups)

    return act


def commit(dataset: lance.LanceDataset, groups: Sequence[lance.LanceOperation.DataReplacementGroup]) -> None:
    operation = Operation.DataReplacement(list(groups))
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


NUMBERS, TEXTS = range(100, 110), [f"text {n}" for n in range(10)]
ACTS: dict[str, Act] = {
    "a file gives up its place": replacing([1], {"c": NUMBERS}),
    "in several fragments": replacing([2, 0], {"c": NUMBERS}),
    "one of the columns of a file": replacing([1], {"a": NUMBERS}),
    "all the columns of a file": replacing([1], {"a": NUMBERS, "s": TEXTS}),
    "all of them in another order": replacing([1], {"s": TEXTS, "a": NUMBERS}),
    "columns of two files": replacing([3], {"s": TEXTS, "c": NUMBERS}),
    "a column that is in no file": replacing([0, 3], {"n": NUMBERS}),
    "two that are in no file": replacing([2], {"n": NUMBERS, "m": NUMBERS}),
    "a file of another version": replacing([2], {"c": NUMBERS}, "2.1"),
    "nothing": lambda dataset: commit(dataset, []),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_the_same_replacement(act: Act, table: Path) -> None:
    check_agreement(both_ways(table, act))


def test_one_after_the_other(table: Path) -> None:
    """Fragments whose files have struck out fields already."""
    replacing([1, 2], {"a": NUMBERS})(lance.dataset(str(table)))
    lance.dataset(str(table)).drop_columns(["c"])

    def again(dataset: lance.LanceDataset) -> None:
        commit(
            dataset, [Operation.DataReplacementGroup(1, file(dataset.uri, {"a": TEN, "s": TEXTS}, "more"))]
        )

    check_agreement(both_ways(table, again))


def test_a_file_of_which_only_dropped_columns_are_left(table: Path) -> None:
    lance.dataset(str(table)).drop_columns(["s"])
    check_agreement(both_ways(table, ACTS["one of the columns of a file"]))


TEN = range(10)


def others_changed(dataset: lance.LanceDataset) -> None:
    dataset.delete("a = 15 or a = 25")
    lance.write_dataset(dataset.head(3), dataset, mode="append")
    dataset.update_config({"k": "v"})


def test_it_follows_deletes_and_appends(table: Path) -> None:
    check_agreement(both_ways(table, ACTS["one of the columns of a file"], between=others_changed))


def test_some_in_files_and_some_in_none(table: Path) -> None:
    """What pylance refuses, we refuse."""
    replacing([1], {"n": NUMBERS})(lance.dataset(str(table)))
    with pytest.raises(OSError, match="no changes were made"):
        replacing([1], {"n": NUMBERS, "m": NUMBERS})(lance.dataset(str(table)))


def test_a_file_that_is_gone(table: Path) -> None:
    """It is committed by pylance; the rows can't be read any more."""

    def act(dataset: lance.LanceDataset) -> None:
        ACTS["a file gives up its place"](dataset)
        Path(dataset.uri, "data", "new-1.lance").unlink()

    both = both_ways(table, act)
    assert isinstance(both.result, Invalid)
    assert "is missing" in both.result.message
