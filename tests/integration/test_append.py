"""`lakefold.append` and its verb: rows of any library through a real log, without Spark."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import lance
import pandas as pd  # type: ignore[import-untyped] # it has no types of its own
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefold
from lakefold.cli import run
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_table.entry import Rejected
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position
    from tests.integration.conftest import TopicNames

SCHEMA = pa.schema([pa.field("n", pa.int64()), ("s", pa.string())])


REQUIRED = pa.schema([pa.field("n", pa.int64(), nullable=False)])


def data_files(table: Path) -> list[str]:
    """The data files of a table of either format."""
    return sorted(path.name for path in table.rglob("*") if path.suffix in {".lance", ".parquet"})


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers), "s": [str(number) for number in numbers]}, schema=SCHEMA)


def numbers(table: Path) -> list[int]:
    """The column n of all rows, as pylance reads it."""
    read: list[int] = lance.dataset(table).to_table()["n"].to_pylist()
    return sorted(read)


def test_rows_of_any_library_are_added_and_a_key_only_once(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    first = lakefold.append(table, rows(1, 2), app_id="svc", batch_id=7, **options)
    assert (first.kind, first.version, first.rows_added, first.attempts) == ("committed", 2, 2, 1)
    again = lakefold.append(table, rows(1, 2), app_id="svc", batch_id=7, **options)
    assert (again.kind, again.version, again.rows_added) == ("duplicate", 2, 0)
    for other in (
        pl.DataFrame({"n": [3]}),
        pd.DataFrame({"s": ["x"], "n": [4]}),
        rows(5).to_batches()[0],
        rows(6).to_reader(),
        rows(6),
    ):
        assert lakefold.append(table, other, **options).kind == "committed"
    assert numbers(table) == [1, 2, 3, 4, 5, 6, 6]
    nothing = lakefold.append(table, rows(), **options)
    assert (nothing.kind, nothing.version, nothing.rows_added) == ("empty", None, 0)
    logged: lakefold.WriteOptions = {**options, "wait": "log"}
    assert lakefold.append(table, rows(7), **logged).kind == "sent"
    with pytest.raises(lakefold.InvalidError, match=r"n is string in the batch, int64 in the table"):
        lakefold.append(table, pa.table({"n": ["x"]}), **options)


@pytest.mark.parametrize("format_", ["lance", "delta"])
def test_an_append_that_fails_leaves_no_files(
    options: lakefold.WriteOptions, tmp_path: Path, format_: str
) -> None:
    table = tmp_path / "t"
    given: lakefold.WriteOptions = {**options, "format": format_, "max_rows_per_file": 1}
    lakefold.append(table, pa.table({"n": [0]}, REQUIRED), **given)
    before = data_files(table)
    batches = [pa.record_batch([pa.array([value], pa.int64())], ["n"]) for value in (1, 2, None)]
    with pytest.raises(lakefold.InvalidError, match="n"):
        lakefold.append(table, pa.Table.from_batches(batches), **given)
    assert data_files(table) == before
    assert len(before) == 1


@pytest.mark.parametrize("format_", ["lance", "delta"])
@pytest.mark.parametrize("has_key", [True, False])
def test_batches_that_are_only_sent_follow_each_other(
    options: lakefold.WriteOptions, tmp_path: Path, format_: str, *, has_key: bool
) -> None:
    """Each one reads what became of those before it, which are known by their key, or by their proposal."""
    table = tmp_path / "t"
    given: lakefold.WriteOptions = {**options, "format": format_}
    lakefold.append(table, rows(0), **given)
    logged: lakefold.WriteOptions = {**given, "wait": "log"}
    for number in range(1, 6):
        key = {"app_id": "svc", "batch_id": number} if has_key else {}
        assert lakefold.append(table, rows(number), **logged, **key).kind == "sent"  # type: ignore[arg-type]
        until(partial(has_rows, table, number + 1), "the rows", seconds=PATIENCE_S)
    assert sorted(lakefold.open(table).to_arrow().column("n").to_pylist()) == list(range(6))


def has_rows(table: Path, count: int) -> bool:
    return lakefold.open(table).count_rows() == count


def test_threads_append_at_once_and_do_not_wait_for_each_other(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    lakefold.append(table, rows(0), **options)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: lakefold.append(table, rows(n), **options), range(1, 41)))
    assert {outcome.kind for outcome in outcomes} == {"committed"}
    assert numbers(table) == list(range(41))


def test_a_refusal_is_an_error_with_the_outcome(options: lakefold.WriteOptions, tmp_path: Path) -> None:
    """Another client overwrites the table after the files were written."""
    table = tmp_path / "t"
    lakefold.append(table, rows(1), **options)
    stream = rows(2).to_reader()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from stream
        lance.write_dataset(rows(9), table, mode="overwrite")

    late = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with pytest.raises(lakefold.RefusedError, match="the batch was refused") as caught:
        lakefold.append(table, late, **options)
    assert isinstance(caught.value.outcome.result, Rejected)
    assert caught.value.exit_code == 3
    assert numbers(table) == [9]


def test_the_verb_appends_files_and_prints_the_outcome(
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    OwnLog.make(bootstrap, topic_names)
    pq.write_table(rows(1, 2), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("n,s\n3,x\n")
    table = str(tmp_path / "t")
    words = ["--bootstrap-servers", bootstrap, "--transactions-topic", topic_names.transactions]
    words += ["--outcomes-topic", topic_names.outcomes, "--json"]
    key = ["--app-id", "loader", "--batch-id", "0"]

    def appended(*given: str) -> tuple[int, dict[str, object]]:
        code = run(["append", table, *given, *words])
        return code, json.loads(capsys.readouterr().out)

    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        code, document = appended(str(tmp_path / "a.parquet"), str(tmp_path / "b.csv"), *key)
        assert code == 0
        assert document == {
            "kind": "committed",
            "version": 2,
            "rows_added": 3,
            "rows_deleted": 0,
            "attempts": 1,
            "app_id": "loader",
            "batch_id": 0,
        }
        again = appended(str(tmp_path / "a.parquet"), str(tmp_path / "b.csv"), *key)
        assert (again[0], again[1]["kind"]) == (0, "duplicate")
        code, document = appended(str(tmp_path / "a.parquet"), *key)
        assert (code, document["error"]["kind"]) == (3, "ReusedKeyError")  # type: ignore[index] # JSON
        code, document = appended(str(tmp_path / "a.parquet"), "--app-id", "loader")
        assert code == 2
        (tmp_path / "c.csv").write_text("n,z\n3,x\n")
        code, document = appended(str(tmp_path / "c.csv"))
        assert code == 2
    code, document = appended(str(tmp_path / "b.csv"), "--wait", "0")
    assert (code, document["kind"]) == (0, "sent")
    # The brokers have this time to store it, but the outcome, which does not come, has a second.
    wait, limits = OutcomeWaiter.wait, []

    def wait_a_second(waiter: OutcomeWaiter, position: Position, sent: Envelope, limit: float) -> Outcome:
        limits.append(limit)
        return wait(waiter, position, sent, 1.0)

    monkeypatch.setattr(OutcomeWaiter, "wait", wait_a_second)
    code, document = appended(str(tmp_path / "b.csv"), "--wait", "120")
    assert code == 5
    assert min(limits) > 0
    assert 1 < max(limits) <= 120
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    assert numbers(tmp_path / "t") == [1, 2, 3, 3, 3]
    close_clients()


def test_a_delta_table_gets_the_properties_that_its_first_writer_names(
    options: lakefold.WriteOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the verb, by `append` and by a `Writer`; then a deleted row is marked in its file."""
    pq.write_table(rows(1, 2), tmp_path / "a.parquet")
    words = ["append", str(tmp_path / "verb"), str(tmp_path / "a.parquet"), "--format", "delta"]
    for flag, name in (
        ("--bootstrap-servers", "bootstrap_servers"),
        ("--transactions-topic", "transactions_topic"),
        ("--outcomes-topic", "outcomes_topic"),
    ):
        words += [flag, str(options[name])]  # type: ignore[literal-required] # they are options
    wrong = ["--property", "delta.enableDeletionVector=true"]
    assert run([*words, *wrong]) == 2
    assert "delta.enableDeletionVectors" in capsys.readouterr().err
    assert run([*words, "--property", "delta.enableDeletionVectors=true", "--property", "team=a=b"]) == 0
    given: lakefold.WriteOptions = {**options, "format": "delta"}
    given["table_properties"] = {"delta.enableDeletionVectors": True, "team": "a=b"}
    said: lakefold.WriteOptions = {**given, "commit_properties": {"userMetadata": "by hand"}}
    lakefold.append(tmp_path / "append", rows(1, 2), **said)
    with lakefold.Writer(tmp_path / "writer", **given) as writer:
        writer.append(rows(1, 2))
    for name in ("verb", "append", "writer"):
        table = tmp_path / name
        assert lakefold.open(table).config == {"delta.enableDeletionVectors": "true", "team": "a=b"}
        lakefold.delete(table, where="n = 1", **options)
        assert lakefold.open(table).deleted_rows == 1
        assert len(list(table.glob("*.parquet"))) == 1
    assert [row.properties for row in lakefold.open(tmp_path / "append").history()] == [
        {},
        {"userMetadata": "by hand"},
        {},
    ]
