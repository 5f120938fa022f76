"""A broker that is killed costs time and nothing else: every client keeps trying and then continues."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer, Options
from lakefold_ingest.writing.log_client import close_clients, open_client
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.read import offset_metadata
from lakefold_log.read.answered_offsets import answered_offsets
from lakefold_log.read.repeating_reader import RepeatingReader
from lakefold_log.write.reporter import Reporter
from lakefold_table.errors import RetryError
from lakefold_table.uri import canonical
from tests.integration.committers import ready_committer
from tests.integration.own_log import PATIENCE_S, OwnLog, batches, envelope, once_answered, take
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold.local.broker import Broker
    from lakefold_log.read.consumer import Message
    from lakefold_log.write.producer import Proposer
    from tests.integration.conftest import TopicNames

pytestmark = pytest.mark.usefixtures("hurried_clients")


def test_nothing_is_lost_or_doubled_when_the_broker_is_killed(
    own_broker: Broker, topic_names: TopicNames
) -> None:
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    # The first one has the broker create its own topics, for which the next one may have too little time.
    own.reporter().close()
    with (
        own.reader() as reader,
        own.reporter(timeout_s=10, kind=Reporter) as reporter,
        own.proposer(timeout_s=10) as proposer,
        own.waiter() as waiter,
    ):
        own.propose(0, 1)
        assert batches(take(reader, 2)) == [0, 1]
        until(lambda: _reported(reporter, own, 0), "the first report", seconds=PATIENCE_S)
        own_broker.kill()

        # From now on no test waits for an answer.
        own.admin.timeout_s = 1.0
        until(lambda: reader.poll(10, 0.2) or not reader.connected, "the reader to notice")
        assert reader.last_error
        with pytest.raises(RetryError, match="within 10 s"):
            proposer.send_wait(envelope(2))
        with pytest.raises(RetryError):
            reporter.report([own.committed(1, 1)], [], 2, own.stamp(2))
        with pytest.raises(RetryError):
            waiter.wait(own.committed(1, 1).position, envelope(1), 0.2)
        with pytest.raises(RetryError):
            reader.end_offset()

        own_broker.start()

        own.admin.timeout_s = PATIENCE_S
        until(lambda: _reported(reporter, own, 1), "the report", seconds=PATIENCE_S)
        assert waiter.wait(own.committed(1, 1).position, envelope(1), PATIENCE_S) == own.committed(1, 1)
        # The reader noticed the return without any message.
        until(lambda: reader.poll(10, 0.2) == [] and reader.connected, "the reader", seconds=PATIENCE_S)
        own.propose(3)
        # It has ten seconds, and may need to be called again.
        until(lambda: _sent(proposer, 4), "the proposal", seconds=PATIENCE_S)
        assert batches(take(reader, 2))[-2:] == [3, 4]
    assert own.answers() == [own.committed(0, 1), own.committed(1, 1)]
    assert offset_metadata.read(own.admin, own.group, own.topics.transactions, 0) == (2, own.stamp(2))


def test_a_sender_of_which_a_message_timed_out_gets_a_new_client(
    own_broker: Broker, topic_names: TopicNames
) -> None:
    """The old one may be stuck (seen with three brokers that were killed in turn)."""
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    with own.reader() as reader, own.proposer(timeout_s=2) as proposer:
        client = proposer._producer
        proposer.send_wait(envelope(0), 0)
        own_broker.kill()
        late = [proposer.send(envelope(number), 0) for number in (1, 2)]
        for each in late:
            with pytest.raises(RetryError, match="did not accept it within 2 s"):
                proposer.unverified_position_of(each)
        own_broker.start()
        until(lambda: sent_again(proposer), "the broker", seconds=PATIENCE_S)
        assert proposer._producer is not client
        assert batches(take(reader, 2)) == [0, 3]


def sent_again(proposer: Proposer) -> bool:
    try:
        return proposer.unverified_position_of(proposer.send(envelope(3), 0)).offset == 1
    except RetryError:
        return False


@pytest.mark.parametrize("survives", [True, False], ids=["same reporter", "next reporter"])
def test_a_report_right_before_the_kill_is_seen_once(
    own_broker: Broker, topic_names: TopicNames, *, survives: bool
) -> None:
    # A broker without replicas may forget to write the end of a transaction that it has decided, to the
    # outcomes, to the group's offset, or to both.
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    reporter = own.reporter(kind=Reporter)
    # A committer's first report has no outcomes: after it the group always has an offset.
    until(lambda: _reported(reporter, own, None), "the first report", seconds=PATIENCE_S)
    until(lambda: _reported(reporter, own, 0), "the report", seconds=PATIENCE_S)
    own_broker.kill()
    own_broker.start()
    if not survives:
        reporter.close()
        reporter = own.reporter(kind=Reporter)
        # As a committer begins: entries from the committed offset on are read and answered again, except
        # those whose outcomes are there.
        mark = offset_metadata.read(own.admin, own.group, own.topics.transactions, 0)
        assert mark in {(0, own.stamp(0)), (1, own.stamp(1))}
        answered = answered_offsets(own.admin, own.topics, own.log, mark[0], mark[1].outcomes_offset)
        if mark[0] == 0 and 0 not in answered:
            until(lambda: _reported(reporter, own, 0), "the report", seconds=PATIENCE_S)
    until(lambda: _reported(reporter, own, 1), "the report", seconds=PATIENCE_S)
    reporter.close()
    assert own.answers() == [own.committed(0, 1), own.committed(1, 1)]
    assert offset_metadata.read(own.admin, own.group, own.topics.transactions, 0) == (2, own.stamp(2))


def _reported(reporter: Reporter, own: OwnLog, offset: int | None) -> bool:
    """Reports the outcome of the entry at this offset, or none. Returns whether the brokers answered."""
    outcomes, next_offset = ([], 0) if offset is None else ([own.committed(offset, 1)], offset + 1)
    try:
        reporter.report(outcomes, [], next_offset, own.stamp(next_offset))
    except RetryError:
        return False
    return True


def _sent(proposer: Proposer, batch: int) -> bool:
    try:
        return bool(proposer.send_wait(envelope(batch)))
    except RetryError:
        return False


@pytest.mark.parametrize("waits_for", ["commit", "log"])
def test_a_batch_waits_for_a_broker_that_went_away_and_says_so(
    own_broker: Broker,
    topic_names: TopicNames,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    waits_for: Literal["commit", "log"],
) -> None:
    bootstrap, row = own_broker.bootstrap_servers, pa.table({"n": [1]})

    def put(batch: int, timeout: float) -> str:
        return lakefold.append(
            tmp_path / "t",
            row,
            app_id="app",
            batch_id=batch,
            bootstrap_servers=bootstrap,
            transactions_topic=topic_names.transactions,
            outcomes_topic=topic_names.outcomes,
            wait=waits_for,
            timeout=timeout,
        ).kind

    says = "waiting for the brokers to store a proposal for"
    with ready_committer(bootstrap, topic_names, tmp_path), ThreadPoolExecutor(1) as thread:
        topics = Topics(topic_names.transactions, topic_names.outcomes)
        # What fails soon once the broker is away is connected before.
        once_answered(lambda: open_client(KafkaConfig(bootstrap), topics, 5.0))
        put(0, PATIENCE_S)
        own_broker.kill()
        with pytest.raises(RetryError, match="did not accept it within 5 s"):
            put(1, 5.0)
        assert says in caplog.text
        caplog.clear()
        waiting = thread.submit(put, 2, PATIENCE_S)
        until(lambda: says in caplog.text, "the writer to say so")
        own_broker.start()
        kind = "committed" if waits_for == "commit" else "sent"
        assert waiting.result(PATIENCE_S) == kind
        until(lambda: lance.dataset(tmp_path / "t").count_rows() >= 2, "the row", seconds=PATIENCE_S)
    close_clients()
    assert caplog.text.count(says) == 1


def test_work_that_has_an_end_gives_up_on_a_broker_that_went_away(
    own_broker: Broker, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    own.propose(0)
    # It has the broker create its own topics.
    own.reporter().close()
    poll = RepeatingReader.poll

    def without_broker(reader: RepeatingReader, count: int, timeout_s: float) -> Sequence[Message]:
        """The broker dies before the first message is handed out."""
        if own_broker.running:
            begin = reader.position
            own_broker.kill()
            until(lambda: not poll(reader, 1, 0.1) and not reader.connected, "it to be noticed")
            reader.position = begin
        return poll(reader, count, timeout_s)

    monkeypatch.setattr(RepeatingReader, "poll", without_broker)
    options = Options(own.config, own.topics, (canonical(tmp_path),), group=own.group, give_up_after_s=5)
    with pytest.raises(RetryError, match=r"nothing was folded for 5 s: .*not reachable"):
        Committer(options, Metrics()).run(until_caught_up=True)
