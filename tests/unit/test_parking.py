"""A table that can't be worked on is parked: its entries keep their order, and other tables continue."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop import partition
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.loop.reporting import MOST_CHECKPOINTS, Checkpoints
from lakefold_committer.loop.table_queue import TableQueue
from lakefold_committer.loop.threads import Threads
from lakefold_committer.loop.waiting_entries import Offsets, Waiting
from lakefold_committer.observability.metrics import AWAY, Metrics
from lakefold_committer.tables.rebinding import publish_move
from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Outcome
from lakefold_table.errors import DamagedError, FencedError, NoMemoryError, RetryError, StopError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, parse_location
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, FORMATS, append, creation, entries
from tests.unit.test_partition import Log, Message, Reports, at, messages, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_table.errors import LakefoldError

LIMITS = Limits(100, 1 << 20)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


@dataclass
class Stamped(Reports):
    """Reports, and the offset that came with each."""

    kept_metadata: list[OffsetMetadata] = field(default_factory=list)
    notified: threading.Event = field(default_factory=threading.Event)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        assert next_offset == offset_metadata.low_watermark
        self.kept_metadata.append(offset_metadata)
        end = super().report(outcomes, dead_letters, next_offset, offset_metadata)
        self.notified.set()
        return end


@dataclass
class Trouble:
    """Opens tables, but not the table at `uri` until `errors` are used up."""

    uri: str
    errors: list[LakefoldError]
    before: Callable[[], object] = dict

    def open(self, uri: str, branch: str) -> TableWriter:
        if uri == self.uri:
            self.before()
            if self.errors:
                raise self.errors.pop(0)
        return opened(uri, branch)


def committer_of(
    log: Log,
    reports: Reports,
    trouble: Trouble,
    *,
    answered: Sequence[int] = (),
    metrics: Metrics | None = None,
) -> PartitionCommitter:
    tables = Tables(FORMATS, lambda _: None, trouble.open)
    return PartitionCommitter(
        log,  # type: ignore[arg-type]
        reports,
        tables,
        LoopLimits(LIMITS, 0.0),
        metrics or Metrics(),
        answered=answered,
    )


def two(tmp_path: Path) -> tuple[str, str]:
    return canonical(tmp_path / "one"), canonical(tmp_path / "two")


def offsets(reports: Reports) -> list[int]:
    return [outcome.position.offset for outcome in reports.outcomes]


def test_the_others_go_on_and_its_entries_keep_their_order(tmp_path: Path) -> None:
    bad, good = two(tmp_path)
    log = messages(
        [at(bad, creation()), at(good, creation()), at(bad, append("a"))],
        [at(good, append("b")), at(bad, append("c")), at(good, append("d"))],
    )
    reports = Stamped()
    # It is tried again only once the other table's last entry was reported.
    trouble = Trouble(bad, [RetryError("away")])
    trouble.before = lambda: None if trouble.errors else wait_for(reports, {1, 3, 5})
    committer = committer_of(log, reports, trouble)
    committer.run(threading.Event(), log.end_offset())
    assert [offset for offset in offsets(reports) if offset in (1, 3, 5)] == [1, 3, 5]
    assert [offset for offset in offsets(reports) if offset in (0, 2, 4)] == [0, 2, 4]
    assert offsets(reports)[:3] == [1, 3, 5]
    assert {type(outcome.result) for outcome in reports.outcomes} == {Committed}
    assert reports.kept_metadata[0].low_watermark == 0
    assert reports.kept_metadata[-1].low_watermark == 6
    assert committer.status().parked_tables == 0


@pytest.mark.parametrize(
    ("error", "what"),
    [(MemoryError(), "memory"), (NoMemoryError("short"), "memory"), (RetryError("away"), "store")],
    ids=lambda e: str(e) or "MemoryError",
)
def test_what_a_table_waits_for_is_counted(tmp_path: Path, error: Exception, what: str) -> None:
    uri = canonical(tmp_path / "t")
    log = messages([at(uri, creation())])
    errors = [error]

    def fail() -> None:
        if errors:
            raise errors.pop()

    metrics = Metrics()
    committer = committer_of(log, Stamped(), Trouble(uri, [], fail), metrics=metrics)
    committer.run(threading.Event(), log.end_offset())
    for text in AWAY:
        counted = metrics.registry.get_sample_value("lakefold_retries_total", {"what": text})
        assert counted == (text == what), text


def wait_for(reports: Stamped, wanted: set[int]) -> None:
    while not wanted <= set(offsets(reports)):
        assert reports.notified.wait(120)
        reports.notified.clear()


def test_what_was_answered_above_the_stamp_is_not_answered_again(tmp_path: Path) -> None:
    text, other = two(tmp_path)
    log = messages(
        [at(text, creation()), at(other, creation()), at(text, append("a")), at(other, append("b"))]
    )
    reports = Stamped()
    committer_of(log, reports, Trouble("", []), answered=[1]).run(threading.Event(), log.end_offset())
    assert sorted(offsets(reports)) == [0, 2, 3]
    assert not (tmp_path / "two").exists()


def test_until_caught_up_it_says_what_keeps_a_table(tmp_path: Path) -> None:
    bad, good = two(tmp_path)
    log = messages([at(bad, creation()), at(good, creation()), at(good, append("a"))])
    reports = Stamped()
    trouble = Trouble(bad, [DamagedError("broken", where=bad)] * 99)
    with pytest.raises(DamagedError, match="broken"):
        committer_of(log, reports, trouble).run(threading.Event(), log.end_offset())
    assert offsets(reports) == [1, 2]
    assert {metadata.low_watermark for metadata in reports.kept_metadata} == {0}


def test_a_fenced_committer_ends_at_once(tmp_path: Path) -> None:
    bad, good = two(tmp_path)
    log = messages([at(bad, creation())], [at(good, creation())])
    with pytest.raises(FencedError):
        committer_of(log, Stamped(), Trouble(bad, [FencedError("gone")])).run(threading.Event(), 2)


def test_an_unexpected_error_ends_it(tmp_path: Path) -> None:
    uri, _ = two(tmp_path)
    log = messages([at(uri, creation())])
    trouble = Trouble(uri, [], partial(dict[str, int]().__getitem__, "nothing"))
    with pytest.raises(KeyError, match="nothing"):
        committer_of(log, Stamped(), trouble).run(threading.Event(), 1)


def test_a_slow_table_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is given up when it fills the room of all; nothing of it is lost or turned round."""
    monkeypatch.setattr(partition, "SLOW_SECONDS", 0.0)
    slow, good = two(tmp_path)
    many = [at(slow, append(f"s{number}")) for number in range(2 * 4 * LIMITS.max_entries)]
    log = messages([at(slow, creation())], many, [at(good, creation())])
    reports = Stamped()
    trouble = Trouble(slow, [], lambda: wait_for(reports, {len(many) + 1}))
    committer_of(log, reports, trouble).run(threading.Event(), log.end_offset())
    assert offsets(reports) == [len(many) + 1, *range(len(many) + 1)]
    assert {type(outcome.result) for outcome in reports.outcomes} == {Committed}


def test_tables_are_closed_when_they_take_too_much_and_stay_ours(tmp_path: Path) -> None:
    text, other = two(tmp_path)
    log = messages([at(text, creation())], [at(other, creation())], [at(text, append("a"))])
    committer = committer_of(log, Stamped(), Trouble("", []))
    committer._pace = LoopLimits(LIMITS, 0.0, table_bytes=0)
    committer.run(threading.Event(), log.end_offset())
    assert not committer._queues
    assert opened(text, "").table.marks.epoch == 1


@dataclass
class OneByOne(Log):
    """A log whose next messages come when those before are answered."""

    answered: list[Outcome] = field(default_factory=list)

    def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
        return super().poll(max_messages, timeout_s) if len(self.answered) == self.position else []


def test_the_longest_unused_table_is_closed_first(tmp_path: Path) -> None:
    uris = [canonical(tmp_path / name) for name in "abc"]
    polls = messages(
        *([at(uri, creation())] for uri in uris), [at(uris[0], append("a", app="app", batch=1))]
    ).polls
    for closes in (False, True):
        reports = Stamped()
        log = OneByOne([*polls], answered=reports.outcomes)
        committer = committer_of(log, reports, Trouble("", []))
        size = opened(uris[0], "").table.state.memory_bytes if closes else 1 << 20  # type: ignore[union-attr]
        committer._pace = LoopLimits(LIMITS, 0.0, table_bytes=2 * size)
        committer.run(threading.Event(), log.end_offset())
        left = [*committer._queues.values()]
        assert [queue.uri for queue in left] == (
            [uris[2], uris[0]] if closes else [uris[1], uris[2], uris[0]]
        )
        assert committer.status().tables_open == len(left)
        assert committer.status().table_bytes == sum(
            queue.writer.memory_bytes for queue in left if queue.is_open
        )
        assert committer.status().apps == opened(uris[0], "").table.marks.app_counts
        assert committer.status().apps.whole == 1


@dataclass
class Meddling(OneByOne):
    """A log whose second message comes when the table is unreachable; after a wait the table is back."""

    take_away: Callable[[], object] = dict
    bring_back: Callable[[], object] = dict
    parked: Callable[[], int] = int

    def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
        if len(self.answered) == self.position == 1:
            self.take_away()
        elif self.parked():
            self.bring_back()
        return super().poll(max_messages, timeout_s)


def a_file(table: Path) -> None:
    table.write_text("something else")


def a_circle(table: Path) -> None:
    table.symlink_to(table)


def a_file_for_a_folder(table: Path) -> None:
    table.mkdir()
    (table / "_versions").write_text("something else")


@pytest.mark.parametrize("stands", [a_file, a_circle, a_file_for_a_folder])
def test_whatever_is_at_a_table_s_path_for_a_while_causes_no_refusal(
    tmp_path: Path, stands: Callable[[Path], None]
) -> None:
    table, away = tmp_path / "one", tmp_path / "away"
    uri = canonical(table)
    reports = Stamped()
    polls = messages([at(uri, creation())], [at(uri, append("a"))]).polls
    log = Meddling(polls, answered=reports.outcomes)
    committer = committer_of(log, reports, Trouble("", []))

    def take_away() -> None:
        table.rename(away)
        stands(table)

    def bring_back() -> None:
        if away.exists():
            table.rename(tmp_path / "stood there")
            away.rename(table)

    log.take_away, log.bring_back = take_away, bring_back
    log.parked = lambda: committer.status().parked_tables
    committer.run(threading.Event(), log.end_offset())
    assert [outcome.result for outcome in reports.outcomes] == [
        Committed(1),
        Committed(2, rows_added=3, num_fragment_ids=1),
    ]


def test_offsets_are_a_queue() -> None:
    queue, plain = Offsets(), list[int]()
    for number in range(20_000):
        queue.append(number * 3)
        plain.append(number * 3)
        if number % 7 == 0:
            assert queue.first == plain[0]
            queue.drop(2)
            del plain[:2]
            queue.put_before(plain[:0])
    assert len(queue) == len(plain)
    queue.put_before([-2, -1])
    assert [*queue.leading(4)] == [-2, -1, *plain[:2]]


def test_checkpoints_begin_where_no_answer_is_left_out() -> None:
    points = Checkpoints(100, highest_offset=7)
    assert points.before(3) == 100
    points.reported(2, 110)
    assert points.before(5) == 100
    points.reported(9, 120)
    points.reported(11, 130)
    assert points.before(8) == 110
    assert points.before(10) == 120
    assert points.before(99) == 130
    for number in range(3 * MOST_CHECKPOINTS):
        points.reported(100 + number, 200 + number)
    assert len(points._reports) <= MOST_CHECKPOINTS
    assert points.before(150) <= 250


def test_a_queue_gives_back_in_order() -> None:
    line = TableQueue(parse_location("memory://line/t"), "memory://line/t", "")
    for entry in entries([append(f"f{number}") for number in range(6)], 0):
        line.take(Waiting(Message(entry.position.offset, None, b""), entry))  # type: ignore[arg-type]
    assert line.first_offset == 0
    group, _ = line.cut(FORMATS, Limits(4, 1 << 20))
    assert [waiting.offset for waiting in group] == [0, 1, 2, 3]
    line.spill()
    assert (line.first_offset, len(line.backlog), line.in_memory.size) == (4, 2, 0)


def test_tasks_end_in_the_loop() -> None:
    threads, ended = Threads(), list[object]()
    threads.start(lambda: 1, ended.append)
    threads.start(partial(dict[str, int]().__getitem__, "nothing"), ended.append)
    while threads.running:
        threads.wait(5)
    assert 1 in ended
    assert any(isinstance(each, KeyError) for each in ended)
    assert not threads.wait(0)
    threads.close()


def unknown(uri: str, offset: int) -> Message:
    """A proposal of a kind that no release knows yet."""
    kindless = Envelope(table=uri).SerializeToString()
    return Message(offset, uri.encode(), kindless + b"\xa2\x06\x00")


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "detached"])
def test_an_unknown_kind_waits_only_while_its_table_follows_this_log(tmp_path: Path, *, waits: bool) -> None:
    uri, _ = two(tmp_path)
    committer_of(messages([at(uri, creation())]), Stamped(), Trouble("", [])).run(threading.Event(), 1)
    if not waits:
        storage = open_storage(uri)
        versions = Versions(storage, FORMAT.folder, FORMAT.detect)
        publish_move(
            StoredTable(FORMAT, versions),
            lambda table: Rebinding(RebindReason.DETACHED, table.marks.position, None, 0),
        )
    later = Message(2, uri.encode(), encode(at(uri, append("a"))))
    log = Log([[unknown(uri, 1), later]], position=1)
    reports = Stamped()
    committer = committer_of(log, reports, Trouble("", []))
    if waits:
        with pytest.raises(StopError, match="doesn't know"):
            committer.run(threading.Event(), 3)
        assert offsets(reports) == []
    else:
        committer.run(threading.Event(), 3)
        assert offsets(reports) == [1, 2]
        assert all("detached" in str(outcome.result) for outcome in reports.outcomes)


def test_any_number_of_an_unknown_kind_is_refused_at_once(tmp_path: Path) -> None:
    """Their table is bound to no log, so none of them waits."""
    uri, _ = two(tmp_path)
    committer_of(messages([at(uri, creation())]), Stamped(), Trouble("", [])).run(threading.Event(), 1)
    versions = Versions(open_storage(uri), FORMAT.folder, FORMAT.detect)
    publish_move(
        StoredTable(FORMAT, versions),
        lambda table: Rebinding(RebindReason.DETACHED, table.marks.position, None, 0),
    )
    sent = [unknown(uri, offset) for offset in range(1, 2_000)]
    reports = Stamped()
    committer_of(Log([sent], position=1), reports, Trouble("", [])).run(threading.Event(), 2_000)
    assert offsets(reports) == [*range(1, 2_000)]


def test_an_unknown_kind_for_no_place_at_all_waits_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("no folder")
    uri, _ = two(tmp_path)
    reports = Stamped()
    committer_of(Log([[unknown(uri, 0)]]), reports, Trouble("", [])).run(threading.Event(), 1)
    assert [type(outcome.result) for outcome in reports.outcomes] == [Invalid]
