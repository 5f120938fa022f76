"""After every operation, folded by us or committed by pylance, a reader gets what pylance shows, no more."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lakefold
from lakefold_reader.format.changes import UnknownChangeError
from lakefold_reader.formats import open_source
from lakefold_reader.snapshot.history import HistoryRow, history_of
from lakefold_reader.tail.tail import tail
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError
from tests.feeds import table_after
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import replayed
from tests.oracle.readable import ACTS, LEFT, MANY, Done, made, rows, upsert
from tests.oracle.rebasing import built, send

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from lakefold_reader.tail.change import Change
    from tests.oracle.operations import Act


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that every operation is done to a copy of."""
    return made(tmp_path_factory.mktemp("t") / "t", stable=bool(request.param))


def check_reading(uri: str, version: int) -> None:
    """A version that is opened gives all that pylance gives of it."""
    ours, theirs = lakefold.open(uri, version), lance.dataset(uri, version=version)
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.to_arrow().equals(theirs.to_table(), check_metadata=True)
    assert ours.count_rows() == theirs.count_rows()
    assert ours.fragment_count == len(theirs.get_fragments())
    physical = sum(fragment.physical_rows for fragment in theirs.get_fragments())
    assert ours.deleted_rows == physical - theirs.count_rows()
    existing = {fragment.fragment_id for fragment in theirs.get_fragments()}
    assert [(info.name, list(info.columns), info.type, info.covered) for info in ours.indices] == [
        (
            description.name,
            description.field_names,
            description.index_type,
            len(existing & _covered(description)),
        )
        for description in theirs.describe_indices()
    ]
    names = theirs.schema.names
    chosen = [*names[::-1][:2], *(["s.y"] if "s" in names else [])]
    for condition in (f"id = {MANY + 3}", "id % 5 = 0", "text = 'row 7'", "id < 0"):
        assert ours.count_rows(condition) == theirs.count_rows(filter=condition)
        table = ours.to_arrow(chosen, condition)
        assert table.equals(theirs.to_table(columns=chosen, filter=condition), check_metadata=True)


def _covered(index: Any) -> set[int]:  # noqa: ANN401 - pylance is published without types
    return {number for segment in index.segments for number in segment.fragment_ids}


def ids(uri: str, version: int) -> set[int]:
    """The ids of the rows of a version, as pylance reads them."""
    return set(lance.dataset(uri, version=version).to_table(columns=["id"])["id"].to_pylist())


def change_of(uri: str, version: int) -> Change:
    """The change of a version from a tail that has read the version before."""
    _, change = islice(tail(uri, version - 2), 2)
    return change


def row_of(uri: str, version: int) -> HistoryRow:
    """The row of a version in the history."""
    (row,) = history_of(open_source(uri), version, version)
    return row


SCHEMA_MAY_CHANGE = {"overwrite", "merge", "project", "restore", "update_config"}
"""Of versions by these operations the whole file is read, of our others only the first bytes."""


def check_told(uri: str, version: int, done: Done) -> pa.Table | None:
    """Checks tail and history of a version against what pylance shows. Returns the inserted rows."""
    change, row = change_of(uri, version), row_of(uri, version)
    dataset = lance.dataset(uri, version=version)
    assert change.schema.equals(dataset.schema, check_metadata=True)
    assert (change.operation, row.operation) == (done.operation, done.operation)
    assert change.only_inserts is done.only
    assert (row.rows_in, row.rows_out, row.files_in, row.files_out) == (*done.rows, *done.files)
    check_feed(uri, version)
    is_known = dataset.has_stable_row_ids or not isinstance(done.inserted, str)
    if not is_known:
        assert change.rows is None
        with pytest.raises(UnknownChangeError, match=rf"\({done.operation}\) does not record"):
            change.inserted()
        return None
    inserted = change.inserted()
    came = ids(uri, version) - ids(uri, version - 1)
    assert inserted["id"].to_pylist() == sorted(came if isinstance(done.inserted, str) else done.inserted)
    assert change.rows in (inserted.num_rows, None)
    assert inserted.schema.equals(change.schema, check_metadata=True)
    assert change.inserted(["text"]).equals(inserted.select(["text"]))
    return inserted


def check_feed(uri: str, version: int) -> None:
    """The feed of all versions leads to the rows of the last version."""
    oldest = open_source(uri).versions.numbers()[0]
    changes = lakefold.changes(uri, oldest - 1, version).read_all()
    expected = lance.dataset(uri, version=version).to_table().sort_by("id")
    assert table_after(changes, "id").equals(expected)
    last = lakefold.changes(uri, version - 1, version).read_all()
    assert last.equals(change_of(uri, version).feed().read_all())


def check_both(table: Path, done: Done) -> None:
    """The same after our fold and after pylance's commit."""
    both = replayed(table, done.act)
    assert isinstance(both.result, Committed), both.result
    theirs, ours = str(both.theirs), str(both.ours)
    version = lance.dataset(theirs).version
    for uri in (theirs, ours):
        check_reading(uri, version)
    assert lakefold.open(ours).to_arrow().equals(lance.dataset(theirs).to_table(), check_metadata=True)
    inserted = [check_told(uri, version, done) for uri in (theirs, ours)]
    step = open_source(ours).summary(version)
    assert step is not None
    assert (step.metadata is None) == (done.operation not in SCHEMA_MAY_CHANGE)
    if inserted[0] is not None:
        assert inserted[0].equals(inserted[1], check_metadata=True)


def linked(table: Path, folder: Path) -> Path:
    """The table under a name in this folder, beside which copies can be made."""
    (folder / "t").symlink_to(table)
    return folder / "t"


@pytest.mark.parametrize("name", ACTS)
def test_an_operation(name: str, table: Path, tmp_path: Path) -> None:
    check_both(linked(table, tmp_path), ACTS[name])


@pytest.fixture(scope="module")
def branch(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A branch of a clone: its files lie at two other roots, some of its deletion files at its own."""
    path = tmp_path_factory.mktemp("clone") / "t"
    dataset = lance.dataset(str(table)).shallow_clone(str(path), lance.dataset(str(table)).version)
    dataset.delete("id = 8")
    lance.dataset(str(path)).create_branch("side/line").delete(f"id = {MANY + 8}")
    return path / "tree/side/line"


@pytest.fixture(scope="module")
def clone(branch: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the branch, which may be copied: its files lie at three other roots."""
    path = tmp_path_factory.mktemp("clone") / "t"
    lance.dataset(str(branch)).shallow_clone(str(path), lance.dataset(str(branch)).version)
    return path


@pytest.mark.parametrize(
    ("name", "moved", "files"),
    [
        ("append", (2, 0), (1, 0)),
        ("delete", (0, 2), (0, 0)),
        ("upsert", (3, 2), (1, 0)),
        ("drop a column", (0, 0), (0, 3)),
        ("add a column", (0, 0), (4, 0)),
        ("overwrite", (2, LEFT - 2), (1, 7)),
    ],
)
def test_an_operation_on_files_at_other_roots(
    name: str, moved: tuple[int, int], files: tuple[int, int], clone: Path, tmp_path: Path
) -> None:
    check_both(linked(clone, tmp_path), replace(ACTS[name], rows=moved, files=files))


def test_a_compaction_of_a_clone(clone: Path, tmp_path: Path) -> None:
    """Indices that pylance rewrites keep the old root, and pylance can't search its own version."""
    both = replayed(linked(clone, tmp_path), ACTS["compact"].act)
    version, uri = lance.dataset(str(both.ours)).version, str(both.ours)
    check_reading(uri, version)
    check_told(uri, version, ACTS["compact"])
    with pytest.raises(DamagedError, match="names a file that is missing"):
        lakefold.open(both.theirs).count_rows("id = 4")


def test_versions_that_a_clone_and_a_branch_begin_with(clone: Path, branch: Path) -> None:
    main = str(branch.parents[2])
    for uri in (main, str(branch), str(clone)):
        first = min(version["version"] for version in lance.dataset(uri).versions())
        check_reading(uri, first)
        whole, *_ = tail(uri, "earliest")
        assert whole.inserted().equals(lance.dataset(uri, version=first).to_table())
        row = row_of(uri, first)
        assert (row.operation, row.rows_in, row.rows_out) == ("clone", whole.rows, 0)
        assert (row.files_in, row.files_out) == (7, 0)
    assert lakefold.open(branch).branch == "side/line"
    assert lakefold.open(main, branch="side/line").count_rows() == LEFT - 2


def test_several_updates_in_one_version(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    stable = bool(lance.dataset(str(copy)).has_stable_row_ids)
    acts = [upsert([1, 30_000]), upsert([MANY + 3, 30_001]), lambda ds: ds.update({"text": "'x'"}, "id = 5")]
    results = fold(owned(copy), send(copy, *(built(copy, act, f"b{n}") for n, act in enumerate(acts))), 0)
    assert [type(result) for result in results] == [Committed] * 3
    version = lance.dataset(str(copy)).version
    check_reading(str(copy), version)
    done = Done(upsert([]), "update", "where stable", rows=(5, 3), files=(3, 0))
    inserted = check_told(str(copy), version, done)
    assert (inserted is not None) == stable
    assert inserted is None or inserted["id"].to_pylist() == [30_000, 30_001]
    row = row_of(str(copy), version)
    assert (row.entries, row.refused) == (3, 0)


def test_several_deletes_and_then_inserts_in_one_version_each(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    deletes: list[Act] = [lambda ds: ds.delete("id = 1"), lambda ds: ds.delete(f"id IN (2, {MANY + 5})")]
    inserts = [upsert([40_000]), upsert([40_001, 40_002])]
    committer = owned(copy)
    fold(committer, send(copy, *(built(copy, act, f"d{n}") for n, act in enumerate(deletes))), 0)
    version = lance.dataset(str(copy)).version
    check_reading(str(copy), version)
    check_told(str(copy), version, Done(upsert([]), "delete", rows=(0, 3)))
    fold(committer, send(copy, *(built(copy, act, f"i{n}") for n, act in enumerate(inserts))), 2)
    done = Done(upsert([]), "update", [40_000, 40_001, 40_002], only=True, rows=(3, 0), files=(2, 0))
    check_told(str(copy), version + 1, done)


def test_rows_are_taken_from_the_record_if_the_version_before_is_gone(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    version = lance.dataset(str(copy)).version
    fold(owned(copy), send(copy, built(copy, upsert([1, 50_000]))), 0)
    (copy / open_source(str(copy)).versions.path(version)).unlink()
    row = row_of(str(copy), version + 1)
    assert (row.rows_in, row.rows_out, row.files_in, row.files_out) == (2, 1, None, None)


@pytest.mark.parametrize("is_table", [True, False])
def test_rows_appended_under_another_root(tmp_path: Path, *, is_table: bool) -> None:
    path, other = tmp_path / "t", tmp_path / "other"
    (other / "data").mkdir(parents=True)
    dataset = lance.write_dataset(rows(range(5)), str(path))
    dataset.add_bases([lance.DatasetBasePath(str(other), "other", is_table)])
    both = replayed(
        path, lambda ds: lance.write_dataset(rows([7]), ds, mode="append", target_bases=["other"])
    )
    for uri in map(str, (both.theirs, both.ours)):
        check_reading(uri, 3)
        check_told(uri, 3, Done(upsert([]), "append", [7], only=True, rows=(1, 0), files=(1, 0)))
        (root,) = lakefold.open(uri).roots
        assert (root.name, root.path, root.is_table) == ("other", str(other), is_table)
