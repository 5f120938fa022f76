"""Threads that read tables at the same time, on one core, for which pylance has one worker thread."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pytest

from tests.proposals import rows

if TYPE_CHECKING:
    from pathlib import Path

READ = """
import faulthandler, os, sys, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import lakefold

uri, other = sys.argv[1:]
# It watches from a thread of the system's, which needs no interpreter.
faulthandler.dump_traceback_later(150, exit=True)
until = time.monotonic() + 4

def opened():
    while time.monotonic() < until:
        lakefold.open(uri).to_arrow(columns=["id"])

def tailed():
    while time.monotonic() < until:
        for change in lakefold.tail(uri, start="earliest"):
            change.inserted()

def changed():
    while time.monotonic() < until:
        lakefold.changes(uri, 1, 20).read_all()

threads = [threading.Thread(target=each) for each in (opened, {"tail": tailed, "changes": changed}[other])]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("other", ["tail", "changes"])
def test_a_scan_beside_files_that_are_opened_does_not_stop_the_process(other: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for number in range(20):
        lance.write_dataset(
            rows(range(number * 10, number * 10 + 10)), uri, mode="append", enable_stable_row_ids=True
        )
    read = subprocess.run(
        [sys.executable, "-c", READ, uri, other], capture_output=True, text=True, check=False, timeout=200
    )
    assert (read.returncode, read.stderr) == (0, "")
