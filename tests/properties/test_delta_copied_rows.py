"""Files that have the other rows of removed ones say which rows these are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import lakefold
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.revert.delta import history
from lakefold_reader.delta import data_files
from lakefold_reader.delta.feed.feed import DeltaFeed
from lakefold_reader.format.changes import ChangeType, Rewritten
from lakefold_reader.formats import open_source
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.snapshot.history_filter import HistoryFilter
from lakefold_table.bitmaps import Bitmap, live_ranks, numbers_of
from lakefold_table.delta.actions.file_actions import AddFile, removal_of
from lakefold_table.delta.deletion_vectors.storage import inline_rows
from lakefold_table.delta.rows.row_moves import (
    MOST_TAG,
    ROWS_OF,
    moved_rows,
    rows_left_out,
    with_copied_rows,
)
from tests.reverting import Tables, words

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STAYS = st.lists(st.booleans(), min_size=1, max_size=9)
FILES = st.lists(st.tuples(st.sampled_from("ab"), STAYS), max_size=5)
"""Files, each with its partition, and of each row whether it stays."""


def file(path: str, partition: str, rows: int) -> AddFile:
    stats = json.dumps({"numRecords": rows})
    return AddFile(path, {"p": partition}, 1, 0, data_change=True, stats=stats)


@given(FILES, st.integers(1, 5))
def test_tags_say_where_each_row_is(files: list[tuple[str, list[bool]]], most: int) -> None:
    sources, truth = list[tuple[AddFile, int, Bitmap]](), dict[str, list[tuple[str, int]]]()
    for number, (partition, stays) in enumerate(files):
        left_out = Bitmap(at for at, each in enumerate(stays) if not each)
        sources.append((file(f"{number}", partition, len(stays)), len(stays), left_out))
        truth.setdefault(partition, []).extend((f"{number}", at) for at, each in enumerate(stays) if each)
    contents = {
        f"{partition}{start}": (partition, rows[start : start + most])
        for partition, rows in truth.items()
        for start in range(0, len(rows), most)
    }
    written = [file(path, partition, len(rows)) for path, (partition, rows) in contents.items()]
    tagged = with_copied_rows(written, sources)
    removes = {source.path: removal_of(source, data_change=True) for source, *_ in sources}
    said: dict[str, list[tuple[str, int]]] = {path: [] for path in contents}
    for added in tagged:
        for move in moved_rows(added, removes):
            assert move.vector is not None
            assert move.start == len(said[added.path])
            dead = inline_rows(move.vector).get(0, Bitmap())
            live = np.setdiff1d(np.arange(move.stored_rows, dtype=np.uint32), numbers_of(dead))
            ranks = live_ranks(live, dead)
            chosen = live[(ranks >= move.first) & (ranks < move.first + move.count)]
            said[added.path] += [(move.source, int(at)) for at in chosen]
    assert said == {path: rows for path, (_, rows) in contents.items()}
    copies, gone = rows_left_out(tagged, removes)
    assert copies == said.keys()
    left_out_of = {source.path: left_out for source, _, left_out in sources}
    assert {path: inline_rows(vector).get(0, Bitmap()) for path, vector in gone.items()} == {
        path: left_out_of[path] for path in {path for rows in said.values() for path, _ in rows}
    }


def test_what_is_not_sure_or_too_long_is_not_said() -> None:
    stays = [number % 3 == 0 for number in range(200_000)]
    left_out = Bitmap(at for at, each in enumerate(stays) if not each)
    source, target = file("0", "a", len(stays)), file("1", "a", sum(stays))
    assert with_copied_rows([target], [(source, len(stays), left_out)]) == [target]
    few = Bitmap([7])
    (tagged,) = with_copied_rows([file("1", "a", 19)], [(source, 20, few)])
    assert len(str((tagged.tags or {})[ROWS_OF])) < MOST_TAG
    for others in ([file("1", "a", 18)], [file("1", "a", 20)], [file("1", "b", 19)]):
        assert with_copied_rows(others, [(source, 20, few)]) == others
    removes = {"0": removal_of(source, data_change=True)}
    assert rows_left_out([tagged], removes)[0] == {"1"}
    for change in ({"stats": json.dumps({"numRecords": 18})}, {"tags": {ROWS_OF: "[]"}}):
        doubtful = replace(tagged, **change)
        assert rows_left_out([doubtful], removes) == (frozenset(), {})
    assert rows_left_out([tagged], {}) == (frozenset(), {})


def test_a_feed_has_what_changed_without_reading_the_rest(tmp_path: Path) -> None:
    table = Tables.made("delta", tmp_path / "t")
    table.append(words(*range(100)))
    table.upsert(words(3, 200, word="second"))
    table.delete("id = 50 or id = 51")
    source = open_source(str(tmp_path / "t"), format_name="delta")
    feed = DeltaFeed()
    parts = list(feed.plan(source, 1, feed.end(source, 3), Rewritten.ROWS))
    assert [(part.version, part.change_type, part.rows.rows) for part in parts] == [
        (2, ChangeType.DELETE, 1),
        (2, ChangeType.INSERT, 2),
        (3, ChangeType.DELETE, 2),
    ]
    changes = lakefold.changes(tmp_path / "t", 1, 3).read_all()
    shown = zip(changes["_change_type"].to_pylist(), changes["id"].to_pylist(), strict=True)
    assert list(shown) == [("delete", 3), ("insert", 3), ("insert", 200), ("delete", 50), ("delete", 51)]


def test_a_revert_compares_no_values_of_copied_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a checkpoint of delta-rs, which has the tags."""
    table = Tables.made("delta", tmp_path / "t")
    table.append(words(*range(100)))
    table.append(words(*range(200, 210), word="bad"), Key("loader", 7))
    table.compact()
    for number in range(4):
        table.upsert(words(number, 50 + number, word="second"))
    table.delete("id = 90")
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    table.delete("id = 91")
    before = table.rows()
    for name in ("equal_rows", "row_numbers"):
        monkeypatch.delattr(history, name)
    table.revert(batches=(("loader", 7),))
    assert table.rows() == [row for row in before if not 200 <= row[0] < 210]


def test_versions_that_changed_a_row_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Lakefold and of delta-rs, which says nothing of copied rows; files without the row stay unread."""
    path, table = tmp_path / "t", Tables.made("delta", tmp_path / "t")
    table.append(words(*range(20)))
    table.append(words(*range(100, 110)))
    table.upsert(words(3, 7, word="second"))
    table.upsert(words(8, 200, word="third"))
    DeltaTable(path).delete("id = 4 or id = 105")
    table.delete("id = 3")
    DeltaTable(path).update(updates={"word": "'again'"}, predicate="id = 7 or id = 9")
    table.compact()
    newest = table.version
    for number in (3, 4, 7, 8, 9, 105, 300):
        source, last, truth = (
            open_source(str(path), format_name="delta"),
            list[tuple[object, ...]](),
            list[int](),
        )
        for version in range(newest + 1):
            now = [row for row in table.rows(version) if row[0] == number]
            truth += [version] if now != last else []
            last = now
        chosen = HistoryFilter(row={"id": str(number)}).chosen(source, history_of(source))
        assert [row.version for row in chosen] == truth[::-1], number
    opened = list[object]()
    monkeypatch.setattr(data_files.DataFile, "__init__", lambda *given: opened.append(given))
    source = open_source(str(path), format_name="delta")
    row = HistoryFilter(row={"id": "300"})
    assert not list(row.chosen(source, history_of(source, to_version=2)))
    assert not opened
