"""Committer processes as an operator runs them: started, killed, waited for, and always gone at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.local.ports import free_port
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from tests.integration.copies import command_line
from tests.integration.own_log import patient_admin, wait_until_settled
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.integration.conftest import TopicNames
    from tests.integration.copies import CopiedProcess
    from tests.integration.lines import Line

START_SECONDS = 120
STOP_SECONDS = 120
NEW_PROCESS = ("-m", "lakefold")
"""What Python runs in a process that is not a copy of another."""
_ALL_SPANS = """
from lakefold.cli import main
from lakefold_committer.observability import spans
assert spans.CLOSE_SECONDS < 120
spans.CLOSE_SECONDS = 120
main()
"""
SENDS_ALL_SPANS = ("-c", _ALL_SPANS)
"""A committer that sends its last spans also if a busy collector takes them later than it would wait."""


@dataclass
class CommitterProcess:
    """A running `lakefold committer`. `log` is the file that its stderr goes to."""

    process: subprocess.Popen[bytes] | CopiedProcess
    http_port: int
    log: Path

    def is_ready(self) -> bool:
        """Whether `/readyz` says so."""
        return self.get("/readyz")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        """Returns a page of the HTTP port; status 0 if it doesn't answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=30) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_until_ready(self) -> None:
        """Waits until it folds. Fails if it has ended."""
        until(
            lambda: self.process.poll() is not None or self.is_ready(),
            "a ready committer",
            seconds=START_SECONDS,
        )
        assert self.process.poll() is None, self.log.read_text()

    def kill(self) -> None:
        """SIGKILL, at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def committer_arguments(bootstrap: str, names: TopicNames, root: Path | str) -> list[str]:
    """The verb and options of a committer for these topics and tables below `root`."""
    return [
        "committer",
        "--bootstrap-servers",
        bootstrap,
        "--transactions-topic",
        names.transactions,
        "--outcomes-topic",
        names.outcomes,
        "--dead-letters-topic",
        names.dead_letters,
        "--group",
        names.group,
        "--root",
        str(root),
        # A killed committer is followed at once, not after its session in the group.
        "--partitions",
        "all",
    ]


@contextmanager
def running_committer(
    bootstrap: str,
    names: TopicNames,
    root: Path | str,
    *extra: str,
    logs: Path | None = None,
    interpreter: Sequence[str] = (),
) -> Iterator[CommitterProcess]:
    """A committer process, killed at the end if it still runs.

    Its log is added to a file in the folder `logs`, `root` if none is given. `interpreter`: what Python runs
    in a new process; without it the committer is a copy of a process that has imported it.
    """
    port = free_port()
    log = Path(logs or root) / "committer.log"
    arguments = [*committer_arguments(bootstrap, names, root), "--http-port", str(port), *extra]
    process: subprocess.Popen[bytes] | CopiedProcess
    with log.open("ab") as stderr:
        if interpreter:
            command = [sys.executable, *interpreter, *arguments]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
        else:
            process = command_line().start(arguments, stderr=stderr)
    try:
        yield CommitterProcess(process, port, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextmanager
def ready_committer(bootstrap: str, names: TopicNames, root: Path) -> Iterator[None]:
    """A committer that folds from the beginning of the block to its end."""
    with running_committer(bootstrap, names, root) as running:
        running.wait_until_ready()
        yield
        assert running.process.poll() is None, running.log.read_text()


def fold_to_the_end(bootstrap: str, names: TopicNames, root: Path | str, *extra: str) -> None:
    """Runs a committer until it has caught up; fails with its log if it ends otherwise.

    Afterwards what it has reported can be read.
    """
    arguments = [*committer_arguments(bootstrap, names, root), "--http-port", "0", "--until-caught-up"]
    done = command_line().run([*arguments, *extra], timeout=240)
    assert done.returncode == 0, done.stderr
    topics = Topics(names.transactions, names.outcomes, names.dead_letters)
    wait_until_settled(patient_admin(KafkaConfig(bootstrap)), topics)


def check_replay(bootstrap: str, *lines: Line) -> None:
    """The log gives every version of a committer's once more, whichever committer made it."""
    for line in lines:
        arguments = ["replay", line.uri, "--json", "--branch", line.branch, "--bootstrap-servers", bootstrap]
        done = command_line().run(arguments, timeout=200)
        assert done.returncode == 0, done.stderr + done.stdout
        document = [json.loads(line) for line in done.stdout.splitlines()]
        assert [each["version"] for each in document] == line.versions.numbers()
        assert {each["verdict"] for each in document} <= {"same", "foreign"}, document
        assert sum(each["verdict"] == "same" for each in document) > 1
