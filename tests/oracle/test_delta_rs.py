"""Tables that delta-rs writes are the same tables to us: each version, file by file."""

from __future__ import annotations

import json
import uuid
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

import lakefold
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import stored_rows, vector_file, vector_path
from lakefold_table.delta.log_segment.last_checkpoint import checkpoint_hint
from lakefold_table.delta.log_segment.names import FOLDER, LAST_CHECKPOINT, commit_path
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError, VersionExpiredError
from tests.delta_logs.actions import LISTED, UUID, Members, add, metadata, snapshot_in, text, txn
from tests.unit.test_delta_format import OTHER_ID, Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

SEEDS = range(8)
STEPS = 25


def rows(random: Random, columns: int = 0) -> pa.Table:
    count = random.randint(1, 20)
    table = pa.table(
        {
            "x": [random.randint(0, 50) for _ in range(count)],
            "p": [random.choice(["a", "b c", "d/é", None]) for _ in range(count)],
        },
        pa.schema([("x", pa.int64()), ("p", pa.string())]),
    )
    for number in range(columns):
        table = table.append_column(f"more{number}", pa.array([random.random()] * count))
    return table


class History:
    """Random operations of delta-rs on one table."""

    def __init__(self, path: Path, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.path = str(path)
        self.columns = 0
        self.apps: dict[str, int] = {}
        write_deltalake(self.path, rows(self.random), partition_by=["p"] if seed % 2 else None)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def step(self) -> None:
        actions: list[Callable[[], object]] = [
            self.append,
            self.append,
            self.append,
            self.widen,
            self.overwrite,
            lambda: self.table.delete(f"x = {self.random.randint(0, 50)}"),
            lambda: self.table.update({"x": "x + 1"}, predicate=f"x < {self.random.randint(0, 20)}"),
            self.merge,
            self.compact,
            self.checkpoint,
            lambda: self.table.alter.set_table_properties({"delta.appendOnly": "false"}),
            # Restore would need files that a vacuum has removed.
            self.restore if self.seed % 4 else self.vacuum,
        ]
        self.random.choice(actions)()

    def vacuum(self) -> None:
        self.table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def compact(self) -> None:
        self.table.optimize.compact()

    def checkpoint(self) -> None:
        self.table.create_checkpoint()

    def restore(self) -> None:
        newest = self.table.version()
        if newest:
            self.table.restore(self.random.randint(0, newest - 1), ignore_missing_files=True)

    def append(self) -> None:
        name = self.random.choice(["one", "two"])
        self.apps[name] = self.apps.get(name, 0) + 1
        properties = CommitProperties(app_transactions=[Transaction(name, self.apps[name])])
        write_deltalake(
            self.path,
            rows(self.random, self.columns),
            mode="append",
            commit_properties=properties,
            schema_mode="merge",
        )

    def widen(self) -> None:
        self.columns += 1
        self.append()

    def overwrite(self) -> None:
        data = rows(self.random, self.columns)
        write_deltalake(self.path, data, mode="overwrite", schema_mode="merge")

    def merge(self) -> None:
        (
            self.table.merge(rows(self.random).slice(0, 1), "s.x = t.x", source_alias="s", target_alias="t")
            .when_matched_delete()
            .when_not_matched_insert_all()
            .execute()
        )


def check_same(ours: DeltaSnapshot, theirs: DeltaTable) -> None:
    """Asserts that two clients see one version."""
    actions = pa.table(theirs.get_add_actions(flatten=True)).to_pylist()
    expected = {
        unquote(each["path"]): (
            each["size_bytes"],
            each["num_records"],
            {name: value for name, value in each.items() if name.startswith(("min.", "max.", "null_count."))},
        )
        for each in actions
    }
    assert {unquote(path): file.size for path, file in ours.files.items()} == {
        path: size for path, (size, _, _) in expected.items()
    }
    for path, file in ours.files.items():
        _, records, figures = expected[unquote(path)]
        stats = json.loads(file.stats or "{}")
        assert stats.get("numRecords") == records
        for name in ("min.x", "max.x", "null_count.x"):
            member = {"min": "minValues", "max": "maxValues", "null_count": "nullCount"}[name[:-2]]
            assert stats.get(member, {}).get("x") == figures.get(name)
    assert ours.version == theirs.version()
    schema = theirs.schema().to_json()
    assert json.loads(ours.metadata.schema_text) == json.loads(schema)
    facts = theirs.metadata()
    assert ours.metadata.id == str(facts.id)
    assert list(ours.metadata.partition_columns) == facts.partition_columns
    assert dict(ours.metadata.configuration) == facts.configuration
    protocol = theirs.protocol()
    assert ours.protocol.reader == protocol.min_reader_version
    assert ours.protocol.writer == protocol.min_writer_version
    for name in ("one", "two", "app"):
        app = ours.apps.get(name)
        assert theirs.transaction_version(name) == (None if app is None else app.version)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_version_of_a_random_history_is_the_same(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "table", seed)
    for _ in range(STEPS):
        history.step()
    newest = history.table.version()
    assert newest > STEPS // 2
    for version in range(newest + 1):
        theirs = DeltaTable(history.path, version=version)
        check_same(snapshot_in(tmp_path / "table", version), theirs)
    assert snapshot_in(tmp_path / "table").version == newest


def test_a_log_that_was_cleaned_up_begins_with_its_checkpoint(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    for _ in range(6):
        history.append()
    history.table.create_checkpoint()
    for _ in range(2):
        history.append()
    for version in range(6):
        (tmp_path / commit_path(version)).unlink()
    check_same(snapshot_in(tmp_path), DeltaTable(str(tmp_path)))
    with pytest.raises(VersionExpiredError):
        snapshot_in(tmp_path, 5)
    hint = checkpoint_hint((tmp_path / LAST_CHECKPOINT).read_bytes())
    assert hint is not None
    assert hint.version == 6


def write_file(table: Path, name: str, count: int) -> Members:
    """Writes a data file, and returns the add action for it."""
    path = table / name
    pq.write_table(pa.table({"x": list(range(count))}), path)
    stats = json.dumps({"numRecords": count, "minValues": {"x": 0}, "maxValues": {"x": count - 1}})
    return add(name, size=path.stat().st_size, stats=stats)


def test_a_deletion_vector_that_we_write_leaves_out_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    first, second = write_file(tmp_path, "one.parquet", 100), write_file(tmp_path, "two.parquet", 10)
    deleted = Bitmap([0, 5, 99])
    content, vectors = vector_file([{0: Bitmap([1])}, {0: deleted}], uuid.UUID(UUID))
    name = vector_path(vectors[1])
    assert name is not None
    (tmp_path / name).write_bytes(content)
    first["add"]["deletionVector"] = members_of(vectors[1])
    (tmp_path / commit_path(0)).write_bytes(text([LISTED, metadata(), first, second, txn("app", 3)]))
    theirs = DeltaTable(str(tmp_path))
    ours = snapshot_in(tmp_path)
    check_same(ours, theirs)
    vector = ours.files["one.parquet"].deletion_vector
    assert vector is not None
    assert stored_rows(vector, content) == {0: deleted}
    read = QueryBuilder().register("t", theirs).execute("select x from t order by x").read_all()
    expected = sorted([number for number in range(100) if number not in deleted] + list(range(10)))
    assert pa.table(read)["x"].to_pylist() == expected


def test_a_v2_checkpoint_is_the_same_table(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    file = write_file(tmp_path, "one.parquet", 10)
    checkpoint = [{"checkpointMetadata": {"version": 0, "tags": {}}}, LISTED, metadata(), file, txn("app", 3)]
    (tmp_path / commit_path(0)).write_bytes(text([LISTED, metadata(), file, txn("app", 3)]))
    (tmp_path / FOLDER / f"{0:020}.checkpoint.{UUID}.json").write_bytes(text(checkpoint))
    (tmp_path / commit_path(1)).write_bytes(text([write_file(tmp_path, "two.parquet", 5)]))
    check_same(snapshot_in(tmp_path), DeltaTable(str(tmp_path)))


@pytest.mark.parametrize("parts", [1, 9])
def test_a_log_that_lost_all_commits_is_damaged_and_no_table_is_created_there(
    tmp_path: Path, parts: int
) -> None:
    table, log = Table(tmp_path), tmp_path / FOLDER
    for _ in range(3):
        write_deltalake(tmp_path, rows(Random(0)), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(3):
        (tmp_path / commit_path(version)).unlink()
    # delta-rs reads the checkpoint, and can't write.
    assert DeltaTable(tmp_path).version() == 2
    with pytest.raises(DeltaError, match="Invalid table version: 2"):
        write_deltalake(tmp_path, rows(Random(0)), mode="append")
    for number in range(1, parts):
        (log / f"{2:020}.checkpoint.{number:010}.{parts:010}.parquet").touch()
    before = sorted(path.name for path in log.iterdir())
    for open_it in (lambda: lakefold.open(tmp_path), lambda: table.fold(table.create())):
        with pytest.raises(DamagedError, match="checkpoints in _delta_log/, but no version"):
            open_it()
    assert sorted(path.name for path in log.iterdir()) == before
    for name in before:
        (log / name).unlink()
    (log / f"{2:020}.crc").touch()
    assert table.fold(table.create(), log=OTHER_ID) == [Committed(0)]
