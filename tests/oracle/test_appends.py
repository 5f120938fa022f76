"""An Append folded by us makes the manifest that pylance makes of it, apart from a short list of fields."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import lance
import pytest

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Invalid
from lakefold_table.lance.state import LanceState
from tests.oracle.committing import fold, numbered, owned, proposal, rows, state, written

# What we remember of the log.
PREFIX = "lakefold."


Prepare = Callable[[lance.LanceDataset], object]


@dataclass(frozen=True)
class Case:
    """A table, what happened to it, and the Appends proposed to it: rows, and ids if they have some."""

    prepare: Prepare | None = None
    appends: tuple[tuple[int, tuple[int, ...]], ...] = ((5, ()),)
    read: int = 0
    versions: Literal["legacy", "2.0", "2.2"] = "2.2"
    files: str = "2.2"
    v2_names: bool = True


def deletions(dataset: lance.LanceDataset) -> None:
    dataset.delete("a = 3 or a > 35")


def a_fragment_gone(dataset: lance.LanceDataset) -> None:
    dataset.delete("a >= 30")


def an_index(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("s", "BITMAP")


def everything(dataset: lance.LanceDataset) -> None:
    an_index(dataset)
    deletions(dataset)
    dataset.update({"s": "'new'"}, where="a % 3 = 0")
    dataset.update_config({"k": "v"})
    dataset.update_metadata({"owner": "me"})
    dataset.update_schema_metadata({"unit": "m"})
    dataset.update_field_metadata({"s": {"label": "text"}})
    dataset.optimize.compact_files()


def columns_change(dataset: lance.LanceDataset) -> None:
    dataset.add_columns({"twice": "a * 2"})
    dataset.drop_columns(["twice"])


CASES = {
    "plain": Case(),
    "on an older version": Case(prepare=deletions, read=1),
    "after deletions": Case(prepare=deletions),
    "after the last fragment is gone": Case(prepare=a_fragment_gone),
    "with indices": Case(prepare=an_index),
    "after everything": Case(prepare=everything),
    "after columns came and went": Case(prepare=columns_change),
    "several fragments": Case(appends=((25, ()),)),
    "no fragment": Case(appends=((0, ()),)),
    "one after the other": Case(appends=((5, ()), (25, ()), (0, ()), (1, ()))),
    "with an id": Case(appends=((5, (9,)), (5, ()))),
    "with ids and without": Case(appends=((25, (0, 9, 0)), (25, (7, 40, 0)))),
    "with ids out of order": Case(appends=((25, (30, 8, 20)),)),
    "files of another version": Case(versions="2.0", files="2.2"),
    "files of another version, then of its own": Case(
        versions="2.2", files="2.1", appends=((3, ()), (3, ()))
    ),
    "older files": Case(versions="legacy", files="legacy"),
    "older names": Case(v2_names=False),
}


def made(path: Path, case: Case, *, stable: bool) -> lance.LanceDataset:
    dataset = lance.write_dataset(
        rows(0, 40),
        str(path),
        max_rows_per_file=10,
        data_storage_version=case.versions,
        enable_stable_row_ids=stable,
        enable_v2_manifest_paths=case.v2_names,
    )
    if case.prepare is not None:
        case.prepare(dataset)
    return lance.dataset(str(path))


def normal(head: Manifest) -> Manifest:
    """A copy without what may differ: when and by whom it was made, the offsets of its parts, our marks."""
    copy = Manifest()
    copy.CopyFrom(head)
    copy.ClearField("timestamp")
    copy.ClearField("writer_version")
    copy.ClearField("transaction_file")
    copy.ClearField("transaction_section")
    copy.ClearField("index_section")
    for key in [key for key in copy.table_metadata if key.startswith(PREFIX)]:
        del copy.table_metadata[key]
    return copy


def check_equal(theirs: LanceState, ours: LanceState) -> None:
    assert normal(ours.head) == normal(theirs.head)
    assert list(ours.fragments) == list(theirs.fragments)
    assert ours.index_section == theirs.index_section
    their_transaction, our_transaction = theirs.transaction, ours.transaction
    assert their_transaction is not None
    assert our_transaction is not None
    assert list(our_transaction.append.fragments) == list(their_transaction.append.fragments)
    rest = Transaction()
    rest.CopyFrom(our_transaction)
    rest.ClearField("read_version")
    rest.ClearField("uuid")
    rest.ClearField("transaction_properties")
    rest.ClearField("append")
    assert rest == Transaction()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_same_append(case: Case, *, stable: bool, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    dataset = made(theirs, case, stable=stable)
    read = case.read or dataset.version
    proposed = []
    for number, (count, ids) in enumerate(case.appends):
        fragments = written(theirs, rows(100 * number, count), case.files) if count else []
        proposed.append(numbered(fragments, ids) if ids else fragments)
    shutil.copytree(theirs, ours)
    table = owned(ours)
    for offset, fragments in enumerate(proposed):
        dataset = lance.LanceDataset.commit(
            str(theirs), lance.LanceOperation.Append(fragments), read_version=read
        )
        (result,) = fold(table, [proposal(ours, fragments, read, f"u{offset}")], offset)
        assert isinstance(result, Committed)
        assert result.version == dataset.version
        check_equal(state(theirs), state(ours))
    mine = lance.dataset(str(ours))
    mine.validate()
    dataset.validate()
    assert mine.to_table() == dataset.to_table()
    assert mine.to_table(filter="a = 102 or a = 7") == dataset.to_table(filter="a = 102 or a = 7")
    assert [fragment.fragment_id for fragment in mine.get_fragments()] == [
        fragment.fragment_id for fragment in dataset.get_fragments()
    ]


@pytest.mark.parametrize("ids", [(2,), (0, 4), (4, 0), (9, 9)])
def test_ids_that_pylance_refuses_we_refuse(ids: tuple[int, ...], tmp_path: Path) -> None:
    table = tmp_path / "t"
    made(table, Case(), stable=False)
    fragments = numbered(written(table, rows(100, 10 * len(ids))), ids)
    (result,) = fold(owned(table), [proposal(table, fragments, 1)], 0)
    assert isinstance(result, Invalid)
    with pytest.raises(OSError, match="two fragments with id"):
        lance.LanceDataset.commit(str(table), lance.LanceOperation.Append(fragments), read_version=1)


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_appends_that_share_a_version_leave_what_single_ones_leave(tmp_path: Path, *, stable: bool) -> None:
    """Fragments, rows and ids are the same; there is one version instead of many."""
    path, many = tmp_path / "one", tmp_path / "many"
    made(path, Case(), stable=stable)
    fragments = [written(path, rows(100 * n, 15)) for n in range(4)]
    shutil.copytree(path, many)
    fold(owned(path), [proposal(path, each, 1, f"u{n}") for n, each in enumerate(fragments)], 0)
    table = owned(many)
    for number, each in enumerate(fragments):
        fold(table, [proposal(many, each, 1, f"u{number}")], number)
    shared, single = state(path), state(many)
    assert (shared.version, single.version) == (2, 5)
    for head in (shared.head, single.head):
        head.version = 0
    assert normal(shared.head) == normal(single.head)
    columns = ["a", "s", "_rowid"]
    tables = [lance.dataset(str(path)) for path in (path, many)]
    assert tables[0].to_table(columns) == tables[1].to_table(columns)
    for dataset in tables:
        dataset.validate()


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_a_table_created_with_rows(tmp_path: Path, *, stable: bool) -> None:
    """An Overwrite on nothing, by pylance and by us."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    fragments = lance.fragment.write_fragments(rows(0, 25), str(theirs), max_rows_per_file=10)
    shutil.copytree(theirs, ours)
    schema = rows(0, 1).schema
    dataset = lance.LanceDataset.commit(
        str(theirs), lance.LanceOperation.Overwrite(schema, fragments), enable_stable_row_ids=stable
    )
    made_by_pylance = state(theirs)
    envelope = proposal(ours, fragments, 0)
    proposed = list(envelope.lance.append.fragments)
    envelope.lance.overwrite.fragments.extend(proposed)
    envelope.lance.overwrite.schema.extend(made_by_pylance.head.fields)
    envelope.create.stable_row_ids = stable
    assert isinstance(fold(owned(ours), [envelope], 0)[0], Committed)
    assert normal(state(ours).head) == normal(made_by_pylance.head)
    assert list(state(ours).fragments) == list(made_by_pylance.fragments)
    mine = lance.dataset(str(ours))
    mine.validate()
    assert mine.to_table() == dataset.to_table()
