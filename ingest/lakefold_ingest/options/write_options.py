"""The options of writes, a line each: for `format("lakefold")`, `sink`, functions, verbs and documents.

To add one, add its line, and the code that uses its value. If it is a setting of a write, `WriteSettings` has
a field for it, and `SinkOptions` its type.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lakefold_reader.spark.option_kinds import (
    ASSIGNMENTS,
    BYTES,
    CONDITION,
    COUNT,
    FILE,
    FLAG,
    NAMES,
    NUMBER,
    PAIRS,
    SECONDS,
    SIZE,
    TEXT,
    WORD,
    choice,
)
from lakefold_reader.spark.option_table import Option, OptionTable
from lakefold_reader.spark.options import OPTIONS as READ_OPTIONS

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


FRAMES: Final = frozenset({WriteUse.BATCH, WriteUse.STREAM})
BATCH: Final = frozenset({WriteUse.BATCH})
STREAM: Final = frozenset({WriteUse.STREAM})
QUERIES: Final = frozenset({WriteUse.STREAM, WriteUse.SINK})
MERGES: Final = frozenset({WriteMode.UPSERT, WriteMode.DELETE})
"""The modes that merge the rows of a batch by their keys."""
ROWS_BY_KEY: Final = MERGES | {WriteMode.CDC}
UPSERTS: Final = frozenset({WriteMode.UPSERT})
CHANGES: Final = frozenset({WriteMode.CDC})
REPLACING: Final = frozenset({WriteMode.OVERWRITE})
WHOLE_ROWS: Final = frozenset({WriteMode.APPEND, WriteMode.OVERWRITE})
WITH_COLUMNS: Final = WHOLE_ROWS | UPSERTS | CHANGES
ONE_BY_ONE: Final = ROWS_BY_KEY | {WriteMode.APPEND}


def _clause(name: str, meaning: str, modes: frozenset[WriteMode] = UPSERTS) -> Option:
    """Returns an option with the condition of a clause."""
    return Option(name, CONDITION, meaning, FRAMES, modes)


CLAUSES: Final = (
    _clause("whenMatchedUpdate", "rows whose key is in the batch get its values if this condition holds"),
    _clause(
        "whenMatchedDelete",
        "rows whose key is in the batch are deleted if this condition holds, and not updated then",
        modes=MERGES,
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
    Option(
        "whenNotMatchedBySourceSet",
        ASSIGNMENTS,
        "values in SQL for `whenNotMatchedBySourceUpdate`, as `column=expression` with semicolons between "
        "them; `target.x` is the old value of the column `x`",
        uses=FRAMES,
        modes=UPSERTS,
    ),
    Option(
        "updateColumns",
        NAMES,
        "the columns that rows with a known key get from the batch, with commas",
        uses=FRAMES,
        default_text="all columns of the batch",
        modes=UPSERTS,
    ),
    Option(
        "whenMatchedSet",
        ASSIGNMENTS,
        "values in SQL of rows with a known key, as `column=expression` with semicolons between them; "
        "`source.x` is the value of the batch and `target.x` the old one, such as `n=target.n + source.n`",
        uses=FRAMES,
        default_text="the values of the batch",
        modes=UPSERTS,
    ),
)
"""What is done with rows that are found by their keys. `ClauseTexts` has a field for each."""

WRITE_OPTIONS: Final = (
    Option(
        "path", WORD, "the table's URI or path; the same as `save(path)` or `start(path)`", in_python="table"
    ),
    Option("table", WORD, "another name of `path`", uses=FRAMES),
    Option(
        "kafka.bootstrap.servers",
        TEXT,
        "the brokers, as `host:port,…`",
        in_python="bootstrap_servers",
        default_text="`LAKEFOLD_BOOTSTRAP_SERVERS`, else the file `config`, else those of `lakefold up`",
    ),
    Option("transactionsTopic", TEXT, "the topic of proposals", default_text="lakefold.transactions"),
    Option("outcomesTopic", TEXT, "the topic of outcomes", default_text="lakefold.outcomes"),
    Option("config", FILE, "a TOML file with settings, on the driver's machine"),
    Option(
        "txnAppId",
        WORD,
        "the application that numbers the batches; of batches with the same number only one is added",
        in_python="app_id",
        default_text="`writeStream` and `sink`: the streaming query's id; `write`: none",
    ),
    Option(
        "txnVersion",
        NUMBER,
        "the number of this batch, given together with `txnAppId`; a repeated one adds nothing",
        uses=BATCH,
        in_python="batch_id",
        default_text="the batch has a key of its own",
    ),
    Option(
        "writeMode",
        choice("append", "upsert", "delete", "cdc"),
        "what is done with the rows; `cdc`: they are change events",
        default="append",
        others=("hoodie.datasource.write.operation",),
    ),
    Option(
        "wait",
        choice("commit", "log"),
        "`commit`: a batch ends when its version is in the table; `log`: when the brokers have its proposal",
        default="commit",
    ),
    Option(
        "timeout",
        SECONDS,
        "seconds to wait for brokers that are away, at first also for topics that don't exist yet, and then "
        "for an outcome; a wait is logged, and then the batch fails. If it is run again, it is added once",
        default=60.0,
    ),
    Option(
        "overwriteSchema",
        FLAG,
        "true: the table gets the columns of the batch, and a Delta table the partition columns of "
        "`partitionBy` if it is given, whatever `mergeSchema` says; false: the batch must fit the table's "
        "columns",
        uses=FRAMES,
        default=False,
        modes=REPLACING,
    ),
    Option(
        "maxRecordsPerFile",
        COUNT,
        "a task begins another file after this many rows",
        in_python="max_rows_per_file",
        default=1024 * 1024,
    ),
    Option(
        "maxBytesPerFile",
        BYTES,
        "a task begins another file after this many bytes of rows in memory",
        default=1024**3,
        default_text="1g",
    ),
    Option(
        "targetFileSize",
        SIZE,
        "files have about this many bytes; the driver writes the rows of tasks that have fewer, up to 64 MiB "
        "of rows in memory, together",
        uses=FRAMES,
        default_text="a task writes what `maxRecordsPerFile` and `maxBytesPerFile` allow into one file",
        modes=WHOLE_ROWS,
    ),
    Option(
        "driverRows",
        NUMBER,
        "the driver writes the rows of tasks that have at most this many, and less than 256 KiB or "
        "`targetFileSize` of them in memory, in files that they share; 0: each task writes its own files",
        uses=FRAMES,
        default_text="50,000; with `targetFileSize` any number",
        modes=WHOLE_ROWS,
    ),
    Option(
        "sortBy",
        NAMES,
        "the columns by which the rows of each file are ordered, with commas",
        default_text="the order of the batch",
        modes=WHOLE_ROWS,
    ),
    Option(
        "dataStorageVersion",
        TEXT,
        "the version of the data files if the write creates the table",
        default="2.2",
    ),
    Option(
        "stableRowIds",
        FLAG,
        "true: if the write creates the table, its rows keep their ids when they are moved",
        default=False,
    ),
    Option(
        "onRolledBack",
        choice("raise", "skip", "again"),
        "what to do with a batch that was added before and undone since, by a Restore or a revert: `raise` "
        "fails the batch, `skip` leaves its rows out, `again` adds it, if it was corrected",
        default="raise",
    ),
    Option(
        "onOlderBatch",
        choice("raise", "skip"),
        "what to do with a batch that was added before, as were later ones: the query's checkpoint is older "
        "than the table, or another query has its `txnAppId`. `raise` fails the batch, `skip` leaves out its "
        "rows, also if they are others (`onReusedKey`)",
        uses=QUERIES,
        default="raise",
    ),
    Option(
        "onReusedKey",
        choice("raise", "skip"),
        "what to do with a batch under the key of another one that was added before, with more or fewer "
        "rows, other columns or another operation: the number is used twice, the query's checkpoint was "
        "deleted, or its batches have other rows whenever they are run. `raise` fails the batch, `skip` "
        "leaves out its rows",
        default="raise",
    ),
    Option(
        "onRefused",
        choice("raise", "warn"),
        "with `wait=log`, what to do once an earlier batch turns out to be refused, or to be a duplicate "
        "though it was sent for the first time (another query has its `txnAppId`): `raise` fails the next "
        "batch with the reason, `warn` logs it. A process that did not send the batch finds it in the dead "
        "letters when it writes its first batch, until the batch is sent again (`lakefold redrive`)",
        uses=QUERIES,
        default="raise",
    ),
    Option(
        "maxUnanswered",
        COUNT,
        "with `wait=log`, how many batches may have no outcome yet, at most 10,000; the next batch waits "
        "until the committer has answered enough of them",
        uses=QUERIES,
        default=1000,
    ),
    Option(
        "maxLag",
        SECONDS,
        "with `wait=log`, for how many seconds a batch may have no outcome; the next batch waits until the "
        "committer has answered those that were sent earlier",
        uses=QUERIES,
        default_text="no limit",
    ),
    Option(
        "commitProperties",
        PAIRS,
        "`name=value` pairs with commas between them (in Python a mapping), which the version records; a "
        "batch that has some shares its version with no other one. A value with commas is in quotes. A Delta "
        "table has them as JSON in `userMetadata`",
        others=("custom_metadata",),
    ),
    Option(
        "commitMessage",
        WORD,
        "why the rows are written, at most 500 characters; `log` and `explain` show it with who sent them. "
        "Batches with messages share versions like others",
    ),
    Option(
        USER_METADATA,
        WORD,
        "a text that the version records, as with delta-spark: the commit property of this name",
        uses=FRAMES,
    ),
    Option(
        "checkpointLocation",
        WORD,
        "Spark's own: the folder in which a streaming query keeps its progress",
        uses=STREAM,
    ),
    Option(
        "queryName",
        WORD,
        "Spark's own: the name of a streaming query, which its method `queryName` gives",
        uses=STREAM,
    ),
    Option(
        "mergeSchema",
        FLAG,
        "true: columns and fields of structs that the table lacks are added to it before the rows, nullable, "
        "and columns whose type is too narrow, or that of nulls, get the batch's type; false: a batch that "
        "has such columns fails before anything is sent",
        default=False,
        modes=WITH_COLUMNS,
        others=("schema_mode",),
    ),
    Option(
        "replaceWhere",
        CONDITION,
        "a condition in SQL: only the rows for which it is true are replaced; every row of the batch must "
        "satisfy it",
        uses=BATCH,
        default_text="all rows are replaced",
        modes=REPLACING,
    ),
    Option(
        "keys",
        NAMES,
        "the columns that identify a row, with commas; whole columns, no fields of structs",
        modes=ROWS_BY_KEY,
        others=("primaryKey", "mergeKeys", "on", "hoodie.datasource.write.recordkey.field"),
    ),
    Option(
        "orderBy",
        NAMES,
        "the columns by which the last row of a key is found, with commas; the table may lack them. Of "
        "change events also fields of their envelope, as `source.lsn`; without it the last event counts",
        modes=ROWS_BY_KEY,
        others=("hoodie.datasource.write.precombine.field",),
    ),
    Option(
        "operationColumn",
        TEXT,
        "the column that says whether a row is inserted, updated or deleted; the others are the row",
        modes=CHANGES,
    ),
    Option(
        "operations",
        PAIRS,
        "what the values of `operationColumn` mean, as `value=upsert` or `value=delete` pairs with commas "
        "between them (in Python a mapping)",
        default_text="i, c, r, u, d, insert, create, read, update, upsert, delete, in any case",
        modes=CHANGES,
    ),
    Option(
        "envelope",
        choice("debezium", "delta", "lakefold"),
        "instead of `operationColumn`: the rows are events of Debezium, or the change feed of a table of "
        "Delta or of Lakefold",
        modes=CHANGES,
    ),
    Option(
        "debeziumTypes",
        PAIRS,
        "the columns that Debezium sends in another type, if its messages have no schemas, as `column=Date`, "
        "`column=MicroTimestamp`, `column=ZonedTimestamp` or `column=Decimal(2)` pairs with commas between "
        "them (in Python a mapping)",
        modes=CHANGES,
    ),
    *CLAUSES,
    Option(
        "badRecords",
        WORD,
        "a table to which rows are appended that can't be written, each with the reason",
        default_text="such rows fail their batch",
        modes=ONE_BY_ONE,
    ),
    Option(
        "badRecordsColumns",
        NAMES,
        "columns of the batch that go to the table `badRecords` alone, with commas: they say where a row "
        "comes from, as `topic,partition,offset`",
        default_text="none",
        modes=ONE_BY_ONE,
    ),
    Option(
        "format",
        choice("lance", "delta"),
        "the format of the table: Lance or Delta. A table that exists keeps its own, and is refused if this "
        "is another",
        default_text="that of the table; `lance` if the write creates it",
    ),
    Option(
        "partitionBy",
        NAMES,
        "the columns by which the files of a Delta table are partitioned that the write creates, with commas",
        default_text="no partitions",
    ),
    Option(
        TABLE_PROPERTIES,
        PAIRS,
        "the properties of a table that the write creates, as `name=value` pairs with commas between "
        "them (in Python a mapping). [Those of Delta](delta-features.md#properties) may also be options of "
        "their own, such as `delta.enableDeletionVectors`. A Lance table has [lakefold.isolation]"
        "(../concepts.md#isolation). A table that exists keeps its own, as with delta-spark",
        default_text="none",
        others=("configuration",),
    ),
)
"""Every option, in the order of the documents. Those of the store and of Kafka are added, by their prefix."""

_OF_A_READ: Final = "it is an option of a read, of Delta or of Kafka: give it to readStream or read"
_BY_SIZE: Final = "give targetFileSize, or delta.targetFileSize of a new Delta table"
_REPARTITION: Final = (
    "a Python data source can't have Spark divide the rows anew: repartition the frame, or give "
    "targetFileSize; sink has target_rows_per_file"
)
_READ: Final = ("maxFilesPerTrigger", "maxOffsetsPerTrigger", "startingOffsets")


def _renamed(option: Option) -> str:
    """Returns what to do instead of an option of another product that is called otherwise here."""
    modes = " or ".join(mode for mode in WriteMode if mode in option.modes)
    return f"give {option.name}, with writeMode={modes}" if modes else f"give {option.name}"


OF_OTHERS: Final = {
    **{name: _renamed(option) for option in WRITE_OPTIONS for name in option.others},
    **dict.fromkeys((*(option.name for option in READ_OPTIONS if option.name != "path"), *_READ), _OF_A_READ),
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
    **dict.fromkeys(("outputMode", "trigger"), "call the method of this name instead of giving an option"),
    "mode": "call mode of the write, or give writeMode",
    "saveMode": "call mode of the write, or give writeMode",
    "overwrite": 'call mode("overwrite") of the write, or give writeMode=overwrite',
}
"""Options that users of other products, or of reads, give to a write, with what to do here."""
_BEGINNINGS: Final = {
    "bootstrap*": "give kafka.bootstrap.servers",
    **dict.fromkeys(
        ("security.*", "sasl.*", "ssl.*"), "options of Kafka's client begin with kafka., as kafka.{name}"
    ),
    **dict.fromkeys(
        ("storage*", "aws*", "s3*", "azure*", "google*", "gcs*", "fs.*"),
        "options of the store begin with storage., as storage.region or storage.aws_region",
    ),
}
"""The same for all options whose names begin so."""

WRITES: Final = OptionTable(
    WRITE_OPTIONS,
    "a write has no such option",
    "kafka.* for Kafka's client, storage.* for the store and delta.* for a Delta table that is created",
    OF_OTHERS | _BEGINNINGS,
)
SPARK_NAMES: Final = {
    **{option.parameter: option.name for option in WRITE_OPTIONS},
    "clauses": "the clauses when…",
}
"""The names of options in Spark, by those in Python."""
