"""Indices: what pylance makes of the index section and what we do, for each operation that touches it."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import append, rows
from tests.oracle.operations import both_ways, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.oracle.operations import Both

Index = sys.modules["lance.dataset"].Index


def indexed(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("a", "BTREE")
    lance.dataset(dataset.uri).create_scalar_index("s", "BITMAP")


@pytest.fixture(params=[False, True], ids=["plain", "stable"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Five fragments of ten rows, the first four indexed on `a` and on `s`."""
    path = tmp_path / "t"
    lance.write_dataset(
        rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=bool(request.param)
    )
    indexed(lance.dataset(str(path)))
    append(lance.dataset(str(path)))
    return path


def agreed(both: Both) -> None:
    """Both manifests are equal, and pylance reads ours by index and takes an append on top."""
    assert isinstance(both.result, Committed)
    assert not both.differences
    readable(both.ours, both.theirs)


def readable(ours: Path, theirs: Path) -> None:
    dataset, other = lance.dataset(str(ours)), lance.dataset(str(theirs))
    dataset.validate()
    assert dataset.count_rows() == other.count_rows()
    for condition in ("a = 7", "a >= 30", "s = 's1'", "b < 15 AND s = 's2'"):
        assert sorted_rows(dataset, condition) == sorted_rows(other, condition), condition
    append(dataset)
    assert lance.dataset(str(ours)).count_rows("a >= 1000") == dataset.count_rows("a >= 1000") + 10


def sorted_rows(dataset: lance.LanceDataset, condition: str) -> list[dict[str, Any]]:
    return dataset.to_table(columns=["a", "s", "b"], filter=condition).sort_by("a").to_pylist()  # type: ignore[no-any-return]


ACTS: dict[str, Callable[[lance.LanceDataset], object]] = {
    "create": lambda dataset: dataset.create_scalar_index("b", "BTREE"),
    "second on a field": lambda dataset: dataset.create_scalar_index("a", "ZONEMAP", name="zones"),
    "replace": lambda dataset: dataset.create_scalar_index("a", "BTREE", replace=True),
    "replace by another kind": lambda dataset: dataset.create_scalar_index("a", "BITMAP", name="a_idx"),
    "drop": lambda dataset: dataset.drop_index("a_idx"),
    "more segments": lambda dataset: dataset.optimize.optimize_indices(num_indices_to_merge=0),
    "merge segments": lambda dataset: dataset.optimize.optimize_indices(),
    "write-ahead log": lambda dataset: dataset.initialize_mem_wal(unsharded=True),
}


@pytest.mark.parametrize("name", ACTS)
def test_indices_come_and_go_as_in_pylance(name: str, table: Path) -> None:
    agreed(both_ways(table, ACTS[name]))


@pytest.mark.parametrize("condition", ["a >= 1000", "a >= 0"])
def test_segments_go_with_their_last_fragment(condition: str, table: Path) -> None:
    lance.dataset(str(table)).optimize.optimize_indices(num_indices_to_merge=0)
    both = both_ways(table, lambda dataset: dataset.delete(condition))
    agreed(both)
    names = [index.name for index in version_of(both.ours).indices.indices]
    assert sorted(names) == ["a_idx", "s_idx"]


BETWEEN: dict[str, Callable[[lance.LanceDataset], object]] = {
    "append": append,
    "delete": lambda dataset: dataset.delete("a = 5 OR a >= 1005"),
    "delete a fragment": lambda dataset: dataset.delete("a < 10"),
    "another index": lambda dataset: dataset.create_scalar_index("a", "ZONEMAP", name="zones"),
    "add a column": lambda dataset: dataset.add_columns({"c": "a + 1"}),
    "drop a column": lambda dataset: dataset.drop_columns(["a"]),
    "update": lambda dataset: dataset.update({"a": "a + 2000"}, where="b < 3"),
    "config": lambda dataset: dataset.update_config({"k": "v"}),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_an_index_built_on_an_older_version(name: str, table: Path) -> None:
    both = both_ways(table, ACTS["create"], between=BETWEEN[name])
    assert isinstance(both.result, Committed)
    assert both.result.rebased
    assert not both.differences


def changed_columns(dataset: lance.LanceDataset) -> None:
    """The values of `b` changed in place, in the second fragment."""
    fragment = dataset.get_fragments()[1]
    changed = pa.table({"a": pa.array([12], pa.int64()), "b": pa.array([777], pa.int64())})
    updated, fields = fragment.update_columns(changed, left_on="a", right_on="a")
    lance.LanceDataset.commit(
        dataset.uri,
        LanceOperation.Update(
            updated_fragments=[updated], fields_modified=fields, update_mode="rewrite_columns"
        ),
        read_version=dataset.version,
    )


def test_an_index_no_longer_covers_what_was_changed_in_place_since(table: Path) -> None:
    both = both_ways(table, ACTS["create"], between=changed_columns)
    agreed(both)
    assert lance.dataset(str(both.ours)).to_table(filter="b = 777")["a"].to_pylist() == [12]


def test_an_index_of_the_same_name_comes_too_late(table: Path, tmp_path: Path) -> None:
    both = hand_made(table, tmp_path, lambda index: index, between=ACTS["create"], name="b_idx")
    assert isinstance(both, Rejected)
    assert both.conflict.retryable
    assert both.conflict.keys == ("b_idx",)


def hand_made(
    table: Path,
    tmp_path: Path,
    change: Callable[[Any], Any],
    *,
    between: Callable[[lance.LanceDataset], object] | None = None,
    name: str = "made",
) -> object:
    """Our answer to an index like the one on `a`, changed; its message was written by pylance."""
    ours = tmp_path / "ours"
    shutil.copytree(table, ours)
    dataset = lance.dataset(str(ours))
    read = dataset.version
    if between is not None:
        between(dataset)
    theirs = tmp_path / "theirs"
    shutil.copytree(table, theirs)
    folder = uuid.uuid4()
    template = next(index for index in version_of(theirs).indices.indices if index.name == "a_idx")
    source = theirs / "_indices" / str(uuid.UUID(bytes=template.uuid.uuid))
    for path in (theirs, ours):
        shutil.copytree(source, path / "_indices" / str(folder))
    entry = Index(
        uuid=str(folder),
        name=name,
        fields=[0],
        dataset_version=read,
        fragment_ids={0, 1, 2, 3},
        index_version=template.index_version,
        index_details=("/lance.table.BTreeIndexDetails", b""),
    )
    lance.LanceDataset.commit(str(theirs), LanceOperation.CreateIndex([change(entry)], []), read_version=read)
    envelope = Envelope(table=canonical(str(ours)))
    transaction = version_of(theirs).transaction
    assert transaction is not None
    envelope.lance.CopyFrom(transaction)
    envelope.lance.read_version = read
    (result,) = fold(owned(ours), [envelope], 0)
    return result


def with_(**fields: object) -> Callable[[Any], Any]:
    """A change of the entry's fields."""

    def change(entry: Any) -> Any:  # noqa: ANN401 - pylance's class has no types
        for key, value in fields.items():
            setattr(entry, key, value)
        return entry

    return change


def test_a_hand_made_index_is_taken(table: Path, tmp_path: Path) -> None:
    assert isinstance(hand_made(table, tmp_path, with_()), Committed)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fields": [77]}, r"field ids \[77\]"),
        ({"fields": []}, "no fields"),
        ({"fragment_ids": {0, 99}}, "covers fragment 99"),
        ({"name": "a_idx"}, "cover fragments .* twice"),
        ({"uuid": str(uuid.UUID(int=5))}, "is missing"),
        ({"dataset_version": 99}, "built from version 99"),
        ({"base_id": 5}, "base 5"),
        ({"name": "__lance_mine"}, "can't be the name"),
        ({"index_details": ("/lance.index.pb.JsonIndexDetails", b"")}, "no details"),
    ],
)
def test_what_pylance_commits_and_then_stumbles_over_is_refused(
    fields: dict[str, object], message: str, table: Path, tmp_path: Path
) -> None:
    result = hand_made(table, tmp_path, with_(**fields))
    assert isinstance(result, Invalid)
    assert re.search(message, result.message)


def test_an_index_on_a_field_that_was_dropped_since_is_built_again(table: Path, tmp_path: Path) -> None:
    result = hand_made(table, tmp_path, with_(), between=BETWEEN["drop a column"])
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert result.conflict.field_ids == (0,)


def test_dropping_what_somebody_dropped_since_is_fine(table: Path) -> None:
    read = lance.dataset(str(table)).version
    stale = version_of(table)
    drop = ACTS["drop"]
    drop(lance.dataset(str(table)))
    removed = version_of(table).transaction
    assert removed is not None
    assert len(stale.indices.indices) == 2
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.CopyFrom(removed)
    envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), read
    ours = owned(table)
    (result,) = fold(ours, [envelope], 0)
    assert isinstance(result, Committed)
    assert [index.name for index in version_of(table).indices.indices] == ["s_idx"]
    envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), result.version
    (again,) = fold(ours, [envelope], 1)
    assert isinstance(again, Invalid)
    assert "a_idx" in again.message
