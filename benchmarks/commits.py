"""How many transactions a second become visible: by the committer, and by clients racing with themselves.

The committer runs while the producers send, all of them and the broker on the same cores; what is timed goes
from the first proposal sent to the last version's name. Beside it, what the committer alone makes of a log
that is full already.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.files import appends
from benchmarks.ground import (
    ANSWER_SECONDS,
    MEGABYTE,
    ROWS_PER_FRAGMENT,
    await_answers,
    await_start,
    bytes_of,
    committer,
    log_events,
    logged_at,
    mould_of,
    not_committed,
    outcomes_of,
    prove,
    versions_of,
    visible_at,
)
from benchmarks.peers import BATCH_OF_PEER, commit_batches, make_delta_table, race_delta, race_pylance
from benchmarks.producing import AHEAD, producers
from tests.servers.process import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.files import Mould
    from benchmarks.ground import Ground
    from lakefold_protos.lakefold.log_pb2 import Envelope

PRODUCERS = 8
START_FRAGMENTS = 10_000
RACERS = (1, 32)
MICROS = 1_000_000
BACKLOG = "transactions/s of a backlog"


def measure(ground: Ground, transactions: int) -> dict[str, float]:
    """Folds `transactions` Appends as they come, then a backlog; the peers race on copies of the table."""
    mould = mould_of(ground, "live", START_FRAGMENTS)
    live, root = ground.root / "live", ground.root
    copies = {racers: copied(live, root / f"raced-{racers}") for racers in RACERS}
    batched = copied(live, root / "batched")
    figures = fold_live(ground, live, makers_of(mould, PRODUCERS, transactions))
    prove(live, (START_FRAGMENTS + transactions) * ROWS_PER_FRAGMENT)
    backlog = mould_of(ground, "backlog", START_FRAGMENTS)
    figures |= fold_backlog(ground, root / "backlog", makers_of(backlog, PRODUCERS, transactions))
    for racers, copy in copies.items():
        name = f"pylance {racers} processes"
        figures[f"{name}, commits/s"], figures[f"{name}, failed"] = race_pylance(copy, racers)
    figures[f"pylance commit_batch of {BATCH_OF_PEER}, commits/s"] = commit_batches(batched)
    for racers in RACERS:
        make_delta_table(root / f"delta-{racers}", START_FRAGMENTS)
        name = f"delta-rs {racers} processes"
        figures[f"{name}, commits/s"], figures[f"{name}, failed"] = race_delta(
            root / f"delta-{racers}", racers
        )
    for peer in ("pylance", "delta-rs"):
        slowest = figures[f"{peer} {RACERS[-1]} processes, commits/s"]
        figures[f"ratio to {peer}'s {RACERS[-1]} processes"] = figures["transactions/s"] / max(slowest, 0.01)
    return figures


def fold_live(
    ground: Ground,
    path: Path,
    makers: Sequence[Callable[[], list[Envelope]]],
    per_second: float | None = None,
) -> dict[str, float]:
    """Lets producers send what these make while a committer folds; figures of all of it.

    Every earlier entry of the log must be answered. Every later outcome is checked. `per_second`: how many
    all producers together send at most.
    """
    before = len(outcomes_of(ground))
    with producers(ground, makers, per_second) as ready, committer(ground) as process:
        await_start(ground)
        await_answers(ground)
        versions, size = versions_of(path), bytes_of(path)
        cpu = cpu_seconds(process.pid)
        sent = ready.send()
        await_answers(ground)
        cpu = cpu_seconds(process.pid) - cpu
    outcomes = outcomes_of(ground)[before:]
    seconds = visible_at(path) - sent.first
    return {
        "transactions": sent.count,
        "producers": len(makers),
        "transactions/s": sent.count / seconds,
        "seconds of sending": sent.last - sent.first,
        "committer's CPU, µs per transaction": cpu / sent.count * MICROS,
        "versions": versions_of(path) - versions,
        "MB written": (bytes_of(path) - size) / MEGABYTE,
        "failed": sent.failed,
        "sent again": sent.again,
        "not committed": not_committed(outcomes) + abs(sent.count + AHEAD * len(makers) - len(outcomes)),
    }


def fold_backlog(
    ground: Ground, path: Path, makers: Sequence[Callable[[], list[Envelope]]]
) -> dict[str, float]:
    """The committer alone on what these sent before, from its first poll to the last version's name."""
    with producers(ground, makers) as ready:
        sent = ready.send()
    with committer(ground, "--until-caught-up") as process:
        code = process.wait(ANSWER_SECONDS)
    if code:
        raise RuntimeError(f"the committer ended with {code}: {(ground.root / 'committer.log').read_text()}")
    seconds = visible_at(path) - logged_at(log_events(ground, "folding")[-1])
    return {BACKLOG: (sent.count + AHEAD * len(makers)) / seconds}


def makers_of(mould: Mould, count: int, transactions: int) -> list[Callable[[], list[Envelope]]]:
    """For each producer its share of so many Appends of a single fragment each."""
    each = transactions // count
    return [partial(appends, mould, 2, f"producer-{number}", each) for number in range(count)]


def copied(path: Path, to: Path) -> Path:
    """A copy of the table for a peer: no client changes a file that is there, so links do."""
    shutil.copytree(path, to, copy_function=os.link)
    return to
