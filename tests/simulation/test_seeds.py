"""Random histories of committers that race, crash, sleep and lose answers; `make soak` plays more of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakefold_committer.loop import partition, reread_entries, table_scheduler
from tests.simulation.scenario import play
from tests.simulation.world import transcript

ROOT = Path(__file__).parents[2]
SEEDS = 120
CHUNK = 20
SEEN_AGAIN = 7
USUAL_BYTES = 82
"""About half of the messages are longer."""
LARGE_SEEDS = range(1000, 1010)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds_at_each_step(first: int) -> None:
    for seed in range(first, first + CHUNK):
        play(seed)


def test_every_invariant_holds_if_many_messages_count_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait as offsets, and are read from the log again when their turn comes."""
    for module in (partition, reread_entries, table_scheduler):
        monkeypatch.setattr(module, "LARGE_BYTES", USUAL_BYTES)
    for seed in LARGE_SEEDS:
        play(seed)


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    here = transcript(play(SEEN_AGAIN).hub)
    command = [sys.executable, "-m", "tests.simulation.soak", "--seed", str(SEEN_AGAIN), "--transcript"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert process.stdout.splitlines()[:-1] == here.splitlines()
