"""Where files of a table may be: bases that a message names must be below the committer's roots."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.prefetcher import Prefetcher
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from lakefold_table.format import Fetched
from lakefold_table.lance.state import LanceState
from lakefold_table.lance.validity import MOST_BASES
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import (
    FORMAT,
    URI,
    MemoryTable,
    append,
    changed,
    created,
    creation,
    entries,
    fold_at,
    versions_at,
)
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, Listed, here, replayed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_table.entry import Result

ROOT = f"memory://{NAME}"
OUTSIDE = "memory://other/x"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def bases(*paths: str, read: int = 1, uuid: str = "b") -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = uuid, read
    for number, path in enumerate(paths):
        envelope.lance.update_bases.new_bases.add(path=path, name=f"{uuid}{number}")
    return envelope


def creation_with(*paths: str) -> Envelope:
    envelope = creation()
    for number, path in enumerate(paths):
        envelope.lance.overwrite.initial_bases.add(id=number + 1, path=path)
    return envelope


def bringer(roots: Sequence[str] | None) -> Prefetcher:
    return Prefetcher(StoredTable(FORMAT, versions_at(HERE)), roots)


def asked(table: MemoryTable, envelope: Envelope) -> frozenset[str]:
    state = table.table.state
    assert state is None or isinstance(state, LanceState)
    return FORMAT.requirements(state, entries([envelope], 1)).bases


def test_a_path_below_a_root_may_be_written_in_many_ways(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (tmp_path / "secret").mkdir()
    (lake / "way-out").symlink_to(tmp_path / "secret")
    (lake / "way-in").symlink_to(lake / "other")
    inside = [
        str(lake),
        f"file://{lake}/other",
        f"{lake}/way-in",
        f"{lake}/not/there/yet/",
        f"file://{lake}/a%20b",
        f"{lake}/a b/..c",
        f"{lake}/%2e%2e/a#b?c",
        "s3://lake/tables",
        "S3A://lake/tables/x",
        "s3://lake/tables/a%20b",
        "s3+ddb://lake/tables/t?ddbTableName=v",
    ]
    outside = [
        "/",
        "/etc",
        "file:///etc",
        "file-object-store:///etc",
        str(tmp_path),
        f"{lake}-too",
        f"{lake}/way-out",
        f"file://{lake}/way-out/x",
        f"{lake}/../secret",
        f"{lake}/a/../b",
        f"{lake}/..",
        f"{lake}\\..\\..\\secret",
        f"file://{lake}/../secret",
        f"file://{lake}/%2e%2e/secret",
        f"file://{lake}/..%2Fsecret",
        f"file://{lake}/..\\secret",
        f"file://host{lake}",
        f"{lake}/a\x00b",
        "s3://lake",
        "s3://lake/tables-too",
        "s3://lake/tables/../other",
        "s3://lake/tables/%2E%2e/other",
        "s3://other/tables",
        "s3://user:password@lake/tables",
        "s3+ddb://lake/other?ddbTableName=v",
        "gs://lake/tables",
        "http://169.254.169.254/latest",
        "memory://lake/tables",
    ]
    allowed = bringer([f"file://{os.path.realpath(lake)}", "s3://lake/tables", "s3+ddb://lake/tables"])
    assert set(allowed.outside([*inside, *outside])) == set(outside)
    assert not bringer(None).outside(outside)


@pytest.mark.parametrize(
    "path", ["data", "./data", "../data", "~/data", "C:/data", "file:/data", " /data", "a/b://c"]
)
def test_a_base_that_is_another_path_for_each_reader_is_refused_with_and_without_roots(path: str) -> None:
    for table, envelope in ((created(), bases(path)), (MemoryTable(), creation_with(path))):
        assert not asked(table, envelope)
        result = table.result(envelope)
        assert isinstance(result, Invalid), path
        assert "is not an absolute path or URI" in result.message


@pytest.mark.parametrize("envelope", [bases("/lake/a", "/etc"), creation_with("/lake/a", "/etc")])
def test_a_base_outside_of_the_roots_is_refused_with_its_name(envelope: Envelope) -> None:
    table = MemoryTable() if envelope.HasField("create") else created()
    before, group = table.table.state, entries([envelope], 1)
    assert asked(table, envelope) == {"/lake/a", "/etc"}
    (outcome,) = table.fold_group(group, fetched=Fetched(outside={"/etc"})).outcomes
    assert isinstance(outcome.result, Invalid)
    assert outcome.result.message == "the base '/etc' is not below the roots of this committer"
    assert "roots" in outcome.result.hint
    assert table.table.state is before


def test_more_bases_than_can_be_checked_are_refused_unchecked() -> None:
    many = [f"/lake/{number}" for number in range(MOST_BASES + 1)]
    table = created()
    assert not asked(table, bases(*many))
    result = table.result(bases(*many))
    assert isinstance(result, Invalid)
    assert f"adds {MOST_BASES + 1} bases" in result.message
    assert isinstance(table.result(bases(*many[:-1], uuid="c")), Committed)


def test_a_table_that_exists_is_not_created_with_bases_again() -> None:
    table = created()
    assert not asked(table, creation_with("/etc"))


LOG = [
    here(creation_with(OUTSIDE)),
    here(creation_with(f"{ROOT}/first")),
    here(bases(f"{ROOT}/a", OUTSIDE, uuid="outside")),
    here(bases(f"{ROOT}/a", uuid="inside")),
    here(bases("../up", uuid="up")),
    here(append("f", read=2)),
]


def fold_log(roots: Sequence[str] | None) -> list[Result]:
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, roots=roots)
    folded = (fold_at(table, LOG[first : first + 2], first) for first in range(0, len(LOG), 2))
    return [outcome.result for outcomes in folded for outcome in outcomes]


def test_a_committer_refuses_them_and_a_replay_that_knows_no_roots_agrees() -> None:
    results = fold_log([ROOT])
    assert [type(result) for result in results] == [
        Invalid,
        Committed,
        Invalid,
        Committed,
        Invalid,
        Committed,
    ]
    replays = replayed(Listed(entries(LOG, 0)))
    assert [replay.verdict for replay in replays] == [Verdict.SAME] * 3
    assert sum(replay.refused for replay in replays) == 3
    assert not any(replay.notes for replay in replays)


def test_a_replay_agrees_with_a_committer_that_had_no_roots() -> None:
    assert isinstance(fold_log(None)[0], Committed)
    assert {replay.verdict for replay in replayed(Listed(entries(LOG, 0)))} == {Verdict.SAME}


def test_a_refusal_whose_message_was_shortened_is_taken_from_the_record() -> None:
    long = [here(creation()), here(bases(f"memory://other/{'x' * 600}")), here(append("f"))]
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, roots=[ROOT])
    fold_at(table, long[:1], 0)
    fold_at(table, long[1:], 1)
    replays = replayed(Listed(entries(long, 0)))
    assert [replay.verdict for replay in replays] == [Verdict.SAME] * 2
    assert [replay.notes for replay in replays if replay.notes] == [
        ("offset 1: refused for what the store held then, taken from the record",)
    ]


def test_deletion_files_are_not_looked_for_under_a_base_that_is_no_tables_root() -> None:
    table = created()
    table.fold(bases("/lake/plain"))
    table.fold(append("f"))
    base = table.state.head.base_paths[0].id
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "d", 3
    fragment = envelope.lance.delete.updated_fragments.add()
    fragment.CopyFrom(next(iter(table.state.fragments)))
    fragment.deletion_file.id, fragment.deletion_file.read_version = 1, 2
    for number in (base, base + 1):
        fragment.deletion_file.base_id = number
        assert not FORMAT.requirements(table.state, entries([envelope], 9)).contents
        result = table.result(changed(envelope, lambda e: setattr(e.lance, "uuid", f"d{table.offset}")))
        assert isinstance(result, Invalid)
        assert "the kind or the base of the deletion file is unknown" in result.message
