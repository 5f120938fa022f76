"""A tail that hardly ever looks by itself is woken by the outcome of a new version."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold.cli import run
from lakefold_log.read.news import VersionNews
from lakefold_reader.tail.tail import tail
from lakefold_reader.tail.wakeup import OutcomesTopic, Pace
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome
from lakefold_table.position import Position
from lakefold_table.storage import open_storage
from lakefold_table.uri import local_path
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.proposals import rows
from tests.tables import Folded
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_log.write.reporter import Reporter
    from lakefold_reader.tail.change import Change
    from lakefold_reader.tail.tail import Tail
    from lakefold_table.entry import Result
    from tests.integration.conftest import TopicNames

ONCE_AN_HOUR = Pace(first=3600.0, longest=3600.0, woken=3600.0)
"""So seldom that a test would end before."""


@pytest.fixture
def own(bootstrap: str, topic_names: TopicNames) -> OwnLog:
    return OwnLog.make(bootstrap, topic_names, partitions=3)


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    return Folded(open_storage(tmp_path / "t"))


@pytest.fixture
def wake(own: OwnLog) -> OutcomesTopic:
    return OutcomesTopic(own.config.bootstrap_servers, {}, own.topics.transactions, own.topics.outcomes)


@pytest.fixture
def following(table: Folded, wake: OutcomesTopic) -> Iterator[Tail]:
    with_waker = tail(table.uri, follow=True, pace=ONCE_AN_HOUR, wake=wake)
    yield with_waker
    with_waker.close()


def has(came: list[int], count: int) -> bool:
    return len(came) >= count


def listens(tail: Tail) -> bool:
    return tail._wakeup is not None and tail._wakeup.listening


def report_commit(own: OwnLog, table: Folded, reporter: Reporter, offset: int) -> None:
    """Report a version of the table as its committer does."""
    position = Position(own.log, offset, own.topics.transactions)
    version = Committed(table.owned.table.version)
    outcome = Outcome(position, table.uri, version, app_id="app", batch_id=offset)
    reporter.report([outcome], [], offset + 1, own.stamp(offset + 1))


def test_an_outcome_wakes_a_tail_that_looks_once_an_hour(own: OwnLog, table: Folded, following: Tail) -> None:
    came: list[int] = []

    def follow() -> None:
        came.extend(next(following).version for _ in range(3))

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    until(lambda: listens(following), "the tail to listen", seconds=PATIENCE_S)
    with own.reporter() as reporter:
        for offset in range(3):
            table.append_ids([offset])
            report_commit(own, table, reporter, offset)
            until(partial(has, came, offset + 1), "the next version", seconds=PATIENCE_S)
            assert came[-1] == offset + 2
    reader.join()


def test_a_version_reported_before_it_listened_is_found_when_it_does(table: Folded, following: Tail) -> None:
    assert following.cursor.version == 1
    table.append_ids([1])
    assert next(following).version == 2


def test_the_verb_listens_if_it_is_given_brokers(
    own: OwnLog, table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tail", table.uri, "--follow", "--from", "1", "--max-versions", "2", "--json"]
    words += ["--bootstrap-servers", own.config.bootstrap_servers]
    words += ["--transactions-topic", own.topics.transactions, "--outcomes-topic", own.topics.outcomes]
    codes: list[int] = []
    reader = threading.Thread(target=lambda: codes.append(run(words)), daemon=True)
    reader.start()
    until(lambda: "lakefold-waker" in [thread.name for thread in threading.enumerate()], "the verb to listen")
    for number in range(2):
        table.append_ids([number])
    reader.join(PATIENCE_S)
    assert codes == [0]
    assert [json.loads(line)["version"] for line in capsys.readouterr().out.splitlines()] == [2, 3]


def test_a_program_that_closes_nothing_ends_quietly(own: OwnLog, table: Folded) -> None:
    program = (
        "import sys, lakefold, lakefold_reader.tail.wakeup as waking\n"
        "wake = waking.OutcomesTopic(sys.argv[2], {}, *sys.argv[3:])\n"
        "tail = lakefold.tail(sys.argv[1], wake=wake)\n"
        "while not tail._wakeup.listening: tail.step(timeout=0.1)\n"
    )
    names = [table.uri, own.config.bootstrap_servers, own.topics.transactions, own.topics.outcomes]
    command = [sys.executable, "-c", program, *names]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_branch_is_reported_under_its_tables_name(own: OwnLog, table: Folded, wake: OutcomesTopic) -> None:
    path = local_path(table.uri)
    branch = lance.dataset(path).create_branch("audit")
    with tail(table.uri, branch="audit", pace=ONCE_AN_HOUR, wake=wake) as begun, own.reporter() as reporter:
        came: list[Change] = []
        reader = threading.Thread(
            target=lambda: came.extend(begun.step(timeout=10 * PATIENCE_S)), daemon=True
        )
        reader.start()
        until(lambda: listens(begun), "the tail to listen", seconds=PATIENCE_S)
        newest = lance.write_dataset(rows([1]), branch.uri, mode="append").version
        position = Position(own.log, 0, own.topics.transactions)
        outcome = Outcome(position, table.uri, Committed(newest), app_id="app", batch_id=0, branch="audit")
        reporter.report([outcome], [], 1, own.stamp(1))
        reader.join(PATIENCE_S)
        assert [change.version for change in came] == [newest]


def test_only_versions_of_the_branch_are_news(own: OwnLog, table: Folded) -> None:
    def outcome(offset: int, result: Result, uri: str = table.uri, branch: str = "") -> Outcome:
        position = Position(own.log, offset, own.topics.transactions)
        return Outcome(position, uri, result, app_id="app", batch_id=offset, branch=branch)

    others = [
        outcome(0, Committed(9), uri="s3://lake/other"),
        outcome(1, Committed(8), branch="audit"),
        outcome(2, Duplicate(7)),
        outcome(3, Invalid("no such field")),
    ]
    with (
        closing(VersionNews(own.config, own.topics, table.uri, partition=0)) as main,
        closing(VersionNews(own.config, own.topics, table.uri, branch="audit", partition=0)) as audit,
        own.reporter() as reporter,
    ):
        reporter.report(others, [], 4, own.stamp(4))
        assert until(lambda: audit.wait(1.0), "news of the branch", seconds=PATIENCE_S) == 8
        reporter.report([outcome(4, Committed(3)), outcome(5, Committed(2))], [], 6, own.stamp(6))
        assert until(lambda: main.wait(1.0), "news of the main line", seconds=PATIENCE_S) == 3
