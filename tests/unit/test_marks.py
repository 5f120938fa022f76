"""What a version remembers: bounded, readable by anyone, and the same after it was written and read."""

import json
from dataclasses import replace

import pytest

from lakefold_table.errors import DamagedError
from lakefold_table.marks.batches import MAX_RECENT_BATCHES, PLAIN_INTERVALS, AppMark, GrowingMark
from lakefold_table.marks.marks import (
    APP,
    FILE_LOGS,
    MARK,
    MAX_FILE_LOGS,
    TABLE_ID,
    UUIDS,
    Marks,
    decode_marks,
    describe_position,
    table_id_of,
)
from lakefold_table.position import LogId, Position


def added(mark: AppMark, batch: int, version: int, time_us: int) -> AppMark:
    growing = GrowingMark(mark)
    growing.add(batch, version, time_us)
    return growing.mark()


LOG = LogId("cluster", "topic-id", 3)
POSITION = Position(LOG, 41, "transactions")
FULL = Marks(
    table_id="id",
    branch="b",
    version=7,
    epoch=2,
    rules=1,
    position=POSITION,
    operations_since=3,
    operations={"append": 7, "overwrite": 1},
    file_logs=(("one", 4), ("two", 0)),
    uuids=(("u", 6), ("ü", 7)),
    apps={"app": added(AppMark(), 5, 7, 99), "ä b": added(AppMark(), 2**64 - 1, 6, 98)},
)


def folded(*batches: int) -> AppMark:
    mark = AppMark()
    for number, batch in enumerate(batches, start=1):
        mark = added(mark, batch, number, 1000 * number)
    return mark


@pytest.mark.parametrize(
    ("batches", "intervals"),
    [
        ([0], ((0, 0),)),
        ([0, 1, 2], ((0, 2),)),
        ([2, 1, 0], ((0, 2),)),
        ([0, 2], ((0, 0), (2, 2))),
        ([0, 2, 1], ((0, 2),)),
        ([5, 1, 3], ((1, 1), (3, 3), (5, 5))),
        ([5, 1, 3, 4], ((1, 1), (3, 5))),
        ([5, 5], ((5, 5),)),
        ([2**64 - 1, 2**64 - 2], ((2**64 - 2, 2**64 - 1),)),
    ],
)
def test_batches_are_kept_as_intervals(batches: list[int], intervals: tuple[tuple[int, int], ...]) -> None:
    mark = folded(*batches)
    assert mark.intervals == intervals
    assert all(mark.has(batch) for batch in batches)


def test_a_gap_was_not_folded() -> None:
    mark = folded(0, 2, 9)
    assert [number for number in range(11) if mark.has(number)] == [0, 2, 9]
    assert mark.forgotten_below == 0


def test_a_mark_says_which_version_holds_the_newest_batches() -> None:
    mark = folded(*range(MAX_RECENT_BATCHES + 1))
    assert mark.version_of(0) == 0
    assert [mark.version_of(batch) for batch in (1, 2, MAX_RECENT_BATCHES)] == [2, 3, MAX_RECENT_BATCHES + 1]
    assert len(mark.recent) == MAX_RECENT_BATCHES


def test_the_lowest_intervals_beyond_the_bound_are_forgotten() -> None:
    mark = folded(*range(10, 10 + 2 * PLAIN_INTERVALS, 2))
    assert mark.within(0) == mark
    mark = added(mark, 1000, 1, 0)
    assert mark.within(len(mark.encoded)) == mark
    mark = mark.within(len(mark.encoded) - 1)
    assert (len(mark.intervals), mark.forgotten_below) == (PLAIN_INTERVALS, 11)
    assert not mark.has(10)
    assert mark.has(12)
    assert not mark.has(11)
    assert added(mark, 11, 2, 0).intervals[0] == (11, 12)


def test_a_batch_below_all_others_is_known_while_it_is_among_the_newest() -> None:
    """It is the first to be forgotten, but its writer may well send it again at once."""
    mark = added(folded(*range(100, 100 + 2 * PLAIN_INTERVALS, 2)), 50, 77, 0)
    mark = replace(mark, rolled_back=((50, 50, 80),)).within(0)
    assert mark.forgotten_below == 51
    assert mark.has(50)
    assert (mark.version_of(50), mark.rolled_back_by(50)) == (77, 80)
    for batch in range(1000, 1000 + MAX_RECENT_BATCHES):
        mark = added(mark, batch, 78, 0)
    assert not mark.has(50)


def test_the_time_of_an_app_never_goes_back() -> None:
    assert added(added(AppMark(), 1, 1, 50), 2, 1, 40).time_us == 50


def test_marks_read_back_as_they_were_written() -> None:
    assert decode_marks(FULL.encode()) == FULL
    assert decode_marks(FULL.encode() | {"mine": "x"}) == FULL
    assert decode_marks(Marks().encode()) == Marks()
    assert decode_marks({}) is None
    assert decode_marks({"lakefold.other": "x"}) is None


def test_marks_can_be_read_without_us() -> None:
    encoded = FULL.encode()
    assert encoded[TABLE_ID] == "id"
    mark = json.loads(encoded[MARK])
    assert mark["log"]["offset"] == 41
    assert (mark["version"], mark["epoch"]) == (7, 2)
    assert json.loads(encoded[APP + "app"])["batches"] == [[5, 5]]


def test_positions_are_kept_for_each_kind_of_log() -> None:
    marks = Marks().at(POSITION)
    other = LogId("cluster", "another", 3)
    assert [marks.offset_of(log) for log in (LOG, other, replace(LOG, partition=4))] == [41, -1, -1]
    assert Marks().offset_of(LOG) == -1
    file = LogId(LogId.FILE_CLUSTER, "file-id", 0)
    marks = marks.at(Position(file, 5)).at(Position(file, 9))
    assert (marks.offset_of(file), marks.offset_of(LOG), marks.file_logs) == (9, 41, (("file-id", 9),))


def test_the_newest_file_logs_are_kept() -> None:
    marks = Marks()
    for number in range(MAX_FILE_LOGS):
        marks = marks.at(Position(LogId(LogId.FILE_CLUSTER, f"log-{number}", 0), 1))
    marks = marks.at(Position(LogId(LogId.FILE_CLUSTER, "log-0", 0), 2))
    marks = marks.at(Position(LogId(LogId.FILE_CLUSTER, "new", 0), 3))
    names = [name for name, _ in marks.file_logs]
    assert len(names) == MAX_FILE_LOGS
    assert names[-2:] == ["log-0", "new"]
    assert "log-1" not in names


def test_an_identity_has_the_form_of_a_uuid_and_follows_from_the_position() -> None:
    identity = table_id_of(POSITION)
    assert [len(part) for part in identity.split("-")] == [8, 4, 4, 4, 12]
    assert identity == table_id_of(replace(POSITION, topic="renamed"))
    assert identity != table_id_of(replace(POSITION, offset=42))


ENCODED = FULL.encode()
DAMAGED = {
    "no JSON": {MARK: "{"},
    "a list": {MARK: "[]"},
    "a number": {MARK: "7"},
    "null": {MARK: "null"},
    "no version": {MARK: "{}"},
    "version as text": {MARK: ENCODED[MARK].replace('"version":7', '"version":"7"')},
    "infinite version": {MARK: ENCODED[MARK].replace('"version":7', '"version":1e999')},
    "half a version": {MARK: ENCODED[MARK].replace('"version":7', '"version":7.5')},
    "branch as number": {MARK: ENCODED[MARK].replace('"branch":"b"', '"branch":1')},
    "topic as number": {MARK: ENCODED[MARK].replace('"topic-id"', "5")},
    "operations as list": {MARK: ENCODED[MARK].replace('{"append":7,"overwrite":1}', "[]")},
    "deep": {MARK: "[" * 100_000},
    "many digits": {MARK: "9" * 10_000},
    "uuids as object": {UUIDS: '{"a":1}'},
    "uuids of one": {UUIDS: '[["a"]]'},
    "file logs as text": {FILE_LOGS: '"abc"'},
    "app empty": {APP + "app": ""},
    "app without versions": {APP + "app": '{"batches":[],"forgotten_below":0,"time_us":0}'},
    "app descending": {APP + "app": '{"batches":[[5,3]],"forgotten_below":0,"versions":[],"time_us":0}'},
    "app overlapping": {
        APP + "app": '{"batches":[[1,5],[3,9]],"forgotten_below":0,"versions":[],"time_us":0}'
    },
    "app with older ones above": {
        APP + "app": '{"batches":[[1,5]],"forgotten_below":0,"versions":[],"time_us":0,"older":[3]}'
    },
    **{
        f"app with {older}": {
            APP + "app": f'{{"batches":[],"forgotten_below":0,"versions":[],"time_us":0,"older":{older}}}'
        }
        for older in ("[0]", "[-3]", "[-3,0]", "[1.5]", "[true]", "7", "[1e999]")
    },
    "app truth": {APP + "app": '{"batches":[],"forgotten_below":true,"versions":[],"time_us":0}'},
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_marks_that_cannot_be_read_are_damage(change: dict[str, str]) -> None:
    with pytest.raises(DamagedError, match="marks") as caught:
        decode_marks(ENCODED | change, "file:///t")
    assert caught.value.where == "file:///t"
    assert caught.value.hint


def test_a_position_for_people_distinguishes_logs_of_one_name() -> None:
    log = LogId("cluster", "topic-id", 2)
    assert describe_position(Position(log, 7, "topic")) == "topic/2@7 (topic id topic-id)"
    assert describe_position(Position(log, -1, "topic")) == "the start of topic/2 (topic id topic-id)"
    assert describe_position(None) == "no log"
