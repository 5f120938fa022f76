"""The fragment-reuse index: compactions that leave indices as they are, and all that comes after them."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails
from lakefold_table.bitmaps import Bitmap, decode_treemap, encode_treemap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.indexing.reuse import remapped
from lakefold_table.lance.manifests.naming import index_path
from tests.oracle.compactions import append, envelopes_of, replayed, reuse_of, rows
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import both_ways, comparable, copy_files, differences, version_of
from tests.oracle.reusing import deferred, deferred_in_parts, details, indexed, sent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.oracle.operations import Both

Version = FragmentReuseIndexDetails.Version


def compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files(target_rows_per_fragment=1000)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """See `indexed`."""
    return indexed(tmp_path / "t")


def read_alike(both: Both) -> None:
    """We committed; the manifests agree once both tables' indices are read through the moves of rows."""
    assert isinstance(both.result, Committed), both.result
    assert both.differences.keys() <= {"indices"}
    sections = []
    for path in (both.theirs, both.ours):
        version = version_of(path)
        indices = remapped(version.manifest, list(version.indices.indices), lambda _path: None)
        sections.append([comparable(index) for index in indices])
    assert sections[0] == sections[1]
    found_by_index(both.ours, both.theirs)


def found_by_index(ours: Path, theirs: Path) -> None:
    """Pylance finds the same rows by index in both, also after it has committed to ours."""
    for _ in range(2):
        dataset, other = lance.dataset(str(ours)), lance.dataset(str(theirs))
        dataset.validate()
        for condition in ("a = 7", "a >= 30", "s = 's1'", "b < 15"):
            values = [
                sorted(dataset.to_table(columns=["a"], filter=condition)["a"].to_pylist())
                for dataset in (dataset, other)
            ]
            assert values[0] == values[1], condition
        for each in (dataset, other):
            append(each, 5000)


@pytest.mark.parametrize("act", [deferred, deferred_in_parts])
def test_a_deferred_compaction(act: Callable[[lance.LanceDataset], None], table: Path) -> None:
    both = replayed(table, act)
    assert isinstance(both.result, Committed), both.result
    assert both.differences == {}
    assert reuse_of(version_of(both.ours)) == reuse_of(version_of(both.theirs))
    found_by_index(both.ours, both.theirs)


def test_a_second_one_adds_to_it(table: Path) -> None:
    deferred_in_parts(lance.dataset(str(table)))
    read_alike(replayed(table, deferred))


def changed_columns(dataset: lance.LanceDataset) -> None:
    """A value of `b` changed in place."""
    fragment = next(fragment for fragment in dataset.get_fragments() if fragment.count_rows("a = 2"))
    changed = pa.table({"a": pa.array([2], pa.int64()), "b": pa.array([777], pa.int64())})
    updated, fields = fragment.update_columns(changed, left_on="a", right_on="a")
    lance.LanceDataset.commit(
        dataset.uri,
        LanceOperation.Update(
            updated_fragments=[updated], fields_modified=fields, update_mode="rewrite_columns"
        ),
        read_version=dataset.version,
    )


AFTER: dict[str, Callable[[lance.LanceDataset], object]] = {
    "rows deleted": lambda dataset: dataset.delete("a = 2"),
    "rows updated": lambda dataset: dataset.update({"b": "b + 100"}, where="a = 2"),
    "columns changed": changed_columns,
    "an index dropped": lambda dataset: dataset.drop_index("b_idx"),
    "an index replaced": lambda dataset: dataset.create_scalar_index("b", "BTREE", replace=True),
    "indices remapped": lambda dataset: dataset.optimize.optimize_indices(),
    "rows added": append,
}


@pytest.mark.parametrize("name", AFTER)
def test_what_comes_after_one(name: str, table: Path) -> None:
    deferred_in_parts(lance.dataset(str(table)))
    read_alike(both_ways(table, AFTER[name]))


def test_a_compaction_that_remaps_after_one_that_did_not(table: Path) -> None:
    """Indices cover no moved rows in ours; those of pylance hide rows (decision 0114)."""
    deferred_in_parts(lance.dataset(str(table)))
    both = replayed(table, compact)
    assert isinstance(both.result, Committed)
    assert reuse_of(version_of(both.ours)) is None
    rows = lance.dataset(str(both.ours)).to_table().to_pylist()
    for column, value in {(column, row[column]) for row in rows for column in ("a", "s", "b")}:
        searched = lance.dataset(str(both.ours)).count_rows(f"{column} = {value!r}")
        assert searched == sum(row[column] == value for row in rows)


def test_values_changed_after_one_are_found(table: Path) -> None:
    deferred(lance.dataset(str(table)))
    both = both_ways(table, changed_columns)
    assert isinstance(both.result, Committed)
    actual = lance.dataset(str(both.ours)).to_table(columns=["a"], filter="b = 777")
    assert actual["a"].to_pylist() == [2]


def test_an_index_built_before_one_and_sent_after_it(table: Path) -> None:
    read_alike(
        both_ways(
            table, lambda dataset: dataset.create_scalar_index("a", "BITMAP", name="late"), between=deferred
        )
    )


def moved_and_changed(dataset: lance.LanceDataset) -> None:
    deferred(dataset)
    changed_columns(lance.dataset(dataset.uri))


def test_an_index_built_before_its_rows_moved_and_then_changed(table: Path) -> None:
    both = replayed(
        table,
        lambda dataset: dataset.create_scalar_index("b", "BITMAP", name="late"),
        between=moved_and_changed,
    )
    assert isinstance(both.result, Committed), both.result
    lance.dataset(str(both.ours)).drop_index("b_idx")
    dataset = lance.dataset(str(both.ours))
    assert dataset.to_table(columns=["a"], filter="b = 777")["a"].to_pylist() == [2]
    assert dataset.count_rows("b = 2") == 0


def put_in_a_file(envelope: Envelope, table: Path) -> None:
    """The details of the envelope's index in a file, as pylance does with large details."""
    index = envelope.fragment_reuse_index
    content = details(index).inline.SerializeToString()
    path = table / index_path(index.uuid.uuid, "details.binpb")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    external = FragmentReuseIndexDetails()
    external.external.path, external.external.size = "details.binpb", len(content)
    index.index_details.value = external.SerializeToString()


def test_details_in_a_file_stay_there(table: Path) -> None:
    ours = table.with_name("t-ours")
    both = replayed(table, deferred_in_parts, change=lambda envelope: put_in_a_file(envelope, ours))
    assert isinstance(both.result, Committed), both.result
    assert both.differences.keys() == {"indices"}
    index = reuse_of(version_of(ours))
    assert index is not None
    assert details(index).HasField("external")
    found_by_index(ours, both.theirs)
    # The next operation that needs them fetches them.
    theirs, first = ours.with_name("t-more"), len(manifest_files(ours))
    shutil.copytree(ours, theirs)
    changed_columns(lance.dataset(str(theirs)))
    copy_files(theirs, ours)
    (result,) = sent(ours, *envelopes_of(theirs, ours, first))
    assert isinstance(result, Committed), result
    assert not differences(version_of(theirs), version_of(ours))
    assert reuse_of(version_of(ours)) == index


def test_details_in_a_missing_file(table: Path) -> None:
    def without(envelope: Envelope) -> None:
        put_in_a_file(envelope, table.with_name("nowhere"))

    both = replayed(table, deferred, change=without)
    assert isinstance(both.result, Invalid)
    assert "missing" in both.result.message


def edit(change: Callable[[Version], None]) -> Callable[[Envelope], None]:
    """Edits what the envelope's index records of its last compaction."""

    def edited(envelope: Envelope) -> None:
        reported = details(envelope.fragment_reuse_index)
        change(reported.inline.versions[-1])
        envelope.fragment_reuse_index.index_details.value = reported.SerializeToString()

    return edited


def forget_a_row(version: Version) -> None:
    bitmap = decode_treemap(version.groups[0].changed_row_addrs)
    bitmap[0].remove(2)
    version.groups[0].changed_row_addrs = encode_treemap(bitmap)


def tell_of_a_deleted_row(version: Version) -> None:
    bitmap = decode_treemap(version.groups[0].changed_row_addrs)
    bitmap[0].add(1)
    version.groups[0].changed_row_addrs = encode_treemap(bitmap)


def tell_of_another_fragment(version: Version) -> None:
    bitmap = decode_treemap(version.groups[0].changed_row_addrs)
    version.groups[0].changed_row_addrs = encode_treemap({**bitmap, 77: Bitmap([1])})


def other_count(version: Version) -> None:
    version.groups[0].old_fragments[0].num_deleted_rows += 1


def other_new_fragment(version: Version) -> None:
    version.groups[0].new_fragments[0].id = 99


def other_rows(version: Version) -> None:
    version.groups[0].new_fragments[0].physical_rows += 1


def no_bitmap(version: Version) -> None:
    version.groups[0].changed_row_addrs = b"x"


def later(version: Version) -> None:
    version.dataset_version = 99


WRONG: dict[str, Callable[[Version], None]] = {
    r"other rows than fragments \[0\] have": forget_a_row,
    r"than fragments \[0\]": tell_of_a_deleted_row,
    r"than fragments \[77\]": tell_of_another_fragment,
    "lists other rows": other_count,
    "doesn't describe this rewrite": other_new_fragment,
    r"rows than fragments \[10\] have": other_rows,
    "can't be read": no_bitmap,
    "is for version 99": later,
}


@pytest.mark.parametrize("message", WRONG)
def test_an_index_with_wrong_details_is_refused(message: str, table: Path) -> None:
    both = replayed(table, deferred, change=edit(WRONG[message]))
    assert isinstance(both.result, Invalid), both.result
    assert re.search(message, both.result.message)


def test_an_index_of_another_name_is_refused(table: Path) -> None:
    def renamed(envelope: Envelope) -> None:
        envelope.fragment_reuse_index.name = "other"

    both = replayed(table, deferred, change=renamed)
    assert isinstance(both.result, Invalid)


def test_a_wrong_coverage_is_put_right(table: Path) -> None:
    def uncovered(envelope: Envelope) -> None:
        envelope.fragment_reuse_index.fragment_bitmap = b""

    both = replayed(table, deferred, change=uncovered)
    assert isinstance(both.result, Committed)
    assert both.differences == {}


def test_two_compactions_at_once(table: Path) -> None:
    append(lance.dataset(str(table)))
    append(lance.dataset(str(table)), 2000)
    both = replayed(
        table,
        deferred,
        between=lambda dataset: dataset.optimize.compact_files(
            target_rows_per_fragment=20, defer_index_remap=True
        ),
    )
    assert isinstance(both.result, Rejected)
    assert both.result.conflict.retryable


def test_rows_with_stable_ids_need_none(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=True)

    def carrying(envelope: Envelope) -> None:
        envelope.fragment_reuse_index.name = "__lance_frag_reuse"

    both = replayed(path, compact, change=carrying)
    assert isinstance(both.result, Invalid)
    assert "stable row ids" in both.result.message
