"""Delta tables that are restored: delta-rs reads the rows of the version that was restored."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefold.branching.chosen_version import VersionChoice
from lakefold.branching.ref_proposals import restoring
from lakefold.console.options import Point
from lakefold_ingest.delta.proposals import metadata_proposal
from lakefold_ingest.delta.restore import metadata_again, protocol_of_both
from lakefold_ingest.delta.schemas import new_fields, schema_text, with_physical_names
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_maintenance.files.removal_note import RemovalNote, write_note
from lakefold_maintenance.formats import format_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.delta.clean_up import clean_up
from lakefold_reader.delta.versions import read_state
from lakefold_reader.formats import open_source
from lakefold_table.delta.actions.file_actions import removal_of
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol
from lakefold_table.delta.checkpoints.new_checkpoint import checkpoint_files
from lakefold_table.delta.deletion_vectors.storage import inline_rows, vector_file, vector_path
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.table_features.commit_times import ENABLED, SINCE_TIME, SINCE_VERSION
from lakefold_table.delta.table_features.metadata_rules import DELETION_VECTORS, HIGHEST_ID
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from tests.delta_merging import FEATURES, FEED, TRACKED, VECTORS, DeltaFolding, delta_rs_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.entry import Result

SCHEMA = pa.schema([("x", pa.int64()), ("word", pa.string())])
WITHOUT = {DELETION_VECTORS: "false"}


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


def by_absolute_paths(table: DeltaFolding) -> None:
    """Has another client's commit name the first file, and its deletion vector, by absolute paths."""
    source = open_source(canonical(table.path), format_name="delta")
    newest = source.versions.latest()
    file = min(read_state(source, newest)[1].files.values(), key=lambda each: each.path)
    vector = file.deletion_vector
    assert vector is not None
    content, (stored,) = vector_file([inline_rows(vector)], UUID(int=7))
    (table.path / str(vector_path(stored))).write_bytes(content)
    uri = (table.path / str(vector_path(stored))).as_uri()
    absolute = replace(
        file,
        path=(table.path / file.path).as_uri(),
        deletion_vector=replace(stored, storage_type="p", path_or_inline=uri),
        data_change=False,
    )
    actions: list[Action] = [removal_of(file, data_change=False), absolute]
    (table.path / commit_path(newest + 1)).write_bytes(lines_of(actions))


def test_files_come_back_that_another_client_named_by_absolute_paths(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(SCHEMA, VECTORS)
    table.append(rows(1, 2, 3))
    table.put(DeleteWhere("x = 2"))
    by_absolute_paths(table)
    version, before = table.view().version, table.rows()
    # Also a delete of rows finds those that are deleted already.
    for where, left in (("x = 3", [1]), ("x < 5", [])):
        table.put(DeleteWhere(where))
        assert [row["x"] for row in table.rows()] == left
    (result,) = table.fold(restored(table, version))
    assert isinstance(result, Committed), result
    assert table.rows() == before == delta_rs_rows(table.path, version)
    (added,) = (each["add"] for each in table.actions() if "add" in each)
    assert not added["path"].startswith("file:")
    assert added["deletionVector"]["storageType"] == "u"


def test_a_file_outside_of_the_table_does_not_come_back(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    source = open_source(canonical(table.path), format_name="delta")
    newest = source.versions.latest()
    file = next(iter(read_state(source, newest)[1].files.values()))
    (tmp_path / "elsewhere.parquet").write_bytes((table.path / file.path).read_bytes())
    outside = replace(file, path=(tmp_path / "elsewhere.parquet").as_uri())
    lines = (
        lines_of([removal_of(file, data_change=True), outside]),
        lines_of([removal_of(outside, data_change=True)]),
    )
    for number, content in enumerate(lines, newest + 1):
        (table.path / commit_path(number)).write_bytes(content)
    with pytest.raises(InvalidError, match="it is not in the table's folder"):
        restored(table, newest + 1)


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


def test_a_batch_whose_rows_it_removed_is_reported_when_it_comes_again(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(rows(0).schema, {})
    sent: list[Envelope] = []

    def send(number: int) -> int:
        envelope = table.build(append_source(RowSource(rows(number))), Key("job", number))
        assert envelope is not None
        sent.append(envelope)
        return version_of(table.fold(envelope))

    def removed_by() -> list[int]:
        """For each batch the version of the restore without its rows. No batch is added again."""
        results = [table.fold(envelope)[0] for envelope in sent]
        assert all(isinstance(result, Duplicate) for result in results), results
        return [result.rolled_back_by for result in results if isinstance(result, Duplicate)]

    kept, *_ = [send(1), send(2)]
    first = version_of(table.fold(restored(table, kept)))
    assert removed_by() == [0, first]
    kept, *_ = [send(3), send(4)]
    second = version_of(table.fold(restored(table, kept)))
    assert removed_by() == [0, first, 0, second]
    mark = table.view().marks.apps["job"]
    assert [mark.rolled_back_by(number) for number in (3, 4)] == [0, second]
    third = version_of(table.fold(restored(table, 0)))
    assert removed_by() == [third] * 4


def version_of(results: list[Result]) -> int:
    (result,) = results
    assert isinstance(result, Committed), result
    return result.version


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


def test_other_metadata_in_between_refuse_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    late = restored(table, 1)
    assert isinstance(changed(table, description="words"), Committed)
    table.refused(late)
    (passed,) = table.fold(restored(table, 1))
    assert isinstance(passed, Committed)
    assert DeltaTable(str(table.path)).metadata().description is None


def test_files_whose_tombstones_have_expired_keep_their_row_ids_and_vectors(tmp_path: Path) -> None:
    table = made(tmp_path / "t", **VECTORS, **TRACKED)
    ids = ids_of(table, 3)
    assert any(vector for _, vector, _ in ids)
    assert isinstance(changed(table, configuration={**VECTORS, **TRACKED, **WITHOUT}), Committed)
    late = restored(table, 3)
    forget_tombstones(table)
    (result,) = table.fold(late)
    assert isinstance(result, Committed), result
    assert ids_of(table, None) == ids
    assert [row["x"] for row in table.rows()] == [1, 3, 4, 5]


def forget_tombstones(table: DeltaFolding) -> None:
    """Replaces the log by a checkpoint of the newest version, in which all tombstones have expired."""
    source = open_source(canonical(table.path), format_name="delta")
    newest = source.versions.latest()
    files, hint, _ = checkpoint_files(read_state(source, newest)[1], 1 << 50)
    for file in (*files, hint):
        (table.path / file.path).write_bytes(file.data)
    for version in range(newest):
        (table.path / commit_path(version)).unlink()


def test_the_version_since_which_commits_give_their_time_stays() -> None:
    def described(since: str, **more: str) -> TableMetadata:
        times = {ENABLED: "true", SINCE_VERSION: since, SINCE_TIME: f"{since}000"}
        return TableMetadata("id", "{}", configuration={**times, **more})

    then, now = described("5", a="b"), described("12")
    assert metadata_again(then, now).configuration == described("12", a="b").configuration
    always = replace(now, configuration={ENABLED: "true"})
    assert metadata_again(then, always).configuration == {ENABLED: "true", "a": "b"}
    # Then it begins anew.
    assert metadata_again(then, replace(now, configuration={})) == then


def test_maintenance_keeps_the_files_that_a_waiting_restore_needs(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    envelope = restored(table, 1)
    delta = format_of(envelope)
    assert delta is not None
    assert delta.waiting(envelope).read_version == 1
    for text in ("", "-1", "9" * 5_000):
        envelope.delta.operation_parameters["version"] = text
        assert delta.waiting(envelope).read_version == 0


def test_a_version_whose_files_maintenance_is_about_to_remove_is_not_restored(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    chosen = VersionChoice(1, None, None, Point(None, None)).find(canonical(table.path), {})
    newest = chosen.source.versions.latest()
    (removed,) = [file.path for file in read_state(chosen.source, 1)[1].files.values()]
    write_note(chosen.main.storage, RemovalNote({}, {removed: 1.0, "other.parquet": 1.0}))
    with pytest.raises(VersionExpiredError, match="about to remove 1 files of version 1"):
        restoring(chosen, newest)
    write_note(chosen.main.storage, RemovalNote({}, {"other.parquet": 1.0}))
    assert restoring(chosen, newest).delta.operation == "RESTORE"


def test_a_restore_while_old_versions_are_removed_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = {"delta.deletedFileRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "2"}
    table = made(tmp_path / "t", **expired)
    source = open_source(canonical(table.path), format_name="delta")
    sizes = LocalStorage.sizes

    def restored_meanwhile(storage: LocalStorage, paths: Iterable[str]) -> dict[str, int | None]:
        """The sizes that a clean-up asks for before it removes files."""
        monkeypatch.undo()
        (result,) = table.fold(restored(table, 1))
        assert isinstance(result, Committed)
        return sizes(storage, paths)

    monkeypatch.setattr(LocalStorage, "sizes", restored_meanwhile)
    cleaned = clean_up(source, range(4), lambda _: None)
    assert cleaned.versions
    assert [row["x"] for row in table.rows()] == [1, 2, 3]
    assert len(delta_rs_rows(table.path)) == 3
