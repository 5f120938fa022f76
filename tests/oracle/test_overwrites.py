"""An Overwrite of a table that is there, folded by us, makes the manifest that pylance makes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned, rows
from tests.oracle.operations import Both, both_ways, check_agreement, version_of

Act = Callable[[lance.LanceDataset], object]


OTHER = pa.table({"b": pa.array([1, 2, 3], pa.int64()), "p": [{"x": 1, "y": "1"}] * 3})
NOTED = OTHER.replace_schema_metadata({"unit": "m"})


def unchanged(_: lance.LanceDataset) -> None:
    pass


def indexed(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("s", "BITMAP")
    dataset.update_config({"k": "v"})
    dataset.update_metadata({"owner": "me"})
    dataset.update_schema_metadata({"old": "note"})
    dataset.delete("a < 3")


def mixed(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(rows(100, 5), dataset, mode="append", data_storage_version="2.1")


def emptied(dataset: lance.LanceDataset) -> None:
    dataset.delete("a >= 20")
    dataset.delete("true")


def overwrite(table: pa.Table, version: Literal["2.1", "legacy"] | None = None) -> Act:
    return lambda dataset: lance.write_dataset(
        table, dataset, mode="overwrite", max_rows_per_file=10, data_storage_version=version
    )


def of_nothing(dataset: lance.LanceDataset) -> None:
    operation = lance.LanceOperation.Overwrite(OTHER.schema, [])
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


ACTS: dict[str, Act] = {
    "the same schema": overwrite(rows(50, 25)),
    "another schema": overwrite(OTHER),
    "schema metadata": overwrite(NOTED),
    "another version": overwrite(OTHER, "2.1"),
    "older files": overwrite(rows(0, 5), "legacy"),
    "no rows": of_nothing,
}
V2_ACTS = {name: act for name, act in ACTS.items() if name != "older files"}


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    lance.write_dataset(
        rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=bool(request.param)
    )
    return path


def with_schema_metadata(both: Path) -> Callable[[Envelope], None]:
    """Lance's message has a field for it that pylance leaves empty."""

    def change(envelope: Envelope) -> None:
        metadata = version_of(both).manifest.schema_metadata
        envelope.lance.overwrite.schema_metadata.update(metadata)

    return change


def overwritten(table: Path, act: Act, between: Act | None = None) -> Both:
    theirs = table.with_name(table.name + "-theirs")
    return both_ways(table, act, between=between, change=with_schema_metadata(theirs))


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("prepare", [unchanged, indexed, emptied])
def test_the_same_overwrite(prepare: Act, act: Act, table: Path) -> None:
    prepare(lance.dataset(str(table)))
    before = lance.dataset(str(table)).count_rows()
    both = overwritten(table, act)
    check_agreement(both)
    assert isinstance(both.result, Committed)
    assert both.result.rows_deleted == before


@pytest.mark.parametrize("act", V2_ACTS.values(), ids=V2_ACTS)
def test_a_table_of_several_file_versions(act: Act, table: Path) -> None:
    mixed(lance.dataset(str(table)))
    check_agreement(overwritten(table, act))


def test_older_files_never_follow_several_versions(table: Path) -> None:
    """As pylance does: what says that versions are mixed stays, and then none may be before 2."""
    mixed(lance.dataset(str(table)))
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.read_version = 2
    envelope.lance.overwrite.schema.extend(version_of(table).manifest.fields)
    fragment = envelope.lance.overwrite.fragments.add(physical_rows=1)
    fragment.files.add(path="f.lance", fields=[0, 1], file_minor_version=2)
    with pytest.raises(OSError, match="requires a V2 default"):
        ACTS["older files"](lance.dataset(str(table)))
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Invalid)
    assert "flag 256" in result.message


@pytest.mark.parametrize("prepare", [indexed, mixed], ids=["after deletes", "after an append"])
def test_an_overwrite_follows_what_came_in_between(prepare: Act, table: Path) -> None:
    check_agreement(overwritten(table, overwrite(OTHER), between=prepare))


def test_fragments_that_are_listed_again_get_new_ids(table: Path) -> None:
    """If rows keep ids, pylance takes those of a proposal, of any rows; Lakefold refuses that."""

    def again(dataset: lance.LanceDataset) -> None:
        fragments = [fragment.metadata for fragment in dataset.get_fragments()][1:3]
        operation = lance.LanceOperation.Overwrite(dataset.schema, fragments)
        lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    both = overwritten(table, again)
    if lance.dataset(str(table)).has_stable_row_ids:
        assert isinstance(both.result, Invalid)
        assert "no row ids" in both.result.message
    else:
        check_agreement(both)
