"""Proposals that look sound and would make a table lie: pylance commits most, and then reads wrongly."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import decode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, numbered, owned, proposal, written
from tests.oracle.operations import both_ways, copy_files, version_of
from tests.oracle.rebasing import built, send
from tests.oracle.test_hostile_rewrites import FORMS, ranged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.operations import Act


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    lists = pa.array([[number] for number in numbers], pa.list_(pa.int64()))
    return pa.table({"a": pa.array(numbers, pa.int64()), "l": lists})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three fragments of ten rows."""
    lance.write_dataset(rows(0, 30), str(tmp_path / "t"), max_rows_per_file=10)
    return tmp_path / "t"


def count_matching(table: Path, condition: str) -> int:
    dataset = lance.dataset(str(table))
    dataset.validate()
    return int(dataset.to_table(filter=condition).num_rows)


def copy_of(table: Path, act: Act) -> Path:
    """A copy of the table that pylance has done `act` to; the files that it wrote lie in the table too."""
    copy = table.with_name(f"{table.name}-copy")
    shutil.copytree(table, copy)
    act(lance.dataset(str(copy)))
    copy_files(copy, table)
    return copy


def proposed(table: Path, copy: Path) -> Envelope:
    """What was done to the copy, as a proposal to the table."""
    envelope = Envelope(table=canonical(str(table)))
    transaction = version_of(copy).transaction
    assert transaction is not None
    envelope.lance.CopyFrom(transaction)
    return envelope


def test_a_new_fragment_takes_no_id_that_an_index_covers(table: Path) -> None:
    """Indices cover removed fragments, too: a filter would find none of the new rows."""
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    lance.dataset(str(table)).delete("a >= 10 and a < 20")
    read = lance.dataset(str(table)).version
    fragments = written(table, rows(100, 10))
    ours = owned(table)
    (result,) = fold(ours, [proposal(table, numbered(fragments, [1]), read)], 0)
    assert isinstance(result, Invalid)
    assert "fragment ids [1] were used before" in result.message
    (result,) = fold(ours, [proposal(table, numbered(fragments, [7]), read, "again")], 1)
    assert isinstance(result, Committed)
    assert count_matching(table, "a = 105") == 1


@pytest.mark.parametrize("name", ["sub/a.lance", "a%41.lance", "é.lance", "a#.lance"])
def test_a_data_file_has_a_name_that_clients_find(name: str, table: Path) -> None:
    envelope = proposal(table, written(table, rows(100, 10)), 1)
    file = envelope.lance.append.fragments[0].files[0]
    (table / "data" / name).parent.mkdir(exist_ok=True)
    (table / "data" / file.path).rename(table / "data" / name)
    file.path = name
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Invalid)
    assert "no Lance client finds" in result.message
    assert count_matching(table, "a >= 0") == 30


def test_rows_are_deleted_though_a_column_was_dropped_meanwhile(table: Path) -> None:
    lance.dataset(str(table)).add_columns({"c": "a * 2"})
    envelope, copy = built(table, lambda dataset: dataset.delete("a = 3"))
    lance.dataset(str(table)).drop_columns(["c"])
    (result,) = fold(owned(table), send(table, (envelope, copy)), 0)
    assert isinstance(result, Committed), result
    assert [len(fragment.files) for fragment in version_of(table).manifest.fragments] == [1, 1, 1]
    assert count_matching(table, "a = 3") == 0
    assert count_matching(table, "a < 30") == 29


def other_lists(dataset: lance.LanceDataset) -> None:
    """Another file for the column of lists, in the first fragment."""
    values = rows(1000, 10).select(["l"])
    with LanceFileWriter(f"{dataset.uri}/data/lists.lance", values.schema, version="2.2") as writer:
        writer.write_batch(values)
    group = LanceOperation.DataReplacementGroup(0, DataFile.create(dataset, "lists.lance"))
    operation = LanceOperation.DataReplacement([group])
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def updated_lists(dataset: lance.LanceDataset) -> None:
    """The same by an Update, which names the item of the lists as what it modifies."""
    fragment = dataset.get_fragment(0)
    assert fragment is not None
    values = rows(0, 10).set_column(1, "l", rows(1000, 10)["l"])
    changed, fields = fragment.update_columns(values, left_on="a", right_on="a")
    operation = LanceOperation.Update(
        removed_fragment_ids=[],
        updated_fragments=[changed],
        new_fragments=[],
        fields_modified=fields,
        fields_for_preserving_frag_bitmap=[],
        update_mode="rewrite_columns",
    )
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def index_lists(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("l", "LABEL_LIST")


OTHER_LISTS = {"replaced": other_lists, "updated": updated_lists}


@pytest.mark.parametrize("act", OTHER_LISTS.values(), ids=OTHER_LISTS)
def test_an_index_on_lists_forgets_lists_that_changed(act: Act, table: Path) -> None:
    index_lists(lance.dataset(str(table)))
    both = both_ways(table, act)
    assert isinstance(both.result, Committed)
    (index,) = version_of(both.ours).indices.indices
    assert list(decode_bitmap(index.fragment_bitmap)) == [1, 2]
    assert count_matching(both.ours, "array_has_any(l, [3])") == 0
    assert count_matching(both.ours, "array_has_any(l, [1003])") == 1


def test_an_index_on_lists_is_not_added_if_they_were_replaced_meanwhile(table: Path) -> None:
    copy = copy_of(table, index_lists)
    other_lists(lance.dataset(str(table)))
    (result,) = fold(owned(table), [proposed(table, copy)], 0)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable


def test_an_index_on_lists_leaves_out_what_was_updated_meanwhile(table: Path) -> None:
    copy = copy_of(table, index_lists)
    updated_lists(lance.dataset(str(table)))
    (result,) = fold(owned(table), [proposed(table, copy)], 0)
    assert isinstance(result, Committed)
    assert count_matching(table, "array_has_any(l, [3])") == 0
    assert count_matching(table, "array_has_any(l, [1003])") == 1


def test_an_index_is_checked_against_everything_after_it_was_built(table: Path) -> None:
    """It is of the version before the restore, though it is proposed on the version after it."""
    lance.dataset(str(table)).delete("a = 3")
    copy = copy_of(table, lambda dataset: dataset.create_scalar_index("a", "BTREE"))
    lance.dataset(str(table), version=1).restore()
    envelope = proposed(table, copy)
    envelope.lance.read_version = 3
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Rejected)
    assert result.conflict.other_version == 3
    assert count_matching(table, "a = 3") == 1


def test_an_index_that_replaces_another_is_checked_from_where_it_was_built(table: Path) -> None:
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    indexed = lance.dataset(str(table)).version
    lance.dataset(str(table)).delete("a = 3")
    copy = copy_of(table, lambda dataset: dataset.create_scalar_index("a", "BTREE", replace=True))
    lance.dataset(str(table), version=indexed).restore()
    envelope = proposed(table, copy)
    envelope.lance.read_version = indexed + 2
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Rejected)
    assert result.conflict.other_version == indexed + 2
    assert count_matching(table, "a = 3") == 1


@pytest.mark.parametrize("form", FORMS)
def test_row_ids_in_a_range_that_ends_above_all_ids_stop_no_committer(form: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    lance.write_dataset(rows(0, 30), str(table), max_rows_per_file=10, enable_stable_row_ids=True)
    copy = copy_of(table, lambda dataset: dataset.update({"l": "[1]"}, where="a > 4 and a < 8"))
    envelope = proposed(table, copy)
    envelope.lance.update.new_fragments[0].inline_row_ids = ranged(0, 64, range(5, 8), form)
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Committed)
    assert count_matching(table, "a > 4 and a < 8") == 3
    ids = lance.dataset(str(table)).to_table(columns=["a"], with_row_id=True)
    assert ids["_rowid"].to_pylist() == ids["a"].to_pylist()


def test_a_schema_that_forbids_nulls_is_not_one_that_preserves_nullability(table: Path) -> None:
    """An Append that was under way would add nulls, and no client could read the table."""
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = "forbid", 1
    envelope.lance.project.schema.extend(version_of(table).manifest.fields)
    envelope.lance.project.schema[0].nullable = False
    envelope.lance.project.preserves_nullability = True
    ours = owned(table)
    (result,) = fold(ours, [envelope], 0)
    assert isinstance(result, Invalid)
    assert "forbids nulls in ['a']" in result.message
    envelope.lance.project.preserves_nullability, envelope.lance.uuid = False, "again"
    envelope.lance.read_version = 2
    (result,) = fold(ours, [envelope], 1)
    assert isinstance(result, Committed)
