"""A random history: one seed says who sends what, who comes and goes, and what goes wrong when.

Every seed draws its own mixture first, so that some histories are calm but for one kind of trouble.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from lakefold_committer.grouping import Limits
from lakefold_committer.lines import root_of
from lakefold_committer.parts import Pace
from lakefold_table.marks import RULES
from lakefold_table.storage.memory import MemoryStorage
from tests.folding import versions_at
from tests.simulation import foreign
from tests.simulation.model import OUTSIDE
from tests.simulation.store import LATEST_PUT_S, LONGEST_PAUSE_S, Troubles
from tests.simulation.world import MOST_STEPS, World, transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.runtime import Process

MOST_FOREIGN: Final = 40
KINDS: Final = (
    *["new"] * 12,
    *["keyless"] * 3,
    *["nameless"] * 2,
    *["bad", "future", "missing", "nowhere"],
    *["tagged", "reserve", "create", "empty"],
    *["garbage", "bad branch", "wrong key"],
)
DELETES: Final = (*["delete"] * 4, *["update"] * 3, *["blind delete"] * 2, "lost deletes")


@dataclass(frozen=True)
class Mixture:
    """What one seed draws.

    `most`: committers at once. `again`: how often a producer sends an old entry again. `gap_s`, `operator_s`,
    `foreign_s`: how long producers, the operator and foreign clients pause at most. `late_files`: how often a
    data file is there only `late_s` seconds after its proposal, at most. `deletes`: how often an entry
    deletes rows, where there are any.
    """

    tables: int
    entries: int
    most: int
    again: float
    gap_s: float
    operator_s: float
    foreign_s: float
    upgrade: bool
    harsh: bool
    branches: bool
    drops: bool
    late_files: float
    late_s: float
    deletes: float
    cheap_size: bool
    troubles: Troubles
    lose_reports: float
    pace: Pace = field(repr=False)

    @classmethod
    def drawn(cls, random: Random) -> Mixture:
        """The mixture that comes first from this source."""
        often = random.choice([0.0, 0.0, 0.01, 0.05, 0.2])

        def some() -> float:
            return random.choice([0.0, often])

        return cls(
            tables=random.choice([1, 1, 2, 3]),
            entries=random.randint(8, 45),
            most=random.choice([1, 2, 2, 3]),
            again=random.choice([0.0, 0.1, 0.4]),
            gap_s=random.choice([0.01, 0.1, 1.0, 5.0]),
            operator_s=random.choice([0.2, 1.0, 5.0, 30.0]),
            foreign_s=random.choice([0.3, 2.0, 20.0, 1e9]),
            upgrade=random.random() < 1 / 5,
            harsh=random.random() < 4 / 5,
            branches=random.random() < 1 / 4,
            drops=random.random() < 1 / 8,
            late_files=random.choice([0.0, 0.05, 0.5]),
            late_s=random.choice([0.2, 2.0, 20.0]),
            deletes=random.choice([0.0, 0.3, 0.8]),
            cheap_size=random.random() < 1 / 2,
            troubles=Troubles(
                refuse=some(),
                lose_stored=some(),
                lose_unstored=some(),
                late=some(),
                hangs=some() / 4,
                sleeps=some(),
                slow_s=random.choice([0.001, 0.004, 0.1]),
            ),
            lose_reports=some(),
            pace=Pace(
                Limits(random.choice([1, 2, 4, 16]), random.choice([700, 1 << 20])),
                random.choice([0.0, 0.005]),
            ),
        )


class Scenario:
    """The history of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.mixture = Mixture.drawn(self.random)
        self.world = World(
            f"simulation-{seed}", self.random, tables=self.mixture.tables, pace=self.mixture.pace
        )
        self.hub = self.world.hub
        self.actors: list[Process] = []
        self.unsent = self.mixture.entries
        self.newest_rules = RULES

    def play(self) -> None:
        """From the beginning to the end; raises what breaks."""
        world, mixture = self.world, self.mixture
        with world.begun():
            self.hub.tell("world", str(mixture))
            if mixture.branches:
                world.harsh.update(root_of(uri, "b") for uri in world.uris)
            world.store.troubles, world.store.cheap_size = mixture.troubles, mixture.cheap_size
            world.producer.late_s, world.producer.removes = mixture.late_s, not mixture.drops
            world.has_witness = not mixture.drops
            world.broker.lose = world.broker.refuse = mixture.lose_reports
            self._begin("producer", self._produce)
            self._begin("operator", self._operate)
            self._begin("foreign", self._interfere)
            self.hub.run(lambda: self.unsent <= 0, MOST_STEPS)
            for actor in self.actors:
                actor.kill()
            world.finish(self.newest_rules)

    def _begin(self, name: str, act: Callable[[Process], None]) -> None:
        process = self.hub.process(name)
        process.start(partial(act, process))
        self.actors.append(process)

    def _produce(self, process: Process) -> None:
        del process
        random, world = self.random, self.world
        batches = dict.fromkeys("ab", 0)
        while self.unsent > 0:
            self.hub.rest(random.random() * self.mixture.gap_s)
            for _ in range(random.choice([1, 1, 3, 8])):
                self._send_one(batches)
                self.unsent -= 1
            if random.random() < 1 / 8:
                world.broker.mark()

    def _send_one(self, batches: dict[str, int]) -> None:
        random, world = self.random, self.world
        sent = list(world.ledger.sent.values())
        if sent and random.random() < self.mixture.again:
            one = random.choice(sent[-12:])
            if one.kind not in OUTSIDE:
                world.producer.send_again(one)
                return
        uri = random.choice(world.uris)
        there = world.ledger.line(uri).newest > 0
        branch = "b" if self.mixture.branches and there and random.random() < 1 / 3 else ""
        if branch and random.random() < 1 / 4:
            world.producer.send("branch", uri, branch=branch)
            return
        tried = any(one.kind == "create" and one.uri == uri for one in sent)
        kind = random.choice(KINDS) if tried or random.random() < 1 / 4 else "create"
        app = random.choice("ab")
        if kind != "create" and random.random() < self.mixture.deletes:
            kind = random.choice(DELETES)
        elif kind == "new" and random.random() < self.mixture.late_files:
            kind = "late file"
        keyless = ("keyless", "nameless", "tagged", "create", "reserve")
        if kind in keyless or (kind in DELETES and random.random() < 1 / 4):
            world.producer.send(kind, uri, branch=branch)
            return
        world.producer.send(kind, uri, app, batches[app], branch)
        batches[app] += random.choice([1, 1, 1, 2])

    def _operate(self, process: Process) -> None:
        """Starts, stops, kills and pauses committers; takes the broker or a table's store away."""
        del process
        random, world = self.random, self.world
        world.start(rules=self._rules())
        while True:
            self.hub.rest(random.random() * self.mixture.operator_s)
            running = world.running()
            if len(running) < self.mixture.most and (not running or random.random() < 1 / 3):
                world.start(rules=self._rules())
                continue
            if self.mixture.drops and not self.mixture.branches and random.random() < 1 / 10:
                self._drop(random.choice(world.uris))
                continue
            self._act(
                random.choice(["kill", "kill", "pause", "stop", "hand over", "broker", "store", "full"])
            )

    def _act(self, what: str) -> None:
        random, world = self.random, self.world
        one = random.choice(world.running())
        until = self.hub.now + random.random() * random.choice([0.5, 5.0, 20.0])
        uri = random.choice(world.uris)
        table = uri.rpartition("/")[2]
        self.hub.tell("operator", f"{what}: {one.process.name}, {table}, until {until:.3f}")
        if what == "kill":
            one.process.kill()
        elif what == "pause":
            one.process.pause(random.random() * random.choice([0.1, 2.0, LONGEST_PAUSE_S]))
        elif what == "stop":
            one.stop.set()
        elif what == "hand over":
            one.stop.set()
            world.start(rules=self._rules())
        elif what == "broker":
            world.broker.away_until = until
        elif what == "store":
            world.store.away[uri] = until
        else:
            world.store.full[uri] = until

    def _drop(self, uri: str) -> None:
        """Everybody ends; once nothing is on its way any more, the table is removed and made again."""
        for one in self.world.running():
            one.process.kill()
        self.hub.rest(LATEST_PUT_S + 1)
        self.hub.tell("operator", f"drops {uri.rpartition('/')[2]}")
        self.world.drop(uri)
        self.world.producer.send("create", uri)

    def _rules(self) -> int:
        """Of a rolling upgrade: older releases are started too."""
        if not self.mixture.upgrade:
            return RULES
        rules = self.random.choice([RULES, RULES + 1])
        self.newest_rules = max(self.newest_rules, rules)
        return rules

    def _interfere(self, process: Process) -> None:
        """Another client commits in between, cleans up, and undoes what was done."""
        del process
        random, world = self.random, self.world
        for _ in range(MOST_FOREIGN):
            self.hub.rest(random.random() * self.mixture.foreign_s)
            uri = random.choice(world.uris)
            numbers = versions_at(uri).numbers()
            if not numbers:
                continue
            acts = ["commit", "commit", "config", "wipe", "roll back", "delete"]
            if self.mixture.harsh:
                acts += ["restore", "clean up", "clean up"]
            line = world.ledger.line(uri)
            # Marks whose own version is gone count only where nobody has touched them since.
            unproven = line.marks is not None and line.marks.version not in numbers
            what = "commit" if unproven else random.choice(acts)
            if what == "clean up":
                self._clean_up(uri, numbers)
                continue
            older = random.choice(numbers)
            version = foreign.ACTS[what](uri, older)
            if what == "restore":
                world.harsh.add(uri)
            if what not in ("commit", "delete"):
                line.touched = True
            self.hub.tell(
                "foreign", f"{what} (of {older}) makes version {version} of {uri.rpartition('/')[2]}"
            )
            world._stored(uri, versions_at(uri).path(version), None)

    def _clean_up(self, uri: str, numbers: list[int]) -> None:
        """Removes old versions, but those with answers that were not reported, and what proves the marks."""
        world = self.world
        line = world.ledger.line(uri)
        if line.marks is None:
            return
        open_ones = [
            version
            for version, offsets in line.recorded.items()
            if any(offset not in world.ledger.reported for offset in offsets)
        ]
        keep = min([line.marks.version if line.touched else line.newest, *open_ones])
        storage, versions = MemoryStorage(uri), versions_at(uri)
        gone = [number for number in numbers if number < keep]
        for number in gone:
            storage.delete(versions.path(number))
            line.removed.add(versions.path(number))
        if gone:
            world.harsh.add(uri)
            self.hub.tell("foreign", f"cleans up {gone} of {uri.rpartition('/')[2]}")


class FailedError(AssertionError):
    """The history of a seed broke something; the message tells how it went and how to see it again."""


def play(seed: int, last: int | None = 80) -> Scenario:
    """The whole history of this seed. `last`: how many lines of its transcript a failure shows, None all."""
    scenario = Scenario(seed)
    try:
        scenario.play()
    except Exception as error:
        told = transcript(scenario.hub, last)
        again = f"python -m tests.simulation.soak --seed {seed}"
        raise FailedError(f"seed {seed}\n{told}\n{type(error).__name__}: {error}\nagain: {again}") from error
    return scenario
