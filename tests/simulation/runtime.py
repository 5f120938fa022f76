"""Simulated time and processes: one thread, one seed, one order of everything that happens.

A process is real blocking code in greenlets. Each call that it makes to a simulated part is a *step*: the
process waits there, and the hub continues with the process that is due next by the simulated clock. Nothing
else switches, so a seed gives the same steps each time. A killed process never continues after its step; a
paused process (SIGSTOP) continues late.

This is the only module that knows greenlets, and the only module that replaces the clock of production.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from greenlet import GreenletExit, getcurrent, greenlet

import lakefold_committer.claims.claim_check
import lakefold_committer.fold.fold
import lakefold_committer.recovery.open_table
import lakefold_committer.tables.table_writer
from lakefold_table.marks.marks import RULES
from tests.simulation.transitions import recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from lakefold_committer.loop.ports import Stop
    from tests.simulation.transitions import Transition

T = TypeVar("T")
Killed = GreenletExit
"""What a killed process meets where it rests: it isn't caught by `except Exception`."""
START_S: Final = 1_700_000_000.0
"""What the wall clock shows when the simulation begins, in seconds since 1970."""


class BrokenError(AssertionError):
    """An invariant doesn't hold."""


@dataclass(eq=False)
class Process:
    """Something that runs, is killed or paused as one. `rules`: those that its release knows.

    `kill_at`: the step at which it dies, counted from 1; `sleep_at`: the step at which it falls asleep, until
    `paused_until` is set to a time that comes.
    """

    name: str
    hub: Hub
    rules: int = RULES
    alive: bool = True
    steps: int = 0
    kill_at: int | None = None
    sleep_at: int | None = None
    paused_until: float = 0.0
    tasks: list[Task] = field(default_factory=list)
    asleep: list[tuple[Task, int]] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Returns whether any task of it still runs."""
        return self.alive and any(not task.greenlet.dead for task in self.tasks)

    def start(self, work: Callable[[], object]) -> None:
        """Begin another thread of this process."""
        self.tasks = [task for task in self.tasks if not task.greenlet.dead]
        task = Task(self, greenlet(lambda: self._guarded(work), parent=self.hub.main))
        self.tasks.append(task)
        self.hub.by_greenlet[task.greenlet] = task
        self.hub.wake(task, self.hub.now)

    def kill(self) -> None:
        """SIGKILL: no step of it ever ends. Buried by the hub, since one greenlet can't end another's."""
        if self.alive:
            self.alive = False
            self.hub.graves.append(self)

    def pause(self, seconds: float) -> None:
        """SIGSTOP for so long."""
        self.paused_until = max(self.paused_until, self.hub.now + seconds)

    def awake(self) -> None:
        """SIGCONT: it continues where it was suspended."""
        self.hub.note(self.name, "wakes up")
        self.paused_until = 0.0
        asleep, self.asleep = self.asleep, []
        for task, turn in asleep:
            if task.turn == turn:
                self.hub.wake(task, self.hub.now)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except GreenletExit:
            pass
        except BaseException as error:  # noqa: BLE001 - it ends the simulation, which raises it
            self.hub.failure = self.hub.failure or error
        finally:
            self.hub.by_greenlet.pop(getcurrent(), None)


@dataclass(eq=False)
class Task:
    """A thread of a process. `turn` distinguishes the wake-up that counts from those that came too late."""

    process: Process
    greenlet: Any
    turn: int = 0


class Hub:
    """The clock, the next task, and what happened: in `history`, and in `taken` the transitions of states."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.steps = 0
        self.history: list[tuple[float, str, str]] = []
        self.taken: Counter[Transition] = Counter()
        self.main = getcurrent()
        self.by_greenlet: dict[object, Task] = {}
        self.graves: list[Process] = []
        self.failure: BaseException | None = None
        self.rules = RULES
        self._order = count()
        self._due: list[tuple[float, int, Task | None, int, Callable[[], object] | None]] = []

    def note(self, who: str, what: str) -> None:
        """Note what happened, for people."""
        self.history.append((self.now, who, what))

    def process(self, name: str, rules: int = RULES) -> Process:
        """A process that does nothing yet."""
        return Process(name, self, rules)

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Have something happen that needs no process any more, such as the arrival of what was sent."""
        heappush(self._due, (self.now + seconds, next(self._order), None, 0, act))

    def wake(self, task: Task, at: float) -> None:
        """Lets a task continue at that time, instead of any time planned before."""
        task.turn += 1
        heappush(self._due, (at, next(self._order), task, task.turn, None))

    def rest(self, seconds: float) -> None:
        """Called in a process: lets others continue for so long. A killed process never returns from here."""
        task = self.by_greenlet[getcurrent()]
        if task.process.alive:
            self.wake(task, self.now + seconds)
            self.main.switch()
        if not task.process.alive:
            raise GreenletExit

    def step(self, seconds: float) -> None:
        """A numbered step of the process that calls it."""
        process = self.by_greenlet[getcurrent()].process
        process.steps += 1
        if process.steps == process.kill_at:
            self.note(process.name, f"is killed at its step {process.steps}")
            process.kill()
        if process.steps == process.sleep_at:
            self.note(process.name, f"falls asleep at its step {process.steps}")
            process.paused_until = math.inf
        self.rest(seconds)

    def current(self) -> Task:
        """The task that calls."""
        return self.by_greenlet[getcurrent()]

    def run(self, until: Callable[[], bool], most_steps: int) -> bool:
        """Continues until that holds. Returns False if nothing is due, or not within so many steps."""
        last = self.steps + most_steps
        while not until():
            if not self._due or self.steps >= last:
                return False
            at, _, task, turn, act = heappop(self._due)
            if act is not None:
                self.now = max(self.now, at)
                act()
            elif task is not None and turn == task.turn and task.process.alive:
                if task.process.paused_until > at:
                    self._sleep(task, turn)
                    continue
                self.now = max(self.now, at)
                self._go_on(task)
            self._bury()
            if self.failure is not None:
                raise self.failure
        return True

    def clock(self) -> float:
        """The simulated seconds since the beginning."""
        return self.now

    @contextmanager
    def watched(self) -> Iterator[None]:
        """An error in here ends the simulation, even if production would continue after it."""
        try:
            yield
        except BrokenError as error:
            self.failure = self.failure or error
            raise

    def stop(self) -> None:
        """Kills all processes that still run."""
        for task in list(self.by_greenlet.values()):
            task.process.kill()
        self._bury()

    def _sleep(self, task: Task, turn: int) -> None:
        if task.process.paused_until == math.inf:
            task.process.asleep.append((task, turn))
        else:
            heappush(self._due, (task.process.paused_until, next(self._order), task, turn, None))

    def _go_on(self, task: Task) -> None:
        self.steps += 1
        if self.rules != task.process.rules:
            self.rules = task.process.rules
            know_rules(self.rules)
        task.greenlet.switch()

    def _bury(self) -> None:
        while self.graves:
            for task in self.graves.pop(0).tasks:
                if task.greenlet:
                    task.greenlet.throw(GreenletExit)
                self.by_greenlet.pop(task.greenlet, None)


class Event:
    """A `threading.Event` by the simulated clock."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def set(self) -> None:
        """Wake who waits."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._hub.wake(task, self._hub.now)

    def clear(self) -> None:
        """As if it had never been set."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Rest until it is set, at most so many seconds."""
        if not self._set:
            task = self._hub.current()
            self._waiting.append(task)
            self._hub.rest(1e9 if timeout is None else timeout)
            if task in self._waiting:
                self._waiting.remove(task)
        return self._set


class Tasks:
    """A `Runtime`: each task is another thread of its process."""

    def __init__(self, process: Process) -> None:
        self.running = 0
        self._process = process
        self._ended: list[tuple[Callable[[Any], None], object]] = []
        self._one_ended = Event(process.hub)

    def now(self) -> float:
        """See `Runtime.now`."""
        return _Clock(self._process.hub).monotonic()

    def wall(self) -> float:
        """See `Runtime.wall`."""
        return _Clock(self._process.hub).time()

    def pause(self, seconds: float, stop: Stop) -> None:
        """See `Runtime.pause`."""
        stop.wait(seconds)

    def start(self, work: Callable[[], T], ended: Callable[[T | BaseException], None]) -> None:
        """See `Runtime.start`."""
        self.running += 1
        self._process.start(partial(self._work, work, ended))

    def wait(self, timeout_s: float) -> bool:
        """See `Runtime.wait`."""
        if self.running and not self._ended and timeout_s > 0:
            self._one_ended.wait(timeout_s)
        self._one_ended.clear()
        values, self._ended = self._ended, []
        self.running -= len(values)
        for ended, result in values:
            ended(result)
        return bool(values)

    def close(self) -> None:
        """See `Runtime.close`."""

    def _work(self, work: Callable[[], object], ended: Callable[[Any], None]) -> None:
        try:
            result = work()
        except GreenletExit:
            raise
        except BrokenError as error:
            # Not the loop's business, which may have ended: it ends the simulation.
            self._process.hub.failure = self._process.hub.failure or error
            return
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which knows what it means
            result = error
        self._ended.append((ended, result))
        self._one_ended.set()


class _Clock:
    """What production takes for the module `time`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def monotonic(self) -> float:
        """Seconds since the simulation began, and a day: production measures from 0."""
        return self._hub.now + 86400.0

    def time(self) -> float:
        """Seconds since 1970."""
        return START_S + self._hub.now

    def time_ns(self) -> int:
        """Nanoseconds since 1970."""
        return int(self.time() * 1e9)


def know_rules(rules: int) -> None:
    """Have the code that runs next be of the release that knows these rules."""
    for module in (lakefold_committer.fold.fold, lakefold_committer.recovery.open_table):
        module.RULES = rules  # type: ignore[attr-defined]


@contextmanager
def simulated(hub: Hub) -> Iterator[None]:
    """Within it production uses the simulated clock, and what it logs is written to the transcript."""
    modules: Sequence[Any] = (lakefold_committer.tables.table_writer, lakefold_committer.claims.claim_check)
    times = [module.time for module in modules]
    processors = structlog.get_config()["processors"]
    before = list(processors)

    def note(_: object, __: str, event: dict[str, Any]) -> dict[str, Any]:
        task = hub.by_greenlet.get(getcurrent())
        detail = "".join(f" {key}={value}" for key, value in event.items() if key != "event" and value)
        hub.note(task.process.name if task else "", f"logs: {event['event']}{detail}")
        raise structlog.DropEvent

    processors[:] = [note]
    structlog.configure(processors=processors)
    for module in modules:
        module.time = _Clock(hub)
    try:
        with recording(hub.taken):
            yield
    finally:
        hub.stop()
        know_rules(RULES)
        for module, real in zip(modules, times, strict=True):
            module.time = real
        processors[:] = before
        structlog.configure(processors=processors)
