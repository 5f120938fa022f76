"""An outcomes topic that loses its end: the answers that went with it are given again, and nothing else.

Kafka doesn't sync its files, and an unclean election takes a replica that is behind. Here the data of the
outcomes topic alone is set back to an earlier clean stop, with the transactions and the group's offset left.

Promise: lost-outcomes-given-again (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
import struct
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read import offset_metadata
from lakefold_log.write.reporter import Reporter
from lakefold_table.entry import Committed
from lakefold_table.errors import OutcomesLostError, RetryError
from tests.integration.conftest import unique_names
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage, folding
from tests.proposals import ids_in
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from lakefold.local.broker import Broker
    from lakefold_table.entry import Outcome
    from tests.integration.conftest import TopicNames

LOST = "lakefold_outcomes_lost_total"


@contextmanager
def lost_afterwards(
    broker: Broker, folder: Path, *logs: OwnLog, with_last_marker: OwnLog | None = None
) -> Iterator[None]:
    """What is reported within is lost: the data of the outcomes topics is as before.

    `with_last_marker`: the log of which the marker that commits the last report before is lost as well.
    """
    for own in logs:
        own.answers()
    kept = {broker.directory / "data" / f"{own.topics.outcomes}-0": own for own in logs}
    broker.stop(PATIENCE_S)
    for data, own in kept.items():
        shutil.copytree(data, folder / data.name)
        if own is with_last_marker:
            cut_last_batch(folder / data.name / f"{0:020}.log")
    broker.start()
    yield
    broker.stop(PATIENCE_S)
    for data in kept:
        shutil.rmtree(data)
        shutil.copytree(folder / data.name, data)
    broker.start()


def cut_last_batch(segment: Path) -> None:
    """Removes the last batch of a segment: each has its first offset, then the length of what follows."""
    content, start, last = segment.read_bytes(), 0, 0
    while start < len(content):
        (length,) = struct.unpack_from(">i", content, start + 8)
        start, last = start + 12 + length, start
    segment.write_bytes(content[:last])


def by_offset(outcomes: Sequence[Outcome]) -> dict[int, Outcome]:
    """Each of them once."""
    values = {outcome.position.offset: outcome for outcome in outcomes}
    assert len(values) == len(outcomes)
    return values


def report(own: OwnLog, reporter: Reporter, offsets: Iterable[int]) -> None:
    """A report for each entry, made again until the broker that was started again takes it."""

    def taken(offset: int) -> bool:
        try:
            reporter.report([own.committed(offset, 1)], [], offset + 1, own.stamp(offset + 1))
        except RetryError:
            return False
        return True

    for offset in offsets:
        until(partial(taken, offset), "a report", seconds=PATIENCE_S)


def given_again_from(own: OwnLog) -> int:
    """The offset that the group has committed."""
    data = offset_metadata.read(own.admin, own.group, own.topics.transactions, 0)
    assert data is not None
    return data[0]


@pytest.fixture
def stage(own_broker: Broker, topic_names: TopicNames, tmp_path: Path) -> Stage:
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    return Stage(own_broker.bootstrap_servers, topic_names, own, tmp_path)


def test_all_lost_answers_are_given_again_at_the_next_start(
    stage: Stage, own_broker: Broker, tmp_path: Path
) -> None:
    stage.begin(1, 2)
    with lost_afterwards(own_broker, tmp_path, stage.own):
        for number in (3, 4, 5, 6):
            stage.send(stage.batch(number))
            stage.fold()
        values = by_offset(stage.outcomes())
        # The last report says nothing: it only says that this committer took over.
        stage.fold()
    assert len(stage.outcomes()) == 3
    stage.send(stage.batch(7))
    metrics = Metrics()
    with capture_logs() as lines:
        Committer(stage.options(), metrics).run(until_caught_up=True)
    again = by_offset(stage.outcomes())
    assert {offset: again[offset] for offset in values} == values
    assert [type(outcome.result) for outcome in again.values()] == [Committed] * 8
    assert (metrics.registry.get_sample_value(LOST, {"partition": "0"}) or 0) >= 4
    (line,) = [line for line in lines if line["event"] == "outcomes lost"]
    assert (line["where"], line["up_to"]) == (f"{stage.own.topics.outcomes}/0", 7)
    assert line["given_again_from"] <= 3
    assert line["not_given_again"] is None
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5, 6, 7]
    with capture_logs() as lines:
        assert stage.fold() == {}
    assert not [line for line in lines if line["event"] == "outcomes lost"]
    assert "different" not in stage.replay().values()


def test_a_running_committer_notices_and_gives_them_again(
    stage: Stage, own_broker: Broker, tmp_path: Path
) -> None:
    stage.begin(1)
    with folding(stage) as (errors, metrics):
        assert isinstance(stage.ask(stage.batch(2)), Committed)
        with lost_afterwards(own_broker, tmp_path, stage.own):
            for number in (3, 4):
                assert isinstance(stage.ask(stage.batch(number)), Committed)
            values = by_offset(stage.outcomes())
        assert isinstance(stage.ask(stage.batch(5)), Committed)
        until(
            lambda: {*values} < {outcome.position.offset for outcome in stage.outcomes()}, "the lost answers"
        )
        assert not errors
        assert (metrics.registry.get_sample_value(LOST, {"partition": "0"}) or 0) >= 2
    again = by_offset(stage.outcomes())
    assert {offset: again[offset] for offset in values} == values
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5]


def test_reporters_go_back_to_the_last_whole_report_and_one_that_lost_reports_reports_no_more(
    own_broker: Broker, tmp_path: Path
) -> None:
    """Three logs lose reports at once: of a second reporter, of the same one, and with the marker before."""
    servers = own_broker.bootstrap_servers
    second, same, unmarked = logs = [OwnLog.make(servers, unique_names()) for _ in range(3)]
    with ExitStack() as stack:
        first, reporter, other = (stack.enter_context(own.reporter(kind=Reporter)) for own in logs)
        report(second, first, range(20))
        report(same, reporter, [0])
        report(unmarked, other, [0])
        with (
            lost_afterwards(own_broker, tmp_path, *logs, with_last_marker=unmarked),
            second.reporter(kind=Reporter) as next_one,
        ):
            report(second, next_one, range(20, 30))
            report(same, reporter, [1, 2, 3])
            report(unmarked, other, [1, 2, 3])
        for _ in range(2):
            with pytest.raises(OutcomesLostError, match=same.topics.outcomes):
                report(same, reporter, [4])
        with second.reporter(kind=Reporter), second.reporter(kind=Reporter) as last:
            assert 0 < given_again_from(second) <= 20
            assert last.outcomes_offset <= 41
    assert len(second.answers()) == 20
    with same.reporter(kind=Reporter), unmarked.reporter(kind=Reporter):
        assert given_again_from(same) <= 1
        # An outcome without its marker shows from where they are given again.
        assert given_again_from(unmarked) == 0
    assert not unmarked.answers()


def test_the_last_report_is_given_again_in_a_topic_that_was_created_again(stage: Stage) -> None:
    own = stage.own
    with own.reporter(kind=Reporter) as reporter:
        report(own, reporter, range(5))
    name = own.topics.outcomes
    own.admin.client.delete_topics([name])[name].result()
    until(lambda: name not in own.admin.client.list_topics(timeout=PATIENCE_S).topics, "the topic to be gone")
    ensure_topics(own.admin, own.topics)
    with capture_logs() as lines, own.reporter(kind=Reporter):
        assert given_again_from(own) == 4
    (line,) = [line for line in lines if line["event"] == "outcomes lost"]
    assert (line["ends_at"], line["given_again_from"], line["not_given_again"]) == (0, 4, "0-6")
