"""Whether more producers make it slower: the same proposals sent by one process, and by 32.

Both send at the same pace, somewhat faster than a committer folds, so that they differ in nothing but how
many they are: 32 that send as fast as they can would only take the two cores away from everything else for a
while. What 32 processes take for themselves counts all the same. So beside it, what the committer alone makes
of a log that 32 have filled: many small batches, many apps.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.commits import BACKLOG, fold_backlog, fold_live, makers_of
from benchmarks.ground import ROWS_PER_FRAGMENT, mould_of, prove

if TYPE_CHECKING:
    from benchmarks.ground import Ground

START_FRAGMENTS = 1_000
FEW, MANY = 1, 32
ROUNDS = 3
PER_SECOND = 15_000
CPU = "committer's CPU, µs per transaction"
COUNTED = ("failed", "sent again", "not committed")


def measure(ground: Ground, transactions: int) -> dict[str, float]:
    """Sends `transactions` Appends by one and by 32 producers, in turns, to a new table each time."""
    rounds: dict[int, list[dict[str, float]]] = {FEW: [], MANY: []}
    for number in range(ROUNDS):
        for count, measured in rounds.items():
            measured.append(_once(ground, f"by-{count}-{number}", count, transactions))
    speeds = {count: median(values["transactions/s"] for values in each) for count, each in rounds.items()}
    figures = {f"{count} producers, transactions/s": speed for count, speed in speeds.items()}
    figures |= {
        f"{count} producers, {CPU}": median(values[CPU] for values in each) for count, each in rounds.items()
    }
    figures[f"{MANY} producers to {FEW}"] = speeds[MANY] / speeds[FEW]
    alone = {count: median(values[BACKLOG] for values in each) for count, each in rounds.items()}
    figures |= {f"{count} producers, {BACKLOG}": speed for count, speed in alone.items()}
    figures[f"backlog of {MANY} producers to that of {FEW}"] = alone[MANY] / alone[FEW]
    return figures | {
        name: sum(values[name] for each in rounds.values() for values in each) for name in COUNTED
    }


def _once(ground: Ground, name: str, producers: int, transactions: int) -> dict[str, float]:
    mould = mould_of(ground, name, START_FRAGMENTS)
    figures = fold_live(ground, ground.root / name, makers_of(mould, producers, transactions), PER_SECOND)
    prove(ground.root / name, (START_FRAGMENTS + transactions) * ROWS_PER_FRAGMENT)
    name = f"{name}-backlog"
    mould = mould_of(ground, name, START_FRAGMENTS)
    return figures | fold_backlog(ground, ground.root / name, makers_of(mould, producers, transactions))
