"""An opened version shows what pylance shows of it, and reads what pylance reads."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import lance
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefold
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.versions.times import micros_of
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    NotATableError,
    NotPublishedYetError,
    VersionExpiredError,
)
from lakefold_table.storage import open_storage
from tests.merging import Folding
from tests.oracle.arrays import rows as rows_of
from tests.oracle.test_rows_of_files import COLUMNS
from tests.proposals import rows
from tests.tables import LOG, TOPIC, Folded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def written(folder: Path) -> str:
    """Four versions: twenty rows, five more, a deletion, another column."""
    uri = str(folder / "t")
    lance.write_dataset(rows(range(20)), uri)
    lance.write_dataset(rows(range(20, 25)), uri, mode="append")
    lance.dataset(uri).delete("id % 5 = 0")
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    return uri


def test_each_version_is_what_pylance_shows(tmp_path: Path) -> None:
    uri = written(tmp_path)
    assert lakefold.open(uri).version == 4
    for version in range(1, 5):
        ours, theirs = lakefold.open(uri, version), lance.dataset(uri, version=version)
        assert ours.schema.equals(theirs.schema, check_metadata=True)
        assert ours.count_rows() == theirs.count_rows()
        assert ours.count_rows("id > 7") == theirs.count_rows("id > 7")
        assert ours.deleted_rows == (5 if version > 2 else 0)
        assert ours.fragment_count == len(theirs.get_fragments())
        assert ours.to_arrow().equals(theirs.to_table(), check_metadata=True)
        assert ours.to_arrow(["text"], "id = 3") == theirs.to_table(columns=["text"], filter="id = 3")


def test_a_part_of_the_rows(tmp_path: Path) -> None:
    uri = written(tmp_path)
    ours, theirs = lakefold.open(uri), lance.dataset(uri)
    for limit, offset in ((3, None), (None, 4), (3, 4), (0, 0), (100, 18), (1, 100)):
        expected = theirs.to_table(limit=limit, offset=offset)
        assert ours.to_arrow(limit=limit, offset=offset).equals(expected, check_metadata=True)
        expected = theirs.to_table(filter="id > 7", columns=["id"], limit=limit, offset=offset)
        assert ours.to_arrow(["id"], "id > 7", limit=limit, offset=offset) == expected
    sizes = [batch.num_rows for batch in ours.to_reader(batch_size=3)]
    assert (max(sizes), sum(sizes)) == (3, 20)
    for name, least in (("limit", 0), ("offset", 0), ("batch_size", 1)):
        with pytest.raises(InvalidError, match=f"{name} is {least - 1}"):
            ours.to_reader(**{name: least - 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1"])
def test_no_column_gives_as_many_rows(tmp_path: Path, version: Literal["legacy", "2.0", "2.1"]) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(20)), uri, data_storage_version=version, max_rows_per_file=8)
    lance.dataset(uri).delete("id % 5 = 0")
    table = lakefold.open(uri)
    for filter_text in (None, "true", "false", "id > 7", "_rowid > 7", "_rowaddr > 7"):
        expected = table.count_rows(filter_text)
        assert table.to_arrow([], filter_text).shape == (expected, 0)
    assert table.to_arrow([]).num_rows == table.count_rows() == 16
    assert table.to_arrow([], "id > 7", limit=4, offset=8).shape == (2, 0)
    sizes = [batch.num_rows for batch in table.to_reader([], batch_size=3)]
    assert (max(sizes), sum(sizes)) == (3, 16)
    assert table.take([1, 7], []).shape == (2, 0)


def test_columns_that_the_table_keeps_for_each_row(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(20)), uri, enable_stable_row_ids=True, max_rows_per_file=10)
    lance.dataset(uri).update({"text": "'new'"}, where="id % 3 = 0")
    kept = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
    ours, theirs = lakefold.open(uri), lance.dataset(uri)
    for columns in (*[[name] for name in kept], [*kept, "id"], ["id", *kept[::-1]]):
        expected = theirs.to_table(columns=columns)
        assert ours.to_arrow(columns).equals(expected, check_metadata=True)
    for text in ("_rowid = 3", "_rowaddr > 4294967296", "_row_last_updated_at_version = 2"):
        assert ours.to_arrow(filter=text).equals(theirs.to_table(filter=text), check_metadata=True)
        assert ours.to_arrow(filter=text).num_rows in (1, 7, 13)


ROW_FILTERS = [
    "_rowid = 5",
    "`_rowid` = 5",
    "_rowid in (1, 4294967298, 99)",
    "_rowid > 5 and id % 2 = 0",
    "NOT (_rowid = 5) OR text = '_rowid'",
    "_rowid BETWEEN 2 AND 4294967297",
    "_rowid IS NOT NULL",
    "_rowid = _rowaddr",
    "_rowaddr = 5",
    "_rowaddr in (1, 2) or text = 'it''s _rowid = 5'",
    "_rowaddr >= 4294967296",
    "s._rowid = 5",
    "s.`_rowid` > 5 and `my _rowid` > 2",
]


@pytest.mark.parametrize("where", ROW_FILTERS)
def test_a_filter_on_row_ids_holds_for_the_same_rows_in_legacy_files(tmp_path: Path, where: str) -> None:
    """pylance, which can't answer most of them there, answers on files of the next format."""
    data = rows(range(20)).append_column("my _rowid", pa.array(range(20)))
    data = data.append_column("s", pa.array([{"_rowid": number} for number in range(20)]))
    data = data.set_column(1, "text", pa.array(["_rowid", "it's _rowid = 5", "x", "y"] * 5))
    uri, newer = str(tmp_path / "t"), str(tmp_path / "newer")
    lance.write_dataset(data, uri, data_storage_version="legacy", max_rows_per_file=8)
    lance.write_dataset(data, newer, data_storage_version="2.0", max_rows_per_file=8)
    for each in (uri, newer):
        lance.dataset(each).delete("id in (2, 5, 9)" if "= 5" not in where else "id in (2, 9)")
    ours, theirs = lakefold.open(uri), lance.dataset(newer)
    for columns in (None, ["id"], ["_rowid"], ["id", "_rowaddr", "_rowid"]):
        expected = theirs.to_table(columns=columns, filter=where)
        assert 0 < expected.num_rows < 20
        assert ours.to_arrow(columns, where).equals(expected)
    assert ours.to_arrow([], where).num_rows == ours.count_rows(where) == theirs.count_rows(where)
    assert ours.to_arrow(["id"], where, limit=1, offset=0).num_rows == 1


def test_every_kind_of_column(tmp_path: Path) -> None:
    schema = pa.schema([field.with_name(f"c{number}") for number, field in enumerate(COLUMNS)])
    uri = str(tmp_path / "t")
    lance.write_dataset(rows_of(schema, 30), uri)
    table, theirs = lakefold.open(uri), lance.dataset(uri)
    assert table.schema.equals(theirs.schema, check_metadata=True)
    assert table.to_arrow().equals(theirs.to_table(), check_metadata=True)


def test_opening_reads_one_manifest_and_no_data(tmp_path: Path) -> None:
    uri = written(tmp_path)
    for path in (tmp_path / "t/data").iterdir():
        path.unlink()
    table = lakefold.open(uri)
    assert (table.count_rows(), table.schema.names) == (20, ["id", "text", "twice"])
    with pytest.raises(DamagedError, match="version 4 names a file that is missing"):
        table.to_arrow()


def test_rows_are_counted_if_the_manifest_does_not_say_how_many_are_deleted(tmp_path: Path) -> None:
    uri = written(tmp_path)
    path = tmp_path / "t" / lakefold.open(uri)._source.versions.path(4)
    data = path.read_bytes()
    start = int.from_bytes(data[-16:-8], "little")
    manifest = Manifest.FromString(data[start + 4 : -16])
    for fragment in manifest.fragments:
        fragment.deletion_file.num_deleted_rows = 0
    message = manifest.SerializeToString()
    path.write_bytes(data[:start] + len(message).to_bytes(4, "little") + message + data[-16:])
    table = lakefold.open(uri)
    assert (table.count_rows(), table.deleted_rows) == (20, 5)


def test_what_a_version_says_of_itself(tmp_path: Path) -> None:
    folded = Folded(open_storage(tmp_path / "t"), stable_row_ids=True)
    folded.append(rows(range(5)), rows([9]), app_id="app")
    lance.dataset(str(tmp_path / "t")).update_config({"k": "v"})
    lance.dataset(str(tmp_path / "t")).update_metadata({"who": "me"})
    table = lakefold.open(tmp_path / "t")
    assert (table.config, table.metadata) == ({"k": "v"}, {"who": "me"})
    assert [(feature.flag, feature.readers, feature.writers) for feature in table.features] == [
        (2, True, True),
        (8, False, True),
    ]
    marks = table.marks
    assert marks is not None
    assert (marks.version, marks.offset_of(LOG), marks.apps["app"].intervals) == (2, 2, ((1, 2),))
    assert marks.position is not None
    assert marks.position.topic == TOPIC


def test_other_libraries_take_a_table_as_it_is(tmp_path: Path) -> None:
    import duckdb

    flights = lakefold.open(written(tmp_path), 2)
    assert pa.table(flights).num_rows == 25
    assert pl.DataFrame(flights).height == 25
    relation = duckdb.sql("SELECT sum(id) FROM flights")
    assert relation is not None
    assert relation.fetchall() == [(300,)]


def test_the_version_of_a_time(tmp_path: Path) -> None:
    uri = written(tmp_path)
    times = [lakefold.open(uri, version).timestamp for version in range(1, 5)]
    for version, time in enumerate(times, start=1):
        assert lakefold.open(uri, as_of=time).version == version
        assert lakefold.open(uri, as_of=time.isoformat()).version == version
        assert lakefold.open(uri, as_of=time.replace(tzinfo=None)).version == version
        assert (
            lakefold.open(uri, as_of=time - timedelta(microseconds=1)).version == max(version - 1, 1)
            if version > 1
            else True
        )
    assert lakefold.open(uri, as_of=times[3] + timedelta(days=1)).version == 4
    with pytest.raises(InvalidError, match="no version is as old as that"):
        lakefold.open(uri, as_of=times[0] - timedelta(seconds=1))
    (tmp_path / "t" / lakefold.open(uri)._source.versions.path(1)).unlink()
    with pytest.raises(VersionExpiredError, match="no version is as old as that"):
        lakefold.open(uri, as_of=times[0])


def test_a_time_is_exact_and_in_utc_if_it_has_no_zone() -> None:
    assert micros_of("1970-01-01T00:00:00.000001Z") == 1
    assert micros_of("1970-01-02") == 86_400_000_000
    assert micros_of("1970-01-01T01:00:00+01:00") == 0
    assert micros_of(datetime(2500, 1, 1, microsecond=7, tzinfo=UTC)) % 10 == 7
    for wrong in ("yesterday", 5):
        with pytest.raises(InvalidError, match="not a time"):
            micros_of(wrong)  # type: ignore[arg-type]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(NotATableError, match="no table here yet"):
        lakefold.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("x")
    with pytest.raises(NotATableError, match="no version of a table") as raised:
        lakefold.open(tmp_path / "other")
    assert "the folder that has _versions/ or _delta_log/" in raised.value.hint
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]
    uri = written(tmp_path)
    with pytest.raises(NotPublishedYetError, match="version 9 does not exist yet, the newest is 4"):
        lakefold.open(uri, 9)
    (tmp_path / "t" / lakefold.open(uri)._source.versions.path(2)).unlink()
    with pytest.raises(VersionExpiredError, match="version 2 is gone"):
        lakefold.open(uri, 2)
    with pytest.raises(InvalidError, match="none of the existing versions was made by a committer"):
        lakefold.open(uri, at_position=1)
    with pytest.raises(InvalidError, match="both name a version"):
        lakefold.open(uri, 1, as_of="2026-01-01")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    uri = written(tmp_path)
    for columns, filter_text in ((["nope"], None), (None, "nope > 1"), (None, "id >")):
        with pytest.raises(InvalidError):
            lakefold.open(uri).to_arrow(columns, filter_text)
    one_text = r"'id' is one text \(give a list: \['id'\]\)"
    with pytest.raises(InvalidError, match=one_text):
        lakefold.open(uri).to_arrow("id")
    with pytest.raises(InvalidError, match=one_text):
        lakefold.open(uri).take([0], "id")
    for filter_text in ("nope > 1", "id >", "id + 1", "foo(id)"):
        with pytest.raises(InvalidError):
            lakefold.open(uri).count_rows(filter_text)
    for version in (0, -1, "3"):
        with pytest.raises(InvalidError, match="is not the number of a version"):
            lakefold.open(uri, version)  # type: ignore[arg-type]
    with pytest.raises(lakefold.UnknownRefError, match=r"the branch nope does not exist.*lakefold refs"):
        lakefold.open(uri, branch="nope")
    table = lakefold.open(uri, 1)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    with pytest.raises(VersionExpiredError, match="version 1 is gone"):
        table.to_arrow()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"limit": 2**70}, "limit is 1180591620717411303424"),
        ({"offset": 2**63}, "offset is 9223372036854775808"),
        ({"batch_size": 2**32}, "batch_size is 4294967296"),
        ({"limit": 1.5}, r"limit is 1\.5"),
        ({"limit": "3"}, "limit is '3'"),
        ({"offset": True}, "offset is True"),
        ({"filter": 5}, "filter: 5 is not a filter"),
        ({"filter": ["id"]}, r"filter: \['id'\] is not a filter"),
        ({"columns": [1]}, "columns: 1 is not a name"),
        ({"columns": b"id"}, "columns: 105 is not a name"),
        ({"columns": 5}, "columns: 5 is not a list of names"),
        ({"columns": iter(["id"])}, "columns: .* is not a list of names"),
    ],
)
def test_an_argument_of_another_kind_is_refused(
    tmp_path: Path, asked: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidError, match=message) as refused:
        lakefold.open(written(tmp_path)).to_reader(**asked)  # type: ignore[arg-type]
    assert refused.value.hint


@pytest.mark.parametrize(
    "where",
    [
        "id < 5 ADN c = 'XX'",
        "id < 5, c = 'XX'",
        "id < 5; and c = 'XX'",
        "id < 5 c = 'XX'",
        "id < 5 limit 1",
        "id in (1, 2) 3",
        "id < 5) and (c = 'XX'",
        "id < 5)",
        "id < 5 -- ) and (",
        "c = ')' or id < 5)",
    ],
)
def test_a_filter_is_read_whole(tmp_path: Path, where: str) -> None:
    """Pylance ignores what follows the first whole condition, so that a typo would delete more rows."""
    lance.write_dataset(pa.table({"id": range(10), "c": ["XX", "YY"] * 5}), str(tmp_path / "t"))
    table = lakefold.open(tmp_path / "t")
    if where.endswith("-- ) and ("):
        assert table.count_rows(where) == table.to_arrow(filter=where).num_rows == 5
        return
    doors: list[Callable[[], object]] = [
        lambda: table.count_rows(where),
        lambda: table.to_arrow(filter=where),
        lambda: Folding(tmp_path / "t").build(DeleteWhere(where)),
    ]
    for door in doors:
        with pytest.raises(lakefold.InvalidError):
            door()


def test_a_number_is_no_truth_value_and_a_filter_may_be_an_expression(tmp_path: Path) -> None:
    uri = written(tmp_path)
    for refused in (
        lambda: lakefold.open(uri, version=True),
        lambda: lakefold.tail(uri, start=True),
        lambda: lakefold.changes(uri, after=True),
    ):
        with pytest.raises(InvalidError, match=r"True'? is (no version|not the number of a version)"):
            refused()
    with pytest.raises(InvalidError, match="5 can't be the name of a consumer"):
        lakefold.tail(uri, consumer=5)  # type: ignore[arg-type]
    table = lakefold.open(uri)
    with pytest.raises(InvalidError, match="filter: 5 is not a filter"):
        table.count_rows(5)  # type: ignore[arg-type]
    expression: Any = pc.field("id") > 7
    assert table.to_arrow(filter=expression).num_rows == table.count_rows(expression) == 14
    assert table.to_reader(limit=np.int64(3)).read_all().num_rows == 3  # type: ignore[arg-type]


def test_a_manifest_cut_short_is_damaged(tmp_path: Path) -> None:
    uri = written(tmp_path)
    path = tmp_path / "t" / lakefold.open(uri)._source.versions.path(4)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedError):
        lakefold.open(uri)


def test_importing_the_front_door_loads_nothing_heavy() -> None:
    heavy = ("pyarrow", "lance", "google.protobuf", "confluent_kafka", "pyspark", "lakefold_reader")
    code = f"import json, sys, lakefold; print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == []


def test_a_tail_without_rows_loads_no_arrow(tmp_path: Path) -> None:
    uri = written(tmp_path)
    code = (
        "import sys, lakefold;"
        f"print([(c.version, c.rows) for c in lakefold.tail({uri!r}, 1)], 'pyarrow' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[(2, 5), (3, 0), (4, None)] False"


def test_the_front_door_names_what_it_has() -> None:
    for name in lakefold.__all__:
        assert getattr(lakefold, name) is not None
        assert name in dir(lakefold)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        lakefold.nope  # noqa: B018 - looked up for its error
