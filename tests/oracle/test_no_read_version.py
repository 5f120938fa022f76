"""A Restore, an Overwrite and a creation that name no version that they were built on, as pylance takes them.

pylance fills in 0 if its caller gives none, and checks no other writer's versions then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.operations import both_ways, check_agreement, copy_files, differences, version_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.operations import Act

Operation = lance.LanceOperation
ROWS = pa.table({"a": pa.array(range(20), pa.int64()), "s": [str(number) for number in range(20)]})


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    stable: bool = request.param
    lance.write_dataset(ROWS, str(path), max_rows_per_file=10, enable_stable_row_ids=stable)
    lance.write_dataset(ROWS.slice(0, 5), str(path), mode="append")
    return path


def read_none(envelope: Envelope) -> None:
    envelope.lance.ClearField("read_version")


def restore(dataset: lance.LanceDataset) -> None:
    lance.LanceDataset.commit(dataset.uri, Operation.Restore(1))


def overwrite(dataset: lance.LanceDataset) -> None:
    fragments = write_fragments(ROWS.slice(3, 4), dataset, mode="append")
    lance.LanceDataset.commit(dataset.uri, Operation.Overwrite(ROWS.schema, fragments))


def note(dataset: lance.LanceDataset) -> None:
    """What a Restore that was built on the version before conflicts with."""
    dataset.update_schema_metadata({"unit": "m"})


def replace(dataset: lance.LanceDataset) -> None:
    """What an Overwrite that was built on the version before conflicts with."""
    lance.write_dataset(ROWS.slice(0, 1), dataset, mode="overwrite")


@pytest.mark.parametrize("act", [restore, overwrite])
@pytest.mark.parametrize("between", [note, replace])
def test_they_follow_any_version(act: Act, between: Act, table: Path) -> None:
    both = both_ways(table, act, between=between, change=read_none)
    assert not both.transaction.read_version
    check_agreement(both)
    assert isinstance(both.result, Committed)
    assert not both.result.rebased


@pytest.mark.parametrize(("act", "between"), [(restore, note), (overwrite, replace)])
def test_with_a_read_version_they_conflict(act: Act, between: Act, table: Path) -> None:
    assert isinstance(both_ways(table, act, between=between).result, Rejected)


def test_a_delete_without_one_is_invalid(table: Path) -> None:
    """Pylance doesn't find version 0."""
    operation = Operation.Delete([], [0], "a < 10")
    with pytest.raises(OSError, match="not found"):
        lance.LanceDataset.commit(str(table), operation, read_version=0)
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.delete.deleted_fragment_ids.append(0)
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Invalid)
    assert "no read version" in result.message


FileVersion = Literal["legacy", "2.0", "2.1", "2.2", "2.3"]


def created(folder: Path, rows: pa.Table | None, version: FileVersion) -> tuple[Path, Envelope]:
    """A table that pylance begins with an Overwrite, and its transaction for a table of ours."""
    theirs, ours = folder / "theirs", folder / "ours"
    fragments = []
    if rows is not None:
        fragments = write_fragments(rows, str(theirs), mode="create", data_storage_version=version)
    lance.LanceDataset.commit(str(theirs), Operation.Overwrite(ROWS.schema, fragments))
    transaction = version_of(theirs).transaction
    assert transaction is not None
    assert not transaction.read_version
    ours.mkdir()
    copy_files(theirs, ours)
    envelope = Envelope(table=canonical(str(ours)))
    envelope.lance.CopyFrom(transaction)
    return ours, envelope


def check_created(ours: Path, envelope: Envelope) -> None:
    (result,) = fold(owned(ours), [envelope], 0)
    assert isinstance(result, Committed), result
    theirs = ours.with_name("theirs")
    assert differences(version_of(theirs), version_of(ours)) == {}
    lance.dataset(str(ours)).validate()
    assert lance.dataset(str(ours)).to_table() == lance.dataset(str(theirs)).to_table()
    for path in (theirs, ours):
        lance.write_dataset(ROWS, str(path), mode="append")
    assert differences(version_of(theirs), version_of(ours)).keys() <= {"fragments"}


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2", "2.3"])
def test_an_overwrite_begins_a_table_of_its_files_version(version: FileVersion, tmp_path: Path) -> None:
    check_created(*created(tmp_path, ROWS, version))


def test_one_of_no_rows_begins_a_table(tmp_path: Path) -> None:
    check_created(*created(tmp_path, None, "2.2"))


def test_create_options_leave_the_version_to_the_files(tmp_path: Path) -> None:
    ours, envelope = created(tmp_path, ROWS, "2.1")
    envelope.create.SetInParent()
    check_created(ours, envelope)


def test_begun_again_it_overwrites(tmp_path: Path) -> None:
    """As with pylance, which knows no other proposal; an envelope with `create` only ever begins a table."""
    ours, envelope = created(tmp_path, ROWS, "2.2")
    envelope.lance.overwrite.ClearField("fragments")
    table = owned(ours)
    for offset, uuid in enumerate(("first", "second")):
        envelope.lance.uuid = uuid
        assert isinstance(fold(table, [envelope], offset)[0], Committed)
    envelope.lance.uuid = "third"
    envelope.create.SetInParent()
    assert isinstance(fold(table, [envelope], 2)[0], Rejected)
    assert lance.dataset(str(ours)).version == 2


def test_an_overwrite_that_was_built_on_a_version_begins_none(tmp_path: Path) -> None:
    """With pylance it does; but whoever read a version means that table, which was dropped or is away."""
    ours, envelope = created(tmp_path, ROWS, "2.2")
    envelope.lance.read_version = 3
    (result,) = fold(owned(ours), [envelope], 0)
    assert isinstance(result, Invalid)
    assert "there is no table" in result.message
