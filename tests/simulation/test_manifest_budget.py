"""Under a stream a table's manifests stay within their budget, and no entry waits long for that."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.fold.manifest_budget import ManifestLimits
from lakefold_committer.loop.ports import LoopLimits
from lakefold_table.entry import Committed
from tests.folding import FORMAT
from tests.memory_storage import MemoryStorage
from tests.simulation.ending import MOST_STEPS
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.runtime import Process

ENTRIES, EVERY_S, RATE = 400, 0.1, 20_000


class TimedWorld(World):
    """A world that notes when each version was stored, and how many bytes it has."""

    stored_at: list[tuple[float, int]]

    def stored(self, uri: str, path: str, process: Process | None) -> None:
        super().stored(uri, path, process)
        if path.startswith(f"{FORMAT.folder}/"):
            self.stored_at.append((self.hub.now, len(MemoryStorage(uri).get(path))))


def streamed(manifests: ManifestLimits, limits: Limits = Limits(4096, 1 << 22)) -> TimedWorld:  # noqa: B008 - it is frozen
    """A world in which a producer sends entries at a steady pace, until all are answered."""
    pace = LoopLimits(limits, 0.005, manifests=manifests)
    world = TimedWorld("manifest-budget", Random(0), pace=pace)
    world.stored_at = []
    (uri,), (partition,) = world.uris, world.partitions
    sent: list[float] = []

    def produce() -> None:
        world.producer.send("create", uri)
        for _ in range(ENTRIES):
            world.hub.rest(EVERY_S)
            world.producer.send("keyless", uri)
            sent.append(world.hub.now)

    with world.begun():
        world.start()
        world.hub.process("producer").start(produce)
        done = world.hub.run(lambda: len(sent) == ENTRIES and partition.is_answered, MOST_STEPS)
        assert done
        assert {type(outcome.result) for outcome in world.ledger.reported.values()} == {Committed}
        assert world.hub.now - sent[-1] < manifests.max_wait_s + 1
        world.finish()
    return world


def longest_pause(world: TimedWorld) -> float:
    times = [at for at, _ in world.stored_at]
    return max(after - before for before, after in pairwise(times))


def test_a_stream_stays_within_the_budget() -> None:
    world = streamed(ManifestLimits(RATE, 30.0))
    assert len(world.stored_at) < ENTRIES / 2
    for first, _ in world.stored_at:
        minute = [size for at, size in world.stored_at if first <= at < first + 60]
        # The next manifest is taken to be as large as the last, and each is a little larger.
        assert sum(minute) <= 60 * RATE + max(minute)


def test_a_version_waits_no_longer_than_it_may() -> None:
    world = streamed(ManifestLimits(1, 2.0))
    assert longest_pause(world) == pytest.approx(2.0, abs=2 * EVERY_S)
    assert len(world.stored_at) < ENTRIES / 10


def test_without_a_limit_each_entry_has_its_version() -> None:
    assert len(streamed(ManifestLimits(0)).stored_at) > ENTRIES * 0.9


def test_a_full_group_does_not_wait() -> None:
    world = streamed(ManifestLimits(1, 30.0), Limits(4, 1 << 22))
    assert longest_pause(world) < 1.0
    assert len(world.stored_at) >= ENTRIES / 4
