"""Production's committer with Delta tables and a Lance table, killed at each step and in random troubles."""

from __future__ import annotations

from functools import partial
from itertools import count
from random import Random

import pytest

from tests.simulation.delta_world import APPEND, DELETE, DELETE_ROWS, PLAIN, SIZE, Change, DeltaWorld, begin
from tests.simulation.toy_world import in_random_troubles, killed_at_each_step

SEEDS = 30
deltas = partial(DeltaWorld, "deltas")


def test_a_committer_folds_delta_tables() -> None:
    world = deltas(Random(0))
    with world.begun():
        begin(world)
        assert world.live() > 40
        world.finish()
        assert world.checkpoints == 2


@pytest.mark.parametrize("again", range(2), ids=["once", "twice"])
def test_killed_at_each_step(again: int, *, all_faults: bool) -> None:
    """Without `--all-faults` each step is played once: followed by another kill or not."""
    killed_at_each_step(deltas, begin, count(1) if all_faults else count(1 + again, 2), again)


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_in_random_troubles(first: int) -> None:
    in_random_troubles(deltas, begin, _send, range(first, first + 10))


def _send(world: DeltaWorld, random: Random, batch: int) -> None:
    uri = random.choice(world.uris)
    kinds = [APPEND, APPEND, DELETE] if uri.endswith(PLAIN) else [APPEND, DELETE_ROWS, DELETE_ROWS]
    rows = tuple(sorted(random.sample(range(SIZE), 2)))
    change = Change(f"s{batch}", random.choice(kinds), str(random.randint(3, 12)), rows)
    number = random.randint(10, batch)
    if random.random() < 1 / 4:
        world.hub.later(random.random() * 3, partial(world.commit_elsewhere, uri))
    if random.random() < 1 / 4:
        world.send_lance(Change(f"l{batch}", APPEND, str(batch)), "app", number)
    else:
        world.propose(uri, change, "app", number)
