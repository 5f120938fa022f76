"""Rows read from data files alone are the rows that pylance's scanner gives, in the same types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import lance
import pyarrow as pa
import pytest

from lakefold_reader.formats import open_source
from lakefold_reader.lance.scan.columns import schema_of
from lakefold_reader.lance.scan.scan import Dataset, rows_of_files, rows_of_fragments, side_by_side
from lakefold_reader.lance.versions import read_state
from lakefold_table.errors import DamagedError
from lakefold_table.uri import canonical
from tests.oracle.arrays import rows
from tests.oracle.columns import (
    BLOBS,
    DICTIONARIES,
    EMPTY,
    FIXED_SIZE_LISTS_OF_STRUCTS,
    KINDS,
    LISTS,
    POINT,
    SIMPLE,
    STRUCTS,
    WITH_METADATA,
    column,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.state import LanceState

Version = Literal["2.0", "2.1", "2.2", "2.3", "legacy"]
ROWS = 50
# What pylance 14 refuses to write, or writes and can't read again, once there are rows with nulls.
UNREADABLE = {
    EMPTY,
    *[kind for kind in STRUCTS if kind.get_field_index("e") >= 0],
    *[pa.list_(kind, 2) for kind in (pa.utf8(), pa.dictionary(pa.int8(), pa.utf8()), pa.uuid(), pa.json_())],
    *FIXED_SIZE_LISTS_OF_STRUCTS,
    pa.dictionary(pa.int32(), pa.binary_view()),
    pa.dictionary(pa.int64(), pa.null()),
}
# Every version of data files holds these; 2.0 has no nulls of structs, and no version but 2.2 binary(0).
SIMPLEST = [
    kind
    for kind in (*SIMPLE, *LISTS[:4], *DICTIONARIES[:-1])
    if kind not in UNREADABLE and kind != pa.binary(0)
]
MARKED = [blob for blob in BLOBS if not isinstance(blob.type, pa.BaseExtensionType)][:2]
COLUMNS = [*[column(kind) for kind in KINDS if kind not in UNREADABLE], *WITH_METADATA[:3], *MARKED]


def written(table: pa.Table, folder: Path, version: Version = "2.2") -> str:
    uri = str(folder / "t")
    lance.write_dataset(table, uri, data_storage_version=version, max_rows_per_file=20)
    return uri


def opened(uri: str) -> LanceState:
    source = open_source(uri)
    return read_state(source, source.versions.latest())


def ours(uri: str, columns: Sequence[str] | None = None, batch_rows: int = 7) -> pa.Table:
    """All fragments of the newest version, read as a tail reads new fragments."""
    state = opened(uri)
    dataset = Dataset(open_source(uri), state.version)
    schema = schema_of(state.head).chosen(columns)
    reader = rows_of_fragments(
        dataset, list(state.fragments), schema, lambda fragment: fragment.id, batch_rows
    )
    return reader.read_all()


def is_direct(uri: str) -> list[bool]:
    """For each fragment, whether its rows come from its files alone."""
    state = opened(uri)

    def direct(fragment: DataFragment) -> bool:
        return rows_of_files(canonical(uri), fragment, schema_of(state.head), {}) is not None

    return [direct(fragment) for fragment in state.fragments]


def check(uri: str, columns: list[str] | None = None) -> None:
    actual, expected = ours(uri, columns), lance.dataset(uri).to_table(columns=columns)
    assert actual.schema.equals(expected.schema, check_metadata=True)
    assert actual.combine_chunks() == expected.combine_chunks()


@pytest.mark.parametrize("field", COLUMNS, ids=str)
def test_every_kind_of_column(field: pa.Field, tmp_path: Path) -> None:
    uri = written(rows(pa.schema([field, ("after", pa.int8())]), ROWS), tmp_path)
    check(uri)
    check(uri, ["after"])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_every_version_of_data_files(version: Version, tmp_path: Path) -> None:
    schema = pa.schema([column(kind).with_name(f"c{number}") for number, kind in enumerate(SIMPLEST)])
    uri = written(rows(schema, ROWS), tmp_path, version)
    check(uri)
    check(uri, ["c7", "c3"])
    assert is_direct(uri) == [True] * 3


def test_a_fixed_size_list_of_structs_goes_through_the_scanner(tmp_path: Path) -> None:
    table = pa.table({"c": pa.array([[{"x": 1, "y": "a"}] * 3], pa.list_(POINT, 3))})
    uri = written(table, tmp_path)
    check(uri)
    assert is_direct(uri) == [False]


def numbered(count: int, first: int = 0) -> pa.Table:
    ids = range(first, first + count)
    people = [{"name": f"n{number}", "age": number} for number in ids]
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "who": people, "text": [f"row {number}" for number in ids]}
    )


def test_columns_added_later_are_in_files_of_their_own(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    lance.dataset(uri).add_columns(pa.schema([("empty", pa.timestamp("us"))]))
    lance.write_dataset(numbered(5, 100), uri, mode="append")
    lance.dataset(uri).add_columns({"text2": "concat(text, '!')"})
    check(uri)
    check(uri, ["text2", "empty", "id"])
    check(uri, ["empty"])
    assert is_direct(uri) == [True] * 4


def alter(uri: str, **change: Any) -> None:  # noqa: ANN401 - a name, a path or a type
    # pylance's type asks for every key, the call doesn't.
    lance.dataset(uri).alter_columns(cast("Any", change))


def test_columns_renamed_dropped_and_put_in_another_order(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    alter(uri, path="text", name="words")
    lance.dataset(uri).drop_columns(["id"])
    lance.dataset(uri).add_columns({"text": "who['age'] + 1"})
    lance.write_dataset(pa.table({"words": ["w"], "text": pa.array([1], pa.int64())}), uri, mode="append")
    check(uri)
    check(uri, ["text", "words"])
    assert all(is_direct(uri))


def test_a_column_cast_to_another_type(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    alter(uri, path="id", data_type=pa.int32())
    check(uri)
    assert all(is_direct(uri))


def test_metadata_below_a_column_that_changed_since(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    lance.dataset(uri).update_field_metadata({"who.name": {"unit": "letters"}, "id": {"k": "v"}})
    lance.dataset(uri).update_schema_metadata({"s": "t"})
    check(uri)


def test_what_differs_below_a_column_goes_through_the_scanner(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    alter(uri, path="who.name", name="called")
    check(uri)
    assert is_direct(uri) == [False] * 3


def test_deleted_rows_and_old_files_go_through_the_scanner(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    lance.dataset(uri).delete("id % 7 = 0 AND id < 20")
    check(uri)
    assert is_direct(uri) == [False, True, True]
    old = written(numbered(ROWS), tmp_path / "old", "legacy")
    check(old)
    assert not any(is_direct(old))


def test_files_under_another_root_go_through_the_scanner(tmp_path: Path) -> None:
    uri = written(numbered(ROWS), tmp_path)
    lance.dataset(uri).shallow_clone(str(tmp_path / "clone"), 1)
    lance.write_dataset(numbered(5, 100), str(tmp_path / "clone"), mode="append")
    check(str(tmp_path / "clone"))
    assert is_direct(str(tmp_path / "clone")) == [False] * 3 + [True]


def test_rows_rewritten_on_a_table_with_stable_row_ids(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(numbered(ROWS), uri, enable_stable_row_ids=True, max_rows_per_file=20)
    dataset.update({"text": "'new'"}, where="id = 3")
    lance.dataset(uri).optimize.compact_files()
    check(uri)


def test_file_names_that_mean_something_in_a_uri(tmp_path: Path) -> None:
    uri = written(numbered(5), tmp_path / "a b%20#é")
    dataset = lance.dataset(uri)
    (fragment,) = dataset.get_fragments()
    (file,) = fragment.metadata.files
    odd = "x y%20?é.lance"
    (tmp_path / "a b%20#é/t/data" / file.path).rename(tmp_path / "a b%20#é/t/data" / odd)
    moved = fragment.metadata.to_json()
    moved["files"][0]["path"] = odd
    lance.LanceDataset.commit(
        uri,
        lance.LanceOperation.Overwrite(dataset.schema, [lance.FragmentMetadata.from_json(json.dumps(moved))]),
    )
    assert ours(uri)["id"].to_pylist() == list(range(5))
    assert is_direct(uri) == [True]


def test_a_data_file_with_other_rows_than_its_fragment_says_is_damaged(tmp_path: Path) -> None:
    uri = written(numbered(5), tmp_path)
    (fragment,) = opened(uri).fragments
    fragment.physical_rows = 6
    with pytest.raises(DamagedError, match="5 rows, its fragment 6"):
        rows_of_files(canonical(uri), fragment, schema_of(opened(uri).head), {})


def test_a_data_file_cut_short_is_damaged_and_a_missing_one_is_said(tmp_path: Path) -> None:
    uri = written(numbered(5), tmp_path)
    (path,) = Path(uri, "data").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedError):
        ours(uri)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        ours(uri)


def test_streams_cut_at_different_rows_are_put_side_by_side() -> None:
    left = pa.table({"a": range(10)}).to_batches(max_chunksize=4)
    right = pa.table({"b": range(10)}).to_batches(max_chunksize=3)
    steps = list(side_by_side([iter(left), iter(right)]))
    assert [[part.num_rows for part in step] for step in steps] == [
        [3, 3],
        [1, 1],
        [2, 2],
        [2, 2],
        [1, 1],
        [1, 1],
    ]
    assert [value for step in steps for value in step[0]["a"].to_pylist()] == list(range(10))
    assert [value for step in steps for value in step[1]["b"].to_pylist()] == list(range(10))
