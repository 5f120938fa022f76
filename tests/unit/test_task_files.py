"""What tasks write is collected whole or removed: no file is left of a batch that was not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.formats import read_view
from lakefold_ingest.lance.view import LanceView
from lakefold_ingest.merge.lance.format import OverwriteWritten
from lakefold_ingest.operations.append import AppendWritten
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.task_files import TaskFiles, collect_files, decoded_files, write_task
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import WritePlan, plan_write
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.lance.schemas.arrow import schema_to_arrow
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = Key("app", 7)
ROWS = pa.record_batch({"n": pa.array([1, 2, 3]), "s": ["a", "b", "c"]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a single row."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
    lance.write_dataset(pa.table({"n": [0], "s": ["z"]}, schema=schema), tmp_path / "t")
    return tmp_path / "t"


def settings_of(table: Path) -> WriteSettings:
    return WriteSettings(canonical(table), KafkaConfig("127.0.0.1:1", {}), Topics(), max_rows_per_file=2)


def view_of(table: Path) -> LanceView:
    view = read_view(canonical(table), {}, afresh=True)
    assert isinstance(view, LanceView)
    return view


def plan_of(table: Path, *, overwrite: bool = False, **options: str) -> WritePlan:
    given = read_write_options({"path": str(table), **options})
    return plan_write(given, settings_of(table), ROWS.schema, KEY, use=WriteUse.BATCH, overwrite=overwrite)


def files_in(table: Path) -> set[str]:
    return {path.name for path in (table / "data").iterdir()}


def test_a_task_returns_the_fragments_of_all_its_files(table: Path) -> None:
    before = files_in(table)
    target = view_of(table).target(ROWS.schema, settings_of(table))
    task = write_task(target, [ROWS])
    fragments = decoded_files(target, [task])
    assert [fragment.physical_rows for fragment in fragments] == [2, 1]
    assert files_in(table) - before == {file.path for fragment in fragments for file in fragment.files}
    assert task.fault is None
    assert task.seconds > 0


def test_a_task_whose_rows_do_not_fit_says_so_and_leaves_no_file(table: Path) -> None:
    before = files_in(table)
    null = pa.record_batch({"n": pa.array([None], pa.int64()), "s": ["d"]})
    task = write_task(view_of(table).target(ROWS.schema, settings_of(table)), [ROWS, null])
    assert task.fragments == ()
    assert task.fault is not None
    assert task.fault[1] == "n"
    assert files_in(table) == before


def test_a_task_that_fails_leaves_no_file(table: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise OSError("Spark has lost the rows")

    before = files_in(table)
    with pytest.raises(OSError, match="lost the rows"):
        write_task(view_of(table).target(ROWS.schema, settings_of(table)), rows())
    assert files_in(table) == before


def test_a_folder_that_can_not_be_written_is_named(table: Path) -> None:
    target = view_of(table).target(ROWS.schema, settings_of(table))
    (table / "data").rename(table / "moved")
    (table / "data").touch()
    with pytest.raises(RetryError, match="rows can't be written: ") as raised:
        write_task(target, [ROWS])
    assert raised.value.where == canonical(table)


def test_the_fault_of_one_task_removes_the_files_of_the_others(table: Path) -> None:
    before = files_in(table)
    target = view_of(table).target(ROWS.schema, settings_of(table))
    good = write_task(target, [ROWS])
    with pytest.raises(InvalidError, match="n: no nulls"):
        collect_files(target, [good, TaskFiles((), ("no nulls", "n", ""), 0.0)])
    assert files_in(table) == before


def test_an_aborted_batch_removes_its_files_only_if_a_task_failed(table: Path) -> None:
    before = files_in(table)
    plan = plan_of(table)
    task = write_task(plan.target, [ROWS])
    written = files_in(table)
    plan.abort([task, task])
    assert files_in(table) == written
    plan.abort([task, None])
    assert files_in(table) == before


def test_a_batch_that_was_not_sent_leaves_no_file(table: Path) -> None:
    before = files_in(table)
    plan = plan_of(table, overwrite=True)
    tasks = [write_task(plan.target, [ROWS])]
    # Another client changes the columns, and the files don't fit any more.
    lance.dataset(table).add_columns({"more": "n + 1"})
    with_column = files_in(table) - {
        file.path for each in decoded_files(plan.target, tasks) for file in each.files
    }
    with pytest.raises(RetryError, match="columns or rules were changed"):
        plan.commit(KEY, tasks)
    assert files_in(table) == with_column > before


def test_an_append_names_the_version_for_which_its_files_were_written(table: Path) -> None:
    plan = plan_of(table)
    fragments = decoded_files(plan.target, [write_task(plan.target, [ROWS])])
    lance.write_dataset(pa.table({"n": [9], "s": ["y"]}), table, mode="append")
    operation = plan.operation.with_files(fragments, ROWS.slice(0, 0))
    assert isinstance(operation, AppendWritten)
    envelope = operation.build(view_of(table), KEY, plan.settings)
    assert operation.built
    assert envelope is not None
    assert envelope.lance.read_version == 1
    assert list(envelope.lance.append.fragments) == fragments
    assert AppendWritten([], plan.target, 1).build(view_of(table), KEY, plan.settings) is None


def test_an_overwrite_keeps_the_columns_or_brings_those_of_the_rows(table: Path) -> None:
    plan = plan_of(table, overwrite=True)
    kept = plan.operation.build(view_of(table), KEY, plan.settings)
    assert kept is not None
    assert list(kept.lance.overwrite.schema) == list(view_of(table).fields)
    wider = plan_of(table, overwrite=True, overwriteSchema="true")
    assert isinstance(wider.operation, OverwriteWritten)
    columns = wider.operation.columns
    assert schema_to_arrow(columns.fields, columns.metadata).equals(ROWS.schema)
    assert not wider.operation.keeps_schema
    built = OverwriteWritten([], columns, keeps_schema=False).build(view_of(table), KEY, plan.settings)
    assert built is not None
    assert list(built.lance.overwrite.schema) == list(columns.fields)
