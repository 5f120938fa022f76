"""A random history: one seed says who sends what, who comes and goes, and what goes wrong when.

Every seed draws its own mixture first, so that some histories are calm but for a kind of trouble.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.fold.manifest_budget import ManifestLimits
from lakefold_committer.loop.ports import LoopLimits
from lakefold_table.branch_names import root_of
from lakefold_table.errors import GapError
from lakefold_table.marks.marks import RULES
from tests.folding import FORMAT, versions_at
from tests.memory_storage import MemoryStorage
from tests.simulation import foreign
from tests.simulation.ending import MOST_STEPS
from tests.simulation.model import OUTSIDE, REWRITE
from tests.simulation.store import LATEST_PUT_S, LONGEST_PAUSE_S, Troubles
from tests.simulation.world import World, transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.partition import Partition
    from tests.simulation.runtime import Process

MOST_FOREIGN: Final = 40
MOST_LOST: Final = 8
KINDS: Final = (
    *["new"] * 12,
    *["keyless"] * 3,
    *["nameless"] * 2,
    *["bad", "future", "missing", "nowhere"],
    *["tagged", "reserve", "create", "empty"],
    *["garbage", "bad branch", "wrong key"],
)
ACTS: Final = (
    *["kill"] * 2,
    "pause",
    "stop",
    *["hand over"] * 2,
    *["rebalance"] * 2,
    "broker",
    "store",
    "full",
)
DELETES: Final = (*["delete"] * 4, *["update"] * 3, *["blind delete"] * 2, "lost deletes")


@dataclass(frozen=True)
class Mixture:
    """What one seed draws.

    `most`: committers at once. `again`: how often a producer sends an old entry again. `gap_s`, `operator_s`,
    `foreign_s`: how long producers, the operator and foreign clients pause at most. `late_files`: how often a
    data file is there only `late_s` seconds after its proposal, at most. `deletes`: how often an entry
    deletes rows, if any exist. `claims`: how often an envelope is stored beside its table.
    `retention`: the topics lose their beginnings; `loses`: some of it before it was answered. `cuts`: the log
    loses its end, as by a power cut, and grows again.
    """

    tables: int
    partitions: int
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
    claims: float
    retention: bool
    loses: bool
    cuts: bool
    cheap_size: bool
    troubles: Troubles
    lose_reports: float
    pace: LoopLimits = field(repr=False)

    @classmethod
    def drawn(cls, random: Random) -> Mixture:
        """The mixture that comes first from this source."""
        often = random.choice([0.0, 0.0, 0.01, 0.05, 0.2])

        def some() -> float:
            return random.choice([0.0, often])

        return cls(
            tables=random.choice([1, 1, 2, 3]),
            partitions=random.choice([1, 1, 2]),
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
            claims=random.choice([0.0, 0.0, 0.2, 0.8]),
            retention=random.random() < 1 / 3,
            loses=random.random() < 1 / 4,
            cuts=random.random() < 1 / 4,
            cheap_size=random.random() < 1 / 2,
            troubles=Troubles(
                refuse=some(),
                lose_stored=some(),
                lose_unstored=some(),
                late=some(),
                hangs=some() / 4,
                sleeps=some(),
                freed=some(),
                slow_s=random.choice([0.001, 0.004, 0.1]),
            ),
            lose_reports=some(),
            pace=LoopLimits(
                Limits(random.choice([1, 2, 4, 16]), random.choice([700, 1 << 20])),
                random.choice([0.0, 0.005]),
            ),
        )


class Scenario:
    """The history of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.mixture = Mixture.drawn(self.random)
        # From a source of its own: a seed whose versions never wait keeps its history.
        manifests = Random(f"manifests of {seed}")
        budget = ManifestLimits(manifests.choice([0, 0, 100, 1000]), manifests.choice([0.05, 1.0]))
        self.world = World(
            f"simulation-{seed}",
            self.random,
            tables=self.mixture.tables,
            partitions=self.mixture.partitions,
            pace=replace(self.mixture.pace, manifests=budget),
        )
        self.hub = self.world.hub
        self.actors: list[Process] = []
        self.unsent = self.mixture.entries
        self.newest_rules = RULES
        # A branch whose beginning was lost continues only once it is created again, and so does a dropped
        # table.
        self.compactor = Random(f"rewrites of {seed}")
        simple = not (self.mixture.cuts or self.mixture.branches or self.mixture.drops)
        self.rewrites = self.compactor.choice([0.0, 0.1, 0.4]) if simple else 0.0
        self.cuts = self.mixture.cuts and not self.mixture.branches and not self.mixture.drops
        self.batches = dict.fromkeys("ab", 0)

    def play(self) -> None:
        """From the beginning to the end; raises what breaks."""
        world, mixture = self.world, self.mixture
        with world.begun():
            self.hub.note("world", str(mixture))
            if mixture.branches:
                for uri in world.uris:
                    world.home(uri).ledger.harsh.add(root_of(uri, "b"))
            world.store.troubles, world.store.cheap_size = mixture.troubles, mixture.cheap_size
            world.claimer.late_s, world.has_outcome_index = mixture.late_s, not mixture.drops
            for each in world.partitions:
                each.producer.late_s, each.producer.removes = mixture.late_s, not mixture.drops
                each.producer.claims = mixture.claims
                each.broker.lose = each.broker.refuse = mixture.lose_reports
            if mixture.harsh and not mixture.cheap_size:
                world.store.frees = self._free_name
            self._begin("producer", self._produce)
            self._begin("operator", self._operate)
            self._begin("foreign", self._interfere)
            if mixture.retention:
                self._begin("retention", self._retain)
            self.hub.run(lambda: self.unsent <= 0, MOST_STEPS)
            for actor in self.actors:
                actor.kill()
            if mixture.retention:
                world.kill_all()
                for partition in world.partitions:
                    self._lose_beginnings(partition)
            world.finish(self.newest_rules)

    def _begin(self, name: str, act: Callable[[Process], None]) -> None:
        process = self.hub.process(name)
        process.start(partial(act, process))
        self.actors.append(process)

    def _produce(self, process: Process) -> None:
        del process
        random, world = self.random, self.world
        while self.unsent > 0:
            self.hub.rest(random.random() * self.mixture.gap_s)
            if self.rewrites:
                # So that some of what was sent is folded before the next fragments are rewritten.
                self.hub.rest(self.compactor.random() * 3)
            for _ in range(random.choice([1, 1, 3, 8])):
                self._send_one()
                self.unsent -= 1
            if random.random() < 1 / 8:
                random.choice(world.partitions).broker.mark()

    def _send_one(self) -> None:
        random, world, batches = self.random, self.world, self.batches
        uri = random.choice(world.uris)
        home = world.home(uri)
        # A writer sends again what the log has lost, too.
        sent = home.ledger.history
        if sent and random.random() < self.mixture.again:
            single = random.choice(sent[-12:])
            if single.kind not in OUTSIDE:
                home.producer.send_again(single)
                return
        others = [partition for partition in world.partitions if partition is not home]
        if others and random.random() < 1 / 15:
            random.choice(others).producer.send("stray", uri)
            return
        exists = home.ledger.line(uri).newest > 0
        branch = "b" if self.mixture.branches and exists and random.random() < 1 / 3 else ""
        if branch and random.random() < 1 / 4:
            home.producer.send("branch", uri, branch=branch)
            return
        tried = any(entry.kind == "create" and entry.uri == uri for entry in sent)
        kind = random.choice(KINDS) if tried or random.random() < 1 / 4 else "create"
        app = random.choice("ab")
        if kind != "create" and random.random() < self.mixture.deletes:
            kind = random.choice(DELETES)
        elif kind == "new" and random.random() < self.mixture.late_files:
            kind = "late file"
        if kind != "create" and self.rewrites and self.compactor.random() < self.rewrites:
            home.producer.send(REWRITE, uri)
            return
        keyless = ("keyless", "nameless", "tagged", "create", "reserve")
        if kind in keyless or (kind in DELETES and random.random() < 1 / 4):
            home.producer.send(kind, uri, branch=branch)
            return
        home.producer.send(kind, uri, app, batches[app], branch)
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
                self._start()
                continue
            if self.mixture.drops and not self.mixture.branches and random.random() < 1 / 10:
                self._drop(random.choice(world.uris))
                continue
            if self.cuts and random.random() < 1 / 6:
                self._cut(random.choice(world.partitions))
                continue
            self._act(random.choice(ACTS))

    def _start(self) -> None:
        """Starts another committer. If the last one met a gap, this one may accept it."""
        world = self.world
        met = any(
            isinstance(partition.ended_by, GapError) and partition.broker.has_gap
            for partition in world.partitions
        )
        accepts = met and self.random.random() < 1 / 4
        few = world.partitions if self.random.random() < 1 / 2 else [self.random.choice(world.partitions)]
        world.start(rules=self._rules(), partitions=few, accepts=accepts)

    def _rebalance(self, partition: Partition) -> None:
        """The group assigns a partition to another process. The former one is informed, or counts as dead."""
        random, world, number = self.random, self.world, partition.number
        if random.random() < 1 / 2:
            for committer in world.holders(number):
                committer.stops[number].set()
        others = [committer for committer in world.running() if number not in committer.stops]
        if others and random.random() < 2 / 3:
            taker = random.choice(others)
            self.hub.note("operator", f"gives {number} to {taker.process.name}")
            taker.begin(partition)
        else:
            world.start(rules=self._rules(), partitions=[partition])

    def _act(self, what: str) -> None:
        random, world = self.random, self.world
        if not world.running():
            return
        committer = random.choice(world.running())
        until = self.hub.now + random.random() * random.choice([0.5, 5.0, 20.0])
        uri = random.choice(world.uris)
        table = uri.rpartition("/")[2]
        self.hub.note("operator", f"{what}: {committer.process.name}, {table}, until {until:.3f}")
        if what == "kill":
            committer.process.kill()
        elif what == "pause":
            committer.process.pause(random.random() * random.choice([0.1, 2.0, LONGEST_PAUSE_S]))
        elif what == "stop":
            committer.stop()
        elif what == "hand over":
            committer.stop()
            world.start(rules=self._rules())
        elif what == "rebalance":
            self._rebalance(random.choice(world.partitions))
        elif what == "broker":
            for partition in world.partitions:
                partition.broker.away_until = until
        elif what == "store":
            world.store.away[uri] = until
        else:
            world.store.full[uri] = until

    def _drop(self, uri: str) -> None:
        """Everybody ends; once nothing is on its way any more, the table is removed and made again."""
        for committer in self.world.running():
            committer.process.kill()
        self.hub.rest(LATEST_PUT_S + 1)
        self.hub.note("operator", f"drops {uri.rpartition('/')[2]}")
        self.world.drop(uri)
        self.world.home(uri).producer.send("create", uri)

    def _cut(self, partition: Partition) -> None:
        """Everybody ends; once nothing is on its way any more, the log loses its end, and others follow."""
        random, broker = self.random, partition.broker
        for committer in self.world.running():
            committer.process.kill()
        if self.world.store.on_their_way:
            self.hub.rest(LATEST_PUT_S + 1)
        if broker.end == broker.start:
            return
        first = random.randint(max(broker.start, broker.end - MOST_LOST), broker.end - 1)
        partition.lose_end(first, everything=random.random() < 1 / 2)
        for _ in range(random.choice([0, 1, 3, MOST_LOST])):
            self._send_one()

    def _retain(self, process: Process) -> None:
        """Removes what is old, repeatedly."""
        del process
        while True:
            self.hub.rest(self.random.random() * 4 * self.mixture.gap_s)
            self._lose_beginnings(self.random.choice(self.world.partitions))

    def _lose_beginnings(self, partition: Partition) -> None:
        """Retention removes what was answered, and outcomes; now and then more than that."""
        random, broker = self.random, partition.broker
        broker.trim(random.randint(0, broker.removable))
        if random.random() < 1 / 2:
            partition.forget_outcomes(random.randint(0, len(broker.outcomes)))
        if (
            self.mixture.loses
            and broker.kept is None
            and broker.end > broker.proven
            and random.random() < 1 / 4
        ):
            for uri in partition.uris:
                partition.ledger.harsh.update([uri, root_of(uri, "b")])
            broker.trim(random.randint(broker.proven, broker.end))

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
            line = world.line(uri)
            # If a version since our last one is gone, marks count only if no other client has changed them.
            since = numbers[-1] if line.marks is None else line.marks.version
            unproven = not {*range(since, numbers[-1])} <= {*numbers}
            what = "commit" if unproven else random.choice(acts)
            if what == "clean up":
                self._clean_up(uri, numbers)
                continue
            older = random.choice(numbers)
            version = foreign.ACTS[what](uri, older)
            if what == "restore":
                world.home(uri).ledger.harsh.add(uri)
            if what not in ("commit", "delete"):
                line.touched = True
            self.hub.note(
                "foreign", f"{what} (of {older}) makes version {version} of {uri.rpartition('/')[2]}"
            )
            world.stored(uri, versions_at(uri).path(version), None)

    def _free_name(self, uri: str, path: str) -> None:
        """Other clients commit the version that is about to arrive and the next one, and remove the first.

        A tag keeps the version before. It can still be verified whose marks count: no other client has
        changed them.
        """
        if uri not in self.world.uris or not path.startswith(f"{FORMAT.folder}/"):
            return
        line, versions = self.world.line(uri), versions_at(uri)
        numbers = versions.numbers()
        if line.marks is None or line.touched or line.marks.version not in numbers:
            return
        taken, last = [foreign.ACTS["commit"](uri, 0) for _ in range(2)]
        for number in (taken, last):
            self.world.stored(uri, versions.path(number), None)
        versions.storage.delete(versions.path(taken))
        line.removed.add(versions.path(taken))
        self.world.home(uri).ledger.harsh.add(uri)
        self.hub.note("foreign", f"takes and frees version {taken} of {uri.rpartition('/')[2]}")

    def _clean_up(self, uri: str, numbers: list[int]) -> None:
        """Removes old versions, except those with unreported answers and those that confirm the marks."""
        ledger = self.world.home(uri).ledger
        line = ledger.line(uri)
        if line.marks is None:
            return
        open_ones = [
            version
            for version, offsets in line.recorded.items()
            if any(offset not in ledger.reported for offset in offsets)
        ]
        keep = min([line.marks.version if line.touched else line.newest, *open_ones])
        storage, versions = MemoryStorage(uri), versions_at(uri)
        gone = [number for number in numbers if number < keep]
        for number in gone:
            storage.delete(versions.path(number))
            line.removed.add(versions.path(number))
        if gone:
            ledger.harsh.add(uri)
            self.hub.note("foreign", f"cleans up {gone} of {uri.rpartition('/')[2]}")


class FailedError(AssertionError):
    """The history of a seed broke an invariant. The message shows the history and how to repeat it."""


def play(seed: int, last: int | None = 80) -> Scenario:
    """The whole history of this seed. `last`: how many lines of its transcript a failure shows, None all."""
    scenario = Scenario(seed)
    try:
        scenario.play()
    except Exception as error:
        text = transcript(scenario.hub, last)
        again = f"python -m tests.simulation.soak --seed {seed}"
        raise FailedError(f"seed {seed}\n{text}\n{type(error).__name__}: {error}\nagain: {again}") from error
    return scenario
