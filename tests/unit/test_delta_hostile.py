"""Proposals and logs of Delta tables that no honest client writes: each ends in an error that says so."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
import tracemalloc
from subprocess import run
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_reader.delta.new_files.file_paths import prefix_length
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.json_text import MOST_BYTES, MOST_DEPTH
from lakefold_table.delta.log_segment.names import FOLDER, LAST_CHECKPOINT, checksum_path, commit_path
from lakefold_table.delta.state import decode_state
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError
from tests.delta_logs.actions import (
    LISTED,
    PROTOCOL,
    VECTORS,
    Members,
    add,
    data_file,
    domain,
    metadata,
    protocol_with,
    remove,
    snapshot_in,
    text,
)
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_metadata_changes import column, schema
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.entry import Result


FEED = {"delta.enableChangeDataFeed": "true"}


class Attacked:
    """A table of one row, to which proposals are sent one by one."""

    def __init__(self, path: Path, protocol: Members, **configuration: str) -> None:
        self.table = Table(path)
        self.logs = 0
        properties = {**configuration, **(VECTORS if protocol is LISTED else {})}
        assert self.fold(text([protocol, metadata(**properties)])) == [Committed(0)]
        assert len(self.fold(text([data_file(path, "a.parquet", 1)]))) == 1

    def fold(self, actions: bytes, read: int | None = None) -> list[Result]:
        envelope = self.table.propose(read=read)
        envelope.delta.actions = actions
        self.logs += 1
        return self.table.fold(envelope, log=log_id(self.logs))

    def refused(self, *actions: Members, read: int | None = None) -> str:
        """The reason why a proposal is invalid. The table must be as before, and go on."""
        (result,) = self.fold(text(actions), read)
        assert isinstance(result, Invalid)
        assert result.hint
        assert self.rows() == [1]
        return result.message

    def rows(self) -> list[int]:
        table = pa.table(lakefold.open(str(self.table.path)).to_arrow())
        return sorted(table["x"].to_pylist())

    def commit(self, version: int, content: bytes) -> None:
        """Writes a commit as another client."""
        (self.table.path / "_delta_log" / f"{version:020}.json").write_bytes(content)


@pytest.fixture
def attacked(tmp_path: Path) -> Attacked:
    return Attacked(tmp_path / "t", PROTOCOL)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../b.parquet", "leads out of its folder"),
        ("c/../../b.parquet", "leads out of its folder"),
        ("%2e%2e/b.parquet", "leads out of its folder"),
        ("c%2F..%2F..%2Fb.parquet", "leads out of its folder"),
        ("/etc/passwd", "not below the table's root"),
        ("file:///etc/passwd", "not below the table's root"),
        ("s3://other/b.parquet", "not below the table's root"),
        ("FILE:/etc/passwd", "not below the table's root"),
        ("_delta_log/00000000000000000000.json", "begins with '_'"),
        ("%5Fdelta_log/b.parquet", "not the only way"),
        (".hidden/b.parquet", "begins with '.'"),
        ("./a.parquet", "not the only way"),
        ("c//b.parquet", "not the only way"),
        ("%61.parquet", "not the only way"),
        ("c%2Fb.parquet", "not the only way"),
        ("x%c3%A9.parquet", "not the only way"),
        ("c/_d/b.parquet", "begins with '_'"),
        ("a b.parquet", "has ' ', which is no character of a URI"),
        ("a?b.parquet", "has '?', which is no"),
        ("a#b.parquet", "has '#', which is no"),
        ("a[b.parquet", "has '[', which is no"),
        ("a\\b.parquet", "has '\\\\', which is no"),
        ("a\tb.parquet", "has '\\t', which is no"),
        ("a\u00a0b.parquet", "has '\\xa0', which is no"),
        ("b%00.parquet", "not a path of a file"),
        ("b%zz.parquet", "not percent-encoded"),
        ("b%ff.parquet", "not percent-encoded"),
        ("", "not a path of a file"),
        ("b" * 5_000, "the file 'bbb"),
    ],
)
def test_paths_that_leave_the_table_or_hide_are_invalid(attacked: Attacked, path: str, says: str) -> None:
    assert says in attacked.refused(add(path))


@pytest.mark.parametrize("path", [LAST_CHECKPOINT, "_lakefold/a", ".a", "c/_delta_log/a", "_change_data/_a"])
def test_change_files_are_no_files_that_are_hidden(tmp_path: Path, path: str) -> None:
    attacked = Attacked(tmp_path / "t", protocol_with("changeDataFeed"), **FEED)
    attacked.table.path.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
    attacked.table.path.joinpath(path).write_bytes(b"1234567890")
    change = {"cdc": {"path": path, "partitionValues": {}, "size": 10, "dataChange": False}}
    says = attacked.refused(data_file(attacked.table.path, "b.parquet", 2), change)
    assert "has a part that begins with" in says


@pytest.mark.parametrize("is_absolute", [False, True])
def test_files_of_others_lose_rows_however_their_paths_are_written(
    tmp_path: Path, *, is_absolute: bool
) -> None:
    attacked = Attacked(tmp_path / "t", LISTED)
    path = "_d/b c.parquet"
    theirs = data_file(attacked.table.path, path, 2, 3)
    if is_absolute:
        path = theirs["add"]["path"] = (attacked.table.path / path).as_uri()
    attacked.commit(2, text([theirs]))
    rows = Bitmap([0])
    without = {"add": {**theirs["add"], "deletionVector": members_of(inline_vector({0: rows}))}}
    (result,) = attacked.fold(text([remove(path), without]), read=2)
    assert isinstance(result, Committed), result
    assert attacked.rows() == [1, 3]


def test_names_that_are_encoded_are_files_of_the_table(tmp_path: Path) -> None:
    attacked = Attacked(tmp_path / "t", PROTOCOL)
    named = data_file(tmp_path / "t", "p=a b/x é%+#.parquet", 2)
    named["add"]["path"] = "p=a%20b/x%20%C3%A9%25+%23.parquet"
    (result,) = attacked.fold(text([named]))
    assert isinstance(result, Committed)
    assert attacked.rows() == [1, 2]
    theirs = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    assert sorted(theirs["x"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("member", ["extra", "tags", "partitionValues"])
@pytest.mark.parametrize("depth", [MOST_DEPTH, 600, 900, 950, 20_000])
def test_nesting_is_refused_before_it_ends_the_fold(attacked: Attacked, member: str, depth: int) -> None:
    file = json.dumps(add("a.parquet"))
    nested = f'{file[:-2]}, "{member}": {"[" * depth}{"]" * depth}}}}}\n'
    (result,) = attacked.fold(nested.encode())
    assert isinstance(result, Invalid)
    assert "nested too deeply" in result.message
    assert attacked.rows() == [1]


@pytest.mark.parametrize("number", ["1e999", "-1E+400", "9" * 400 + ".0"])
@pytest.mark.parametrize("member", ["extra", "deletionVector"])
def test_a_number_that_can_not_be_written_again_is_invalid(
    attacked: Attacked, member: str, number: str
) -> None:
    file = json.dumps(data_file(attacked.table.path, "b.parquet", 2))
    (result,) = attacked.fold(f'{file[:-2]}, "{member}": {{"x": [{number}]}}}}}}\n'.encode())
    assert isinstance(result, Invalid)
    assert "is too large a number" in result.message
    assert attacked.rows() == [1]


def test_what_is_nested_less_is_carried_into_the_commit(attacked: Attacked) -> None:
    depth = MOST_DEPTH - 2
    file = json.dumps(data_file(attacked.table.path, "b.parquet", 2))
    nested = f'{file[:-2]}, "extra": {"[" * depth}{"]" * depth}}}}}\n'
    (result,) = attacked.fold(nested.encode())
    assert isinstance(result, Committed)
    assert attacked.rows() == [1, 2]


def test_an_action_of_many_megabytes_is_invalid(attacked: Attacked) -> None:
    assert "more than" in attacked.refused(add("b.parquet", stats="x" * MOST_BYTES))


def test_an_action_that_gets_many_megabytes_when_it_is_written_again_is_invalid(attacked: Attacked) -> None:
    """1e15 is 1000000000000000.0 then."""
    file = json.dumps(data_file(attacked.table.path, "b.parquet", 2))
    numbers = ",".join(["1e15"] * (MOST_BYTES // 18))
    (result,) = attacked.fold(f'{file[:-2]}, "extra": [{numbers}]}}}}\n'.encode())
    assert isinstance(result, Invalid)
    assert "an action would have" in result.message
    assert attacked.rows() == [1]


def test_statistics_that_are_hostile_are_invalid(attacked: Attacked) -> None:
    deep = "[" * 900 + "]" * 900
    numbers = (deep, "-1", "1e999", "1.5", "1.0", "true", '"1"', "9" * 30)
    for stats in (*(f'{{"numRecords": {number}}}' for number in numbers), "[]"):
        assert "statistics" in attacked.refused(add("a.parquet", stats=stats))
    assert "UTF-8" in attacked.refused(add("a.parquet", stats="\ud800"))


def test_nulls_are_not_more_than_rows(attacked: Attacked) -> None:
    new = data_file(attacked.table.path, "b.parquet", 2)
    new["add"]["stats"] = '{"numRecords": 1, "nullCount": {"x": 2}}'
    assert "as many nulls in the column 'x'" in attacked.refused(new)
    new["add"]["stats"] = '{"numRecords": 1, "nullCount": {"x": 1}}'
    assert isinstance(attacked.fold(text([new]))[0], Committed)


@pytest.mark.parametrize("cardinality", [2, -1])
def test_no_more_rows_are_deleted_than_there_are(tmp_path: Path, cardinality: int) -> None:
    """Also if the vector can't be read."""
    attacked = Attacked(tmp_path / "t", LISTED)
    vector = {"storageType": "p", "pathOrInlineDv": "s3://other/v.bin", "offset": 1, "sizeInBytes": 40}
    file = add("a.parquet", {**vector, "cardinality": cardinality}, stats='{"numRecords":1}')
    says = attacked.refused(remove("a.parquet"), file, read=1)
    assert f"deletes {cardinality} rows, numRecords is 1" in says


@pytest.mark.parametrize("uri", ["/etc/passwd", "file:///etc/passwd", "s3://other/vector.bin"])
def test_vectors_elsewhere_are_never_read(tmp_path: Path, uri: str) -> None:
    attacked = Attacked(tmp_path / "t", LISTED)
    vector = {"storageType": "p", "pathOrInlineDv": uri, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    size = (tmp_path / "t" / "a.parquet").stat().st_size
    lying = add("a.parquet", vector, size=size, stats='{"numRecords": 1}')
    assert "named by an absolute path" in attacked.refused(remove("a.parquet"), lying, read=1)
    # The refusal was recorded by a version, which changes no file.
    attacked.commit(attacked.logs, text([remove("a.parquet"), lying]))
    with pytest.raises(LakefoldError, match="outside of the table"):
        attacked.rows()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"add": ' + b"[" * 20_000, "nested too deeply"),
        (b'{"add": {"path": "b"', "cut off"),
        (b"\x00\x01\x02", "not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"commitInfo": {"x": "' + b"y" * (MOST_BYTES + 1) + b'"}}', "more than"),
        (text([add("b"), remove("b")]), "both added and removed"),
        (text([add("b"), add("b", size=11)]), "contradict"),
        (b'{"add": {"path": "b"}}', "is missing"),
        (b'{"add": {"path": "b"}, "remove": {"path": "b"}}', "several actions"),
    ],
)
def test_a_commit_that_is_damaged_stops_its_table_with_its_name(
    attacked: Attacked, content: bytes, says: str
) -> None:
    attacked.commit(2, content)
    with pytest.raises(DamagedError, match=says) as caught:
        attacked.fold(text([data_file(attacked.table.path, "b.parquet", 2)]))
    assert f"{2:020}.json" in str(caught.value)
    with pytest.raises(DamagedError, match=says):
        attacked.rows()


HINTS: dict[str, Members] = {
    "a checkpoint that does not exist": {"version": 1, "size": 5},
    "parts that do not exist": {"version": 1, "size": 5, "parts": 100_000},
    "a part that does not exist": {"version": 2, "size": 5, "parts": 2},
    "a name that does not exist": {
        "version": 1,
        "size": 5,
        "v2Checkpoint": {"path": f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"},
    },
    "a version in the future": {"version": 2**40, "size": 5},
    "another checksum": {"version": 2, "size": 5, "checksum": "0" * 32},
    "another size": {"version": 2, "size": 10**12},
}


@pytest.mark.parametrize("name", HINTS)
def test_a_false_hint_of_a_checkpoint_decides_nothing(attacked: Attacked, name: str) -> None:
    path = attacked.table.path
    attacked.fold(text([data_file(path, "b.parquet", 2)]))
    DeltaTable(path).create_checkpoint()
    log = path / FOLDER
    shutil.copy(log / f"{2:020}.checkpoint.parquet", log / f"{2:020}.checkpoint.{1:010}.{2:010}.parquet")
    (attacked.table.path / LAST_CHECKPOINT).write_text(json.dumps(HINTS[name]))
    assert attacked.rows() == [1, 2]
    (result,) = attacked.fold(text([data_file(path, "c.parquet", 3)]))
    assert isinstance(result, Committed)
    assert attacked.rows() == [1, 2, 3]


def test_a_hint_of_many_parts_has_no_more_requested_than_one_of_them(attacked: Attacked) -> None:
    commit = attacked.table.path / commit_path(1)
    hint = json.dumps({"version": 0, "size": 5, "parts": 100_000}).encode()
    state = decode_state(commit_path(1), commit.read_bytes(), files={LAST_CHECKPOINT: hint})
    first, checksum = state.missing_files
    assert (".0000000001." in first, checksum) == (True, checksum_path(1))


IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import pyarrow.parquet
import lakefold
from lakefold_committer.tables.branches import open_branch
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.errors import InvalidError

size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), resource.RLIM_INFINITY))
folder = Path(sys.argv[1])
address = TableAddress(folder.as_uri())
for open_it in (lambda: open_branch(address, ""), lambda: lakefold.open(str(folder)).schema):
    try:
        open_it()
    except InvalidError as error:
        print(error)
"""


NUMBERS = "9" * 4_999
"""More digits than Python makes a number of."""


@pytest.mark.parametrize(
    "kind", ["decimal(50,3)", f"decimal({NUMBERS},0)", "decimal(0,0)", "decimal(5,9)", "decimal", "longer"]
)
def test_a_type_that_no_reader_has_is_invalid(attacked: Attacked, kind: str) -> None:
    given = schema(column("x"), column("y", type=kind))
    message = attacked.refused(metadata(given), read=1)
    assert f"the column 'y' has the type '{kind[:50]}', which Delta does not have" in message
    attacked.commit(2, text([metadata(given)]))
    attacked.commit(3, text([metadata(given)]))
    with pytest.raises(InvalidError, match=r"the column type .* is not known"):
        attacked.rows()


def test_numbers_in_properties_have_an_end(tmp_path: Path) -> None:
    highest = "delta.columnMapping.maxColumnId"
    keys = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
    given = schema(column("x", metadata=keys))
    mode = {"delta.columnMapping.mode": "name"}
    table = Table(tmp_path / "t")
    created = table.propose(protocol_with("columnMapping"), metadata(given, **mode, **{highest: "1"}))
    wrong = table.propose(metadata(given, **mode, **{highest: NUMBERS}), read=0)
    (made, refused) = table.fold(created, wrong)
    assert made == Committed(0)
    assert isinstance(refused, Invalid)
    assert f"{highest} is '{NUMBERS[:50]}', but a column has the id 1" in refused.message
    for length, letters in ((NUMBERS, 2), ("0", 2), ("x", 2), ("7", 7), ("999999999", 180)):
        given_length = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": length}
        assert prefix_length(given_length) == letters


def test_no_row_ids_are_used_up_by_statistics_that_lie(tmp_path: Path) -> None:
    names = ["rowTracking", "domainMetadata"]
    tracked = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}}
    attacked = Attacked(tmp_path / "t", tracked)
    lying = data_file(tmp_path / "t", "b.parquet", 2)
    lying["add"]["stats"] = json.dumps({"numRecords": 2**63 - 1})
    assert "more than a file can have" in attacked.refused(lying)
    assert isinstance(attacked.fold(text([data_file(tmp_path / "t", "c.parquet", 3)]))[0], Committed)
    newest = snapshot_in(attacked.table.path).version
    highest = domain("delta.rowTracking", json.dumps({"rowIdHighWaterMark": 2**63 - 1}))
    attacked.commit(newest + 1, text([highest]))
    (refused,) = attacked.fold(text([data_file(tmp_path / "t", "d.parquet", 4)]))
    assert isinstance(refused, Invalid)
    assert "no row ids are left after 9223372036854775807" in refused.message
    # What needs no ids is committed: the table goes on.
    assert isinstance(attacked.fold(text([remove("c.parquet")]), newest + 1)[0], Committed)
    assert attacked.rows() == [1]


def test_no_row_ids_are_given_twice_to_what_shares_a_version(tmp_path: Path) -> None:
    names = ["rowTracking", "domainMetadata"]
    tracked = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}}
    table = Attacked(tmp_path / "t", tracked).table
    left = domain("delta.rowTracking", json.dumps({"rowIdHighWaterMark": 2**63 - 4}))
    (table.path / commit_path(2)).write_bytes(text([left]))
    files = (table.file("b.parquet", 2, 3), table.file("c.parquet", 4, 5), table.file("d.parquet", 6))
    results = table.fold(*map(table.propose, files), log=log_id(3))
    assert [type(each) for each in results] == [Committed, Invalid, Committed]
    assert table.rows() == [1, 2, 3, 6]


LAST_TIME = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)


def time_in_feed(table: Table) -> object:
    """The time of the first row that the table got after version 0."""
    feed = pa.table(lakefold.changes(table.path, 0).read_all())
    assert feed["x"][0].as_py() == 1
    return feed["_commit_timestamp"][0].as_py()


def test_no_commit_comes_after_the_end_of_all_times(tmp_path: Path) -> None:
    names = ["inCommitTimestamp"]
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}}
    on = metadata(**{"delta.enableInCommitTimestamps": "true"})
    table = Table(tmp_path / "t")
    assert table.fold(table.propose(protocol, on), log=log_id(1)) == [Committed(0)]
    last = {"commitInfo": {"inCommitTimestamp": 2**63 - 1, "operation": "WRITE"}}
    (table.path / commit_path(1)).write_bytes(text([last, data_file(table.path, "a.parquet", 1)]))
    with pytest.raises(DamagedError, match="version 1 has the time 9223372036854775807"):
        table.fold(table.propose(data_file(table.path, "b.parquet", 2)), log=log_id(2))
    assert lakefold.open(table.path).count_rows() == 1
    assert time_in_feed(table) == LAST_TIME


def test_times_in_commits_don_t_begin_after_the_end_of_all_times(tmp_path: Path) -> None:
    """Other clients have written microseconds as milliseconds."""
    names = ["inCommitTimestamp"]
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}}
    table = Table(tmp_path / "t")
    assert table.fold(table.propose(protocol, metadata()), log=log_id(1)) == [Committed(0)]
    late = {"commitInfo": {"timestamp": 1_700_000_000_000_000, "operation": "WRITE"}}
    (table.path / commit_path(1)).write_bytes(text([late, data_file(table.path, "a.parquet", 1)]))
    on = metadata(**{"delta.enableInCommitTimestamps": "true"})
    (refused,) = table.fold(table.propose(on, read=1), log=log_id(2))
    assert isinstance(refused, Invalid)
    assert "a commit with the time 1700000000000000" in refused.message
    assert "leave the property out" in refused.hint
    (result,) = table.fold(table.propose(data_file(table.path, "b.parquet", 2)), log=log_id(3))
    assert isinstance(result, Committed)
    assert table.rows() == [1, 2]
    assert time_in_feed(table) == LAST_TIME


@pytest.mark.parametrize("at", [-(2**63), 2**63 - 1])
def test_a_commit_with_any_time_is_read(tmp_path: Path, at: int) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    info = {"commitInfo": {"timestamp": at, "operation": "WRITE"}}
    (table.path / commit_path(1)).write_bytes(text([info, data_file(table.path, "a.parquet", 1)]))
    shown = LAST_TIME if at > 0 else dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    assert time_in_feed(table) == shown
    (step,) = lakefold.tail(table.path, start=0)
    assert (step.version, step.rows, step.timestamp) == (1, 1, shown)
    assert [row.timestamp for row in lakefold.open(table.path).history(1)] == [shown]


def test_rows_that_a_vector_has_beyond_its_file_take_no_memory(tmp_path: Path) -> None:
    attacked = Attacked(tmp_path / "t", LISTED)
    rows = Bitmap()
    rows.add_range(0, 1 << 26)
    lying = members_of(inline_vector({0: rows}))
    size = (tmp_path / "t" / "a.parquet").stat().st_size
    file = add("a.parquet", lying, size=size, stats=json.dumps({"numRecords": 1 << 30}))
    attacked.commit(2, text([remove("a.parquet"), file]))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="has rows that the data file lacks"):
            attacked.rows()
        with pytest.raises(DamagedError, match="has rows that the data file lacks"):
            lakefold.open(attacked.table.path)._snapshot.fragment_rows(["a.parquet"])
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("hinted", [False, True])
def test_a_version_far_beyond_the_others_is_a_gap(attacked: Attacked, *, hinted: bool) -> None:
    """What is between them is never listed."""
    far, path = 2**63 - 1, attacked.table.path
    if hinted:
        DeltaTable(path).create_checkpoint()
    attacked.commit(far, text([add("b.parquet")]))
    assert len(decode_state(commit_path(far), b"", files={}).missing_files) == 1
    with pytest.raises(DamagedError, match="the log has a gap"):
        attacked.rows()
    with pytest.raises(LakefoldError, match="version 2 is gone"):
        lakefold.changes(path, 0)
    with pytest.raises(DamagedError, match=f"commits that version {far} needs are gone"):
        attacked.fold(text([data_file(path, "c.parquet", 3)]))


@pytest.mark.parametrize("name", ["checkpoint", "commit"])
def test_a_log_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    table = Table(tmp_path / "t")
    table.begin(table.file("a.parquet", 1))
    log = tmp_path / "t" / FOLDER
    if name != "commit":
        (log / LAST_CHECKPOINT.rpartition("/")[2]).write_text(json.dumps({"version": 1, "size": 1}))
    large = {"checkpoint": f"{1:020}.checkpoint.parquet", "commit": f"{1:020}.json"}[name]
    # A sparse file takes no space on the disk.
    with (log / large).open("r+b" if name == "commit" else "wb") as file:
        file.truncate(3 << 30)
    shown = run(
        [sys.executable, "-c", IN_LITTLE_MEMORY, str(tmp_path / "t")],
        check=True,
        capture_output=True,
        text=True,
    )
    by_committer, by_reader = shown.stdout.splitlines()
    for line in (by_committer, by_reader):
        assert large in line
        assert "3,221,225,472 bytes are to be read, and no more than 2,147,483,648" in line
        assert "compact the table" in line
