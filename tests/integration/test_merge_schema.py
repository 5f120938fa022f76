"""Columns that only a batch has are added through a real log, by writers that compete and are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefold
from lakefold.cli import run
from lakefold_log.client.topics import watermarks
from tests.integration.own_log import OwnLog

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


def rows(*numbers: int, **more: object) -> pa.Table:
    return pa.table({"n": list(numbers)} | {name: [value] * len(numbers) for name, value in more.items()})


@pytest.fixture(params=["lance", "delta"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(options: lakefold.WriteOptions, table_format: str) -> lakefold.WriteOptions:
    """Those of a table whose columns may get wider types."""
    given: lakefold.WriteOptions = {**options, "format": table_format}
    if table_format == "delta":
        given["table_properties"] = {"delta.enableTypeWidening": True}
    return given


@pytest.fixture
def merging(options: lakefold.WriteOptions) -> lakefold.WriteOptions:
    return {**options, "merge_schema": True}


def read(table: Path) -> list[dict[str, Any]]:
    """The rows, ordered by n: of a Lance table by pylance, of which delta-rs reads none with wider types."""
    opened = lakefold.open(table)
    rows_read: list[dict[str, Any]] = opened.to_arrow().to_pylist()
    if opened.format == "lance":
        dataset = lance.dataset(table)
        dataset.validate()
        rows_read = dataset.to_table().to_pylist()
    return sorted(rows_read, key=lambda row: str(row["n"]))


def test_columns_are_added_before_the_rows_and_only_if_that_is_allowed(
    options: lakefold.WriteOptions,
    merging: lakefold.WriteOptions,
    bootstrap: str,
    topic_names: TopicNames,
    table_format: str,
    tmp_path: Path,
) -> None:
    table = tmp_path / "t"
    log = OwnLog.make(bootstrap, topic_names)
    lakefold.append(table, rows(1), **options)
    sent = watermarks(log.admin, topic_names.transactions, 0)
    with pytest.raises(lakefold.InvalidError, match=r"a \(string\) is not in the table") as caught:
        lakefold.append(table, rows(2, a="x"), **options)
    assert "merge_schema" in caught.value.hint
    with pytest.raises(lakefold.InvalidError, match="n is double in the batch, int64 in the table") as caught:
        lakefold.append(table, pa.table({"n": [1.5], "a": ["x"]}), **merging)
    assert "another name" in caught.value.hint
    assert watermarks(log.admin, topic_names.transactions, 0) == sent
    outcome = lakefold.append(table, rows(2, a="x"), app_id="svc", batch_id=0, **merging)
    # Versions of Lance begin with 1.
    version = {"lance": 4, "delta": 3}[table_format]
    assert (outcome.kind, outcome.version, outcome.rows_added) == ("committed", version, 1)
    again = lakefold.append(table, rows(2, a="x"), app_id="svc", batch_id=0, **merging)
    assert (again.kind, again.version, again.is_doubtful) == ("duplicate", version, False)
    lakefold.upsert(table, rows(2, 3, b=5), keys="n", **merging)
    logged: lakefold.WriteOptions = {**merging, "wait": "log"}
    assert lakefold.append(table, rows(4, c=True), **logged).kind == "sent"
    assert lakefold.append(table, rows(5), **options).kind == "committed"
    assert read(table) == [
        {"n": 1, "a": None, "b": None, "c": None},
        {"n": 2, "a": "x", "b": 5, "c": None},
        {"n": 3, "a": None, "b": 5, "c": None},
        {"n": 4, "a": None, "b": None, "c": True},
        {"n": 5, "a": None, "b": None, "c": None},
    ]


def test_the_verb_adds_columns_if_the_option_is_given(
    bootstrap: str,
    topic_names: TopicNames,
    options: lakefold.WriteOptions,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lakefold.append(tmp_path / "t", rows(1), **options)
    pq.write_table(rows(2, a="x"), tmp_path / "wide.parquet")
    words = ["append", str(tmp_path / "t"), str(tmp_path / "wide.parquet"), "--json"]
    words += ["--bootstrap-servers", bootstrap, "--transactions-topic", topic_names.transactions]
    words += ["--outcomes-topic", topic_names.outcomes]
    assert run(words) == 2
    assert "by --merge-schema" in capsys.readouterr().out
    assert run([*words, "--merge-schema"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "committed"
    assert read(tmp_path / "t") == [{"n": 1, "a": None}, {"n": 2, "a": "x"}]


def test_writers_that_add_columns_at_once_end_in_one_schema(
    merging: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    lakefold.append(table, rows(0), **merging)

    def write(number: int) -> lakefold.BatchReport:
        own, shared = {f"c{number % 4}": number}, {"all": number}
        return lakefold.append(
            table, rows(number, **own, **shared), app_id=f"app{number}", batch_id=0, **merging
        )

    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(write, range(1, 17)))
    assert {report.kind for report in reports} == {"committed"}
    assert sorted(lakefold.open(table).schema.names) == ["all", "c0", "c1", "c2", "c3", "n"]
    nothing = dict.fromkeys(["all", "c0", "c1", "c2", "c3"])
    written = [{"n": n} | nothing | {"all": n, f"c{n % 4}": n} for n in range(1, 17)]
    expected = sorted([{"n": 0} | nothing, *written], key=lambda row: str(row["n"]))
    assert read(table) == expected


def test_writers_that_need_wider_types_at_once_end_in_one_schema(
    merging: lakefold.WriteOptions, tmp_path: Path
) -> None:
    """The Appends that a wider type overtakes are written again."""
    table = tmp_path / "t"
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    lakefold.append(table, pa.table({"n": pa.array([0], kinds[0])}), **merging)

    def write(number: int) -> lakefold.BatchReport:
        kind = kinds[number % 4]
        values = pa.array([number, 2 ** (kind.bit_width - 2) + number], kind)
        return lakefold.append(table, pa.table({"n": values}), app_id=f"app{number}", batch_id=0, **merging)

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(write, range(1, 9)))
    assert {report.kind for report in reports} == {"committed"}
    assert lakefold.open(table).schema.field("n").type == kinds[-1]
    expected = {0} | {value for n in range(1, 9) for value in (n, 2 ** (kinds[n % 4].bit_width - 2) + n)}
    stored = [row["n"] for row in read(table)]
    assert len(stored) == len(expected)
    assert set(stored) == expected


def test_a_service_adds_columns_while_others_append(
    options: lakefold.WriteOptions, merging: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    with (
        lakefold.Writer(table, app_id="wide", max_delay=0.02, **merging) as wide,
        lakefold.Writer(table, app_id="plain", max_delay=0.02, **options) as plain,
    ):
        futures = [wide.append(rows(0))]
        futures[0].result(120)
        for number in range(1, 61, 2):
            more = {f"c{number // 20}": number}
            futures += [plain.append(rows(number)), wide.append(rows(number + 1, **more))]
    assert {future.result(0).kind for future in futures} == {"committed"}
    stored = read(table)
    assert sorted(row["n"] for row in stored) == list(range(61))
    assert all(
        row[f"c{(row['n'] - 1) // 20}"] == row["n"] - 1 for row in stored if row["n"] and not row["n"] % 2
    )


def test_an_append_that_does_not_fit_fails_alone_although_its_batch_adds_a_column(
    merging: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    schema = pa.schema([pa.field("small", pa.int64(), nullable=False)])
    lakefold.append(table, pa.table({"small": [1]}, schema), **merging)
    writer = lakefold.Writer(table, max_delay=0.5, **merging)
    good = writer.append(pa.table({"small": [2], "new": [1]}))
    bad = writer.append(pa.table({"small": pa.array([None], pa.int64()), "new": [1]}))
    with pytest.raises(lakefold.InvalidError, match="small: the batch has a null"):
        writer.close()
    assert isinstance(bad.exception(0), lakefold.InvalidError)
    assert good.result(0).kind == "committed"
    stored = lakefold.open(table).to_arrow().sort_by("small").to_pylist()
    assert stored == [{"small": 1, "new": None}, {"small": 2, "new": 1}]


KILLED = """
import os, signal, sys
import pyarrow as pa
import lakefold
from lakefold_ingest.writing import batch
table, servers, transactions, outcomes, last = sys.argv[1:]
def die(*given, **options):
    os.kill(os.getpid(), signal.SIGKILL)
if last == "schema":
    kept = batch.with_columns_of
    batch.with_columns_of = lambda *given: (kept(*given), die())
elif last == "sent":
    from lakefold_ingest.writing.log_client import LogClient
    LogClient.ask = lambda self, envelope, partition, *rest, **more: die(
        self.send_without_waiting(envelope, partition, **more)
    )
lakefold.append(
    table, pa.table({"n": [2], "a": ["x"]}), app_id="svc", batch_id=0, merge_schema=True,
    bootstrap_servers=servers, transactions_topic=transactions, outcomes_topic=outcomes,
)
"""


@pytest.mark.parametrize("last", ["schema", "sent"])
def test_a_writer_killed_between_schema_and_rows_adds_both_once(
    merging: lakefold.WriteOptions,
    bootstrap: str,
    topic_names: TopicNames,
    table_format: str,
    tmp_path: Path,
    last: str,
) -> None:
    table = tmp_path / "t"
    lakefold.append(table, rows(1), **merging)
    names = (topic_names.transactions, topic_names.outcomes)
    words = [sys.executable, "-c", KILLED, str(table), bootstrap, *names, last]
    killed = subprocess.run(words, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    outcome = lakefold.append(table, rows(2, a="x"), app_id="svc", batch_id=0, **merging)
    assert outcome.kind == "committed"
    assert read(table) == [{"n": 1, "a": None}, {"n": 2, "a": "x"}]
    operations = [row.operation for row in lakefold.open(table).history()]
    assert operations.count({"lance": "merge", "delta": "ADD COLUMNS"}[table_format]) == 1


def test_readers_go_on_over_a_version_in_which_a_column_appears(
    merging: lakefold.WriteOptions, table_format: str, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    lakefold.append(table, rows(1), **merging)
    tail = lakefold.tail(table, start="earliest", follow=False)
    before = [change.version for change in tail]
    lakefold.append(table, rows(2, a="x"), **merging)
    lakefold.append(table, rows(3), **merging)
    inserted = {
        change.version: change.inserted().to_pylist()
        for change in lakefold.tail(table, start=before[-1], follow=False)
    }
    assert [row for version in sorted(inserted) for row in inserted[version]] == [
        {"n": 2, "a": "x"},
        {"n": 3, "a": None},
    ]
    created = {"lance": 1, "delta": 0}[table_format]
    feed = lakefold.changes(table, created, lakefold.open(table).version).read_all().to_pylist()
    assert sorted((row["n"], row["a"]) for row in feed) == [(1, None), (2, "x"), (3, None)]
    assert {row["_change_type"] for row in feed} == {"insert"}
