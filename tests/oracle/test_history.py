"""The history of a table says for each version what pylance shows to have been added and removed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_reader.formats import open_source, source_on
from lakefold_reader.snapshot.history import HistoryRow, history_of
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.marks.record import Batches
from lakefold_table.storage import open_storage
from tests.proposals import append, rows
from tests.tables import Folded, Recording

if TYPE_CHECKING:
    from pathlib import Path

Traffic = tuple[int | None, int | None, int | None, int | None]


def traffic(row: HistoryRow) -> Traffic:
    return row.rows_in, row.rows_out, row.files_in, row.files_out


def test_versions_of_our_own(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    table.append(rows(range(5)), rows(range(5, 12)), app_id="app")
    newest, oldest = lakefold.open(table.uri).history()
    assert (newest.version, newest.operation, newest.own, newest.entries, newest.refused) == (
        2,
        "append",
        True,
        2,
        0,
    )
    assert traffic(newest) == (12, 0, 2, 0)
    assert newest.apps == (Batches("app", 1, 2, 2),)
    assert str(newest.positions) == "lakefold.transactions/0@1-2"
    assert (oldest.version, oldest.operation, traffic(oldest)) == (1, "create", (0, 0, 0, 0))
    assert str(oldest.positions) == "lakefold.transactions/0@0"


def test_refusals_are_counted(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    good, wrong = append(table.uri, rows([1]), 1), append(table.uri, rows([2]), 1)
    wrong.lance.read_version = 99
    table.owned.fold([table.entry(wrong), table.entry(good)])
    (row,) = history_of(open_source(table.uri), 2, 2)
    assert (row.entries, row.refused, str(row.positions)) == (1, 1, "lakefold.transactions/0@1-2")


def test_the_seconds_until_a_version_could_be_seen(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    before = time.time()
    table.append(rows([1]))
    after = time.time()
    newest = next(lakefold.open(table.uri).history())
    logged = newest.timestamp.timestamp()
    assert newest.seconds_to_visible is not None
    assert before - logged - 0.1 <= newest.seconds_to_visible <= after - logged + 0.1


def test_what_foreign_clients_did(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(20)), uri, max_rows_per_file=10)
    lance.write_dataset(rows(range(20, 25)), uri, mode="append")
    lance.dataset(uri).delete("id = 3 OR id > 21")
    lance.dataset(uri).update({"text": "'x'"}, where="id = 4")
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    lance.dataset(uri).update_config({"k": "v"})
    lance.dataset(uri).delete("id >= 10 AND id < 20")
    lance.write_dataset(rows([7]), uri, mode="overwrite")
    values = [(row.operation, *traffic(row)) for row in lakefold.open(uri).history()]
    assert values == [
        ("overwrite", 1, 11, 1, 6),
        ("delete", 0, 10, 0, 2),
        ("update_config", 0, 0, 0, 0),
        ("merge", 0, 0, 4, 0),
        ("update", 1, 1, 1, 0),
        ("delete", 0, 4, 0, 0),
        ("append", 5, 0, 1, 0),
        ("create", 20, 0, 2, 0),
    ]
    assert not any(row.own or row.positions or row.seconds_to_visible for row in lakefold.open(uri).history())


def test_rows_that_a_compaction_moves_neither_come_nor_go(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(5)), uri)
    lance.write_dataset(rows(range(5, 10)), uri, mode="append")
    lance.dataset(uri).optimize.compact_files()
    newest = next(lakefold.open(uri).history())
    assert (newest.operation, *traffic(newest)) == ("rewrite", 0, 0, 1, 2)


def test_a_range_of_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows([0]), uri)
    for number in range(1, 6):
        lance.write_dataset(rows([number]), uri, mode="append")
    source = open_source(uri)
    assert [row.version for row in history_of(source)] == [6, 5, 4, 3, 2, 1]
    assert [row.version for row in history_of(source, 3, 4)] == [4, 3]
    assert [row.version for row in lakefold.open(uri, 3).history(2)] == [3, 2]
    with pytest.raises(InvalidError, match="there is no version between 4 and 3"):
        history_of(source, 4, 3)
    with pytest.raises(VersionExpiredError, match="does not exist yet"):
        history_of(source, 8, 9)
    (tmp_path / "t" / source.versions.path(1)).unlink()
    (tmp_path / "t" / source.versions.path(2)).unlink()
    lance.dataset(uri).delete("id = 5")
    rows_left = list(history_of(source, 1, 9))
    assert [row.version for row in rows_left] == [7, 6, 5, 4, 3]
    assert traffic(rows_left[0]) == (0, 1, 0, 1)
    (tmp_path / "t" / source.versions.path(6)).unlink()
    assert traffic(next(history_of(open_source(uri)))) == (None, None, None, None)


def test_a_history_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    for number in range(5):
        table.append(rows([number]))
    recording = Recording(open_storage(tmp_path / "t"))
    history = history_of(source_on(recording))
    recording.calls.clear()
    next(history)
    next(history)
    assert recording.calls == ["get_range", "stored_at"] * 2
