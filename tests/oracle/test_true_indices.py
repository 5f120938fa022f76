"""An index of each kind finds the rows that are there, whoever compacted the table before (decision 0113)."""

from __future__ import annotations

import random
import shutil
from functools import wraps
from typing import TYPE_CHECKING, Any

import lance
import pytest

from lakefold import cli
from lakefold_maintenance.lance.indices import optimize_indices
from lakefold_reader.format.snapshots import RowRange
from lakefold_reader.formats import open_source
from lakefold_reader.spark.rows import VersionRows
from lakefold_reader.versions.listing import newest_of
from lakefold_table.entry import Committed
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import reuse_of
from tests.oracle.index_kinds import SCALARS, VECTORS, filters_of, indexed_table, rows_of, too_few, wrong
from tests.oracle.operations import version_of
from tests.oracle.reusing import reservation
from tests.oracle.test_compacting import FoldingLog, compaction
from tests.oracle.test_upkeep import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_reader.format.source import Snapshot

HIDING = {"btree", "words", "grams"}
"""The kinds of index that hide rows after a compaction that was not deferred followed one that was."""
GRAPHS = {column for column in VECTORS if column.startswith("hnsw")}


def ours(table: Path) -> None:
    report = compaction(table, FoldingLog(table), target_rows="400", deleted_share="0.01").run(full=True)
    assert report.failed == []


def deferred(table: Path) -> None:
    lance.dataset(table).optimize.compact_files(target_rows_per_fragment=400, defer_index_remap=True)


def by_pylance(table: Path) -> None:
    lance.dataset(table).optimize.compact_files(target_rows_per_fragment=400)


def folded(table: Path) -> None:
    """A version of a committer's that changes nothing in the rows."""
    (result,) = fold(owned(table), [reservation(table)], 10_000 + version_of(table).manifest.version)
    assert isinstance(result, Committed)


def hidden(table: Path) -> Path:
    """A table whose indices hide rows: a deferred compaction, deletions, and another compaction."""
    lance.dataset(table).delete("n % 5 = 0")
    deferred(table)
    lance.dataset(table).delete("n % 7 = 0")
    by_pylance(table)
    return table


def newest(table: Path) -> Snapshot:
    source = open_source(str(table))
    return source.format.open(source, newest_of(source))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """See `indexed_table`."""
    return indexed_table(tmp_path / "t")


class History:
    """Random acts on a table, of Lakefold and of others."""

    def __init__(self, table: Path, seed: int) -> None:
        self.table, self.next = table, 400
        self.random = random.Random(seed)

    def append(self) -> None:
        count = self.random.randint(5, 60)
        lance.write_dataset(rows_of(self.next, count), self.table, mode="append")
        self.next += count

    def delete(self) -> None:
        base = self.random.randint(5, 20)
        lance.dataset(self.table).delete(f"n % {base} = {self.random.randrange(base)}")

    def compact(self) -> None:
        ours(self.table)

    def compact_by_pylance(self) -> None:
        by_pylance(self.table)

    def update_indices(self) -> None:
        optimize_indices(open_source(str(self.table)))

    def act(self) -> str:
        acts = (self.append, self.delete, self.delete, self.compact, self.compact, self.compact_by_pylance)
        act = self.random.choice((*acts, self.update_indices))
        act()
        return act.__name__


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_an_index_of_each_kind_finds_all_rows_after_each_step(
    tmp_path: Path, *, stable: bool, all_faults: bool
) -> None:
    history = History(indexed_table(tmp_path / "t", stable=stable), seed=1)
    done = []
    for _ in range(50 if all_faults else 12):
        done.append(history.act())
        assert wrong(history.table) == {}, done
    assert {"compact", "compact_by_pylance", "delete"} <= set(done)


def test_graphs_of_vectors_are_searched_after_a_compaction_of_deleted_rows(table: Path) -> None:
    lance.dataset(table).delete("n % 5 = 0")
    ours(table)
    assert wrong(table, list(VECTORS)) == {}
    assert reuse_of(version_of(table)) is None


def test_the_best_rows_are_not_fewer_after_a_compaction_of_deleted_rows_with_stable_ids(
    tmp_path: Path,
) -> None:
    table = indexed_table(tmp_path / "t", stable=True)
    lance.dataset(table).delete("n % 8 < 4")
    assert too_few(table) == {}
    shutil.copytree(table, tmp_path / "by pylance")
    for _ in range(2):
        ours(table)
        assert too_few(table) == {}
        assert wrong(table) == {}
        lance.write_dataset(rows_of(400, 30), table, mode="append")
    optimize_indices(open_source(str(table)))
    assert too_few(table) == {}
    # This is pylance's own fault, which an index that is brought up to date has no more.
    by_pylance(tmp_path / "by pylance")
    assert too_few(tmp_path / "by pylance").keys() >= {"exact", "words"}


@pytest.mark.parametrize("merged", [False, True], ids=["as it is", "with other rows merged in"])
def test_an_index_that_hides_rows_is_trusted_no_more_with_the_committer_s_next_version(
    table: Path, *, merged: bool
) -> None:
    hidden(table)
    if merged:
        lance.write_dataset(rows_of(400, 30), table, mode="append")
        lance.dataset(table).optimize.optimize_indices()
    assert set(wrong(table)) & HIDING == HIDING
    folded(table)
    assert wrong(table) == {}
    assert reuse_of(version_of(table)) is None
    optimize_indices(open_source(str(table)))
    assert wrong(table) == {}
    lance.dataset(table).delete("n % 11 = 0")
    by_pylance(table)
    assert wrong(table) == {}


def test_filters_of_lakefold_find_what_an_index_hides(table: Path) -> None:
    hidden(table)
    snapshot = newest(table)
    live = set(lance.dataset(table).to_table(columns=["n"])["n"].to_pylist())
    for column in sorted(set(SCALARS) - {"words"}):
        for where, expected in filters_of(column, live).items():
            assert snapshot.count_rows(where) == len(expected), where
            rows = snapshot.reader(["n"], where, RowRange()).read_all()["n"].to_pylist()
            assert set(rows) == expected, where


@pytest.mark.parametrize("change", [None, hidden, ours], ids=["as it is", "hidden", "compacted"])
def test_tasks_of_spark_search_the_indices_that_find_all_rows(
    table: Path, change: Callable[[Path], object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change is not None:
        change(table)
    live = set(lance.dataset(table).to_table(columns=["n"])["n"].to_pylist())
    source = open_source(str(table))
    version = newest_of(source)
    schema = source.format.open(source, version).schema
    units = source.format.scan_units(source, version)
    searched: list[bool] = []
    scanner: Any = lance.LanceDataset.scanner

    @wraps(scanner)
    def noted(*given: object, use_scalar_index: bool, **options: object) -> object:
        searched.append(use_scalar_index)
        return scanner(*given, use_scalar_index=use_scalar_index, **options)

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    for where, expected in filters_of("btree", live).items():
        task = VersionRows(source.uri, version, schema, where, format="lance")
        rows = [
            number
            for unit in units
            for batch in task.read([unit], schema.arrow)
            for number in batch["n"].to_pylist()
        ]
        assert sorted(rows) == sorted(expected), where
    assert set(searched) == {change is not hidden}


@pytest.mark.parametrize("acts", [[], [by_pylance]], ids=["deferred", "then hidden"])
def test_the_maintainer_repairs_a_table(table: Path, acts: list[Callable[[Path], None]]) -> None:
    lance.dataset(table).delete("n % 5 = 0")
    deferred(table)
    for act in acts:
        lance.dataset(table).delete("n % 7 = 0")
        act(table)
    assert set(wrong(table)) >= (HIDING if acts else GRAPHS)
    around = Surroundings(table)
    report = around.upkeep(target_rows="400").round()
    assert set(report.indices) == {*SCALARS, *VECTORS}
    assert wrong(table) == {}
    indices = {each.name: each.covered for each in newest(table).indices()}
    assert indices == dict.fromkeys([*SCALARS, *VECTORS], len(lance.dataset(table).get_fragments()))
    assert around.upkeep(target_rows="400").round().indices == ()
    lance.dataset(table).delete("n % 11 = 0")
    by_pylance(table)
    assert wrong(table) == {}


def test_rows_that_a_compaction_took_from_the_indices_are_added_in_the_same_round(table: Path) -> None:
    around = Surroundings(table)
    report = around.upkeep(target_rows="400", growth="2").round()
    assert report.compaction.tasks == 1
    assert set(report.indices) == {*SCALARS, *VECTORS}
    assert wrong(table) == {}


def test_a_compaction_says_which_indices_lack_rows(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = compaction(table, FoldingLog(table), target_rows="400").run(full=True)
    assert report.unindexed == dict.fromkeys([*SCALARS, *VECTORS], 400)
    assert cli.run(["compact", str(table), "--dry-run"]) == 0
    assert "index btree lacks 400 rows, which searches scan" in capsys.readouterr().out
    optimize_indices(open_source(str(table)))
    assert compaction(table, FoldingLog(table), target_rows="400").run(full=True).unindexed == {}


def test_a_reuse_index_that_leads_to_the_rows_stays(table: Path) -> None:
    lance.dataset(table).delete("n % 5 = 0")
    deferred(table)
    before = version_of(table).indices
    folded(table)
    assert version_of(table).indices == before
    assert set(wrong(table)) == GRAPHS
