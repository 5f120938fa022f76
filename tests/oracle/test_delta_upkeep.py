"""Rounds of maintenance of Delta tables: compaction, versions and files that go, and what keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

import lakefold
from lakefold_ingest.rows.staged_rows import staged_path
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.read.dead_letters import DeadLetter
from lakefold_maintenance.delta.unnamed_files import is_unique
from lakefold_maintenance.files import refused_files as refused_module
from lakefold_maintenance.files.clean_up import EVERY_S
from lakefold_maintenance.files.refused_files import Refusals, RefusedFiles
from lakefold_maintenance.files.removal_note import NOTICE_S
from lakefold_maintenance.rewriting.engines import InProcess
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_maintenance.scheduling.lease import PATH
from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics
from lakefold_maintenance.scheduling.table_maintenance import MaintenanceParts, TableMaintenance
from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals, waiting_of
from lakefold_reader.delta.inside_paths import path_inside
from lakefold_reader.format import source as versions
from lakefold_reader.formats import open_source
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import vector_file, vector_path
from lakefold_table.entry import Entry
from lakefold_table.position import LogId, Position
from lakefold_table.uri import canonical
from tests.delta_logs.actions import add, data_file, text
from tests.oracle.delta_maintenance import WITH_VECTORS, DeltaWorld, committed, made
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

NOTICE = timedelta(seconds=max(NOTICE_S, EVERY_S) + 1)
WEEK = timedelta(days=7, seconds=1)
FOREVER = timedelta(days=10_000)
AT_ONCE = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}


@dataclass
class DeltaSurroundings:
    """A Delta table and what its maintenance sees."""

    world: DeltaWorld
    waiting: WaitingProposals = field(default_factory=WaitingProposals)
    metrics: MaintenanceMetrics = field(default_factory=MaintenanceMetrics)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    refused: dict[str, float] = field(default_factory=dict)
    conflicts: dict[str, float] = field(default_factory=dict)

    def upkeep(self, **settings: str) -> TableMaintenance:
        parts = MaintenanceParts(
            lambda _: self.world,
            lambda _: self.waiting,
            lambda _: Refusals(self.refused, self.conflicts),
            lambda *_: True,
            InProcess(),
            self.metrics,
            now=lambda: self.now,
            load=lambda: 0.0,
        )
        given = {"growth": "4", "target_rows": "1000", **settings}
        return TableMaintenance(Surveyor(open_source(str(self.world.path)), given), parts)

    def rounds(self, upkeep: TableMaintenance, *pauses: timedelta) -> list[tuple[int, int]]:
        """A round now, and one after each pause: how many files of each kind were removed."""
        removed = [upkeep.round().removed_files]
        for pause in pauses:
            self.now += pause
            removed.append(upkeep.round().removed_files)
        return [(each.refused, each.unnamed) for each in removed]

    def metric(self, name: str, **labels: str) -> float | None:
        given = {"table": self.world.path.as_uri(), **labels}
        return self.metrics.registry.get_sample_value(f"lakefold_maintenance_{name}", given)


def stored(world: DeltaWorld) -> set[str]:
    """The paths of the data files that exist."""
    return {
        str(path.relative_to(world.path))
        for path in world.path.rglob("*.parquet")
        if "_delta_log" not in str(path)
    }


def consume(world: DeltaWorld, name: str) -> None:
    """Has a consumer read all versions that there are."""
    with lakefold.tail(world.path, consumer=name) as tail:
        for _ in tail:
            pass
        tail.commit()


def waits(*envelopes: Envelope) -> WaitingProposals:
    return waiting_of(envelopes, "")


def test_a_round_compacts_and_counts(tmp_path: Path) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 9))
    upkeep = around.upkeep(target_rows="40", cleanup="false")
    report = upkeep.round()
    assert (report.compaction.tasks, report.skipped, report.fragments) == (2, "", 3)
    assert (around.metric("fragments"), around.metric("small_fragments")) == (9, 9)
    assert (around.metric("rewrites_total"), around.metric("rewritten_rows_total")) == (2, 80)
    assert not (around.world.path / PATH).exists()
    assert around.world.rows() == list(range(90))
    size = max(file.size for file in around.world.files.values())
    around.world.append(1000)
    added = {file.size for file in around.world.files.values()} - {size}
    upkeep.round()
    # Its own new files are not those of writers.
    assert around.metric("added_bytes_total") == min(added)
    assert around.metric("versions") is None


def test_what_waits_in_the_log_is_not_rewritten_again(tmp_path: Path) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 9))
    world = around.world
    table, version = Table(world.path), world.newest
    removes = [{"remove": {"path": path, "dataChange": False}} for path in world.files]
    around.waiting = waits(table.propose(*removes, read=version))
    assert around.waiting == WaitingProposals(1, version, frozenset(world.files))
    upkeep = around.upkeep(target_rows="40")
    assert upkeep.round(dry_run=True).compaction.tasks == 0
    # A change of rows is not a compaction, and an append without a read version needs no version.
    removes[0]["remove"]["dataChange"] = True
    around.waiting = waits(
        table.propose(*removes, read=version), table.propose(data_file(world.path, "a", 1))
    )
    assert (around.waiting.oldest_read, around.waiting.rewritten) == (version, frozenset())
    assert upkeep.round(dry_run=True).compaction.tasks == 2


def test_files_of_waiting_and_of_refused_proposals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 1))
    world = around.world
    name = "part-00000-6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e-c000.snappy.parquet"
    envelope = Table(world.path).propose(data_file(world.path, name, 5))
    upkeep = around.upkeep(compaction="false")
    around.waiting = waits(envelope)
    assert (set(around.waiting.files), around.waiting.unknown) == ({name}, False)
    assert around.rounds(upkeep, FOREVER, NOTICE) == [(0, 0)] * 3
    around.waiting = WaitingProposals()
    position = Position(LogId("c", "t", 0), 1)
    entry = Entry(position, 0, envelope, envelope.ByteSize())
    refused = RefusedFiles(KafkaConfig("localhost:1"), "letters")
    refused.add(DeadLetter(position, 1_000_000, position, "", "", entry, 0, (), conflicts_with=3))
    monkeypatch.setattr(refused_module, "read_dead_letters", lambda *_, **__: iter(()))
    assert refused.of(world.path.as_uri(), "").conflicts == {name: 1.0}
    around.conflicts = {name: around.now.timestamp()}
    assert around.rounds(upkeep, NOTICE, NOTICE)[-1] == (1, 0)
    assert name not in stored(world)
    assert world.rows() == list(range(10))


@pytest.mark.parametrize("folder", ["_change_data/p=1/", "ab/"])
def test_change_files_stay_with_their_commits_and_go_without_one(tmp_path: Path, folder: str) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 2))
    world = around.world
    names = [f"{folder}cdc-{number}-6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e.parquet" for number in range(4)]
    early, late, refused, _ = names
    change, *_ = [data_file(world.path, name, 1)["add"] for name in names]
    assert DeltaTable(world.path).version() == 2
    for version, name in ((3, early), (4, late)):
        members = {"path": name, "partitionValues": {}, "size": change["size"], "dataChange": False}
        (world.path / "_delta_log" / f"{version:020}.json").write_bytes(text([{"cdc": members}]))
    (world.path / "_delta_log" / f"{5:020}.json").write_bytes(text([add("x.parquet")]))
    envelope = Table(world.path).propose(read=5)
    envelope.delta.actions = text([{"cdc": {**change, "path": refused}}])
    around.waiting = waits(envelope)
    around.conflicts = {refused: around.now.timestamp()}
    upkeep = around.upkeep(compaction="false")
    assert around.rounds(upkeep, WEEK, NOTICE) == [(0, 0), (0, 0), (0, 1)]
    assert {early, late, refused} == stored(world) & set(names)
    around.waiting = WaitingProposals()
    assert around.rounds(upkeep, NOTICE, NOTICE)[-1] == (1, 0)
    assert {early, late} == stored(world) & set(names)


def test_files_that_the_table_has_removed_go_after_its_retention(tmp_path: Path) -> None:
    retention = {"delta.deletedFileRetentionDuration": "interval 2 days"}
    around = DeltaSurroundings(made(tmp_path / "t", 3, **retention))
    world = around.world
    DeltaTable(world.path).delete("x < 10")
    gone = stored(world) - set(world.files)
    assert len(gone) == 1
    upkeep = around.upkeep(compaction="false", version_age="1000d")
    assert around.rounds(upkeep, timedelta(days=1)) == [(0, 0)] * 2
    # Expired: it is listed, and removed by the round after the notice.
    assert around.rounds(upkeep, timedelta(days=1, minutes=1), timedelta(minutes=9), NOTICE)[1:] == [
        (0, 0),
        (0, 0),
        (0, 1),
    ]
    assert stored(world) == set(world.files)
    assert world.rows() == list(range(10, 30))
    with pytest.raises(lakefold.VersionExpiredError):
        lakefold.open(world.path, 3).to_arrow()


def test_a_table_that_keeps_its_log_loses_files_alone(tmp_path: Path) -> None:
    """Without the property versions 0 to 3 would go with the file."""
    world = made(tmp_path / "t", 3, **AT_ONCE, **{"delta.enableExpiredLogCleanup": "false"})
    around = DeltaSurroundings(world)
    DeltaTable(world.path).delete("x < 10")
    DeltaTable(world.path).create_checkpoint()
    write_deltalake(world.path, pa.table({"x": [30]}), mode="append")
    (gone,) = stored(world) - set(world.files)
    upkeep = around.upkeep(compaction="false", version_age="0s")
    assert around.rounds(upkeep, FOREVER, NOTICE)[-1] == (0, 1)
    assert gone not in stored(world)
    assert {f"{number:020}.json" for number in range(6)} <= {
        path.name for path in (world.path / "_delta_log").iterdir()
    }
    assert world.rows() == list(range(10, 31))


@pytest.mark.parametrize("knows_removals", [False, True])
def test_a_consumer_and_the_newest_versions_of_the_policy_keep_files(
    tmp_path: Path, *, knows_removals: bool
) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 3, **AT_ONCE))
    world = around.world
    with lakefold.tail(world.path, 2, consumer="nightly") as tail:
        tail.commit()
    before = {number: world.rows(number) for number in range(2, 4)}
    assert world.compaction().run(full=True).tasks == 1
    DeltaTable(world.path).create_checkpoint()
    upkeep = around.upkeep(compaction="false")
    assert around.rounds(upkeep, FOREVER, NOTICE) == [(0, 0)] * 3
    for number, rows in before.items():
        assert world.rows(number) == rows
    assert around.metric("kept_versions", reason="consumers") == 2
    consume(world, "nightly")
    upkeep = around.upkeep(compaction="false", min_versions="2")
    assert around.rounds(upkeep, NOTICE) == [(0, 0)] * 2
    upkeep = around.upkeep(compaction="false")
    in_use = lakefold.open(world.path, version=world.newest - 1) if knows_removals else None
    if in_use is None:
        # As in a new process.
        versions._IN_USE.clear()
        versions._RECENT.clear()
    # The checkpoint has no tombstones that have expired. So a new process takes these for files that nothing
    # has named. If the version before is in use, it is known that the newest one has removed them.
    expected = [(0, 0), (0, 3), (0, 0)] if knows_removals else [(0, 0), (0, 0), (0, 3)]
    assert around.rounds(upkeep, WEEK, NOTICE) == expected
    assert stored(world) == set(world.files)
    assert world.rows() == list(range(30))


def test_files_that_another_client_names_by_absolute_paths_stay_and_are_read(tmp_path: Path) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 2))
    world = around.world
    unique = "6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"
    name = f"a b%20ü/part-{unique}.parquet"
    (world.path / name).parent.mkdir()
    parquet.write_table(pa.table({"x": pa.array(range(1000, 1010), pa.int64())}), world.path / name)
    content, (vector,) = vector_file([{0: Bitmap([1, 2])}], UUID(unique))
    (world.path / str(vector_path(vector))).write_bytes(content)
    file = world.path / name
    for path in (quote(str(file)), f"file:{quote(str(file))}", file.as_uri()):
        assert path_inside(path, canonical(world.path)) == name
    for path in (quote(f"{world.path}x/{name}"), "s3://bucket/a.parquet", world.path.as_uri()):
        assert path_inside(path, canonical(world.path)) is None
    uri = (world.path / str(vector_path(vector))).as_uri()
    members = members_of(replace(vector, storage_type="p", path_or_inline=uri))
    added = add(file.as_uri(), members, size=file.stat().st_size, stats='{"numRecords":10}')
    (world.path / "_delta_log" / f"{3:020}.json").write_bytes(text([added]))
    rows = {*range(20), *range(1000, 1010)} - {1001, 1002}
    assert set(pa.table(lakefold.open(world.path).to_arrow())["x"].to_pylist()) == rows
    assert around.rounds(around.upkeep(compaction="false"), FOREVER, NOTICE) == [(0, 0)] * 3
    assert set(pa.table(lakefold.open(world.path).to_arrow())["x"].to_pylist()) == rows


def test_files_that_are_not_the_tables_stay(tmp_path: Path) -> None:
    around = DeltaSurroundings(made(tmp_path / "t", 2))
    world = around.world
    unique = "6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"
    stays = ["notes.parquet", f"_hidden/part-{unique}.parquet", f".part-{unique}.parquet", f"x/{unique}.txt"]
    goes = [
        f"part-1-{unique}-c000.parquet",
        f"p=1/part-{unique}.snappy.parquet",
        f"ab/deletion_vector_{unique}.bin",
        staged_path(),
    ]
    for name in (*stays, *goes):
        (world.path / name).parent.mkdir(exist_ok=True)
        (world.path / name).write_bytes(b"")
    orphan = world.path / "_delta_log" / "_sidecars" / f"{unique}.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"")
    write_deltalake(world.path / "inner", lakefold.open(world.path).to_arrow())
    inner = stored(world)
    assert [is_unique(name) for name in (*stays, *goes)] == [False] * 4 + [True] * 4
    upkeep = around.upkeep(compaction="false")
    assert around.rounds(upkeep, WEEK, NOTICE) == [(0, 0), (0, 0), (0, 5)]
    assert not orphan.exists()
    assert not any((world.path / name).exists() for name in goes)
    assert all((world.path / name).exists() for name in stays)
    assert inner - stored(world) == set(goes[:2])


def test_files_of_a_table_with_features_that_are_not_known_stay(tmp_path: Path) -> None:
    """Also if the feature concerns writers alone: `vacuumProtocolCheck` requires it of each table."""
    around = DeltaSurroundings(made(tmp_path / "t", 1))
    unnamed = around.world.path / "part-6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e.parquet"
    unnamed.write_bytes(b"")
    upkeep = around.upkeep(compaction="false")
    assert around.rounds(upkeep) == [(0, 0)]
    known = WITH_VECTORS["protocol"]
    later = {"protocol": {**known, "writerFeatures": [*known["writerFeatures"], "of tomorrow"]}}
    around.world.path.joinpath("_delta_log", f"{2:020}.json").write_bytes(text([later]))
    with pytest.raises(lakefold.InvalidError, match="of tomorrow"):
        around.rounds(upkeep, WEEK, NOTICE)
    assert unnamed.exists()


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_with_everything(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    world = made(tmp_path / "t", 3, **AT_ONCE)
    around = DeltaSurroundings(world)
    live, following = set(range(30)), 30
    models = {3: sorted(live)}
    consumer = 3
    with lakefold.tail(world.path, 3, consumer="slow") as tail:
        tail.commit()
    upkeep = around.upkeep(target_rows="40", growth="2", version_age="0s")
    removed = 0

    def check(versions: Iterable[int]) -> None:
        for number in versions:
            assert world.rows(number) == models[number], number

    for _ in range(14):
        match random.choice(["append", "delete", "delete", "checkpoint", "round", "round", "consume"]):
            case "append":
                new = range(following, following + random.randint(1, 15))
                world.append(*new)
                live.update(new)
                following = new.stop
            case "delete":
                gone = random.sample(sorted(live), min(len(live), random.randint(1, 6)))
                assert committed(world.fold(world.delete(gone)))
                live.difference_update(gone)
            case "checkpoint":
                DeltaTable(world.path).create_checkpoint()
            case "consume":
                consume(world, "slow")
                consumer = world.newest
            case _:
                around.now += NOTICE
                report = upkeep.round()
                assert report.compaction.failed == []
                removed += report.removed_files.count
        for number in range(max(models) + 1, world.newest + 1):
            # A round may publish several versions, none of which changes rows.
            models[number] = sorted(live)
        check(range(consumer, world.newest + 1))
    around.now += NOTICE
    consume(world, "slow")
    removed += sum(unnamed for _, unnamed in around.rounds(upkeep, NOTICE, NOTICE))
    assert removed
    assert stored(world) >= set(world.files)
    assert world.rows() == sorted(live)
