"""Old versions of Delta tables are removed with their files, and delta-rs still reads the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold import cli
from tests.delta_logs.actions import data_file, metadata, text

if TYPE_CHECKING:
    from pathlib import Path

EXPIRED = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 7; 2 and 5 delete a row, 4 and 6 have checkpoints."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"x": [0, 100]}), configuration=EXPIRED)
    for number in range(1, 8):
        if number in (2, 5):
            DeltaTable(path).delete(f"x = {number - 2}")
        else:
            write_deltalake(path, pa.table({"x": [number, 100]}), mode="append")
        if number in (4, 6):
            DeltaTable(path).create_checkpoint()
    return path


def cleaned(capsys: pytest.CaptureFixture[str], table: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["cleanup", str(table), "--older-than", "0s", "--json", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def test_versions_go_with_their_files(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (table / "of-a-proposal.parquet").write_bytes(b"waits")
    whole = {number: sorted(lakefold.open(table, number).to_arrow()["x"].to_pylist()) for number in (6, 7)}
    planned = cleaned(capsys, table, "--dry-run")
    assert versions(table) == list(range(8))
    removed = cleaned(capsys, table)
    assert {**removed, "dry_run": True} == planned
    # The newest checkpoint is that of version 6. The files that the two deletions replaced are gone.
    assert (removed["format"], removed["removed_versions"], removed["removed_data_files"]) == ("delta", 6, 2)
    assert versions(table) == [6, 7]
    assert not [path for path in (table / "_delta_log").iterdir() if path.name < f"{6:020}"]
    for number in (6, 7):
        assert sorted(lakefold.open(table, number).to_arrow()["x"].to_pylist()) == whole[number]
        theirs = DeltaTable(table, version=number).to_pyarrow_table()["x"].to_pylist()
        assert sorted(theirs) == whole[number]
    assert (table / "of-a-proposal.parquet").exists()
    assert cleaned(capsys, table)["removed_versions"] == 0
    with pytest.raises(lakefold.VersionExpiredError):
        lakefold.tail(table, 3)


def test_versions_that_a_consumer_has_not_read_stay(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lakefold.tail(table, 4, consumer="nightly") as tail:
        tail.commit()
        removed = cleaned(capsys, table)
        assert (removed["removed_versions"], removed["held_by"]) == (4, ["nightly"])
        assert [change.version for change in tail] == [5, 6, 7]
        assert sum(change.feed().read_all().num_rows for change in lakefold.tail(table, 4)) > 0
        tail.commit()
    assert cleaned(capsys, table)["removed_versions"] == 2


def test_tombstones_that_have_not_expired_keep_their_versions(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 7 days"})
    assert cleaned(capsys, table)["removed_versions"] == 0
    assert versions(table) == list(range(9))


def test_without_a_checkpoint_nothing_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"x": [number]}), mode="append")
    assert cleaned(capsys, tmp_path)["removed_versions"] == 0
    assert versions(tmp_path) == [0, 1, 2]


def test_a_table_with_features_that_are_not_known_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["of tomorrow"]}
    (log / f"{0:020}.json").write_bytes(text([{"protocol": features}, metadata()]))
    (log / f"{1:020}.json").write_bytes(text([data_file(tmp_path, "a.parquet", 1)]))
    assert cli.run(["cleanup", str(tmp_path), "--older-than", "0s"]) != 0
    assert "of tomorrow" in capsys.readouterr().err
    assert versions(tmp_path) == [0, 1]
