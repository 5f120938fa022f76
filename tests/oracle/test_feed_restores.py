"""Columns that are dropped and restored within the range of a change feed keep their values in earlier rows.

Promise: feeds-add-up (docs/operations/promises.md).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from tests.feeds import Row, applied, rows_by_key
from tests.oracle.test_mixed_versions import STABLE

if TYPE_CHECKING:
    from pathlib import Path

AFTER, BEFORE, INSERT, DELETE = "update_postimage", "update_preimage", "insert", "delete"


def feed(uri: str, after: int, to: int | None = None) -> list[Row]:
    rows: list[Row] = lakefold.changes(uri, after, to).read_all().to_pylist()
    return rows


@STABLE
@pytest.mark.parametrize("after", range(5))
def test_two_restores_take_a_column_and_bring_it_back(tmp_path: Path, after: int, *, stable: bool) -> None:
    """For every beginning of the range, also after the versions that were restored."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1]}), uri, enable_stable_row_ids=stable)
    lance.dataset(uri).add_columns({"b": "id * 10"})
    lance.write_dataset(pa.table({"id": [2], "b": [20]}), uri, mode="append")
    lance.dataset(uri, version=1).restore()
    lance.dataset(uri, version=2).restore()
    expected = [
        (1, INSERT, 1, None),
        (2, BEFORE, 1, None),
        (2, AFTER, 1, 10),
        (3, INSERT, 2, 20),
        (4, DELETE, 2, 20),
        (4, BEFORE, 1, 10),
        (4, AFTER, 1, None),
        (5, BEFORE, 1, None),
        (5, AFTER, 1, 10),
    ]
    values = [(row["_commit_version"], row["_change_type"], row["id"], row["b"]) for row in feed(uri, after)]
    assert values == [row for row in expected if row[0] > after]


@STABLE
def test_a_field_below_a_column_goes_and_comes_back(tmp_path: Path, *, stable: bool) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(
        pa.table({"id": [1], "s": [{"x": 1, "y": 2}]}),
        uri,
        data_storage_version="2.1",
        enable_stable_row_ids=stable,
    )
    lance.dataset(uri).drop_columns(["s.x"])
    lance.write_dataset(pa.table({"id": [2], "s": [{"y": 4}]}), uri, mode="append")
    lance.dataset(uri, version=1).restore()
    values = [(row["_change_type"], row["id"], row["s"]) for row in feed(uri, 0)]
    assert values == [
        (INSERT, 1, {"x": 1, "y": 2}),
        (BEFORE, 1, {"x": 1, "y": 2}),
        (AFTER, 1, {"x": None, "y": 2}),
        (INSERT, 2, {"x": None, "y": 4}),
        (DELETE, 2, {"x": None, "y": 4}),
        (BEFORE, 1, {"x": None, "y": 2}),
        (AFTER, 1, {"x": 1, "y": 2}),
    ]


class History:
    """A table under random changes of its rows and columns."""

    def __init__(self, uri: str, seed: int) -> None:
        self.uri = uri
        self.random = Random(seed)
        self.keys = 0
        first = pa.table({"k": self.fresh(), "a": [1, 2, 3], "b": [4, 5, 6]})
        lance.write_dataset(first, uri, enable_stable_row_ids=bool(seed % 2), max_rows_per_file=2)

    @property
    def dataset(self) -> Any:  # noqa: ANN401 - pylance is published without types
        return lance.dataset(self.uri)

    def fresh(self) -> list[int]:
        self.keys += 3
        return list(range(self.keys - 3, self.keys))

    def append(self) -> None:
        rows = [
            {name: key if name == "k" else None for name in self.dataset.schema.names} for key in self.fresh()
        ]
        table = pa.Table.from_pylist(rows, self.dataset.schema)
        for number, field in enumerate(table.schema):
            if pa.types.is_integer(field.type) and field.name != "k":
                table = table.set_column(number, field, pa.array([self.keys] * 3, field.type))
        lance.write_dataset(table, self.uri, mode="append")

    def delete(self) -> None:
        self.dataset.delete(f"k % 5 = {self.random.randrange(5)}")

    def update(self) -> None:
        if "a" in self.dataset.schema.names:
            self.dataset.update({"a": "k + 100"}, where=f"k % 4 = {self.random.randrange(4)}")

    def add(self) -> None:
        name = self.random.choice(["a", "c", "d"])
        if name not in self.dataset.schema.names:
            self.dataset.add_columns({name: f"k * {self.dataset.version}"})

    def drop(self) -> None:
        if len(self.dataset.schema.names) > 1:
            self.dataset.drop_columns([self.random.choice(self.dataset.schema.names[1:])])

    def rename(self) -> None:
        old, new = self.random.choice(self.dataset.schema.names), self.random.choice(["a", "c", "e"])
        if old != "k" and new not in self.dataset.schema.names:
            self.dataset.alter_columns({"path": old, "name": new})

    def compact(self) -> None:
        self.dataset.optimize.compact_files(target_rows_per_fragment=9)

    def overwrite(self) -> None:
        table = pa.table({"k": self.fresh(), "a": [7, 8, 9]})
        lance.write_dataset(table, self.uri, mode="overwrite")

    def restore(self) -> int:
        back = self.random.randrange(1, self.dataset.version + 1)
        lance.dataset(self.uri, version=back).restore()
        return back


@pytest.mark.parametrize("seed", range(12))
def test_a_restore_shows_what_came_before_it_as_the_version_that_it_goes_back_to(
    tmp_path: Path, seed: int
) -> None:
    """Both have the same columns, so feeds that end with either show the older rows in the same way."""
    history = History(str(tmp_path / "t"), seed)
    acts = [history.append, history.delete, history.update, history.add, history.drop, history.rename]
    acts += [history.compact, history.overwrite]
    backs: dict[int, int] = {}
    for _ in range(9):
        history.random.choice(acts)()
        if history.random.randrange(2):
            back = history.restore()
            backs[history.dataset.version] = back
    uri, newest = history.uri, history.dataset.version
    for version in range(1, newest + 1):
        assert applied(feed(uri, 0, version), "k") == rows_by_key(uri, version, "k")
    for version, back in backs.items():
        shown = feed(uri, 0, version)
        assert [row for row in shown if row["_commit_version"] <= back] == feed(uri, 0, back)
    whole = feed(uri, 0)
    for after in range(newest):
        assert feed(uri, after) == [row for row in whole if row["_commit_version"] > after]
