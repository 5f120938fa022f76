"""What reading a version costs: one manifest to open it, then only the files that are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_reader.formats import source_on
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_table.entry import Entry
from lakefold_table.errors import DamagedError
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.position import Position
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.memory_storage import MemoryStorage
from tests.proposals import creation, rows
from tests.tables import LOG, Recording, fragments_only

if TYPE_CHECKING:
    from pathlib import Path

URI = "memory://lazy/t"
FRAGMENTS = 100_000


def test_opening_a_hundred_thousand_fragments_reads_one_manifest() -> None:
    storage = Recording(MemoryStorage(URI))
    lance_format = LanceFormat()
    versions = Versions(MemoryStorage(URI), lance_format.folder, lance_format.detect)
    table = TableWriter(StoredTable(lance_format, versions), check_sizes=False)
    for offset, envelope in enumerate((creation(URI), fragments_only(URI, FRAGMENTS))):
        table.fold(
            [
                Entry(
                    Position(LOG, offset),
                    1_700_000_000_000_000 + offset,
                    envelope,
                    100,
                    BUILT_IN.proposal(envelope),
                )
            ]
        )
    opened = table_of(source_on(storage))
    assert [call for call in storage.calls if call not in ("uri", "size")] == ["list", "get"]
    reported = (opened.version, opened.fragment_count, opened.count_rows(), opened.deleted_rows)
    assert reported == (2, FRAGMENTS, FRAGMENTS, 0)
    assert opened.schema.names == ["id", "text"]
    assert opened.marks is not None
    assert [call for call in storage.calls if call not in ("uri", "size")] == ["list", "get"]
    MemoryStorage.forget("lazy")


def test_what_the_manifest_contains_needs_no_pylance(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(5)), uri)
    lance.dataset(uri).delete("id = 3")
    text = "(t.version, t.schema.names, t.count_rows(), t.deleted_rows, t.indices, 'lance' in sys.modules)"
    code = f"import sys, json, lakefold; t = lakefold.open({uri!r}); print(json.dumps({text}))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == [2, ["id", "text"], 4, 1, [], False]


def test_only_the_files_of_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(20)), uri)
    before = {path.name for path in (tmp_path / "t/data").iterdir()}
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    for path in (tmp_path / "t/data").iterdir():
        if path.name in before:
            path.unlink()
    table = lakefold.open(uri)
    assert table.to_arrow(["twice"], "twice > 30")["twice"].to_pylist() == [32, 34, 36, 38]
    assert table.count_rows("twice > 30") == 4
    assert table.take([3, 1], ["twice"])["twice"].to_pylist() == [6, 2]
    for columns, text in ((None, None), (["id"], None), (["twice"], "id = 3")):
        with pytest.raises(DamagedError, match="names a file that is missing"):
            table.to_arrow(columns, text)


def test_a_filter_on_an_index_reads_only_the_fragments_that_it_finds(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(40)), uri, max_rows_per_file=10)
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    keep = lance.dataset(uri).get_fragments()[2].data_files()[0].path
    for path in (tmp_path / "t/data").iterdir():
        if path.name != keep:
            path.unlink()
    table = lakefold.open(uri)
    assert table.to_arrow(filter="id in (21, 24)")["text"].to_pylist() == ["row 21", "row 24"]
    with pytest.raises(DamagedError):
        table.to_arrow(filter="id in (11, 24)")


def test_a_limit_ends_the_reading(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": range(400)}), uri, max_rows_per_file=10)
    kept = {fragment.data_files()[0].path for fragment in lance.dataset(uri).get_fragments()[:2]}
    for path in (tmp_path / "t/data").iterdir():
        if path.name not in kept:
            path.unlink()
    table = lakefold.open(uri)
    assert table.to_arrow(limit=20)["id"].to_pylist() == list(range(20))
    assert table.to_arrow(limit=5, offset=12)["id"].to_pylist() == list(range(12, 17))
