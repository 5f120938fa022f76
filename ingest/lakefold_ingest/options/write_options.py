"""The options of a write: one table for `format("lakefold")`, for `sink` and for the documentation.

In Spark their names are those that users of Delta and Kafka know. Spark passes every option as text and
compares names without regard to case. An unknown name can only be a mistake and is refused with the nearest
known name. An option that this release does not support yet is refused as well: if it were ignored, the table
would get other rows than its user expects.
"""

from __future__ import annotations

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
EVERYWHERE: Final = frozenset(WriteUse)
ROWS_BY_KEY: Final = frozenset({WriteMode.UPSERT, WriteMode.DELETE, WriteMode.CDC})
UPSERTS: Final = frozenset({WriteMode.UPSERT})
CHANGES: Final = frozenset({WriteMode.CDC})
ALL_MODES: Final = frozenset(WriteMode)


@dataclass(frozen=True, slots=True)
class WriteOption:
    """An option of a write.

    `name` is its name in Spark, `parameter` that of `sink` (and of a `WriteSettings` field, if it is one).
    `read` returns the value of its text, or raises ValueError that says what may be given. `default` is its
    value if it is not given, `default_text` the same in words. In the uses that are `planned`, this release
    does not support it: it may be given its default only.
    """

    name: str
    parameter: str
    read: Callable[[str], Any]
    uses: frozenset[WriteUse]
    meaning: str
    default: Any = None
    default_text: str = ""
    modes: frozenset[WriteMode] = ALL_MODES
    planned: frozenset[WriteUse] = frozenset()

    @property
    def shown_default(self) -> str:
        """The default in words."""
        if self.default_text or self.default is None:
            return self.default_text
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


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
    """Returns a batch number."""
    if not text.strip().isdecimal():
        raise ValueError("a whole number from 0")
    return int(text)


def pairs(text: str) -> dict[str, str]:
    """Returns names and their values."""
    given = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals for name, equals, _ in given):
        raise ValueError("name=value pairs with commas between them")
    return {name.strip(): value.strip() for name, _, value in given}


def assignments(text: str) -> dict[str, str]:
    """Returns columns and the SQL expressions of their values."""
    given = [part.partition("=") for part in text.split(";") if part.strip()]
    if not given or not all(name.strip() and value.strip() for name, _, value in given):
        raise ValueError("column=expression with semicolons between them")
    return {name.strip(): value.strip() for name, _, value in given}


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


def _planned(
    name: str,
    parameter: str,
    read: Callable[[str], Any],
    meaning: str,
    default: Any = None,  # noqa: ANN401 - each option has a type of its own
) -> WriteOption:
    """Returns an option that this release does not support yet."""
    return WriteOption(name, parameter, read, EVERYWHERE, meaning, default, planned=EVERYWHERE)


def _clause(name: str, meaning: str, modes: frozenset[WriteMode] = UPSERTS) -> WriteOption:
    """Returns an option with the condition of a clause. `ClauseTexts` has a field for each."""
    parameter = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return WriteOption(name, parameter, word, FRAMES, meaning, modes=modes)


WRITE_OPTIONS: Final = (
    WriteOption(
        "path",
        "table",
        word,
        EVERYWHERE,
        "the table's URI or path; the same as `save(path)` or `start(path)`",
    ),
    WriteOption("table", "table", word, FRAMES, "another name of `path`"),
    WriteOption(
        "kafka.bootstrap.servers",
        "bootstrap_servers",
        word,
        EVERYWHERE,
        "the brokers, as `host:port,…`",
        default_text="`LAKEFOLD_BOOTSTRAP_SERVERS`, else the file `config`, else those of `lakefold up`",
    ),
    WriteOption(
        "transactionsTopic",
        "transactions_topic",
        word,
        EVERYWHERE,
        "the topic of proposals",
        default_text="lakefold.transactions",
    ),
    WriteOption(
        "outcomesTopic",
        "outcomes_topic",
        word,
        EVERYWHERE,
        "the topic of outcomes",
        default_text="lakefold.outcomes",
    ),
    WriteOption("config", "config", _file, EVERYWHERE, "a TOML file with settings, on the driver's machine"),
    WriteOption(
        "txnAppId",
        "app_id",
        word,
        EVERYWHERE,
        "the application that numbers the batches; of batches with the same number only one is added",
        default_text="`writeStream` and `sink`: the streaming query's id; `write`: none",
    ),
    WriteOption(
        "txnVersion",
        "",
        number,
        frozenset({WriteUse.BATCH}),
        "the number of this batch, given together with `txnAppId`; a repeated one adds nothing",
        default_text="the batch has a key of its own",
    ),
    WriteOption(
        "writeMode",
        "write_mode",
        choice("append", "upsert", "delete", "cdc"),
        EVERYWHERE,
        "what is done with the rows; `cdc`: they are change events",
        default="append",
    ),
    WriteOption(
        "wait",
        "wait",
        choice("commit", "log"),
        EVERYWHERE,
        "`commit`: a batch ends when its version is in the table; `log`: when the brokers have its proposal",
        default="commit",
    ),
    WriteOption(
        "timeout",
        "timeout",
        seconds,
        EVERYWHERE,
        "seconds to wait for an outcome; a batch that timed out and is run again is added once",
        default=60.0,
    ),
    WriteOption(
        "overwriteSchema",
        "overwrite_schema",
        flag,
        FRAMES,
        "true: the table gets the columns of the batch; false: the batch must fit the table's columns",
        default=False,
        modes=frozenset({WriteMode.OVERWRITE}),
    ),
    WriteOption(
        "maxRecordsPerFile",
        "max_rows_per_file",
        count,
        EVERYWHERE,
        "a task begins another file after so many rows",
        default=1024 * 1024,
    ),
    WriteOption(
        "maxBytesPerFile",
        "max_bytes_per_file",
        size,
        EVERYWHERE,
        "a task begins another file after so many bytes of rows in memory",
        default=1024**3,
        default_text="1g",
    ),
    WriteOption(
        "dataStorageVersion",
        "data_storage_version",
        word,
        EVERYWHERE,
        "the version of the data files if the write creates the table",
        default="2.2",
    ),
    WriteOption(
        "stableRowIds",
        "stable_row_ids",
        flag,
        EVERYWHERE,
        "true: if the write creates the table, its rows keep their ids when they are moved",
        default=False,
    ),
    WriteOption(
        "onRolledBack",
        "on_rolled_back",
        choice("raise", "skip"),
        EVERYWHERE,
        "what to do with a batch that was added before and whose rows a Restore has removed since: `raise` "
        "fails the batch, `skip` leaves its rows out",
        default="raise",
    ),
    WriteOption(
        "onOlderBatch",
        "on_older_batch",
        choice("raise", "skip"),
        frozenset({WriteUse.STREAM, WriteUse.SINK}),
        "what to do with a batch that was added before, as were later ones: the query's checkpoint is older "
        "than the table, or another query has its `txnAppId`. `raise` fails the batch, `skip` leaves out its "
        "rows",
        default="raise",
    ),
    WriteOption(
        "onRefused",
        "on_refused",
        choice("raise", "warn"),
        frozenset({WriteUse.STREAM, WriteUse.SINK}),
        "with `wait=log`, what to do once an earlier batch turns out to be refused: `raise` fails the next "
        "batch with the reason, `warn` logs it. A process that did not send the batch finds it in the dead "
        "letters when it writes its first batch, until the batch is sent again (`lakefold redrive`)",
        default="raise",
    ),
    WriteOption(
        "maxUnanswered",
        "max_unanswered",
        count,
        frozenset({WriteUse.STREAM, WriteUse.SINK}),
        "with `wait=log`, how many batches may have no outcome yet, at most 10,000; the next batch waits "
        "until the committer has answered enough of them",
        default=1000,
    ),
    WriteOption(
        "commitProperties",
        "commit_properties",
        pairs,
        EVERYWHERE,
        "`name=value` pairs with commas between them (in Python a mapping), which the version records; a "
        "batch that has some shares its version with no other one",
    ),
    WriteOption(
        "checkpointLocation",
        "",
        word,
        frozenset({WriteUse.STREAM}),
        "Spark's own: the folder in which a streaming query keeps its progress",
    ),
    WriteOption(
        "mergeSchema",
        "merge_schema",
        flag,
        EVERYWHERE,
        "true: columns and fields of structs that the table lacks are added to it before the rows, nullable; "
        "false: a batch that has such columns fails before anything is sent",
        default=False,
        modes=frozenset({WriteMode.APPEND, WriteMode.UPSERT, WriteMode.CDC}),
    ),
    WriteOption(
        "replaceWhere",
        "replace_where",
        word,
        frozenset({WriteUse.BATCH}),
        "a condition in SQL: only the rows for which it is true are replaced; every row of the batch must "
        "satisfy it",
        default_text="all rows are replaced",
        modes=frozenset({WriteMode.OVERWRITE}),
    ),
    WriteOption(
        "keys",
        "keys",
        column_names,
        EVERYWHERE,
        "the columns that identify a row, with commas",
        modes=ROWS_BY_KEY,
    ),
    WriteOption(
        "orderBy",
        "order_by",
        column_names,
        EVERYWHERE,
        "the columns by which the last row of a key is found, with commas; of change events also fields of "
        "their envelope, as `source.lsn`",
        modes=ROWS_BY_KEY,
    ),
    WriteOption(
        "operationColumn",
        "operation_column",
        word,
        EVERYWHERE,
        "the column that says whether a row is inserted, updated or deleted; the others are the row",
        modes=CHANGES,
    ),
    WriteOption(
        "operations",
        "operations",
        pairs,
        EVERYWHERE,
        "what the values of `operationColumn` mean, as `value=upsert` or `value=delete` pairs with commas "
        "between them (in Python a mapping)",
        default_text="i, c, r, u, d, insert, create, read, update, upsert, delete, in any case",
        modes=CHANGES,
    ),
    WriteOption(
        "envelope",
        "envelope",
        choice("debezium", "delta", "lakefold"),
        EVERYWHERE,
        "instead of `operationColumn`: the rows are events of Debezium, or the change feed of a table of "
        "Delta or of Lakefold",
        modes=CHANGES,
    ),
    WriteOption(
        "debeziumTypes",
        "debezium_types",
        pairs,
        EVERYWHERE,
        "the columns that Debezium sends in another type, if its messages have no schemas, as `column=Date` "
        "or `column=Decimal(2)` pairs with commas between them (in Python a mapping)",
        modes=CHANGES,
    ),
    _clause(
        "whenMatchedUpdate",
        "rows whose key is in the batch get its values if this condition holds",
    ),
    _clause(
        "whenMatchedDelete",
        "rows whose key is in the batch are deleted if this condition holds, and not updated then",
        frozenset({WriteMode.UPSERT, WriteMode.DELETE}),
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
        "when_not_matched_by_source_set",
        assignments,
        FRAMES,
        "`column=expression` with semicolons between them: values in SQL for `whenNotMatchedBySourceUpdate`, "
        "in which `target.x` is the old value of the column `x`",
        modes=UPSERTS,
    ),
    WriteOption(
        "updateColumns",
        "update_columns",
        column_names,
        FRAMES,
        "the columns that rows with a known key get from the batch, with commas",
        default_text="all columns of the batch",
        modes=UPSERTS,
    ),
    WriteOption(
        "badRecords",
        "bad_records",
        word,
        EVERYWHERE,
        "a table to which rows are appended that can't be written, each with the reason",
        default_text="such rows fail their batch",
        modes=ALL_MODES - {WriteMode.OVERWRITE},
    ),
    _planned(
        "format",
        "format",
        choice("lance", "delta"),
        "the format of the table if the write creates it",
        default="lance",
    ),
)
"""Every option, in the order of the documents. Those of the store and of Kafka are added, by their prefix."""

_BY_NAME: Final = {option.name.lower(): option for option in WRITE_OPTIONS}


def parameters_of(use: WriteUse) -> tuple[WriteOption, ...]:
    """Returns the options that this release supports for `use`, in the order of the table."""
    return tuple(option for option in WRITE_OPTIONS if use in option.uses - option.planned)


def known_option(name: str) -> WriteOption:
    """Returns the option with this name, in any case. Raises `InvalidError` that names the nearest option."""
    option = _BY_NAME.get(name.lower())
    if option is not None:
        return option
    near = get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.6)
    known = ", ".join(sorted(each.name for each in WRITE_OPTIONS))
    hint = f"the options are {known}, kafka.* for Kafka's client and storage.* for the store"
    if near:
        hint = f"do you mean {_BY_NAME[near[0]].name}? {hint[0].upper()}{hint[1:]}"
    raise InvalidError("a write has no such option", where=name, hint=hint)
