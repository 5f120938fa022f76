"""Clients that know nothing of Lakefold, by the catalog and by the path: pylance's commits, LanceDB's rows.

pylance's writers each append small files and have them committed; by the path they race with each other, by
the catalog they go through the log. LanceDB's remote clients send rows, which the catalog writes; by the path
each of them writes files of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

import lance
import numpy as np
import pyarrow as pa
from lance.namespace import RestNamespace

from benchmarks.ground import await_start, committer
from benchmarks.producing import SPAWN
from tests.clients.environments import python_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    from benchmarks.ground import Ground

WRITERS: Final = 16
CLIENTS: Final = 32
ROWS: Final = 10
"""The rows of an append, and of an insert."""
LAST_SECONDS: Final = 600.0
LANCEDB: Final = "lancedb-0.40.0"
INSERTING: Final = Path(__file__).parent / "lancedb_inserts.py"


def measure(ground: Ground, commits: int, inserts: int) -> dict[str, float]:
    """Has 16 writers make `commits` commits together, and 32 clients `inserts` inserts; each in turn."""
    figures: dict[str, float] = {}
    with committer(ground), _catalog(ground) as url:
        await_start(ground)
        for route in ("path", "catalog"):
            target = str(ground.root / "pylance.lance") if route == "path" else url
            _write(target, 0, "create")
            alone = _together(target, 1, max(commits // WRITERS, 10))
            figures[f"pylance alone, by the {route}: ms, p50"] = alone["ms, p50"]
            all_of_them = _together(target, WRITERS, commits)
            figures |= {
                f"{WRITERS} pylance, by the {route}: {name}": each for name, each in all_of_them.items()
            }
            target = str(ground.root / "lancedb") if route == "path" else url
            inserted = _inserted(target, inserts // CLIENTS)
            figures |= {f"{CLIENTS} LanceDB, by the {route}: {name}": each for name, each in inserted.items()}
        files = len(lance.dataset(ground.root / "inserted.lance").get_fragments())
    catalog, path = (f"{CLIENTS} LanceDB, by the {route}: inserts/s" for route in ("catalog", "path"))
    figures["LanceDB: inserts in a file, by the catalog"] = (
        figures[f"{CLIENTS} LanceDB, by the catalog: inserts"] / files
    )
    figures["LanceDB: inserts/s, catalog / path"] = figures[catalog] / figures[path]
    catalog, path = (f"pylance alone, by the {route}: ms, p50" for route in ("catalog", "path"))
    figures["pylance alone: ms more by the catalog"] = figures[catalog] - figures[path]
    for name in ("commits/s", "ms, p99"):
        catalog, path = (f"{WRITERS} pylance, by the {route}: {name}" for route in ("catalog", "path"))
        figures[f"{WRITERS} pylance: {name}, catalog / path"] = figures[catalog] / figures[path]
    return figures


@contextmanager
def _catalog(ground: Ground) -> Iterator[str]:
    """The address of a catalog of the ground's tables."""
    command = (
        sys.executable,
        "-m",
        "lakefold",
        "catalog",
        "--root",
        str(ground.root),
        "--port",
        "0",
        "--json",
    )
    topics = ("--transactions-topic", ground.topics.transactions, "--outcomes-topic", ground.topics.outcomes)
    process = subprocess.Popen(
        (*command, "--json", "--bootstrap-servers", ground.bootstrap, *topics),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield json.loads(cast("IO[str]", process.stdout).readline())["url"]
    finally:
        process.terminate()
        process.wait(60)


@cache
def _namespace(url: str) -> RestNamespace:
    """The client of a catalog: one for a process, as a service has."""
    return RestNamespace(uri=url)


def _write(target: str, first: int, mode: str) -> None:
    """Appends rows to the table at a path, or to that of a catalog."""
    rows: Any = pa.table({"id": range(first, first + ROWS), "text": ["some text"] * ROWS})
    if target.startswith("http"):
        lance.write_dataset(rows, namespace_client=_namespace(target), table_id=["committed"], mode=mode)
    else:
        lance.write_dataset(rows, target, mode=mode)


def _together(target: str, writers: int, commits: int) -> dict[str, float]:
    """Returns the figures of processes that commit together."""
    results: Queue[list[float]] = SPAWN.Queue()
    barrier = SPAWN.Barrier(writers + 1)
    arguments = (target, commits // writers, barrier, results)
    processes = [SPAWN.Process(target=_commit_all, args=(number, *arguments)) for number in range(writers)]
    for process in processes:
        process.start()
    barrier.wait(LAST_SECONDS)
    begun = time.monotonic()
    seconds = np.array([each for _ in processes for each in results.get(timeout=LAST_SECONDS)])
    whole = time.monotonic() - begun
    for process in processes:
        process.join()
    done = seconds[seconds > 0]
    return {
        "commits/s": done.size / whole,
        "ms, p50": 1000 * float(np.quantile(done, 0.5)),
        "ms, p99": 1000 * float(np.quantile(done, 0.99, method="higher")),
        "failed": float(seconds.size - done.size),
    }


def _commit_all(
    number: int, target: str, commits: int, barrier: Barrier, results: Queue[list[float]]
) -> None:
    """Makes the commits of one process. Puts the seconds of each into `results`, 0 if it failed."""
    barrier.wait(LAST_SECONDS)
    seconds = []
    for count in range(commits):
        begun = time.monotonic()
        try:
            _write(target, (number * commits + count + 1) * ROWS, "append")
        except OSError:
            seconds.append(0.0)
        else:
            seconds.append(time.monotonic() - begun)
    results.put(seconds)


def _inserted(target: str, inserts: int) -> dict[str, float]:
    """Returns the figures of LanceDB's clients, which a process of their own environment has as threads."""
    command = (str(python_of(LANCEDB)), str(INSERTING), target, str(CLIENTS), str(inserts), str(ROWS))
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LAST_SECONDS)
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures
