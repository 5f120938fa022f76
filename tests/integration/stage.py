"""A log, a table that is folded from it and who folds it: for tests of both in trouble."""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import lance

from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer, Options
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_table.errors import RetryError, StopError
from lakefold_table.marks.marks import decode_marks
from lakefold_table.uri import canonical
from tests.integration.committers import committer_arguments
from tests.integration.copies import command_line
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.raw import delete_up_to
from tests.proposals import append, creation, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome, Result
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import LogId
    from tests.integration.conftest import TopicNames

STDERR_FILENO = 2
"""What pytest captures too, unlike a copy of `sys.stderr`."""

DIES_BEFORE_ITS_REPORT = """
import os
from lakefold.cli import main
from lakefold_committer.tables.table_writer import TableWriter
TableWriter.confirm = lambda *_: os._exit(9)
main()
"""
"""A committer that dies once its first version is published, before anything is reported."""


@dataclass
class Stage:
    """A log, a table that is folded from it, and who folds it: in this process, up to the log's end."""

    bootstrap: str
    names: TopicNames
    own: OwnLog
    root: Path

    @property
    def path(self) -> Path:
        """The table's root."""
        return self.root / "table"

    @property
    def uri(self) -> str:
        """Its name."""
        return canonical(self.path)

    @property
    def log(self) -> LogId:
        """The log as it is now."""
        return ensure_topics(self.own.admin, self.own.topics).log_id(0)

    @property
    def marks(self) -> Marks:
        """The marks in the newest version's metadata."""
        metadata = lance.dataset(str(self.path)).metadata
        marks = decode_marks({key: str(value) for key, value in metadata.items()})
        assert marks is not None
        return marks

    def options(self, *, accept: bool = False) -> Options:
        """The committer's options."""
        return Options(
            self.own.config,
            self.own.topics,
            (canonical(self.root),),
            group=self.own.group,
            accept_new_log=accept,
        )

    def send(self, *envelopes: Envelope, partition: int = 0) -> None:
        """Proposals into the log."""
        with Proposer(self.own.config, self.own.topics) as proposer:
            for envelope in envelopes:
                proposer.send_wait(envelope, partition)

    def ask(self, envelope: Envelope, partition: int = 0) -> Result:
        """Returns the outcome that a running committer gives a proposal.

        If none comes in time, the stacks of all threads are printed: they show what the committer waits for.
        """
        waiter = OutcomeWaiter(self.own.config, self.own.topics, envelope.table, partition=partition)
        with waiter, Proposer(self.own.config, self.own.topics) as proposer:
            position = proposer.send_wait(envelope, partition)
            try:
                return waiter.wait(position, envelope, PATIENCE_S).result
            except RetryError:
                faulthandler.dump_traceback(STDERR_FILENO)
                raise

    def batch(self, number: int, read: int = 1) -> Envelope:
        """A row, whose id is the batch's number."""
        return append(self.uri, rows([number]), read, "app", number)

    def fold(self, *, accept: bool = False, group: str = "") -> dict[str, int]:
        """Folds to the end; what came of it, by kind."""
        metrics = Metrics()
        options = self.options(accept=accept)
        Committer(replace(options, group=group or options.group), metrics).run(until_caught_up=True)
        return {kind: count for kind, count in metrics.summary().items() if count}

    def fold_unreported(self) -> None:
        """Publishes one version with what waits, by a committer that dies before it reports."""
        names = replace(self.names, group=self.own.group)
        command = [sys.executable, "-c", DIES_BEFORE_ITS_REPORT]
        command += committer_arguments(self.bootstrap, names, self.root)
        done = subprocess.run(
            [*command, "--http-port", "0", "--until-caught-up"], capture_output=True, timeout=200, check=False
        )
        assert done.returncode == 9, done.stderr.decode()

    def begin(self, *batches: int) -> None:
        """The table, with these batches folded into it singly."""
        self.send(creation(self.uri))
        self.fold()
        for number in batches:
            self.send(self.batch(number))
            self.fold()

    def make_again(self) -> None:
        """Deletes the transactions topic and makes another of its name."""
        before, name = self.log, self.own.topics.transactions
        self.own.admin.client.delete_topics([name])[name].result()
        # A broker that still knew it would not make another.
        names = partial(self.own.admin.client.list_topics, timeout=PATIENCE_S)
        until(lambda: name not in names().topics, "the topic to be gone")
        until(lambda: self.log != before, "the topic to be another one", seconds=PATIENCE_S)

    def lose_up_to(self, offset: int) -> None:
        """The log's first entries are gone."""
        delete_up_to(self.bootstrap, self.own.topics.transactions, offset)

    def outcomes(self) -> list[Outcome]:
        """All that was ever reported."""
        return self.own.answers()

    def replay(self) -> dict[int, str]:
        """The verdict on each version."""
        arguments = ["replay", self.uri, "--json", "--bootstrap-servers", self.bootstrap]
        done = command_line().run(arguments, timeout=200)
        assert done.returncode == 0, done.stderr + done.stdout
        return {each["version"]: each["verdict"] for each in map(json.loads, done.stdout.splitlines())}


@contextmanager
def folding(stage: Stage, *, policies_every_s: float = 10.0) -> Iterator[tuple[list[BaseException], Metrics]]:
    """A running committer, what ended it, and its metrics."""
    metrics = Metrics()
    committer = Committer(replace(stage.options(), policies_every_s=policies_every_s), metrics)
    with running(committer) as errors:
        yield errors, metrics


@contextmanager
def running(committer: Committer) -> Iterator[list[BaseException]]:
    """Lets it continue, and returns what ended it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            committer.run()
        except StopError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        committer.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
