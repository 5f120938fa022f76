"""Messages that are damaged in the broker's files, as by a failing disk, after a clean stop.

A broker that was stopped cleanly doesn't check its files when it starts, and it sends messages as they are.
The client notices the wrong checksum, but goes on with the messages after it.

Promises: no-holes, no-outcome-stops-nobody (docs/operations/promises.md).
"""

from __future__ import annotations

import struct
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from lakefold.local.broker import Broker
from lakefold_log.read.repeating_reader import end_at_gap
from lakefold_table.errors import GapError
from tests.integration.own_log import PATIENCE_S, OwnLog, batches, take
from tests.integration.stage import Stage
from tests.proposals import ids_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

BATCH_HEADER = 61
BEFORE_LENGTH, BEFORE_CONTENT = 8, 12


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that tests may stop."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, Broker(folder) as running:
        yield running


@pytest.fixture
def stage(broker: Broker, topic_names: TopicNames, tmp_path: Path) -> Stage:
    bootstrap = broker.bootstrap_servers
    return Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)


def propose_one_by_one(stage: Stage, *numbers: int) -> None:
    """Sends proposals in batches of one."""
    for number in numbers:
        stage.own.propose(number)


def damage(broker: Broker, topic: str, *offsets: int) -> None:
    """Inverts the last byte of the batches that begin at these offsets (negative: counted from the last)."""
    broker.stop(PATIENCE_S)
    (segment,) = (broker.directory / "data" / f"{topic}-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    ends: dict[int, int] = {}
    start = 0
    while len(content) - start > BATCH_HEADER:
        first, length = struct.unpack_from(">qi", content, start)
        start += BEFORE_CONTENT + length
        ends[first] = start
    for offset in offsets:
        content[(ends[offset] if offset >= 0 else [*ends.values()][offset]) - 1] ^= 0xFF
    segment.write_bytes(content)
    broker.start()


def test_a_reader_stops_at_a_damaged_entry(broker: Broker, stage: Stage) -> None:
    propose_one_by_one(stage, *range(6))
    damage(broker, stage.names.transactions, 3)
    with stage.own.whole_reader(end_at_gap) as reader:
        assert batches(take(reader, 3)) == [0, 1, 2]
        with pytest.raises(GapError, match=r"damaged in the brokers' files: .* CRC32C") as caught:
            take(reader, 1)
    assert f"{stage.names.transactions}/0@3" in str(caught.value)
    assert "--accept-new-log" in caught.value.hint


@pytest.mark.parametrize("damaged", [(3,), (0, 2, 3), (4, 5)])
def test_a_reader_that_accepts_gaps_returns_all_others(
    broker: Broker, stage: Stage, damaged: tuple[int, ...]
) -> None:
    propose_one_by_one(stage, *range(6))
    damage(broker, stage.names.transactions, *damaged)
    errors: list[GapError] = []
    with stage.own.whole_reader(errors.append) as reader:
        left = [number for number in range(6) if number not in damaged]
        assert batches(take(reader, len(left))) == left
        stage.own.propose(6)
        assert batches(take(reader, 1)) == [6]
    assert all("damaged in the brokers' files" in error.message for error in errors)
    assert len(errors) == len([offset for offset in damaged if offset - 1 not in damaged])


def test_a_committer_folds_nothing_after_a_damaged_entry(broker: Broker, stage: Stage) -> None:
    stage.begin(1)
    stage.send(*(stage.batch(number) for number in range(2, 6)))
    damage(broker, stage.names.transactions, 3)
    with pytest.raises(GapError, match="damaged in the brokers' files"):
        stage.fold()
    assert set(ids_in(stage.uri)) <= {1, 2}
    assert stage.fold(accept=True)["committed"] >= 2
    stage.send(stage.batch(3))
    stage.fold()
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5]
    assert len(stage.outcomes()) == 6


def test_damaged_outcomes_stop_nobody(broker: Broker, stage: Stage) -> None:
    stage.begin(1, 2, 3)
    damage(broker, stage.names.outcomes, 0, -2)
    stage.send(stage.batch(3), stage.batch(4))
    assert stage.fold()["duplicate"] == 1
    assert ids_in(stage.uri) == [1, 2, 3, 4]
    stage.send(stage.batch(5))
    stage.fold()
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5]
