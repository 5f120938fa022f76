"""A Project folded by us makes the manifest that pylance makes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest
from lance.schema import LanceSchema

from lakefold_table.entry import Committed, Invalid
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import both_ways, check_agreement, version_in

Act = Callable[[lance.LanceDataset], object]


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "s": [f"row {n}" for n in numbers],
            "p": [{"x": n, "y": str(n)} for n in numbers],
            "l": [[{"u": n, "v": n}] for n in numbers],
        }
    )


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(tmp_path / "table", stable=bool(request.param))


def made(path: Path, *, stable: bool = False, version: Literal["2.0", "2.1", "2.2"] = "2.2") -> Path:
    dataset = lance.write_dataset(
        rows(0, 40),
        str(path),
        max_rows_per_file=10,
        enable_stable_row_ids=stable,
        data_storage_version=version,
    )
    dataset.update_schema_metadata({"unit": "m"})
    dataset.add_columns({"b": "a * 2", "c": "a * 3"})
    lance.dataset(str(path)).add_columns({"d": "a * 4"})
    lance.dataset(str(path)).delete("a < 3 or (a >= 20 and a < 30)")
    dataset = lance.dataset(str(path))
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("d", "BITMAP")
    return path


def drop(*columns: str) -> Act:
    return lambda dataset: dataset.drop_columns(list(columns))


def alter(column: dict[str, object]) -> Act:
    return lambda dataset: dataset.alter_columns(column)  # type: ignore[arg-type]  # its hint is of a list


ACTS: dict[str, Act] = {
    "a column beside others": drop("s"),
    "an indexed column": drop("a"),
    "a whole file": drop("d"),
    "several": drop("b", "c", "p"),
    "all but one file": drop("a", "s", "p", "l", "d"),
    "within a struct": drop("p.x"),
    "another name": alter({"path": "a", "name": "number"}),
    "another name within": alter({"path": "p.x", "name": "z"}),
    "no more nulls": alter({"path": "b", "nullable": False}),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_the_same_project(act: Act, table: Path) -> None:
    check_agreement(both_ways(table, act))


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("act", [ACTS["within a struct"], ACTS["several"], ACTS["a whole file"]])
def test_older_files(act: Act, version: Literal["2.0", "2.1"], tmp_path: Path) -> None:
    check_agreement(both_ways(made(tmp_path / "table", version=version), act))


def changed_rows(dataset: lance.LanceDataset) -> None:
    dataset.delete("a = 5")
    lance.write_dataset(dataset.head(3), dataset, mode="append")
    dataset.update_config({"k": "v"})


@pytest.mark.parametrize("act", [ACTS["several"], ACTS["another name"]])
def test_it_follows_what_changed_rows(act: Act, table: Path) -> None:
    check_agreement(both_ways(table, act, between=changed_rows))


def projecting(change: Callable[[pa.Schema], pa.Schema]) -> Act:
    """By hand: pylance numbers the fields of an Arrow schema again, from 0."""

    def act(dataset: lance.LanceDataset) -> None:
        operation = lance.LanceOperation.Project(LanceSchema.from_pyarrow(change(dataset.schema)))
        lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    return act


def exchanged(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(0).with_name("b"), schema.field(1).with_name("a"), schema.field(2)])


def flat(path: Path) -> Path:
    lance.write_dataset(pa.table({"a": [1, 2], "b": [3, 4]}), str(path))
    lance.dataset(str(path)).add_columns(pa.field("n", pa.int64()))
    return path


def test_names_change_places(tmp_path: Path) -> None:
    check_agreement(both_ways(flat(tmp_path / "t"), projecting(exchanged)))


REFUSED: dict[str, tuple[Act, str]] = {
    "another type": (
        projecting(lambda s: s.set(0, pa.field("a", pa.int32()))),
        "columns ['a'] have another type",
    ),
    "a new column": (
        projecting(lambda s: s.append(pa.field("z", pa.int8()))),
        "fields [3] are not in the table's schema",
    ),
    "no column": (projecting(lambda _: pa.schema([])), "at least one column"),
    "no file": (drop("a", "b"), "in fragments [0]"),
}


@pytest.mark.parametrize(("act", "message"), REFUSED.values(), ids=REFUSED)
def test_what_only_pylance_takes(act: Act, message: str, tmp_path: Path) -> None:
    """It commits each of these; afterwards values are lost, misread, or no row can be read."""
    both = both_ways(flat(tmp_path / "t"), act)
    assert isinstance(both.result, Invalid)
    assert message in both.result.message


METADATA: dict[str, Act] = {
    "another value": lambda dataset: dataset.update_schema_metadata({"unit": "km"}),
    "another key": lambda dataset: dataset.update_schema_metadata({"zone": "UTC"}),
    "all replaced": lambda dataset: dataset.update_schema_metadata({"zone": "UTC"}, replace=True),
}


@pytest.mark.parametrize("between", METADATA.values(), ids=METADATA)
@pytest.mark.parametrize("act", [ACTS["several"], ACTS["another name"], ACTS["no more nulls"]])
def test_a_stale_project_undoes_no_change_of_the_schemas_metadata(
    act: Act, between: Act, table: Path
) -> None:
    """A Project by pylance does: it commits the schema that it opened, metadata included."""
    both = both_ways(table, act, between=between)
    assert isinstance(both.result, Committed)
    ((name, (theirs, ours)),) = both.differences.items()
    assert name == "schema_metadata"
    before, changed = (version_in(path).manifest for path in manifest_files(both.ours)[-3:-1])
    assert theirs == before.schema_metadata != changed.schema_metadata
    assert ours == changed.schema_metadata


def test_a_stale_project_sets_the_metadata_of_fields_back(table: Path) -> None:
    """Its message carries the fields with theirs, so we do as pylance does."""
    both = both_ways(
        table, ACTS["several"], between=lambda dataset: dataset.update_field_metadata({"a": {"k": "v"}})
    )
    check_agreement(both)
    assert lance.dataset(both.ours).schema.field("a").metadata is None
