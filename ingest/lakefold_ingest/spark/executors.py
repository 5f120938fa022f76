"""Checks when a query begins that Spark's executors can write its table.

The driver merges small batches itself. Without the check a query could run for hours until a large batch
shows that the executors lack a package or the rights to the table's store. `sink` checks by tasks of its own.
A data source can't run any before those of its batch, so each of its processes checks itself at first.
"""

from __future__ import annotations

import platform
import re
import threading
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NoReturn
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakefold_ingest.formats import DEFAULT, FORMATS, read_view
from lakefold_ingest.rows.unused_files import remove_files, unnamed_path
from lakefold_ingest.spark.arrow_schema import spark_schema_of
from lakefold_reader.pylance.release import UNKNOWN, check_pylance, pylance_release
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.own_process import ProcessLock
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from lakefold_ingest.writing.settings import WriteSettings

MOST_TASKS: Final = 32
"""The most tasks that check: as many as Spark runs at once, so that each executor has some."""
_CONTENT: Final = b"written by the driver to see whether the executors have the same store"
_REASON: Final = "the executors were checked by them"
_RESULT: Final = pa.schema({"fault": pa.string()})
_NOT_LOADED: Final = re.compile(r"^\s*(?:ModuleNotFound|Import|Attribute)Error: (.*)", re.MULTILINE)
"""What Python says if it lacks a package or can't load it, or lacks a class of the driver's release."""
_HINT: Final = (
    "the executors need lakefold[ingest] in the driver's releases, and access to the table under the same "
    "URI, with the same storage options; the variable PYSPARK_PYTHON (or spark.pyspark.python) says which "
    "Python they run"
)
_able: Final[set[tuple[str, ...]]] = set()
"""The tables that this process can write, with the options of their stores."""


@dataclass(slots=True)
class _TableCheck:
    """Whether the executors were found to be able to write a table; one thread at a time finds out."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    is_done: bool = False


_checks_lock = ProcessLock()
_checks: Final[WeakKeyDictionary[SparkContext, dict[tuple[str, bool], _TableCheck]]] = WeakKeyDictionary()
"""The tables, and whether rows are merged, by the application of Spark.

Asking the JVM for its id would cost each batch two calls.
"""


def check_executors(spark: SparkSession, settings: WriteSettings, *, merges: bool) -> None:
    """Raises `InvalidError` if executors lack lakefold or pylance, have another pylance, or lack the store.

    Appends to some formats need no pylance; `merges`: the rows are merged, and pylance evaluates conditions.
    Checks once for each application of Spark and table, also if several queries begin at once. The store is
    checked as soon as the table exists. Raises as `read_view` and the table's store do if the driver itself
    lacks access.
    """
    with _checks_lock.current:
        check = _checks.setdefault(spark.sparkContext, {}).setdefault((settings.table, merges), _TableCheck())
    if check.is_done:
        return
    with check.lock:
        # Another query may have found out meanwhile.
        if not check.is_done:
            check.is_done = _check_with_store(spark, settings, merges=merges)


def _check_with_store(spark: SparkSession, settings: WriteSettings, *, merges: bool) -> bool:
    """Returns whether the table exists: then its store was checked as well. Raises as `check_executors`."""
    view = read_view(settings.table, settings.storage_options)
    table_format = FORMATS[(settings.format or DEFAULT) if view is None else view.format]
    pylance = pylance_release() or UNKNOWN if merges or table_format.needs_pylance else None
    if view is None:
        _check(spark, settings, pylance, "")
        return False
    storage = open_storage(settings.table, settings.storage_options)
    probe = _new_probe(table_format.unnamed_ending)
    storage.put(probe, [_CONTENT])
    try:
        _check(spark, settings, pylance, probe)
    finally:
        remove_files(settings.table, settings.storage_options, [probe], _REASON)
    return True


def own_fault(settings: WriteSettings, pylance: str) -> tuple[str, str, str] | None:
    """Returns why this process can't write a table that exists: message, location, hint. None: it can.

    `pylance`: the driver's release, which a process must have if the table's format needs pylance. Checks
    once for each table. Raises as the table's store does if it is busy or can't be reached.
    """
    table = (settings.table, pylance, *map(str, sorted(settings.storage_options.items())))
    if table in _able:
        return None
    try:
        view = read_view(settings.table, settings.storage_options, afresh=True)
        if view is None:
            _raise_elsewhere(f"the table {settings.table}")
        table_format = FORMATS[view.format]
        if table_format.needs_pylance:
            check_pylance(pylance, settings.table)
        _put_probe(settings.table, settings.storage_options, table_format.unnamed_ending)
    except InvalidError as error:
        return _unable(error.message), settings.table, _HINT
    _able.add(table)
    return None


def _check(spark: SparkSession, settings: WriteSettings, pylance: str | None, probe: str) -> None:
    from pyspark.errors import PySparkException

    tasks = min(spark.sparkContext.defaultParallelism, MOST_TASKS)
    check = partial(_check_in_task, pylance, settings.table, dict(settings.storage_options), probe)
    try:
        checked = spark.range(0, tasks, 1, tasks).mapInArrow(check, spark_schema_of(_RESULT))
        faults = [row.fault for row in checked.collect()]
    except PySparkException as error:
        reason = _NOT_LOADED.search(str(error))
        if reason is None:
            raise
        message = f"Spark's executors can't run lakefold: {reason[1]}"
        raise InvalidError(message, where=settings.table, hint=_HINT) from error
    if any(faults):
        raise InvalidError(next(filter(None, faults)), where=settings.table, hint=_HINT)


def _check_in_task(
    pylance: str | None,
    table: str,
    storage_options: Mapping[str, str],
    probe: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields one row, with what is wrong in this process or None.

    `pylance`: the driver's release, None if none is needed. `probe`: a file that the driver wrote.
    """
    for _ in batches:
        pass
    fault = None
    try:
        if pylance is not None:
            check_pylance(pylance, table)
        if probe:
            _check_store(table, storage_options, probe)
    except (LakefoldError, OSError) as error:
        fault = _unable(error.message if isinstance(error, LakefoldError) else str(error))
    yield pa.RecordBatch.from_pylist([{"fault": fault}], _RESULT)


def _unable(reason: str) -> str:
    return f"Spark's executor on {platform.node()} can't write the table: {reason}"


def _check_store(table: str, storage_options: Mapping[str, str], probe: str) -> None:
    """Reads the driver's file and writes another. Raises `LakefoldError` if it can't.

    A writer needs no right to delete (docs/operations/stores.md): if it lacks it, a clean-up removes them.
    """
    storage = open_storage(table, storage_options)
    try:
        content = storage.get(probe)
    except FileNotFoundError:
        content = b""
    if content != _CONTENT:
        _raise_elsewhere(f"a file that the driver has written to {table}")
    _put_probe(table, storage_options, PurePosixPath(probe).suffix)


def _raise_elsewhere(what: str) -> NoReturn:
    message = f"{what} does not exist there: it has another disk or bucket"
    raise InvalidError(message)


def _put_probe(table: str, storage_options: Mapping[str, str], ending: str) -> None:
    """Writes a file and removes it again."""
    storage = open_storage(table, storage_options)
    own = _new_probe(ending)
    storage.put(own, [_CONTENT])
    remove_files(table, storage_options, [own], _REASON)


def _new_probe(ending: str) -> str:
    """Returns the path of a new file. If it stays, a clean-up removes it because of its name."""
    return unnamed_path(f"{uuid.uuid4()}-probe{ending}")
