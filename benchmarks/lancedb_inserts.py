"""Inserts of many LanceDB clients, in LanceDB's own environment: by the address of a catalog, or by a folder.

Usage: lancedb_inserts.py TARGET CLIENTS INSERTS ROWS. Each client makes INSERTS inserts of ROWS rows. Prints
the figures as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import lancedb
import pyarrow as pa

TABLE = "inserted"


def main() -> None:
    """Measures and prints."""
    target, clients, inserts, rows = sys.argv[1], *map(int, sys.argv[2:])
    _connected(target).create_table(TABLE, _rows(0, rows))
    barrier = Barrier(clients + 1)

    def insert(client: int) -> list[float]:
        table = _connected(target).open_table(TABLE)
        barrier.wait()
        return [_seconds(table, _rows((client * inserts + each + 1) * rows, rows)) for each in range(inserts)]

    with ThreadPoolExecutor(clients) as pool:
        working = [pool.submit(insert, client) for client in range(clients)]
        barrier.wait()
        begun = time.monotonic()
        seconds = sorted(each for done in working for each in done.result())
        whole = time.monotonic() - begun
    done = [each for each in seconds if each]
    stored = _connected(target).open_table(TABLE).count_rows()
    if stored != (len(done) + 1) * rows:
        raise AssertionError(f"{stored} rows of {len(done)} inserts and the first rows")
    figures = {
        "inserts/s": len(done) / whole,
        "inserts": len(done),
        "ms, p50": 1000 * done[len(done) // 2],
        "ms, p99": 1000 * done[len(done) * 99 // 100],
        "failed": len(seconds) - len(done),
    }
    print(json.dumps(figures))


def _connected(target: str) -> Any:  # noqa: ANN401 - LanceDB is in its own environment
    if target.startswith("http"):
        return lancedb.connect("db://lake", api_key="none", host_override=target, region="here")
    return lancedb.connect(target)


def _rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "text": ["some text"] * count})


def _seconds(table: Any, rows: pa.Table) -> float:  # noqa: ANN401 - as above
    """Returns how long an insert took, 0 if it failed."""
    begun = time.monotonic()
    try:
        table.add(rows)
    except (OSError, RuntimeError, ValueError):
        return 0.0
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
