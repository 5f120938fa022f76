"""Tables that old releases of pylance made: opened, tailed, folded into, or refused with a hint that helps.

What each release left is compared with the result of pylance 14 for the same Append.

Promise: old-tables (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
import tarfile
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.format.changes import UnknownChangeError
from lakefold_reader.tail.tail import tail
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError
from lakefold_table.lance.manifests.codec import FOOTER
from tests.merging import Folding
from tests.oracle.committing import fold, owned, proposal, state, written
from tests.oracle.manifests import manifest_files
from tests.oracle.old_tables.make import RELEASES, archive

if TYPE_CHECKING:
    from pathlib import Path

COMPLETE = ["0.8.15", "0.10.18", "0.17.0", "0.36.0", "1.0.4", "13.0.0"]
INCOMPLETE = {
    "0.3.19": "don't say how many rows",
    "0.8.0": "may say it wrongly",
    "0.8.14": "may claim rows that they don't cover",
}


def old(release: str, folder: Path) -> Path:
    """The table of a release."""
    with tarfile.open(archive(release)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "t.lance"


def expected(release: str) -> set[int]:
    """The ids in the table of a release."""
    count = 305 if release in {"0.8.14", "0.8.15"} else 15
    return set(range(count)) - (set() if release == "0.3.19" else {3})


def new_rows(table: Path) -> pa.Table:
    """Two rows of the table's schema."""
    schema = lance.dataset(str(table)).schema
    values = {"id": [1000, 1001], "text": ["x", "y"], "vec": [[1.0, 2.0], [3.0, 4.0]]}
    return pa.table({name: values[name] for name in schema.names}, schema=schema)


def test_every_release_has_its_table() -> None:
    assert {*COMPLETE, *INCOMPLETE} == set(RELEASES)


@pytest.mark.parametrize("release", RELEASES)
def test_they_are_opened(release: str, tmp_path: Path) -> None:
    table = old(release, tmp_path)
    at = lakefold.open(str(table))
    assert at.version == lance.dataset(str(table)).version
    assert set(at.to_arrow()["id"].to_pylist()) == expected(release)


@pytest.mark.parametrize("release", [release for release in RELEASES if release != "0.3.19"])
def test_they_are_tailed(release: str, tmp_path: Path) -> None:
    table = old(release, tmp_path)
    rows = [change.inserted()["id"].to_pylist() for change in tail(str(table), "earliest").step()]
    assert {number for ids in rows for number in ids} == expected(release) | {3}


def test_what_a_version_without_a_transaction_did_is_not_guessed(tmp_path: Path) -> None:
    """0.3.19 wrote no transactions: the error of the tail says so, with a hint."""
    changes = tail(str(old("0.3.19", tmp_path)), "earliest").step()
    assert changes[0].inserted().num_rows == 10
    with pytest.raises(UnknownChangeError, match="does not record which rows") as raised:
        changes[1].inserted()
    assert "open the version" in raised.value.hint


def check_folded(table: Path, ids: set[int]) -> None:
    """An Append is folded into it, and pylance can write after that."""
    read = lance.dataset(str(table)).version
    (result,) = fold(owned(table), [proposal(table, written(table, new_rows(table)), read)], 0)
    assert isinstance(result, Committed)
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert set(dataset.to_table()["id"].to_pylist()) == ids | {1000, 1001}
    for number in (4, 1001):
        assert dataset.to_table(filter=f"id = {number}").num_rows == 1
    dataset.delete("id = 4")
    lance.dataset(str(table)).optimize.compact_files()
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert set(dataset.to_table()["id"].to_pylist()) == (ids | {1000, 1001}) - {4}
    assert set(lakefold.open(str(table)).to_arrow()["id"].to_pylist()) == (ids | {1000, 1001}) - {4}


@pytest.mark.parametrize("release", COMPLETE)
def test_rows_are_appended(release: str, tmp_path: Path) -> None:
    """Releases before 0.16 did not record the version of the data files."""
    folding, rows = Folding(old(release, tmp_path)), new_rows(tmp_path / "t.lance")
    folding.put(AppendRows(rows.schema, lambda target: list(target.write(rows.to_batches()))))
    dataset = lance.dataset(str(folding.path))
    dataset.validate()
    assert set(dataset.to_table()["id"].to_pylist()) == expected(release) | {1000, 1001}


def test_why_rows_of_the_oldest_are_not_updated(tmp_path: Path) -> None:
    table = old("0.10.18", tmp_path)
    with pytest.raises(InvalidError, match="can't be found reliably in data files of version 0"):
        Folding(table).build(UpsertRows(new_rows(table), Merge(("id",))))


@pytest.mark.parametrize("release", COMPLETE)
def test_they_are_folded_into(release: str, tmp_path: Path) -> None:
    check_folded(old(release, tmp_path), expected(release))


@pytest.mark.parametrize(("release", "why"), INCOMPLETE.items())
def test_what_only_pylance_can_complete_is_refused_with_the_command_that_helps(
    release: str, why: str, tmp_path: Path
) -> None:
    table = old(release, tmp_path)
    before = [path.read_bytes() for path in manifest_files(table)]
    with pytest.raises(InvalidError, match=why) as raised:
        owned(table)
    assert 'delete("false")' in raised.value.hint
    assert [path.read_bytes() for path in manifest_files(table)] == before
    lance.dataset(str(table)).delete("false")
    check_folded(table, expected(release))


@pytest.mark.parametrize("release", COMPLETE)
def test_the_manifest_is_as_pylance_makes_it(release: str, tmp_path: Path) -> None:
    """But for sizes of older files and the list of an index's files, which clients do without."""
    ours = old(release, tmp_path / "ours")
    read = lance.dataset(str(ours)).version
    fragments = written(ours, new_rows(ours))
    theirs = tmp_path / "theirs"
    shutil.copytree(ours, theirs)
    fold(owned(ours), [proposal(ours, fragments, read)], 0)
    lance.LanceDataset.commit(str(theirs), lance.LanceOperation.Append(fragments), read_version=read)
    assert str(shown(ours)) == str(shown(theirs))


def shown(table: Path) -> Manifest:
    """The newest version's manifest without what depends on who made it and when, and what it leaves out."""
    newest = state(table)
    manifest = Manifest()
    manifest.CopyFrom(newest.head)
    manifest.fragments.extend(newest.fragments)
    for fragment in manifest.fragments:
        for file in fragment.files:
            file.ClearField("file_size_bytes")
    for name in (
        "timestamp",
        "transaction_section",
        "transaction_file",
        "index_section",
        "table_metadata",
        "writer_version",
    ):
        manifest.ClearField(name)
    return manifest


@pytest.mark.parametrize("number", [(0, 0), (0, 1), (0, 2), (0, 3), (0, 9), (1, 0), (2, 3), (9, 0)])
def test_the_numbers_of_the_footer_decide_nothing(number: tuple[int, int], tmp_path: Path) -> None:
    """The feature flags contain what a client must know to read a version."""
    table = tmp_path / "t"
    lance.write_dataset(pa.table({"id": [1]}), str(table))
    (path,) = manifest_files(table)
    data = path.read_bytes()
    offset, _, _, magic = FOOTER.unpack_from(data, len(data) - FOOTER.size)
    path.write_bytes(data[: -FOOTER.size] + FOOTER.pack(offset, *number, magic))
    assert lance.dataset(str(table)).count_rows() == lakefold.open(str(table)).to_arrow().num_rows == 1
    rows = written(table, pa.table({"id": [2]}))
    (result,) = fold(owned(table), [proposal(table, rows, 1)], 0)
    assert isinstance(result, Committed)
    assert lance.dataset(str(table)).to_table()["id"].to_pylist() == [1, 2]
