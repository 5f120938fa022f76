"""Production's committer with a format that it doesn't know, killed at each step and in random troubles."""

from __future__ import annotations

from functools import partial
from itertools import count
from random import Random

import pytest

from tests.simulation.toy_world import ToyWorld, begin, in_random_troubles, killed_at_each_step
from tests.toy_format.toy import APPEND, DELETE, ToyProposal

SEEDS = 30
toys = partial(ToyWorld, "toys")


def test_a_committer_folds_tables_of_another_format() -> None:
    world = toys(Random(0))
    with world.begun():
        begin(world)
        assert world.live() > 40
        world.finish()


@pytest.mark.parametrize("again", range(2), ids=["once", "twice"])
def test_killed_at_each_step(again: int) -> None:
    killed_at_each_step(toys, begin, count(1), again)


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_in_random_troubles(first: int) -> None:
    in_random_troubles(toys, begin, _send, range(first, first + 10))


def _send(world: ToyWorld, random: Random, batch: int) -> None:
    keys = [str(random.randint(3, 12))]
    if random.random() < 1 / 3:
        proposal = ToyProposal(f"s{batch}", DELETE, 1, keys=tuple(keys))
    else:
        proposal = ToyProposal(f"s{batch}", APPEND, 1, dict.fromkeys(keys, str(batch)))
    world.send(random.choice(world.uris), proposal, "app", random.randint(10, batch))
