"""A refused upsert that is built again reads what changed meanwhile, and is committed beside appends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.merge.clauses import MatchedUpdate, Merge
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_table.entry import Committed
from lakefold_table.lance.conflicts.keys import APPENDS, LATER
from tests.merging import Folding, people, record_scans, row_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

BATCH = [3, 15, 100, 101]
Reads = list[set[int] | None]


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def folding(tmp_path: Path, request: pytest.FixtureRequest) -> Folding:
    """40 rows in fragments of 10."""
    data = people(list(range(40)))
    lance.write_dataset(data, str(tmp_path / "t"), max_rows_per_file=10, enable_stable_row_ids=request.param)
    return Folding(tmp_path / "t")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The fragments of each scan, None for all."""
    return record_scans(monkeypatch, lambda _, fragments: None if fragments is None else set(fragments))


def append(folding: Folding, ids: list[int]) -> None:
    batch = people(ids, "appended")
    operation = AppendRows(batch.schema, lambda target: list(target.write(batch.to_batches())))
    assert folding.put(operation) is not None


def built(folding: Folding, operation: UpsertRows) -> Envelope:
    envelope = folding.build(operation)
    assert envelope is not None
    return envelope


def upsert(ids: list[int] | None = None) -> UpsertRows:
    return UpsertRows(people(BATCH if ids is None else ids, "second"), Merge(("id",)))


def paths(envelope: Envelope) -> list[str]:
    return [file.path for each in envelope.lance.update.new_fragments for file in each.files]


def names(folding: Folding) -> dict[object, str]:
    """The name of each id; each id must be in one row."""
    rows = folding.rows("id", "name")
    by_id = {row["id"]: str(row["name"]) for row in rows}
    assert len(by_id) == len(rows)
    return by_id


def test_only_appended_rows_are_read_and_the_files_are_used_again(folding: Folding, reads: Reads) -> None:
    operation = upsert()
    first = built(folding, operation)
    append(folding, [200, 201])
    append(folding, [202])
    assert "appended rows may have the same keys" in folding.refused(first).conflict.message
    reads.clear()
    again = built(folding, operation)
    assert reads == [{4, 5}]
    assert paths(again) == paths(first)
    assert again.lance.update.updated_fragments == first.lance.update.updated_fragments
    (result,) = folding.fold(again)
    assert isinstance(result, Committed)
    by_id = names(folding)
    assert (by_id[3], by_id[100], by_id[201]) == ("second 3", "second 100", "appended 201")


def test_an_appended_row_with_the_same_key_is_updated(folding: Folding) -> None:
    operation = upsert()
    first = built(folding, operation)
    append(folding, [100, 200])
    folding.refused(first)
    ids = row_ids(folding.path)
    folding.fold(built(folding, operation))
    assert {key: name for key, name in names(folding).items() if name.startswith("second")} == {
        number: f"second {number}" for number in BATCH
    }
    if lance.dataset(str(folding.path)).has_stable_row_ids:
        assert row_ids(folding.path)[100] == ids[100]


def test_appends_after_the_second_time_count_as_made_after_it(folding: Folding) -> None:
    operation = upsert()
    first = built(folding, operation)
    append(folding, [200])
    folding.refused(first)
    again = built(folding, operation)
    append(folding, [201, 100])
    folding.refused(again)
    again.lance.transaction_properties[APPENDS] = LATER
    (result,) = folding.fold(again)
    assert isinstance(result, Committed)
    assert sorted(str(row["name"]) for row in folding.rows() if row["id"] == 100) == [
        "appended 100",
        "second 100",
    ]


def test_upserts_of_the_same_new_key_are_a_conflict_beside_appends_too(folding: Folding) -> None:
    first, other = built(folding, upsert()), built(folding, upsert([101]))
    for envelope in (first, other):
        envelope.lance.transaction_properties[APPENDS] = LATER
    append(folding, [200])
    (result,) = folding.fold(first)
    assert isinstance(result, Committed)
    assert folding.refused(other).conflict.other_operation == "update"


def update_others(folding: Folding) -> None:
    folding.put(UpsertRows(people([4, 5, 3], "other"), Merge(("id",), clauses=(MatchedUpdate(),))))


def insert_the_same(folding: Folding) -> None:
    folding.put(upsert([15, 100, 300]))


def delete_matched(folding: Folding) -> None:
    folding.put(delete_keys(people([3, 4, 15]), ["id"]))


def delete_fragment(folding: Folding) -> None:
    folding.put(DeleteWhere("id < 10"))


def compact(folding: Folding) -> None:
    folding.put(delete_keys(people([15, 16]), ["id"]))
    lance.dataset(str(folding.path)).optimize.compact_files(target_rows_per_fragment=25)


def overwrite(folding: Folding) -> None:
    """The new fragments have numbers that old ones had."""
    lance.write_dataset(people([15, 100, 7], "new"), str(folding.path), mode="overwrite")


def change_values(folding: Folding) -> None:
    """Another client writes a column again, in the same fragments."""
    dataset = lance.dataset(str(folding.path))
    dataset.add_columns({"more": "n + 1"})
    lance.dataset(str(folding.path)).drop_columns(["more"])


CHANGES: list[Callable[[Folding], None]] = [
    update_others,
    insert_the_same,
    delete_matched,
    delete_fragment,
    compact,
    overwrite,
    change_values,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_changed_meanwhile_it_does_what_a_new_upsert_does(
    folding: Folding, change: Callable[[Folding], None]
) -> None:
    operation = upsert()
    built(folding, operation)
    change(folding)
    expected = names(folding) | {number: f"second {number}" for number in BATCH}
    append(folding, [400])
    (result,) = folding.fold(built(folding, operation))
    assert isinstance(result, Committed)
    assert names(folding) == expected | {400: "appended 400"}


def test_a_fragment_that_lost_rows_is_not_read(folding: Folding, reads: Reads) -> None:
    operation = upsert()
    first = built(folding, operation)
    folding.put(delete_keys(people([3, 4]), ["id"]))
    append(folding, [200])
    folding.refused(first)
    reads.clear()
    folding.fold(built(folding, operation))
    assert reads == [{4}]
    assert names(folding)[3] == "second 3"


def test_rows_that_a_restore_brought_back_are_found(folding: Folding) -> None:
    version = lance.dataset(str(folding.path)).version
    folding.put(delete_keys(people([3, 25]), ["id"]))
    operation = upsert()
    first = built(folding, operation)
    append(folding, [200])
    folding.refused(first)
    lance.dataset(str(folding.path), version=version).restore()
    append(folding, [400])
    folding.fold(built(folding, operation))
    by_id = names(folding)
    assert (by_id[3], by_id[100], by_id[25]) == ("second 3", "second 100", "first 25")


def test_new_columns_are_in_what_is_written_again(folding: Folding) -> None:
    operation = upsert()
    first = built(folding, operation)
    lance.dataset(str(folding.path)).add_columns({"more": "n + 1"})
    append_rows = people([200]).append_column("more", pa.array([5], pa.int32()))
    lance.write_dataset(append_rows, str(folding.path), mode="append")
    folding.refused(first)
    folding.fold(built(folding, operation))
    more = {row["id"]: row["more"] for row in folding.rows("id", "more")}
    assert (more[3], more[100], more[200]) == (31, None, 5)
