"""Files that tasks wrote before the table got other columns are proposed again, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

import lakefold
from lakefold_ingest.delta.view import delta_view
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.lance.new_columns import new_columns
from lakefold_ingest.lance.proposals import begin_envelope, change_columns
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.merge.lance.format import OverwriteWritten
from lakefold_ingest.operations.append import AppendWritten
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.task_files import collect_files
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_reader.formats import open_source
from lakefold_reader.lance.versions import read_state
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.commit_head import DOMAINS
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.table_features.clustering import DOMAIN
from lakefold_table.delta.table_features.clustering import FEATURE as CLUSTERED
from lakefold_table.delta.table_features.text_types import KEY
from lakefold_table.entry import Committed, Rejected
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.lance.schemas.data_files import file_version
from lakefold_table.uri import canonical
from tests.delta_logs.actions import text
from tests.delta_merging import DeltaFolding
from tests.merging import Folding
from tests.oracle.readable import altered
from tests.oracle.test_evolution import appending, made, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

INT = pa.int32()
OLD = pa.table({"n": pa.array([1], INT), "s": [{"x": 1}], "wide": [1], "text": ["one"], "k": [1]})
NEW = pa.table({"n": pa.array([2], INT), "s": [{"x": 2}], "wide": pa.array([2], INT), "text": ["two"]})


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
    files = collect_files(plan.target, plan.with_few([plan.run(NEW.to_batches())]))
    operation = plan.operation.with_files(files, pa.table({}))
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


def with_narrower_type(table: Folding) -> None:
    """Casts a column to the type that the batch has, as pylance does."""
    lance.dataset(str(table.path)).alter_columns(altered("wide", data_type=INT))


def with_shorter_texts(table: DeltaFolding) -> None:
    """Gives a column the type `varchar(2)`, as another client does."""
    metadata = delta_view(table.view(), "this").metadata
    schema = json.loads(metadata.schema_text)
    (column,) = (each for each in schema["fields"] if each["name"] == "text")
    column["metadata"][KEY] = "varchar(2)"
    changed = replace(metadata, schema_text=json.dumps(schema))
    (table.path / commit_path(table.view().version + 1)).write_bytes(lines_of((changed,)))


def clustered(table: DeltaFolding) -> None:
    """Clusters the table by a column that the batch lacks, as another client does."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [CLUSTERED, DOMAINS]}
    domain = {"domain": DOMAIN, "configuration": '{"clusteringColumns":[["k"]]}', "removed": False}
    actions = text([{"protocol": protocol}, {"domainMetadata": domain}])
    (table.path / commit_path(table.view().version + 1)).write_bytes(actions)


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
    assert rows == [{"k": None, **row, "more": None} for row in (*OLD.to_pylist(), *NEW.to_pylist())]


CHANGES: dict[str, tuple[str, Callable[..., None], str]] = {
    "a wider type": ("lance", with_wider_type, ""),
    "a narrower type": ("lance", with_narrower_type, ""),
    "a dropped column": ("lance", without_struct, "s .* is not in the table"),
    "a constraint": (
        "delta",
        lambda table: DeltaTable(str(table.path)).alter.add_constraint({"small": "n < 2"}),
        "1 rows don't meet",
    ),
    "shorter texts": ("delta", with_shorter_texts, "longer than"),
    "a clustering column without statistics": ("delta", clustered, ""),
}


@pytest.mark.parametrize(("table_format", "change", "misfit"), CHANGES.values(), ids=CHANGES)
def test_a_batch_is_run_again_if_its_files_do_not_fit_the_changed_table(
    tmp_path: Path, table_format: str, change: Callable[..., None], misfit: str
) -> None:
    """`misfit`: the error of the batch that is run again, empty if it is committed."""
    table = table_in(tmp_path / "t", table_format)
    operation = written(table)
    first = operation.build(table.view(), Key("app", 7), table.settings())
    change(table)
    assert first is not None
    table.refused(first)
    with pytest.raises(RetryError, match="columns or rules were changed while") as raised:
        operation.build(table.view(), Key("app", 7), table.settings())
    assert raised.value.hint
    if misfit:
        with pytest.raises(InvalidError, match=misfit):
            written(table)
        return
    again = written(table).build(table.view(), Key("app", 7), table.settings())
    assert again is not None
    (result,) = table.fold(again)
    assert isinstance(result, Committed), result


@pytest.mark.parametrize("table_format", ["lance", "delta"])
@pytest.mark.parametrize(
    "options",
    [None, {}, {"overwriteSchema": "true"}, {"replaceWhere": "n > 0"}],
    ids=["append", "overwrite", "overwrite with its columns", "replace rows"],
)
def test_files_are_not_proposed_for_a_table_that_was_made_anew_since(
    tmp_path: Path, table_format: str, options: dict[str, str] | None
) -> None:
    """`lakefold drop` has removed what tasks wrote for the old table."""
    table = table_in(tmp_path / "t", table_format)
    if isinstance(table, Folding):
        put(table, appending(OLD))
    given, key = read_write_options({"path": str(table.path)} | (options or {})), Key("app", 7)
    overwrite = options is not None
    plan = plan_write(given, table.settings(), OLD.schema, key, use=WriteUse.BATCH, overwrite=overwrite)
    files = collect_files(plan.target, plan.with_few([plan.run(OLD.to_batches())]))
    planned = plan.operation.with_files(files, pa.table({}))
    assert planned.table_id == table.view().carried.full_id != ""
    operation = replace(planned, table_id="that of the table before")
    with pytest.raises(RetryError, match="was dropped and made anew"):
        operation.build(table.view(), key, table.settings())
    assert not operation.built, "so the plan removes what is left of its files"
    assert planned.build(table.view(), key, table.settings()) is not None


CHANGED_COLUMNS: dict[str, Callable[[Folding], None]] = {
    "added": lambda table: lance.dataset(str(table.path)).add_columns({"more": "1"}),
    "wider": lambda table: lance.dataset(str(table.path)).alter_columns(altered("n", data_type=pa.int64())),
    "renamed": lambda table: lance.dataset(str(table.path)).alter_columns(altered("n", name="m")),
    "dropped": lambda table: lance.dataset(str(table.path)).drop_columns(["wide"]),
}
"""What others do to the columns while an Overwrite waits in the log."""


def overwriting(table: Folding, *, keeps_schema: bool) -> Envelope:
    view, target = lance_view(table.view(), "this"), table.view().target(OLD.schema, table.settings())
    files = list(target.write(OLD.to_batches()))
    envelope = table.build(OverwriteWritten(files, Schema(fields=view.fields), keeps_schema))
    assert envelope is not None
    return envelope


@pytest.mark.parametrize("change", CHANGED_COLUMNS.values(), ids=CHANGED_COLUMNS)
def test_rows_are_not_replaced_with_the_columns_that_others_have_changed(
    tmp_path: Path, change: Callable[[Folding], None]
) -> None:
    table = made(tmp_path / "t", OLD)
    keeping, replacing = (overwriting(table, keeps_schema=keeps) for keeps in (True, False))
    change(table)
    after = lance.dataset(str(table.path)).schema
    (refused,) = table.fold(keeping)
    assert isinstance(refused, Rejected), refused
    assert refused.conflict.retryable
    assert "the columns were changed since version" in refused.conflict.message
    assert lance.dataset(str(table.path)).schema == after
    (result,) = table.fold(replacing)
    assert isinstance(result, Committed), result
    assert lance.dataset(str(table.path)).schema == OLD.schema


def test_rows_are_replaced_if_the_columns_are_again_as_they_were(tmp_path: Path) -> None:
    table = made(tmp_path / "t", OLD)
    keeping = overwriting(table, keeps_schema=True)
    dataset = lance.dataset(str(table.path))
    dataset.alter_columns(altered("n", name="m"))
    dataset.alter_columns(altered("m", name="n"))
    (result,) = table.fold(keeping)
    assert isinstance(result, Committed), result
