"""How much memory a committer takes for a proposal of very many fragments, and for the table it makes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.files import append_of
from benchmarks.ground import MEGABYTE, committer, mould_of, versions_of
from lakefold_log.write.producer import Proposer
from lakefold_table.lance.manifests.codec import decode_file
from lakefold_table.lance.manifests.naming import Scheme
from tests.waiting import until

if TYPE_CHECKING:
    import subprocess

    from benchmarks.ground import Ground

APPENDS = 10
KILOBYTE = 1024
SPARE_MB, MANIFESTS = 150, 3
"""What a committer may take: so much, and so many times the list of the fragments of its largest table."""


def measure(ground: Ground, fragments: int) -> dict[str, float]:
    """Folds an Append of so many fragments, and some of a single fragment into the table that has them."""
    mould = mould_of(ground, "large", 1)
    path = ground.root / "large"
    large = append_of(mould.uri, mould.cast(fragments), 2)
    small = [append_of(mould.uri, mould.cast(1), 2) for _ in range(APPENDS)]
    with committer(ground) as process, Proposer(ground.config, ground.topics) as proposer:
        proposer.send_wait(large)
        del large
        started = time.perf_counter()
        _await(path, 3)
        seconds = time.perf_counter() - started
        for number, envelope in enumerate(small, start=4):
            proposer.send_wait(envelope)
            _await(path, number)
        figures = memory_of(process, path / Scheme.V2.path(3))
    return {"fragments in one proposal": fragments, "seconds from sent to visible": seconds, **figures}


def memory_of(process: subprocess.Popen[bytes], manifest: Path) -> dict[str, float]:
    """Resident memory now and at its peak, by the kernel, beside the bytes of a manifest's fragments."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    kilobytes = {
        name: int(text.split()[0])
        for name, _, text in (line.partition(":") for line in lines)
        if "Vm" in name
    }
    peak = kilobytes["VmHWM"] * KILOBYTE / MEGABYTE
    size = decode_file(manifest.read_bytes(), whole=False).fragments.size / MEGABYTE
    return {
        "resident MB": kilobytes["VmRSS"] * KILOBYTE / MEGABYTE,
        "peak resident MB": peak,
        "manifest MB": size,
        "peak to what it may be": peak / (SPARE_MB + MANIFESTS * size),
    }


def _await(path: Path, version: int) -> None:
    until(lambda: versions_of(path) >= version, f"version {version}", seconds=120, every=0.001)
