"""Another batch under a key that was used raises in each door and format, and changes nothing.

The same batch, run again, is a quiet Duplicate. Promise: different-content (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
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

FORMATS = ("lance", "delta")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "s": [str(number) for number in numbers]})


def events(*numbers: int) -> pa.Table:
    return rows(*numbers).append_column("op", pa.array(["u"] * len(numbers)))


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


DOORS: dict[str, tuple[Callable[..., lakefold.BatchReport], Callable[..., lakefold.BatchReport]]] = {
    "append": (
        lambda table, **key: lakefold.append(table, rows(5), **key),
        lambda table, **key: lakefold.append(table, rows(6, 7), **key),
    ),
    "append of a stream": (
        lambda table, **key: lakefold.append(table, rows(5).to_reader(), **key),
        lambda table, **key: lakefold.append(table, rows(6, 7).to_reader(), **key),
    ),
    "append of other values": (
        lambda table, **key: lakefold.append(table, rows(5, 6), **key),
        lambda table, **key: lakefold.append(table, rows(5, 7), **key),
    ),
    "upsert of other values": (
        lambda table, **key: lakefold.upsert(table, rows(1), keys="n", **key),
        lambda table, **key: lakefold.upsert(table, rows(2), keys="n", **key),
    ),
    "delete by other keys": (
        lambda table, **key: lakefold.delete(table, keys="n", rows=rows(1), **key),
        lambda table, **key: lakefold.delete(table, keys="n", rows=rows(2), **key),
    ),
    "other change events": (
        lambda table, **key: lakefold.apply_changes(table, events(1), keys="n", operation_column="op", **key),
        lambda table, **key: lakefold.apply_changes(table, events(2), keys="n", operation_column="op", **key),
    ),
    "append of other columns": (
        lambda table, **key: lakefold.append(table, rows(5), **key),
        lambda table, **key: lakefold.append(table, rows(6).select(["n"]), **key),
    ),
    "append without rows": (
        lambda table, **key: lakefold.append(table, rows(), **key),
        lambda table, **key: lakefold.append(table, rows(6), **key),
    ),
    "upsert": (
        lambda table, **key: lakefold.upsert(table, rows(1), keys="n", **key),
        lambda table, **key: lakefold.upsert(table, rows(2, 3), keys="n", **key),
    ),
    "delete by keys": (
        lambda table, **key: lakefold.delete(table, keys="n", rows=rows(1), **key),
        lambda table, **key: lakefold.delete(table, keys="n", rows=rows(2, 3), **key),
    ),
    "delete by a condition": (
        lambda table, **key: lakefold.delete(table, where="n = 1", **key),
        lambda table, **key: lakefold.delete(table, where="n = 2", **key),
    ),
    "change events": (
        lambda table, **key: lakefold.apply_changes(table, events(1), keys="n", operation_column="op", **key),
        lambda table, **key: lakefold.apply_changes(
            table, events(2, 9), keys="n", operation_column="op", **key
        ),
    ),
    "replacement of all rows": (
        lambda table, **key: lakefold.overwrite(table, rows(5), **key),
        lambda table, **key: lakefold.overwrite(table, rows(6), **key),
    ),
    "replacement by another condition": (
        lambda table, **key: lakefold.overwrite(table, rows(5), where="n = 5", **key),
        lambda table, **key: lakefold.overwrite(table, rows(5), where="n > 4", **key),
    ),
    "replacement of a row in a file with others": (
        lambda table, **key: lakefold.overwrite(table, rows(2), where="n = 2", **key),
        lambda table, **key: lakefold.overwrite(table, rows(2, 2), where="n = 2", **key),
    ),
    "another operation": (
        lambda table, **key: lakefold.append(table, rows(5), **key),
        lambda table, **key: lakefold.upsert(table, rows(5), keys="n", **key),
    ),
}


def content(table: Path) -> list[tuple[int, str]]:
    return sorted((row["n"], row["s"]) for row in lakefold.open(table).to_arrow().to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_another_batch_under_a_used_key_raises_in_each_door(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    given: lakefold.WriteOptions = {**options, "format": kind}
    for number, (door, (first, other)) in enumerate(DOORS.items()):
        table = tmp_path / f"{number}"
        lakefold.append(table, rows(1, 2, 3), **given)
        key: dict[str, Any] = {"app_id": "job", "batch_id": 0, **options}
        version = first(table, **key).version
        before = content(table)
        with pytest.raises(lakefold.ReusedKeyError, match="batch 0 of job was folded before") as caught:
            other(table, **key)
        assert "on_reused_key" in caught.value.hint
        again = first(table, **key)
        assert (again.kind, again.version) == ("duplicate", version), door
        skipped = other(table, on_reused_key="skip", **key)
        assert (skipped.kind, skipped.is_doubtful) == ("duplicate", True), door
        assert content(table) == before, door


@pytest.mark.parametrize("kind", FORMATS)
def test_another_change_of_columns_under_a_used_key_raises(
    options: lakefold.WriteOptions, kind: str, tmp_path: Path
) -> None:
    given: lakefold.WriteOptions = {**options, "format": kind}
    lakefold.append(tmp_path / "t", rows(1), **given)
    key: dict[str, Any] = {"app_id": "job", "batch_id": 0, **options}
    version = lakefold.alter(tmp_path / "t", add={"x": "int64"}, **key).version
    again = lakefold.alter(tmp_path / "t", add={"x": "int64"}, **key)
    assert (again.kind, again.version) == ("duplicate", version)
    with pytest.raises(lakefold.ReusedKeyError, match="batch 0 of job was folded before"):
        lakefold.alter(tmp_path / "t", add={"y": "int64"}, **key)
    with pytest.raises(lakefold.ReusedKeyError, match="batch 0 of job was folded before"):
        lakefold.append(tmp_path / "t", rows(2), **key)
    assert lakefold.open(tmp_path / "t").version == version


def test_a_verb_ends_with_the_code_of_a_refusal(options: lakefold.WriteOptions, tmp_path: Path) -> None:
    pq.write_table(rows(1), tmp_path / "one.parquet")
    pq.write_table(rows(2, 3), tmp_path / "two.parquet")
    verbs, key = command_line(), ["--app-id", "job", "--batch-id", "0", "--json"]
    topics = [str(options.get(name)) for name in ("transactions_topic", "outcomes_topic")]
    log = ["--bootstrap-servers", str(options.get("bootstrap_servers")), "--transactions-topic", topics[0]]
    log += ["--outcomes-topic", topics[1]]

    def called(*words: str) -> tuple[int, dict[str, Any]]:
        done = verbs.run([*words, *key, *log], timeout=200)
        return done.returncode, json.loads((done.stdout or done.stderr).splitlines()[-1])

    table = str(tmp_path / "t")
    first, other = (str(tmp_path / f"{name}.parquet") for name in ("one", "two"))
    code, document = called("append", table, first)
    assert code == 0, document
    code, document = called("append", table, other)
    assert "batch 0 of job was folded before" in str(document)
    assert code == 3
    assert called("append", table, first)[1]["kind"] == "duplicate"
    assert called("append", table, other, "--on-reused-key", "skip")[1]["kind"] == "duplicate"
    assert content(tmp_path / "t") == [(1, "1")]
