"""An outcome answers a proposal if it names the proposal's uuid and key, as far as a committer knows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakefold_committer.fold.fold import outcome_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Outcome, Result
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.outcome_messages import is_answer_to
from lakefold_table.position import LogId, Position

POSITION = Position(LogId("cluster", "topic", 0), 7)
COMMITTED = Committed(7)


def proposal(uuid: str = "mine", app_id: str = "app", batch_id: int | None = 3) -> Envelope:
    envelope = Envelope(table="t", app_id=app_id, batch_id=batch_id)
    envelope.lance.uuid = uuid
    return envelope


def outcome(envelope: Envelope, result: Result = COMMITTED) -> Outcome:
    return outcome_of(Entry(POSITION, 0, envelope, 1, BUILT_IN.proposal(envelope)), result)


@pytest.mark.parametrize(
    "envelope",
    [
        proposal(),
        proposal(app_id="", batch_id=None),
        proposal("", "", None),
        proposal("u" * 900, "a" * 900),
    ],
)
def test_the_outcome_of_a_proposal_is_its_answer(envelope: Envelope) -> None:
    assert is_answer_to(outcome(envelope), envelope, BUILT_IN.uuid_of(envelope))


@pytest.mark.parametrize(
    "other",
    [
        proposal("another"),
        proposal(app_id="another"),
        proposal(batch_id=4),
        proposal(batch_id=None),
        proposal(app_id="", batch_id=None),
        proposal("", "", None),
        proposal("u" * 900),
    ],
)
def test_the_outcome_of_another_proposal_is_not(other: Envelope) -> None:
    assert not is_answer_to(outcome(other), proposal(), BUILT_IN.uuid_of(proposal()))
    assert not is_answer_to(outcome(proposal()), other, BUILT_IN.uuid_of(other))


def test_a_proposal_that_could_not_be_read_is_known_by_its_key_if_that_was_read() -> None:
    unread = Outcome(POSITION, "t", Invalid("no envelope"))
    assert is_answer_to(unread, proposal(), BUILT_IN.uuid_of(proposal()))
    for result in (Invalid("the file is missing"), Duplicate(3)):
        keyed = replace(unread, result=result, app_id="app", batch_id=3)
        assert is_answer_to(keyed, proposal(), BUILT_IN.uuid_of(proposal()))
        assert not is_answer_to(keyed, proposal(batch_id=4), BUILT_IN.uuid_of(proposal(batch_id=4)))
    assert not is_answer_to(replace(unread, result=COMMITTED), proposal(), BUILT_IN.uuid_of(proposal()))


def test_a_claim_is_known_by_its_key() -> None:
    claim = Envelope(table="t", app_id="app", batch_id=3)
    claim.claim.size = 1
    assert is_answer_to(outcome(proposal()), claim, BUILT_IN.uuid_of(claim))
    assert not is_answer_to(outcome(proposal(batch_id=4)), claim, BUILT_IN.uuid_of(claim))
