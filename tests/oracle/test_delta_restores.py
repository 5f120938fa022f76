"""Delta tables that are restored: delta-rs reads the rows of the version that was restored."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefold_ingest.delta.proposals import metadata_proposal
from lakefold_ingest.delta.restoring import protocol_of_both
from lakefold_ingest.delta.schemas import HIGHEST_ID, new_fields, schema_text, with_physical_names
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.delta.versions import read_state
from lakefold_reader.opening import open_source
from lakefold_table.delta.actions.table_actions import TableProtocol
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.uri import canonical
from tests.delta_merging import FEATURES, FEED, TRACKED, VECTORS, DeltaFolding, delta_rs_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakefold_table.entry import Result

SCHEMA = pa.schema([("x", pa.int64()), ("word", pa.string())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"x": list(numbers), "word": [str(number) for number in numbers]}, schema=SCHEMA)


def made(path: Path, **configuration: str) -> DeltaFolding:
    """A table: two files, of which the first loses rows, then all of them, then a third file."""
    table = DeltaFolding(path)
    table.create(SCHEMA, configuration)
    table.append(rows(1, 2, 3))
    table.append(rows(4, 5))
    table.put(DeleteWhere("x = 2"))
    table.put(DeleteWhere("x < 5"))
    table.append(rows(6))
    return table


def restored(table: DeltaFolding, version: int, newest: int | None = None) -> Envelope:
    source = open_source(canonical(table.path), format_name="delta")
    envelope = Envelope(table=source.uri)
    FORMATS["delta"].restore(
        envelope, source, version, source.versions.latest() if newest is None else newest
    )
    return envelope


def changed(table: DeltaFolding, **changes: Any) -> Result:  # noqa: ANN401 - the test names the field
    """What becomes of a change of the newest version's metadata."""
    source = open_source(canonical(table.path), format_name="delta")
    newest = source.versions.latest()
    now = read_state(source, newest)[1].metadata
    (result,) = table.fold(metadata_proposal(source.uri, new_key(), newest, replace(now, **changes)))
    return result


@pytest.mark.parametrize(
    "configuration",
    [{}, VECTORS, {**VECTORS, **FEED}, {**VECTORS, **TRACKED}],
    ids=("plain", "vectors", "feed", "ids"),
)
def test_each_version_can_be_restored(tmp_path: Path, configuration: Mapping[str, str]) -> None:
    table = made(tmp_path / "t", **configuration)
    versions = table.view().version
    ids = [ids_of(table, number) for number in range(versions + 1)]
    for version in (*range(versions), 3, 0, 2):
        (result,) = table.fold(restored(table, version))
        assert isinstance(result, Committed), result
        assert table.rows() == delta_rs_rows(table.path, version)
        # Row ids come back with their rows.
        assert ids_of(table, None) == ids[version]
    (info,) = (each["commitInfo"] for each in table.actions() if "commitInfo" in each)
    assert (info["operation"], info["operationParameters"]) == ("RESTORE", {"version": "2"})
    assert DeltaTable(str(table.path)).history(1)[0]["operation"] == "RESTORE"


def ids_of(table: DeltaFolding, version: int | None) -> set[tuple[Any, ...]]:
    """The files of a version, with their deletion vectors and first row ids."""
    source = open_source(canonical(table.path), format_name="delta")
    _, snapshot = read_state(source, source.versions.latest() if version is None else version)
    return {(*file.key, file.base_row_id) for file in snapshot.files.values()}


def test_the_columns_come_back_and_features_stay(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    before = table.view().version
    wider = SCHEMA.append(pa.field("more", pa.float64()))
    assert isinstance(changed(table, schema_text=schema_text(new_fields(wider))), Committed)
    table.append(pa.table({"x": [7], "more": [1.5]}))
    assert "more" in table.rows()[0]
    (result,) = table.fold(restored(table, before))
    assert isinstance(result, Committed), result
    assert DeltaTable(str(table.path)).schema().to_arrow().names == ["x", "word"]
    assert table.rows() == delta_rs_rows(table.path, before)
    assert not [each for each in table.actions() if "protocol" in each]


def test_a_proposal_that_restores_nothing_may_not_drop_columns(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    assert isinstance(changed(table, schema_text=schema_text(new_fields(SCHEMA.remove(1)))), Invalid)


def test_columns_that_were_renamed_and_dropped_come_back_with_higher_ids_for_new_columns(
    tmp_path: Path,
) -> None:
    table = DeltaFolding(tmp_path / "t")
    fields, highest = with_physical_names(new_fields(SCHEMA), 0, "seed")
    mapped = {"delta.columnMapping.mode": "name", HIGHEST_ID: str(highest)}
    table.create(SCHEMA, mapped, features=(*FEATURES, "columnMapping"), fields=fields)
    table.append(rows(1, 2))
    version = table.view().version
    wider, more = with_physical_names(
        [*fields, *new_fields(pa.schema([("more", pa.int64())]))], highest, "other"
    )
    renamed = [{**each, "name": "text"} if each["name"] == "word" else each for each in wider]
    configuration = {**mapped, HIGHEST_ID: str(more)}
    result = changed(table, schema_text=schema_text(renamed), configuration=configuration)
    assert isinstance(result, Committed), result
    table.append(pa.table({"x": [3], "text": ["3"], "more": [1]}))
    (result,) = table.fold(restored(table, version))
    assert isinstance(result, Committed), result
    assert table.rows() == delta_rs_rows(table.path, version)
    assert table.properties[HIGHEST_ID] == str(more)


def test_a_protocol_only_grows() -> None:
    less, more = (
        TableProtocol(1, 2),
        TableProtocol(3, 7, ("deletionVectors",), ("appendOnly", "deletionVectors", "invariants")),
    )
    assert protocol_of_both(less, more) is None
    assert protocol_of_both(more, less) == more


def test_a_commit_in_between_refuses_it_until_it_is_built_again(tmp_path: Path) -> None:
    table = made(tmp_path / "t", **VECTORS)
    late = restored(table, 2)
    table.append(rows(8))
    version = table.view().version
    assert table.refused(late).conflict.other_version == version
    assert {"x": 8, "word": "8"} in table.rows()
    after = restored(table, 2)
    table.put(DeleteWhere("x = 8"))
    table.refused(after)
    (result,) = table.fold(restored(table, 2))
    assert isinstance(result, Committed)
    assert table.rows() == delta_rs_rows(table.path, 2)


def test_a_batch_after_it_in_its_version_stays_and_one_before_it_refuses_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    batch = partial(table.build, append_source(RowSource(rows(9))))
    first, second = batch(), batch()
    assert first is not None
    assert second is not None
    results = table.fold(restored(table, 0), first)
    assert all(isinstance(result, Committed) for result in results), results
    assert table.rows() == [{"x": 9, "word": "9"}]
    committed, refused = table.fold(second, restored(table, 1))
    assert isinstance(committed, Committed)
    assert not isinstance(refused, Committed)


def test_files_that_are_gone_are_named_before_anything_is_sent(tmp_path: Path) -> None:
    table = made(tmp_path / "t", **VECTORS)
    source = open_source(canonical(table.path), format_name="delta")
    _, then = read_state(source, 2)
    gone = sorted(then.files)
    for path in gone:
        (table.path / path).unlink()
    with pytest.raises(VersionExpiredError) as caught:
        restored(table, 2)
    assert all(path in caught.value.message for path in gone)
    # Nothing that the table has is needed again.
    (result,) = table.fold(restored(table, 0))
    assert isinstance(result, Committed)


def test_vectors_that_are_gone_are_named(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(SCHEMA, VECTORS)
    table.append(rows(*range(12_000)))
    # The vector of so many rows is in a file.
    table.put(DeleteWhere("word LIKE '%1'"))
    table.put(DeleteWhere("x >= 0"))
    (vector,) = table.path.rglob("deletion_vector_*")
    vector.unlink()
    with pytest.raises(VersionExpiredError, match=vector.name):
        restored(table, 2)


def test_the_newest_version_can_not_be_restored(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(InvalidError, match="there is nothing to restore"):
        restored(table, table.view().version)


def test_other_metadata_in_between_do_not_get_lost(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    late = restored(table, 1)
    assert isinstance(changed(table, description="words"), Committed)
    (passed,) = table.fold(late)
    assert isinstance(passed, Committed)
    assert DeltaTable(str(table.path)).metadata().description == "words"
