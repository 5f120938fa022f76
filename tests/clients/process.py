"""A foreign client as a process of its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from tests.clients.environments import python_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

ROOT: Final = Path(__file__).parents[2]
END_SECONDS: Final = 30
"""So long a client has to end by itself; Spark's Java then ends with it."""


class StepError(Exception):
    """A step of the client failed; the message is the client's."""


class Client:
    """The client whose lock is `locks/NAME.txt`, on the table at a path."""

    def __init__(self, name: str, uri: str) -> None:
        self._process = subprocess.Popen(
            [str(python_of(name)), "-m", "tests.clients.driver", uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=_environment(name),
        )
        self.version = str(self._answer()["version"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def open(self, handle: str) -> int:
        """Open the table and keep it under a name; return the version that it is at."""
        version = self.do("open", handle)
        assert isinstance(version, int)
        return version

    def do(self, step: str, handle: str = "", **given: object) -> object:
        """Do a step from a handle that was opened before, or from a new handle. Raises `StepError`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": step, "handle": handle, **given}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise StepError(f"{step}: {answer['error']} (after {answer['attempts']} attempts)")
        return answer["value"]

    def rows(self, version: int | None = None) -> dict[int, str]:
        """What a new handle reads, by id. Raises `AssertionError` if an id is there twice."""
        actual = self.do("read") if version is None else self.do("read_version", version=version)
        assert isinstance(actual, list)
        values = {int(number): str(text) for number, text in actual}
        assert len(values) == len(actual), "the client reads an id twice"
        return values

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StepError(f"the client ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment(name: str) -> dict[str, str]:
    """The variables of a client's process. Spark needs the jars of its connector, and Java."""
    if name != "lance-spark":
        return dict(os.environ)
    java = find_java().resolve()
    jars = os.pathsep.join(str(jar) for jar in fetch_jars("lance-spark"))
    return {**os.environ, "CLIENT_JARS": jars, "JAVA_HOME": str(java.parents[1])}
