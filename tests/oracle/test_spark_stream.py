"""A streaming query takes each row once, with any limits, after it is killed, and for versions of any client.

The methods are called in Spark's order, in one process; the rows are compared with pylance's.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakefold_reader.consumers.consumers import consumers
from lakefold_reader.formats import source_on
from lakefold_reader.spark import rows as spark_rows
from lakefold_reader.spark.batch import pin
from lakefold_reader.spark.changes import ChangedRowsError
from lakefold_reader.spark.data_source import LakefoldSource
from lakefold_reader.spark.offsets import Offset
from lakefold_reader.spark.options import read_options
from lakefold_reader.spark.partitions import Cut
from lakefold_reader.spark.stream import Limit, Stream
from lakefold_reader.versions.start import MadeAnewError
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.storage import open_storage
from tests.queries import Query
from tests.tables import Folded, Recording

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    """Versions 2 to 5 append two rows each."""
    folded = Folded(open_storage(f"file://{tmp_path}/t"))
    for first in (10, 20, 30, 40):
        folded.append_ids([first, first + 1])
    return folded


def flat(batches: list[list[int]]) -> list[int]:
    return sorted(number for batch in batches for number in batch)


ALL = [10, 11, 20, 21, 30, 31, 40, 41]


def test_a_query_begins_with_the_content_and_goes_on_with_what_comes(table: Folded) -> None:
    query = Query(table.uri)
    assert query.ids() == [ALL]
    table.append_ids([50])
    table.append_ids([60])
    assert query.ids() == [[50, 60]]
    assert query.ids() == []


@pytest.mark.parametrize(
    ("start", "batches"),
    [
        ({"startingVersion": "latest"}, []),
        ({"startingVersion": "earliest"}, [[], ALL]),
        ({"startingVersion": "4"}, [[30, 31, 40, 41]]),
        ({"startingVersion": "0"}, [ALL]),
        ({"startingVersion": "6"}, []),
    ],
)
def test_a_query_begins_where_its_options_say(
    table: Folded, start: dict[str, str], batches: list[list[int]]
) -> None:
    query = Query(table.uri, **start)
    assert query.ids() == batches
    table.append_ids([50])
    assert query.ids() == [[50]]


def test_a_query_begins_with_the_first_version_of_a_time(table: Folded) -> None:
    stamp = lance.dataset(table.uri, version=4).versions()[3]["timestamp"]
    moment = stamp.astimezone(dt.UTC) if isinstance(stamp, dt.datetime) else None
    assert moment is not None
    assert Query(table.uri, startingTimestamp=moment.isoformat()).ids() == [[30, 31, 40, 41]]
    later = moment + dt.timedelta(microseconds=1)
    assert Query(table.uri, startingTimestamp=later.isoformat()).ids() == [[40, 41]]
    assert Query(table.uri, startingTimestamp="1999-01-01").ids() == [ALL]
    with pytest.raises(InvalidError, match="startingTimestamp: the newest version, 5, is older"):
        Query(table.uri, startingTimestamp="2099-01-01").ids()


@pytest.mark.parametrize("name", ["versionAsOf", "timestampAsOf"])
def test_what_was_before_all_versions_is_not_the_newest(table: Folded, name: str) -> None:
    text = {"versionAsOf": "0", "timestampAsOf": "1970-01-01"}[name]
    with pytest.raises(InvalidError):
        LakefoldSource({"path": table.uri, name: text}).schema()


def test_a_start_that_is_to_come_is_refused(table: Folded) -> None:
    with pytest.raises(VersionExpiredError, match="version 7 does not exist yet"):
        Query(table.uri, startingVersion=7).ids()


@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({"maxVersionsPerTrigger": 1}, [[], [10, 11], [20, 21], [30, 31], [40, 41]]),
        ({"maxVersionsPerTrigger": 3}, [[10, 11, 20, 21], [30, 31, 40, 41]]),
        ({"maxRowsPerTrigger": 5}, [[10, 11, 20, 21], [30, 31, 40, 41]]),
        ({"maxRowsPerTrigger": 1}, [[10, 11], [20, 21], [30, 31], [40, 41]]),
        ({"maxBytesPerTrigger": 1}, [[10, 11], [20, 21], [30, 31], [40, 41]]),
    ],
)
def test_a_batch_of_changes_stays_within_its_limit(
    table: Folded, limit: dict[str, int], batches: list[list[int]]
) -> None:
    values = Query(table.uri, startingVersion=1, **limit).ids()
    assert [batch for batch in values if batch] == [batch for batch in batches if batch]
    assert len(values) <= len(batches) + 1


def test_a_batch_that_ends_before_it_begins_is_refused(table: Folded) -> None:
    query = Query(table.uri, startingVersion=1, maxVersionsPerTrigger=2)
    assert flat(query.ids()) == ALL
    start, *_, middle, end = query.offsets
    with pytest.raises(
        InvalidError, match=r"would end at version 4 \(lf1:.*before its start at version 5 \(lf1:"
    ):
        query.reader.partitions(end, middle)
    query.start()
    with pytest.raises(InvalidError, match="would end at version 0"):
        query.reader.partitions(middle, start)


def test_content_that_was_read_is_not_read_backwards(table: Folded) -> None:
    query = Query(table.uri, maxRowsPerTrigger=2)
    assert flat(query.ids()) == ALL
    some, more, *_, end = query.offsets
    for first, last in ((more, some), (end, more)):
        with pytest.raises(InvalidError, match=r"before its start at version 5"):
            query.reader.partitions(first, last)
    with pytest.raises(InvalidError, match="with 0 fragments of its content"):
        query.reader.partitions(more, some)


def test_a_batch_that_ends_in_a_table_created_again_says_so(table: Folded, tmp_path: Path) -> None:
    query = Query(table.uri, startingVersion=1)
    query.ids()
    shutil.rmtree(tmp_path / "t")
    Folded(open_storage(table.uri))
    query.start()
    with pytest.raises(MadeAnewError, match="the table has no version 5; its newest version is 1"):
        query.reader.partitions(query.offsets[-1], query.reader.latestOffset())


@pytest.mark.parametrize("limit", [{"maxRowsPerTrigger": 4}, {"maxBytesPerTrigger": "1k"}])
def test_the_content_is_read_within_the_limit(table: Folded, limit: dict[str, Any]) -> None:
    values = Query(table.uri, **limit).ids()
    assert len(values) > 1
    assert flat(values) == ALL


def test_a_batch_that_is_run_again_reads_the_same(table: Folded) -> None:
    query = Query(table.uri, maxVersionsPerTrigger=2, startingVersion=1)
    first = query.batch()
    second = query.batch()
    table.append_ids([50])
    query.start()
    assert query.last() == second
    assert query.last() == second
    rest = query.ids()
    assert first is not None
    assert second is not None
    assert flat(rest) == sorted({*ALL, 50} - {row["id"] for row in [*first, *second]})


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_row_comes_once_however_the_query_is_stopped(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folded = Folded(open_storage(f"file://{tmp_path_factory.mktemp('random')}/t"))
    drawn = st.sampled_from(["append", "append", "batch", "kill", "again"])
    limit = data.draw(st.sampled_from([{}, {"maxVersionsPerTrigger": 1}, {"maxRowsPerTrigger": 3}]))
    start = data.draw(st.sampled_from([{}, {"startingVersion": "earliest"}, {"startingVersion": "1"}]))
    written, read, sent = 0, [], []
    options: dict[str, Any] = {**limit, **start}
    query = Query(folded.uri, **options)
    for what in data.draw(st.lists(drawn, min_size=3, max_size=12)):
        if what == "append":
            sent += [written, written + 1]
            folded.append_ids(sent[-2:])
            written += 2
        elif what == "batch":
            read += [row["id"] for row in query.batch() or []]
        else:
            if what == "kill":
                query.start()
            if len(query.offsets) > 1:
                assert {row["id"] for row in query.last()} <= set(read)
    read += flat(query.ids())
    assert sorted(read) == sent


def test_available_now_ends_where_it_began(table: Folded) -> None:
    query = Query(table.uri, maxVersionsPerTrigger=2, startingVersion=2)
    query.reader.prepareForTriggerAvailableNow()
    first = query.batch()
    table.append_ids([50])
    assert [row["id"] for row in first or []] == [10, 11, 20, 21]
    assert query.ids() == [[30, 31, 40, 41]]
    query.start()
    query.reader.prepareForTriggerAvailableNow()
    assert query.ids() == [[50]]


def test_a_trigger_for_all_there_is_takes_content_and_changes(table: Folded) -> None:
    query = Query(table.uri, maxRowsPerTrigger=1)
    table.append_ids([50])
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, ReadAllAvailable())
    query.offsets = [start, end]
    assert sorted(row["id"] for row in query.last()) == [*ALL, 50]


def test_an_older_spark_that_names_no_start_goes_on_where_it_ended(table: Folded) -> None:
    query = Query(table.uri, startingVersion=1, maxVersionsPerTrigger=2)
    start = query.reader.initialOffset()
    end = query.reader.latestOffset()
    query.offsets = [start, end]
    assert sorted(row["id"] for row in query.last()) == [10, 11]
    assert query.reader.latestOffset() == query.reader.latestOffset(end, None)
    query.start()
    assert Offset.of(query.reader.latestOffset()).version == 5


def test_a_table_created_again_is_noticed(table: Folded, tmp_path: Path) -> None:
    query = Query(table.uri, startingVersion=1)
    query.ids()
    shutil.rmtree(tmp_path / "t")
    anew = Folded(open_storage(table.uri), first=100)
    for number in range(6):
        anew.append_ids([number])
    query.start()
    with pytest.raises(InvalidError, match="belongs to another table"):
        query.ids()


@pytest.mark.parametrize("text", ['{"partition-0": 5}', "{}", "null", "[]", '"x"', "5", "true"])
def test_an_offset_of_another_source_is_reported(table: Folded, text: str) -> None:
    query = Query(table.uri)
    offset, known = json.loads(text), query.reader.initialOffset()
    refused = pytest.raises(InvalidError, match="not an offset of a table")
    with refused:
        query.reader.latestOffset(offset, query.reader.getDefaultReadLimit())
    with refused:
        query.reader.partitions(offset, known)
    with refused:
        query.reader.partitions(known, offset)
    with refused:
        query.reader.commit(offset)


@pytest.mark.parametrize("fragments", [-1, True, 1.5, "1"])
def test_an_offset_says_how_many_fragments_are_read_by_a_number(table: Folded, fragments: object) -> None:
    query = Query(table.uri)
    offset = {**query.reader.initialOffset(), "fragments": fragments}
    with pytest.raises(InvalidError, match="not an offset of a table"):
        query.reader.commit(offset)


@pytest.fixture
def cleaned(table: Folded) -> Query:
    """A query that has seen version 2 of a table of which only version 5 and later are left."""
    query = Query(table.uri, startingVersion=2, maxVersionsPerTrigger=1)
    query.batch()
    dataset = lance.dataset(table.uri)
    dataset.cleanup_old_versions(dt.timedelta(0))
    query.start()
    return query


def test_versions_cleaned_up_stop_a_query_which_says_how_to_continue(cleaned: Query) -> None:
    with pytest.raises(VersionExpiredError, match="set failOnDataLoss to false") as raised:
        cleaned.ids()
    assert raised.value.oldest == 5


def test_a_query_that_may_lose_data_continues_after_the_oldest_version(table: Folded, cleaned: Query) -> None:
    cleaned.options["failOnDataLoss"] = "false"
    cleaned.start()
    assert flat(cleaned.ids()) == []
    table.append_ids([50])
    assert cleaned.ids() == [[50]]


def test_a_batch_costs_what_changed(table: Folded) -> None:
    """A read of each version and another for the next that doesn't exist; no listing."""
    given = read_options({"path": table.uri, "startingVersion": "latest"})
    stream = Stream(given, pin(given), ["id", "text"], Cut())
    start = stream.initial()
    assert stream.latest(start, Limit()) == start
    store = Recording(open_storage(table.uri))
    stream._source.versions.storage = store
    object.__setattr__(stream._source, "storage", store)
    for number in (50, 60):
        table.append_ids([number])
    end = stream.latest(start, Limit())
    ((part, other),) = stream.plan(start, end)
    assert (part.version, other.version) == (6, 7)
    assert store.calls == ["get_range"] * 3


def test_tasks_list_nothing(table: Folded, monkeypatch: pytest.MonkeyPatch) -> None:
    lance.dataset(table.uri).delete("id in (10, 20)")
    query = Query(table.uri, startingVersion=1, readChangeFeed="true")
    start = query.reader.initialOffset()
    planned = query.reader.partitions(start, query.reader.latestOffset(start, ReadAllAvailable()))
    store = Recording(open_storage(table.uri))
    monkeypatch.setattr(spark_rows, "open_source", lambda *_: source_on(store))
    rows = [row for task in planned for batch in query.reader.read(task) for row in batch.to_pylist()]
    assert [row["id"] for row in rows if row["_change_type"] == "delete"] == [10, 20]
    source = LakefoldSource({"path": table.uri})
    batch_reader = source.reader(source.schema())
    batch_reader.pushFilters([GreaterThan(("id",), 30)])
    values: list[Any] = [each for task in batch_reader.partitions() for each in batch_reader.read(task)]
    assert sum(each.num_rows for each in values) == 3
    assert "list" not in store.calls


def test_a_query_with_a_name_keeps_what_it_has_not_read(table: Folded) -> None:
    query = Query(table.uri, startingVersion=2, maxVersionsPerTrigger=2, consumer="copy")
    query.batch()
    (consumer,) = consumers(table.uri)
    assert (consumer.name, consumer.version) == ("copy", 1)
    query.reader.commit(query.offsets[-1])
    assert [consumer.version for consumer in consumers(table.uri)] == [3]
    dataset = lance.dataset(table.uri)
    with pytest.raises(OSError, match="lakefold-consumer-copy"):
        dataset.cleanup_old_versions(dt.timedelta(0))
    query.start()
    assert query.ids() == [[30, 31, 40, 41]]
    query.reader.commit(query.offsets[-1])
    assert [consumer.version for consumer in consumers(table.uri)] == [5]


@pytest.fixture
def changed(tmp_path: Path) -> lance.LanceDataset:
    """pylance's: four rows; two more; one deleted; one updated; all replaced; one more."""
    path = str(tmp_path / "p")
    lance.write_dataset(pa.table({"id": [1, 2, 3, 4], "v": [0, 0, 0, 0]}), path, enable_stable_row_ids=True)
    lance.write_dataset(pa.table({"id": [5, 6], "v": [0, 0]}), path, mode="append")
    dataset = lance.dataset(path)
    dataset.delete("id = 1")
    dataset.update({"v": "1"}, where="id = 2")
    lance.write_dataset(pa.table({"id": [8, 9], "v": [0, 0]}), path, mode="overwrite")
    return lance.write_dataset(pa.table({"id": [10], "v": [0]}), path, mode="append")


def test_a_version_that_did_more_than_insert_stops_a_query(changed: lance.LanceDataset) -> None:
    query = Query(changed.uri, startingVersion=1, maxVersionsPerTrigger=1)
    assert query.batch() is not None
    assert query.batch() is not None
    with pytest.raises(ChangedRowsError, match=r"version 3 \(delete\) did more than insert rows") as raised:
        query.batch()
    assert "skipChangeCommits" in raised.value.hint


@pytest.mark.parametrize(
    ("message", "ids"),
    [
        ("skipChangeCommits", [[1, 2, 3, 4], [5, 6], [], [], [], [10]]),
        ("ignoreChanges", [[1, 2, 3, 4], [5, 6], [], [2], [8, 9], [10]]),
    ],
)
def test_a_query_goes_over_changes_as_it_says(
    changed: lance.LanceDataset, message: str, ids: list[list[int]]
) -> None:
    query = Query(changed.uri, startingVersion=1, maxVersionsPerTrigger=1, **{message: "true"})
    assert query.ids() == ids


def test_ignoring_deletes_is_not_ignoring_updates(changed: lance.LanceDataset) -> None:
    query = Query(changed.uri, startingVersion=1, maxVersionsPerTrigger=1, ignoreDeletes="true")
    assert [query.batch() is not None for _ in range(3)] == [True] * 3
    with pytest.raises(ChangedRowsError, match=r"version 4 \(update\)"):
        query.batch()


def test_a_query_of_the_change_feed_gets_every_change(changed: lance.LanceDataset) -> None:
    query = Query(changed.uri, startingVersion=1, readChangeFeed="true")
    values = [(row["_commit_version"], row["_change_type"], row["id"]) for row in next(query.batches())]
    assert [each for each in values if each[0] in {2, 3, 4}] == [
        (2, "insert", 5),
        (2, "insert", 6),
        (3, "delete", 1),
        (4, "update_preimage", 2),
        (4, "update_postimage", 2),
    ]
    kept: dict[int, int] = {}
    for _, kind, number in values:
        kept[number] = kept.get(number, 0) + {"insert": 1, "update_postimage": 1}.get(kind, -1)
    assert sorted(number for number, count in kept.items() if count) == [8, 9, 10]


def test_the_content_is_inserts_to_the_change_feed(changed: lance.LanceDataset) -> None:
    query = Query(changed.uri, readChangeFeed="true", columns="id")
    rows = next(query.batches())
    assert {row["_change_type"] for row in rows} == {"insert"}
    assert {row["_commit_version"] for row in rows} == {6}
    assert sorted(row["id"] for row in rows) == [8, 9, 10]


def test_new_columns_stop_a_query_until_it_is_started_again(changed: lance.LanceDataset) -> None:
    query = Query(changed.uri)
    narrow = Query(changed.uri, columns="id", skipChangeCommits="true")
    query.ids()
    narrow.ids()
    changed.add_columns(pa.schema([pa.field("w", pa.int64())]))
    more = pa.table({"id": [11], "v": [0], "w": [1]})
    lance.write_dataset(more, changed.uri, mode="append")
    with pytest.raises(InvalidError, match="version 7 changed the columns w") as raised:
        query.ids()
    assert "start the query again" in raised.value.hint
    assert flat(narrow.ids()) == [11]


def test_rows_older_than_a_column_have_none_in_it(changed: lance.LanceDataset) -> None:
    changed.add_columns(pa.schema([pa.field("w", pa.int64())]))
    renamed: Any = {"path": "v", "name": "value"}
    changed.alter_columns(renamed)
    query = Query(changed.uri, startingVersion="earliest", skipChangeCommits="true")
    rows = [row for batch in query.batches() for row in batch]
    assert sorted(row["id"] for row in rows) == [1, 2, 3, 4, 5, 6, 10]
    assert {(row["value"], row["w"]) for row in rows} == {(0, None)}
