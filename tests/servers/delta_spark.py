"""Delta's own implementation in Spark, in a process of its own, as a judge of tables.

Delta needs its classes on the class path of the JVM and its extension in the session, which other tests must
not run with. The process reads a request a line, and answers each by a line: rows, a state, or an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TextIO

from lakefold.local.jars import fetch_jars
from lakefold.local.spark import prepare_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from pyspark.sql import SparkSession

    Actions = dict[str, list[dict[str, Any]]]
    """The members of the actions of a state, by the name of the action."""

    Members = dict[str, Any]

_STOP_S: Final = 60
IN_THE_WAY: Final = "IN THE WAY"
"""The operation of a commit with which all transactions conflict."""
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


def writing(
    query: str, table: Path, *, mode: str = "append", partition_by: Sequence[str] = (), **options: str
) -> Members:
    """Returns what asks for the rows of a query to be written.

    `options`: of the writer; `__` is a dot in them.
    """
    named = {name.replace("__", "."): value for name, value in options.items()}
    return {"write": query, "table": str(table), "mode": mode, "by": list(partition_by), "options": named}


class Race(NamedTuple):
    """A transaction that begins, and the lines of a commit that comes before its own actions.

    `reads`: conditions by which it reads the table, `true` for all of it. `apps`: whose last transactions it
    reads. `reads_all`: it says that it has read everything. `files`: the actions of the files that it reads
    by the conditions; None if Delta selects them.
    """

    first: Sequence[Members]
    then: Sequence[Members]
    reads: Sequence[str] = ()
    apps: Sequence[str] = ()
    reads_all: bool = False
    files: Sequence[Members] | None = None


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

    def write(self, query: str, table: Path, **given: Any) -> None:  # noqa: ANN401 - see `writing`
        """Writes the rows of a query to a table: see `writing`."""
        self._ask(writing(query, table, **given))

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

    def verdicts(self, table: Path, races: Sequence[Race]) -> list[str]:
        """Returns for each race with which class of error its transaction ends, empty if it would commit."""
        given = [race._asdict() for race in races]
        answer: list[str] = self._ask({"races": given, "table": str(table)})
        return answer

    def reads(self, **request: object) -> Members:
        """Does what is asked for (`sql` or `write`), and returns what its first transaction has read.

        `predicates`: the conditions by which it selected files; `files`: the paths of these; `apps`: the
        applications whose last transaction it looked up; `all`: whether it says that it read everything.
        """
        read: Members = self._ask({"reads": request})
        return read

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
    if "races" in request:
        return list(_raced(spark, Path(request["table"]), request["races"]))
    if "reads" in request:
        return _reads(spark, request["reads"])
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


def _raced(spark: SparkSession, table: Path, races: Sequence[Members]) -> Iterator[str]:
    """Yields the class of the error with which each transaction ends, empty if nothing is in its way.

    Another commit is in the way of each, so none is made: what passes by the first commit conflicts with it.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    log = _log(spark, str(table))
    operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    begun = [_begun(spark, log, race) for race in races]
    base = begun[0].readVersion()
    in_the_way = json.loads(str(begun[0].metadata().json()))
    in_the_way["metaData"]["configuration"]["in the way"] = "1"
    for transaction, race in zip(begun, races, strict=True):
        _commit(table, base + 1, race["first"])
        _commit(table, base + 2, [{"commitInfo": {"operation": IN_THE_WAY, "timestamp": 0}}, in_the_way])
        try:
            transaction.commit(_actions(jvm, race["then"]), operation)
        except (Py4JJavaError, PySparkException) as error:
            yield "" if IN_THE_WAY in str(error) else _class_of(error)
        else:
            raise AssertionError(f"the commit in the way was passed by {race['then']} after {race['first']}")


def _begun(spark: SparkSession, log: Any, race: Members) -> Any:  # noqa: ANN401 - objects of Java
    """A transaction that has read what it is to read."""
    jvm: Any = spark._jvm
    parser = spark._jsparkSession.sessionState().sqlParser()
    none = jvm.scala.Option.empty()
    transaction = log.startTransaction(none, none)
    for condition in race["reads"]:
        parsed = _seq(jvm, [parser.parseExpression(condition)])
        if race["files"] is None:
            transaction.filterFiles(parsed, False)  # noqa: FBT003 - Java
        else:
            transaction.trackReadPredicates(parsed, False, True)  # noqa: FBT003 - Java
    if race["files"]:
        transaction.trackFilesRead(_actions(jvm, race["files"]))
    for app in race["apps"]:
        transaction.txnVersion(app)
    if race["reads_all"]:
        transaction.readWholeTable()
    return transaction


def _actions(jvm: Any, members: Sequence[Members]) -> object:  # noqa: ANN401 - Java
    parse = jvm.org.apache.spark.sql.delta.actions.Action.fromJson
    return _seq(jvm, [parse(json.dumps(action)) for action in members])


def _seq(jvm: Any, items: Sequence[object]) -> object:  # noqa: ANN401 - Java
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toSeq()


def _commit(table: Path, version: int, actions: Sequence[Members]) -> None:
    path = table / "_delta_log" / f"{version:020}.json"
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def _class_of(error: Any) -> str:  # noqa: ANN401 - those of two libraries
    """Returns the name of the class of Java's exception, as far as it is known."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return str(thrown.getClass().getSimpleName()) if thrown else type(error).__name__


class _Observer:
    """Sees the transactions that a thread begins."""

    def __init__(self) -> None:
        self._transactions: list[Any] = []

    def reads(self) -> Members:
        """What the first transaction has read."""
        first = self._transactions[0]
        given = list(first.readPredicates().toArray())
        conditions = [_listed(each.partitionPredicates()) + _listed(each.dataPredicates()) for each in given]
        return {
            "predicates": [" AND ".join(each.sql() for each in parts) for parts in conditions],
            "files": sorted(file.path() for file in first.readFiles().toArray()),
            "apps": sorted(set(_listed(first.readTxn()))),
            "all": first.readTheWholeTable(),
        }

    def startingTransaction(self, begin: Any) -> object:  # noqa: ANN401, N802 - Java's
        transaction = begin.apply()
        self._transactions.append(transaction)
        return transaction

    def preparingCommit(self, prepare: Any) -> object:  # noqa: ANN401, N802 - Java's
        prepared: object = prepare.apply()
        return prepared

    def createChild(self) -> _Observer:  # noqa: N802 - Java's
        return self

    def _ignore(self) -> None:
        """Does nothing, as for most of what Delta reports."""

    beginDoCommit = beginBackfill = beginPostCommit = _ignore  # noqa: N815 - Java's
    transactionCommitted = transactionAborted = advanceToNextThreadObserver = _ignore  # noqa: N815 - Java's

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.delta.TransactionExecutionObserver"]


def _listed(items: Any) -> list[Any]:  # noqa: ANN401 - a sequence of Scala's
    return [items.apply(number) for number in range(items.size())]


def _reads(spark: SparkSession, request: Members) -> Members:
    """Does what is asked for, and returns what its first transaction has read."""
    from pyspark.java_gateway import ensure_callback_server_started

    jvm: Any = spark._jvm
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(spark.sparkContext._gateway)
    observers = jvm.org.apache.spark.sql.delta.TransactionExecutionObserver
    before, observer = observers.getObserver(), _Observer()
    observers.setObserver(observer)
    try:
        _answer(spark, request)
    finally:
        observers.setObserver(before)
    return observer.reads()


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
