"""What comes before the rows: a long Delta log, versions of other clients, a first `take`, many columns.

Each is measured in a new process, the log and `take` beside delta-rs or pylance on the same files.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa

import lakefold
from benchmarks.delta import SCHEMA
from benchmarks.delta_log import NOW_MS, new_files, open_by_delta_rs, open_by_lakefold
from benchmarks.versions import Clocked, in_child
from lakefold_table.delta.log_segment.names import commit_path
from tests.delta_logs.actions import PROTOCOL, metadata, text
from tests.delta_merging import DeltaFolding
from tests.merging import Folding
from tests.unit.test_cost_of_columns import FEW, MANY, Wide, seconds
from tests.unit.test_cost_of_neighbours import DeltaNeighbour, LanceNeighbour, committing, opening

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ADDS = (100_000, 300_000)
COMMITS = 100
FRAGMENTS = 1_000
TAKES = 5
EARLIER = (25, 100)
VERSIONS = 10


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """The figures of each; `share` makes the logs of many adds shorter."""
    figures: dict[str, float] = {}
    for adds in ADDS:
        path, name = make_log(root / f"{adds}", adds // share), f"{adds // share:,} adds"
        ours, theirs = (in_child(act, path, adds // share) for act in (open_by_lakefold, open_by_delta_rs))
        figures |= {f"{name}: s of CPU": ours["s of CPU"], f"{name}: delta-rs: s of CPU": theirs["s of CPU"]}
        figures[f"{name}: lakefold to delta-rs"] = ours["s of CPU"] / theirs["s of CPU"]
    for kind in (DeltaNeighbour, LanceNeighbour):
        figures |= in_child(measure_neighbours, kind, root / kind.__name__)
    takes = [in_child(measure_take, root / f"take-{number}") for number in range(TAKES)]
    figures |= {name: statistics.median(take[name] for take in takes) for name in takes[0]}
    for folding in (DeltaFolding, Folding):
        figures |= in_child(measure_columns, folding, root / folding.__name__)
    return figures


def make_log(path: Path, adds: int) -> Path:
    """A Delta table whose files were added by many commits, without a checkpoint."""
    (path / "_delta_log").mkdir(parents=True)
    (path / commit_path(0)).write_bytes(text([PROTOCOL, metadata(SCHEMA)]))
    for number in range(1, COMMITS + 1):
        actions = [{"commitInfo": {"timestamp": NOW_MS}}, *new_files(adds // COMMITS)]
        (path / commit_path(number)).write_bytes(text(actions))
    return path


def measure_neighbours(kind: type[DeltaNeighbour | LanceNeighbour], path: Path) -> dict[str, float]:
    """A committer and a reader take in another client's version, after some versions and after many."""
    neighbour = kind(path)
    neighbour.commit()
    acts = {"committer": committing(neighbour), "reader": opening(neighbour)}
    figures: dict[str, float] = {}
    clocks = {(door, count): Clocked() for door in acts for count in EARLIER}
    for number in range(max(EARLIER) + VERSIONS):
        neighbour.commit()
        count = next((count for count in EARLIER if count <= number < count + VERSIONS), None)
        for door, act in acts.items():
            (Clocked() if count is None else clocks[door, count]).step(act)
    for (door, count), clock in clocks.items():
        name = f"{kind.__name__.removesuffix('Neighbour')}, {door}, {count} versions of others"
        figures[f"{name}: ms of CPU for the next"] = statistics.median(clock.cpu)
    return figures


def measure_take(root: Path) -> dict[str, float]:
    """A table is opened and one row is taken, the first time; both have read another table before."""
    clocks = {"lakefold": Clocked(), "pylance": Clocked()}
    for name, fragments in (("another", 1), ("table", FRAGMENTS)):
        path = root / name
        lance.write_dataset(pa.table({"id": range(fragments)}), path, max_rows_per_file=1)
        for client, act in (("lakefold", lakefold.open), ("pylance", lance.dataset)):
            clocks[client].step(_take, act, path)
    ours, theirs = clocks["lakefold"], clocks["pylance"]
    return {
        f"first take of {FRAGMENTS:,} fragments, ms": ours.wall[1],
        f"first take of {FRAGMENTS:,} fragments, ms of CPU": ours.cpu[1],
        f"first take of {FRAGMENTS:,} fragments: pylance, ms": theirs.wall[1],
        f"first take of {FRAGMENTS:,} fragments: pylance, ms of CPU": theirs.cpu[1],
    }


def _take(act: Callable[[Path], Any], path: Path) -> None:
    act(path).take([0])


def measure_columns(kind: type[Folding | DeltaFolding], root: Path) -> dict[str, float]:
    """What a table of many columns takes, and how many times as long as one of few."""
    few, many = Wide(kind, root / "few", FEW), Wide(kind, root / "many", MANY)
    name = "Delta" if kind is DeltaFolding else "Lance"
    figures: dict[str, float] = {}
    for door in (Wide.append, Wide.upsert, Wide.read, Wide.changes):
        taken = seconds(partial(door, many))
        figures[f"{name}, {door.__name__}, {MANY:,} columns: ms of CPU"] = 1000 * taken
        ratio = taken / seconds(partial(door, few))
        figures[f"{name}, {door.__name__}: {MANY:,} columns to {FEW}"] = ratio
    return figures
