"""A batch that was folded is recognised before its columns are compared with what others made of the table.

They may have dropped a column of it since, replaced all rows, or restored a version without it.

Promise: keys-come-first (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers), "w": [7] * len(numbers)})


@pytest.fixture
def options(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[lakefold.WriteOptions]:
    OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        yield {
            "bootstrap_servers": bootstrap,
            "transactions_topic": topic_names.transactions,
            "outcomes_topic": topic_names.outcomes,
            "timeout": PATIENCE_S,
        }
    close_clients()


EVENTS = pa.table({"n": [7], "w": [1], "op": ["u"]})
DOORS: dict[str, Callable[..., lakefold.BatchReport]] = {
    "append": lambda table, **key: lakefold.append(table, rows(2), **key),
    "append that adds columns": lambda table, **key: lakefold.append(
        table, rows(2), merge_schema=True, **key
    ),
    "upsert": lambda table, **key: lakefold.upsert(table, rows(3), keys="n", **key),
    "upsert by the column": lambda table, **key: lakefold.upsert(table, rows(3), keys=["n", "w"], **key),
    "delete by the column": lambda table, **key: lakefold.delete(table, where="w = 1", **key),
    "delete by keys": lambda table, **key: lakefold.delete(table, keys="w", rows=rows(9), **key),
    "change events": lambda table, **key: lakefold.apply_changes(
        table, EVENTS, keys="n", operation_column="op", **key
    ),
}


def written(table: Path, kind: str, options: lakefold.WriteOptions) -> None:
    """A table to which each door has added its batch, and then another one."""
    created: lakefold.WriteOptions = {**options, "format": kind}
    lakefold.append(table, pa.table({"n": [1]}), **created)
    widened: lakefold.WriteOptions = {**options, "merge_schema": True}
    lakefold.append(table, rows(1), **widened)
    for number, put in enumerate(DOORS.values()):
        assert put(table, app_id="job", batch_id=number, **options).kind == "committed"


def columns(table: Path) -> list[str]:
    return list(lakefold.open(table).to_arrow().column_names)


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_batch_whose_column_others_have_dropped_is_a_duplicate(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    written(table, kind, options)
    if kind == "lance":
        lance.dataset(str(table)).drop_columns(["w"])
        lance.write_dataset(pa.table({"n": [50]}), str(table), mode="append")
    else:
        new = pa.table({"n": [50]})
        deltalake.write_deltalake(str(table), new, mode="overwrite", schema_mode="overwrite")
    before = lakefold.open(table).version
    for number, (door, put) in enumerate(DOORS.items()):
        assert put(table, app_id="job", batch_id=number, **options).kind == "duplicate", door
    assert (columns(table), lakefold.open(table).version) == (["n"], before)
    with pytest.raises(lakefold.ReusedKeyError):
        lakefold.append(table, rows(2, 3), app_id="job", batch_id=0, **options)
    with pytest.raises(lakefold.InvalidError, match="w "):
        lakefold.append(table, rows(2), app_id="job", batch_id=99, **options)


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_batch_that_others_have_restored_away_is_reported_as_such(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    written(table, kind, options)
    if kind == "lance":
        lance.dataset(str(table), version=2).restore()
    else:
        deltalake.DeltaTable(str(table)).restore(0)
    before = lakefold.open(table).version
    for number, (door, put) in enumerate(DOORS.items()):
        with pytest.raises(lakefold.InvalidError, match="its rows were undone in"):
            put(table, app_id="job", batch_id=number, **options)
        skipped = put(table, app_id="job", batch_id=number, on_rolled_back="skip", **options)
        assert skipped.kind == "duplicate", door
    assert (columns(table), lakefold.open(table).version) == (["n"], before)


def test_a_clone_that_pylance_made_elsewhere_takes_the_batches_of_its_source(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table, clone = tmp_path / "t", tmp_path / "u"
    written(table, "lance", options)
    lance.dataset(str(table)).shallow_clone(str(clone), lance.dataset(str(table)).version)
    assert lakefold.append(clone, rows(2), app_id="job", batch_id=0, **options).kind == "committed"
