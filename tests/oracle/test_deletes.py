"""Delete: what pylance makes of a table, and what we make of it by folding the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed
from tests.oracle.operations import both_ways

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.oracle.operations import Act, Both


def table_of(path: Path, *, stable: bool = False, rows: int = 40, indices: bool = False) -> Path:
    """A table of fragments of 10 rows: `a` counts them, `s` is text."""
    dataset = lance.write_dataset(
        rows_of(range(rows)), str(path), max_rows_per_file=10, enable_stable_row_ids=stable
    )
    if indices:
        dataset.create_scalar_index("a", "BTREE")
        dataset.create_scalar_index("s", "BITMAP")
    return path


def rows_of(ids: Iterable[int], text: str = "r") -> pa.Table:
    """Rows with these values of `a`."""
    numbers = list(ids)
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"{text}{number}" for number in numbers]})


def values(table: Path, where: str | None = None) -> list[int]:
    """The values of `a` that pylance reads, after it has validated the table."""
    dataset = lance.dataset(str(table))
    dataset.validate()
    rows = sorted(dataset.to_table(columns=["a"], filter=where)["a"].to_pylist())
    assert len(rows) == dataset.count_rows(where)
    return rows


def everything(table: Path) -> pa.Table:
    """All rows with their ids and addresses, and with the versions that made and changed them."""
    dataset = lance.dataset(str(table))
    lineage = ["_row_created_at_version", "_row_last_updated_at_version"]
    more = lineage if dataset.has_stable_row_ids else []
    return dataset.to_table(columns=[*dataset.schema.names, "_rowid", "_rowaddr", *more])


def agree(both: Both) -> Committed:
    """Asserts that both made the same of the table, and that pylance can continue ours. Returns ours."""
    assert isinstance(both.result, Committed), both.result
    assert both.differences == {}
    schema = lance.dataset(str(both.ours)).schema
    for where in (None, "a >= 5 and a < 25", "s in ('r1', 'r12', 'r33', 'x')"):
        if where is not None and where[0] not in schema.names:
            continue
        assert values(both.ours, where) == values(both.theirs, where)
    assert everything(both.ours) == everything(both.theirs)
    before = values(both.ours)
    more = {"a": pa.array([1000], pa.int64()), "s": ["more"], "n": pa.array([1], pa.int64())}
    lance.write_dataset(
        pa.table({name: more[name] for name in schema.names}, schema=schema), str(both.ours), mode="append"
    )
    assert values(both.ours) == [*before, 1000]
    return both.result


WHERES = {
    "some rows": ("a in (1, 3, 15)", 3),
    "a whole fragment": ("a >= 10 and a < 20", 10),
    "all rows": ("a >= 0", 40),
    "rows, and a whole fragment": ("a = 5 or (a >= 30 and a < 40)", 11),
}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("indices", [False, True], ids=["plain", "indexed"])
@pytest.mark.parametrize("where", WHERES.values(), ids=WHERES)
def test_a_delete_comes_to_the_same(
    tmp_path: Path, where: tuple[str, int], *, indices: bool, stable: bool
) -> None:
    table = table_of(tmp_path / "t", stable=stable, indices=indices)
    done = agree(both_ways(table, lambda dataset: dataset.delete(where[0])))
    assert (done.rows_added, done.rows_deleted) == (0, where[1])


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_a_delete_on_deleted_rows_keeps_them_deleted(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    lance.dataset(str(table)).delete("a in (0, 7, 21)")
    done = agree(both_ways(table, lambda dataset: dataset.delete("a < 8 or a >= 35")))
    assert done.rows_deleted == 11
    assert 7 not in values(tmp_path / "t-ours")


def test_a_fragment_with_deleted_rows_is_removed_by_its_affected_rows(tmp_path: Path) -> None:
    """To hold these against the table, its own deletion file must have been read."""
    table = table_of(tmp_path / "t", stable=False)
    lance.dataset(str(table)).delete("a in (0, 7, 21)")
    rest = encode_bitmap(Bitmap([1, 2, 3, 4, 5, 6, 8, 9]))
    both = both_ways(table, lambda dataset: dataset.delete("a < 10"), affected_rows={0: rest})
    assert agree(both).rows_deleted == 8


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_a_fragment_with_deleted_rows_that_goes_counts_the_rest(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    lance.dataset(str(table)).delete("a in (0, 7, 21)")
    assert agree(both_ways(table, lambda dataset: dataset.delete("a < 10"))).rows_deleted == 8


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    "act",
    [
        lambda dataset: dataset.delete("a in (3, 14, 25)"),
        lambda dataset: dataset.update({"s": "'x'"}, where="a in (3, 25) or (a >= 10 and a < 20)"),
    ],
    ids=["delete", "update"],
)
def test_deletion_files_of_the_table_that_was_cloned_are_read_there(
    tmp_path: Path, act: Act, *, stable: bool
) -> None:
    source = table_of(tmp_path / "source", stable=stable)
    lance.dataset(str(source)).delete("a in (1, 2, 13)")
    lance.dataset(str(source)).shallow_clone(str(tmp_path / "clone"), reference=2)
    agree(both_ways(tmp_path / "clone", act))
    assert {1, 2, 13}.isdisjoint(values(tmp_path / "clone-ours"))
