"""The files of claims go: those answered at once, all others a week later."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.claims.claim_check import KEPT_US, Claims
from lakefold_table.entry import Committed, Outcome, Rejected
from lakefold_table.uri import canonical
from tests.folding import append, creation, entry
from tests.unit.test_claims import NOW_US, claimed, file_of, folded
from tests.unit.test_partition import at, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return canonical(tmp_path / "table")


def test_refused_ones_keep_their_file_for_a_week(uri: str) -> None:
    refused = claimed(at(uri, creation(uuid="second")))
    results, _ = folded(uri, at(uri, creation()), refused, at(uri, append("a")))
    assert isinstance(results[1], Rejected)
    assert file_of(refused).exists()
    sent = [at(uri, creation()), refused, at(uri, append("a"))]
    for age_us, kept in ((KEPT_US - 1_000_000, True), (KEPT_US + 1_000_000, False)):
        os.utime(file_of(refused), ns=(0, (NOW_US - age_us) * 1000))
        folded(uri, *sent)
        assert file_of(refused).exists() == kept


def aged(small: Envelope, age_us: int) -> Path:
    """The claim's file so long after it was stored, counted from `NOW_US`."""
    os.utime(file_of(small), ns=(0, (NOW_US - age_us) * 1000))
    return file_of(small)


def test_a_claim_whose_message_never_came_goes_after_a_week(uri: str) -> None:
    """Its writer died after it had stored the file, or the broker was unreachable."""
    lost, late = claimed(at(uri, append("lost"))), claimed(at(uri, append("late")))
    aged(lost, KEPT_US + 1_000_000), aged(late, KEPT_US - 1_000_000)
    folded(uri, at(uri, creation()))
    assert not file_of(lost).exists()
    assert file_of(late).exists()


def test_a_claim_that_was_answered_before_a_crash_goes_after_a_week(uri: str) -> None:
    """Between the report and the removal: nothing shows it to a successor."""
    small = claimed(at(uri, append("a")))
    table = opened(uri, "")
    for number, envelope in enumerate((at(uri, creation()), small)):
        (outcome,) = table.fold(Claims().fetch([entry(envelope, number)])).outcomes
        assert isinstance(outcome.result, Committed)
    answered = entry(at(uri, creation()), 0, time_us=NOW_US)
    for age_us, kept in ((KEPT_US - 1_000_000, True), (KEPT_US + 1_000_000, False)):
        aged(small, age_us)
        Claims().clean_up([answered], [Outcome(answered.position, uri, Committed(1))], 1)
        assert file_of(small).exists() == kept


def test_a_claim_that_waits_stays_however_long_it_has_waited(uri: str) -> None:
    """Its branch may be parked, or its table may lag behind the others of the partition."""
    waiting = claimed(at(uri, append("a")))
    aged(waiting, KEPT_US + 1_000_000)
    answered = [entry(at(uri, creation()), number, time_us=NOW_US) for number in (5, 9)]
    outcomes = [Outcome(each.position, uri, Committed(1)) for each in answered]
    claims = Claims()
    claims.clean_up(answered, outcomes, 5)
    assert file_of(waiting).exists()
    claims.clean_up(answered, outcomes, 6)
    assert not file_of(waiting).exists()


def test_the_folder_of_claims_is_listed_once_in_a_while(uri: str) -> None:
    claims, answered = Claims(), entry(at(uri, append()), 0, time_us=NOW_US)
    outcomes = [Outcome(answered.position, uri, Committed(1))]
    claims.clean_up([answered], outcomes, 1)
    old = claimed(at(uri, append("old")))
    aged(old, KEPT_US + 1_000_000)
    for _ in range(3):
        claims.clean_up([answered], outcomes, 1)
    assert file_of(old).exists()
    Claims().clean_up([answered], outcomes, 1)
    assert not file_of(old).exists()


def test_a_time_that_a_writer_made_up_removes_nothing_that_may_be_waited_for(uri: str) -> None:
    waiting = claimed(at(uri, append("later")))
    folded(uri, at(uri, creation()), at(uri, append("a")), time_us=253_402_300_799_000_000)
    assert file_of(waiting).exists()
