"""Each proposal counts once, after any faults of committers and brokers: real processes, then the audit."""

from __future__ import annotations

import random
import signal
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakefold_log.client.topics import ensure_topics
from lakefold_log.write.producer import Proposer
from lakefold_table.marks.marks import RULES
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.ledger import Ledger, Writer, published_by
from tests.integration.own_log import patient_admin
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold.local.broker import Broker
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

SEED = 20_260_105
VERSIONS = 4
LEAVING_SECONDS = 120
PAUSES = 2
ROUNDS = 3
ALONE_SECONDS = 0.7
"""How long rivals are left alone, on average, before one is killed."""
OLD_RELEASE = "import lakefold_table.marks.marks as m; m.RULES -= 1; from lakefold.cli import main; main()"
"""A committer of the release before this one, as far as its rules' number goes."""


HALF_REPORTED = """
import os
from lakefold.cli import main
from lakefold_log.write.transactional_producer import Session
from tests.integration.markers import mark_committed, open_transactions
commit, reports = Session.commit, []
def dying(session):
    topic, _, partition = session._where.rpartition("/")
    session._producer.flush(120)
    found = open_transactions("{bootstrap}", topic, 0)
    reports.extend(found)
    if len(reports) < {reports}:
        return commit(session)
    for one in found:
        mark_committed("{bootstrap}", one, "__consumer_offsets", 0)
    os._exit(9)
Session.commit = dying
main()
"""
"""A committer that dies in a report with outcomes, its offset committed, its outcomes not."""


@pytest.fixture
def ledger(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Ledger:
    return Ledger(bootstrap, topic_names, tmp_path)


@dataclass
class Staff:
    """Committers of a partition, started and ended as the test says; each has a log of its own."""

    ledger: Ledger
    stack: ExitStack
    logs: list[Path] = field(default_factory=list)

    def start(self, *interpreter: str) -> CommitterProcess:
        """One more. `interpreter`: what Python runs in a new process."""
        folder = self.ledger.root / "logs" / str(len(self.logs))
        folder.mkdir(parents=True)
        self.logs.append(folder / "committer.log")
        manager = running_committer(
            self.ledger.bootstrap,
            self.ledger.names,
            self.ledger.root,
            logs=folder,
            interpreter=interpreter,
        )
        return self.stack.enter_context(manager)

    def check_published(self) -> None:
        """Each version was published by these, as they say themselves."""
        numbers = [version for log in self.logs for version in published_by(log)]
        assert len(numbers) == len(set(numbers))


@contextmanager
def at_work(ledger: Ledger, *, writers: int = 2) -> Iterator[tuple[Staff, CommitterProcess]]:
    """A table, writers that send without pause, and a committer; in the end all is folded and audited.

    Yields who starts committers, and the first committer.
    """
    ensure_topics(patient_admin(ledger.config), ledger.topics)
    with ExitStack() as processes, Proposer(ledger.config, ledger.topics, timeout_s=120) as proposer:
        staff = Staff(ledger, processes)
        first = staff.start()
        first.wait_until_ready()
        ledger.create(proposer)
        until(lambda: ledger.newest() == 1, "the table")
        with ExitStack() as sending:
            for number in range(writers):
                sending.enter_context(Writer(ledger, proposer, number))
            yield staff, first
    fold_to_the_end(ledger.bootstrap, ledger.names, ledger.root)
    ledger.audit()
    staff.check_published()


def grows(ledger: Ledger, by: int = VERSIONS) -> None:
    """Waits until the table has so many more versions."""
    wanted = ledger.newest() + by
    until(lambda: ledger.newest() >= wanted, f"version {wanted}", seconds=120)


def a_moment(chance: random.Random, longest: float) -> None:
    """Lets a random time pass, so that what comes next meets the others wherever they are."""
    threading.Event().wait(chance.uniform(0, longest))


def test_a_committer_that_was_paused_wakes_up_late_and_harms_nothing(ledger: Ledger) -> None:
    chance = random.Random(SEED)
    with at_work(ledger) as (staff, first):
        current = first
        for _ in range(PAUSES):
            grows(ledger)
            a_moment(chance, 0.1)
            current.process.send_signal(signal.SIGSTOP)
            paused, current = current, staff.start()
            grows(ledger)
            paused.process.send_signal(signal.SIGCONT)
            assert paused.process.wait(LEAVING_SECONDS) == 5
        assert current.stop() == 0


def test_committers_that_run_at_once_fence_each_other_and_lose_nothing(ledger: Ledger) -> None:
    """Two, then three. Who steps down is started again, as by an orchestrator; now and then one is killed."""
    chance = random.Random(SEED)
    with at_work(ledger) as (staff, first):
        alive = [first]
        for _ in range(2):
            alive.append(staff.start())
            for _ in range(ROUNDS):
                a_moment(chance, 2 * ALONE_SECONDS)
                if chance.random() < 0.5:
                    chance.choice(alive).kill()
                for index, committer in enumerate(alive):
                    if committer.process.poll() is not None:
                        assert committer.process.returncode in {5, -signal.SIGKILL}, committer.log.read_text()
                        alive[index] = staff.start()
        for committer in alive:
            committer.kill()


def test_a_broker_that_dies_under_load_loses_nothing_of_two_committers(
    own_broker: Broker, topic_names: TopicNames, tmp_path: Path
) -> None:
    ledger = Ledger(own_broker.bootstrap_servers, topic_names, tmp_path)
    with at_work(ledger) as (staff, first):
        grows(ledger)
        second = staff.start()
        grows(ledger)
        own_broker.kill()
        own_broker.start()
        # A transaction that the broker's death cut in two may look like a takeover to the one who began it.
        wanted = ledger.newest() + VERSIONS
        until(lambda: ledger.newest() >= wanted or second.process.poll() is not None, "an end", seconds=120)
        for committer in (first, second):
            assert committer.process.poll() in {None, 5}, committer.log.read_text()
            committer.kill()
        staff.start()
        grows(ledger)


def test_outcomes_that_a_broker_forgot_are_given_by_the_next_committer(ledger: Ledger) -> None:
    with at_work(ledger) as (staff, first):
        current = first
        for reports in (1, 5):
            current.kill()
            code = HALF_REPORTED.format(bootstrap=ledger.bootstrap, reports=reports)
            assert staff.start("-c", code).process.wait(LEAVING_SECONDS) == 9
            current = staff.start()
            grows(ledger)


def test_an_older_release_steps_down_once_a_newer_one_has_published(ledger: Ledger) -> None:
    with at_work(ledger) as (staff, first):
        first.kill()
        old = staff.start("-c", OLD_RELEASE)
        until(lambda: f"rules {RULES}" in old.log.read_text(), "the older release's complaint", seconds=120)
        assert "let a newer committer take over" in old.log.read_text()
        before = ledger.contents()
        staff.start()
        grows(ledger)
        assert list(published_by(old.log)) == []
        grows(ledger)
        assert before.items() <= ledger.contents().items()
