"""A partition, from messages to outcomes, without a broker: which tables are kept, and by what name."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.loop.threads import Threads
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import encode
from lakefold_table.branch_names import branch_root
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome
from lakefold_table.position import LogId
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, parse_location
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, FORMATS, append, changed, creation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.marks.owner import Owner

LOG = LogId("cluster", "topic-id", 0)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log lines go nowhere, wherever a test before sent them."""
    with capture_logs():
        yield


@dataclass
class Message:
    """A message as the log gives it."""

    offset: int
    key: bytes | None
    value: bytes
    time_us: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None


@dataclass
class Log:
    """A partition that hands out its messages some at a time."""

    polls: list[list[Message]]
    log: LogId = LOG
    topic: str = "transactions"
    position: int = 0
    connected: bool = True
    given: dict[int, Message] = field(default_factory=dict)

    def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
        del max_messages, timeout_s
        messages = self.polls.pop(0) if self.polls else []
        self.position += len(messages)
        self.given.update((message.offset, message) for message in messages)
        return messages

    def confirm_messages(self) -> None:
        pass

    def end_offset(self) -> int:
        return self.position + sum(map(len, self.polls))

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        del max_bytes
        return [self.given[offset] for offset in offsets]


@dataclass
class Reports:
    """Where outcomes go."""

    outcomes_offset: int = 0
    owner: Owner | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        del dead_letters, next_offset, offset_metadata
        self.outcomes += outcomes
        self.outcomes_offset = len(self.outcomes)
        return self.outcomes_offset


def messages(*polls: Sequence[Envelope]) -> Log:
    """A log of these envelopes, which come in these portions."""
    made: list[list[Message]] = []
    for envelopes in polls:
        first = sum(map(len, made))
        made.append(
            [
                Message(first + number, envelope.table.encode(), encode(envelope))
                for number, envelope in enumerate(envelopes)
            ]
        )
    return Log(made)


def opened(uri: str, branch: str) -> TableWriter:
    """A branch of a table on the local disk, whose data files are not checked."""
    uri = f"{uri}/{branch_root(branch)}" if branch else uri
    storage = open_storage(uri)
    return TableWriter(
        StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)), check_sizes=False
    )


def folded(log: Log) -> tuple[list[Outcome], PartitionCommitter]:
    """All outcomes, in the order of the log, and who folded it."""
    reports = Reports()
    tables = Tables(FORMATS, lambda _: None, opened)
    committer = PartitionCommitter(log, reports, tables, LoopLimits(Limits(100, 1 << 20), 0.0), Metrics())  # type: ignore[arg-type]
    committer.run(threading.Event(), log.end_offset())
    return sorted(reports.outcomes, key=lambda outcome: outcome.position.offset), committer


def at(uri: str, envelope: Envelope) -> Envelope:
    """The proposal for another table."""
    return changed(envelope, lambda envelope: setattr(envelope, "table", uri))


def test_two_spellings_of_one_table_are_folded_as_one(tmp_path: Path) -> None:
    plain = canonical(tmp_path / "table")
    encoded = f"{plain[:-1]}%65"
    assert canonical(encoded) == encoded
    assert parse_location(encoded) == parse_location(plain)
    log = messages(
        [at(plain, creation())],
        [at(plain, append("a")), at(encoded, append("b")), at(plain, append("c"))],
        [at(encoded, append("a")), at(plain, append("d"))],
    )
    outcomes, _ = folded(log)
    assert [outcome.position.offset for outcome in outcomes] == list(range(6))
    kinds = [type(outcome.result) for outcome in outcomes]
    assert kinds == [Committed, Committed, Committed, Committed, Duplicate, Committed]
    assert [outcome.table for outcome in outcomes] == [plain, plain, encoded, plain, encoded, plain]


def test_tables_that_are_not_there_are_not_kept(tmp_path: Path) -> None:
    uri, nowhere = canonical(tmp_path / "table"), [canonical(tmp_path / f"no-{n}") for n in range(50)]
    log = messages(
        [at(uri, creation()), *(at(uri, append()) for uri in nowhere)],
        [at(uri, append("x")), at(nowhere[0], creation())],
    )
    outcomes, committer = folded(log)
    assert [type(outcome.result) for outcome in outcomes] == [
        Committed,
        *[Invalid] * 50,
        Committed,
        Committed,
    ]
    assert committer._queues.keys() == {parse_location(uri), parse_location(nowhere[0])}


def on(branch: str, envelope: Envelope) -> Envelope:
    """The proposal for a branch."""
    return changed(envelope, lambda envelope: setattr(envelope, "branch", branch))


def test_each_branch_has_versions_of_its_own(tmp_path: Path) -> None:
    main = canonical(tmp_path / "table")
    branch = f"{main}/tree/team/a"
    # No table is created inside another table, so the branch is made elsewhere and moved.
    folded(messages([at(main, creation())]))
    folded(messages([at(canonical(tmp_path / "made"), creation(uuid="the branch"))]))
    (tmp_path / "table" / "tree" / "team").mkdir(parents=True)
    (tmp_path / "made").rename(tmp_path / "table" / "tree" / "team" / "a")
    log = messages(
        [at(main, creation())],
        [at(main, append("a")), on("team/a", at(main, append("b"))), at(branch, append("c"))],
    )
    log.position = len(log.polls.pop(0))
    outcomes, committer = folded(log)
    results = [outcome.result for outcome in outcomes]
    assert [committed.version for committed in results if isinstance(committed, Committed)] == [2, 2, 2]
    assert [outcome.branch for outcome in outcomes] == ["", "team/a", ""]
    assert committer._queues.keys() == {parse_location(main), parse_location(branch)}
    assert committer._queues[parse_location(branch)].writer.table.marks.version == 2


@pytest.mark.parametrize("branch", ["../x", "main", "a//b", "x.lock", "b" * 1000])
def test_what_no_branch_can_be_called(tmp_path: Path, branch: str) -> None:
    main = canonical(tmp_path / "table")
    outcomes, _ = folded(messages([at(main, creation()), on(branch, at(main, append()))]))
    assert [type(outcome.result) for outcome in outcomes] == [Committed, Invalid]
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_a_branch_is_not_begun_by_an_overwrite(tmp_path: Path) -> None:
    main = canonical(tmp_path / "table")
    begun = on("b", at(main, creation(uuid="b")))
    outcomes, _ = folded(messages([at(main, creation()), begun, on("b", at(main, append()))]))
    assert [type(outcome.result) for outcome in outcomes] == [Committed, Invalid, Invalid]
    assert not (tmp_path / "table" / "tree").exists()


class AheadThreads(Threads):
    """Threads with a clock that can be put ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.parametrize(("hours", "reports"), [(23.0, 0), (25.0, 1)])
def test_a_quiet_partition_commits_its_offset_daily(hours: float, reports: int) -> None:
    """So that the brokers don't forget it."""
    runtime, stop, made = AheadThreads(), threading.Event(), []

    class Quiet(Log):
        polled = 0

        def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
            self.polled += 1
            runtime.ahead = hours * 3600.0
            if self.polled == 5:
                stop.set()
            return super().poll(max_messages, timeout_s)

    class Counted(Reports):
        def report(
            self,
            outcomes: Sequence[Outcome],
            dead_letters: Sequence[RefusedMessage],
            next_offset: int,
            offset_metadata: OffsetMetadata,
        ) -> int:
            if not stop.is_set():
                made.append((tuple(outcomes), next_offset))
            return super().report(outcomes, dead_letters, next_offset, offset_metadata)

    tables = Tables(FORMATS, lambda _: None, opened)
    committer = PartitionCommitter(
        Quiet([], position=7),  # type: ignore[arg-type]
        Counted(),
        tables,
        LoopLimits(Limits(100, 1 << 20), 0.0),
        Metrics(),
        runtime=runtime,
    )
    committer.run(stop, None)
    assert made == [((), 7)] * reports
