"""A question to the cluster whose connection is cut has the right answer or none: never an invented one.

Promise: cut-connections (docs/operations/promises.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.committed_offsets import settled
from lakefold_log.client.overview import overview
from lakefold_log.client.requests import Watermarks, offset_ranges, settings_of
from lakefold_log.client.topic_identity import TopicGuard
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read import offset_metadata
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.lookup import Lookup
from lakefold_table.errors import GapError, RetryError
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog, take
from tests.integration.raw import delete_up_to
from tests.servers.kafka_relay import Cut, CutMoment, Kind
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.conftest import TopicNames
    from tests.servers.kafka_relay import KafkaRelay, RelayedBroker

TIMEOUT_S = 3.0
FINDING = {Kind.METADATA, Kind.API_VERSIONS, Kind.FIND_COORDINATOR}
"""By which a client finds its way; cut in the long form only."""
Question = Callable[[Admin, OwnLog], object]


def _committed(admin: Admin, own: OwnLog) -> object:
    partition = TopicPartition(own.topics.transactions, 0)
    return [(partition.offset, partition.metadata) for partition in settled(admin, own.group, [partition])]


def _verify(admin: Admin, own: OwnLog) -> object:
    TopicGuard(admin, own.topics.transactions, own.log).verify()
    return True


def _status(admin: Admin, own: OwnLog) -> object:
    return Lookup(admin.config, own.topics, TABLE, None, timeout_s=TIMEOUT_S).status(own.group)


def _overview(admin: Admin, own: OwnLog) -> object:
    return [view for view in overview(admin, own.group).partitions if view.topic == own.topics.transactions]


QUESTIONS: dict[str, Question] = {
    "watermarks": lambda admin, own: watermarks(admin, own.topics.transactions, 0, wait_s=0),
    "describe": lambda admin, own: describe(admin, own.topics.transactions),
    "settings": lambda admin, own: settings_of(admin, own.topics.transactions),
    "committed": _committed,
    "stamp": lambda admin, own: offset_metadata.read(admin, own.group, own.topics.transactions, 0),
    "guard": _verify,
    "status": _status,
    "overview": _overview,
}


@pytest.fixture
def own(relayed: RelayedBroker, topic_names: TopicNames) -> OwnLog:
    """A log with three entries, two of them answered."""
    made = OwnLog.make(relayed.bootstrap_servers, topic_names)
    made.propose(0, 1, 2)
    with made.reporter() as reporter:
        reporter.report([made.committed(0, 1), made.committed(1, 2)], [], 2, made.stamp(2))
    made.answers()
    return made


def behind(relayed: RelayedBroker) -> Admin:
    return Admin(KafkaConfig(relayed.relayed_servers), timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_is_right_or_none(
    name: str, relayed: RelayedBroker, relay: KafkaRelay, own: OwnLog, request: pytest.FixtureRequest
) -> None:
    ask = QUESTIONS[name]
    relay.plan(None)
    right = ask(Admin(KafkaConfig(relayed.relayed_servers), timeout_s=PATIENCE_S), own)
    counts = relay.counts
    values: dict[Cut, object] = {}
    is_long = request.config.getoption("--all-faults")
    asked = [kind for kind in counts if is_long or kind not in FINDING]
    for cut in (
        Cut(kind, n, method) for kind in asked for n in range(1, counts[kind] + 1) for method in CutMoment
    ):
        relay.plan(cut)
        try:
            values[cut] = ask(behind(relayed), own)
        except RetryError:
            continue
    wrong = {str(cut): answer for cut, answer in values.items() if answer != right}
    assert wrong == {}


@pytest.mark.parametrize("moment", CutMoment)
def test_offsets_that_never_come_are_not_known(
    relayed: RelayedBroker, relay: KafkaRelay, own: OwnLog, moment: CutMoment
) -> None:
    """The connection breaks each time that they are asked for."""
    relay.plan(None, always=Kind.LIST_OFFSETS, moment=moment)

    def is_met() -> bool:
        """A question that ends before it comes to the offsets is no test of these."""
        with pytest.raises(RetryError):
            watermarks(behind(relayed), own.topics.transactions, 0, wait_s=0)
        return relay.happened > 0

    until(is_met, "a cut", seconds=PATIENCE_S)
    relay.plan(None)
    patient = Admin(KafkaConfig(relayed.relayed_servers), timeout_s=PATIENCE_S)
    assert watermarks(patient, own.topics.transactions, 0) == Watermarks(0, 3)


def test_a_reader_that_lost_its_place_waits_until_it_can_say_where(
    relayed: RelayedBroker, relay: KafkaRelay, own: OwnLog
) -> None:
    """The entries that it reads next are removed, and then no question about offsets is answered."""
    own.propose(*range(3, 20))
    relay.plan(None)
    # A message for each request, and none in advance.
    config = KafkaConfig(relayed.relayed_servers, {"queued.min.messages": 1, "fetch.message.max.bytes": 1})
    with PartitionReader(Admin(config), own.topics.transactions, own.log, 0) as reader:
        take(reader, 1)
        relay.plan(None, always=Kind.LIST_OFFSETS)
        delete_up_to(relayed.bootstrap_servers, own.topics.transactions, 19)
        until(
            lambda: not reader.poll(1, 0.1) and relay.happened and "offsets" in reader.last_error,
            "a question without an answer",
            seconds=PATIENCE_S,
        )
        relay.plan(None)
        with pytest.raises(GapError, match=r"offset \d+ is wanted, the log holds 19 up to 20"):
            until(lambda: reader.poll(1, 0.1) and False, "the gap", seconds=PATIENCE_S)


def test_the_end_is_as_the_isolation_has_it(relayed: RelayedBroker, own: OwnLog) -> None:
    """A transaction that is still open ends the log for who reads what is committed."""
    options = {"bootstrap.servers": relayed.bootstrap_servers, "transactional.id": f"{own.group}-x"}
    producer = Producer(options)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(own.topics.transactions, b"open", partition=0)
    producer.flush(PATIENCE_S)
    own.propose(3)
    ask = partial(watermarks, own.admin, own.topics.transactions, 0)
    assert (ask(), ask(read_committed=False)) == (Watermarks(0, 3), Watermarks(0, 5))

    producer.abort_transaction(PATIENCE_S)
    until(lambda: ask() == Watermarks(0, 6), "the transaction's end", seconds=PATIENCE_S)


def test_the_range_of_each_partition_is_returned(own: OwnLog) -> None:
    missing = (f"{own.group}-missing", 0)
    known = [(own.topics.transactions, 0), (own.topics.outcomes, 0)]
    values = offset_ranges(own.admin, known, read_committed=True)
    assert list(values) == known
    assert values[known[0]] == Watermarks(0, 3)
    with pytest.raises(KafkaException):
        offset_ranges(own.admin, [*known, missing], read_committed=True)
