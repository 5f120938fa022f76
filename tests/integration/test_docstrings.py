"""The code in the docstrings of the public names works, on tables of a test in place of those in a bucket."""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import TYPE_CHECKING, Final

import lance
import pyarrow as pa
import pytest

import lakefold
import lakefold.spark
from tests.code_blocks import code_in_docstrings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames

CODE: Final = code_in_docstrings(lakefold)
SPARK_CODE: Final = code_in_docstrings(lakefold.spark)
FLIGHTS: Final = pa.table({"id": [1, 2], "carrier": ["AA", None], "dep_delay": [70, 5], "changed_at": [1, 1]})
PEOPLE: Final = pa.table(
    {
        "id": [1, 2, 3],
        "country": ["XX", "DE", "FR"],
        "at": [1] * 3,
        "changed_at": [1] * 3,
        "version": [1] * 3,
        "deleted": [False] * 3,
    }
)
EVENTS: Final = pa.table({"id": [1, 2], "country": ["DE", None], "at": [2, 2], "op": ["u", "d"]})
ROW: Final = pa.struct([("id", pa.int64()), ("country", pa.string()), ("at", pa.int64())])
MESSAGES: Final = pa.table(
    {
        "op": ["c"],
        "before": pa.array([None], ROW),
        "after": pa.array([{"id": 7, "country": "IT", "at": 1}], ROW),
        "source": pa.array([{"lsn": 5}]),
    }
)
GIVEN: Final = {"rows": FLIGHTS, "ids": PEOPLE.select(["id"]), "events": EVENTS, "messages": MESSAGES}
"""What the code of a docstring has from its reader."""


@pytest.fixture
def log_by_the_environment(
    options: lakefold.WriteOptions, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFOLD_DEAD_LETTERS_TOPIC", topic_names.dead_letters)
    for name in ("bootstrap_servers", "transactions_topic", "outcomes_topic"):
        monkeypatch.setenv(f"LAKEFOLD_{name.upper()}", str(options[name]))


def run(code: str, where: str, folder: Path, **names: object) -> None:
    """Runs code that may `await` outside of a function. What is followed for ever is read to its end."""
    text = code.replace("s3://lake/", f"{folder}/").replace("follow=True", "follow=False")
    compiled = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, {**GIVEN, "lakefold": lakefold, **names})  # noqa: S307 - our own documentation
    if inspect.iscoroutine(result):
        asyncio.run(result)


def write_flights(folder: Path) -> None:
    """Makes a table with the versions that the code names."""
    for number in range(12):
        lance.write_dataset(FLIGHTS, folder / "flights.lance", mode="append" if number else "create")


@pytest.mark.usefixtures("log_by_the_environment")
@pytest.mark.parametrize("name", CODE)
def test_the_code_of_a_docstring_works(name: str, tmp_path: Path) -> None:
    write_flights(tmp_path)
    lance.write_dataset(PEOPLE, tmp_path / "people")
    rows = {"rows": PEOPLE} if "people" in CODE[name] else {}
    run(CODE[name], name, tmp_path, table=tmp_path / "people", **rows)


def test_the_code_of_the_docstrings_about_spark_works(
    spark: SparkSession, options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    assert SPARK_CODE.keys() == {"lakefold.spark.register", "lakefold.spark.sink"}
    write_flights(tmp_path)
    brokers = str(options["bootstrap_servers"])
    # Spark's workers don't have the environment of this test.
    given = {
        "kafka.bootstrap.servers": brokers,
        "transactionsTopic": options["transactions_topic"],
        "outcomesTopic": options["outcomes_topic"],
    }
    settings = "".join(f".option({name!r}, {value!r})" for name, value in given.items())
    append = '.mode("append")'
    code = SPARK_CODE["lakefold.spark.register"].replace(append, append + settings)
    frame = spark.createDataFrame(FLIGHTS)
    run(code, "register", tmp_path, spark=spark, frame=frame, register=lakefold.spark.register)
    assert lance.dataset(tmp_path / "flights.lance").count_rows() == 13 * FLIGHTS.num_rows
    code = SPARK_CODE["lakefold.spark.sink"].replace("/data/", f"{tmp_path}/").replace("broker:9092", brokers)
    events = spark.readStream.format("rate").load()
    run(code, "sink", tmp_path, sink=lakefold.spark.sink, events=events)
