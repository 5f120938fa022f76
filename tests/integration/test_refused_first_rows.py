"""A write whose first rows are refused leaves no table, in each door and format, and says what was wrong.

Promise: refused-rows-make-no-table (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold.cli import run
from lakefold_ingest.rows import row_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FORMATS = ("lance", "delta")
GOOD = pa.table({"id": [1], "v": ["a"]})
NO_TEXT = pa.table({"id": [1, 2], "v": pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())})
NULL = pa.table(
    {"id": [1, 2], "v": ["a", None]},
    pa.schema([("id", pa.int64()), pa.field("v", pa.string(), nullable=False)]),
)
MOMENT = pa.table({"id": [1], "v": pa.array([1], pa.timestamp("ns", "UTC"))})
REFUSED = {"no text": (NO_TEXT, FORMATS), "null": (NULL, FORMATS), "moment": (MOMENT, FORMATS[1:])}
CASES = [(name, kind) for name, (_, kinds) in REFUSED.items() for kind in kinds]


def in_format(options: lakefold.WriteOptions, kind: str) -> lakefold.WriteOptions:
    """The options of a write that creates a table of this format."""
    return {**options, "format": kind}


def log_words(options: lakefold.WriteOptions) -> list[str]:
    """The flags of a verb that uses the log."""
    names = ("bootstrap_servers", "transactions_topic", "outcomes_topic")
    return [f"--{name.replace('_', '-')}={options[name]}" for name in names]  # type: ignore[literal-required] # they are options


def as_stream(rows: pa.Table) -> pa.RecordBatchReader:
    """The rows one by one, with an empty batch before each."""
    none = rows.slice(0, 0).to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    parts = [[*none, *rows.slice(at, 1).to_batches()] for at in range(rows.num_rows)]
    return pa.RecordBatchReader.from_batches(rows.schema, (batch for part in parts for batch in part))


def by_writer(table: Path, rows: pa.Table, **options: Any) -> None:  # noqa: ANN401 - as `WriteOptions`
    with lakefold.Writer(table, **options) as writer:
        writer.append(rows).result()


def by_events(table: Path, rows: pa.Table, **options: Any) -> None:  # noqa: ANN401 - as `WriteOptions`
    events = rows.append_column("op", pa.array(["c"] * rows.num_rows))
    lakefold.apply_changes(table, events, keys="id", operation_column="op", **options)


DOORS: dict[str, Callable[..., object]] = {
    "append a table": lakefold.append,
    "append a stream": lambda table, rows, **options: lakefold.append(table, as_stream(rows), **options),
    "upsert": lambda table, rows, **options: lakefold.upsert(table, rows, keys="id", **options),
    "change events": by_events,
    "writer": by_writer,
}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_rows_that_no_new_table_takes_leave_none(
    options: lakefold.WriteOptions, tmp_path: Path, name: str, kind: str
) -> None:
    for number, (door, put) in enumerate(DOORS.items()):
        with pytest.raises(lakefold.InvalidError, match="v"):
            put(tmp_path / str(number), REFUSED[name][0], **in_format(options, kind))
        assert not (tmp_path / str(number)).exists(), door


def test_an_append_of_a_new_table_that_fits_goes_on_without_one_that_does_not(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    with (
        pytest.raises(lakefold.InvalidError, match="not UTF-8"),
        lakefold.Writer(tmp_path / "t", max_delay=5.0, **options) as writer,
    ):
        good, bad = writer.append(GOOD), writer.append(NO_TEXT)
    assert good.result().rows_added == 1
    assert bad.exception() is not None
    assert lakefold.open(tmp_path / "t").to_arrow() == GOOD


def failing(error: Exception, rows: pa.Table = GOOD) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()
        raise error

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "error", [lakefold.InvalidError("no row", where="file", hint="mend it"), KeyError("own"), OSError(5, "a")]
)
def test_the_error_of_a_stream_is_raised_as_it_is_and_leaves_no_table(
    options: lakefold.WriteOptions, tmp_path: Path, kind: str, error: Exception
) -> None:
    doors: list[Callable[[], object]] = [
        lambda: lakefold.append(tmp_path / "t", failing(error), **in_format(options, kind)),
        lambda: lakefold.upsert(tmp_path / "t", failing(error), keys="id", **in_format(options, kind)),
        lambda: by_writer(tmp_path / "t", failing(error), **in_format(options, kind)),
    ]
    for put in doors:
        with pytest.raises(type(error)) as caught:
            put()
        assert caught.value is error
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_what_comes_behind_the_first_rows_of_a_stream_leaves_the_table_with_its_columns(
    options: lakefold.WriteOptions, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_source, "AHEAD_BYTES", 1)
    with pytest.raises(KeyError, match="own"):
        lakefold.append(tmp_path / "t", failing(KeyError("own")), **in_format(options, kind))
    table = lakefold.open(tmp_path / "t")
    assert (table.schema.names, table.count_rows()) == (["id", "v"], 0)
    assert not [path for path in (tmp_path / "t").rglob("*") if path.suffix in {".lance", ".parquet"}]
    lakefold.append(tmp_path / "t", as_stream(pa.concat_tables([GOOD] * 3)), **options)
    assert lakefold.open(tmp_path / "t").count_rows() == 3


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_refused_behind_its_first_block_leaves_no_table(
    options: lakefold.WriteOptions, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    many = 1 + (1 << 20) // 8
    files = {
        "rows.jsonl": '{"a": 1}\n' * many + '{"a": 1, "b": 1}\n',
        "rows.csv": "a\n" + "1234567\n" * many + "x\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        words = ["append", str(tmp_path / "t"), str(tmp_path / name), "--format", kind, "--json"]
        assert run([*words, *log_words(options)]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["kind"], name in error["where"]) == ("InvalidError", True)
        assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_was_refused_is_refused_again(
    options: lakefold.WriteOptions, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers are none of a double, which the columns of a new table would be, and of another one are."""
    (tmp_path / "rows.csv").write_text("a\n12345678901234567891\n1\n")
    (tmp_path / "rows.jsonl").write_text('{"a": 12345678901234567891}\n')
    double = pa.table({"a": [0.5]})
    lakefold.append(tmp_path / "double", double, **in_format(options, kind))
    for name in ("rows.csv", "rows.jsonl"):
        for table in ("new", "new", "double"):
            words = ["append", str(tmp_path / table), str(tmp_path / name), "--format", kind, "--json"]
            assert run([*words, "--app-id=a", "--batch-id=1", *log_words(options)]) == 2
            error = json.loads(capsys.readouterr().out)["error"]
            assert error["kind"] == "InvalidError"
            assert "12345678901234567891 would be another one as a double" in error["message"]
            assert not (tmp_path / "new").exists()
    assert lakefold.open(tmp_path / "double").to_arrow() == double


UNTYPED: dict[str, str] = {
    "header.csv": "id,s\n",
    "nulls.csv": "id,s\n,\n,\n",
    "nulls.jsonl": '{"id": null, "s": null}\n',
    "inner.jsonl": '{"id": 1, "s": [[]]}\n{"id": 2, "s": null}\n',
    "field.jsonl": '{"id": 1, "s": {"x": null}}\n',
}


@pytest.mark.parametrize("kind", FORMATS)
def test_no_table_gets_columns_whose_types_are_not_known(
    options: lakefold.WriteOptions, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, log = str(tmp_path / "t"), log_words(options)
    for name, text in UNTYPED.items():
        (tmp_path / name).write_text(text)
        for verb, more in (("append", ["--format", kind]), ("upsert", ["--keys", "id"])):
            assert run([verb, table, str(tmp_path / name), *more, "--json", *log]) == 2, (verb, name)
            error = json.loads(capsys.readouterr().out)["error"]
            assert "have no type yet, only nulls" in error["message"], (verb, name)
            assert ("--merge-schema" if verb == "append" else "merge_schema") in error["hint"]
    frame = pa.table({"id": [1], "s": pa.nulls(1)})
    for put in DOORS.values():
        with pytest.raises(lakefold.InvalidError, match="no type yet, only nulls: s"):
            put(tmp_path / "t", frame, **in_format(options, kind))
    assert not (tmp_path / "t").exists()
    # What says the types is enough, in any file.
    (tmp_path / "rows.csv").write_text("id,s\n1,x\n")
    files = [str(tmp_path / name) for name in ("header.csv", "rows.csv")]
    assert run(["append", table, *files, "--format", kind, *log]) == 0
    assert run(["append", table, files[0], *log]) == 0
    assert lakefold.open(table).to_arrow().to_pylist() == [{"id": 1, "s": "x"}]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_columns_of_nulls_get_the_types_of_a_file(
    options: lakefold.WriteOptions, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another client has created the table."""
    lance.write_dataset(pa.table({"id": pa.nulls(1), "s": pa.nulls(1)}), tmp_path / "t")
    (tmp_path / name).write_text("id,s\n1,x\n" if name == "rows.csv" else '{"id": 1, "s": "x"}\n')
    words = ["append", str(tmp_path / "t"), str(tmp_path / name), "--json", *log_words(options)]
    assert run(words) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "s is string in the batch, and the table's column has no type yet" in error["message"]
    assert "--merge-schema" in error["hint"]
    assert run([*words, "--merge-schema"]) == 0
    assert run([*words]) == 0
    rows = lakefold.open(tmp_path / "t").to_arrow()
    assert rows.schema.types == [pa.int64(), pa.string()]
    assert rows.to_pylist() == [{"id": None, "s": None}, {"id": 1, "s": "x"}, {"id": 1, "s": "x"}]
