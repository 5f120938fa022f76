"""A version of another client costs as much as what it changed, however many of its versions came before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_committer.tables.branches import open_branch
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.tail.tail import tail
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import PROTOCOL, Members, data_file, metadata, remove, text
from tests.folding import append, entries
from tests.queries import Query
from tests.unit.test_cost import steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS_PER_NAME: Final = 400
"""What each older version may add: its name in a listing, its fragment in a manifest, which is read whole."""
EARLY, LATE = 12, 72
"""The numbers of other clients' versions of which the cost is compared. Both are after the first checkpoint
that any of them would write, and the table has none."""
FEW: Final = 5
"""So many versions are counted at each number, and the least counts: a dict that grows is copied at times."""


class DeltaNeighbour:
    """A Delta table to which another client commits; it removes a file each time, and says little of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version = 0
        (path / "_delta_log").mkdir(parents=True)
        self._write(PROTOCOL, metadata())

    def commit(self) -> None:
        number = self._version
        gone = [remove(f"{number - 1}.parquet")] if number > 1 else []
        self._write(data_file(self.path, f"{number}.parquet", number), *gone)

    def refused(self, uri: str) -> Envelope:
        """A proposal that names a file which doesn't exist."""
        envelope = Envelope(table=uri)
        envelope.delta.actions = text([{"add": {**data_file(self.path, "x", 1)["add"], "path": "gone"}}])
        return envelope

    def follow(self) -> None:
        """Notes that a committer has made a version."""
        self._version += 1

    def _write(self, *actions: Members) -> None:
        (self.path / commit_path(self._version)).write_bytes(text(actions))
        self._version += 1


class LanceNeighbour:
    """A Lance table to which pylance appends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commit()

    def commit(self) -> None:
        lance.write_dataset(pa.table({"x": [1]}), self.path, mode="append")

    def refused(self, uri: str) -> Envelope:
        """A proposal that names a file which doesn't exist."""
        envelope = append("gone")
        envelope.table = uri
        return envelope

    def follow(self) -> None:
        """Notes that a committer has made a version."""


Neighbour = DeltaNeighbour | LanceNeighbour
NEIGHBOURS = pytest.mark.parametrize("kind", [DeltaNeighbour, LanceNeighbour], ids=["delta", "lance"])


def committing(neighbour: Neighbour) -> Callable[[], object]:
    """A committer answers a proposal, before which it has to read the versions of others."""
    uri = neighbour.path.as_uri()
    writer = open_branch(TableAddress(uri), "")
    proposal = entries([neighbour.refused(uri)], 0)
    writer.fold(proposal)
    neighbour.follow()
    offsets = iter(range(1, 1000))

    def act() -> None:
        before = writer.table.version
        (outcome,) = writer.fold(entries([neighbour.refused(uri)], next(offsets))).outcomes
        assert not isinstance(outcome.result, Committed)
        assert writer.table.version == before + 1

    return act


def opening(neighbour: Neighbour) -> Callable[[], object]:
    return lambda: lakefold.open(neighbour.path).schema


def tailing(neighbour: Neighbour) -> Callable[[], object]:
    followed = tail(neighbour.path, "latest")

    def act() -> None:
        (change,) = followed.step()
        assert change.feed().read_all().num_rows

    return act


def streaming(neighbour: Neighbour) -> Callable[[], object]:
    """A streaming query of Spark's that reads the change feed."""
    query = Query(neighbour.path, readChangeFeed="true", startingVersion="latest")
    assert query.batch() is None

    def act() -> None:
        assert query.batch()

    return act


def listing_changes(neighbour: Neighbour) -> Callable[[], object]:
    """What changed since the last call, by the number of a version."""
    numbers = iter([lakefold.open(neighbour.path).version + step for step in range(1000)])
    return lambda: lakefold.changes(neighbour.path, next(numbers)).read_all()


@NEIGHBOURS
@pytest.mark.parametrize("door", [committing, opening, tailing, streaming, listing_changes])
def test_the_next_version_of_another_client_takes_no_more_steps(
    kind: type[Neighbour], door: Callable[[Neighbour], Callable[[], object]], tmp_path: Path
) -> None:
    neighbour = kind(tmp_path / "t")
    neighbour.commit()
    act = door(neighbour)
    counted: dict[int, list[int]] = {EARLY: [], LATE: []}
    for number in range(LATE + FEW):
        neighbour.commit()
        start = next((each for each in counted if each <= number < each + FEW), None)
        if start is None:
            act()
        else:
            counted[start].append(steps(act))
    grown = (min(counted[LATE]) - min(counted[EARLY])) / (LATE - EARLY)
    assert grown < STEPS_PER_NAME, counted
