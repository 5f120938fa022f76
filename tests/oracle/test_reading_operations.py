"""After every operation, folded by us or committed by pylance, a reader gets what pylance shows and no more.

The table that operations are done to has what readers stumble over: nested columns, columns added later,
renamed and dropped, files of several versions, both kinds of deletion files, indices and a second root.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from dataclasses import replace as replace_in
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation as Op
from lance.file import LanceFileWriter
from lance.fragment import DataFile

import lakefold
from lakefold_reader.changes import Change, UntoldChangeError
from lakefold_reader.history import HistoryRow, history_of
from lakefold_reader.source import open_source, source_on
from lakefold_reader.tail import tail, tail_of
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError
from lakefold_table.storage import open_storage
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import replayed
from tests.oracle.rebasing import built, send
from tests.tables import Recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.oracle.operations import Act

MANY = 6000
"""Rows of the first fragment: enough for a deletion file of the kind for many rows."""
FEW = 20


def rows(numbers: Sequence[int], text: str = "row") -> pa.Table:
    """Rows of these ids, with a struct and a list."""
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": [f"{text} {number}" for number in numbers],
            "s": [{"x": number, "y": f"y{number % 7}"} for number in numbers],
            "l": [[number, number + 1] if number % 3 else None for number in numbers],
        }
    )


def whole_rows(numbers: Sequence[int], text: str = "row") -> pa.Table:
    """The same with the columns that the table got later."""
    count = len(numbers)
    found = rows(numbers, text).append_column("renamed", pa.array([5] * count, pa.int64()))
    return found.append_column("empty", pa.nulls(count, pa.int32()))


def altered(path: str, **change: object) -> Any:  # noqa: ANN401 - a typed dictionary of pylance's
    return {"path": path, **change}


def made(path: Path, *, stable: bool) -> Path:
    """Fragments of 6000, 20, 20 and 10 rows; rows of the first three are deleted."""
    uri = str(path)
    lance.write_dataset(rows(range(MANY)), uri, enable_stable_row_ids=stable, data_storage_version="2.1")
    dataset = lance.write_dataset(
        rows(range(MANY, MANY + 2 * FEW)), uri, mode="append", max_rows_per_file=FEW
    )
    dataset.add_columns({"late": "id * 2", "gone": "id + 1"})
    dataset.add_columns(pa.schema([pa.field("empty", pa.int32())]))
    dataset.alter_columns(altered("late", name="renamed"))
    dataset.drop_columns(["gone"])
    added = whole_rows(range(MANY + 2 * FEW, MANY + 2 * FEW + 10))
    lance.write_dataset(added, uri, mode="append", data_storage_version="2.2")
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("text", "BITMAP")
    dataset.delete(f"id >= 10 AND id < {MANY - 500}")
    dataset.delete(f"id IN (3, {MANY + 1}, {MANY + FEW + 2})")
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that every operation is done to a copy of."""
    return made(tmp_path_factory.mktemp("t") / "t", stable=bool(request.param))


def check_reading(uri: str, version: int) -> None:
    """One version opened: all that it gives is what pylance gives of it."""
    ours, theirs = lakefold.open(uri, version), lance.dataset(uri, version=version)
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.to_arrow().equals(theirs.to_table(), check_metadata=True)
    assert ours.count_rows() == theirs.count_rows()
    assert ours.fragment_count == len(theirs.get_fragments())
    physical = sum(one.physical_rows for one in theirs.get_fragments())
    assert ours.deleted_rows == physical - theirs.count_rows()
    names = theirs.schema.names
    chosen = [*names[::-1][:2], *(["s.y"] if "s" in names else [])]
    for condition in (f"id = {MANY + 3}", "id % 5 = 0", "text = 'row 7'", "id < 0"):
        assert ours.count_rows(condition) == theirs.count_rows(filter=condition)
        found = ours.to_arrow(chosen, condition)
        assert found.equals(theirs.to_table(columns=chosen, filter=condition), check_metadata=True)


def ids(uri: str, version: int) -> set[int]:
    """The ids of the rows of a version, as pylance reads them."""
    return set(lance.dataset(uri, version=version).to_table(columns=["id"])["id"].to_pylist())


def change_of(uri: str, version: int) -> Change:
    """What a tail says of one version."""
    return next(iter(tail(uri, version - 1)))


def row_of(uri: str, version: int) -> HistoryRow:
    """What the history says of one version."""
    (row,) = history_of(open_source(uri), version, version)
    return row


def append(dataset: lance.LanceDataset) -> object:
    return lance.write_dataset(whole_rows([10_000, 10_001]), dataset, mode="append")


def upsert(numbers: Sequence[int], *, insert: bool = True, keep: bool = True) -> Act:
    def act(dataset: lance.LanceDataset) -> object:
        merge = dataset.merge_insert("id").when_matched_update_all()
        merge = merge.when_not_matched_insert_all() if insert else merge
        merge = merge if keep else merge.when_not_matched_by_source_delete(f"id >= {MANY + 30}")
        return merge.execute(whole_rows(numbers, "new"))

    return act


def upsert_text(dataset: lance.LanceDataset) -> object:
    new = pa.table({"id": pa.array([1, MANY + 5], pa.int64()), "text": ["new", "new"]})
    return dataset.merge_insert("id").when_matched_update_all().execute(new)


def restore(version: int) -> Act:
    return lambda dataset: lance.dataset(dataset.uri, version=version).restore()


def replace(dataset: lance.LanceDataset) -> object:
    values = pa.table({"empty": pa.array(range(FEW), pa.int32())})
    name = "replaced.lance"
    with LanceFileWriter(f"{dataset.uri}/data/{name}", values.schema, version="2.1") as writer:
        writer.write_batch(values)
    file = DataFile.create(dataset, name)
    operation = Op.DataReplacement([Op.DataReplacementGroup(1, file)])
    return lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def overwrite(dataset: lance.LanceDataset) -> object:
    over = pa.table({"id": pa.array([7, 8], pa.int64()), "text": ["over", "again"]})
    return lance.write_dataset(over, dataset.uri, mode="overwrite")


@dataclass(frozen=True)
class Done:
    """What is done, and what a reader is told of it.

    `inserted`: the ids of rows, or whether they are told at all: where rows keep their ids, or never.
    `only`: nothing else happened. `rows` and `files` came and went.
    """

    act: Act
    operation: str
    inserted: Sequence[int] | Literal["where stable", "never"] = ()
    only: bool = False
    rows: tuple[int, int] = (0, 0)
    files: tuple[int, int] = (0, 0)


LEFT = 557
"""Rows of the table that operations are done to."""
ACTS = {
    "append": Done(append, "append", [10_000, 10_001], only=True, rows=(2, 0), files=(1, 0)),
    "delete": Done(lambda ds: ds.delete(f"id IN (1, {MANY + 3})"), "delete", rows=(0, 2)),
    "delete nothing": Done(lambda ds: ds.delete("id = -1"), "delete", only=True),
    "delete a fragment": Done(
        lambda ds: ds.delete(f"id >= {MANY} AND id < {MANY + FEW}"), "delete", rows=(0, FEW - 1), files=(0, 2)
    ),
    "delete many": Done(lambda ds: ds.delete(f"id < {MANY}"), "delete", rows=(0, 509), files=(0, 2)),
    "update": Done(
        lambda ds: ds.update({"text": "'x'"}, where="id = 2"),
        "update",
        "where stable",
        rows=(1, 1),
        files=(1, 0),
    ),
    "upsert": Done(upsert([2, MANY + 4, 20_000]), "update", "where stable", rows=(3, 2), files=(1, 0)),
    "upsert of known rows": Done(
        upsert([2, 4], insert=False), "update", "where stable", rows=(2, 2), files=(1, 0)
    ),
    "upsert of new rows": Done(
        upsert([20_000, 20_001]), "update", [20_000, 20_001], only=True, rows=(2, 0), files=(1, 0)
    ),
    "upsert that deletes": Done(
        upsert([2, 20_000], keep=False), "update", "where stable", rows=(2, 21), files=(1, 1)
    ),
    "upsert of a column": Done(upsert_text, "update", files=(2, 0)),
    "overwrite": Done(overwrite, "overwrite", [7, 8], rows=(2, LEFT), files=(1, 7)),
    "add a column": Done(lambda ds: ds.add_columns({"twice": "id * 2"}), "merge", files=(4, 0)),
    "add an empty column": Done(lambda ds: ds.add_columns(pa.schema([pa.field("n", pa.string())])), "merge"),
    "drop a column": Done(lambda ds: ds.drop_columns(["renamed"]), "project", files=(0, 3)),
    "drop a nested column": Done(lambda ds: ds.drop_columns(["s.x"]), "project"),
    "rename columns": Done(
        lambda ds: ds.alter_columns(altered("s.x", name="x2"), altered("renamed", name="again")),
        "project",
    ),
    "cast a column": Done(
        lambda ds: ds.alter_columns(altered("renamed", data_type=pa.int32())), "merge", files=(4, 3)
    ),
    "restore fewer columns": Done(restore(2), "restore", "never", rows=(5493, 10), files=(0, 4)),
    "restore deleted rows": Done(restore(9), "restore", "never", rows=(5493, 0)),
    "create an index": Done(lambda ds: ds.create_scalar_index("renamed", "BTREE"), "create_index", only=True),
    "drop an index": Done(lambda ds: ds.drop_index("id_idx"), "create_index", only=True),
    "compact": Done(lambda ds: ds.optimize.compact_files(), "rewrite", only=True, files=(1, 7)),
    "replace a column": Done(replace, "data_replacement", files=(1, 0)),
    "set a key": Done(lambda ds: ds.update_config({"k": "v"}), "update_config", only=True),
    "set a field's key": Done(
        lambda ds: ds.update_field_metadata({"text": {"k": "v"}}), "update_config", only=True
    ),
    "add a root": Done(
        lambda ds: ds.add_bases([lance.DatasetBasePath("/elsewhere", "other")]), "update_bases", only=True
    ),
}


def check_told(uri: str, version: int, done: Done) -> pa.Table | None:
    """What tail and history say of a version is what pylance shows to have happened; the inserted rows."""
    change, row = change_of(uri, version), row_of(uri, version)
    dataset = lance.dataset(uri, version=version)
    assert change.schema.equals(dataset.schema, check_metadata=True)
    assert (change.operation, row.operation) == (done.operation, done.operation)
    assert change.only_inserts is done.only
    assert (row.rows_in, row.rows_out, row.files_in, row.files_out) == (*done.rows, *done.files)
    told = done.inserted != "never" if dataset.has_stable_row_ids else not isinstance(done.inserted, str)
    if not told:
        assert change.rows is None
        with pytest.raises(UntoldChangeError, match=f"the work of {done.operation}"):
            change.inserted()
        return None
    inserted = change.inserted()
    came = ids(uri, version) - ids(uri, version - 1)
    assert inserted["id"].to_pylist() == sorted(came if isinstance(done.inserted, str) else done.inserted)
    assert change.rows in (inserted.num_rows, None)
    assert inserted.schema.equals(change.schema, check_metadata=True)
    assert change.inserted(["text"]).equals(inserted.select(["text"]))
    return inserted


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
    if inserted[0] is not None:
        assert inserted[0].equals(inserted[1], check_metadata=True)


def linked(table: Path, folder: Path) -> Path:
    """The table under a name in this folder, beside which copies may be made."""
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
    ("name", "rows", "files"),
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
    name: str, rows: tuple[int, int], files: tuple[int, int], clone: Path, tmp_path: Path
) -> None:
    check_both(linked(clone, tmp_path), replace_in(ACTS[name], rows=rows, files=files))


def test_a_compaction_of_a_clone(clone: Path, tmp_path: Path) -> None:
    """To indices that it wrote anew pylance leaves the old root, and can't search its own version."""
    both = replayed(linked(clone, tmp_path), ACTS["compact"].act)
    version, uri = lance.dataset(str(both.ours)).version, str(both.ours)
    check_reading(uri, version)
    check_told(uri, version, ACTS["compact"])
    with pytest.raises(DamagedError, match="names a file that is missing"):
        lakefold.open(both.theirs).count_rows("id = 4")


def test_versions_that_a_clone_and_a_branch_begin_with(clone: Path, branch: Path) -> None:
    main = str(branch.parents[2])
    for uri in (main, str(branch), str(clone)):
        first = min(one["version"] for one in lance.dataset(uri).versions())
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
    assert [type(one) for one in results] == [Committed] * 3
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


def test_a_version_of_our_own_is_told_by_its_first_bytes(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    version = lance.dataset(str(copy)).version
    fold(owned(copy), send(copy, built(copy, lambda ds: ds.delete("id = 1"))), 0)
    recording = Recording(open_storage(copy))
    begun = tail_of(source_on(recording), version)
    recording.calls.clear()
    (change,) = begun
    assert (change.operation, change.rows, change.only_inserts) == ("delete", 0, False)
    assert recording.calls == ["get_range", "get_range"]


def test_rows_are_told_from_the_record_where_the_version_before_is_gone(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    version = lance.dataset(str(copy)).version
    fold(owned(copy), send(copy, built(copy, upsert([1, 50_000]))), 0)
    (copy / open_source(str(copy)).versions.path(version)).unlink()
    row = row_of(str(copy), version + 1)
    assert (row.rows_in, row.rows_out, row.files_in, row.files_out) == (2, 1, None, None)
