"""The record of the answers that a version carries: written, read again, and never guessed."""

import base64
from dataclasses import replace

import pytest

from lakefold_protos.lakefold.record_pb2 import FoldRecord
from lakefold_table.entry import Committed, Conflict, Duplicate, Invalid, Outcome, Rejected, Result
from lakefold_table.errors import DamagedError
from lakefold_table.marks.record import (
    RECORD,
    VERSION,
    Batches,
    Record,
    decode_record,
    encode_record,
    is_own,
    position_at,
)
from lakefold_table.position import LogId, Position

LOG = LogId("cluster", "topic-id", 3)


def outcome(offset: int, result: Result) -> Outcome:
    return Outcome(Position(LOG, offset, "topic"), "file:///t", result, f"u{offset}", "app", offset, "id")


REFUSED = {
    11: outcome(11, Duplicate(4)),
    13: outcome(
        13,
        Rejected(
            Conflict(
                retryable=True, message="why", other_version=6, fragment_ids=(1,), field_ids=(3,), keys=("k",)
            )
        ),
    ),
    20: outcome(20, Invalid("what", "do this")),
}
COMMITTED = {
    10: Committed(9, rebased=True, rows_added=6, first_fragment_id=17, num_fragment_ids=2),
    12: Committed(9, rows_added=0),
    15: Committed(9, rebased=True, rows_added=3, first_fragment_id=19, num_fragment_ids=1),
}
FULL = Record(LOG, "topic", 10, 20, COMMITTED, REFUSED, 8, 100, 200, (Batches("app", 3, 5, 2),), 7, 1)


def read(record: Record) -> Record | None:
    return decode_record({RECORD: encode_record(record), VERSION: "9"})


@pytest.mark.parametrize(
    "record",
    [
        FULL,
        replace(FULL, committed={}),
        replace(FULL, refused={}),
        replace(FULL, committed={}, refused={}, first_offset=10, last_offset=9, apps=()),
        replace(FULL, operation_of={10: "append", 12: "delete", 15: "append"}),
    ],
)
def test_a_record_reads_back_as_it_was_written(record: Record) -> None:
    assert read(record) == record


def test_an_entry_without_fragments_comes_first() -> None:
    """The fragment ids of those behind it are counted from the first that got any."""
    committed = {
        10: Committed(9),
        11: Committed(9, rows_added=3, first_fragment_id=40, num_fragment_ids=2),
        12: Committed(9, rows_added=3, first_fragment_id=42, num_fragment_ids=1),
    }
    record = replace(FULL, committed=committed, refused={})
    assert read(record) == record


def test_answers_are_found_by_offset() -> None:
    assert FULL.answer(10) == COMMITTED[10]
    assert FULL.answer(20) == Invalid("what", "do this")
    assert FULL.answer(14) is None
    assert position_at(FULL, 14) == Position(LOG, 14)


def test_what_entries_did_is_counted() -> None:
    """By the version if they all did the same; nothing if none was committed."""
    assert FULL.operations("append") == {"append": 3}
    assert replace(FULL, committed={}).operations("reserve_fragments") == {}
    mixed = replace(FULL, operation_of={10: "delete", 12: "append", 15: "append"})
    assert list(mixed.operations("update").items()) == [("delete", 1), ("append", 2)]


def test_the_same_record_gives_the_same_text() -> None:
    assert encode_record(FULL) == encode_record(replace(FULL))


def test_only_the_version_itself_is_its_own() -> None:
    properties = {RECORD: "", VERSION: "9"}
    assert is_own(properties, 9)
    assert not is_own(properties, 10)
    assert not is_own({VERSION: "9"}, 9)
    assert not is_own({RECORD: ""}, 9)
    assert decode_record({VERSION: "9"}) is None


def encoded(message: FoldRecord) -> str:
    return base64.b64encode(message.SerializeToString()).decode()


def mixed(operation_of: list[int]) -> str:
    """Two entries that did these of two things."""
    record = FoldRecord(committed_offsets=[0, 1], operations=["append", "delete"], operation_of=operation_of)
    record.num_fragment_ids[:] = record.rows_added[:] = [1, 0]
    record.rows_deleted[:], record.rebased[:] = [0, 1], [False, False]
    return encoded(record)


DAMAGED = {
    "no base64": "%%%",
    "half a byte": "A",
    "not ASCII": "ÄÄÄÄ",
    "no message": base64.b64encode(b"\xff\xff").decode(),
    "fewer rows": encoded(FoldRecord(committed_offsets=[0, 1], num_fragment_ids=[1], rebased=[True])),
    "offset twice": encoded(
        FoldRecord(
            committed_offsets=[0, 0],
            num_fragment_ids=[1, 1],
            rows_added=[1, 1],
            rows_deleted=[0, 0],
            rebased=[False, False],
        )
    ),
    "an operation too many": mixed([0, 1, 0]),
    "an operation too few": mixed([0]),
    "an operation without a name": mixed([0, 2]),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_record_that_cannot_be_read_is_damage(text: str) -> None:
    with pytest.raises(DamagedError, match="record of the log") as caught:
        decode_record({RECORD: text, VERSION: "9"}, "file:///t")
    assert caught.value.where == "file:///t"


@pytest.mark.parametrize("version", [None, "", "nine"])
def test_a_record_needs_the_version_it_is_of(version: str | None) -> None:
    properties = {RECORD: encode_record(FULL)} | ({} if version is None else {VERSION: version})
    with pytest.raises(DamagedError):
        decode_record(properties)


def test_an_outcome_without_result_is_damage() -> None:
    message = FoldRecord()
    message.refused.add(table="t")
    with pytest.raises(DamagedError):
        decode_record({RECORD: encoded(message), VERSION: "9"})
