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
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(document) > 25
    for each in document:
        assert each["kind"] in KINDS, each
        assert each["took"] <= 2 * each["bytes"] + SPARE_BYTES, each
        assert each["seconds"] <= MOST_SECONDS, each
    moved = [each["kind"] for each in document if each["name"].endswith(" moved rows")]
    assert moved == ["Invalid"] * 3
