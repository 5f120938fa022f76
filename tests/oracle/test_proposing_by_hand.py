"""What pylance wrote goes into the log by hand, with what its message has no field for, and is folded."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold import cli
from lakefold_log.read.file_log import read_file_log
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Entry
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from tests.oracle.compactions import reuse_of
from tests.oracle.operations import copy_files, version_of
from tests.oracle.rebasing import built
from tests.oracle.test_deletes import rows_of, table_of, values

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope


def printed(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> list[Any]:
    """What a verb prints as JSON."""
    capsys.readouterr()
    assert cli.run([*map(str, args), "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def written(path: Path, transaction: Transaction) -> Path:
    """A transaction in a file."""
    path.write_bytes(transaction.SerializeToString())
    return path


def envelopes(file: Path) -> list[Envelope]:
    """What a file log holds."""
    entries = list(read_file_log(file))
    assert all(isinstance(decoded, Entry) for decoded in entries)
    return [entry.envelope for entry in entries if isinstance(entry, Entry)]


@pytest.fixture
def delete(tmp_path: Path) -> tuple[Path, Path]:
    """A table from which another client has deleted row 5 of fragment 0, and a Delete of rows 3, 4 and 17."""
    table = table_of(tmp_path / "t")
    envelope, files = built(table, lambda ds: ds.delete("a in (3, 4, 17)"))
    lance.dataset(str(table)).delete("a = 5")
    copy_files(files, table)
    return table, written(tmp_path / "delete.txn", envelope.lance)


def test_a_delete_is_merged_with_another_if_its_rows_are_named(
    delete: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, transaction = delete
    rows, log = tmp_path / "rows.json", tmp_path / "log.bin"
    rows.write_text('{"0": [3, 4], "1": [7]}')
    by_hand = ("propose", table, "--transaction", transaction)
    assert printed(capsys, *by_hand, "--into", tmp_path / "bare.bin") == [
        {"file": str(tmp_path / "bare.bin"), "offset": 0}
    ]
    (refused,) = printed(capsys, "fold", table, tmp_path / "bare.bin", "--dry-run", code=3)
    assert refused["rejected"]["fragment_ids"] == ["0"]
    printed(capsys, *by_hand, "--into", log, "--affected-rows", rows)
    (done,) = printed(capsys, "fold", table, log)
    assert (done["committed"]["rows_deleted"], done["committed"]["rebased"]) == ("3", True)
    assert values(table) == [a for a in range(40) if a not in {3, 4, 5, 17}]
    (again,) = printed(capsys, *by_hand, "--into", log, "--app-id", "x", "--batch-id", 1)
    assert again["offset"] == 1
    first, second = envelopes(log)
    assert (first.app_id, second.app_id, second.batch_id) == ("", "x", 1)
    assert first.proposed_at.seconds > 1_700_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"a": [1]}', "'a' is not a fragment id"),
        ('{"01": [1]}', "'01' is not a fragment id"),
        ('{"4294967296": [1]}', "is not a fragment id"),
        ('{"-1": [1]}', "is not a fragment id"),
        ('{"0": 3}', "fragment 0 has no list"),
        ('{"0": [1.5]}', "fragment 0 has no list"),
        ('{"0": [true]}', "fragment 0 has no list"),
        ('{"0": [-1]}', "fragment 0 has no list"),
        ('{"0": [4294967296]}', "fragment 0 has no list"),
        ('{"0": [1], "0": [2]}', "'0' is repeated"),
    ],
)
def test_rows_that_are_named_wrongly(
    text: str, message: str, delete: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, transaction = delete
    rows, log = tmp_path / "rows.json", tmp_path / "log.bin"
    rows.write_text(text)
    by_hand = ("propose", table, "--transaction", transaction, "--into", log, "--affected-rows", rows)
    (answer,) = printed(capsys, *by_hand, code=2)
    assert message in answer["error"]["message"]
    assert answer["error"]["where"] == str(rows)
    assert not log.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ("--wait", "1"),
        ("--app-id", "x"),
        ("--batch-id", "1"),
        ("--stable-row-ids",),
        ("--data-storage-version", "2.1"),
        ("--v1-manifest-paths",),
        ("--branch", "a//b"),
        ("--fragment-reuse-index", "{rows}"),
        ("--affected-rows", "{none}"),
    ],
)
def test_options_that_do_not_go_together(
    wrong: tuple[str, ...],
    delete: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, transaction = delete
    rows, log = tmp_path / "rows.json", tmp_path / "log.bin"
    rows.write_text("{}")
    args = [text.format(rows=rows, none=tmp_path / "none") for text in wrong]
    printed(capsys, "propose", table, "--transaction", transaction, "--into", log, *args, code=2)
    assert not log.exists()


def test_a_file_that_is_no_log_stays_as_it_is(
    delete: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, transaction = delete
    other = tmp_path / "other"
    other.write_bytes(b"\xff\xff")
    printed(capsys, "propose", table, "--transaction", transaction, "--into", other, code=2)
    assert other.read_bytes() == b"\xff\xff"
    (answer,) = printed(capsys, "propose", table, "--transaction", other, "--into", tmp_path / "x", code=2)
    assert "no Lance Transaction" in answer["error"]["message"]


def test_a_table_is_made_as_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transaction, log = Transaction(uuid="first"), tmp_path / "log.bin"
    transaction.overwrite.schema.extend(schema_from_arrow(pa.schema([("a", pa.int64())])).fields)
    file = written(tmp_path / "first.txn", transaction)
    args = ("--create", "--stable-row-ids", "--data-storage-version", "2.1", "--v1-manifest-paths")
    printed(capsys, "propose", tmp_path / "t", "--transaction", file, "--into", log, *args)
    printed(capsys, "fold", tmp_path / "t", log)
    made = lance.dataset(str(tmp_path / "t"))
    assert (made.has_stable_row_ids, made.data_storage_version) == (True, "2.1")
    assert (tmp_path / "t/_versions/1.manifest").exists()


@pytest.mark.parametrize(("branch", "count"), [("side", 1), ("main", 0)])
def test_a_proposal_for_a_branch(
    branch: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, log = table_of(tmp_path / "t"), tmp_path / "log.bin"
    side = lance.dataset(str(table)).create_branch("side")
    envelope, _ = built(table, lambda ds: ds.delete("a < 10"))
    file = written(tmp_path / "delete.txn", envelope.lance)
    printed(capsys, "propose", table, "--transaction", file, "--branch", branch, "--into", log)
    printed(capsys, "fold", table, log)
    assert lakefold.open(table, branch="side").count_rows() == (30 if count else 40)
    assert lakefold.open(table).count_rows() == (40 if count else 30)
    assert lance.dataset(side.uri).version == 1 + count


def test_the_fragment_reuse_index_of_a_compaction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, log = table_of(tmp_path / "t", indices=True), tmp_path / "log.bin"
    copy = table_of(tmp_path / "copy", indices=True)
    lance.write_dataset(rows_of([50]), str(table), mode="append")
    lance.dataset(str(copy)).optimize.compact_files(defer_index_remap=True)
    version = version_of(copy)
    assert version.transaction is not None
    made = reuse_of(version)
    assert made is not None
    (tmp_path / "reuse").write_bytes(made.SerializeToString())
    file = written(tmp_path / "rewrite.txn", version.transaction)
    printed(
        capsys,
        "propose",
        table,
        "--transaction",
        file,
        "--fragment-reuse-index",
        tmp_path / "reuse",
        "--into",
        log,
    )
    (envelope,) = envelopes(log)
    assert envelope.fragment_reuse_index == made
    assert envelope.lance == version.transaction


def test_a_transaction_without_an_operation_is_not_sent(
    delete: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _ = delete
    (tmp_path / "empty.txn").touch()
    for into in (["--into", tmp_path / "x"], ["--bootstrap-servers", "127.0.0.1:1"]):
        by_hand = ("propose", table, "--transaction", tmp_path / "empty.txn")
        (answer,) = printed(capsys, *by_hand, *into, code=2)
        assert "names no operation" in answer["error"]["message"]
    assert not (tmp_path / "x").exists()


def test_a_file_log_that_can_not_grow_stays_whole(
    delete: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, transaction = delete
    log = tmp_path / "log.bin"
    by_hand = ("propose", table, "--transaction", transaction, "--into")
    printed(capsys, *by_hand, log)
    before = log.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        (answer,) = printed(capsys, *by_hand, log, code=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer["error"]["where"] == str(log)
    assert log.read_bytes() == before
    (answer,) = printed(capsys, *by_hand, tmp_path / "none" / "log.bin", code=2)
    assert "the folder does not exist" in answer["error"]["message"]
