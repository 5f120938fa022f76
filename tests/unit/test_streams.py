"""A standard stream that is closed, full or not read ends no work and changes no exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold.console.streams import LossyFile, lost_writes
from tests.proposals import rows

if TYPE_CHECKING:
    from pathlib import Path

LOGS = """
import structlog, logging, sys
from lakefold.console.streams import mend_streams
from lakefold.console.logs import configure
mend_streams()
configure()
for number in range(3):
    structlog.get_logger().warning("line", number=number)
    logging.getLogger("a library").warning("line")
print("went on")
"""


def shell(command: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command, "bash", *args], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def table(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows([1]), uri)
    return uri


@pytest.mark.parametrize(
    "streams", [">&-", "2>&-", "<&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-", "2> >(exec 0<&-)"]
)
@pytest.mark.parametrize("verb", ["show", "log", "refs"])
def test_a_verb_ends_well_if_a_stream_is_closed(table: str, verb: str, streams: str) -> None:
    process = shell(f'"$2" -m lakefold {verb} "$1" {streams}', table, sys.executable)
    assert process.returncode == 0
    assert "Traceback" not in process.stderr


def test_a_fault_keeps_its_exit_code_if_it_can_not_be_printed(tmp_path: Path) -> None:
    for streams in ("2>/dev/full", "2>&-"):
        assert shell(f'"$2" -m lakefold show "$1" {streams}', str(tmp_path), sys.executable).returncode == 2


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "2> >(exec 0<&-)"])
def test_a_process_goes_on_if_its_log_can_not_be_written(streams: str) -> None:
    process = shell(f'"$2" -c "$1" {streams}', LOGS, sys.executable)
    assert process.stdout == "went on\n"
    assert process.returncode == 0


def test_lines_say_how_many_before_them_were_lost(tmp_path: Path) -> None:
    code = (
        LOGS
        + """
import os
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)
structlog.get_logger().warning("after")
"""
    )
    process = shell('"$3" -c "$1" "$2" 2>/dev/full', code, str(tmp_path / "log"), sys.executable)
    assert process.returncode == 0
    assert (tmp_path / "log").read_text().count('"lost": 6') == 1


def test_only_what_was_not_written_counts_as_lost(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    file = LossyFile(fd)
    assert file.write(b"abc") == 3
    os.close(fd)
    assert file.write(memoryview(b"abcd")) == 4
    assert file.lost == 1
    assert lost_writes(sys.stdout) == 0
    assert (tmp_path / "x").read_bytes() == b"abc"
