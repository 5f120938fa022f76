"""Headless Chromium, driven by its own protocol over two pipes, for the tests of the web page."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = os.environ.get("LAKEFOLD_CHROMIUM") or shutil.which("chromium") or ""
"""The path of Chromium; empty if it is not installed."""
ANSWER_SECONDS: Final = 120.0
# Numbers above those that the browser expects its pipes at.
_FREE: Final = 20


class Browser:
    """A browser with a single page. `troubles` are the errors of its scripts, and what its policy refused.

    `profile`: an empty folder for its files.
    """

    def __init__(self, profile: Path) -> None:
        self.troubles: list[str] = []
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._rest = b""
        self._before = 0.0
        commands, self._commands = _pipe()
        self._events, events = _pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1300,1000"]
        with (profile / "log").open("wb") as log:
            # The log may be 3 or 4 itself, so it comes first.
            actions = [(os.POSIX_SPAWN_DUP2, log.fileno(), number) for number in (1, 2)]
            actions += [(os.POSIX_SPAWN_DUP2, commands, 3), (os.POSIX_SPAWN_DUP2, events, 4)]
            words = [PROGRAM, *flags, "about:blank"]
            self._pid = os.posix_spawn(PROGRAM, words, os.environ, file_actions=actions, setpgroup=0)
        for theirs in (commands, events):
            os.close(theirs)
        self._session = ""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """The answer to a command of the browser's protocol."""
        self._number += 1
        number = self._number
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while number not in self._answers:
            self._read(deadline - time.monotonic(), method)
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> None:
        """Shows a page."""
        self.call("Page.navigate", url=url)

    def measure(self) -> None:
        """Has `cpu_seconds` count from now on."""
        self.call("Performance.disable")
        self.call("Performance.enable", timeDomain="threadTicks")
        self._before = self._task_seconds()

    def cpu_seconds(self) -> float:
        """The CPU time that the page's scripts, layouts and drawings took since `measure` was called."""
        return self._task_seconds() - self._before

    def _task_seconds(self) -> float:
        metrics = self.call("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    def value(self, expression: str) -> Any:  # noqa: ANN401 - whatever the script returns
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self) -> str:
        """The text that a person sees."""
        return str(self.value("document.body?.innerText ?? ''"))

    def wait_for(self, text: str) -> None:
        """Waits until a person sees this text."""
        until(lambda: text in self.text(), f"{text!r} on the page", seconds=ANSWER_SECONDS)

    def picture(self, file: Path) -> None:
        """Writes a picture of the page."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        for ours in (self._commands, self._events):
            os.close(ours)

    def _read(self, timeout_s: float, what: str) -> None:
        ready = select.select([self._events], [], [], max(0.0, timeout_s))[0]
        assert ready, f"no answer to {what}"
        data = os.read(self._events, 1024 * 1024)
        assert data, "the browser has ended"
        *messages, self._rest = (self._rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message["method"] == "Runtime.exceptionThrown":
                self.troubles.append(str(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.troubles.append(str(message["params"]["entry"]))


def _pipe() -> tuple[int, int]:
    """A pipe for reading and writing, whose numbers are not those that the browser expects."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FREE))
        os.close(end)
    return ends[0], ends[1]
