"""Checkpoints that a committer writes: delta-rs and Lakefold open the table from them alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from lakefold_table.delta.checkpoints import sidecars
from lakefold_table.delta.checkpoints.new_checkpoint import (
    FILES_PER_COMMIT,
    INTERVAL,
    POLICY,
    checkpoint_files,
    has_checkpoint,
    has_v2_checkpoints,
    spacing,
)
from lakefold_table.delta.log_segment.last_checkpoint import checkpoint_hint
from lakefold_table.delta.log_segment.names import LAST_CHECKPOINT
from lakefold_table.errors import DamagedError, RetryError
from lakefold_table.storage.local import LocalStorage
from tests.delta_logs.actions import (
    LISTED,
    Members,
    add,
    commits,
    data_file,
    domain,
    metadata,
    remove,
    snapshot_in,
    snapshot_of,
    txn,
    vector,
)
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.delta.actions.file_actions import FileKey, RemoveFile
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from lakefold_table.storage.base import Buffer

FULL = commits(
    [
        LISTED,
        metadata(**{INTERVAL: "1", "delta.appendOnly": "false"}),
        add(
            "a%20b/c=1/d", partitionValues={"c": None}, stats='{"numRecords":2}', tags={"k": "v"}, baseRowId=4
        ),
        add("gone"),
        txn("app", 3),
        domain("own", '{"a":1}'),
        domain("other", removed=True),
    ],
    [
        remove(
            "gone",
            at=2_000_000_000_000,
            size=10,
            partitionValues={},
            stats='{"numRecords":2}',
            tags={"k": "v"},
        ),
        add("with", vector(), stats='{"numRecords":2}'),
    ],
)


def log_id(number: int) -> str:
    return f"{number:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


def folded(table: Table, count: int, **configuration: str) -> None:
    """Folds a creation and `count` appends, each into a version of its own."""
    table.fold(table.create(**configuration), log=log_id(0))
    for number in range(1, count + 1):
        file = data_file(table.path, f"{number}.parquet", number)
        table.fold(table.propose(file, app="job", batch=number), log=log_id(number))


def names(table: Table) -> set[str]:
    return {path.name for path in (table.path / "_delta_log").iterdir()}


def as_in_checkpoint(snapshot: DeltaSnapshot, files: int) -> DeltaSnapshot:
    """The version with its first files as a checkpoint has them."""
    changed = [replace(file, data_change=False) for file in list(snapshot.files.values())[:files]]
    return replace(snapshot, files={**snapshot.files, **{file.path: file for file in changed}})


def tombstones_in_checkpoint(snapshot: DeltaSnapshot) -> dict[FileKey, RemoveFile]:
    """The tombstones of a version as a checkpoint has them: without statistics and tags."""
    assert all(file.stats and file.tags for file in snapshot.tombstones.values())
    return {
        key: replace(file, data_change=False, stats=None, tags=None)
        for key, file in snapshot.tombstones.items()
    }


def test_delta_rs_and_lakefold_open_a_table_from_its_checkpoint_alone(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    folded(table, 7, **{INTERVAL: "3"})
    checkpoints = {f"{3:020}.checkpoint.parquet", f"{6:020}.checkpoint.parquet"}
    assert {name for name in names(table) if "checkpoint" in name} == {*checkpoints, "_last_checkpoint"}
    from_commits = snapshot_of(
        {f"_delta_log/{each.name}": each.read_bytes() for each in (table.path / "_delta_log").glob("*.json")}
    )
    for version in range(6):
        (table.path / "_delta_log" / f"{version:020}.json").unlink()
    assert snapshot_in(table.path) == as_in_checkpoint(from_commits, 6)
    assert table.rows() == list(range(1, 8))
    assert DeltaTable(str(table.path)).transaction_version("job") == 7
    table.fold(table.propose(table.file("8.parquet", 8), app="job", batch=8), log=log_id(8))
    assert table.rows() == list(range(1, 9))


def test_every_action_is_in_a_checkpoint_as_it_was() -> None:
    snapshot = snapshot_of(FULL)
    (checkpoint,), hint, _ = checkpoint_files(snapshot, 2_000_000_000_001)
    assert hint.path == LAST_CHECKPOINT
    parsed = checkpoint_hint(hint.data)
    assert parsed is not None
    assert (parsed.version, parsed.paths) == (1, (checkpoint.path,))
    commit = {f"_delta_log/{1:020}.json": FULL[f"_delta_log/{1:020}.json"]}
    again = snapshot_of({**commit, checkpoint.path: checkpoint.data})
    files = {path: replace(file, data_change=False) for path, file in snapshot.files.items()}
    tombstones = tombstones_in_checkpoint(snapshot)
    assert again.files == files
    assert again.tombstones == tombstones
    assert (again.protocol, again.metadata, again.apps) == (
        snapshot.protocol,
        snapshot.metadata,
        snapshot.apps,
    )
    assert again.domains == snapshot.domains
    assert parsed.size == 2 + len(files) + len(tombstones) + len(again.apps) + len(again.domains)


def test_expired_tombstones_are_left_out() -> None:
    (checkpoint,), *_ = checkpoint_files(snapshot_of(FULL), 2_100_000_000_000)
    commit = {f"_delta_log/{1:020}.json": FULL[f"_delta_log/{1:020}.json"]}
    assert not snapshot_of({**commit, checkpoint.path: checkpoint.data}).tombstones


def with_properties(properties: dict[str, str], files: int = 1) -> DeltaSnapshot:
    added: list[Members] = [add(str(number)) for number in range(files)]
    return snapshot_of(commits([LISTED, metadata(**properties), *added]))


def test_large_tables_get_checkpoints_after_more_commits() -> None:
    assert spacing(with_properties({})) == 10
    assert spacing(with_properties({INTERVAL: "7"})) == 7
    assert spacing(with_properties({INTERVAL: "1"}, FILES_PER_COMMIT + 1)) == 2
    assert spacing(with_properties({INTERVAL: "3"}, FILES_PER_COMMIT * 5)) == 6
    for wrong in ("0", "-1", "ten", "1" * 30):
        with pytest.raises(DamagedError, match=INTERVAL):
            spacing(with_properties({INTERVAL: wrong}))


def test_the_first_version_has_no_checkpoint() -> None:
    assert has_checkpoint(snapshot_of(FULL))
    assert not has_checkpoint(replace(snapshot_of(FULL), version=0))


def v2(snapshot: DeltaSnapshot) -> DeltaSnapshot:
    """The version of a table that wants V2 checkpoints."""
    return replace(snapshot, metadata=with_properties({INTERVAL: "1", POLICY: "v2"}).metadata)


def test_a_v2_checkpoint_has_every_action() -> None:
    snapshot = v2(snapshot_of(FULL))
    files, hint, _ = checkpoint_files(snapshot, 2_000_000_000_001)
    parsed = checkpoint_hint(hint.data)
    assert parsed is not None
    assert parsed.paths == (files[-1].path,)
    commit = {f"_delta_log/{1:020}.json": FULL[f"_delta_log/{1:020}.json"]}
    again = snapshot_of({**commit, **{file.path: file.data for file in files}})
    assert again == replace(
        snapshot, files=again.files, tombstones=again.tombstones, in_commit_ms=again.in_commit_ms
    )
    assert again.files == {path: replace(f, data_change=False) for path, f in snapshot.files.items()}
    assert again.tombstones == tombstones_in_checkpoint(snapshot)
    classic = replace(snapshot, protocol=replace(snapshot.protocol, writer_features=(), reader_features=()))
    assert not has_v2_checkpoints(classic)


def test_delta_rs_and_lakefold_open_a_table_from_its_v2_checkpoint(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.fold(table.propose(LISTED, metadata(**{INTERVAL: "2", POLICY: "v2"})), log=log_id(0))
    for number in range(1, 6):
        file = data_file(table.path, f"{number}.parquet", number)
        table.fold(table.propose(file, app="job", batch=number), log=log_id(number))
    assert f"{4:020}.checkpoint.parquet" not in names(table)
    for version in range(4):
        (table.path / "_delta_log" / f"{version:020}.json").unlink()
    assert snapshot_in(table.path).files.keys() == {f"{number}.parquet" for number in range(1, 6)}
    newest = DeltaTable(str(table.path))
    assert (newest.version(), newest.transaction_version("job")) == (5, 5)
    read = pa.table(QueryBuilder().register("t", newest).execute("select x from t order by x").read_all())
    assert read["x"].to_pylist() == [1, 2, 3, 4, 5]


def test_only_sidecars_of_changed_runs_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has 50 files on average here."""
    monkeypatch.setattr(sidecars, "RUN", 50)
    monkeypatch.setattr(sidecars, "MOST", 120)
    added: list[Members] = [add(f"part-{number}") for number in range(3000)]
    first = replace(v2(snapshot_of(commits([LISTED, metadata(), *added]))), version=1)
    files, _, runs = checkpoint_files(first, 0)
    assert 30 < len(runs) < 120
    assert len(files) == len(runs) + 1
    assert sum(len(run.files) for run in runs.values()) == 3000
    more = snapshot_of(commits([LISTED, metadata(), add("z")])).files
    without = {path: file for path, file in first.files.items() if path != "part-1500"}
    for changed, most in (
        ({**first.files, **more}, 1),
        (without, 2),
        (dict(list(first.files.items())[:2900]), 1),
        (first.files, 0),
    ):
        again, _, _ = checkpoint_files(replace(first, files=changed, version=2), 5, runs)
        assert len(again) - 1 <= most
        stored = {file.path: file.data for file in (*files[:-1], *again)}
        assert snapshot_of({**stored, f"_delta_log/{2:020}.json": b""}).files.keys() == changed.keys()


def test_a_checkpoint_that_can_not_be_stored_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = LocalStorage.put_if_absent

    def failing(storage: LocalStorage, path: str, buffers: list[Buffer]) -> object:
        if "checkpoint" in path:
            raise RetryError("the disk is full")
        return put(storage, path, buffers)

    monkeypatch.setattr(LocalStorage, "put_if_absent", failing)
    table = Table(tmp_path / "t")
    folded(table, 2, **{INTERVAL: "1"})
    assert not any("checkpoint" in name for name in names(table))
    assert table.rows() == [1, 2]


def test_the_checkpoint_of_another_client_is_kept(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    folded(table, 1, **{INTERVAL: "2"})
    theirs = table.path / "_delta_log" / f"{2:020}.checkpoint.parquet"
    theirs.write_bytes(b"theirs")
    table.fold(table.propose(table.file("2.parquet", 2)), log=log_id(9))
    assert theirs.read_bytes() == b"theirs"
    assert "_last_checkpoint" not in names(table)


def test_the_hint_has_what_other_clients_read() -> None:
    (checkpoint,), hint, _ = checkpoint_files(snapshot_of(FULL), 2_000_000_000_001)
    document = json.loads(hint.data)
    assert (document["sizeInBytes"], document["numOfAddFiles"]) == (len(checkpoint.data), 2)
