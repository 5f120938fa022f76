"""A broker that dies may leave half of a report: what is missing of it is given again, and nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_log.read import offset_metadata
from lakefold_log.read.dead_letters import RefusedMessage
from lakefold_log.write.transactional_producer import Session
from lakefold_table.errors import RetryError
from lakefold_table.position import Position
from tests.integration.markers import mark_committed, open_transactions
from tests.integration.own_log import OwnLog

if TYPE_CHECKING:
    from tests.integration.conftest import TopicNames

GROUPS = "__consumer_offsets"


def die_in_commits(own: OwnLog, topic: str | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next commits reach one partition only (of this topic; None: not one), and the session end."""
    commit, left = Session.commit, [None] * count

    def half(session: Session) -> None:
        if not left:
            return commit(session)
        left.pop()
        assert session._producer.flush(120) == 0
        if topic is not None:
            for transaction in open_transactions(own.config.bootstrap_servers, own.topics.outcomes, 0):
                mark_committed(own.config.bootstrap_servers, transaction, topic, 0)
        session.usable = False
        raise RetryError("the broker is gone")

    monkeypatch.setattr(Session, "commit", half)


def stamped(own: OwnLog) -> tuple[int, offset_metadata.OffsetMetadata] | None:
    return offset_metadata.read(own.admin, own.group, own.topics.transactions, 0)


@pytest.fixture(params=[GROUPS, "outcomes", None])
def half(request: pytest.FixtureRequest, topic_names: TopicNames) -> str | None:
    """Which partition of a report is marked before the broker dies."""
    return topic_names.outcomes if request.param == "outcomes" else request.param


def test_the_same_reporter_gives_what_is_missing(
    bootstrap: str, topic_names: TopicNames, half: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        reporter.report([own.committed(0, 1)], [], 1, own.stamp(1))
        outcomes = [own.committed(1, 2), own.committed(2, 2)]
        die_in_commits(own, half, 1, monkeypatch)
        with pytest.raises(RetryError, match="gone"):
            reporter.report(outcomes, [], 3, own.stamp(3))
        reporter.report(outcomes, [], 3, own.stamp(3))
        assert own.answers() == [own.committed(0, 1), *outcomes]
        assert stamped(own) == (3, own.stamp(3))
        reporter.report([own.committed(3, 3)], [], 4, own.stamp(4))
    assert own.answers() == [own.committed(0, 1), *outcomes, own.committed(3, 3)]
    with own.reporter():
        assert stamped(own) == (4, own.stamp(4))


@pytest.mark.parametrize("deaths", [2, 3])
def test_a_broker_may_die_again_and_again(
    bootstrap: str, topic_names: TopicNames, half: str | None, deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    failed = 0
    with own.reporter() as reporter:
        die_in_commits(own, half, deaths, monkeypatch)
        for offset in range(deaths + 1):
            given = False
            while not given:
                try:
                    reporter.report([own.committed(offset, 1)], [], offset + 1, own.stamp(offset + 1))
                    given = True
                except RetryError:
                    failed += 1
    assert failed == deaths
    assert sorted(outcome.position.offset for outcome in own.answers()) == [*range(deaths + 1)]
    with own.reporter():
        assert stamped(own) == (deaths + 1, own.stamp(deaths + 1))


@pytest.mark.parametrize("refused_count", [0, 1])
def test_a_successor_finds_the_offset_where_all_below_is_answered(
    bootstrap: str,
    topic_names: TopicNames,
    half: str | None,
    refused_count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    lost = own.reporter()
    lost.report([own.committed(0, 1)], [], 1, own.stamp(1))
    whole = stamped(own)
    die_in_commits(own, half, 1, monkeypatch)
    refused = [RefusedMessage(Position(own.log, 2), b"key", b"value", "wrong")] * refused_count
    with pytest.raises(RetryError, match="gone"):
        lost.report([own.committed(1, 2), own.committed(2, 2)], refused, 3, own.stamp(3))
    with own.reporter():
        assert stamped(own) == whole == (1, own.stamp(1))
    seen = [own.committed(1, 2), own.committed(2, 2)] if half == own.topics.outcomes else []
    assert own.answers() == [own.committed(0, 1), *seen]
    with own.reporter():
        assert stamped(own) == whole


def test_a_whole_report_is_left_as_it_is(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as first:
        first.report([own.committed(0, 1), own.committed(1, 1)], [], 2, own.stamp(2))
    with own.reporter() as second:
        assert stamped(own) == (2, own.stamp(2))
        second.report([], [], 2, own.stamp(2))
    with own.reporter():
        assert stamped(own) == (2, own.stamp(2))
