"""Runs each task of a compaction as a task of Spark's. Only this module of maintenance imports Spark.

Each task is a job of its own with a single partition. So its result arrives as soon as it ends, and a task
that fails does so alone. No rows pass through the driver: a task returns the descriptions of its new files.
If Spark loses an executor, it runs the task again; what the lost one has written is named by no version, and
`maintain` removes it later.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from lakefold_maintenance.format import TableSurvey, TaskLimits
from lakefold_maintenance.lance.remote_tasks import RemoteResult, RemoteTask
from lakefold_maintenance.lance.rewriter import RewrittenTask
from lakefold_maintenance.lance.survey import fragments_of
from lakefold_maintenance.unused_files import remove_files
from lakefold_table.errors import InvalidError, LakefoldError, RetryError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_maintenance.rewriting.engines import RewriteEngine, TaskEnd

LANCE: Final = "lance"
AT_ONCE: Final = 16
"""The number of jobs that are sent to Spark at once. Those for which no executor is free wait there.

They are not cancelled when the compaction stops: the files of a job that is cancelled at its end would stay.
"""
MOST_TEXT: Final = 500
"""The number of characters that are shown of Spark's own errors, which have many lines."""
_RESULT: Final = pa.schema({"new": pa.list_(pa.binary()), "fault": pa.list_(pa.string())})


def session_for_maintenance() -> SparkSession:
    """Returns the active session of this thread, else a new one.

    A new session is set up as Spark itself does: by `SPARK_REMOTE`, by `spark-submit`, by
    `conf/spark-defaults.conf`, and on this machine if nothing is set. Workers run this Python if
    `PYSPARK_PYTHON` names no other.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("lakefold maintenance").getOrCreate()


class OnSpark:
    """Runs tasks on Spark's executors, which need lakefold installed. See `RewriteEngine`.

    `others`: runs those of tables of other formats than Lance, which are refused without it.
    """

    def __init__(
        self,
        session: SparkSession,
        limits: TaskLimits | None = None,
        *,
        others: RewriteEngine | None = None,
    ) -> None:
        self._session = session
        self._limits = limits or TaskLimits()
        self._others = others

    def ended(self, survey: TableSurvey, tasks: Sequence[RewriteTask]) -> Generator[TaskEnd, None, None]:
        """See `RewriteEngine`. A generator that is closed early waits for the tasks that are running.

        Raises `InvalidError` for tables of another format than Lance, unless `others` runs their tasks.
        """
        if survey.format.name != LANCE and self._others is not None:
            yield from self._others.ended(survey, tasks)
            return
        if survey.format.name != LANCE:
            message = f"Spark rewrites Lance tables, and this is a {survey.format.name.capitalize()} table"
            raise InvalidError(message, where=survey.table, hint="leave out the engine: this process does it")
        sent = (RemoteTask.of(survey, task, fragments_of(survey, task), self._limits) for task in tasks)
        running: dict[Future[RewrittenTask | LakefoldError], RewriteTask] = {}
        try:
            with ThreadPoolExecutor(AT_ONCE, "lakefold-spark") as pool:

                def begin(count: int) -> None:
                    running.update({pool.submit(self._run, each): each.task for each in islice(sent, count)})

                begin(AT_ONCE)
                while running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(future), future.result()
                        begin(1)
        finally:
            ended = [future.result() for future in running]
            remove_files(survey.source.storage, [end for end in ended if isinstance(end, RewrittenTask)])

    def _run(self, sent: RemoteTask) -> RewrittenTask | LakefoldError:
        """Runs a task as a job of Spark's, and returns its result or its error."""
        try:
            one_row = self._session.range(0, 1, 1, 1)
            (row,) = one_row.mapInArrow(partial(_rewrite, sent), from_arrow_schema(_RESULT)).collect()
        except (PySparkException, Py4JError) as error:
            message = f"Spark has not run the task: {str(error)[:MOST_TEXT]}"
            return RetryError(message, where=sent.uri, hint="see the log of Spark's driver and executors")
        fault = None if row.fault is None else tuple(row.fault)
        return sent.received(RemoteResult(tuple(map(bytes, row.new)), fault))


def _rewrite(sent: RemoteTask, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs a task on an executor. Yields a row with its result."""
    for _ in rows:
        # Spark expects that its rows are read.
        continue
    result = sent.run()
    row = {"new": list(result.new), "fault": result.fault}
    yield pa.RecordBatch.from_pylist([row], _RESULT)
