"""A writer accepts a Committed before its report is committed, and nothing else (decision 0096).

A committer dies, or is fenced, at each step of its report. What a writer has read until then stays true.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_log.read.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_log.write.transactional_producer import Session
from lakefold_table.entry import Committed, Conflict, Rejected
from lakefold_table.errors import FencedError
from tests.integration.committers import committer_arguments
from tests.integration.own_log import PATIENCE_S, OwnLog, envelope
from tests.integration.stage import Stage
from tests.proposals import ids_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames

STEPS = ("deliver", "send_offset", "commit")
"""The steps of a report. Before the first, the client may have sent the outcome, or not."""
DIED = 9
DIES_AT = """
import os, sys
from lakefold.cli import main
from lakefold_log.write.reporter import Reporter
from lakefold_log.write.transactional_producer import Session
step, report, deliver = sys.argv.pop(1), Reporter.report, Session.deliver
def dying(reporter, outcomes, *others):
    if outcomes:
        # A busy broker has all the time that it needs, while a committer waits for a second.
        Session.deliver = lambda session, _: deliver(session, 120)
        setattr(Session, step, lambda *_: os._exit(9))
    return report(reporter, outcomes, *others)
Reporter.report = dying
main()
"""
"""A committer that dies at a step of its first report with outcomes."""


def test_what_a_committer_said_before_it_died_stays_true(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    stage = Stage(bootstrap, topic_names, own, tmp_path)
    stage.begin()
    with (
        Proposer(own.config, own.topics) as proposer,
        OutcomeWaiter(own.config, own.topics, stage.uri) as waiter,
    ):
        for batch, step in enumerate(STEPS):
            proposal = stage.batch(batch)
            sent = {proposer.send_wait(proposal, 0): proposal}
            before = stage.outcomes()
            _die_at(step, stage)
            early = waiter.reported(sent, PATIENCE_S)
            assert [outcome for _, outcome in read_outcomes(own.admin, own.topics, 0, 0)] == before
            assert early or step == "deliver"
            stage.fold()
            late = waiter.wait(*next(iter(sent.items())), PATIENCE_S)
            assert isinstance(late.result, Committed)
            assert early in ([], [late])
            assert stage.outcomes() == [*before, late]
    assert ids_in(stage.uri) == [*range(len(STEPS))]


def _die_at(step: str, stage: Stage) -> None:
    """Has a committer fold what waits, and die at a step of its report."""
    names = replace(stage.names, group=stage.own.group)
    command = [sys.executable, "-c", DIES_AT, step, *committer_arguments(stage.bootstrap, names, stage.root)]
    done = subprocess.run([*command, "--http-port", "0"], capture_output=True, timeout=200, check=False)
    assert done.returncode == DIED, done.stderr.decode()


@pytest.mark.parametrize("step", ["send_offset", "commit"])
def test_a_refusal_of_a_fenced_committer_is_no_answer(
    bootstrap: str, topic_names: TopicNames, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    sent = dict(zip(own.propose(0, 1), [envelope(0), envelope(1)], strict=True))
    committed, later = own.committed(0, 1), own.committed(1, 2)
    refused = replace(later, result=Rejected(Conflict(retryable=True, message="built on version 0")))
    with own.waiter() as waiter, own.reporter() as first:
        original = getattr(Session, step)

        def taken_over(session: Session, *arguments: object) -> None:
            monkeypatch.undo()
            assert waiter.reported(sent, PATIENCE_S) == [committed]
            with own.reporter() as second:
                second.report([committed, later], [], 2, own.stamp(2))
            original(session, *arguments)

        monkeypatch.setattr(Session, step, taken_over)
        with pytest.raises(FencedError):
            first.report([committed, refused], [], 2, own.stamp(2))
        assert [waiter.wait(*each, PATIENCE_S) for each in sent.items()] == [committed, later]
    assert own.answers() == [committed, later]
