"""Whatever a proposal claims, folding it takes no more than twice its bytes and 64 MB, and no long time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPARE_BYTES = 64 * 2**20
MOST_SECONDS = 10
KINDS = {"Committed", "Invalid", "Rejected"}


def test_what_a_proposal_claims_takes_no_memory() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("hostile.py"))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) > 25
    for one in told:
        assert one["kind"] in KINDS, one
        assert one["took"] <= 2 * one["bytes"] + SPARE_BYTES, one
        assert one["seconds"] <= MOST_SECONDS, one
    moved = [one["kind"] for one in told if one["name"].endswith(" moved rows")]
    assert moved == ["Invalid"] * 3
