"""A tail reports for each version what pylance shows of it, for every client and every operation."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.format.changes import UnknownChangeError
from lakefold_reader.formats import open_source, source_on
from lakefold_reader.lance.scan.scan import Dataset
from lakefold_reader.tail.tail import tail, tail_of
from lakefold_reader.tail.wakeup import Pace
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.storage import open_storage
from tests.proposals import rows
from tests.tables import Folded, Recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_reader.tail.change import Change


def ids(table: pa.Table) -> list[int]:
    return list(table["id"].to_pylist())


def foreign(folder: Path, *, stable_row_ids: bool = False) -> lance.LanceDataset:
    return lance.write_dataset(rows(range(20)), str(folder / "t"), enable_stable_row_ids=stable_row_ids)


def last(uri: str) -> Change:
    """The newest version's change."""
    *_, change = tail(uri, lance.dataset(uri).version - 1)
    return change


def more(uri: str, first: int, count: int = 5) -> None:
    lance.write_dataset(rows(range(first, first + count)), uri, mode="append")


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_appends_by_our_own_committer(stable_row_ids: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    table = Folded(open_storage(tmp_path / "t"), stable_row_ids=stable_row_ids)
    table.append(rows(range(10)), rows(range(10, 13)))
    table.append(rows(range(20, 25)))
    changes = list(tail(table.uri, "earliest"))
    assert [ids(change.inserted()) for change in changes] == [[], list(range(13)), list(range(20, 25))]
    assert [change.rows for change in changes] == [0, 13, 5]
    whole = pa.concat_tables(change.inserted() for change in changes)
    assert whole.equals(lance.dataset(str(tmp_path / "t")).to_table(), check_metadata=True)


def test_reading_a_version_of_our_own_opens_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    table.append(rows(range(10)))
    table.append(rows(range(10, 20)))

    def refuse(*_: object) -> None:
        raise AssertionError("the dataset was opened")

    monkeypatch.setattr(Dataset, "reader", refuse)
    assert [change.inserted().num_rows for change in tail(table.uri, 1)] == [10, 10]


def test_foreign_commits_between_our_own(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    uri = str(tmp_path / "t")
    table.append(rows(range(10)))
    more(uri, 10)
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    table.append(rows([20]).append_column("twice", pa.array([7], pa.int64())))
    changes = list(tail(table.uri, 1))
    assert [(change.operation, change.rows) for change in changes] == [
        ("append", 10),
        ("append", 5),
        ("merge", None),
        ("append", 1),
    ]
    assert [change.position is None for change in changes] == [False, True, True, False]
    assert changes[3].inserted().to_pylist() == [{"id": 20, "text": "row 20", "twice": 7}]
    assert len({change.cursor.table_id for change in changes}) == 1


def merge_insert(table: lance.LanceDataset, numbers: list[int]) -> None:
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(numbers))


def compacted(table: lance.LanceDataset) -> None:
    more(table.uri, 20)
    lance.dataset(table.uri).optimize.compact_files()


def restored(table: lance.LanceDataset) -> None:
    table.delete("id < 3")
    lance.dataset(table.uri, version=1).restore()


def test_properties_copied_from_a_version_of_our_own_prove_nothing(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    uri = str(tmp_path / "t")
    table.append(rows(range(5)))
    copied = lance.dataset(uri).read_transaction(2)
    assert copied is not None
    properties = copied.transaction_properties or {}
    assert "lakefold.record" in properties
    lance.write_dataset(rows([7]), uri, mode="append", transaction_properties=properties)
    (change,) = tail(uri, 2)
    assert (change.position, ids(change.inserted())) == (None, [7])
    assert change.timestamp > lakefold.open(uri, 2).timestamp + timedelta(days=1)


# An act on a table of the ids 0 to 19; the operation, the inserted ids, and whether it only inserts.
DONE: list[tuple[Callable[[lance.LanceDataset], object], str, list[int], bool]] = [
    (lambda table: more(table.uri, 20, 3), "append", [20, 21, 22], True),
    (lambda table: table.delete("id < 3"), "delete", [], False),
    (lambda table: table.create_scalar_index("id", "BTREE"), "create_index", [], True),
    (lambda table: table.update_config({"k": "v"}), "update_config", [], True),
    (lambda table: table.add_columns({"twice": "id * 2"}), "merge", [], False),
    (lambda table: table.drop_columns(["text"]), "project", [], False),
    (lambda table: merge_insert(table, [30, 31]), "update", [30, 31], True),
    (lambda table: lance.write_dataset(rows([7]), table.uri, mode="overwrite"), "overwrite", [7], False),
    (compacted, "rewrite", [], True),
    (restored, "restore", [0, 1, 2], False),
]


@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize(("do", "operation", "inserted", "only"), DONE)
def test_what_a_foreign_client_did(
    do: Callable[[lance.LanceDataset], object],
    operation: str,
    inserted: list[int],
    only: bool,  # noqa: FBT001 - a parameter
    stable_row_ids: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
) -> None:
    table = foreign(tmp_path, stable_row_ids=stable_row_ids)
    do(table)
    change = last(table.uri)
    assert (change.operation, change.only_inserts, change.position) == (operation, only, None)
    assert change.schema.equals(lance.dataset(table.uri).schema, check_metadata=True)
    if operation == "restore" and not stable_row_ids:
        with pytest.raises(UnknownChangeError, match=rf"\({operation}\) does not record"):
            change.inserted()
        assert change.rows is None
    else:
        assert ids(change.inserted()) == inserted
        assert change.rows in (len(inserted), None)


def test_the_whole_content_comes_first_with_its_deletions(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    table.delete("id % 2 = 0")
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    (change,) = tail(table.uri, "earliest")
    assert change.inserted().equals(lance.dataset(table.uri).to_table())
    assert (change.rows, change.only_inserts) == (10, True)


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    more(table.uri, 20)
    change = last(table.uri)
    assert change.inserted(["text", "id"]).column_names == ["text", "id"]
    for wrong in (["nope"], []):
        with pytest.raises(InvalidError, match="column"):
            change.inserted(wrong)


def test_other_libraries_take_a_change_as_it_is(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    more(table.uri, 20)
    assert pa.table(last(table.uri)).num_rows == 5


def test_files_cleaned_up_before_they_were_read(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    more(table.uri, 20)
    change = last(table.uri)
    lance.write_dataset(rows([1]), table.uri, mode="overwrite")
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    with pytest.raises(VersionExpiredError, match="version 2 is gone") as caught:
        change.inserted()
    assert caught.value.oldest == 3


def test_a_data_file_that_somebody_deleted_is_damage(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    more(table.uri, 20)
    change = last(table.uri)
    for path in Path(table.uri, "data").iterdir():
        path.unlink()
    with pytest.raises(DamagedError, match="version 2 names a file that is missing"):
        change.inserted()


def test_a_transaction_in_a_file_of_its_own(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    more(table.uri, 20)
    source = open_source(table.uri)
    path = Path(table.uri, source.versions.path(2))
    path.write_bytes(without_inline_transaction(path.read_bytes()))
    change = last(table.uri)
    assert (change.operation, ids(change.inserted())) == ("append", list(range(20, 25)))
    for file in Path(table.uri, "_transactions").iterdir():
        file.unlink()
    gone = last(table.uri)
    assert (gone.operation, gone.only_inserts) == ("unknown", False)
    with pytest.raises(UnknownChangeError):
        gone.inserted()


def without_inline_transaction(data: bytes) -> bytes:
    """A manifest file as pylance wrote it before 14, its transaction only in `_transactions/`."""
    start = int.from_bytes(data[-16:-8], "little")
    manifest = Manifest.FromString(data[start + 4 : -16])
    manifest.ClearField("transaction_section")
    message = manifest.SerializeToString()
    return len(message).to_bytes(4, "little") + message + (0).to_bytes(8, "little") + data[-8:]


def test_versions_with_names_of_the_older_kind_and_renamed_while_followed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows([0]), uri, enable_v2_manifest_paths=False)
    begun = tail(uri, "earliest", follow=True, pace=Pace(away=0.0))
    more(uri, 1, 1)
    assert [ids(next(begun).inserted()) for _ in range(2)] == [[0], [1]]
    lance.dataset(uri).migrate_manifest_paths_v2()
    more(uri, 2, 1)
    assert ids(next(begun).inserted()) == [2]


def test_following_while_another_process_appends(tmp_path: Path) -> None:
    table = foreign(tmp_path)
    recording = Recording(open_storage(table.uri))
    begun = tail_of(source_on(recording), "latest", follow=True, pace=Pace(beside=math.inf))
    recording.calls.clear()
    program = (
        "import lance, pyarrow as pa, sys\n"
        "for first in range(20, 120, 5):\n"
        "    ids = pa.array(range(first, first + 5), pa.int64())\n"
        "    text = [f'row {number}' for number in range(first, first + 5)]\n"
        "    lance.write_dataset(pa.table({'id': ids, 'text': text}), sys.argv[1], mode='append')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, table.uri]) as writer:
        seen = [ids(next(begun).inserted()) for _ in range(20)]
    assert writer.returncode == 0
    assert [number for batch in seen for number in batch] == list(range(20, 120))
    assert set(recording.calls) <= {"get_range", "get"}
