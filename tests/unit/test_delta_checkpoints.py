"""Checkpoints of each kind that Delta's specification names, made by hand; and broken ones."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefold_reader.delta.sidecars import NamedSidecars
from lakefold_table.delta.actions import file_columns
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.delta.actions.file_columns import FileColumns, FileGroup
from lakefold_table.delta.actions.table_actions import Sidecar
from lakefold_table.delta.checkpoints import parquet_actions as module
from lakefold_table.delta.checkpoints.parquet_actions import parquet_actions, parquet_file
from lakefold_table.delta.log_segment.names import FOLDER, SIDECARS, commit_path
from lakefold_table.delta.log_segment.segment import log_files
from lakefold_table.errors import DamagedError
from tests.delta_logs.actions import (
    CHECKPOINT,
    LISTED,
    PROTOCOL,
    TEXTS,
    UUID,
    Members,
    add,
    domain,
    metadata,
    parquet,
    remove,
    sidecar,
    snapshot_of,
    text,
    txn,
    vector,
)
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.table_actions import Action

VERSION = 4
CLASSIC = f"{FOLDER}/{VERSION:020}.checkpoint.parquet"
JSON = f"{FOLDER}/{VERSION:020}.checkpoint.{UUID}.json"
PARQUET = f"{FOLDER}/{VERSION:020}.checkpoint.{UUID}.parquet"
SIDE = ("016ae953-37a9-438e-8683-9a9a4a79a395.parquet", "3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet")
HEAD: Members = {"checkpointMetadata": {"version": VERSION, "tags": {}}}
TABLE = [LISTED, metadata(a="1"), txn("app", 7), domain("d", "{}"), domain("gone", removed=True)]
FILES = [
    add("b", vector("vector"), partitionValues={"p": "1"}, stats='{"numRecords":1}', tags={"t": "x"}),
    add("c", baseRowId=5),
    remove("a"),
    remove("b"),
]
NEXT = {commit_path(VERSION + 1): text([add("d"), remove("c")])}


def decoded(data: bytes, where: str = "") -> list[Action]:
    """Returns the actions of a Parquet file, those in groups as well."""
    actions: list[Action] = []
    for each in parquet_actions(data, where):
        actions.extend(each.files() if isinstance(each, FileGroup) else [each])
    return actions


def part(number: int, parts: int) -> str:
    return f"{FOLDER}/{VERSION:020}.checkpoint.{number:010}.{parts:010}.parquet"


def with_sidecars(path: str, write: Callable[[list[Members]], bytes]) -> dict[str, bytes]:
    sides = [parquet(FILES[:2]), parquet(FILES[2:])]
    named = [sidecar(name, data) for name, data in zip(SIDE, sides, strict=True)]
    stored = {f"{SIDECARS}/{name}": data for name, data in zip(SIDE, sides, strict=True)}
    return {path: write([HEAD, *TABLE, *named]), **stored}


KINDS: dict[str, Callable[[], dict[str, bytes]]] = {
    "classic": lambda: {CLASSIC: parquet([*TABLE, *FILES])},
    "classic that follows V2": lambda: {CLASSIC: parquet([HEAD, *TABLE, *FILES])},
    "classic with sidecars": lambda: with_sidecars(CLASSIC, parquet),
    "two parts": lambda: {part(1, 2): parquet([*TABLE, FILES[0]]), part(2, 2): parquet(FILES[1:])},
    "V2 as JSON": lambda: {JSON: text([HEAD, *TABLE, *FILES])},
    "V2 as Parquet": lambda: {PARQUET: parquet([HEAD, *TABLE, *FILES])},
    "V2 as JSON with sidecars": lambda: with_sidecars(JSON, text),
    "V2 as Parquet with sidecars": lambda: with_sidecars(PARQUET, parquet),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_checkpoint_is_the_same_table(kind: str) -> None:
    snapshot = snapshot_of({**KINDS[kind](), **NEXT})
    expected = snapshot_of({JSON: text([HEAD, *TABLE, *FILES]), **NEXT})
    assert snapshot == expected
    assert sorted(snapshot.files) == ["b", "d"]
    assert sorted(snapshot.tombstones) == [("a", ""), ("b", ""), ("c", "")]
    assert snapshot.files["b"].partition_values == {"p": "1"}
    assert snapshot.files["b"].tags == {"t": "x"}
    assert snapshot.files["b"].deletion_vector is not None
    assert snapshot.metadata.configuration == {"a": "1"}
    assert snapshot.apps["app"].version == 7
    assert list(snapshot.live_domains) == ["d"]


def test_a_sidecar_may_be_named_with_its_folder() -> None:
    files = with_sidecars(JSON, text)
    whole = files[JSON].replace(b'"path": "016', f'"path": "s3://b/t/{SIDECARS}/016'.encode())
    assert snapshot_of({**files, JSON: whole}) == snapshot_of(files)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({JSON: text([*TABLE, *FILES])}, "no checkpointMetadata"),
        ({JSON: text([HEAD, HEAD, *TABLE])}, "two checkpointMetadata"),
        ({JSON: text([{"checkpointMetadata": {"version": 3}}, *TABLE])}, "of version 3"),
        ({part(1, 1): parquet([HEAD, *TABLE])}, "in parts"),
        ({CLASSIC: parquet([*TABLE, sidecar(SIDE[0], b"")])}, "names sidecars"),
        ({JSON: text([HEAD, *TABLE, *FILES, sidecar(SIDE[0], b"")])}, "files of its own beside"),
        ({JSON: text([HEAD, *TABLE, sidecar("../x.parquet", b"")])}, "is not in"),
        ({JSON: text([HEAD, *TABLE, sidecar("s3://other/x.parquet", b"")])}, "is not in"),
        ({JSON: text([HEAD, *TABLE, sidecar("%2e%2e", b"")])}, "is not in"),
        ({JSON: text([HEAD, *TABLE, sidecar(SIDE[0], b"")])}, "is missing"),
        ({JSON: text([HEAD, *TABLE, add("a"), add("a", size=11)])}, "two add actions"),
        ({JSON: text([HEAD, *TABLE, remove("a"), add("a")])}, "both added and removed"),
        ({CLASSIC: parquet(FILES)}, "has no protocol action"),
    ],
)
def test_a_checkpoint_that_does_not_fit_together_is_damaged(files: dict[str, bytes], says: str) -> None:
    with pytest.raises(DamagedError, match=says):
        snapshot_of(files)


def test_a_sidecar_of_another_size_is_damaged() -> None:
    files = with_sidecars(JSON, text)
    files[f"{SIDECARS}/{SIDE[1]}"] += b"\n"
    with pytest.raises(DamagedError, match="its checkpoint says") as caught:
        snapshot_of(files)
    assert SIDE[1] in caught.value.where


def test_a_sidecar_holds_files_alone() -> None:
    data = parquet([*FILES, txn("app", 8)])
    files = {JSON: text([HEAD, *TABLE, sidecar(SIDE[0], data)]), f"{SIDECARS}/{SIDE[0]}": data}
    assert snapshot_of(files).apps["app"].version == 7


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_a_parquet_file_that_is_cut_off_is_damaged(cut: int) -> None:
    with pytest.raises(DamagedError, match="can't be read as Parquet"):
        snapshot_of({CLASSIC: parquet([*TABLE, *FILES])[:cut]})


def test_columns_of_another_type_are_damaged() -> None:
    table = pa.table({"add": [{"path": 1, "size": 1, "partitionValues": ["a"]}], "txn": ["text"]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    with pytest.raises(DamagedError, match="partitionValues must be a map"):
        decoded(bytes(sink.getvalue()), "checkpoint")


def test_files_are_the_same_by_columns_and_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet([*FILES, add("d", partitionValues={"p": None, "q": ""})])
    by_columns = decoded(data, "w")
    monkeypatch.setattr(module, "_files", lambda *_: None)
    assert decoded(data, "w") == by_columns
    assert len(by_columns) == len(FILES) + 1


def in_row_groups(*groups: Sequence[Members], statistics: bool = True) -> bytes:
    """A Parquet file with these actions in a row group each."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, CHECKPOINT, write_statistics=statistics) as writer:
        for actions in groups:
            writer.write_table(pq.read_table(pa.BufferReader(parquet(actions))))
    return bytes(sink.getvalue())


def test_columns_without_values_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[list[int], list[str]]] = []
    batches = pq.ParquetFile.iter_batches

    def recorded(
        file: pq.ParquetFile, size: int, *, row_groups: list[int], columns: list[str], use_threads: bool
    ) -> Iterator[pa.RecordBatch]:
        if use_threads:
            # Others only ask how much memory the texts of a column would take.
            read.append((row_groups, columns))
        yield from batches(file, size, row_groups=row_groups, columns=columns, use_threads=use_threads)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
    groups = [
        [txn("app", 7)],
        [add("a", stats="{}"), add("b", tags={})],
        [add("c", stats="{}")],
        [add("d", vector("v")), remove("e")],
    ]
    by_statistics = decoded(in_row_groups(*groups), "w")
    every = {"path", "size", "modificationTime", "dataChange", "partitionValues", "tags"}
    columns = [{name.removeprefix("add.") for name in names if "add" in name} for _, names in read]
    assert [numbers for numbers, _ in read] == [[0], [1, 2], [3]]
    assert columns == [set(), {*every, "stats"}, {*every, "deletionVector"}]
    assert [any(name.startswith("remove.") for name in names) for _, names in read] == [False, False, True]
    read.clear()
    whole = decoded(in_row_groups(*groups, statistics=False), "w")
    assert len(read) == 1
    assert sorted(whole, key=repr) == sorted(by_statistics, key=repr)
    assert {getattr(each, "path", ""): getattr(each, "tags", None) for each in whole} == {
        **dict.fromkeys(["", "a", "c", "d", "e"]),
        "b": {},
    }


@pytest.mark.parametrize("texts", [["{}", '{"numRecords":7}'], ["{}", None]])
def test_statistics_in_columns_are_read_if_a_file_lacks_them_as_json(texts: list[str | None]) -> None:
    members = {name: pa.array([each] * 2) for name, each in add("a")["add"].items()}
    members |= {"path": pa.array(["a", "b"]), "partitionValues": pa.array([[], []], TEXTS)}
    counts = pa.StructArray.from_arrays([pa.array([5, 5])], names=["numRecords"])
    members |= {"stats": pa.array(texts, pa.string()), "stats_parsed": counts}
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"add": pa.StructArray.from_arrays(list(members.values()), names=list(members))}), sink
    )
    stats = [getattr(each, "stats", None) for each in decoded(bytes(sink.getvalue()))]
    assert stats == ["{}", texts[1] or '{"numRecords":5}']


MANY = [
    add(
        f"p={number % 3}/file-{number}",
        vector(f"v{number}") if number % 5 == 0 else None,
        partitionValues={"p": str(number % 3) if number % 4 else None},
        size=number,
        **({"stats": json.dumps({"numRecords": number})} if number % 7 else {}),
    )
    for number in range(50)
]


def test_files_of_several_groups_are_those_of_the_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_columns, "GROUP", 8)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 20)
    parts = [parquet([*TABLE, *MANY[:30]]), parquet([*MANY[30:], remove("gone")])]
    made = snapshot_of({part(1, 2): parts[0], part(2, 2): parts[1], **NEXT})
    first = {commit_path(number): text([]) for number in range(1, VERSION + 1)}
    expected = snapshot_of({commit_path(0): text([*TABLE, *MANY, remove("gone")]), **first, **NEXT})
    asked = [f"p={number % 3}/file-{number}" for number in (49, 3, 19, 20, 3)]
    assert [made.files[path] for path in asked] == [expected.files[path] for path in asked]
    assert made.files[asked[0]] is made.files[asked[0]]
    assert made == expected
    assert list(made.files) == list(expected.files)
    assert made.size_bytes == sum(range(50)) + 10


def test_only_files_beside_one_that_is_asked_for_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(file_columns, "GROUP", 8)
    actions = FileColumns.files

    def counted(columns: FileColumns, start: int, paths: Sequence[str]) -> Iterator[AddFile]:
        made.extend(paths)
        return actions(columns, start, paths)

    monkeypatch.setattr(FileColumns, "files", counted)
    snapshot = snapshot_of({CLASSIC: parquet([*TABLE, *MANY]), **NEXT})
    assert len(snapshot.files) == len(MANY) + 1
    assert MANY[9]["add"]["path"] in snapshot.files
    assert made == []
    assert snapshot.files[MANY[9]["add"]["path"]].size == 9
    assert made == [each["add"]["path"] for each in MANY[8:16]]


@pytest.mark.parametrize("at", [0, 9, 49])
def test_a_file_that_is_listed_twice_has_to_be_the_same(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(file_columns, "GROUP", 8)
    again = parquet([*TABLE, *MANY, MANY[at]])
    made = snapshot_of({CLASSIC: again, **NEXT})
    assert len(made.files) == len(MANY) + 1
    assert made.size_bytes == sum(range(50)) + 10
    other = {"add": {**MANY[at]["add"], "size": 1000}}
    with pytest.raises(DamagedError, match="two add actions contradict each other"):
        snapshot_of({CLASSIC: parquet([*TABLE, *MANY, other]), **NEXT})
    parts = {part(1, 2): parquet([*TABLE, *MANY]), part(2, 2): parquet([other])}
    with pytest.raises(DamagedError, match="two add actions contradict each other"):
        snapshot_of({**parts, **NEXT})
    removed = remove(MANY[at]["add"]["path"], MANY[at]["add"].get("deletionVector"))
    with pytest.raises(DamagedError, match="both added and removed"):
        snapshot_of({CLASSIC: parquet([*TABLE, *MANY, removed]), **NEXT})


@pytest.mark.parametrize("member", ["stats", "path", "partitionValues"])
def test_a_text_that_is_not_utf8_is_damaged_when_the_table_is_opened(member: str) -> None:
    content: object = {"p": "MARK"} if member == "partitionValues" else "MARK"
    files = [*MANY, {"add": {**add("a", stats="{}")["add"], member: content}}]
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(parquet([*TABLE, *files]))), sink, compression="none")
    data = bytes(sink.getvalue())
    assert len(snapshot_of({CLASSIC: data, **NEXT}).files) == len(files) + 1
    with pytest.raises(DamagedError, match="can't be read as Parquet"):
        snapshot_of({CLASSIC: data.replace(b"MARK", b"\xff\xff\xff\xff"), **NEXT})


def test_a_struct_without_any_member_is_no_action() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"txn": [{"appId": None, "version": None}, txn("a", 1)["txn"]]}), sink)
    assert [type(each).__name__ for each in decoded(bytes(sink.getvalue()))] == ["AppTransaction"]


def test_a_file_that_would_take_far_more_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet([add(f"{number:0500}") for number in range(3000)])
    assert len(decoded(data)) == 3000
    monkeypatch.setattr(module, "SPARE_BYTES", 0)
    monkeypatch.setattr(module, "MOST_TIMES", 2)
    with pytest.raises(DamagedError, match="would take at least"):
        decoded(data)


def repeating(member: str, text: str, rows: int) -> bytes:
    """A checkpoint of many files that have the same text, which is stored once for all of them."""
    same = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    tags = pa.MapArray.from_arrays(list(range(rows + 1)), pa.array(["k"] * rows), same)
    given = {
        "path": pa.array([f"{number}" for number in range(rows)]),
        "partitionValues": pa.array([[]] * rows, TEXTS),
        "size": pa.array([1] * rows),
        "modificationTime": pa.array([1] * rows),
        "dataChange": pa.array([False] * rows),
        member: tags if member == "tags" else same,
    }
    sink = pa.BufferOutputStream()
    files = pa.StructArray.from_arrays(list(given.values()), names=list(given))
    pq.write_table(pa.table({"add": files}), sink, dictionary_pagesize_limit=1 << 30, write_statistics=False)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("member", ["stats", "tags"])
def test_a_text_that_is_stored_once_for_many_files_takes_no_memory_for_each(member: str) -> None:
    """A file of some kilobytes would take 400 MiB."""
    assert len(decoded(repeating(member, "x" * 1000, 400))) == 400
    data = repeating(member, "x" * (1 << 20), 400)
    with pytest.raises(DamagedError, match=r"would take at least 4[12]"):
        decoded(data)


def test_one_long_text_among_many_short_ones_is_read() -> None:
    texts = ["x" * (1 << 20), *(f"{number % 7}" for number in range(20_000))]
    sink = pa.BufferOutputStream()
    versions = pa.array([1] * len(texts))
    apps = pa.StructArray.from_arrays([pa.array(texts), versions], names=["appId", "version"])
    pq.write_table(pa.table({"txn": apps}), sink)
    assert len(decoded(bytes(sink.getvalue()))) == len(texts)


def test_statistics_that_are_columns_become_json() -> None:
    parsed = {
        "numRecords": 3,
        "minValues": {
            "i": 1,
            "f": float("nan"),
            "d": dt.date(2020, 1, 2),
            "t": dt.datetime(2020, 1, 2, 3, 4, 5, 678_900, tzinfo=dt.UTC),
            "n": dt.datetime(2020, 1, 2, 3, 4, 5),  # noqa: DTZ001 - a time without a zone
            "m": Decimal("1.50"),
            "s": {"deep": "x", "none": None},
            "b": b"\x00",
        },
    }
    members: dict[str, Any] = {**add("a")["add"], "partitionValues": [("p", "1")], "stats_parsed": parsed}
    sink = pa.BufferOutputStream()
    fields = [
        pa.field(name, TEXTS if name == "partitionValues" else pa.infer_type([content]))
        for name, content in members.items()
    ]
    pq.write_table(pa.Table.from_pylist([{"add": members}], pa.schema([("add", pa.struct(fields))])), sink)
    (action,) = decoded(bytes(sink.getvalue()))
    stats = getattr(action, "stats", None)
    assert stats is not None
    assert json.loads(stats) == {
        "numRecords": 3,
        "minValues": {
            "i": 1,
            "d": "2020-01-02",
            "t": "2020-01-02T03:04:05.678Z",
            "n": "2020-01-02T03:04:05.000",
            "m": 1.5,
            "s": {"deep": "x"},
        },
    }


@pytest.mark.parametrize("most", [pa.scalar(3_000_000, pa.date32()), pa.scalar(2**62, pa.timestamp("us"))])
def test_statistics_with_times_that_python_lacks_are_left_out(most: pa.Scalar) -> None:
    members = {name: pa.array([each]) for name, each in add("a")["add"].items() if name != "partitionValues"}
    members["partitionValues"] = pa.array([[("p", "1")]], TEXTS)
    bounds = pa.StructArray.from_arrays([pa.repeat(most, 1)], names=["d"])
    members["stats_parsed"] = pa.StructArray.from_arrays([bounds], names=["maxValues"])
    actions = pa.StructArray.from_arrays(list(members.values()), names=list(members))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": actions}), sink)
    (action,) = decoded(bytes(sink.getvalue()))
    assert getattr(action, "path", "") == "a"
    assert getattr(action, "stats", "") is None


class Counting(MemoryStorage):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__("memory://t")
        self.read: list[int] = []

    def get_range(self, path: str, start: int, length: int) -> bytes:
        self.read.append(length)
        return super().get_range(path, start, length)


@pytest.mark.parametrize("sidecars", [[], [Sidecar("s.parquet", 1, 1)]])
def test_of_a_classic_checkpoint_only_what_names_sidecars_is_read_once(sidecars: list[Sidecar]) -> None:
    names = (hashlib.shake_128(bytes([number])).hexdigest(2_000) for number in range(200))
    adds = [AddFile(name, {}, 1, 1, data_change=True) for name in names]
    data = parquet_file({"add": adds, **({"sidecar": sidecars} if sidecars else {})})
    storage = Counting()
    storage.put(CLASSIC, [data])
    source = cast("Source", SimpleNamespace(storage=storage, uri=storage.uri))
    named = NamedSidecars(source)
    (file,) = log_files([CLASSIC.removeprefix(f"{FOLDER}/")])
    for _ in range(2):
        assert named.of([file]) == {f"{SIDECARS}/{each.path}" for each in sidecars}
    assert 0 < sum(storage.read) < 100_000 < len(data)
    storage.delete(CLASSIC)
    assert (
        NamedSidecars(cast("Source", SimpleNamespace(storage=storage, uri=storage.uri))).of([file]) == set()
    )


def test_unknown_columns_are_passed_over() -> None:
    schema = CHECKPOINT.append(pa.field("future", pa.struct([("a", pa.int64())])))
    data = parquet([PROTOCOL, metadata(), {"future": {"a": 1}}], schema)
    assert snapshot_of({CLASSIC: data}).protocol.writer == 2
