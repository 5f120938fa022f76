"""Entries are folded while it is asked which topic they came from; what follows waits for the answer."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
from structlog.testing import capture_logs

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_log.client.topic_identity import DeferredTopicCheck, TopicGuard
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import GapError, RetryError
from lakefold_table.uri import canonical, local_path
from tests.folding import FORMATS, append, creation
from tests.unit.test_partition import Log, Reports, at, messages, opened
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

AGAIN = GapError("the topic was made again")
AWAY = RetryError("no answer")


@dataclass
class Doubtful(Log):
    """A log with an answer for each request whether it is still the same (None: it is)."""

    answers: list[Exception | None] = field(default_factory=list)
    asked: int = 0

    def confirm_messages(self) -> None:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


def doubtful(envelopes: list[Envelope], answers: list[Exception | None]) -> Doubtful:
    return Doubtful(messages(envelopes).polls, answers=answers)


def run(log: Doubtful) -> Reports:
    reports = Reports()
    tables = Tables(FORMATS, _refusal, opened)
    committer = PartitionCommitter(log, reports, tables, LoopLimits(Limits(100, 1 << 20), 0.0), Metrics())  # type: ignore[arg-type]
    with capture_logs():
        try:
            committer.run(threading.Event(), log.end_offset())
        except GapError as error:
            assert error is AGAIN  # noqa: PT017 - raised by the caller that checks the reports
    return reports


def _refusal(uri: str) -> Invalid | None:
    return Invalid("not here") if uri.endswith("elsewhere") else None


REFUSED: dict[str, Callable[[str], list[Envelope]]] = {
    "a version": lambda uri: [at(uri, creation())],
    "only refusals": lambda uri: [at(uri, append("a"))],
    "no table": lambda uri: [at(f"{uri}/elsewhere", append("a"))],
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_follows_from_a_topic_that_was_made_again(tmp_path: Path, what: str) -> None:
    uri = canonical(tmp_path / "table")
    reports = run(doubtful(REFUSED[what](uri), [AGAIN] * 9))
    assert not reports.outcomes
    assert not (tmp_path / "table" / "_versions").exists()


def test_nothing_of_a_later_poll_is_published_either(tmp_path: Path) -> None:
    uri = canonical(tmp_path / "table")
    proven = run(doubtful([at(uri, creation())], []))
    assert len(proven.outcomes) == 1
    log = doubtful([at(uri, append("a"))], [AGAIN] * 9)
    log.polls[0][0].offset = log.position = 1
    run(log)
    assert len([*(tmp_path / "table" / "_versions").iterdir()]) == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_check_that_gets_no_answer_is_made_again(tmp_path: Path, times: int) -> None:
    uri = canonical(tmp_path / "table")
    log = doubtful([at(uri, creation()), at(uri, append("a"))], [AWAY] * times)
    reports = run(log)
    assert [type(outcome.result) for outcome in reports.outcomes] == [Committed, Committed]
    assert log.asked > times
    assert len([*(tmp_path / "table" / "_versions").iterdir()]) == 2
    assert local_path(uri) == str(tmp_path / "table")


@dataclass
class Brokers:
    """A guard whose questions are answered by the test: `settle` raises what the answer is."""

    questions: list[Future[Exception | None]] = field(default_factory=list)
    awaited: list[Future[Exception | None]] = field(default_factory=list)

    def ask(self) -> Future[Exception | None]:
        self.questions.append(Future())
        return self.questions[-1]

    def settle(self, answer: Future[Exception | None]) -> None:
        self.awaited.append(answer)
        error = answer.result(120)
        if error is not None:
            raise error


def proof() -> tuple[DeferredTopicCheck, Brokers]:
    brokers = Brokers()
    return DeferredTopicCheck(cast("TopicGuard", brokers)), brokers


def test_nothing_is_requested_if_nothing_came() -> None:
    late, brokers = proof()
    late.settle()
    assert not brokers.questions


def test_a_question_is_answered_once_for_all_that_came_before_it() -> None:
    late, brokers = proof()
    late.ask()
    brokers.questions[0].set_result(None)
    late.settle()
    late.settle()
    assert len(brokers.questions) == 1


def test_an_older_answer_says_nothing_of_what_came_since() -> None:
    late, brokers = proof()
    late.ask()
    settled = threading.Thread(target=late.settle)
    settled.start()
    until(lambda: brokers.awaited, "the first answer to be awaited")
    late.ask()
    brokers.questions[0].set_result(None)
    brokers.questions[1].set_result(AGAIN)
    settled.join()
    with pytest.raises(GapError):
        late.settle()


def test_a_question_without_an_answer_is_asked_again() -> None:
    late, brokers = proof()
    late.ask()
    brokers.questions[0].set_result(AWAY)
    with pytest.raises(RetryError):
        late.settle()
    waiting = threading.Thread(target=late.settle)
    waiting.start()
    until(lambda: len(brokers.questions) == 2, "the question to be asked again")
    brokers.questions[1].set_result(None)
    waiting.join()
    late.settle()
    assert len(brokers.questions) == 2


def test_what_is_another_topic_stays_another() -> None:
    late, brokers = proof()
    late.ask()
    brokers.questions[0].set_result(AGAIN)
    for _ in range(2):
        with pytest.raises(GapError):
            late.settle()
