"""Brokers that are restored to an earlier state: also the committed offset, and the number of the last owner.

Promises: same-entry, accepted-loss (docs/operations/promises.md).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import GapError
from tests.simulation.ending import MOST_STEPS
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

TAKE_OVERS = 6
SENT = 2


@pytest.fixture
def world() -> Iterator[World]:
    """Several committers have folded a table in turn; the brokers are as they were after the first."""
    world = World("simulation-lost-end", Random(0))
    (uri,) = world.uris
    (partition,) = world.partitions
    with world.begun():
        world.producer.send("create", uri)
        for batch in range(TAKE_OVERS):
            world.start()
            assert world.hub.run(lambda: partition.is_answered, MOST_STEPS)
            world.kill_all()
            world.producer.send("new", uri, "a", batch)
        partition.lose_end(1, everything=True)
        yield world


def test_no_committer_is_treated_as_one_that_was_replaced(world: World) -> None:
    """Its number is lower than that of the versions, and no other committer exists."""
    (partition,) = world.partitions
    for batch in range(SENT):
        world.producer.send("new", world.uris[0], "b", batch)
    running = world.start()
    assert world.hub.run(lambda: not running.process.running, MOST_STEPS)
    assert isinstance(partition.ended_by, GapError), partition.ended_by
    world.start(accepts=True)
    assert world.hub.run(lambda: partition.is_answered, MOST_STEPS)
    results = [partition.ledger.reported[offset].result for offset in range(1 + SENT)]
    assert [type(result) for result in results] == [Committed] * (1 + SENT)
    world.finish()


def test_what_was_refused_before_an_accepted_loss_is_judged_on_the_table_as_it_is_now() -> None:
    """The table was created by an entry that the log lost, after the entry that named it too early."""
    world = World("simulation-judged-again", Random(0))
    (uri,), (partition,) = world.uris, world.partitions
    with world.begun():
        early = world.producer.send("keyless", uri).offset
        world.producer.send("create", uri)
        world.start()
        assert world.hub.run(lambda: partition.is_answered, MOST_STEPS)
        assert isinstance(partition.ledger.reported[early].result, Invalid)
        world.kill_all()
        partition.lose_end(1, everything=False)
        for batch in range(SENT):
            world.producer.send("new", uri, "a", batch)
        world.start(accepts=True)
        assert world.hub.run(lambda: partition.is_answered, MOST_STEPS)
        assert isinstance(partition.ledger.reported[early].result, Committed)
        world.finish()
