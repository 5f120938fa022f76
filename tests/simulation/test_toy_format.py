"""Production's committer with a format that it doesn't know, killed at each step and in random troubles."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from tests.simulation.store import Troubles
from tests.simulation.toy_world import ToyWorld, begin
from tests.toy_format.toy import APPEND, DELETE, ToyProposal

SEEDS = 30


def test_a_committer_folds_tables_of_another_format() -> None:
    world = ToyWorld("toys", Random(0))
    with world.begun():
        begin(world)
        assert world.live() > 40
        world.finish()


@pytest.mark.parametrize("again", range(2), ids=["once", "twice"])
def test_killed_at_each_step(again: int) -> None:
    for number in count(1):
        world = ToyWorld("toys", Random(number * 2 + again))
        with world.begun():
            begin(world)
            steps = world.live(number)
            for _ in range(again):
                world.live(world.hub.random.randint(1, number))
            world.finish()
        if steps < number:
            break


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_in_random_troubles(first: int) -> None:
    """Requests are refused, answers are lost, puts arrive late, committers die and race."""
    for seed in range(first, first + 10):
        random = Random(seed)
        world = ToyWorld("toys", random)
        world.store.troubles = Troubles(refuse=0.02, lose_stored=0.05, lose_unstored=0.05, late=0.05)
        world.broker.lose = world.broker.refuse = 0.02
        with world.begun():
            begin(world)
            for batch in range(10, 30):
                keys = [str(random.randint(3, 12))]
                if random.random() < 1 / 3:
                    proposal = ToyProposal(f"s{batch}", DELETE, 1, keys=tuple(keys))
                else:
                    proposal = ToyProposal(f"s{batch}", APPEND, 1, dict.fromkeys(keys, str(batch)))
                world.send(random.choice(world.uris), proposal, "app", random.randint(10, batch))
            for _ in range(4):
                world.start(kill_at=random.randint(5, 200))
                world.live(kill_at=random.randint(5, 200))
            world.finish()
