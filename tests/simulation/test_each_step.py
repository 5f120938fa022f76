"""A committer killed at its first step, its second, ... its last; each time another takes over.

The random histories kill anywhere, sooner or later. Here nothing is left to chance but what becomes of the
put that was on its way.

Promises: tag-before-answer (docs/operations/promises.md).
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest

from lakefold_table.versions.refs import Refs
from tests.folding import opened
from tests.memory_storage import MemoryStorage
from tests.simulation.ending import MOST_STEPS
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.runtime import Process

LIVES = 3
HISTORIES = 6
SOME_HISTORIES = 2
"""How many different histories of a sleeping committer are played with `--all-faults`, and without it."""
SPREAD = 2
"""Without `--all-faults` every second step is played where it is played in one way only."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With `--all-faults` more of what is chosen at random is played, at the same steps."""
    if "history" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--all-faults")
        metafunc.parametrize("history", range(HISTORIES if is_long else SOME_HISTORIES))


def begin(world: World) -> None:
    """A log with every kind of answer in it, for two tables."""
    table, other = world.uris
    world.producer.send("new", table, "a", 0)
    world.producer.send("create", table)
    first = world.producer.send("new", table, "a", 1)
    world.producer.send("keyless", table)
    world.producer.send("bad", table, "a", 2)
    world.producer.send("create", other)
    world.producer.send("garbage", other)
    world.partitions[0].broker.mark()
    world.producer.send_again(first)
    world.producer.send("missing", other, "b", 3)
    world.producer.send("tagged", other)
    world.producer.send("create", other)
    world.producer.send("new", other, "b", 4)
    world.producer.send("reserve", table)
    world.producer.send("future", table, "a", 5)
    world.producer.send("nameless", table)
    world.producer.send("missing", table, "a", 6)


def live_and_sleep(world: World, sleep_at: int) -> Process:
    """A committer that falls asleep; another starts and answers everything, with what it sees by then."""
    process = world.start().process
    process.sleep_at = sleep_at
    assert world.hub.run(lambda: bool(process.asleep) or answered(world), MOST_STEPS)
    if process.asleep:
        live(world, None)
    return process


def answered(world: World) -> bool:
    return all(partition.is_answered for partition in world.partitions)


def live(world: World, kill_at: int | None) -> int:
    """A committer, until it is killed or has answered everything; returns how many steps it took."""
    process = world.start(kill_at=kill_at).process

    assert world.hub.run(lambda: not process.running or answered(world), MOST_STEPS)
    return process.steps


def steps_of_one_life() -> int:
    """Returns how many steps a committer takes that is not killed."""
    world = World("simulation-step", Random(0), tables=2)
    with world.begun():
        begin(world)
        steps = live(world, None)
        world.finish()
    return steps


STEPS = steps_of_one_life()


@pytest.mark.parametrize("again", range(LIVES), ids=["once", "twice", "thrice"])
def test_killed_at_each_step(again: int, *, all_faults: bool) -> None:
    """Once, and then its successor too, somewhere.

    Without `--all-faults` each step is played once: followed by no kill, by one or by two.
    """
    steps = range(1, STEPS + 1)
    for number in steps if all_faults else steps[again::LIVES]:
        random = Random(number * LIVES + again)
        world = World("simulation-step", random, tables=2)
        with world.begun():
            begin(world)
            live(world, number)
            for _ in range(again):
                live(world, random.randint(1, STEPS))
            world.finish()


def begin_deleting(world: World) -> None:
    """A table with rows, and then entries that delete them, some beside the table."""
    uri = world.uris[0]
    world.producer.send("create", uri)
    for number in range(3):
        world.producer.send("new", uri, "a", number)
    live(world, None)
    world.kill_all()
    world.producer.claims = 1 / 2
    for kind in ("delete", "new", "update", "delete", "blind delete", "update", "lost deletes", "delete"):
        world.producer.send(kind, uri, "a", len(world.ledger.sent))
    world.producer.send_again(world.producer.send("update", uri, "b", 0))


def test_killed_at_each_step_while_rows_are_deleted(*, all_faults: bool) -> None:
    for number in count(1, 1 if all_faults else SPREAD):
        world = World("simulation-step", Random(number))
        with world.begun():
            begin_deleting(world)
            steps = live(world, number)
            world.finish()
        if steps < number:
            break


def test_asleep_at_each_step(*, all_faults: bool) -> None:
    """It wakes up when another has answered everything, and when files are there that were missing."""
    for number in range(1, STEPS + 1, 1 if all_faults else SPREAD):
        world = World("simulation-step", Random(number), tables=2)
        with world.begun():
            begin(world)
            process = live_and_sleep(world, number)
            for sent in world.ledger.sent.values():
                world.producer.write_files(sent.uri, sent.envelope)
            process.awake()
            world.hub.run(lambda: not process.running, 2000)  # noqa: B023 - called within this round
            world.finish()


def test_asleep_before_it_has_opened_the_table(history: int) -> None:
    """What was refused meanwhile stays refused, though no version says so yet."""
    for number in range(1, STEPS + 1):
        world = World("simulation-step", Random(number * 1000 + history))
        with world.begun():
            (uri,) = world.uris
            world.producer.send("create", uri)
            live(world, None)
            world.finish()
            for kind in ("tagged", "missing"):
                world.producer.send(kind, uri, "a", len(world.ledger.sent))
            process = live_and_sleep(world, number)
            for sent in world.ledger.sent.values():
                world.producer.write_files(sent.uri, sent.envelope)
            if not process.asleep:
                break
            process.awake()
            world.hub.run(lambda: not process.running, 2000)  # noqa: B023 - called within this round
            world.finish()


def begin_tagging(world: World, *, removed: bool = True) -> None:
    """A table with three versions, and then tags among entries that make versions.

    `removed`: one is removed. A committer that sleeps just before it creates a tag would create it again.
    """
    uri = world.uris[0]
    for kind in ("create", "new", "new"):
        world.producer.send(kind, uri, "a", len(world.ledger.sent))
        live(world, None)
    world.kill_all()
    world.producer.send_tag(uri, "x", 1)
    world.producer.send_tag(uri, "x", 2)
    world.producer.send("new", uri, "a", 10)
    world.producer.send_tag(uri, "y", 1)
    world.producer.send("reserve", uri)
    world.producer.send_tag(uri, "x", 3)
    if removed:
        world.producer.send_tag(uri, "y", None)


def possible_versions(world: World, name: str) -> set[int | None]:
    """What a tag may name, after all entries that are answered, and after each that follows."""
    versions: set[int | None] = {None}
    for offset, sent in world.ledger.sent.items():
        tag = sent.envelope.tag
        if tag.name == name:
            version = None if tag.delete else tag.version
            versions = {version} if offset in world.ledger.reported else {*versions, version}
    return versions


def stored_tags(world: World) -> dict[str, int]:
    """The tags of the first table."""
    return {name: tag.version for name, tag in Refs(MemoryStorage(world.uris[0])).tags().items()}


def is_created_late(world: World, name: str) -> bool:
    """Whether a put that a killed committer had sent created a tag after another removed it (decision 0103).

    No call of a committer comes between the removal and that.
    """
    calls = [what for _, _, what in world.hub.history if f"_refs/tags/{name}.json" in what]
    return "delete" in calls[-2] and calls[-1].endswith(": stored")


def test_killed_at_each_step_while_tags_are_set(*, all_faults: bool) -> None:
    """What is answered is stored, in the order of the log."""
    for number in count(1, 1 if all_faults else SPREAD):
        world = World("simulation-step", Random(number))
        with world.begun():
            begin_tagging(world)
            steps = live(world, number)
            for name in ("x", "y"):
                assert stored_tags(world).get(name) in possible_versions(world, name)
            world.finish()
            assert stored_tags(world) == {"x": 3, **({"y": 1} if is_created_late(world, "y") else {})}
        if steps < number:
            break


def test_asleep_at_each_step_while_tags_are_set(*, all_faults: bool) -> None:
    """It sets no tag any more when it wakes up and another has set it."""
    for number in count(1, 1 if all_faults else SPREAD):
        world = World("simulation-step", Random(number))
        with world.begun():
            begin_tagging(world, removed=False)
            process = live_and_sleep(world, number)
            if not process.asleep:
                break
            assert stored_tags(world) == {"x": 3, "y": 1}
            process.awake()
            world.hub.run(lambda: not process.running, 2000)  # noqa: B023 - called within this round
            assert stored_tags(world) == {"x": 3, "y": 1}
            world.finish()


def begin_deleting_a_branch(world: World) -> int:
    """A table and a branch with rows, and then entries of both, among them one that deletes the branch.

    Returns the offset of that one.
    """
    uri = world.uris[0]
    world.producer.send("create", uri)
    live(world, None)
    for kind in ("branch", "new"):
        world.producer.send(kind, uri, "b", len(world.ledger.sent), branch="b")
        live(world, None)
    world.kill_all()
    world.producer.send("new", uri, "b", 10, branch="b")
    world.producer.send("new", uri, "a", 10)
    deletion = world.producer.send_branch_deletion(uri, "b")
    world.producer.send("new", uri, "b", 11, branch="b")
    world.producer.send_branch_deletion(uri, "b")
    world.producer.send("branch", uri, branch="b")
    world.producer.send("new", uri, "a", 11)
    return deletion.offset


def test_killed_or_asleep_at_each_step_while_a_branch_is_deleted(*, all_faults: bool) -> None:
    """What is before the deletion is folded, all that follows for the branch is refused, and nothing else."""
    for number in count(1, 1 if all_faults else SPREAD):
        steps = 0
        for sleeps in (False, True):
            world = World("simulation-step", Random(number))
            with world.begun():
                deletion = begin_deleting_a_branch(world)
                if sleeps:
                    process = live_and_sleep(world, number)
                    process.awake()
                    world.hub.run(lambda: not process.running, 2000)  # noqa: B023 - called within this round
                else:
                    steps = live(world, number)
                world.finish()
                by = opened(f"{world.uris[0]}/tree/b").table.marks.deleted_by
                assert by is not None
                assert by.offset == deletion
        if steps < number:
            break


def test_the_history_has_many_steps() -> None:
    assert STEPS > 40
