"""A column may have exactly the types that Lance reads back from data files of the table's version."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.lance import data_files
from lakefold_ingest.lance.data_files import FragmentTarget, write_fragments
from lakefold_ingest.lance.file_types import type_faults
from lakefold_ingest.rows.fitting import Fitting
from lakefold_table.errors import InvalidError, LakefoldError, RetryError
from lakefold_table.lance.schemas.data_files import file_version
from lakefold_table.uri import canonical
from tests.oracle.test_written_fragments import commit, target_of

if TYPE_CHECKING:
    from pathlib import Path

Version = Literal["2.0", "2.1", "2.2", "2.3"]
VERSIONS: tuple[Version, ...] = get_args(Version)
STRUCT = pa.struct([("x", pa.int32())])
# A type of each kind that a column, an item or a field can have, and a value.
PLAIN: list[tuple[pa.DataType, Any]] = [
    (pa.null(), None),
    (pa.bool_(), True),
    (pa.int64(), 7),
    (pa.float16(), 1.5),
    (pa.string(), "a"),
    (pa.large_string(), "a"),
    (pa.binary(), b"a"),
    (pa.large_binary(), b"a"),
    (pa.binary(0), b""),
    (pa.binary(3), b"abc"),
    (pa.date32(), 1),
    (pa.time64("ns"), 1),
    (pa.timestamp("us", "UTC"), 1),
    (pa.duration("s"), 1),
    (pa.decimal128(10, 2), Decimal("1.25")),
    (pa.decimal256(60, 2), Decimal("1.25")),
    (pa.struct([]), {}),
    (STRUCT, {"x": 1}),
]


def arrays() -> dict[str, pa.Array]:
    """Arrays of three values, by their type: each plain type alone, and below each nested one."""
    made = []
    for kind, value in PLAIN:
        made += [
            pa.array([value] * 3, kind),
            pa.array([[value]] * 3, pa.list_(kind)),
            pa.array([[value] * 2] * 3, pa.list_(kind, 2)),
            pa.array([[[value] * 2] * 2] * 3, pa.list_(pa.list_(kind, 2))),
            pa.array([{"f": value}] * 3, pa.struct([("f", kind)])),
            pa.array([[("k", value)]] * 3, pa.map_(pa.string(), kind)),
        ]
        if not pa.types.is_struct(kind):
            made.append(pa.array([[[value]]] * 3, pa.list_(pa.list_(kind, 1), 1)))
    words = pa.array(["a", "b"] * 3).dictionary_encode()
    made += [words.slice(0, 3), pa.FixedSizeListArray.from_arrays(words, 2)]
    return {str(array.type): array for array in made}


ARRAYS = arrays()
# Outside of lists nothing reads such a column, in no version: one rule for all is plainer.
READ_IN_LISTS_ONLY = ("list<item: fixed_size_list<item: struct<x: int32>>[2]>", "2.3")
CELLS = [(kind, version) for kind in ARRAYS for version in VERSIONS]


def rows_of(kind: str) -> pa.Table:
    """Rows with a column of the type between two others, which Lance has to read with it."""
    return pa.table({"id": [1, 2, 3], "c": ARRAYS[kind], "n": [4, 5, 6]})


def reads_back(rows: pa.Table, folder: Path, version: Version) -> bool:
    """Whether pylance reads the rows that it has written; its panics are not an `Exception`."""
    try:
        lance.write_dataset(rows, folder, data_storage_version=version)
        return bool(lance.dataset(folder).to_table().to_pylist() == rows.to_pylist())
    except BaseException as error:
        if type(error).__name__ not in {"PanicException", "ArrowInvalid", "OSError", "ValueError"}:
            raise
        return False


@pytest.mark.parametrize(("kind", "version"), CELLS)
def test_a_type_is_written_if_pylance_reads_it_back(kind: str, version: Version, tmp_path: Path) -> None:
    rows = rows_of(kind)
    refused = list(type_faults(rows.schema, file_version(version)))
    read = reads_back(rows, tmp_path / "judge", version)
    assert read == (not refused or (kind, version) == READ_IN_LISTS_ONLY)
    if refused:
        fitting = Fitting(rows.schema, (0, 1, 2))
        target = FragmentTarget(canonical(tmp_path / "t"), fitting, tuple(range(9)), version)
        with pytest.raises(InvalidError, match=r"^c\S*: c\S* can't be a column, because "):
            list(write_fragments(target, rows.to_batches()))
        assert not (tmp_path / "t").exists()
    else:
        dataset = lance.write_dataset(rows.schema.empty_table(), tmp_path / "t", data_storage_version=version)
        written = list(write_fragments(target_of(dataset, rows.schema), rows.to_batches()))
        assert commit(dataset, written).to_table().to_pylist() == rows.to_pylist()


def test_structs_that_are_null_are_refused_in_files_without_them(tmp_path: Path) -> None:
    rows = pa.table({"c": pa.array([{"x": 1}, None], STRUCT)})
    dataset = lance.write_dataset(rows.schema.empty_table(), tmp_path / "t", data_storage_version="2.0")
    with pytest.raises(InvalidError, match=r"field `c` contains 1 null .*`data_storage_version` is 2\.2"):
        list(write_fragments(target_of(dataset, rows.schema), rows.to_batches()))


def test_a_panic_of_lance_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that this release doesn't know to be refused can make Lance panic, e.g. those of a newer one."""
    rows = pa.table({"c": pa.array([["a"]], pa.list_(pa.string(), 1))})
    dataset = lance.write_dataset(rows.schema.empty_table(), tmp_path / "t", data_storage_version="2.2")
    monkeypatch.setattr(data_files, "check_types", lambda *_: None)
    with pytest.raises(InvalidError, match="Lance panicked while it wrote the rows: compute_stat"):
        list(write_fragments(target_of(dataset, rows.schema), rows.to_batches()))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Permission denied (os error 13)", InvalidError),
        ("Read-only file system (os error 30)", InvalidError),
        ("No space left on device (os error 28)", RetryError),
        ("something else went wrong", RetryError),
    ],
)
def test_what_a_file_that_can_not_be_written_means(words: str, expected: type[LakefoldError]) -> None:
    """A right that is missing lasts, as for Delta tables; other errors may pass."""
    error = OSError(f"LanceError(IO): {words}, rust/lance-io/src/local.rs:1:2")
    assert type(data_files._not_written(error, "file:///t")) is expected
