"""Random deletions of rows and compactions of a Delta table, each made for an older version, against a model.

The model knows rows by their values alone. A deletion is committed if all its rows are in the table still. A
compaction is committed if all its files are.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_rows, inline_vector
from lakefold_table.delta.rows.row_moves import ROWS_OF
from lakefold_table.entry import Committed, Duplicate, Rejected
from tests.delta_logs.actions import LISTED, VECTORS, Members, data_file, metadata, remove, snapshot_in
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.entry import Result

SEEDS = range(4)
STEPS = 25
FILES, ROWS = 4, 12


Proposal = tuple["Envelope", "Callable[[Result], None]"]
"""A proposal, and what compares its outcome with the model."""


class History:
    """A table, what is in its files, and the rows that should be in it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.table = Table(path)
        self.contents: dict[str, list[int]] = {}
        self.sizes: dict[str, int] = {}
        self.logs = 0
        self.refused = 0
        self.rebased = 0
        self.shared = 0
        self.fold([self.table.propose(LISTED, metadata(**VECTORS))])
        files = [
            self.file(f"{number}.parquet", range(number * ROWS, (number + 1) * ROWS))
            for number in range(FILES)
        ]
        self.fold([self.table.propose(*files)])
        self.live = set(range(FILES * ROWS))
        self.present = set(self.contents)

    @property
    def newest(self) -> int:
        """The newest version. A refusal may have one of its own, as each file is another log."""
        return max(int(path.stem) for path in (self.table.path / "_delta_log").glob("*.json"))

    def fold(self, envelopes: list[Envelope]) -> list[Result]:
        self.logs += 1
        results = self.table.fold(*envelopes, log=f"{self.logs:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e")
        versions = [result.version for result in results if isinstance(result, Committed)]
        self.shared += len(versions) - len(set(versions))
        self.rebased += sum(isinstance(result, Committed) and result.rebased for result in results)
        self.refused += len(results) - len(versions)
        return results

    def file(self, name: str, rows: range | list[int]) -> Members:
        action = data_file(self.table.path, name, *rows)
        self.contents[name] = list(rows)
        self.sizes[name] = action["add"]["size"]
        return action

    def files_at(self, version: int) -> dict[str, AddFile]:
        return dict(snapshot_in(self.table.path, version).files)

    def step(self) -> None:
        """Folds some proposals together, each made for a version of its own."""
        proposals = []
        for _ in range(self.random.choice([1, 1, 2, 3])):
            read = self.random.randint(max(1, self.newest - 4), self.newest)
            make = self.compact if self.random.random() < 0.3 else self.delete
            proposal = make(read, self.files_at(read))
            proposals += [] if proposal is None else [proposal]
        results = self.fold([envelope for envelope, _ in proposals])
        for (_, check), result in zip(proposals, results, strict=True):
            check(result)

    def delete(self, read: int, files: dict[str, AddFile]) -> Proposal | None:
        """Deletes some rows of one or two files as they were at a version."""
        actions: list[Members] = []
        affected: dict[str, list[int]] = {}
        for path in self.random.sample(sorted(files), min(len(files), self.random.choice([1, 1, 2]))):
            deleted = deleted_rows(files[path])
            left = [row for row in range(len(self.contents[path])) if row not in deleted]
            rows = self.random.sample(left, min(len(left), self.random.choice([1, 2])))
            if not rows:
                continue
            affected[path] = rows
            actions += [remove(path, vector(deleted)), self.again(path, [*deleted, *rows])]
        if not affected:
            return None
        envelope = self.table.propose(*actions, read=read, operation="DELETE", read_files=sorted(affected))
        for path, rows in affected.items():
            envelope.delta.affected_rows[path] = encode_treemap({0: Bitmap(rows)})
        values = {self.contents[path][row] for path, rows in affected.items() for row in rows}

        def check(result: Result) -> None:
            # The same rows may have been deleted by the same message before.
            fits = values <= self.live
            assert isinstance(result, Committed if fits else Rejected | Duplicate), (read, affected)
            if isinstance(result, Committed):
                assert result.rows_deleted == len(values)
                self.live -= values

        return envelope, check

    def compact(self, read: int, files: dict[str, AddFile]) -> Proposal | None:
        """Moves the rows of some files into one or two new ones, whose rows are in the order of the files."""
        sources = self.random.sample(sorted(files), self.random.randint(1, min(3, len(files))))
        parts: list[tuple[str, int, list[int]]] = []
        for path in sources:
            deleted = deleted_rows(files[path])
            values = [value for row, value in enumerate(self.contents[path]) if row not in deleted]
            cut = self.random.randint(0, len(values))
            parts += [(path, 0, values[:cut]), (path, cut, values[cut:])]
        at = self.random.randint(0, len(parts))
        adds = []
        for half in (parts[:at], parts[at:]):
            rows = [value for _, _, values in half for value in values]
            if not rows:
                continue
            action = self.file(f"c{len(self.contents)}.parquet", rows)
            tag = [[path, len(self.contents[path]), first, len(values)] for path, first, values in half]
            action["add"] |= {"dataChange": False, "tags": {ROWS_OF: json.dumps(tag)}}
            adds.append(action)
        if not adds:
            return None
        removes = [remove(path, vector(deleted_rows(files[path])), dataChange=False) for path in sources]
        made = {action["add"]["path"] for action in adds}

        def check(result: Result) -> None:
            fits = set(sources) <= self.present
            assert isinstance(result, Committed if fits else Rejected), (read, sources, result)
            if fits:
                self.present = (self.present - set(sources)) | made

        return self.table.propose(*removes, *adds, read=read, operation="OPTIMIZE"), check

    def again(self, path: str, deleted: list[int]) -> Members:
        members = {"path": path, "partitionValues": {}, "size": self.sizes[path], "modificationTime": 1}
        stats = json.dumps({"numRecords": len(self.contents[path])})
        return {"add": {**members, "dataChange": True, "stats": stats, "deletionVector": vector(deleted)}}


def deleted_rows(file: AddFile) -> list[int]:
    if file.deletion_vector is None:
        return []
    return list(inline_rows(file.deletion_vector).get(0, Bitmap()))


def vector(rows: list[int]) -> Members | None:
    return members_of(inline_vector({0: Bitmap(rows)})) if rows else None


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_those_of_the_model(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "t", seed)
    for _ in range(STEPS):
        history.step()
        table = pa.table(lakefold.open(str(tmp_path / "t")).to_arrow())
        assert sorted(table["x"].to_pylist()) == sorted(history.live)
    assert history.refused
    assert history.rebased > history.refused / 2
    assert history.shared
