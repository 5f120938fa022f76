"""How much memory a committer holds for a table of many fragments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ground import committer, make_table, small_append, versions_of
from lakefold_log.producer import Proposer
from tests.waiting import until

if TYPE_CHECKING:
    import subprocess

    from benchmarks.ground import Ground

APPENDS = 200
MEGABYTE = 1024 * 1024
KILOBYTE = 1024


def measure(ground: Ground, fragments: int) -> dict[str, float]:
    """Opens a table of `fragments` fragments, folds some Appends into it, and reads the process's memory."""
    uri = make_table(ground, "large", fragments)
    path = ground.root / "large"
    envelopes = [small_append(uri, 2, fragments + number) for number in range(APPENDS)]
    with committer(ground) as process, Proposer(ground.config, ground.topics) as proposer:
        for number, envelope in enumerate(envelopes, start=3):
            proposer.send_wait(envelope)
            reached = partial(_reached, path, number)
            until(reached, "the next version", seconds=60, every=0.001)
        figures = _memory(process)
    manifest = max(entry.stat().st_size for entry in (path / "_versions").glob("*.manifest"))
    return {"fragments": fragments, **figures, "manifest MB": manifest / MEGABYTE}


def _reached(path: Path, version: int) -> bool:
    return versions_of(path) >= version


def _memory(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Resident memory now and at its peak, from the kernel's own account."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    kilobytes = {
        name: int(text.split()[0])
        for name, _, text in (line.partition(":") for line in lines)
        if "Vm" in name
    }
    return {
        "resident MB": kilobytes["VmRSS"] * KILOBYTE / MEGABYTE,
        "peak resident MB": kilobytes["VmHWM"] * KILOBYTE / MEGABYTE,
    }
