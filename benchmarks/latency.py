"""How long a proposal takes to become visible while little is going on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.ground import ROWS_PER_FRAGMENT, committer, make_table, prove, small_append
from lakefold_log.producer import Proposer
from lakefold_table.lance.manifests.naming import Scheme
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.ground import Ground

START_FRAGMENTS = 1_000
PER_SECOND = 50
WARM_UP = 50
LOOK_EVERY_SECONDS = 0.0002


def measure(ground: Ground, proposals: int) -> dict[str, float]:
    """Sends `proposals` at 50 a second, one fragment each; from `send` to the version's name being there."""
    uri = make_table(ground, "watched", START_FRAGMENTS)
    path = ground.root / "watched"
    envelopes = [small_append(uri, 2, START_FRAGMENTS + number) for number in range(WARM_UP + proposals)]
    times: list[float] = []
    with committer(ground), Proposer(ground.config, ground.topics) as proposer:
        version = 2
        for envelope in envelopes:
            version += 1
            started = time.perf_counter()
            sent = proposer.send(envelope)
            _wait_for(path, version)
            times.append(time.perf_counter() - started)
            sent.result(10)
            time.sleep(max(0.0, 1 / PER_SECOND - times[-1]))
    prove(path, (START_FRAGMENTS + len(envelopes)) * ROWS_PER_FRAGMENT)
    measured = sorted(times[WARM_UP:])
    return {
        "proposals": len(measured),
        "p50 ms": 1000 * measured[len(measured) // 2],
        "p99 ms": 1000 * measured[int(len(measured) * 0.99)],
        "max ms": 1000 * measured[-1],
    }


def _wait_for(path: Path, version: int) -> None:
    name = path / Scheme.V2.path(version)
    until(name.exists, f"version {version}", seconds=60, every=LOOK_EVERY_SECONDS)
