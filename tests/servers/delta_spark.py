"""Delta's own implementation in Spark, in a process of its own, as a judge of tables.

Delta needs its classes on the class path of the JVM and its extension in the session, which other tests must
not run with. The process reads a request a line, and answers each by a line: rows, a state, or an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from lakefold.local.jars import fetch_jars
from lakefold.local.spark import prepare_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from pyspark.sql import SparkSession

    Actions = dict[str, list[dict[str, Any]]]
    """The members of the actions of a state, by the name of the action."""

    Members = dict[str, Any]

_STOP_S: Final = 60
_MARK: Final = "answer "
"""What an answer begins with."""
_OPTIONS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The defaults are for a cluster.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # To compile a query, or to plan it again while it runs, takes longer than to run it on a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


class DeltaSparkError(Exception):
    """What Delta refused, in its words."""


class DeltaSpark:
    """A running Spark session with Delta. `folder`: for its own files and its log."""

    def __init__(self, folder: Path) -> None:
        with (folder / "delta-spark.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def write(
        self,
        query: str,
        table: Path,
        *,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> None:
        """Writes the rows of a query to a table. `options`: of the writer; `__` is a dot in them."""
        named = {name.replace("__", "."): value for name, value in options.items()}
        self._ask(
            {"write": query, "table": str(table), "mode": mode, "by": list(partition_by), "options": named}
        )

    def sql(self, statement: str) -> list[list[Any]]:
        """Runs a statement, and returns its rows. Raises `DeltaSparkError` if Delta refuses it."""
        rows: list[list[Any]] = self._ask({"sql": statement})
        return rows

    def rows(self, table: Path, columns: str = "*", version: int | None = None) -> list[list[Any]]:
        """Returns the rows of a table at a version, the newest if it is None, in their order."""
        at = "" if version is None else f" VERSION AS OF {version}"
        return sorted(self.sql(f"SELECT {columns} FROM delta.`{table}`{at}"))  # noqa: S608 - our own names

    def state(self, table: Path) -> Actions:
        """Returns the actions of the newest version, reconciled."""
        state: Actions = self._ask({"state": str(table)})
        return state

    def stream(self, source: Path, table: Path, checkpoint: Path) -> None:
        """Appends to a table, by a streaming query, what another one has that the query has not read yet."""
        self._ask({"stream": str(source), "table": str(table), "checkpoint": str(checkpoint)})

    def create(self, table: Path, columns: Sequence[str]) -> None:
        """Creates a table, also of columns that no statement can give a table without a name.

        A column is its name and its type, and the expression by which it is generated, or `IDENTITY`.
        """
        self._ask({"create": str(table), "columns": list(columns)})

    def verdict(
        self,
        table: Path,
        committed: Sequence[Members],
        actions: Sequence[Members],
        *,
        reads: Sequence[str] = (),
        apps: Sequence[str] = (),
    ) -> str:
        """Commits actions beside a transaction that has begun before, then those of the transaction.

        `reads`: conditions by which the transaction reads the table, `true` for all of it. `apps`: whose last
        transactions it reads. Returns the name of the class of Delta's error, empty if it commits.
        """
        texts = {"first": list(map(json.dumps, committed)), "then": list(map(json.dumps, actions))}
        answer: str = self._ask({"race": str(table), **texts, "reads": list(reads), "apps": list(apps)})
        return answer

    def _ask(self, request: dict[str, Any]) -> Any:  # noqa: ANN401 - what JSON can be
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        while (line := self._process.stdout.readline()) and not line.startswith(_MARK):
            # Some statements print to the standard output.
            continue
        if not line:
            raise AssertionError(f"delta-spark ended with exit code {self._process.wait(_STOP_S)}")
        answer = json.loads(line.removeprefix(_MARK))
        if "error" in answer:
            raise DeltaSparkError(answer["error"])
        return answer["answer"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_STOP_S)
        self._process.stdout.close()


def _answer(spark: SparkSession, request: dict[str, Any]) -> object:
    if "sql" in request:
        return [list(row) for row in spark.sql(request["sql"]).collect()]
    if "write" in request:
        writer = spark.sql(request["write"]).write.format("delta").mode(request["mode"])
        writer.partitionBy(*request["by"]).options(**request["options"]).save(request["table"])
        return None
    if "stream" in request:
        query = spark.readStream.format("delta").load(request["stream"]).writeStream.format("delta")
        query = query.option("checkpointLocation", request["checkpoint"]).trigger(availableNow=True)
        query.start(request["table"]).awaitTermination()
        return None
    if "create" in request:
        _created(spark, request["create"], request["columns"])
        return None
    if "race" in request:
        return _raced(spark, request)
    snapshot = _log(spark, request["state"]).unsafeVolatileSnapshot()
    state: dict[str, list[object]] = {}
    for text in snapshot.stateDF().toJSON().collectAsList():
        for name, members in json.loads(text).items():
            state.setdefault(name, []).append(members)
    return state


def _log(spark: SparkSession, table: str) -> Any:  # noqa: ANN401 - Delta's state has no Python interface
    """Returns Delta's own view of a log, read now."""
    jvm: Any = spark._jvm
    logs = jvm.org.apache.spark.sql.delta.DeltaLog
    logs.clearCache()
    return logs.forTable(spark._jsparkSession, table)


def _created(spark: SparkSession, path: str, columns: Sequence[str]) -> None:
    jvm: Any = spark._jvm
    tables = jvm.io.delta.tables.DeltaTable
    builder = tables.create(spark._jsparkSession).location(path)
    for column in columns:
        name, kind, *generated = column.split(" ", 2)
        made = tables.columnBuilder(spark._jsparkSession, name).dataType(kind)
        if generated == ["IDENTITY"]:
            made = made.generatedByDefaultAsIdentity()
        elif generated:
            made = made.generatedAlwaysAs(generated[0])
        builder = builder.addColumn(made.build())
    builder.execute()


def _raced(spark: SparkSession, request: dict[str, Any]) -> str:
    """Returns the class of the error with which a transaction ends, empty if it commits."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    delta, log = jvm.org.apache.spark.sql.delta, _log(spark, request["race"])
    parser = spark._jsparkSession.sessionState().sqlParser()
    operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    none = jvm.scala.Option.empty()

    def seq(items: Sequence[object]) -> object:
        made = jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toSeq()

    def commit(transaction: Any, texts: Sequence[str]) -> None:  # noqa: ANN401 - an object of Java
        transaction.commit(seq([delta.actions.Action.fromJson(text) for text in texts]), operation)

    transaction = log.startTransaction(none, none)
    for condition in request["reads"]:
        transaction.filterFiles(seq([parser.parseExpression(condition)]), False)  # noqa: FBT003 - Java
    for app in request["apps"]:
        transaction.txnVersion(app)
    commit(log.startTransaction(none, none), request["first"])
    try:
        commit(transaction, request["then"])
    except Py4JJavaError as error:
        return str(error.java_exception.getClass().getSimpleName())
    except PySparkException as error:
        return type(error).__name__
    return ""


def _serve(folder: Path, answers: TextIO) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("lakefold-judge")
    options = prepare_session(folder, cores=1) | _OPTIONS
    options["spark.jars"] = ",".join(map(str, fetch_jars("delta")))
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            answer = {"answer": _answer(spark, json.loads(line))}
        except (PySparkException, Py4JJavaError) as error:
            answer = {"error": str(error)}
        answers.write(_MARK + json.dumps(answer, default=str) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.stdout)
