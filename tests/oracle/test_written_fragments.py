"""Fragments that executors write are the table's own: pylance commits them and reads the same rows back.

The tables have lost their first column, so their field ids are not what pylance numbers a new file from.

Promises: interrupted-calls (docs/operations/promises.md).
"""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import lance
import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.fragment import FragmentMetadata
from lance.progress import NoopFragmentWriteProgress

from lakefold_ingest.lance import data_files
from lakefold_ingest.lance.data_files import FragmentTarget, write_fragments
from lakefold_ingest.rows.fitting import fit
from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.data_files import expected_file_fields, file_version
from lakefold_table.lance.schemas.schema import TOP
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

Version = Literal["legacy", "2.0", "2.1", "2.2", "2.3"]
FILE_VERSIONS: tuple[Version, ...] = get_args(Version)
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
DAY = dt.date(2013, 1, 1)


def extension(kind: pa.DataType, name: str) -> pa.Field:
    return pa.field("c", kind, metadata={"ARROW:extension:name": name})


# A column, three of its values, and the first version of Lance's files that can hold it.
COLUMNS: dict[str, tuple[pa.Field, list[Any], str]] = {
    "integer": (pa.field("c", pa.int32()), [1, None, 3], "2.0"),
    "required": (pa.field("c", pa.int64(), nullable=False), [1, 2, 3], "2.0"),
    "unsigned": (pa.field("c", pa.uint8()), [1, None, 255], "2.0"),
    "truth": (pa.field("c", pa.bool_()), [True, None, False], "2.0"),
    "nothing": (pa.field("c", pa.null()), [None, None, None], "2.0"),
    "text": (pa.field("c", pa.string()), ["a", None, ""], "2.0"),
    "large text": (pa.field("c", pa.large_string()), ["a", None, ""], "2.0"),
    "bytes": (pa.field("c", pa.binary()), [b"a", None, b""], "2.0"),
    "fixed bytes": (pa.field("c", pa.binary(3)), [b"abc", None, b"xyz"], "2.0"),
    "decimal": (pa.field("c", pa.decimal128(10, 2)), [Decimal("1.25"), None, Decimal(3)], "2.0"),
    "time": (pa.field("c", pa.timestamp("us", "UTC")), [1, None, 3], "2.0"),
    "day": (pa.field("c", pa.date32()), [DAY, None, DAY], "2.0"),
    "duration": (pa.field("c", pa.duration("us")), [1, None, 3], "2.0"),
    "list": (pa.field("c", pa.list_(pa.field("element", pa.int32()))), [[1, None], None, []], "2.0"),
    "list of lists": (pa.field("c", pa.list_(pa.list_(pa.string()))), [[["a"], None], None, []], "2.0"),
    "struct": (pa.field("c", STRUCT), [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}], "2.1"),
    "list of structs": (pa.field("c", pa.list_(STRUCT)), [[{"x": 1, "y": {"z": "q"}}], None, []], "2.1"),
    "map": (pa.field("c", pa.map_(pa.string(), STRUCT)), [[("a", {"x": 1, "y": None})], None, []], "2.2"),
    "vector": (pa.field("c", pa.list_(pa.float32(), 2)), [[1.0, 2.0], None, [3.0, 4.0]], "2.0"),
    "dictionary": (pa.field("c", pa.dictionary(pa.int32(), pa.string())), ["a", None, "b"], "2.0"),
    "packed struct": (
        pa.field("c", pa.struct([("x", pa.int32()), ("y", pa.int64())]), metadata={"packed": "true"}),
        [{"x": 1, "y": 2}, {"x": 3, "y": 4}, {"x": 5, "y": 6}],
        "2.1",
    ),
    "JSON": (extension(pa.string(), "arrow.json"), ['{"a":1}', None, "2"], "2.2"),
    "UUID": (extension(pa.binary(16), "arrow.uuid"), [b"a" * 16, None, b"b" * 16], "2.0"),
}
BEFORE_2 = {"integer", "required", "text", "day"}
CASES = [
    pytest.param(field, values, version, id=f"{name} in {version}")
    for name, (field, values, first) in COLUMNS.items()
    for version in FILE_VERSIONS
    if (version >= first and version != "legacy") or (version == "legacy" and name in BEFORE_2)
]


def make_table(path: Path, columns: list[pa.Field], rows: pa.Table, version: Version) -> lance.LanceDataset:
    """A table of these columns whose field ids begin at 1."""
    schema = pa.schema([pa.field("gone", pa.int8()), *columns])
    first = pa.Table.from_arrays([pa.nulls(rows.num_rows, pa.int8()), *rows.columns], schema=schema)
    lance.write_dataset(first, path, data_storage_version=version).drop_columns(["gone"])
    return lance.dataset(path)


def target_of(dataset: lance.LanceDataset, batch: pa.Schema) -> FragmentTarget:
    """What the driver sends to the executors about this table."""
    manifest = Manifest.FromString(dataset._ds.serialized_manifest())
    fitting = fit(batch, dataset.schema)
    tops: dict[int, str] = {}
    for field in manifest.fields:
        tops[field.id] = field.name if field.parent_id == TOP else tops[field.parent_id]
    ids = tuple(field.id for field in manifest.fields if tops[field.id] in fitting.schema.names)
    return FragmentTarget(canonical(dataset.uri), fitting, ids, manifest.data_format.version)


def commit(dataset: lance.LanceDataset, written: list[DataFragment]) -> lance.LanceDataset:
    """Have pylance append the fragments."""
    metadata = []
    for fragment in written:
        form = MessageToDict(
            fragment, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        form |= {
            "id": 0,
            "physical_rows": int(form["physical_rows"]),
            "row_id_meta": None,
            "deletion_file": None,
        }
        for file in form["files"]:
            file["file_size_bytes"] = int(file["file_size_bytes"])
            file.setdefault("base_id", None)
        metadata.append(FragmentMetadata.from_json(json.dumps(form)))
    append = lance.LanceOperation.Append(metadata)
    return lance.LanceDataset.commit(dataset, append, read_version=dataset.version)


@pytest.mark.parametrize(("field", "values", "version"), CASES)
def test_pylance_commits_and_reads_back(
    tmp_path: Path, field: pa.Field, values: list[Any], version: Version
) -> None:
    key = pa.field("k", pa.int64())
    rows = pa.Table.from_arrays(
        [pa.array(values, field.type), pa.array([1, 2, 3])], schema=pa.schema([field, key])
    )
    dataset = make_table(tmp_path / "t", [field, key], rows, version)
    before = dataset.to_table()
    batch = pa.record_batch({"k": rows.column("k").combine_chunks(), "c": rows.column("c").combine_chunks()})
    written = list(write_fragments(target_of(dataset, batch.schema), [batch]))
    after = commit(dataset, written)
    after.validate()
    assert after.to_table().slice(3).combine_chunks().equals(before.combine_chunks())
    manifest = Manifest.FromString(after._ds.serialized_manifest())
    expected = expected_file_fields(list(manifest.fields), file_version(version))
    assert list(written[0].files[0].fields) == expected


def test_a_column_that_the_batch_has_not_got_is_null(tmp_path: Path) -> None:
    columns = [pa.field("a", pa.int64()), pa.field("s", STRUCT), pa.field("b", pa.string())]
    rows = pa.table({"a": [1], "s": [None], "b": ["x"]}, schema=pa.schema(columns))
    dataset = make_table(tmp_path / "t", columns, rows, "2.2")
    batch = pa.record_batch({"b": ["y"]})
    after = commit(dataset, list(write_fragments(target_of(dataset, batch.schema), [batch])))
    assert after.to_table().to_pylist()[1] == {"a": None, "s": None, "b": "y"}


@pytest.mark.parametrize("moment", ["begin", "complete", "rows"])
def test_an_interrupt_while_pylance_writes_is_an_interrupt(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an error about a folder or bucket, which is tried again."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        if moment == "rows":
            interrupted()

    batch = pa.record_batch({"k": [1, 2, 3]})
    dataset = make_table(tmp_path / "t", list(batch.schema), pa.Table.from_batches([batch]), "2.1")
    if moment != "rows":
        monkeypatch.setattr(NoopFragmentWriteProgress, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(write_fragments(target_of(dataset, batch.schema), batches()))


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12), st.integers(1, 200))
def test_files_end_at_their_limits_and_keep_all_rows_in_order(
    tmp_path: Path, sizes: list[int], max_rows: int, max_bytes: int
) -> None:
    table = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"n": pa.array([], pa.int64())}), table, mode="overwrite")
    numbers = iter(range(sum(sizes)))
    batches = [
        pa.record_batch({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes
    ]
    target = target_of(dataset, batches[0].schema if batches else dataset.schema)
    limited = FragmentTarget(
        target.uri,
        target.fitting,
        target.field_ids,
        "2.2",
        max_rows_per_file=max_rows,
        max_bytes_per_file=max_bytes,
    )
    written = list(write_fragments(limited, batches))
    assert sum(fragment.physical_rows for fragment in written) == sum(sizes)
    assert all(0 < fragment.physical_rows <= max_rows for fragment in written)
    # A file exceeds the limit of bytes only to the end of a batch.
    assert all(8 * (fragment.physical_rows - 9) < max_bytes for fragment in written)
    after = commit(dataset, written) if written else dataset
    assert after.to_table()["n"].to_pylist() == list(range(sum(sizes)))


def test_neither_reads_the_table_nor_leaves_unfinished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = lance.write_dataset(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "t")
    target = target_of(dataset, pa.schema([("n", pa.int32())]))
    (tmp_path / "t" / "_versions").rename(tmp_path / "elsewhere")
    synced: list[Path] = []
    fsync = os.fsync

    def noted(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink())
        fsync(number)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", noted)
        (written,) = write_fragments(target, [pa.record_batch({"n": pa.array([2], pa.int32())})])
    data = tmp_path / "t" / "data"
    assert synced == [data / written.files[0].path, data, data.parent]
    files = sorted(data.iterdir())

    def stops() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([2], pa.int32())})
        raise KeyError("the source broke")

    with pytest.raises(KeyError, match="the source broke"):
        list(write_fragments(target, stops()))
    wrong = FragmentTarget(target.uri, fit(pa.schema([("n", pa.int16())]), dataset.schema), (0,), "2.2")
    with pytest.raises(InvalidError, match="n: "):
        list(write_fragments(wrong, [pa.record_batch({"n": ["no number"]})]))
    assert sorted(data.iterdir()) == files


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("s3://lake/a/b%20c", "s3://lake/a/b%20c"),
        ("s3+ddb://lake/a?ddbTableName=commits", "s3://lake/a"),
        ("file:///lake/100%25", "/lake/100%"),
    ],
)
def test_pylance_is_given_the_place_of_the_files(uri: str, address: str) -> None:
    assert data_files._address(uri) == address


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.list_(pa.struct([("d", pa.decimal128(5, 2))]))])
def test_decimals_whose_buffers_start_at_any_8_bytes_are_written(tmp_path: Path, kind: pa.DataType) -> None:
    """As Spark sends them. pylance would panic."""
    values = [Decimal("-999.99"), Decimal("0.01")]
    data = pa.array(values, pa.decimal128(5, 2)).buffers()[1].to_pybytes()
    held = bytearray(64)
    memory = pa.py_buffer(held)
    start = (8 - memory.address) % 16
    held[start : start + len(data)] = data
    column = pa.Array.from_buffers(pa.decimal128(5, 2), 2, [None, memory.slice(start, len(data))])
    if kind != column.type:
        inner = pa.StructArray.from_arrays([column], ["d"])
        column = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), inner)
    rows = pa.record_batch([column], names=["c"])
    assert rows.schema.field("c").type == kind
    lance.write_dataset(rows.schema.empty_table(), str(tmp_path / "t"))
    target = FragmentTarget(canonical(tmp_path / "t"), fit(rows.schema, rows.schema), tuple(range(3)), "2.2")
    (fragment,) = write_fragments(target, [rows])
    assert fragment.physical_rows == len(column)
    assert target.fitting.apply(rows).to_pylist() == rows.to_pylist()
