"""Versions whose transaction is only in a file of its own, as pylance wrote it before it came inline."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Committed, Rejected, Result
from lakefold_table.lance.kinds import Kind
from lakefold_table.uri import canonical
from tests.foreign import file_as_others_write
from tests.oracle.committing import fold, owned, proposal, written
from tests.oracle.manifests import manifest_files, read_sections


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(start, start + count), pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version 1 has four fragments; 2 deletes of the first, 3 of the second."""
    path = tmp_path / "table"
    dataset = lance.write_dataset(rows(0, 40), str(path), max_rows_per_file=10)
    dataset.delete("a = 3")
    dataset.delete("a = 13")
    for file in manifest_files(path)[1:]:
        manifest = Manifest.FromString(read_sections(file).manifest)
        assert manifest.transaction_file
        file.write_bytes(file_as_others_write(manifest, None))
    assert lance.dataset(str(path)).count_rows() == 38
    return path


def files(table: Path) -> list[Path]:
    """The transaction files of versions 2 and 3."""
    names = [
        Manifest.FromString(read_sections(path).manifest).transaction_file for path in manifest_files(table)
    ]
    return [table / "_transactions" / name for name in names[1:]]


def appended(table: Path) -> Result:
    return fold(owned(table), [proposal(table, written(table, rows(100, 5)), 1)], 0)[0]


def deleted(table: Path, number: int) -> Result:
    """A Delete of a whole fragment, built on version 1."""
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = "delete", 1
    envelope.lance.delete.deleted_fragment_ids.append(number)
    return fold(owned(table), [envelope], 0)[0]


def test_they_are_judged_by_what_their_files_say(table: Path) -> None:
    assert isinstance(appended(table), Committed)
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert dataset.count_rows() == 43


@pytest.mark.parametrize(("number", "version"), [(0, 2), (1, 3)])
def test_the_evidence_comes_from_their_files(number: int, version: int, table: Path) -> None:
    result = deleted(table, number)
    assert isinstance(result, Rejected)
    conflict = result.conflict
    assert conflict.retryable
    assert (conflict.other_version, conflict.other_operation) == (version, Kind.DELETE.value)
    assert conflict.fragment_ids == (number,)


def test_what_they_leave_alone_is_folded(table: Path) -> None:
    assert isinstance(deleted(table, 2), Committed)
    assert lance.dataset(str(table)).count_rows() == 28


@pytest.mark.parametrize("which", [0, 1], ids=["one in between", "the newest"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_what_a_version_did_is_not_known_if_its_file_is_gone_or_damaged(
    which: int, damage: str, table: Path
) -> None:
    """The table is sound, so it isn't stopped; what is checked against that version is built again."""
    file = files(table)[which]
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"\xff" * 7)
    for result in (appended(table), deleted(table, 2)):
        assert isinstance(result, Rejected)
        conflict = result.conflict
        assert conflict.retryable
        assert (conflict.other_version, conflict.other_operation) == (which + 2, Kind.UNKNOWN.value)
        assert f"conflicts with version {which + 2}: it has no readable transaction" in conflict.message


def test_after_versions_of_our_own(table: Path) -> None:
    """If a committer knows the table and reads a foreign version, now or when it opens it again."""
    committer = owned(table)
    (first,) = fold(committer, [proposal(table, written(table, rows(100, 5)), 3, "first")], 0)
    assert isinstance(first, Committed)
    lance.dataset(str(table)).delete("a = 23")
    newest = manifest_files(table)[-1]
    newest.write_bytes(file_as_others_write(Manifest.FromString(read_sections(newest).manifest), None))
    for again in (committer, owned(table)):
        envelope = Envelope(table=canonical(str(table)))
        envelope.lance.uuid, envelope.lance.read_version = "delete", 4
        envelope.lance.delete.deleted_fragment_ids.append(2)
        (result,) = fold(again, [envelope], 1)
        assert isinstance(result, Rejected)
        assert (result.conflict.other_operation, result.conflict.fragment_ids) == ("delete", (2,))


def test_a_name_that_leads_elsewhere_is_not_followed(table: Path) -> None:
    newest = manifest_files(table)[-1]
    manifest = Manifest.FromString(read_sections(newest).manifest)
    (table / "elsewhere").write_bytes(files(table)[1].read_bytes())
    manifest.transaction_file = "../elsewhere"
    newest.write_bytes(file_as_others_write(manifest, None))
    result = appended(table)
    assert isinstance(result, Rejected)
    assert result.conflict.other_operation == Kind.UNKNOWN.value
