"""Upserts of several processes that change the same rows: how often each is tried, and how many a second.

Six processes upsert some of eight keys at random, so nearly each two of them conflict. "tries" says how often
an upsert was built and sent until it was committed. "own keys" are the same processes with keys of their own,
which have nothing to wait for. pylance and delta-rs do the same to tables of their own; an upsert that
conflicts is tried again at once.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import lance
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import lakefold
from benchmarks.ground import await_start, committer
from benchmarks.producing import SPAWN
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from benchmarks.ground import Ground, LogOptions

    Upsert = Callable[[pa.Table], int]

PROCESSES, KEYS, KEYS_EACH = 6, 8, 4
LAST_SECONDS: Final = 600.0
MOST_TRIES = 1000
"""How often a peer's upsert is tried."""
FORMATS: Final = ("lance", "delta")


def measure(ground: Ground, upserts: int) -> dict[str, float]:
    """Has each process make an equal share of `upserts` upserts of a table; each way in turn."""
    figures: dict[str, float] = {}
    with committer(ground):
        await_start(ground)
        for name in FORMATS:
            for label, own in (("8 keys", False), ("own keys", True)):
                table = ground.root / f"{name}-{'own' if own else 'shared'}"
                lakefold.append(table, _rows(range(KEYS * PROCESSES)), format=name, **ground.log_options)
                work = partial(_lakefold, table, ground.log_options)
                figures |= _together(f"{name}, {label}", work, upserts, own=own)
    lance.write_dataset(_rows(range(KEYS)), ground.root / "pylance")
    write_deltalake(ground.root / "delta-rs", _rows(range(KEYS)))
    figures |= _together("pylance, 8 keys", partial(_pylance, ground.root / "pylance"), upserts)
    figures |= _together("delta-rs, 8 keys", partial(_delta_rs, ground.root / "delta-rs"), upserts)
    return figures


def _rows(ids: range | list[int], number: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "number": pa.array([number] * len(ids), pa.int64())})


def _together(name: str, work: Callable[[], Upsert], upserts: int, *, own: bool = False) -> dict[str, float]:
    """Returns the figures of processes that upsert together. `own`: each of them has keys of its own."""
    results: Queue[list[int]] = SPAWN.Queue()
    barrier = SPAWN.Barrier(PROCESSES + 1)
    arguments = [(work, upserts // PROCESSES, number, own, barrier, results) for number in range(PROCESSES)]
    processes = [SPAWN.Process(target=_upsert_all, args=each) for each in arguments]
    for process in processes:
        process.start()
    barrier.wait(LAST_SECONDS)
    begun = time.monotonic()
    tries = np.array([each for _ in processes for each in results.get(timeout=LAST_SECONDS)])
    seconds = time.monotonic() - begun
    for process in processes:
        process.join()
    done = tries[tries > 0]
    return {
        f"{name}: upserts/s": done.size / seconds,
        f"{name}: tries, mean": float(done.mean()) if done.size else 0.0,
        f"{name}: tries, p99": float(np.quantile(done, 0.99, method="higher")) if done.size else 0.0,
        f"{name}: tries, most": float(done.max(initial=0)),
        f"{name}: failed": float(tries.size - done.size),
    }


def _upsert_all(
    work: Callable[[], Upsert],
    upserts: int,
    number: int,
    own: bool,  # noqa: FBT001 - as above
    barrier: Barrier,
    results: Queue[list[int]],
) -> None:
    """Makes the upserts of one process. Puts the tries of each into `results`, 0 if it failed."""
    upsert, generator = work(), np.random.default_rng(number)
    first = KEYS * number if own else 0
    upsert(_rows([first]))
    barrier.wait(LAST_SECONDS)
    tries = []
    for count in range(upserts):
        ids = first + generator.choice(KEYS, KEYS_EACH, replace=False)
        tries.append(upsert(_rows(ids.tolist(), count)))
    results.put(tries)


def _lakefold(table: Path, options: LogOptions) -> Upsert:
    def upsert(rows: pa.Table) -> int:
        try:
            return lakefold.upsert(table, rows, keys=["id"], **options).attempts
        except RetryError:
            return 0

    return upsert


def _pylance(table: Path) -> Upsert:
    def once(rows: pa.Table) -> None:
        merge = lance.dataset(table).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().conflict_retries(0).execute(rows)

    return partial(_tries, once, OSError)


def _delta_rs(table: Path) -> Upsert:
    def once(rows: pa.Table) -> None:
        merge = DeltaTable(table).merge(
            rows, predicate="target.id = source.id", source_alias="source", target_alias="target"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return partial(_tries, once, DeltaError)


def _tries(once: Callable[[pa.Table], None], conflict: type[Exception], rows: pa.Table) -> int:
    """Returns how often an upsert was tried until it passed, 0 if it never did."""
    for tries in range(1, MOST_TRIES + 1):
        try:
            once(rows)
        except conflict:
            continue
        return tries
    return 0
