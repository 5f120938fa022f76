"""A writer that is closed while the log gives no outcome ends, and says what became of which append."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writer import batch_writer
from lakefold_ingest.writing.report import BatchReport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"n": [1]})
APPENDING = """
import sys
import pyarrow
import lakefold

writer = lakefold.Writer(sys.argv[1], max_delay=600, bootstrap_servers="127.0.0.1:1", timeout=0.01)
for rows in (1, 2):
    writer.append(pyarrow.table({"n": range(rows)}))
"""


class AbsentLog:
    """Answers the first batch that it takes, and the others when `comes_back` is set, which is too late.

    Unless it `takes` batches, those who send one wait as well.
    """

    def __init__(self, *, takes: bool) -> None:
        self.takes = takes
        self.comes_back = threading.Event()
        self.started = threading.Semaphore(0)
        self.sent = self.finished = 0

    def start_batch(self, *_: object, before_send: Callable[[], None], **__: object) -> AbsentLog:
        if not self.takes:
            self.started.release()
            self.comes_back.wait()
        before_send()
        self.sent += 1
        self.started.release()
        return self

    def finish(self) -> BatchReport:
        self.finished += 1
        if self.finished > 1:
            self.comes_back.wait()
        return BatchReport(None, is_sent=False)

    def come_back(self, writer: lakefold.Writer) -> None:
        self.comes_back.set()
        for thread in writer._threads:
            thread.join()


def writer_on(log: AbsentLog, table: Path, monkeypatch: pytest.MonkeyPatch) -> lakefold.Writer:
    monkeypatch.setattr(batch_writer, "start_batch", log.start_batch)
    options: lakefold.WriteOptions = {"bootstrap_servers": "127.0.0.1:1", "timeout": 0.01}
    return lakefold.Writer(table, max_rows=1, max_delay=0, **options)


@pytest.mark.parametrize(
    "close",
    [lakefold.Writer.close, lambda writer: asyncio.run(writer.aclose())],
    ids=["close", "aclose"],
)
def test_a_writer_without_outcomes_says_which_appends_were_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: Callable[[lakefold.Writer], None]
) -> None:
    log = AbsentLog(takes=True)
    writer = writer_on(log, tmp_path / "t", monkeypatch)
    futures = [writer.append(ROWS) for _ in range(8)]
    # Four are on their way at once, after the first one was answered.
    for _ in range(5):
        log.started.acquire()
    for _ in range(2):
        with pytest.raises(
            lakefold.RetryError, match=r"gave no outcome for 0\.01 s: it was sent, and may"
        ) as raised:
            close(writer)
        (note,) = raised.value.__notes__
        assert note.startswith("7 appends of this writer failed, with 7 rows: ")
        assert "0 refused, 4 sent without an outcome, 3 never sent;" in note
    assert futures[0].result(0).kind == "empty"
    said = [str(future.exception(0)) for future in futures[1:]]
    assert [("may be in the table" in each, "it was never sent" in each) for each in said] == [
        (True, False)
    ] * 4 + [(False, True)] * 3
    log.come_back(writer)
    assert [log.sent, log.finished] == [5, 5]
    assert [str(future.exception(0)) for future in futures[1:]] == said


def test_a_batch_that_waits_for_brokers_is_not_sent_after_the_writer_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AbsentLog(takes=False)
    writer = writer_on(log, tmp_path / "t", monkeypatch)
    future = writer.append(ROWS)
    log.started.acquire()
    with pytest.raises(lakefold.RetryError, match="it was never sent") as raised:
        writer.close()
    assert "0 sent without an outcome, 1 never sent" in raised.value.__notes__[0]
    log.come_back(writer)
    assert log.sent == 0
    assert "it was never sent" in str(future.exception(0))


@pytest.mark.parametrize(
    "close", ["", "\ntry: writer.close()\nexcept lakefold.RetryError: pass"], ids=["not closed", "closed"]
)
def test_a_process_that_ends_without_closing_a_writer_says_what_is_lost(tmp_path: Path, close: str) -> None:
    command = [sys.executable, "-c", APPENDING + close, str(tmp_path / "t")]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr
    waits = "waits up to 0.01 s for the outcomes of 3 more rows (appends: 2)"
    lost = "2 appends of this writer failed, with 3 rows: 0 refused, 0 sent without an outcome, 2 never sent"
    assert (waits in process.stderr, lost in process.stderr) == (not close, not close)
