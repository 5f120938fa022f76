"""Reading a version whole and by row ids, beside pylance on the same table; the two take turns.

A scan is from nothing to all rows as Arrow, opening included. Takes read 1,000 rows of 100 fragments, from
tables of few and of many fragments; the first call makes the index of row ids.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments

import lakefold

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BIG = (20, 500_000)
"""Fragments, and rows of each."""
SMALL = (10_000, 100)
TAKEN_FROM = (1_000, 100_000)
TAKEN, TAKEN_FRAGMENTS = 1_000, 100
TURNS = 5
MILLI = 1_000


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """The figures; `share` makes the tables so many times smaller."""
    figures = {}
    for name, (fragments, rows) in (
        ("big", (BIG[0], BIG[1] // share)),
        ("small", (SMALL[0] // share, SMALL[1])),
    ):
        path = _table(root / name, fragments, rows)
        for figure, value in _scans(path).items():
            figures[f"{fragments:,} fragments of {rows:,} rows: {figure}"] = value
    for fragments in (TAKEN_FROM[0], TAKEN_FROM[1] // share):
        path = _listed(root / f"taken-{fragments}", fragments)
        figures |= {
            f"{fragments:,} fragments: {name}": value for name, value in _takes(path, fragments).items()
        }
    return figures


def _scans(path: Path) -> dict[str, float]:
    def ours() -> pa.Table:
        return lakefold.open(path).to_arrow()

    def theirs() -> pa.Table:
        return lance.dataset(str(path)).to_table()

    if not ours().equals(theirs()):
        raise ValueError(f"the rows of {path} are not pylance's")
    mine, pylance = _in_turns(ours, theirs)
    return {
        "open, ms": _median(lambda: lakefold.open(path).count_rows()),
        "to_arrow, ms": mine,
        "pylance's to_table, ms": pylance,
        "ratio to pylance": mine / pylance,
    }


def _takes(path: Path, fragments: int) -> dict[str, float]:
    chosen = np.random.default_rng(3)
    rows_of = chosen.choice(fragments, TAKEN_FRAGMENTS, replace=False)
    ids = (rows_of[:, None] * SMALL[1] + np.arange(TAKEN // TAKEN_FRAGMENTS)).ravel()
    chosen.shuffle(ids)
    begun = time.perf_counter()
    table = lakefold.open(path)
    table.take(ids[:1])
    first = (time.perf_counter() - begun) * MILLI
    dataset = lance.dataset(str(path))

    def theirs(some: object = ids) -> object:
        return dataset._take_rows(some)  # noqa: SLF001 - pylance has no other take by row id

    first_of_peer = _timed(lambda: theirs(ids[:1]))
    mine, pylance = _in_turns(lambda: table.take(ids), theirs)
    return {
        "open and first take, ms": first,
        "pylance's first take, ms": first_of_peer,
        f"take {TAKEN:,} rows, ms": mine,
        f"pylance's take of {TAKEN:,} rows, ms": pylance,
    }


def _in_turns(each: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """The median time of each in milliseconds, taken in turns, so that they share what the machine does."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for act, taken in zip((each, other), times, strict=True):
            taken.append(_timed(act))
    return statistics.median(times[0]), statistics.median(times[1])


def _median(act: Callable[[], object]) -> float:
    return statistics.median(_timed(act) for _ in range(TURNS))


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * MILLI


def _rows(count: int) -> pa.Table:
    random = np.random.default_rng(count)
    words = pa.array(random.integers(0, 1_000, count)).cast(pa.string())
    return pa.table({"id": np.arange(count), "value": random.random(count), "word": words})


def _table(path: Path, fragments: int, rows: int) -> Path:
    """A table whose every fragment has a data file of its own, with the same content."""
    dataset = lance.write_dataset(_rows(rows), str(path))
    (first,) = dataset.get_fragments()
    values = first.metadata.to_json()
    source = path / "data" / values["files"][0]["path"]
    added = []
    for number in range(1, fragments):
        copy = path / "data" / f"{number:024b}{number:026x}.lance"
        copy.write_bytes(source.read_bytes())
        file = {**values["files"][0], "path": copy.name}
        added.append(lance.FragmentMetadata.from_json(json.dumps({**values, "id": 0, "files": [file]})))
    if added:
        lance.LanceDataset.commit(str(path), lance.LanceOperation.Append(added), read_version=1)
    return path


def _listed(path: Path, fragments: int) -> Path:
    """A table with stable row ids, whose fragments all name one data file."""
    dataset = lance.write_dataset(_rows(SMALL[1]), str(path), enable_stable_row_ids=True)
    (more,) = write_fragments(_rows(SMALL[1]), dataset, mode="append")
    operation = lance.LanceOperation.Append([more] * (fragments - 1))
    lance.LanceDataset.commit(str(path), operation, read_version=1)
    return path
