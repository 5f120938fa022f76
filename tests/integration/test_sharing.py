"""Committers that share the partitions: whichever comes, goes, dies or sleeps, nothing is lost or doubled."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka.admin import NewPartitions

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed
from lakefold_table.uri import canonical
from tests.integration.committers import CommitterProcess, running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import patient_admin
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from lakefold_table.position import Position
    from tests.integration.conftest import TopicNames

PARTITIONS = 4
SESSION_SECONDS = 6.0
"""The shortest session that a broker grants by its defaults."""
PATIENCE_SECONDS = 120.0
LONG_SESSION_MS = 400_000
"""So long that nothing is waited for until such a session runs out: that would take too long."""
LONG = (
    *("--kafka", f"session.timeout.ms={LONG_SESSION_MS}"),
    *("--kafka", f"max.poll.interval.ms={LONG_SESSION_MS}"),
)
OWNED = re.compile(r'^lakefold_lag_entries\{partition="(\d+)"\}', re.MULTILINE)


class Bench:
    """Topics with several partitions, a table in each, committers that share them, and what was sent."""

    def __init__(self, bootstrap: str, names: TopicNames, root: Path, partitions: int = PARTITIONS) -> None:
        self.config = KafkaConfig(bootstrap)
        self.topics = Topics(names.transactions, names.outcomes, names.dead_letters)
        self.sent: dict[int, list[Position]] = {}
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._names = names
        self._root = root
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        ensure_topics(patient_admin(self.config), self.topics, partitions=self._partitions)
        self.proposer = self._stack.enter_context(Proposer(self.config, self.topics))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, *extra: str) -> CommitterProcess:
        """A committer process that goes with the bench."""
        return self._stack.enter_context(running_committer(self._bootstrap, self._names, self._root, *extra))

    def join(self, *extra: str) -> CommitterProcess:
        """A committer that shares the partitions."""
        quick = ["--kafka", f"session.timeout.ms={SESSION_SECONDS * 1000:.0f}"]
        quick += ["--kafka", "topic.metadata.refresh.interval.ms=1000"]
        return self.start("--partitions", "shared", *quick, *extra)

    def table(self, partition: int, partitions: int = PARTITIONS) -> str:
        """The URI of a table whose proposals go to this partition."""
        names = (canonical(str(self._root / f"table-{number}")) for number in range(1000))
        return next(uri for uri in names if partition_of(uri, partitions) == partition)

    def create(self, *partitions: int) -> None:
        """Proposes a table for each of them."""
        for partition in partitions:
            self._note(self.proposer.send_wait(creation(self.table(partition))))

    def append(self, partition: int, batch: int) -> Position:
        """Proposes a batch of a single row."""
        uri = self.table(partition)
        position = self.proposer.send_wait(append(uri, rows([batch]), 1, "app", batch))
        self._note(position)
        return position

    def answered(self, partition: int) -> Counter[Position]:
        """How often each position of it was answered."""
        actual = read_outcomes(patient_admin(self.config), self.topics, partition, 0)
        return Counter(outcome.position for _, outcome in actual)

    def wait_for(self, *positions: Position) -> None:
        """Waits until all of these are answered."""
        waiting = list(positions)

        def answered() -> bool:
            while waiting and waiting[0] in self.answered(waiting[0].log.partition):
                del waiting[0]
            return not waiting

        until(answered, f"answers to {positions}", seconds=PATIENCE_SECONDS, every=0.1)

    def check(self) -> None:
        """Each position has one answer, all of them were committed, and no row is lost or doubled."""
        for partition, sent in self.sent.items():
            self.wait_for(sent[-1])
            outcomes = [
                outcome for _, outcome in read_outcomes(patient_admin(self.config), self.topics, partition, 0)
            ]
            assert [outcome.position for outcome in outcomes] == sent
            assert {type(outcome.result) for outcome in outcomes} == {Committed}
            assert ids_in(self.table(partition)) == list(range(len(sent) - 1))

    def _note(self, position: Position) -> None:
        self.sent.setdefault(position.log.partition, []).append(position)


class Writer(threading.Thread):
    """Appends to every table of the bench, in turn, until it is stopped."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(name="writer")
        self._bench = bench
        self._over = threading.Event()
        self.batches = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Sends a row to each table, repeatedly."""
        try:
            while not self._over.wait(0.2):
                for partition in range(PARTITIONS):
                    self._bench.append(partition, self.batches)
                self.batches += 1
        except BaseException as error:
            self.error = error
            raise

    def write_some(self) -> None:
        """Waits until a few more batches are sent."""
        batches = self.batches
        until(lambda: self.batches > batches + 2, "some batches")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()
        assert self.error is None
        assert self.batches


@pytest.fixture
def bench(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[Bench]:
    with Bench(bootstrap, topic_names, tmp_path) as made:
        yield made


def owned(committer: CommitterProcess) -> set[int]:
    """The partitions that it folds."""
    return {int(number) for number in OWNED.findall(committer.get("/metrics")[1])}


def roles(committers: list[CommitterProcess]) -> list[str]:
    """What `/readyz` says of each, sorted."""
    return sorted(committer.get("/readyz")[1].strip() for committer in committers)


def until_owned(*shares: tuple[CommitterProcess, int]) -> None:
    """Waits until each folds so many partitions, and no two the same."""

    def settled() -> bool:
        parts = [owned(committer) for committer, _ in shares]
        whole = set().union(*parts)
        return [len(part) for part in parts] == [count for _, count in shares] and len(whole) == sum(
            map(len, parts)
        )

    until(settled, f"{[count for _, count in shares]} partitions", seconds=PATIENCE_SECONDS, every=0.1)


def test_one_that_sleeps_does_no_harm_and_joins_again_and_one_that_is_killed_is_replaced(
    bench: Bench,
) -> None:
    first, second = bench.join(), bench.join()
    until_owned((first, 2), (second, 2))
    bench.create(*range(PARTITIONS))
    bench.wait_for(*(sent[0] for sent in bench.sent.values()))
    with Writer(bench) as writer:
        writer.write_some()
        second.process.send_signal(signal.SIGSTOP)
        until_owned((first, PARTITIONS))
        writer.write_some()
        second.process.send_signal(signal.SIGCONT)
        until(
            lambda: '"event": "partitions lost"' in second.log.read_text(), "the sleeper to see what it lost"
        )
        until_owned((first, 2), (second, 2))
        writer.write_some()
        second.kill()
        until_owned((first, PARTITIONS))
    bench.check()
    assert first.stop() == 0


def test_a_committer_that_starts_and_one_that_stops_hand_over_while_writers_write(bench: Bench) -> None:
    """On a machine at rest in about a second; on a busy machine still before a session runs out."""
    first = bench.join(*LONG)
    until_owned((first, PARTITIONS))
    bench.create(*range(PARTITIONS))
    bench.wait_for(*(sent[0] for sent in bench.sent.values()))
    with Writer(bench) as writer:
        second = bench.join(*LONG)
        until_owned((first, 2), (second, 2))
        writer.write_some()
        assert first.stop() == 0
        until_owned((second, PARTITIONS))
    bench.check()


def test_one_that_is_killed_and_started_again_under_its_name_continues_and_two_of_one_name_do_not(
    bench: Bench,
) -> None:
    def named(name: str) -> list[str]:
        return [*LONG, "--kafka", f"group.instance.id={name}"]

    first, second = bench.join(*named("a")), bench.join(*named("b"))
    until_owned((first, 2), (second, 2))
    bench.create(*range(PARTITIONS))
    bench.wait_for(*(sent[0] for sent in bench.sent.values()))
    with Writer(bench) as writer:
        second.kill()
        second = bench.join(*named("b"))
        until_owned((first, 2), (second, 2))
        writer.write_some()
        assert first.stop() == 0
        until_owned((second, PARTITIONS))
        third = bench.join(*named("b"))
        assert second.process.wait(120) == 5
        until_owned((third, PARTITIONS))
    bench.check()
    assert third.stop() == 0


def test_a_committer_without_partitions_stands_by_and_new_partitions_are_noticed(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    with Bench(bootstrap, topic_names, tmp_path, partitions=1) as bench:
        both = [bench.join() for _ in range(2)]
        until(
            lambda: roles(both) == ["ready", "standby"],
            "one that folds and one that stands by",
            seconds=PATIENCE_SECONDS,
        )
        client = patient_admin(bench.config).client
        for topic in (bench.topics.outcomes, bench.topics.transactions):
            client.create_partitions([NewPartitions(topic, 2)])[topic].result()
        until_owned(*((committer, 1) for committer in both))
        until(lambda: roles(both) == ["ready", "ready"], "two that fold", seconds=PATIENCE_SECONDS)


def test_a_committer_in_another_folder_does_not_share_the_partitions(
    bench: Bench, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """It would answer the proposals to tables of the others with Invalid."""
    first = bench.join()
    until_owned((first, PARTITIONS))
    topics = ["--transactions-topic", topic_names.transactions, "--outcomes-topic", topic_names.outcomes]
    topics += ["--dead-letters-topic", topic_names.dead_letters, "--group", topic_names.group]
    call = ["committer", "--bootstrap-servers", bootstrap, "--http-port", "0", *topics]
    ended = command_line().run(call, timeout=PATIENCE_SECONDS)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert "folds the tables below other roots" in ended.stderr
    assert "--root" in ended.stderr
    assert owned(first) == set(range(PARTITIONS))
    chosen = bench.start("--partitions", "shared", "--root", (tmp_path / "elsewhere").as_uri())
    chosen.wait_until_ready()
    assert "folds the tables below other roots" in chosen.log.read_text()


def test_ordinals_divide_the_partitions_and_one_too_many_stands_by(bench: Bench) -> None:
    several = [bench.start("--partitions", "ordinal/5", "--ordinal", str(number)) for number in (0, 3, 4)]
    until(
        lambda: [owned(committer) for committer in several] == [{0}, {3}, set()],
        "a part each",
        seconds=PATIENCE_SECONDS,
        every=0.1,
    )
    until(lambda: roles(several) == ["ready", "ready", "standby"], "two that fold", seconds=PATIENCE_SECONDS)
    assert [committer.stop() for committer in several] == [0, 0, 0]


def test_what_somebody_else_takes_over_is_left_to_it_and_taken_back_later(bench: Bench) -> None:
    # A partition that was taken over is left alone for one and a half sessions: long enough to be seen.
    sharing = bench.join("--kafka", "session.timeout.ms=15000")
    until_owned((sharing, PARTITIONS))
    bench.create(0, 1)
    bench.wait_for(*(sent[0] for sent in bench.sent.values()))
    foreign = bench.start("--partitions", "1")
    foreign.wait_until_ready()
    bench.wait_for(bench.append(0, 0), bench.append(1, 0))
    # It notices when it reports what it folded as well.
    until(
        lambda: owned(sharing) == {0, 2, 3} and sharing.get("/readyz")[0] == 503,
        "the others",
        seconds=PATIENCE_SECONDS,
    )
    until_owned((sharing, PARTITIONS))
    bench.append(1, 1)
    assert foreign.process.wait(120) == 5
    bench.check()
    assert sharing.stop() == 0
