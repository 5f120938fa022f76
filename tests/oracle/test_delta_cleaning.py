"""Old versions of Delta tables are removed with their files, and delta-rs still reads the others."""

from __future__ import annotations

import json
import shutil
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakefold
from lakefold import cli
from lakefold.web.documents import kept_document
from lakefold_maintenance.delta.survey import delta_policy
from lakefold_reader.delta.clean_up import LOG_CLEANUP
from lakefold_reader.delta.sidecars import NamedSidecars, checkpoints_of, stored_sidecars, unnamed_sidecars
from lakefold_reader.formats import open_source
from lakefold_table.delta.actions.table_actions import Sidecar
from lakefold_table.delta.checkpoints import sidecars as checkpoint_sidecars
from lakefold_table.delta.table_features.checkpoint_protection import PROTECTED
from lakefold_table.entry import Committed
from lakefold_table.storage.local import LocalStorage
from tests.delta_logs.actions import LISTED, UUID, data_file, metadata, remove, text
from tests.oracle.delta_maintenance import committed, made
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

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


HINTS = {
    "missing": None,
    "no JSON": "{",
    "of a checkpoint that is gone": '{"version":4,"size":1}',
    "of no checkpoint": '{"version":5,"size":1}',
    "of a later version": '{"version":900,"size":1}',
    "of parts": '{"version":6,"size":1,"parts":100000}',
    "of a V2 checkpoint": json.dumps(
        {"version": 6, "size": 1, "v2Checkpoint": {"path": f"{6:020}.checkpoint.{UUID}.json"}}
    ),
}


def test_a_cleaned_log_is_opened_whatever_the_hint_says(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cleaned(capsys, table)["removed_versions"] == 6
    log = table / "_delta_log"
    # Looks like a checkpoint to what splits lines.
    (log / f"x\n{7:020}.checkpoint.parquet").touch()
    rows = sorted(lakefold.open(table).to_arrow()["x"].to_pylist())
    for number, (name, hint) in enumerate(HINTS.items()):
        (log / "_last_checkpoint").unlink(missing_ok=True)
        if hint is not None:
            (log / "_last_checkpoint").write_text(hint)
        version = 7 + number
        assert sorted(lakefold.open(table).to_arrow()["x"].to_pylist()) == rows, name
        assert lakefold.open(table, 6).version == 6
        with pytest.raises(lakefold.VersionExpiredError):
            lakefold.open(table, 5)
        own = Table(table)
        added = own.propose(data_file(table, f"{number}.parquet", number), read=version)
        (result,) = own.fold(added, log=log_id(number))
        assert result == Committed(version + 1, rows_added=1), name
        rows = sorted([*rows, number])
    # Without a checkpoint nothing helps.
    for checkpoint in log.glob("*.checkpoint.parquet"):
        checkpoint.unlink()
    # This process still knows the versions of the table at its own path.
    copy = table.with_name("copy")
    shutil.copytree(table, copy)
    with pytest.raises(lakefold.DamagedError, match=r"00000000000000000000\.json is missing"):
        lakefold.open(copy)


def test_no_commit_has_hidden_files_removed(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = table / "_delta_log"
    kept, change = ["_delta_log/_last_checkpoint", "_lakefold/a", ".a"], "_change_data/c.parquet"
    for path in (*kept, change):
        table.joinpath(path).parent.mkdir(exist_ok=True)
        table.joinpath(path).touch()
    commit = log / f"{1:020}.json"
    members = {"partitionValues": {}, "size": 1, "dataChange": False}
    changes = text({"cdc": {"path": path, **members}} for path in (*kept, change))
    commit.write_bytes(commit.read_bytes() + b"\n" + changes)
    assert cleaned(capsys, table)["removed_versions"] == 6
    assert [path for path in (*kept, change) if table.joinpath(path).exists()] == kept


def test_compacted_commits_go_with_the_first_of_them(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for first in (5, 6, 7):
        (table / "_delta_log" / f"{first:020}.{first + 1:020}.compacted.json").touch()
    table.joinpath("_delta_log", f"{8:020}.json").write_text('{"txn":{"appId":"a","version":1}}')
    assert cleaned(capsys, table)["removed_versions"] == 6
    assert [path.name[:20] for path in table.joinpath("_delta_log").glob("*.compacted.json")] == [f"{7:020}"]


def test_versions_that_a_consumer_has_not_read_stay(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lakefold.tail(table, 4, consumer="nightly") as tail:
        tail.commit()
        removed = cleaned(capsys, table)
        assert (removed["removed_versions"], removed["held_by"]) == (4, ["nightly"])
        assert [change.version for change in tail] == [5, 6, 7]
        assert sum(change.feed().read_all().num_rows for change in lakefold.tail(table, 4)) > 0
        tail.commit()
    assert cleaned(capsys, table)["removed_versions"] == 2


def test_a_table_that_keeps_its_log_loses_no_version(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    properties = {**EXPIRED, LOG_CLEANUP: "false"}
    DeltaTable(table).alter.set_table_properties({LOG_CLEANUP: "False"})
    before = sorted(path.name for path in (table / "_delta_log").iterdir())
    for more in ([], ["--dry-run"]):
        assert cli.run(["cleanup", str(table), "--older-than", "0s", *more]) != 0
        assert f"{LOG_CLEANUP} is false" in capsys.readouterr().err
    assert sorted(path.name for path in (table / "_delta_log").iterdir()) == before
    assert LOG_CLEANUP in kept_document(table.as_uri(), {})["note"]
    assert delta_policy(properties, {"version_age": "0s"}, "t").version_age.days == 365_000
    assert delta_policy({**properties, LOG_CLEANUP: "true"}, {"version_age": "0s"}, "t").version_age.days == 0
    DeltaTable(table).alter.set_table_properties({LOG_CLEANUP: "true"})
    assert cleaned(capsys, table)["removed_versions"] == 6


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


@pytest.fixture
def sidecars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of versions 0 to 7 with V2 checkpoints of versions 2, 4 and 6, whose runs have 5 files."""
    monkeypatch.setattr(checkpoint_sidecars, "RUN", 5)
    table = Table(tmp_path / "t")
    properties = {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2", **EXPIRED}
    table.fold(table.propose(LISTED, metadata(**properties)), log=log_id(0))
    for number in range(1, 8):
        files = [data_file(table.path, f"{number}-{each}.parquet", number) for each in range(9)]
        gone = [remove(f"{number - 2}-{each}.parquet", at=1) for each in range(0, 9, 3) if number > 2]
        (result,) = table.fold(table.propose(*files, *gone, read=number - 1), log=log_id(number))
        assert isinstance(result, Committed)
    return table.path


def test_sidecars_go_with_the_last_checkpoint_that_names_them(
    sidecars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = open_source(str(sidecars))
    assert unnamed_sidecars(source) == set()
    rows = sorted(lakefold.open(sidecars).to_arrow()["x"].to_pylist())
    before = stored_sidecars(source)
    planned = cleaned(capsys, sidecars, "--dry-run")
    assert stored_sidecars(source) == before
    removed = cleaned(capsys, sidecars)
    assert {**removed, "dry_run": True} == planned
    named = NamedSidecars(source).of(checkpoints_of(source))
    assert stored_sidecars(source) == named < before
    assert versions(sidecars) == [6, 7]
    orphan = sidecars / "_delta_log" / "_sidecars" / f"{UUID}.parquet"
    shutil.copy(sidecars / min(named), orphan)
    assert unnamed_sidecars(source) == {orphan.relative_to(sidecars).as_posix()}
    assert sorted(lakefold.open(sidecars).to_arrow()["x"].to_pylist()) == rows
    theirs = QueryBuilder().register("t", DeltaTable(str(sidecars))).execute("select x from t").read_all()
    assert sorted(pa.table(theirs)["x"].to_pylist()) == rows


def test_a_sidecar_that_a_checkpoint_names_meanwhile_stays(
    sidecars: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client stores a checkpoint with the sidecars of version 2 while that one is removed."""
    (old,) = (sidecars / "_delta_log").glob(f"{2:020}.checkpoint.*.json")
    content = old.read_text().replace('"version":2', '"version":7', 1)
    later = old.with_name(f"{7:020}.checkpoint.{UUID}.json")
    delete = LocalStorage.delete

    def deleting(storage: LocalStorage, path: str) -> None:
        delete(storage, path)
        if path.endswith(old.name):
            later.write_text(content)

    source = open_source(str(sidecars))
    (theirs,) = (file for file in checkpoints_of(source) if file.name == old.name)
    named = NamedSidecars(source).of([theirs])
    monkeypatch.setattr(LocalStorage, "delete", deleting)
    cleaned(capsys, sidecars)
    assert later.exists()
    assert named <= stored_sidecars(source)


def test_a_checkpoint_whose_sidecars_are_removed_while_it_is_stored_gets_them_again(
    sidecars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sidecars are those of the checkpoint before, which is removed with them.

    All versions of this log have one time, so each sidecar gets another one here.
    """
    log = sidecars / "_delta_log"
    written = count(1)
    monkeypatch.setattr(
        checkpoint_sidecars, "Sidecar", lambda name, size, _: Sidecar(name, size, next(written))
    )
    put = LocalStorage.put_if_absent
    cleaned_up: list[str] = []

    def storing(storage: LocalStorage, path: str, buffers: list[Any]) -> object:
        if path.startswith(f"_delta_log/{10:020}.checkpoint.") and not cleaned_up:
            for file in (*log.glob("*.checkpoint.*.json"), *(log / "_sidecars").iterdir()):
                cleaned_up.append(file.name)
                file.unlink()
        return put(storage, path, buffers)

    monkeypatch.setattr(LocalStorage, "put_if_absent", storing)
    table = Table(sidecars)
    properties = {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2", **EXPIRED}
    notes = [table.propose(metadata(**properties, **{f"n{number}": "1"}), read=7) for number in range(4)]
    assert all(isinstance(result, Committed) for result in table.fold(*notes, log=log_id(8)))
    assert len(cleaned_up) > 3
    source = open_source(str(sidecars))
    newest = [file for file in checkpoints_of(source) if file.version == 10]
    assert len(newest) == 1
    assert json.loads((log / "_last_checkpoint").read_text())["v2Checkpoint"]["path"] == newest[0].name
    assert NamedSidecars(source).of(newest) <= stored_sidecars(source)
    assert lakefold.open(sidecars, 11).to_arrow().num_rows == 9 * 7 - 3 * 5


def test_versions_before_a_dropped_feature_go_up_to_any_checkpoint(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Version 8 lists the feature; its property is broken, then of versions before and after checkpoints."""
    log = table / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (described,) = (action for action in first if "metaData" in action)
    listed: dict[str, Any] = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["checkpointProtection"],
    }

    def protect(version: int, before: str) -> None:
        described["metaData"]["configuration"][PROTECTED] = before
        (log / f"{version:020}.json").write_bytes(text([{"protocol": listed}, described]))

    protect(8, "six")
    assert cli.run(["cleanup", str(table), "--older-than", "0s"]) != 0
    assert "is 'six', which is not a version" in capsys.readouterr().err
    # Version 7 stays, as the last checkpoint is that of version 6: its features are looked at.
    features = [*listed["writerFeatures"], "of yesterday"]
    added = (log / f"{7:020}.json").read_bytes()
    (log / f"{7:020}.json").write_bytes(
        added + b"\n" + text([{"protocol": {**listed, "writerFeatures": features}}])
    )
    protect(8, "9223372036854775807")
    assert cli.run(["cleanup", str(table), "--older-than", "0s"]) != 0
    error = capsys.readouterr().err
    assert "version 7, which stays, has the feature of yesterday" in error
    assert versions(table) == list(range(9))
    (log / f"{7:020}.json").write_bytes(added)
    assert cleaned(capsys, table)["removed_versions"] == 6
    assert (log / f"{6:020}.checkpoint.parquet").exists()
    assert DeltaTable(table).version() == 8
    assert sorted(lakefold.open(table).to_arrow()["x"].to_pylist()) == sorted(
        DeltaTable(table).to_pyarrow_table()["x"].to_pylist()
    )


def test_the_marks_of_each_version_that_stays_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions that others made after a checkpoint need the committer's commit before it."""
    world = made(tmp_path / "t", 2, **EXPIRED)
    for number in (100, 101):
        assert committed(
            world.fold(Table(world.path).propose(data_file(world.path, f"{number}.parquet", number)))
        )
        for other in (1, 2):
            world.append(1000 * number + other)
        DeltaTable(world.path).create_checkpoint()
        world.append(1000 * number + 3)
    # Versions 3 and 7 are ours, 5 and 9 have checkpoints. Version 5 needs the marks of version 3.
    with lakefold.tail(world.path, 6, consumer="nightly") as tail:
        tail.commit()
    cleaned(capsys, world.path)
    for version in range(6, 11):
        assert len(world.rows(version)) == 20 + version - 2
