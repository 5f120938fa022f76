"""Files that tasks wrote before the table got other columns are proposed again, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

import lakefold
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.lance.envelopes import begin_envelope, change_columns
from lakefold_ingest.lance.new_columns import new_columns
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.operations.written import AppendWritten
from lakefold_ingest.options.given import read_write_options
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.task_files import collect_files
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_reader.lance.versions import read_state
from lakefold_reader.opening import open_source
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError, LakefoldError, RetryError
from lakefold_table.lance.schemas.data_files import file_version
from lakefold_table.uri import canonical
from tests.delta_merging import DeltaFolding
from tests.merging import Folding
from tests.oracle.test_evolution import appending, made, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = pa.table({"n": pa.array([1], pa.int32()), "s": [{"x": 1}]})
NEW = pa.table({"n": pa.array([2], pa.int32()), "s": [{"x": 2}]})


def table_in(path: Path, table_format: str) -> Folding | DeltaFolding:
    """A table with a single row."""
    if table_format == "lance":
        return made(path, OLD)
    table = DeltaFolding(path)
    (created,) = table.fold(FORMATS["delta"].creation(table.settings(), Key("app", 100), OLD.schema))
    assert isinstance(created, Committed), created
    table.append(OLD)
    return table


def written(table: Folding | DeltaFolding) -> AppendWritten:
    """An append whose files are written for the table as it is now."""
    given = read_write_options({"path": str(table.path)})
    plan = plan_write(given, table.settings(), NEW.schema, Key("app", 7), use=WriteUse.BATCH, overwrite=False)
    operation = plan._operation(collect_files(plan.target, [plan.run(NEW.to_batches())]), pa.table({}))
    assert isinstance(operation, AppendWritten)
    return operation


def with_more(table: Folding) -> None:
    """Adds a column as an older pylance does, which does not say that no column became non-nullable."""
    view, batch = lance_view(table.view(), "this"), OLD.append_column("more", pa.array([1]))
    added = new_columns(batch.schema, view.fields, 9, file_version(view.data_storage_version))
    assert added is not None
    fragments = read_state(open_source(canonical(table.path)), view.version).fragments
    (result,) = table.fold(
        change_columns(view.uri, new_key(), view.version, added.fields, fragments, only_adds=False)
    )
    assert isinstance(result, Committed), result


def without_struct(table: Folding) -> None:
    """Drops a column in the same way."""
    view = lance_view(table.view(), "this")
    envelope = begin_envelope(view.uri, new_key(), view.version)
    envelope.lance.project.schema.extend(view.fields[:1])
    (result,) = table.fold(envelope)
    assert isinstance(result, Committed), result


def with_wider_type(table: Folding) -> None:
    put(table, appending(OLD.set_column(0, "n", pa.array([2**40]))))


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_files_are_proposed_again_if_the_table_got_nullable_columns(
    tmp_path: Path, table_format: str
) -> None:
    table = table_in(tmp_path / "t", table_format)
    operation = written(table)
    files = {*table.path.rglob("*.parquet"), *table.path.glob("data/*")}
    first = operation.build(table.view(), Key("app", 7), table.settings())
    if isinstance(table, Folding):
        with_more(table)
    else:
        DeltaTable(str(table.path)).alter.add_columns([Field("more", PrimitiveType("long"))])
    assert first is not None
    table.refused(first)
    again = operation.build(table.view(), Key("app", 7), table.settings())
    assert again is not None
    (result,) = table.fold(again)
    assert isinstance(result, Committed), result
    assert files == {*table.path.rglob("*.parquet"), *table.path.glob("data/*")}
    rows = sorted(lakefold.open(table.path).to_arrow().to_pylist(), key=lambda row: row["n"])
    assert rows == [{"n": number, "s": {"x": number}, "more": None} for number in (1, 2)]


CHANGED = "the table's columns were changed while the rows were written"
CHANGES: dict[str, tuple[str, Callable[..., None], type[LakefoldError], str]] = {
    "a wider type": ("lance", with_wider_type, RetryError, CHANGED),
    "a dropped column": ("lance", without_struct, InvalidError, "s .* is not in the table"),
    "a constraint": (
        "delta",
        lambda table: DeltaTable(str(table.path)).alter.add_constraint({"small": "n < 2"}),
        RetryError,
        CHANGED,
    ),
}


@pytest.mark.parametrize(("table_format", "change", "error", "message"), CHANGES.values(), ids=CHANGES)
def test_files_that_do_not_fit_the_changed_table_are_not_proposed_again(
    tmp_path: Path,
    table_format: str,
    change: Callable[..., None],
    error: type[LakefoldError],
    message: str,
) -> None:
    table = table_in(tmp_path / "t", table_format)
    operation = written(table)
    first = operation.build(table.view(), Key("app", 7), table.settings())
    change(table)
    assert first is not None
    table.refused(first)
    with pytest.raises(error, match=message) as raised:
        operation.build(table.view(), Key("app", 7), table.settings())
    assert raised.value.hint
