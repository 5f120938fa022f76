"""A batch with a key that has nothing to change is folded, in each door and format.

Run again after its job's later batches, it may meet rows that it would change, and must not.

Promise: nothing-counts (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import PATIENCE_S, OwnLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
FORMATS = ("lance", "delta")
APP = "job"


def rows(*numbers: int, text: str = "a") -> pa.Table:
    return pa.table({"n": list(numbers), "s": [text] * len(numbers)}, schema=SCHEMA)


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


def brokers(options: lakefold.WriteOptions) -> dict[str, Any]:
    """The options by which a function finds the log."""
    return {name: value for name, value in options.items() if name != "format"}


ONLY_UPDATES = [lakefold.MatchedUpdate()]
DOORS: dict[str, Callable[..., lakefold.BatchReport]] = {
    "delete by a condition": lambda table, **key: lakefold.delete(table, where="n = 7", **key),
    "delete by keys": lambda table, **key: lakefold.delete(table, keys="n", rows=rows(7), **key),
    "upsert that updates": lambda table, **key: lakefold.upsert(
        table, rows(7, text="b"), keys="n", clauses=ONLY_UPDATES, **key
    ),
    "upsert without rows": lambda table, **key: lakefold.upsert(table, rows(), keys="n", **key),
    "change events": lambda table, **key: lakefold.apply_changes(
        table, pa.table({"n": [7], "op": ["d"]}), keys="n", operation_column="op", **key
    ),
    "append without rows": lambda table, **key: lakefold.append(table, rows(), **key),
    "replacement by a condition": lambda table, **key: lakefold.overwrite(
        table, rows(), where="n = 7", **key
    ),
}


def created(table: Path, kind: str, options: lakefold.WriteOptions) -> None:
    given: lakefold.WriteOptions = {**options, "format": kind}
    lakefold.append(table, rows(1), **given)


def numbers(table: Path) -> list[tuple[int, str]]:
    return sorted((row["n"], row["s"]) for row in lakefold.open(table).to_arrow().to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_that_changed_nothing_is_folded_once_in_each_door(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    for number, (door, put) in enumerate(DOORS.items()):
        table = tmp_path / f"{number}"
        created(table, kind, options)
        key: dict[str, Any] = {"app_id": APP, **options}
        before = lakefold.open(table).version
        first = put(table, batch_id=0, **key)
        assert (first.kind, first.version) == ("committed", before + 1), door
        assert (first.rows_added, first.rows_deleted) == (0, 0), door
        lakefold.append(table, rows(7), batch_id=1, **key)
        again = put(table, batch_id=0, **key)
        assert (again.kind, again.version) == ("duplicate", before + 1), door
        assert numbers(table) == [(1, "a"), (7, "a")], door


def test_so_it_is_on_a_branch(options: lakefold.WriteOptions, tmp_path: Path) -> None:
    created(tmp_path / "t", "lance", options)
    for number, (door, put) in enumerate(DOORS.items()):
        branch = lakefold.branch(tmp_path / "t", f"b{number}", **brokers(options))
        assert branch is not None
        table = tmp_path / "t" / "tree" / f"b{number}"
        key: dict[str, Any] = {"app_id": APP, **options}
        assert put(table, batch_id=0, **key).kind == "committed", door
        lakefold.append(table, rows(7), batch_id=1, **key)
        assert put(table, batch_id=0, **key).kind == "duplicate", door
        assert numbers(table) == [(1, "a"), (7, "a")], door


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_without_key_that_changes_nothing_is_not_sent(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    created(table, kind, options)
    before = lakefold.open(table).version
    for door, put in DOORS.items():
        report = put(table, **options)
        assert (report.kind, report.version) == ("empty", None), door
    assert lakefold.open(table).version == before


@pytest.mark.parametrize("kind", FORMATS)
def test_its_version_is_read_by_every_reader_and_folded_again_the_same(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    created(table, kind, options)
    key: dict[str, Any] = {"app_id": APP, **options}
    version = lakefold.delete(table, where="n = 7", batch_id=0, **key).version
    lakefold.append(table, rows(7), batch_id=1, **key)
    assert version is not None
    changes = list(lakefold.tail(table, start=version - 1, follow=False))
    assert [(change.version, 0 if change.rows is None else change.rows) for change in changes] == [
        (version, 0),
        (version + 1, 1),
    ]
    read = lakefold.changes(table, version - 1, version).read_all()
    assert read.num_rows == 0
    verbs = command_line()
    brokers = ["--bootstrap-servers", str(options.get("bootstrap_servers"))]
    for verb in (["log"], ["show"], ["replay", *brokers]):
        done = verbs.run([verb[0], str(table), *verb[1:]], timeout=200)
        assert done.returncode == 0, done.stderr
    if kind == "lance":
        dataset = lance.dataset(str(table))
        assert dataset.checkout_version(version).count_rows() == 1
        transaction = dataset.read_transaction(version)
        assert transaction is not None
        assert type(transaction.operation).__name__ == "UpdateConfig"
        dataset.insert(rows(8))
    else:
        assert deltalake.DeltaTable(table, version=version).to_pyarrow_table().num_rows == 1
        assert deltalake.DeltaTable(table).transaction_version(APP) == 1
        deltalake.write_deltalake(table, rows(8), mode="append")
    assert lakefold.delete(table, where="n = 9", batch_id=2, **key).kind == "committed"
    assert numbers(table) == [(1, "a"), (7, "a"), (8, "a")]
