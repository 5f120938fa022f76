"""Rows come from files by their names, and from any table with an Arrow stream."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped] # it has no types of its own
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from lakefold.writing.files import FORMATS, file_rows, messages_or_rows
from lakefold.writing.options import WriteOptions, batch_key, write_settings
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = pa.table({"id": pa.array([1, 2], pa.int32()), "s": ["a", None]})


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as file:
        file.write_table(TABLE)


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as file:
        file.write_table(TABLE)


def write_json_lines(path: Path) -> None:
    path.write_text('{"id": 1, "s": "a"}\n{"id": 2, "s": null}\n')


WRITERS: dict[str, Callable[[Path], None]] = {
    ".arrow": write_arrow,
    ".arrows": write_stream,
    ".parquet": lambda path: pq.write_table(TABLE, path),
    ".csv": lambda path: pyarrow.csv.write_csv(TABLE, path),
    ".jsonl": write_json_lines,
}


@pytest.mark.parametrize(
    "item", [pa.float32(), pa.date32(), pa.int64(), pa.dictionary(pa.int32(), pa.string())]
)
@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_, lambda kind: pa.struct({"s": kind})])
def test_fields_of_structs_that_the_table_lacks_are_kept(
    item: pa.DataType, wrap: Callable[[pa.DataType], pa.DataType], tmp_path: Path
) -> None:
    """So that they are refused by name, or added: a cast would drop them without a word."""
    table = pa.schema({"place": wrap(pa.struct({"a": pa.int64(), "b": item}))})
    value: object = {"a": 1, "city": "Hamm", "height": 1.5}
    value = [value] if wrap is pa.list_ else value if wrap(item) == item else {"s": value}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"place": value}) + "\n")
    (row,) = file_rows([path], table).read_all().to_pylist()
    kept = row["place"][0] if wrap is pa.list_ else row["place"].get("s", row["place"])
    assert kept == {"a": 1, "b": None, "city": "Hamm", "height": 1.5}


@pytest.mark.parametrize("ending", WRITERS)
def test_each_format_is_read_with_the_types_of_the_table(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{ending}"
    WRITERS[ending](path)
    rows = file_rows([path], TABLE.schema).read_all()
    assert rows.schema == TABLE.schema
    if ending == ".csv":
        # An empty field of CSV that is not quoted is null.
        assert rows["s"].to_pylist() == ["a", None]
    assert rows.equals(TABLE)


def test_only_an_empty_text_of_csv_is_null(tmp_path: Path) -> None:
    texts = ["NA", "null", "nan", "N/A"]
    path = tmp_path / "countries.csv"
    path.write_text("id,s,t\n" + "".join(f'{text},{text},"{text}"\n' for text in texts) + ",,\n")
    text = pa.dictionary(pa.int32(), pa.string())
    table = pa.schema([("id", pa.int64()), ("s", pa.string()), ("t", text)])
    rows = file_rows([path], table).read_all()
    assert rows.schema == table
    assert rows.to_pydict() == {"id": [None] * 5, "s": [*texts, None], "t": [*texts, None]}


@pytest.mark.parametrize(
    "text", ["null", 'null\n{"v": 1}\n', '{"v": 1}\n\n null\n', '{"v": 1} null\n{"v": 2}']
)
def test_a_line_of_json_that_is_null_is_no_row(text: str, tmp_path: Path) -> None:
    """Arrow crashes if it is the first."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidError, match=r"rows\.jsonl: line \d is null"):
        file_rows([path], None)


def test_a_null_inside_of_a_row_of_json_is_one(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.jsonl", [{"v": [{"a": 1}, None], "s": "} null"}, {"v": None, "s": None}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert file_rows([path], None).read_all().to_pylist() == rows


@pytest.mark.parametrize(
    "values",
    [
        [[None, 1], [2]],
        [[None, None, {"a": 1}], None],
        [{"x": [None, "s"]}, {"x": [None]}],
        [[[None, 1]], [[None], [2, None]]],
        [[], [None, True]],
    ],
    ids=str,
)
def test_a_list_of_json_keeps_the_nulls_at_its_beginning(values: list[object], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"v": value}) for value in values))
    rows = file_rows([path], None).read_all()
    rows.validate(full=True)
    assert rows["v"].to_pylist() == values


DAY = dt.date(2026, 2, 3)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.date32(), '"2026-02-03"', DAY),
        (pa.date32(), "5", dt.date(1970, 1, 6)),
        (pa.date64(), '"2026-02-03"', DAY),
        (pa.struct({"d": pa.date32(), "x": pa.float32()}), '{"d": "2026-02-03"}', {"d": DAY, "x": None}),
        (pa.list_(pa.date32()), '[null, "2026-02-03"]', [None, DAY]),
        (pa.large_list(pa.date32()), '["2026-02-03"]', [DAY]),
        (pa.list_(pa.float32(), 2), "[0.5, 1]", [0.5, 1.0]),
        (pa.dictionary(pa.int32(), pa.string()), '"a"', "a"),
        (pa.binary(2), '"hi"', b"hi"),
        (pa.duration("us"), "5", dt.timedelta(microseconds=5)),
        (pa.json_(), '"[1]"', "[1]"),
        (pa.time64("us"), "5", dt.time(microsecond=5)),
    ],
    ids=str,
)
def test_values_of_json_are_read_in_the_types_of_the_table(
    kind: pa.DataType, text: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"v": {text}}}\n{{"v": null}}\n')
    rows = file_rows([path], pa.schema({"v": kind})).read_all()
    assert rows.schema.field("v").type == kind
    assert rows["v"].to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.time64("us"), '"12:34:56"'),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1}'),
        (pa.uuid(), '"123e4567-e89b-12d3-a456-426614174000"'),
    ],
    ids=str,
)
def test_values_that_are_not_read_from_json_are_named(kind: pa.DataType, text: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"v": {text}}}\n')
    with pytest.raises(InvalidError, match=r"column v: values of .* are not read from JSON lines \(give"):
        file_rows([path], pa.schema({"v": kind}))


def test_files_follow_each_other_and_a_column_that_one_lacks_is_null(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.PARQUET"
    pq.write_table(TABLE, first)
    pq.write_table(pa.table({"id": pa.array([3], pa.int64()), "more": [True]}), second)
    rows = file_rows([first, second], None).read_all()
    assert rows.schema == pa.schema([("id", pa.int64()), ("s", pa.string()), ("more", pa.bool_())])
    assert rows.to_pydict() == {"id": [1, 2, 3], "s": ["a", None, None], "more": [None, None, True]}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.txt", b"1", "format of this file is not known"),
        ("rows.parquet", b"1", "can't be read"),
        ("rows.arrow", b"1", "can't be read"),
        ("rows.jsonl", b'{"id":', "can't be read"),
        ("rows.csv", b"id\n1\nx\n", "can't be read"),
        ("rows.csv", b"id,\xe9\n1,2\n", "can't be read"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidError, match=reason) as caught:
        file_rows([path], TABLE.schema).read_all()
    assert caught.value.where == str(path)


def test_files_of_different_types_are_refused_together(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(TABLE, paths[0])
    pq.write_table(pa.table({"id": ["x"]}), paths[1])
    with pytest.raises(InvalidError, match=r"different types.*id"):
        file_rows(paths, None)
    assert set(WRITERS) < set(FORMATS)


def test_rows_of_other_libraries_are_read_as_often_as_needed() -> None:
    import duckdb

    plain = {"id": [1, 2], "s": ["a", "b"]}
    table = pa.table(plain)
    for rows in (table, table.to_batches()[0], pl.DataFrame(plain), pd.DataFrame(plain)):
        source = RowSource(rows)
        assert source.is_repeatable
        assert append_source(source).attempts == 5
        assert [batch.to_pydict() for batch in source.batches()] == [plain]
        assert [batch.to_pydict() for batch in source.batches()] == [plain]
    relation = duckdb.connect().sql("select 1 as id union all select 2 order by id")
    source = RowSource(relation)
    assert [batch.to_pydict() for batch in source.batches()] == [{"id": [1, 2]}]


def test_a_stream_is_read_once_and_never_treated_as_an_empty_one() -> None:
    stream = RowSource(pa.table({"id": [1, 2]}).to_reader())
    assert not stream.is_repeatable

    class Once:
        """A stream of another library, which shows nothing the second time."""

        def __init__(self) -> None:
            self.numbers = [1, 2]

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            rows, self.numbers = pa.table({"id": pa.array(self.numbers, pa.int64())}), []
            return rows.__arrow_c_stream__(requested_schema)

    source = RowSource(Once())
    assert sum(batch.num_rows for batch in source.batches()) == 2
    with pytest.raises(InvalidError, match="were 0 instead of 2"):
        list(source.batches())
    with pytest.raises(InvalidError, match="type list have no Arrow stream") as caught:
        RowSource([1])  # type: ignore[arg-type] # what a user may pass
    assert "from_pylist" in caught.value.hint


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"a\0b": [1]}),
        pa.table({"a": [{"\0": 1}]}),
        pa.table({"a": [[{"b\0": 1}]]}),
        pa.table(
            {"a": pa.array([[("k", {"b\0": 1})]], pa.map_(pa.string(), pa.struct([("b\0", pa.int64())])))}
        ),
    ],
    ids=["column", "field", "list", "map"],
)
def test_a_name_with_the_character_that_ends_names_is_refused(rows: pa.Table) -> None:
    """Arrow's C interface, by which rows get into files, cuts it there."""
    with pytest.raises(InvalidError, match="can't contain the character NUL"):
        RowSource(rows)


def test_the_index_of_a_pandas_frame_is_a_column_if_it_has_a_name() -> None:
    """A frame that was filtered has the numbers of its rows as an index, which no user wants in a table."""
    frame = pd.DataFrame({"id": [1, 2], "s": ["a", "b"]})
    filtered = RowSource(frame[frame["id"] > 1])
    assert filtered.schema.names == ["id", "s"]
    assert filtered.is_repeatable
    assert [filtered.table().to_pydict() for _ in range(2)] == [{"id": [2], "s": ["b"]}] * 2
    assert RowSource(frame.set_index("s")).schema.names == ["id", "s"]
    levels = frame.set_index(["s", pd.Index([7, 8])])
    assert RowSource(levels).schema.names == ["id", "s"]
    own = pd.DataFrame({"id": [1, 2], "__index_level_0__": [3, 4]})
    assert RowSource(own).schema.names == ["id", "__index_level_0__"]

    class Frame(pd.DataFrame):  # type: ignore[misc] # pandas has no types
        """As other libraries derive one."""

    assert RowSource(Frame(frame[frame["id"] > 1])).schema.names == ["id", "s"]


def test_a_key_is_whole_and_an_option_is_known(tmp_path: Path) -> None:
    assert batch_key("app", 0).uuid("t") == batch_key("app", 0).uuid("t")
    assert batch_key(None, None).uuid("t") != batch_key(None, None).uuid("t")
    with pytest.raises(InvalidError, match="key together") as caught:
        batch_key("app", None)
    assert caught.value.where == "batch_id"
    with pytest.raises(InvalidError, match="no option 'time_out'") as caught:
        write_settings(tmp_path / "t", {"time_out": 3})  # type: ignore[typeddict-unknown-key] # a user's mistake
    assert "timeout" in caught.value.hint
    options = WriteOptions(bootstrap_servers="localhost:1", timeout=3, kafka={"linger.ms": "5"}, wait="log")
    settings = write_settings(tmp_path / "t", options)
    assert (settings.timeout_s, settings.wait, settings.kafka.options) == (3, "log", {"linger.ms": "5"})
    assert settings.table == (tmp_path / "t").as_uri()
    wrong: list[WriteOptions] = [{"timeout": float("nan")}, {"timeout": 1e10}, {"max_lag": float("nan")}]
    for given in [*wrong, WriteOptions(max_rows_per_file=2**63), WriteOptions(max_bytes_per_file=0)]:
        with pytest.raises(InvalidError, match="is not above 0") as caught:
            write_settings(tmp_path / "t", {**options, **given})
        assert [caught.value.where] == list(given)
    with pytest.raises(InvalidError, match="not a value of wait"):
        write_settings(tmp_path / "t", {**options, "wait": "never"})  # type: ignore[typeddict-item] # a user's mistake


def test_views_become_plain_texts_and_bytes_at_any_depth() -> None:
    """Texts of polars are views, and few of Arrow's functions take them."""
    view = pa.string_view()
    frame = pl.DataFrame(
        {"s": ["a", None], "l": [["x"], []], "c": pl.Series(["u", "u"], dtype=pl.Categorical)}
    )
    kinds = RowSource(frame).schema.types
    assert kinds == [pa.string(), pa.large_list(pa.string()), pa.dictionary(pa.uint32(), pa.string())]
    nested = pa.struct([("m", pa.map_(view, pa.binary_view())), ("f", pa.list_(view, 1))])
    rows = pa.table({"n": pa.array([{"m": [("a", b"b")], "f": ["c"]}, None], nested)})
    read = RowSource(rows).table()
    assert read.schema.field("n").type == pa.struct(
        [("m", pa.map_(pa.string(), pa.binary())), ("f", pa.list_(pa.string(), 1))]
    )
    assert read.to_pylist() == rows.to_pylist()
    assert RowSource(TABLE).table().equals(TABLE, check_metadata=True)


@pytest.mark.parametrize("kind", [pa.list_view(pa.string_view()), pa.large_list_view(pa.int64())])
def test_views_of_lists_are_refused_by_their_column(kind: pa.DataType) -> None:
    """Arrow's cast to lists loses values of them."""
    source = RowSource(
        pa.table({"c": pa.array([[], None], kind), "t": pa.array(["a", None], pa.string_view())})
    )
    assert source.table().to_pylist() == [{"c": [], "t": "a"}, {"c": None, "t": None}]
    columns = pa.schema([("c", pa.list_(pa.string())), ("t", pa.string())])
    with pytest.raises(InvalidError, match=r"c is (large_)?list_view"):
        fit(source.schema, columns, "table")


def test_messages_are_lines_and_null_is_a_tombstone(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(' {"op": "d"}\n\nnull\n "null"\n')
    settings = write_settings(str(tmp_path / "t"), {"bootstrap_servers": "127.0.0.1:1"})
    read = messages_or_rows(settings, [path], are_messages=True)
    assert read["value"].to_pylist() == [b'{"op": "d"}', None, b'"null"']


LATE = {"name": "x", "ä": 5, 'q"': 1.5, "place": {"x": 1}, "list": [None, 2], "empty": None, "name2": True}
LATE_TYPES = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "ä": pa.int16(),
        'q"': pa.float32(),
        "place": pa.struct({"x": pa.int8(), "y": pa.string()}),
        "list": pa.list_(pa.int32()),
        "empty": pa.string(),
        "name2": pa.bool_(),
        "pad": pa.string(),
        "inner": pa.int64(),
        "lacking": pa.int64(),
    }
)
PADDING = {"id": 1, "pad": '"name": "lacking": ', "deep": {"inner": 5}}


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("end", ["", "\n"])
def test_columns_of_the_table_may_come_late_in_json_lines(
    tmp_path: Path, end: str, *, ascii_only: bool
) -> None:
    lines = [json.dumps(PADDING)] * (1 + (1 << 20) // 40)
    # Each column comes in a line of its own, then all together.
    rows = [PADDING | {name: value} for name, value in LATE.items()] + [PADDING | LATE]
    lines += [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    table = file_rows([path], LATE_TYPES).read_all()
    # What no line has is not null but lacking, so an upsert leaves it as it is.
    assert set(table.column_names) == {"id", "pad", "deep", *LATE}
    for name in LATE:
        assert table.schema.field(name).type == LATE_TYPES.field(name).type
    last = pa.Table.from_pylist([LATE], schema=pa.schema([LATE_TYPES.field(name) for name in LATE]))
    assert table.select(list(LATE)).slice(table.num_rows - 1).to_pylist() == last.to_pylist()
    assert sum(table[name].drop_null().length() for name in LATE) == 2 * (len(LATE) - 1)


def test_a_late_column_of_no_table_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for late, first in (({"late": 1}, {}), ({"late": 1}, {"late": None})):
        path.write_text(f"{json.dumps(PADDING | first)}\n" * 30_000 + json.dumps(PADDING | late))
        with pytest.raises(InvalidError, match="the file can't be read") as refused:
            file_rows([path], None).read_all()
        assert "first MiB" in str(refused.value.hint)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_in_csv_is_a_number_where_the_table_has_floats(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,n\nNaN,1\n1.5,2\n-nan,3\nNA,4\n")
    table = pa.schema([("x", kind), ("n", pa.int64())])
    values = file_rows([path], table).read_all()["x"].to_pylist()
    assert [str(value) for value in values] == ["nan", "1.5", "nan", "None"]
