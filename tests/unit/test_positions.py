"""A log position names the oldest version that counts it as folded, with versions of others in between."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.binding import LossOverride
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.rebinding import publish_move
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.as_json import plain_history, plain_position
from lakefold_reader.formats import open_source, source_on
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.snapshot.snapshot import open_table
from lakefold_reader.tail.tail import tail
from lakefold_reader.versions.at_position import version_at_position
from lakefold_reader.versions.positions import position_query
from lakefold_table.entry import Outcome
from lakefold_table.errors import InvalidError, NotFoldedYetError, RetryError, VersionExpiredError
from lakefold_table.marks.marks import Rebinding, RebindReason, describe_position
from lakefold_table.marks.outcome_messages import outcome_message
from lakefold_table.position import LogId, Position
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FILE, FORMAT, LOG, START_US, append, changed, creation, fold_at, opened, versions_at
from tests.foreign import commit, roll_back, wipe
from tests.memory_storage import MemoryStorage
from tests.tables import Recording

AGAIN = replace(LOG, topic_id="made again")
OTHER = replace(LOG, partition=3)
TOPIC = "transactions"
NAME = "positions"
NUMBERS = count()


@pytest.fixture
def uri() -> Iterator[str]:
    yield f"memory://{NAME}/t"
    MemoryStorage.forget(NAME)


def to(uri: str, envelope: Envelope) -> Envelope:
    return changed(envelope, lambda envelope: setattr(envelope, "table", uri))


def fold(table: TableWriter, *offsets: int, log: LogId = LOG) -> list[Outcome]:
    """A version of appends at consecutive offsets; the first of all creates the table."""
    made = [
        creation() if table.table.state is None and number == 0 else append(f"f{next(NUMBERS)}", read=1)
        for number in range(len(offsets))
    ]
    return fold_at(table, [to(table.table.uri, envelope) for envelope in made], offsets[0], log)


def begun(uri: str) -> TableWriter:
    """Versions 1 to 3, which hold offsets 0, 1 to 3, and 7; 4 to 6 are another table's."""
    table = opened(uri)
    fold(table, 0)
    fold(table, 1, 2, 3)
    fold(table, 7)
    return table


def at(uri: str, position: object) -> int:
    return version_at_position(open_source(uri), position)


def clean_up(uri: str, *numbers: int) -> None:
    for number in numbers:
        MemoryStorage(uri).delete(versions_at(uri).path(number))


def metadata_of(uri: str, version: int) -> dict[str, str]:
    return dict(StoredTable(FORMAT, versions_at(uri)).read_state(version).metadata)


def test_the_oldest_version_that_holds_it(uri: str) -> None:
    begun(uri)
    assert [at(uri, offset) for offset in range(8)] == [1, 2, 2, 2, 3, 3, 3, 3]
    assert open_table(uri, at_position=2).version == 2


def test_every_way_to_name_it(uri: str) -> None:
    begun(uri)
    position = Position(LOG, 2, TOPIC)
    rows = list(history_of(open_source(uri)))
    outcome = Outcome(position, uri, fold(opened(uri), 9)[0].result)
    names: list[object] = [
        2,
        "2",
        " 2 ",
        position,
        str(position),
        str(replace(position, topic="")),
        f"{LOG.cluster_id}/{TOPIC}/0@2",
        f"{TOPIC}/0@1-2",
        describe_position(position),
        plain_position(position),
        json.dumps(plain_position(position)),
        json.dumps({"cluster_id": LOG.cluster_id, "topic_id": LOG.topic_id, "partition": 0, "offset": "2"}),
        {"topic": TOPIC, "offset": 2},
        plain_history(rows[1]),
        rows[1],
        rows[1].positions,
        outcome,
        outcome_message(outcome).position,
        outcome_message(outcome),
        next(change for change in tail(uri, 1, follow=False) if change.version == 2),
    ]
    assert [at(uri, method) for method in names] == [2] * len(names)


@pytest.mark.parametrize(
    "given",
    [
        "x",
        "",
        "1.5",
        "topic@1",
        "topic/0",
        "topic/0@-1",
        "{",
        "[1]",
        "{}",
        '{"offset": "x"}',
        "٣",
        '{"a":' * 9999,
    ],
)
def test_a_text_that_names_none(uri: str, given: str) -> None:
    begun(uri)
    with pytest.raises(InvalidError, match="not a position of a log"):
        at(uri, given)


@pytest.mark.parametrize("given", [-1, Position(LOG, -1), True, 1.0, object(), b"1", {"offset": True}, []])
def test_a_value_that_names_none(uri: str, given: object) -> None:
    begun(uri)
    with pytest.raises(InvalidError, match=r"not a position of a log|0 or more"):
        at(uri, given)


def test_a_position_that_is_still_to_come(uri: str) -> None:
    begun(uri)
    with pytest.raises(NotFoldedYetError, match=r"offset 8 isn't folded yet: .*transactions/0@7") as caught:
        at(uri, 8)
    assert caught.value.newest == Position(LOG, 7)
    assert isinstance(caught.value, RetryError)


def test_a_log_that_the_table_does_not_know(uri: str) -> None:
    begun(uri)
    for position in (Position(AGAIN, 1), f"{TOPIC}/1@1", "other/0@1", {"cluster_id": "x", "offset": 1}):
        with pytest.raises(
            InvalidError, match=r"in no log of this table .*transactions/0@7 \(topic id topic-id"
        ):
            at(uri, position)


def test_a_table_that_no_committer_has_written(uri: str) -> None:
    begun(uri)
    clean_up(uri, 1, 2)
    commit(uri, change=wipe)
    clean_up(uri, 3)
    with pytest.raises(InvalidError, match="none of the existing versions was made by a committer"):
        at(uri, 1)


def test_it_names_a_version_alone(uri: str) -> None:
    begun(uri)
    with pytest.raises(InvalidError, match="version and at_position both name a version"):
        open_table(uri, 1, at_position=1)
    with pytest.raises(InvalidError, match="tag and at_position both name a version"):
        open_table(uri, tag="x", at_position=1)


def test_versions_that_were_cleaned_up(uri: str) -> None:
    begun(uri)
    clean_up(uri, 1)
    assert [at(uri, offset) for offset in (1, 3, 4, 7)] == [2, 2, 3, 3]
    with pytest.raises(VersionExpiredError, match=r"first held transactions/0@0 is gone") as caught:
        at(uri, 0)
    assert caught.value.oldest == 2
    clean_up(uri, 2)
    assert at(uri, 7) == 3
    with pytest.raises(VersionExpiredError):
        at(uri, 5)


def moved(uri: str, why: RebindReason, after: Position | None) -> None:
    publish_move(
        StoredTable(FORMAT, versions_at(uri)),
        lambda table: Rebinding(why, table.marks.position, after, START_US),
    )


def test_a_table_that_was_bound_to_another_log(uri: str) -> None:
    begun(uri)
    moved(uri, RebindReason.REBOUND, Position(OTHER, 99, TOPIC))
    fold(opened(uri), 100, log=OTHER)
    assert [at(uri, Position(LOG, offset)) for offset in (0, 3, 7)] == [1, 2, 3]
    assert [at(uri, f"{TOPIC}/0@{offset}") for offset in (0, 3, 7)] == [1, 2, 3]
    assert [at(uri, offset) for offset in (98, 99, 100)] == [4, 4, 5]
    with pytest.raises(InvalidError, match=r"never folded: the table left that log at transactions/0@7"):
        at(uri, Position(LOG, 8))
    moved(uri, RebindReason.DETACHED, None)
    assert at(uri, Position(OTHER, 100)) == 5
    with pytest.raises(InvalidError, match="offset 1 may be in several logs of this table"):
        at(uri, 1)


def test_a_topic_that_was_made_again(uri: str) -> None:
    begun(uri)
    accepting = RecoveryContext(
        AGAIN, lambda: 100, 0, LossOverride(AGAIN, TOPIC, 0, lambda _uri, before: before)
    )
    table = TableWriter(StoredTable(FORMAT, versions_at(uri)), check_sizes=False, recovery=accepting)
    fold(table, 0, 1, log=AGAIN)
    assert [at(uri, Position(log, 1)) for log in (LOG, AGAIN)] == [2, 4]
    assert at(uri, 1) == 4
    with pytest.raises(InvalidError, match=r"may be in several logs .*made again.*topic-id"):
        at(uri, f"{TOPIC}/0@1")


def test_offsets_that_were_given_out_twice(uri: str) -> None:
    begun(uri)
    moved(uri, RebindReason.LOST, Position(LOG, 2, TOPIC))
    fold(opened(uri), 3, 4)
    assert [at(uri, offset) for offset in range(3)] == [1, 2, 2]
    for offset in (3, 7):
        with pytest.raises(InvalidError, match=f"offsets 3 to 7 were lost and assigned again: {offset} may"):
            at(uri, offset)
    fold(opened(uri), 8, 9)
    assert at(uri, 9) == 6
    with pytest.raises(NotFoldedYetError, match="is at transactions/0@9"):
        at(uri, 10)


def test_a_log_in_a_file(uri: str) -> None:
    table = opened(uri)
    fold(table, 0, log=FILE)
    fold(table, 1, 2, log=FILE)
    assert [at(uri, offset) for offset in range(3)] == [1, 2, 2]
    with pytest.raises(NotFoldedYetError):
        at(uri, 3)
    moved(uri, RebindReason.ADOPTED, Position(LOG, -1, TOPIC))
    fold(opened(uri), 0)
    assert at(uri, 0) == 4
    assert at(uri, Position(FILE, 2)) == at(uri, f"{FILE.topic_id}/0@2") == 2
    assert at(uri, f"file log {FILE.topic_id}@2") == 2


def test_heads_are_read_by_halving_and_nothing_else(uri: str) -> None:
    table = opened(uri)
    for offset in range(200):
        fold(table, offset * 2)
    for offset in (0, 1, 57, 200, 397, 398):
        storage = Recording(MemoryStorage(uri))
        assert version_at_position(source_on(storage), offset) == (offset + 1) // 2 + 1
        reads = [call for call in storage.calls if call not in ("uri", "size")]
        assert reads.count("list") == 1
        # The newest is read for its head, and whole for its marks.
        assert len(reads) <= 1 + 2 + 9


@dataclass
class History:
    """A table and, for each version that a committer made, the log and the offsets that it answered."""

    uri: str
    own: dict[int, tuple[LogId, int, int]] = field(default_factory=dict)
    next_offset: dict[LogId, int] = field(default_factory=dict)
    log: LogId = LOG

    def expected(self, log: LogId, offset: int, left: list[int]) -> int | None:
        """The expected version, found by reading each in turn. Returns None if it was cleaned up."""
        seen: dict[LogId, int] = {}
        for version, (of, first, last) in sorted(self.own.items()):
            before, seen[of] = seen.get(of, -1), last
            if of == log and before < offset <= last:
                answered = first <= offset
                older = [number for number in self.own if number < version and number in left]
                return version if version in left and (answered or older or 1 in left) else None
        return None


ACTS = st.one_of(
    st.tuples(st.just("fold"), st.integers(0, 4), st.integers(1, 4)),
    st.tuples(st.sampled_from(["carry", "wipe", "back"]), st.integers(1, 6), st.integers(1, 5)),
    st.tuples(st.just("move"), st.integers(0, 3), st.just(0)),
)


@settings(deadline=None)
@given(acts=st.lists(ACTS, max_size=14), cleaned=st.integers(0, 8))
def test_it_is_the_version_that_looking_at_each_would_find(acts: list[Any], cleaned: int) -> None:
    uri = f"memory://{NAME}/t"
    MemoryStorage.forget(NAME)
    table = opened(uri)
    fold(table, 0)
    history = History(uri, {1: (LOG, 0, 0)}, {LOG: 1})
    for act in acts:
        play(history, *act)
    left = versions_at(uri).numbers()
    newest_own = max(history.own)
    gone = [number for number in left[:cleaned] if number < newest_own]
    clean_up(uri, *gone)
    left = left[len(gone) :]
    for log, end in history.next_offset.items():
        for offset in range(end):
            wanted = history.expected(log, offset, left)
            if wanted is None:
                with pytest.raises(VersionExpiredError):
                    at(uri, Position(log, offset))
            else:
                assert at(uri, Position(log, offset)) == wanted
    MemoryStorage.forget(NAME)


def play(history: History, act: str, some: int, more: int) -> None:
    uri = history.uri
    if act == "fold":
        first = history.next_offset[history.log] + some
        table = opened(uri)
        fold(table, *range(first, first + more), log=history.log)
        history.own[versions_at(uri).latest()] = (history.log, first, first + more - 1)
        history.next_offset[history.log] = first + more
    elif act == "move":
        to_log = replace(LOG, partition=LOG.partition + some)
        if to_log == history.log:
            return
        last = history.next_offset.setdefault(to_log, 0) - 1
        moved(uri, RebindReason.REBOUND, Position(to_log, last, TOPIC))
        history.log = to_log
        history.own[versions_at(uri).latest()] = (to_log, last + 1, last)
    else:
        older = sorted(history.own)[-some:][0]
        change = {"carry": None, "wipe": wipe, "back": roll_back(metadata_of(uri, older))}[act]
        for _ in range(more):
            commit(uri, "restore" if act == "back" else "delete", change=change, metadata=act == "wipe")


def test_a_requested_position_has_a_short_text() -> None:
    assert str(position_query(5)) == "offset 5"
    assert str(position_query(Position(LOG, 5, TOPIC))) == "topic-id/0@5"
    assert str(position_query("t/1@5")) == "t/1@5"
    assert str(position_query({"topic": "t", "offset": 5})) == "t/any@5"
