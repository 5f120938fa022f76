"""Runs the demo: starts the parts, watches them, kills the committer midway, checks the rows, stops all.

A single thread controls everything. It checks all parts about twenty times a second (`_check_parts`); longer
work runs in other threads or processes. So the screen is updated all the time, a failure is noticed at once,
and Ctrl-C always has the same effect: the stack of running parts is closed.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import lakefold
from lakefold.demo.checksum import Checksum, TableChecksums
from lakefold.demo.children import Child
from lakefold.demo.committers import Committers, ConsolePage
from lakefold.demo.dataset import SCHEMA, Departures, find_csv
from lakefold.demo.follower import Follower
from lakefold.demo.job import PARTITIONS, TOPIC, Job, ServicesJob
from lakefold.demo.replay import Replay
from lakefold.demo.services import SERVICES
from lakefold.demo.tasks import Task
from lakefold.demo.verification import DemoVerification, ServicesVerification, question, question_services
from lakefold.local.broker import Broker
from lakefold.local.kill_on_exit import KillOnExit
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.write.events import make_topic
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakefold.demo.folder import Folder
    from lakefold.demo.screen import Screen
    from lakefold.demo.signals import Signals
    from lakefold.demo.state import DemoProgress

T = TypeVar("T")

KILL_AT: Final = 0.4
"""The share of the rows that must be visible before the committer is killed."""

_LOOK_EVERY_S: Final = 0.05
_STILL_S: Final = 180.0
_CATCH_UP_S: Final = 30.0
_HASTE_S: Final = 5.0
_STREAMING: Final = "events become rows"
_INTRODUCTION: Final = (
    "events are in a Kafka topic; a Spark query writes each batch of them as {files} and",
    "proposes one transaction; the log, another topic, puts the transactions in order; the committer folds",
    "them in that order into versions of the table; a reader follows the versions; beside them, services",
    "append small rows to a second table, all at once, through the same log",
)


class Part(Protocol):
    """A part of the demo that runs."""

    def look(self, state: DemoProgress, screen: Screen) -> None:
        """Shows the part's progress. Raises its error if it ended too early."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    `size` is the bytes of all events, `seconds` the time from the query's start to the last row that was
    read, `pace` the median rows and seconds of a version.
    """

    rows: int
    size: int
    seconds: float
    pace: tuple[int, float]
    verifications: Sequence[DemoVerification]
    services: ServicesVerification


class Demo:
    """A run in `folder`. `port` is the broker's, 0 for any free port."""

    def __init__(
        self, folder: Folder, state: DemoProgress, screen: Screen, signals: Signals, port: int = 0
    ) -> None:
        self._folder = folder
        self._state = state
        self._screen = screen
        self._signals = signals
        self._broker = Broker(folder.broker, port, tied=True)
        self._stack = ExitStack()
        self._parts: list[Part] = []
        self._moved = time.monotonic(), state.moves

    def run(self) -> Result:
        """Runs the demo and returns its result. All processes that it started are ended, also after an error.

        Raises `Interrupted` after a signal, and a `LakefoldError` with the last output of a part that failed.
        The caller checks the rows by `Result.verifications`.
        """
        try:
            return self._run()
        except Exception:
            # Ctrl-C also ends short-lived tools in our process group; then their failure is not an error.
            self._signals.check()
            raise

    def _run(self) -> Result:
        for line in _INTRODUCTION:
            self._screen.note(line.format(files=self._folder.table_format.files))
        with self._stack as stack:
            stack.callback(KillOnExit(remove=self._folder.scratch).release)
            self._fetch_jars()
            reading = Task(self._read_rows, "dataset")
            self._start_broker()
            texts, sent = self._wait_for(reading, "reading the departures from their CSV file")
            replay = self._start_replay(texts)
            committers = self._start_committer()
            self._start_page(committers.port)
            follower = self._start_follower()
            services = self._start_services()
            job = self._start_query()
            seconds = self._stream(replay, committers, follower, job)
            services_verification = self._stop_services(services)
            verifications = self._compare_rows(sent, follower)
            self._stop_in_order(follower, job, committers)
            self._state.begin("done")
            return Result(
                self._state.rows, replay.size, seconds, follower.pace, verifications, services_verification
            )

    def _fetch_jars(self) -> None:
        """Downloads the jars in a separate process, because its Java must end with the demo."""
        folder = self._folder
        child = Child(
            "download of jars",
            "lakefold.demo.fetch",
            (),
            log=folder.logs / "jars.log",
            scratch=folder.scratch,
        )
        self._stack.callback(child.stop, _HASTE_S)
        shown: list[str] = []

        def done() -> bool:
            for line in child.log.read_text().splitlines()[len(shown) :]:
                shown.append(line)
                self._screen.note(f"jars: {line}")
            return child.exit_code is not None

        self._wait_until(done, "checking the jars of Kafka and of Spark's connector")
        if child.exit_code:
            raise child.failure()

    def _read_rows(self) -> tuple[pa.Table, Checksum]:
        """Returns the rows as text, for the events, and the checksum of the same rows as typed columns."""
        departures = Departures(find_csv(), self._state.rows)
        return departures.texts, TableChecksums(SCHEMA).of(departures.typed, "the CSV file")

    def _start_broker(self) -> None:
        starting = Task(self._broker.start, "broker")
        self._stack.callback(_end_broker, self._broker, starting)
        address = self._wait_for(starting, "starting a Kafka broker")
        self._screen.note(f"broker: Kafka, pid {self._broker.pid}, listens on {address}")

    def _start_replay(self, texts: pa.Table) -> Replay:
        config = KafkaConfig(self._broker.bootstrap_servers)
        make_topic(Admin(config), TOPIC, PARTITIONS)
        replay = Replay(texts, config, TOPIC)
        self._stack.callback(replay.stop)
        self._parts.append(replay)
        self._screen.note(
            f"replay: {self._state.rows:,} departures are sent as JSON events to the topic {TOPIC}"
        )
        return replay

    def _start_committer(self) -> Committers:
        committers = Committers(self._folder, self._broker.bootstrap_servers)
        self._stack.callback(committers.stop, _HASTE_S)
        self._parts.append(committers)
        self._wait_until(lambda: committers.ready, "starting the committer")
        self._screen.note(f"committer: pid {committers.child.pid}, folds the log into versions of the table")
        return committers

    def _start_page(self, committer_port: int) -> None:
        """Starts the web page and shows its address. It stops with the demo."""
        page = ConsolePage(self._folder, self._broker.bootstrap_servers, committer_port)
        self._stack.callback(page.child.stop, _HASTE_S)
        self._parts.append(page)
        self._screen.note(
            f"page: open {page.address} in a browser; it shows what happens until the demo ends"
        )

    def _start_follower(self) -> Follower:
        follower = Follower(self._folder.table)
        self._stack.callback(follower.stop)
        self._parts.append(follower)
        return follower

    def _start_services(self) -> ServicesJob:
        services = ServicesJob(self._folder, self._broker.bootstrap_servers)
        self._stack.callback(services.child.end)
        self._parts.append(services)
        self._screen.note(
            f"services: pid {services.child.pid}, append small rows to {self._folder.services_table.name}, "
            f"{SERVICES} at once, until all events are rows"
        )
        return services

    def _stop_services(self, services: ServicesJob) -> ServicesVerification:
        """Lets the services wait for the outcomes of their rows, and compares these with their table."""
        services.child.ask_to_stop()
        self._wait_until(lambda: services.done, "the services wait for their last outcomes")
        self._parts.remove(services)
        counted = Task(
            lambda: question_services(services.committed, services.versions, self._folder), "services"
        )
        return self._wait_for(counted, "reading the table of the services")

    def _start_query(self) -> Job:
        job = Job(self._folder, self._broker.bootstrap_servers, self._state.rows)
        self._stack.callback(job.child.end)
        self._parts.append(job)
        self._state.query = "starting"
        self._wait_until(lambda: job.started is not None, "starting Spark")
        self._screen.note(
            f"query: Spark, pid {job.child.pid}, writes the events into the table batch by batch"
        )
        return job

    def _stream(self, replay: Replay, committers: Committers, follower: Follower, job: Job) -> float:
        """Waits until all rows are visible, and kills a committer midway. Returns the seconds it took."""
        self._wait_until(lambda: follower.seen.rows >= KILL_AT * self._state.rows, _STREAMING)
        self._replace(committers)
        self._wait_until(lambda: job.done and not replay.working, _STREAMING)
        newest = lakefold.open(self._folder.table).version
        end = time.monotonic() + _CATCH_UP_S
        self._wait_until(lambda: follower.version >= newest or time.monotonic() > end, "the tail catches up")
        self._check_parts()
        return follower.arrivals[-1].at - (job.started or 0)

    def _replace(self, committers: Committers) -> None:
        """Kills the committer and starts the next."""
        dead, killed = committers.kill(), time.monotonic()
        self._screen.note(f"SIGKILL: the committer, pid {dead}, is dead. Another one starts.", loud=True)
        pid = committers.start_next()
        self._wait_until(lambda: committers.ready, "no committer: another one starts")
        seconds = time.monotonic() - killed
        self._screen.note(
            f"committer: pid {pid} continues where the killed one stopped, {seconds:.1f} s later", loud=True
        )

    def _compare_rows(self, sent: Checksum, follower: Follower) -> list[DemoVerification]:
        seen, folder = follower.seen, self._folder
        doing = "reading the table, to compare it with the CSV file"
        return self._wait_for(Task(lambda: question(sent, seen, folder), "verification"), doing)

    def _stop_in_order(self, follower: Follower, job: Job, committers: Committers) -> None:
        def stop() -> None:
            follower.stop()
            job.stop()
            committers.stop()
            self._broker.stop()

        self._parts.clear()
        self._wait_for(Task(stop, "stop"), "stopping the query, the committer and the broker")

    def _wait_for(self, task: Task[T], doing: str) -> T:
        self._wait_until(lambda: not task.working, doing)
        return task.answer()

    def _wait_until(self, condition: Callable[[], bool], doing: str) -> None:
        """Checks all parts until the condition holds.

        Raises `RetryError` if there is no progress any more.
        """
        self._state.begin(doing)
        while not condition():
            self._check_parts()
            self._check_progress()
            time.sleep(_LOOK_EVERY_S)

    def _check_parts(self) -> None:
        self._signals.check()
        for part in self._parts:
            part.look(self._state, self._screen)
        self._screen.refresh(self._state)

    def _check_progress(self) -> None:
        at, moves = self._moved
        if moves != self._state.moves or not self._parts:
            self._moved = time.monotonic(), self._state.moves
        elif time.monotonic() - at > _STILL_S:
            message = f"no progress for {_STILL_S:.0f} s in this step: {self._state.doing}"
            hint = "read the logs in this folder for the cause"
            raise RetryError(message, where=str(self._folder.logs), hint=hint)


def _end_broker(broker: Broker, starting: Task[str]) -> None:
    """Stops the broker. If it is just being started, it is killed until its start fails."""
    while starting.working:
        if (pid := broker.pid) is not None:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        starting.wait(0.1)
    broker.stop(timeout=_HASTE_S)
