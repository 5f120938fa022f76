"""Appends to a table of very many fragments, whose every version is a file of many megabytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.commits import PRODUCERS, copied, fold_live, makers_of
from benchmarks.ground import ROWS_PER_FRAGMENT, mould_of, prove
from benchmarks.peers import BATCH_OF_PEER, commit_batches

if TYPE_CHECKING:
    from benchmarks.ground import Ground


def measure(ground: Ground, transactions: int, fragments: int) -> dict[str, float]:
    """Folds `transactions` Appends as they come into a table of `fragments`, then lets pylance commit."""
    mould = mould_of(ground, "large", fragments)
    path = ground.root / "large"
    batched = copied(path, ground.root / "batched")
    figures: dict[str, float] = {"fragments": fragments}
    figures |= fold_live(ground, path, makers_of(mould, PRODUCERS, transactions))
    prove(path, (fragments + transactions) * ROWS_PER_FRAGMENT, whole=False)
    figures[f"pylance commit_batch of {BATCH_OF_PEER}, commits/s"] = commit_batches(batched)
    return figures
