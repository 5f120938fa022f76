"""Compactions by pylance, folded by us: fragments, row ids, versions and indices come out the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_table.bitmaps import Bitmap, decode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.rows.row_versions import one_version
from lakefold_table.lance.rows.rowids import row_id_range
from tests.oracle.compactions import append, replayed, rows
from tests.oracle.operations import check_agreement, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction

Act = "Callable[[lance.LanceDataset], object]"


def compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files(target_rows_per_fragment=1000)


def make(path: Path, *, stable: bool, index: bool = True) -> Path:
    lance.write_dataset(rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=stable)
    if index:
        lance.dataset(str(path)).create_scalar_index("a", "BTREE")
        lance.dataset(str(path)).create_scalar_index("s", "BITMAP")
        lance.dataset(str(path)).create_scalar_index("b", "ZONEMAP")
    return path


@pytest.fixture(params=[False, True], ids=["plain", "stable"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Four fragments of ten rows, indexed."""
    return make(tmp_path / "t", stable=bool(request.param))


def nothing(_dataset: lance.LanceDataset) -> None: ...


def updated(dataset: lance.LanceDataset) -> None:
    dataset.update({"b": "b + 100"}, where="a = 3 OR a = 17")


def merged_in(dataset: lance.LanceDataset) -> None:
    upsert = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(rows(35))


def two_appends(dataset: lance.LanceDataset) -> None:
    append(dataset)
    append(dataset, 2000)


def half_covered(dataset: lance.LanceDataset) -> None:
    two_appends(dataset)
    lance.dataset(dataset.uri).create_scalar_index("a", "BITMAP", name="whole")


HISTORIES: dict[str, Callable[[lance.LanceDataset], object]] = {
    "nothing else": nothing,
    "deleted rows": lambda dataset: dataset.delete("a % 3 = 0"),
    "a deleted fragment": lambda dataset: dataset.delete("a >= 10 AND a < 20"),
    "updated rows": updated,
    "merged rows": merged_in,
    "fragments without index": two_appends,
    "fragments of which one index knows": half_covered,
    "another column": lambda dataset: dataset.add_columns({"c": "a * 2"}),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_compaction(name: str, table: Path) -> None:
    HISTORIES[name](lance.dataset(str(table)))
    both = replayed(table, compact)
    check_agreement(both)
    assert isinstance(both.result, Committed)
    assert (both.result.rows_added, both.result.rows_deleted) == (0, 0)
    dataset, other = lance.dataset(str(both.ours)), lance.dataset(str(both.theirs))
    for condition in ("a = 7", "a >= 30", "s = 's1'", "b < 15"):
        assert dataset.count_rows(condition) == other.count_rows(condition), condition


def test_a_second_compaction(table: Path) -> None:
    compact(lance.dataset(str(table)))
    two_appends(lance.dataset(str(table)))
    lance.dataset(str(table)).delete("a = 5 OR a = 1005")
    check_agreement(replayed(table, compact))


def test_compactions_of_parts(table: Path) -> None:
    two_appends(lance.dataset(str(table)))
    check_agreement(
        replayed(table, lambda dataset: dataset.optimize.compact_files(target_rows_per_fragment=20))
    )


def test_a_table_without_indices(tmp_path: Path) -> None:
    path = make(tmp_path / "t", stable=False, index=False)
    check_agreement(replayed(path, compact))


@pytest.mark.parametrize("stable", [False, True])
def test_a_clone_has_the_remapped_indices_itself(tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter
    """It is pylance that leaves the base of the old index on a new index, and doesn't find its files."""
    source = make(tmp_path / "source", stable=stable)
    lance.dataset(str(source)).delete("a = 12")
    lance.dataset(str(source)).shallow_clone(
        str(tmp_path / "t"), reference=lance.dataset(str(source)).version
    )
    both = replayed(tmp_path / "t", compact)
    assert isinstance(both.result, Committed), both.result
    assert both.differences.keys() == {"indices"}
    theirs, ours = (version_of(path).indices.indices for path in (both.theirs, both.ours))
    remapped = {index.name for index in ours if not index.HasField("base_id")}
    assert remapped == ({"a_idx"} if stable else {"a_idx", "s_idx"})
    assert len(theirs) == len(ours)
    dataset = lance.dataset(str(both.ours))
    dataset.validate()
    assert dataset.to_table(filter="a = 7")["a"].to_pylist() == [7]


FITTING: dict[str, Callable[[lance.LanceDataset], object]] = {
    "an append": append,
    "a dropped column": lambda dataset: dataset.drop_columns(["b"]),
    "config": lambda dataset: dataset.update_config({"k": "v"}),
    "a dropped index": lambda dataset: dataset.drop_index("a_idx"),
}


@pytest.mark.parametrize("name", FITTING)
def test_a_compaction_that_others_came_before(name: str, table: Path) -> None:
    both = replayed(table, compact, between=FITTING[name])
    assert isinstance(both.result, Committed), both.result
    assert both.result.rebased
    dataset = lance.dataset(str(both.ours))
    dataset.validate()
    assert dataset.count_rows() == 40 + 10 * (name == "an append")
    assert dataset.to_table(filter="a = 7").num_rows == 1
    lance.write_dataset(dataset.head(1), dataset.uri, mode="append")
    lance.dataset(str(both.ours)).validate()


def test_a_column_that_was_in_no_file_is_dropped_before_the_compaction_that_writes_it(table: Path) -> None:
    """A column added without values is in no data file; a compaction writes its nulls all the same."""
    lance.dataset(str(table)).add_columns(pa.field("c", pa.int32()))
    both = replayed(table, compact, between=lambda dataset: dataset.drop_columns(["c"]))
    assert isinstance(both.result, Committed), both.result
    dataset = lance.dataset(str(both.ours))
    dataset.validate()
    assert len(dataset.get_fragments()) == 1
    assert dataset.to_table().equals(rows(0, 40))
    dataset.add_columns({"d": "a * 2"})
    dataset = lance.dataset(str(both.ours))
    dataset.validate()
    assert dataset.to_table()["d"].to_pylist() == [2 * key for key in range(40)]


CLASHING: dict[str, Callable[[lance.LanceDataset], object]] = {
    "another compaction": lambda dataset: dataset.optimize.compact_files(target_rows_per_fragment=20),
    "another column": lambda dataset: dataset.add_columns({"c": "a * 2"}),
    "a new index": lambda dataset: dataset.create_scalar_index("b", "BTREE", name="b_tree"),
}


@pytest.mark.parametrize("name", CLASHING)
def test_a_compaction_that_came_too_late(name: str, table: Path) -> None:
    both = replayed(table, compact, between=CLASHING[name])
    assert isinstance(both.result, Rejected), both.result
    assert both.result.conflict.retryable


def test_ids_are_assigned_if_none_were_reserved(table: Path) -> None:
    def unnumbered(envelope: Envelope) -> None:
        new_fragment(envelope.lance.rewrite).ClearField("id")
        del envelope.lance.rewrite.rewritten_indices[:]

    both = replayed(table, compact, change=unnumbered)
    check_version_ids(both.ours)


def test_an_index_can_not_be_remapped_to_ids_that_nobody_gave(table: Path) -> None:
    both = replayed(
        table, compact, change=lambda envelope: new_fragment(envelope.lance.rewrite).ClearField("id")
    )
    assert isinstance(both.result, Invalid)
    assert "without ids" in both.result.message


def check_version_ids(ours: Path) -> None:
    """The new fragment has an id of its own, in the transaction and in the coverage of indices too."""
    version = version_of(ours)
    (fragment,) = version.manifest.fragments
    assert fragment.id == 5
    assert version.transaction is not None
    assert version.transaction.rewrite.groups[0].new_fragments[0].id == 5
    dataset = lance.dataset(str(ours))
    dataset.validate()
    assert dataset.to_table(filter="a = 7")["a"].to_pylist() == [7]
    covered = {index.name: index.fragment_bitmap for index in version.indices.indices}
    stable = dataset.has_stable_row_ids
    assert (5 in decode_bitmap(covered["s_idx"])) is stable
    assert not decode_bitmap(covered["a_idx"]) & Bitmap([0, 4]) or not stable


def test_an_older_form_of_the_message(table: Path) -> None:
    def older(envelope: Envelope) -> None:
        rewrite = envelope.lance.rewrite
        (group,) = rewrite.groups
        rewrite.old_fragments.extend(group.old_fragments)
        rewrite.new_fragments.extend(group.new_fragments)
        del rewrite.groups[:]

    check_agreement(replayed(table, compact, change=older))


def new_fragment(rewrite: Transaction.Rewrite) -> DataFragment:
    return rewrite.groups[0].new_fragments[0]


def lose_a_row(rewrite: Transaction.Rewrite) -> None:
    new_fragment(rewrite).physical_rows -= 1


def twice(rewrite: Transaction.Rewrite) -> None:
    rewrite.groups.add().CopyFrom(rewrite.groups[0])


def take_a_live_id(rewrite: Transaction.Rewrite) -> None:
    new_fragment(rewrite).id = 2


def miss_a_fragment(rewrite: Transaction.Rewrite) -> None:
    rewrite.groups[0].old_fragments[1].id = 77


def other_file(rewrite: Transaction.Rewrite) -> None:
    rewrite.groups[0].old_fragments[1].files[0].path = "other.lance"


def fewer_files(rewrite: Transaction.Rewrite) -> None:
    fragment = rewrite.groups[0].old_fragments[1]
    fragment.files.add().CopyFrom(fragment.files[0])


def other_deleted_rows(rewrite: Transaction.Rewrite) -> None:
    rewrite.groups[0].old_fragments[1].deletion_file.num_deleted_rows = 1


def other_size(rewrite: Transaction.Rewrite) -> None:
    new_fragment(rewrite).files[0].file_size_bytes += 1


def no_file(rewrite: Transaction.Rewrite) -> None:
    new_fragment(rewrite).files[0].path = "missing.lance"


def deleted_in_new(rewrite: Transaction.Rewrite) -> None:
    new_fragment(rewrite).deletion_file.num_deleted_rows = 1


def unknown_field(rewrite: Transaction.Rewrite) -> None:
    new_fragment(rewrite).files[0].fields.append(77)
    new_fragment(rewrite).files[0].column_indices.append(3)


def from_nothing(rewrite: Transaction.Rewrite) -> None:
    del rewrite.groups[0].old_fragments[:]


def remapped_twice(rewrite: Transaction.Rewrite) -> None:
    rewrite.rewritten_indices.add().CopyFrom(rewrite.rewritten_indices[0])


def remapped_without_files(rewrite: Transaction.Rewrite) -> None:
    rewrite.rewritten_indices[0].new_id.uuid = bytes(16)


def remapped_to_no_uuid(rewrite: Transaction.Rewrite) -> None:
    rewrite.rewritten_indices[0].new_id.uuid = b"short"


WRONG: dict[str, Callable[[Transaction.Rewrite], None]] = {
    "39 rows are written for the 40": lose_a_row,
    "rewritten twice": twice,
    r"fragment ids \[2\] are in use": take_a_live_id,
    r"fragments \[77\] are not in the table": miss_a_fragment,
    "fragment 1 has other files or rows": other_file,
    "has other files or rows in the table": fewer_files,
    "files or rows in the table": other_deleted_rows,
    "the transaction says": other_size,
    "missing.lance is missing": no_file,
    "no deletion file": deleted_in_new,
    r"field ids \[77\]": unknown_field,
    "rewrites no fragment": from_nothing,
    "remapped twice": remapped_twice,
    "is missing": remapped_without_files,
    "has no uuid": remapped_to_no_uuid,
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_rewrite_is_refused(message: str, table: Path) -> None:
    def wrong(envelope: Envelope) -> None:
        """The reservation is all that came in between; it changed no fragment."""
        envelope.lance.read_version += 1
        WRONG[message](envelope.lance.rewrite)

    both = replayed(table, compact, change=wrong)
    assert isinstance(both.result, Invalid), both.result
    assert re.search(message, both.result.message)
    assert both.result.hint


def test_a_dead_id_that_an_index_still_covers_is_not_given_again(table: Path) -> None:
    lance.dataset(str(table)).delete("a >= 10 AND a < 20")

    def take(envelope: Envelope) -> None:
        new_fragment(envelope.lance.rewrite).id = 1

    both = replayed(table, compact, change=take)
    assert isinstance(both.result, Invalid)
    assert "were used before" in both.result.message


def test_fragments_of_which_an_index_knows_a_part_are_not_made_into_one(table: Path) -> None:
    two_appends(lance.dataset(str(table)))

    def into_one(envelope: Envelope) -> None:
        first, second = envelope.lance.rewrite.groups
        first.old_fragments.extend(second.old_fragments)
        first.new_fragments.extend(second.new_fragments)
        del envelope.lance.rewrite.groups[1]

    both = replayed(table, compact, change=into_one)
    assert isinstance(both.result, Invalid)
    assert "covers only [0, 1, 2, 3]" in both.result.message


STABLE_WRONG: dict[str, Callable[[DataFragment], None]] = {
    "rows would be lost": lambda fragment: setattr(fragment, "inline_row_ids", row_id_range(1, 40)),
    "can't be read": lambda fragment: setattr(fragment, "inline_row_ids", row_id_range(0, 39)),
    "39 row ids for 40|0 row ids": lambda fragment: fragment.ClearField("inline_row_ids"),
    "have other versions than in the old": lambda fragment: setattr(
        fragment, "inline_created_at_versions", one_version(40, 2)
    ),
    "other versions than in the old ones": lambda fragment: setattr(
        fragment, "inline_last_updated_at_versions", one_version(40, 2)
    ),
    "row versions for 40": lambda fragment: setattr(
        fragment, "inline_last_updated_at_versions", one_version(39, 1)
    ),
}


@pytest.mark.parametrize("message", STABLE_WRONG)
def test_row_ids_and_versions_must_be_those_of_the_rows(message: str, tmp_path: Path) -> None:
    both = replayed(
        make(tmp_path / "t", stable=True),
        compact,
        change=lambda envelope: STABLE_WRONG[message](new_fragment(envelope.lance.rewrite)),
    )
    assert isinstance(both.result, Invalid), both.result
    assert re.search(message, both.result.message)


def test_versions_that_are_not_brought_are_taken_over(tmp_path: Path) -> None:
    table = make(tmp_path / "t", stable=True)
    updated(lance.dataset(str(table)))
    lance.dataset(str(table)).delete("a = 20")

    def without(envelope: Envelope) -> None:
        new_fragment(envelope.lance.rewrite).ClearField("inline_created_at_versions")
        new_fragment(envelope.lance.rewrite).ClearField("inline_last_updated_at_versions")

    both = replayed(table, compact, change=without)
    assert isinstance(both.result, Committed), both.result
    columns = ["a", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    ours, theirs = (lance.dataset(str(path)).to_table(columns=columns) for path in (both.ours, both.theirs))
    assert ours.equals(theirs)
