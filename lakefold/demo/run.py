"""Runs the demo: starts the parts, watches them, kills the committer midway, checks the rows, stops all.

A single thread controls everything. It checks all parts about twenty times a second (`_check_parts`); longer
work runs in other threads or processes. So the screen is updated all the time, a failure is noticed at once,
and Ctrl-C always has the same effect: the stack of running parts is closed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from http import HTTPStatus
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

import lakefold
from lakefold.demo.children import Child, NewLines
from lakefold.demo.dataset import Departures, find_csv, send
from lakefold.demo.follower import Follower
from lakefold.demo.report import Report
from lakefold.demo.services import SERVICES
from lakefold.demo.verification import Checksum, checksum_of, question, question_services
from lakefold.local.broker import Broker
from lakefold.local.kill_on_exit import KillOnExit
from lakefold.local.ports import free_port
from lakefold.setup.status import committer_answer
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.write.events import EventSender, make_topic
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakefold.demo.folder import Folder
    from lakefold.demo.screen import DemoProgress, Screen
    from lakefold.demo.verification import ServicesVerification

T = TypeVar("T")

BATCHES: Final = 16
"""The number of micro-batches."""
KILL_AT: Final = 0.4
"""The share of the rows that must be visible before the committer is killed."""

_TOPIC: Final = "flights"
_PARTITIONS: Final = 2
_LOOK_EVERY_S: Final = 0.05
_STILL_S: Final = 180.0
_CATCH_UP_S: Final = 30.0
_HASTE_S: Final = 5.0
_FINISH_S: Final = 20.0
_ANSWER_S: Final = 1.0
_STREAMING: Final = "events become rows"
_INTRODUCTION: Final = (
    "events are in a Kafka topic; a Spark query writes each batch of them as {files} and",
    "proposes one transaction; the log, another topic, puts the transactions in order; the committer folds",
    "them in that order into versions of the table; a reader follows the versions; beside them, services",
    "append small rows to a second table, all at once, through the same log",
)


class Demo:
    """A run in `folder`. `port` is the broker's, 0 for any free port."""

    def __init__(
        self,
        folder: Folder,
        state: DemoProgress,
        screen: Screen,
        check_signals: Callable[[], None],
        port: int = 0,
    ) -> None:
        self._folder = folder
        self._state = state
        self._check_signals = check_signals
        self._broker = Broker(folder.broker, port, tied=True)
        self._health_port = free_port()
        self._stack = ExitStack()
        self._checks: list[Callable[[], object]] = [check_signals, screen.refresh]

    def run(self) -> Report:
        """Runs the demo and returns its result. All processes that it started are ended, also after an error.

        Raises `Interrupted` after a signal, and a `LakefoldError` with the last output of a part that failed.
        The caller checks the rows by `Report.verifications`.
        """
        try:
            with self._stack:
                return self._run()
        except Exception:
            # Ctrl-C also ends short-lived tools in our process group; then their failure is not an error.
            self._check_signals()
            raise

    def _run(self) -> Report:
        folder, state = self._folder, self._state
        for line in _INTRODUCTION:
            state.note(line.format(files=folder.table_format.files))
        self._stack.callback(KillOnExit(remove=folder.scratch).release)
        self._fetch_jars()
        reading = in_thread(self._read_rows)
        self._start_broker()
        texts, sent = self._wait_for(reading, "reading the departures from their CSV file")
        kafka = KafkaConfig(self._broker.bootstrap_servers)
        make_topic(Admin(kafka), _TOPIC, _PARTITIONS)
        sender = EventSender(kafka, _TOPIC)
        sending = self._start_thread(lambda: send(texts, sender), sender.abandon)
        state.note(f"replay: {state.rows:,} departures are sent as JSON events to the topic {_TOPIC}")
        committer = self._start_committer(1, "starting the committer")
        state.note(f"committer: pid {committer.pid}, folds the log into versions of the table")
        self._start_page()
        follower = Follower(folder.table, state)
        self._start_thread(follower.run, follower.stop)
        services = self._start_services()
        query = self._start_query()

        def show() -> None:
            state.sent = sender.acknowledged
            state.query = query.report.get("state", "starting")
            state.service_rows = sum(services.report.get("committed", ()))

        self._checks.append(show)
        self._wait_until(lambda: "state" in query.report, "starting Spark")
        started = time.monotonic()
        state.note(f"query: Spark, pid {query.pid}, writes the events into the table batch by batch")
        self._wait_until(lambda: follower.seen.rows >= KILL_AT * state.rows, _STREAMING)
        committer = self._replace(committer)
        self._wait_until(lambda: query.done, _STREAMING)
        # For a while: the verification says what is missing.
        newest, end = lakefold.open(folder.table).version, time.monotonic() + _CATCH_UP_S
        self._wait_until(lambda: state.version >= newest or time.monotonic() > end, "the tail catches up")
        seconds = follower.arrivals[-1][0] - started
        of_services = self._stop_services(services)
        comparing = in_thread(lambda: question(sent, follower.seen, folder))
        verifications = self._wait_for(comparing, "reading the table, to compare it with the CSV file")
        self._stop_in_order(query, committer)
        return Report(
            folder=folder,
            rows=state.rows,
            size=sending.result(),
            seconds=seconds,
            total_seconds=state.elapsed,
            pace=follower.pace,
            verifications=verifications,
            services=of_services,
        )

    def _fetch_jars(self) -> None:
        """Downloads the jars in a separate process, because its Java must end with the demo."""
        child = self._start("download of jars", "lakefold.demo.fetch", log="jars", patience_s=_HASTE_S)
        shown = NewLines(child.log)

        def show() -> bool:
            for line in shown.read():
                if not line.startswith("{"):
                    self._state.note(f"jars: {line}")
            return child.done

        self._wait_until(show, "checking the jars of Kafka and of Spark's connector", still_s=math.inf)

    def _read_rows(self) -> tuple[pa.Table, Checksum]:
        """Returns the rows as text, for the events, and the checksum of the same rows as typed columns."""
        departures = Departures(find_csv(), self._state.rows)
        return departures.texts, checksum_of(departures.typed, "the CSV file")

    def _start_broker(self) -> None:
        self._stack.callback(self._broker.stop, _HASTE_S)

        def kill() -> None:
            """Has a start of the broker fail. Its thread does the rest."""
            if (pid := self._broker.pid) is not None:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

        starting = self._start_thread(self._broker.start, kill)
        address = self._wait_for(starting, "starting a Kafka broker")
        self._state.note(f"broker: Kafka, pid {self._broker.pid}, listens on {address}")

    def _start_committer(self, number: int, doing: str) -> Child:
        """Starts a committer, each with its own log and all with the same port, and waits until it folds."""
        committer = self._start(
            *("committer", "lakefold", "committer", *self._of_tables),
            # The next one doesn't wait until the session of a killed one has timed out.
            *("--partitions", "all"),
            log=f"committer-{number}",
            patience_s=_HASTE_S,
        )
        self._state.committer = f"pid {committer.pid}, starting"
        self._wait_until(self._folds, doing)
        self._state.committer = f"pid {committer.pid}, folding"
        return committer

    @property
    def _of_tables(self) -> Sequence[str]:
        """The options of verbs that are about all tables of the demo and its committer."""
        address, root = self._broker.bootstrap_servers, str(self._folder.root)
        return ("--bootstrap-servers", address, "--root", root, "--http-port", str(self._health_port))

    def _folds(self) -> bool:
        answer = committer_answer("127.0.0.1", self._health_port, "/readyz", _ANSWER_S)
        return answer is not None and answer[0] == HTTPStatus.OK

    def _start_page(self) -> None:
        """Starts the web page and shows its address. It stops with the demo."""
        port = free_port()
        arguments = ("console", "lakefold", "console", "--port", str(port), *self._of_tables)
        self._start(*arguments, log="console", patience_s=_HASTE_S)
        self._state.note(
            f"page: open http://127.0.0.1:{port}/ in a browser; it shows what happens until the demo ends"
        )

    def _start_services(self) -> Child:
        table = self._folder.services_table
        services = self._start_writer("services", "lakefold.demo.services", table)
        self._state.note(
            f"services: pid {services.pid}, append small rows to {table.name}, "
            f"{SERVICES} at once, until all events are rows"
        )
        return services

    def _start_query(self) -> Child:
        return self._start_writer(
            *("streaming query", "lakefold.demo.query", self._folder.table),
            topic=_TOPIC,
            checkpoint=str(self._folder.checkpoint),
            scratch=str(self._folder.scratch),
            rows=self._state.rows,
            # Spark divides the limit among the partitions and rounds down.
            batch_rows=-(-self._state.rows // BATCHES) + _PARTITIONS - 1,
        )

    def _start_writer(self, name: str, module: str, table: Path, **more: str | int) -> Child:
        """Starts a process that writes to a table. It gets its arguments as JSON, `more` among them."""
        given = {
            "bootstrap_servers": self._broker.bootstrap_servers,
            "table": str(table),
            "format": self._folder.format,
            **more,
        }
        return self._start(name, module, json.dumps(given), log=module.rpartition(".")[2])

    def _start(self, name: str, module: str, *arguments: str, log: str, patience_s: float = 0.0) -> Child:
        """Starts a process and watches it. If the demo fails, it gets `patience_s` seconds to stop."""
        path = self._folder.logs / f"{log}.log"
        child = Child(name, module, arguments, log=path, scratch=self._folder.scratch)
        self._stack.callback(child.stop, patience_s)
        self._checks.append(child.check)
        return child

    def _start_thread(self, run: Callable[[], T], stop: Callable[[], object]) -> Future[T]:
        """Starts work and watches it. At the end of the demo `stop` is called until the work has ended."""

        def end() -> None:
            while not work.done():
                stop()
                wait([work], _LOOK_EVERY_S)

        work = in_thread(run)
        self._stack.callback(end)
        self._checks.append(lambda: work.done() and work.result())
        return work

    def _replace(self, committer: Child) -> Child:
        """Kills the committer. Returns the next one, once it folds."""
        killed = time.monotonic()
        committer.end()
        self._checks.remove(committer.check)
        self._state.note(f"** SIGKILL: the committer, pid {committer.pid}, is dead. Another one starts.")
        following = self._start_committer(2, "no committer: another one starts")
        self._state.note(
            f"** committer: pid {following.pid} continues where the killed one stopped, "
            f"{time.monotonic() - killed:.1f} s later"
        )
        return following

    def _stop_services(self, services: Child) -> ServicesVerification:
        """Lets the services wait for the outcomes of their rows, and compares these with their table."""
        services.signal(signal.SIGTERM)
        self._wait_until(lambda: services.done, "the services wait for their last outcomes")
        committed, versions = services.report["committed"], services.report["versions"]
        counting = in_thread(lambda: question_services(committed, versions, self._folder))
        return self._wait_for(counting, "reading the table of the services")

    def _stop_in_order(self, query: Child, committer: Child) -> None:
        def stop() -> None:
            query.end(_FINISH_S)
            committer.stop(_FINISH_S)
            self._broker.stop()

        del self._checks[2:]
        self._wait_for(in_thread(stop), "stopping the query, the committer and the broker")

    def _wait_for(self, work: Future[T], doing: str) -> T:
        self._wait_until(work.done, doing)
        return work.result()

    def _wait_until(self, condition: Callable[[], bool], doing: str, still_s: float = _STILL_S) -> None:
        """Checks all parts until the condition holds.

        Raises `RetryError` if there is no progress for `still_s` seconds.
        """
        state, moved, before = self._state, 0.0, None
        state.begin(doing)
        while not condition():
            for check in self._checks:
                check()
            numbers = (state.query, state.sent, state.visible, state.version)
            if numbers != before:
                moved, before = time.monotonic(), numbers
            elif time.monotonic() - moved > still_s:
                message = f"no progress for {still_s:.0f} s in this step: {doing}"
                hint = "read the logs in this folder for the cause"
                raise RetryError(message, where=str(self._folder.logs), hint=hint)
            time.sleep(_LOOK_EVERY_S)


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Starts long work, during which the screen is updated and Ctrl-C works. No exit waits for its end."""
    work: Future[T] = Future()

    def run() -> None:
        try:
            work.set_result(function())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            work.set_exception(error)

    Thread(target=run, name=function.__qualname__, daemon=True).start()
    return work
