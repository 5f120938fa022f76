"""The options of a write: one table for `format("lakefold")`, for `sink` and for the documentation.

In Spark their names are those that users of Delta and Kafka know. Spark passes every option as text and
compares names without regard to case. An unknown name can only be a mistake and is refused with the nearest
known name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakefold_reader.spark.option_values import column_names, count, flag, size, word
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

KAFKA_PREFIX: Final = "kafka."
"""Options with this prefix are passed to Kafka's client (librdkafka), without the prefix."""
USER_METADATA: Final = "userMetadata"
TABLE_PROPERTIES: Final = "tableProperties"
"""The option with the properties of a table. Those of Delta may be options of their own."""


class WriteUse(StrEnum):
    """What a write option can be given to; several may apply."""

    BATCH = "write"
    STREAM = "writeStream"
    SINK = "sink"


class WriteMode(StrEnum):
    """What a write does to the table with its rows."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"
    DELETE = "delete"
    CDC = "cdc"


_PAIR: Final = re.compile(
    r"""\s*(?P<name>[^=,\s][^=,]*?)\s*=\s*(?:(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')\s*(?=,|$)|(?P<plain>[^,]*))"""
)
_STATEMENT: Final = re.compile(r"""(?:[^;'"`]|'[^']*'|"[^"]*"|`[^`]*`)+""")
FRAMES: Final = frozenset({WriteUse.BATCH, WriteUse.STREAM})
EVERYWHERE: Final = frozenset(WriteUse)
ROWS_BY_KEY: Final = frozenset({WriteMode.UPSERT, WriteMode.DELETE, WriteMode.CDC})
UPSERTS: Final = frozenset({WriteMode.UPSERT})
CHANGES: Final = frozenset({WriteMode.CDC})
WHOLE_ROWS: Final = frozenset({WriteMode.APPEND, WriteMode.OVERWRITE})
ALL_MODES: Final = frozenset(WriteMode)


@dataclass(frozen=True, slots=True)
class WriteOption:
    """An option of a write.

    `name` is its name in Spark. `read` returns the value of its text, or raises ValueError that says what may
    be given. `default` is its value if it is not given, `default_text` the same in words. `in_python`: its
    name there, if that is not the same words; empty if it has none.
    """

    name: str
    read: Callable[[str], Any]
    meaning: str
    uses: frozenset[WriteUse] = EVERYWHERE
    default: Any = None
    default_text: str = ""
    modes: frozenset[WriteMode] = ALL_MODES
    in_python: str | None = None

    @property
    def parameter(self) -> str:
        """The name of the parameter of `sink`, and of a field of `WriteSettings` if it is one."""
        if self.in_python is not None:
            return self.in_python
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)


def seconds(text: str) -> float:
    """Returns a duration in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("seconds above 0")
    return value


def number(text: str) -> int:
    """Returns a number of things, or of a batch: 0 or more."""
    if not text.strip().isdecimal():
        raise ValueError("a whole number from 0")
    return int(text)


def pairs(text: str) -> dict[str, str]:
    """Returns names and their values. A value in quotes may have commas, and its quotes doubled."""
    given: dict[str, str] = {}
    at = 0
    while at <= len(text):
        match = _PAIR.match(text, at)
        if match is None or (match["plain"] or "").startswith(("'", '"')):
            raise ValueError("name=value pairs with commas between them, values with commas in quotes")
        quoted = match["quoted"]
        value = (match["plain"] or "").strip() if quoted is None else _unquoted(quoted)
        given[match["name"]] = value
        at = match.end() + 1
    return given


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def assignments(text: str) -> dict[str, str]:
    """Returns columns and the SQL expressions of their values, in which quotes may have semicolons."""
    given = [part.partition("=") for part in _STATEMENT.findall(text) if part.strip()]
    whole = "".join(_STATEMENT.findall(text)).replace(";", "") == text.replace(";", "")
    values = {name.strip(): value.strip() for name, _, value in given}
    if not given or not whole or len(values) < len(given) or not all(map(all, values.items())):
        raise ValueError("column=expression with semicolons between them, each column once, quotes in pairs")
    return values


def _file(text: str) -> Path:
    return Path(word(text))


def choice(*values: str) -> Callable[[str], str]:
    """Returns a function that reads one of these words, in any case."""

    def read(text: str) -> str:
        chosen = text.strip().lower()
        if chosen not in values:
            raise ValueError(" or ".join(values))
        return chosen

    return read


def _clause(name: str, meaning: str, modes: frozenset[WriteMode] = UPSERTS) -> WriteOption:
    """Returns an option with the condition of a clause. `ClauseTexts` has a field for each."""
    return WriteOption(name, word, meaning, uses=FRAMES, modes=modes)


WRITE_OPTIONS: Final = (
    WriteOption(
        "path", word, "the table's URI or path; the same as `save(path)` or `start(path)`", in_python="table"
    ),
    WriteOption("table", word, "another name of `path`", uses=FRAMES),
    WriteOption(
        "kafka.bootstrap.servers",
        word,
        "the brokers, as `host:port,…`",
        in_python="bootstrap_servers",
        default_text="`LAKEFOLD_BOOTSTRAP_SERVERS`, else the file `config`, else those of `lakefold up`",
    ),
    WriteOption("transactionsTopic", word, "the topic of proposals", default_text="lakefold.transactions"),
    WriteOption("outcomesTopic", word, "the topic of outcomes", default_text="lakefold.outcomes"),
    WriteOption("config", _file, "a TOML file with settings, on the driver's machine"),
    WriteOption(
        "txnAppId",
        word,
        "the application that numbers the batches; of batches with the same number only one is added",
        in_python="app_id",
        default_text="`writeStream` and `sink`: the streaming query's id; `write`: none",
    ),
    WriteOption(
        "txnVersion",
        number,
        "the number of this batch, given together with `txnAppId`; a repeated one adds nothing",
        uses=frozenset({WriteUse.BATCH}),
        in_python="",
        default_text="the batch has a key of its own",
    ),
    WriteOption(
        "writeMode",
        choice("append", "upsert", "delete", "cdc"),
        "what is done with the rows; `cdc`: they are change events",
        default="append",
    ),
    WriteOption(
        "wait",
        choice("commit", "log"),
        "`commit`: a batch ends when its version is in the table; `log`: when the brokers have its proposal",
        default="commit",
    ),
    WriteOption(
        "timeout",
        seconds,
        "seconds to wait for brokers that are away, at first also for topics that don't exist yet, and then "
        "for an outcome; a wait is logged, and then the batch fails. If it is run again, it is added once",
        default=60.0,
    ),
    WriteOption(
        "overwriteSchema",
        flag,
        "true: the table gets the columns of the batch, and a Delta table the partition columns of "
        "`partitionBy` if it is given, whatever `mergeSchema` says; false: the batch must fit the table's "
        "columns",
        uses=FRAMES,
        default=False,
        modes=frozenset({WriteMode.OVERWRITE}),
    ),
    WriteOption(
        "maxRecordsPerFile",
        count,
        "a task begins another file after this many rows",
        in_python="max_rows_per_file",
        default=1024 * 1024,
    ),
    WriteOption(
        "maxBytesPerFile",
        size,
        "a task begins another file after this many bytes of rows in memory",
        default=1024**3,
        default_text="1g",
    ),
    WriteOption(
        "targetFileSize",
        size,
        "files have about this many bytes; the driver writes the rows of tasks that have fewer, up to 64 MiB "
        "of rows in memory, together",
        uses=FRAMES,
        in_python="target_file_size",
        default_text="a task writes what `maxRecordsPerFile` and `maxBytesPerFile` allow into one file",
        modes=WHOLE_ROWS,
    ),
    WriteOption(
        "driverRows",
        number,
        "the driver writes the rows of tasks that have at most this many, and less than 256 KiB or "
        "`targetFileSize` of them in memory, in files that they share; 0: each task writes its own files",
        uses=FRAMES,
        default_text="50,000; with `targetFileSize` any number",
        modes=WHOLE_ROWS,
    ),
    WriteOption(
        "sortBy",
        column_names,
        "the columns by which the rows of each file are ordered, with commas",
        default_text="the order of the batch",
        modes=WHOLE_ROWS,
    ),
    WriteOption(
        "dataStorageVersion",
        word,
        "the version of the data files if the write creates the table",
        default="2.2",
    ),
    WriteOption(
        "stableRowIds",
        flag,
        "true: if the write creates the table, its rows keep their ids when they are moved",
        default=False,
    ),
    WriteOption(
        "onRolledBack",
        choice("raise", "skip"),
        "what to do with a batch that was added before and whose rows a Restore has removed since: `raise` "
        "fails the batch, `skip` leaves its rows out",
        default="raise",
    ),
    WriteOption(
        "onOlderBatch",
        choice("raise", "skip"),
        "what to do with a batch that was added before, as were later ones: the query's checkpoint is older "
        "than the table, or another query has its `txnAppId`. `raise` fails the batch, `skip` leaves out its "
        "rows, also if they are others (`onReusedKey`)",
        uses=frozenset({WriteUse.STREAM, WriteUse.SINK}),
        default="raise",
    ),
    WriteOption(
        "onReusedKey",
        choice("raise", "skip"),
        "what to do with a batch under the key of another one that was added before, with more or fewer "
        "rows, other columns or another operation: the number is used twice, the query's checkpoint was "
        "deleted, or its batches have other rows whenever they are run. `raise` fails the batch, `skip` "
        "leaves out its rows",
        default="raise",
    ),
    WriteOption(
        "onRefused",
        choice("raise", "warn"),
        "with `wait=log`, what to do once an earlier batch turns out to be refused, or to be a duplicate "
        "though it was sent for the first time (another query has its `txnAppId`): `raise` fails the next "
        "batch with the reason, `warn` logs it. A process that did not send the batch finds it in the dead "
        "letters when it writes its first batch, until the batch is sent again (`lakefold redrive`)",
        uses=frozenset({WriteUse.STREAM, WriteUse.SINK}),
        default="raise",
    ),
    WriteOption(
        "maxUnanswered",
        count,
        "with `wait=log`, how many batches may have no outcome yet, at most 10,000; the next batch waits "
        "until the committer has answered enough of them",
        uses=frozenset({WriteUse.STREAM, WriteUse.SINK}),
        default=1000,
    ),
    WriteOption(
        "maxLag",
        seconds,
        "with `wait=log`, for how many seconds a batch may have no outcome; the next batch waits until the "
        "committer has answered those that were sent earlier",
        uses=frozenset({WriteUse.STREAM, WriteUse.SINK}),
        default_text="no limit",
    ),
    WriteOption(
        "commitProperties",
        pairs,
        "`name=value` pairs with commas between them (in Python a mapping), which the version records; a "
        "batch that has some shares its version with no other one. A value with commas is in quotes. A Delta "
        "table has them as JSON in `userMetadata`",
    ),
    WriteOption(
        USER_METADATA,
        word,
        "a text that the version records, as with delta-spark: the commit property of this name",
        uses=FRAMES,
        in_python="",
    ),
    WriteOption(
        "checkpointLocation",
        word,
        "Spark's own: the folder in which a streaming query keeps its progress",
        uses=frozenset({WriteUse.STREAM}),
        in_python="",
    ),
    WriteOption(
        "queryName",
        word,
        "Spark's own: the name of a streaming query, which its method `queryName` gives",
        uses=frozenset({WriteUse.STREAM}),
        in_python="",
    ),
    WriteOption(
        "mergeSchema",
        flag,
        "true: columns and fields of structs that the table lacks are added to it before the rows, nullable, "
        "and columns whose type is too narrow get the batch's wider type; false: a batch that has such "
        "columns fails before anything is sent",
        default=False,
        modes=ALL_MODES - {WriteMode.DELETE},
    ),
    WriteOption(
        "replaceWhere",
        word,
        "a condition in SQL: only the rows for which it is true are replaced; every row of the batch must "
        "satisfy it",
        uses=frozenset({WriteUse.BATCH}),
        default_text="all rows are replaced",
        modes=frozenset({WriteMode.OVERWRITE}),
    ),
    WriteOption(
        "keys",
        column_names,
        "the columns that identify a row, with commas; whole columns, no fields of structs",
        modes=ROWS_BY_KEY,
    ),
    WriteOption(
        "orderBy",
        column_names,
        "the columns by which the last row of a key is found, with commas; of change events also fields of "
        "their envelope, as `source.lsn`",
        modes=ROWS_BY_KEY,
    ),
    WriteOption(
        "operationColumn",
        word,
        "the column that says whether a row is inserted, updated or deleted; the others are the row",
        modes=CHANGES,
    ),
    WriteOption(
        "operations",
        pairs,
        "what the values of `operationColumn` mean, as `value=upsert` or `value=delete` pairs with commas "
        "between them (in Python a mapping)",
        default_text="i, c, r, u, d, insert, create, read, update, upsert, delete, in any case",
        modes=CHANGES,
    ),
    WriteOption(
        "envelope",
        choice("debezium", "delta", "lakefold"),
        "instead of `operationColumn`: the rows are events of Debezium, or the change feed of a table of "
        "Delta or of Lakefold",
        modes=CHANGES,
    ),
    WriteOption(
        "debeziumTypes",
        pairs,
        "the columns that Debezium sends in another type, if its messages have no schemas, as `column=Date` "
        "or `column=Decimal(2)` pairs with commas between them (in Python a mapping)",
        modes=CHANGES,
    ),
    _clause("whenMatchedUpdate", "rows whose key is in the batch get its values if this condition holds"),
    _clause(
        "whenMatchedDelete",
        "rows whose key is in the batch are deleted if this condition holds, and not updated then",
        modes=frozenset({WriteMode.UPSERT, WriteMode.DELETE}),
    ),
    _clause(
        "whenNotMatchedInsert",
        "rows of the batch whose key is not in the table are inserted if this condition holds",
    ),
    _clause(
        "whenNotMatchedBySourceDelete",
        "rows of the table whose key is not in the batch are deleted if this condition holds",
    ),
    _clause(
        "whenNotMatchedBySourceUpdate",
        "rows of the table whose key is not in the batch get the values of `whenNotMatchedBySourceSet` if "
        "this condition holds, unless they are deleted",
    ),
    WriteOption(
        "whenNotMatchedBySourceSet",
        assignments,
        "`column=expression` with semicolons between them: values in SQL for `whenNotMatchedBySourceUpdate`, "
        "in which `target.x` is the old value of the column `x`",
        uses=FRAMES,
        modes=UPSERTS,
    ),
    WriteOption(
        "updateColumns",
        column_names,
        "the columns that rows with a known key get from the batch, with commas",
        uses=FRAMES,
        default_text="all columns of the batch",
        modes=UPSERTS,
    ),
    WriteOption(
        "whenMatchedSet",
        assignments,
        "`column=expression` with semicolons between them: values in SQL of rows with a known key, in which "
        "`source.x` is the value of the batch and `target.x` the old one, such as `n=target.n + source.n`",
        uses=FRAMES,
        default_text="the values of the batch",
        modes=UPSERTS,
    ),
    WriteOption(
        "badRecords",
        word,
        "a table to which rows are appended that can't be written, each with the reason",
        default_text="such rows fail their batch",
        modes=ALL_MODES - {WriteMode.OVERWRITE},
    ),
    WriteOption(
        "badRecordsColumns",
        column_names,
        "columns of the batch that go to the table `badRecords` alone, with commas: they say where a row "
        "comes from, as `topic,partition,offset`",
        default_text="none",
        modes=ALL_MODES - {WriteMode.OVERWRITE},
    ),
    WriteOption(
        "format",
        choice("lance", "delta"),
        "the format of the table: Lance or Delta. A table that exists keeps its own, and is refused if this "
        "is another",
        default_text="that of the table; `lance` if the write creates it",
    ),
    WriteOption(
        "partitionBy",
        column_names,
        "the columns by which the files of a Delta table are partitioned that the write creates, with "
        "commas. Give it as an option: Spark ignores `writeStream.partitionBy(…)` for a Python source",
        default_text="no partitions",
    ),
    WriteOption(
        TABLE_PROPERTIES,
        pairs,
        "the properties of a table that the write creates, as `name=value` pairs with commas between "
        "them (in Python a mapping). [Those of Delta](delta-features.md#properties) may also be options of "
        "their own, such as `delta.enableDeletionVectors`. A Lance table has [lakefold.isolation]"
        "(../concepts.md#isolation). A table that exists keeps its own, as with delta-spark",
        default_text="none",
    ),
)
"""Every option, in the order of the documents. Those of the store and of Kafka are added, by their prefix."""

_BY_NAME: Final = {option.name.lower(): option for option in WRITE_OPTIONS}


_OF_A_READ: Final = "it is an option of a read, of Delta or of Kafka: give it to readStream or read"
_BY_SIZE: Final = "give targetFileSize, or delta.targetFileSize of a new Delta table"
_REPARTITION: Final = (
    "a Python data source can't have Spark divide the rows anew: repartition the frame, or give "
    "targetFileSize; sink has target_rows_per_file"
)
OF_OTHERS: Final = {
    "partitionOverwriteMode": "not built: name the partitions whose rows are replaced by replaceWhere",
    "replaceUsing": "not built: give replaceWhere",
    "replaceOn": "not built: give replaceWhere",
    "target-file-size-bytes": _BY_SIZE,
    "optimizeWrite": f"not built: {_BY_SIZE}",
    "compression": "give delta.parquet.compression.codec if the write creates a Delta table",
    "branch": "not built: writes go to the main branch; `lakefold propose --branch` commits to others",
    "clusterBy": "not built: sortBy orders the rows of each file, partitionBy is for a new Delta table",
    "clusteringColumns": "not built: sortBy orders the rows of each file",
    "dataChange": "not built: `lakefold compact` changes files without changing rows",
    "fanout-enabled": "leave it out: a task writes all of its partitions at once",
    **dict.fromkeys(
        ("distribution-mode", "targetRowsPerFile", "numPartitions", "repartition", "coalesce"), _REPARTITION
    ),
    "topic": "give transactionsTopic and outcomesTopic, or none",
    "write-format": "give format=delta or format=lance if the write creates the table",
    "autoCompact": "not built: `lakefold compact` joins small files",
    "hoodie.datasource.write.recordkey.field": "give keys, with writeMode=upsert",
    "hoodie.datasource.write.precombine.field": "give orderBy",
    "hoodie.datasource.write.operation": "give writeMode",
    **dict.fromkeys(("outputMode", "trigger"), "call the method of this name instead of giving an option"),
    "mode": "call mode of the write, or give writeMode",
    "saveMode": "call mode of the write, or give writeMode",
    "overwrite": 'call mode("overwrite") of the write, or give writeMode=overwrite',
    "primaryKey": "give keys, with writeMode=upsert",
    "mergeKeys": "give keys, with writeMode=upsert",
    **dict.fromkeys(
        (
            "maxFilesPerTrigger",
            "maxBytesPerTrigger",
            "maxOffsetsPerTrigger",
            "startingVersion",
            "startingTimestamp",
            "startingOffsets",
            "failOnDataLoss",
            "ignoreChanges",
            "ignoreDeletes",
            "skipChangeCommits",
            "readChangeFeed",
            "versionAsOf",
            "timestampAsOf",
        ),
        _OF_A_READ,
    ),
}
"""Options that users of other products give to a write, with what to do here."""
_OF_OTHERS: Final = {name.lower(): hint for name, hint in OF_OTHERS.items()}
_OF_THE_STORE: Final = ("storage", "aws", "s3", "azure", "google", "gcs", "fs.")
_OF_KAFKA: Final = ("security.", "sasl.", "ssl.")


def _hint_for(name: str) -> str:
    """Returns what to give instead of an option of another product; empty if it is not known."""
    lowered = name.lower()
    if lowered in _OF_OTHERS:
        return _OF_OTHERS[lowered]
    if lowered.startswith("bootstrap"):
        return "give kafka.bootstrap.servers"
    if lowered.startswith(_OF_KAFKA):
        return f"options of Kafka's client begin with kafka., as kafka.{name}"
    if lowered.startswith(_OF_THE_STORE):
        return "options of the store begin with storage., as storage.region or storage.aws_region"
    return ""


SPARK_NAMES: Final = {
    **{option.parameter: option.name for option in WRITE_OPTIONS if option.parameter},
    "batch_id": "txnVersion",
    "clauses": "the clauses when…",
}
"""The names of options in Spark, by those in Python."""


def parameters_of(use: WriteUse) -> tuple[WriteOption, ...]:
    """Returns the options for `use`, in the order of the table."""
    return tuple(option for option in WRITE_OPTIONS if use in option.uses)


def known_option(name: str) -> WriteOption:
    """Returns the option with this name, in any case. Raises `InvalidError` that names the nearest option."""
    option = _BY_NAME.get(name.lower())
    if option is not None:
        return option
    hint = _hint_for(name)
    if hint:
        raise InvalidError("a write has no such option", where=name, hint=hint)
    near = get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.6)
    known = ", ".join(sorted(each.name for each in WRITE_OPTIONS))
    hint = f"the options are {known}, kafka.* for Kafka's client, storage.* for the store"
    hint += " and delta.* for a Delta table that is created"
    if near:
        hint = f"do you mean {_BY_NAME[near[0]].name}? {hint[0].upper()}{hint[1:]}"
    raise InvalidError("a write has no such option", where=name, hint=hint)
