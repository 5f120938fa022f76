"""Rows taken by their ids are those that pylance takes, after any history of the table."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefold
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.uri import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakefold_reader.snapshot.snapshot import Table

PLACES = pa.struct([pa.field("city", pa.string()), pa.field("at", pa.list_(pa.float32(), 2))])


def rows(ids: Sequence[int]) -> pa.Table:
    """Rows with these ids: plain, nested, nulls, a dictionary whose values differ from file to file."""
    ids = list(ids)
    words = pa.array([None if number % 5 == 4 else f"word {number % 7 + number // 50}" for number in ids])
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "place": pa.array(
                [None if number % 3 == 2 else {"city": str(number), "at": [number, 0.5]} for number in ids],
                PLACES,
            ),
            "tags": pa.array([[number] * (number % 4) for number in ids], pa.list_(pa.int32())),
            "word": words.dictionary_encode(),
        }
    )


def written(folder: Path, *, stable: bool, count: int = 60) -> str:
    uri = str(folder / "t")
    lance.write_dataset(rows(range(count)), uri, max_rows_per_file=20, enable_stable_row_ids=stable)
    return uri


def live_ids(uri: str, version: int | None = None) -> list[int]:
    rows: list[int] = lance.dataset(uri, version=version).to_table(columns=["_rowid"])["_rowid"].to_pylist()
    return rows


def decoded(table: pa.Table) -> pa.Table:
    """With the values of dictionaries, whose order doesn't matter."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.schema.names)


def same(ours: Table, ids: Sequence[int], columns: list[str] | None = None) -> None:
    theirs = lance.dataset(local_path(ours.uri), version=ours.version)
    expected = theirs._take_rows(list(ids), columns=columns)
    taken = ours.take(ids, columns)
    assert taken.schema.equals(expected.schema, check_metadata=True)
    assert decoded(taken).equals(decoded(expected))


def merged(uri: str, first: int) -> None:
    """Updates some rows and inserts others."""
    incoming = rows(range(first, first + 12))
    merge = lance.dataset(uri).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(incoming)


ACTS: dict[str, Callable[[str, int], object]] = {
    "append": lambda uri, n: lance.write_dataset(rows(range(100 * n, 100 * n + 9)), uri, mode="append"),
    "delete": lambda uri, n: lance.dataset(uri).delete(f"id % {n + 2} = 1"),
    "update": lambda uri, n: lance.dataset(uri).update({"id": "id + 1000"}, where=f"id % {n + 3} = 0"),
    "merge": lambda uri, n: merged(uri, 7 * n),
    "compact": lambda uri, n: lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=30 * n),
    "add": lambda uri, n: lance.dataset(uri).add_columns({f"more{lance.dataset(uri).version}": f"id * {n}"}),
}


@settings(max_examples=15, deadline=None)
@given(
    stable=st.booleans(),
    acts=st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(1, 4)), max_size=6),
    data=st.data(),
)
def test_any_rows_of_any_table(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    stable: bool,
    acts: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    uri = written(tmp_path_factory.mktemp("take"), stable=stable)
    for act, number in acts:
        ACTS[act](uri, number)
    table, ids = lakefold.open(uri), live_ids(uri)
    same(table, data.draw(st.lists(st.sampled_from(ids))) if ids else [])
    same(table, ids[::-1], ["word", "_rowaddr", "id"])
    gone = sorted(set(live_ids(uri, 1)) - set(ids))
    if gone:
        with pytest.raises(lakefold.RowsNotFoundError) as caught:
            table.take([*ids[:3], *gone])
        assert sorted([*caught.value.deleted, *caught.value.unknown]) == gone
        assert table.take([*ids[:3], *gone], missing="skip")["id"].equals(table.take(ids[:3])["id"])


def test_what_to_do_about_missing_rows_is_one_of_two(tmp_path: Path) -> None:
    table = lakefold.open(written(tmp_path, stable=True))
    with pytest.raises(lakefold.InvalidError, match="'ignore' is not known"):
        table.take([0], missing=cast("Any", "ignore"))


@pytest.mark.parametrize("stable", [True, False])
def test_a_field_of_a_nested_column_is_named_as_in_to_arrow(tmp_path: Path, *, stable: bool) -> None:
    uri = written(tmp_path, stable=stable)
    ids, table = live_ids(uri), lakefold.open(uri)
    columns = ["place.city", "_rowid", "id"]
    expected = table.to_arrow(columns)
    assert table.take(ids[3:9], columns).equals(expected.slice(3, 6), check_metadata=True)


def test_row_versions_may_be_taken(tmp_path: Path) -> None:
    uri = written(tmp_path, stable=True)
    ACTS["update"](uri, 2)
    columns = ["_row_created_at_version", "_rowid", "_row_last_updated_at_version", "id"]
    table = lakefold.open(uri)
    expected = lance.dataset(uri).to_table(columns=columns)
    assert table.to_arrow(columns).equals(expected, check_metadata=True)
    assert table.take(live_ids(uri), columns).equals(expected)


def test_ids_of_every_form(tmp_path: Path) -> None:
    uri = written(tmp_path, stable=True)
    table = lakefold.open(uri)
    expected = table.take([3, 4, 5], ["id"])
    forms: list[Any] = [
        range(3, 6),
        (3, 4, 5),
        np.array([3, 4, 5]),
        pa.array([3, 4, 5], pa.int8()),
        pa.chunked_array([[3], [4, 5]]),
        table.to_arrow(["_rowid"])["_rowid"].slice(3, 3),
        iter([3, 4, 5]),
    ]
    for form in forms:
        assert table.take(form, ["id"]).equals(expected)
    assert table.take([]).num_rows == 0
    assert table.take([]).schema.equals(table.schema, check_metadata=True)
    for form in ([-1], [2**64], [1.5], ["x"], [None], 3, None, [True]):
        with pytest.raises(InvalidError, match="row ids"):
            table.take(form)


@pytest.mark.parametrize("stable", [True, False])
def test_ids_that_do_not_exist_are_reported(tmp_path: Path, *, stable: bool) -> None:
    uri = written(tmp_path, stable=stable)
    lance.dataset(uri).delete("id in (1, 2)")
    table = lakefold.open(uri)
    with pytest.raises(lakefold.RowsNotFoundError) as caught:
        table.take([2, 0, 1, 2, 2**41, 2**63])
    assert (caught.value.unknown, caught.value.deleted) == ([2**41, 2**63], [1, 2])
    assert f"unknown are {2**41}, {2**63}; deleted are 1, 2" in str(caught.value)
    with pytest.raises(lakefold.RowsNotFoundError, match=r"unknown are 4611686018427387904, .* and 95 more"):
        table.take(range(2**62, 2**62 + 100))
    assert table.take([2, 0, 2**41, 3], ["id"], missing="skip")["id"].to_pylist() == [0, 3]
    assert lakefold.open(uri, 1).take([2, 0, 1], ["id"])["id"].to_pylist() == [2, 0, 1]
    with pytest.raises(InvalidError):
        table.take([0], ["nope"])


def test_only_the_fragments_asked_for_are_read(tmp_path: Path) -> None:
    uri = written(tmp_path, stable=True)
    lance.dataset(uri).delete("id in (5, 25, 45)")
    table = lakefold.open(uri)
    first = lance.dataset(uri).get_fragments()[0]
    keep = {file.path for file in first.data_files()}
    for file in (tmp_path / "t/data").iterdir():
        if file.name not in keep:
            file.unlink()
    for file in (tmp_path / "t/_deletions").iterdir():
        if not file.name.startswith(f"{first.fragment_id}-"):
            file.unlink()
    assert table.take([7, 0], ["id"])["id"].to_pylist() == [7, 0]
    with pytest.raises(DamagedError, match="names a file that is missing"):
        table.take([7, 21])


def test_a_version_that_was_cleaned_up(tmp_path: Path) -> None:
    uri = written(tmp_path, stable=True)
    table = lakefold.open(uri)
    lance.write_dataset(rows([1]), uri, mode="overwrite")
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(VersionExpiredError):
        table.take([1])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [True, False])
def test_blobs_are_files(tmp_path: Path, version: Literal["2.0", "2.1", "2.2"], *, stable: bool) -> None:
    uri = str(tmp_path / "t")
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [f"{number}" * number if number % 4 else None for number in range(30)]
    data = pa.table(
        [pa.array(range(30)), pa.array(values, pa.large_binary())],
        schema=pa.schema([pa.field("id", pa.int64()), blob]),
    )
    lance.write_dataset(
        data, uri, max_rows_per_file=10, enable_stable_row_ids=stable, data_storage_version=version
    )
    lance.dataset(uri).delete("id in (3, 13)")
    ids, table = live_ids(uri), lakefold.open(uri)
    asked = [ids[20], ids[1], ids[1], ids[4], ids[15]]
    same(table, asked)
    assert table.to_arrow().equals(lance.dataset(uri).to_table(), check_metadata=True)
    theirs = lance.dataset(uri).take_blobs("blob", ids=asked)
    ours = table.blobs("blob", asked)
    assert [each and each.read() for each in ours] == [file and file.read() for file in theirs]
    with pytest.raises(InvalidError):
        table.blobs("id", asked)
    with pytest.raises(lakefold.RowsNotFoundError):
        table.blobs("blob", [ids[0], 2**50])


@pytest.mark.parametrize("stable", [True, False])
def test_blobs_of_the_second_kind(tmp_path: Path, *, stable: bool) -> None:
    """Some are in the data file, some packed beside it, some in a file of their own."""
    uri = str(tmp_path / "t")
    values = [b"a" * 10, None, b"", b"x" * 100_000, b"y" * 5_000_000]
    schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("blob")])
    data = pa.table([pa.array(range(5)), lance.blob_array(values)], schema=schema)
    lance.write_dataset(
        data, uri, data_storage_version="2.2", enable_stable_row_ids=stable, max_rows_per_file=2
    )
    lance.dataset(uri).delete("id = 0")
    table, ids = lakefold.open(uri), live_ids(uri)
    assert table.schema.equals(lance.dataset(uri).schema, check_metadata=True)
    assert table.to_arrow().equals(lance.dataset(uri).to_table(), check_metadata=True)
    same(table, ids[::-1])
    read = [None if blob is None else blob.read() for blob in table.blobs("blob", ids[::-1])]
    assert read == values[:0:-1]


def test_very_many_rows_are_taken_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefold_reader.lance.scan.take.AT_ONCE", 7)
    uri = written(tmp_path, stable=True)
    ids = live_ids(uri)[::-1]
    same(lakefold.open(uri), [*ids, *ids[:30]])
    assert lakefold.open(uri).take(ids[:14], ["id"]).num_rows == 14
