"""Update: what pylance makes of a table, and what we make of it by folding the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import lance
import pyarrow as pa
import pytest

from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed, Rejected
from tests.oracle.committing import fold, owned
from tests.oracle.operations import both_ways, version_of
from tests.oracle.rebasing import built, send
from tests.oracle.test_deletes import agree, everything, rows_of, table_of, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.oracle.operations import Act

Making = tuple["Callable[..., Path]", "Act", tuple[int, int]]


def three_columns(path: Path, *, stable: bool = False) -> Path:
    """A table with a column more, indexed, of which a row is deleted."""
    data = rows_of(range(40)).append_column("n", pa.array([None] * 40, pa.int64()))
    dataset = lance.write_dataset(data, str(path), max_rows_per_file=10, enable_stable_row_ids=stable)
    dataset.create_scalar_index("a", "BITMAP")
    dataset.create_scalar_index("s", "BITMAP")
    dataset.delete("a = 2")
    return path


def indexed(path: Path, *, stable: bool = False) -> Path:
    """A table with two columns, both indexed."""
    return table_of(path, stable=stable, indices=True)


def columns_rewritten(path: Path, *, stable: bool = False) -> Path:
    """A table of which some fragments have two files."""
    lance.dataset(str(three_columns(path, stable=stable))).merge_insert(
        "a"
    ).when_matched_update_all().execute(rows_of([1, 3, 12], "again"))
    return path


def updated(path: Path, *, stable: bool = False) -> Path:
    """A table whose rows were updated before."""
    lance.dataset(str(indexed(path, stable=stable))).update({"s": "'before'"}, where="a in (1, 5, 30)")
    return path


def update(where: str) -> Act:
    """Give these rows another text."""
    return lambda dataset: dataset.update({"s": "'x'"}, where=where)


def upsert(*ids: int) -> Act:
    """Give these rows another text, insert those that aren't there."""
    return lambda dataset: (
        dataset.merge_insert("a")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows_of(ids, "merged"))
    )


UPDATES: dict[str, Making] = {
    "some rows": (indexed, update("a in (1, 3, 12)"), (3, 3)),
    "rows and whole fragments": (indexed, update("a in (1, 3, 12) or a >= 20"), (23, 23)),
    "rows updated before": (updated, update("a in (1, 4, 12)"), (3, 3)),
    "rows of rewritten columns": (columns_rewritten, update("a in (1, 4, 12)"), (3, 3)),
    "merge_insert": (indexed, upsert(1, 3, 12, 100, 101), (5, 3)),
    "merge_insert of new rows": (
        indexed,
        lambda dataset: (
            dataset.merge_insert("a").when_not_matched_insert_all().execute(rows_of([1, 3, 100, 101]))
        ),
        (2, 0),
    ),
    "merge_insert that deletes what isn't there": (
        indexed,
        lambda dataset: (
            dataset.merge_insert("a").when_not_matched_by_source_delete("a < 15").execute(rows_of([1, 3, 12]))
        ),
        (0, 12),
    ),
    "merge_insert that deletes what is there": (
        indexed,
        lambda dataset: dataset.merge_insert("a").when_matched_delete().execute(rows_of([1, 3, 12])),
        (0, 3),
    ),
    "some columns": (
        three_columns,
        lambda dataset: dataset.merge_insert("a").when_matched_update_all().execute(rows_of([1, 12], "m")),
        (0, 0),
    ),
    "some columns, and new rows": (three_columns, upsert(1, 3, 12, 77), (1, 0)),
    "columns rewritten before": (columns_rewritten, upsert(1, 3, 12, 77), (1, 0)),
}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("making", UPDATES.values(), ids=UPDATES)
def test_an_update_comes_to_the_same(tmp_path: Path, making: Making, *, stable: bool) -> None:
    make, act, counts = making
    table = make(tmp_path / "t", stable=stable)
    done = agree(both_ways(table, act))
    assert (done.rows_added, done.rows_deleted) == counts


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_an_index_on_other_columns_covers_moved_rows_only_by_their_ids(
    tmp_path: Path, kind: Literal["BTREE", "BITMAP"]
) -> None:
    table = table_of(tmp_path / "t", stable=True)
    lance.dataset(str(table)).create_scalar_index("a", kind)
    both = both_ways(table, update("a in (1, 3, 12)"))
    agree(both)


def test_an_index_that_does_not_cover_all_sources_does_not_cover_moved_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", stable=True)
    lance.dataset(str(table)).create_scalar_index("a", "BITMAP")
    lance.write_dataset(rows_of(range(40, 50)), str(table), mode="append")
    agree(both_ways(table, update("a in (1, 45)")))


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("mode", [None, "rewrite_rows", "rewrite_columns"])
@pytest.mark.parametrize("offsets", [None, [1, 2]], ids=["without offsets", "with offsets"])
def test_columns_rewritten_by_hand_come_to_the_same(
    tmp_path: Path,
    mode: Literal["rewrite_rows", "rewrite_columns"] | None,
    offsets: list[int] | None,
    *,
    stable: bool,
) -> None:
    def act(dataset: lance.LanceDataset) -> object:
        actual = dataset.get_fragment(1)
        assert actual is not None
        fragment, fields = actual.update_columns(rows_of([11, 12], "by hand"), left_on="a", right_on="a")
        operation = lance.LanceOperation.Update(
            removed_fragment_ids=[],
            updated_fragments=[fragment],
            new_fragments=[],
            fields_modified=fields,
            fields_for_preserving_frag_bitmap=[],
            update_mode=mode,  # type: ignore[arg-type]  # its default, None, is not in its type
            updated_fragment_offsets=None if offsets is None else {1: encode_bitmap(Bitmap(offsets))},
        )
        return lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    table = three_columns(tmp_path / "t", stable=stable)
    agree(both_ways(table, act))


@pytest.mark.parametrize("dropped", ["n", "s"])
def test_files_may_still_hold_columns_that_were_dropped(tmp_path: Path, dropped: str) -> None:
    def make(path: Path) -> Path:
        lance.dataset(str(three_columns(path))).drop_columns([dropped])
        return path

    def act(dataset: lance.LanceDataset) -> object:
        names = [name for name in ("s", "n") if name != dropped]
        data = rows_of([1, 3], "m").append_column("n", pa.array([5, 6], pa.int64())).select(["a", *names])
        return dataset.merge_insert("a").when_matched_update_all().execute(data)

    table = make(tmp_path / "t")
    agree(both_ways(table, act))
    agree(both_ways(table.rename(tmp_path / "u"), lambda dataset: dataset.delete("a = 11")))


def keyed(*ids: int) -> pa.Table:
    """Rows of a table whose column `a` is its primary key."""
    key = pa.field("a", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    return rows_of(ids).cast(pa.schema([key, ("s", pa.string())]))


@pytest.mark.parametrize("between", [None, (2, 200), (3, 300)], ids=["newest", "other keys", "same key"])
def test_the_keys_that_were_inserted_stay_in_the_transaction(
    tmp_path: Path, between: tuple[int, int] | None
) -> None:
    """The next version's transaction carries them, and a key that both inserted is a conflict."""

    def upsert(dataset: lance.LanceDataset, *ids: int) -> object:
        builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
        return builder.execute(keyed(*ids))

    table = tmp_path / "t"
    lance.write_dataset(keyed(*range(40)), str(table), max_rows_per_file=10)
    sent = built(table, lambda dataset: upsert(dataset, 1, 300))
    if between is not None:
        upsert(lance.dataset(str(table)), *between)
    (result,) = fold(owned(table), send(table, sent), 0)
    if between == (3, 300):
        assert isinstance(result, Rejected)
        assert result.conflict.retryable
        return
    assert isinstance(result, Committed)
    made = version_of(table).transaction
    assert made is not None
    assert made.update.inserted_rows == sent[0].lance.update.inserted_rows
    assert made.update.HasField("inserted_rows")


@pytest.mark.parametrize(
    ("version", "stable"), [("legacy", False), ("2.0", False), ("2.0", True), ("2.2", False), ("2.2", True)]
)
def test_nested_columns_are_written_again(
    tmp_path: Path, version: Literal["legacy", "2.0", "2.2"], *, stable: bool
) -> None:
    table = tmp_path / "t"
    nested = pa.array([{"x": number, "y": [number]} for number in range(40)])
    lance.write_dataset(
        rows_of(range(40)).append_column("nested", nested),
        str(table),
        max_rows_per_file=10,
        enable_stable_row_ids=stable,
        data_storage_version=version,
    )
    lance.dataset(str(table)).create_scalar_index("nested.x", "BTREE")
    more = pa.table({"a": pa.array([1, 13], pa.int64()), "nested": pa.array([{"x": 7, "y": [8, 9]}] * 2)})
    both = both_ways(table, lambda dataset: dataset.merge_insert("a").when_matched_update_all().execute(more))
    assert isinstance(both.result, Committed)
    assert both.differences == {}
    assert everything(both.ours) == everything(both.theirs)
    assert values(both.ours, "nested.x = 7") == [1, 7, 13]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    "act",
    [update("a in (1, 4, 12) or a >= 30"), upsert(1, 12, 77), lambda dataset: dataset.delete("a in (1, 12)")],
    ids=["update", "merge_insert", "delete"],
)
def test_rows_of_compacted_fragments_come_to_the_same(tmp_path: Path, act: Act, *, stable: bool) -> None:
    """Their ids and versions lie in several pieces, of any form."""
    table = updated(tmp_path / "t", stable=stable)
    dataset = lance.dataset(str(table))
    dataset.delete("a in (2, 7, 33)")
    dataset.optimize.compact_files(target_rows_per_fragment=25)
    agree(both_ways(table, act))
