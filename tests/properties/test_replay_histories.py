"""Histories of every operation, other clients in between: the log gives every version once more."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_table.formats import BUILT_IN
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT
from tests.properties.acts import ACTS
from tests.properties.world import World
from tests.replaying import Listed


def play(world: World, seed: int, names: list[str]) -> None:
    """Each act once or twice, as a proposal or by another client; committers come and go."""
    chance = random.Random(seed)
    for name in names:
        picks = [chance.randrange(40) for _ in range(3)]
        kind = chance.randrange(6)
        if kind == 0:
            world.foreign(name, picks, chance.randrange(3))
        else:
            world.propose(name, picks, chance.randrange(3), knows_rows=chance.random() < 0.5)
        if kind == 1:
            world.take_over()
        if world.waiting and kind in {2, 3, 4}:
            world.fold(chance.randrange(1, 5))
    world.fold(len(world.waiting))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
# The committer looked at an entry built on an old version, which then went into a later version.
@example(seed=487)
# A compaction is carried over deletions, and its fragment is the only fragment left that has deleted rows.
@example(seed=1085)
# A compaction writes a column that had no values in any file and is dropped before it is committed.
@example(seed=336)
def test_every_version_of_a_history_is_made_again(seed: int) -> None:
    with TemporaryDirectory(prefix="replayed-") as folder:
        world = World(Path(folder), stable=seed % 2 == 0)
        names = sorted(ACTS) * 2
        random.Random(seed).shuffle(names)
        play(world, seed, names[:12])
        check(world)


def check(world: World) -> None:
    """Replays all of it, and its younger half."""
    log = Listed(entry for step in world.steps if isinstance(step, list) for entry in step)
    versions = Versions(LocalStorage(world.table), FORMAT.folder, FORMAT.detect)
    replays = list(replay(StoredTable(BUILT_IN.first, versions), log))
    assert [each.version for each in replays] == list(range(1, world.version + 1))
    foreign = {step for step in world.steps if isinstance(step, int)} | {1}
    for each in replays:
        expected = Verdict.FOREIGN if each.version in foreign else Verdict.SAME
        assert each.verdict is expected, each
    begin = world.version // 2 + 1
    assert list(replay(StoredTable(BUILT_IN.first, versions), log, begin)) == replays[begin - 1 :]
