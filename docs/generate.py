"""Writes the pages of the documentation that are generated from the code.

`python docs/generate.py` writes them. With `--check` it writes nothing, and fails if a page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefold.cli import EXIT_CODES, VERBS
from lakefold.console.settings import PREFIX, Settings
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.states.charts import CHARTS
from lakefold_ingest.options.write_options import (
    ALL_MODES,
    WRITE_OPTIONS,
    WriteMode,
    WriteOption,
    WriteUse,
    parameters_of,
)
from lakefold_ingest.spark.spark_types import SPARK_TYPES
from lakefold_maintenance.upkeep.metrics import MaintenanceMetrics
from lakefold_reader.spark.options import OPTIONS, Use
from lakefold_table.delta.conflicts.rules import ABOUT as ABOUT_DELTA_CONFLICTS
from lakefold_table.delta.conflicts.rules import RULES as DELTA_RULES
from lakefold_table.delta.table_features.features import ABOUT as ABOUT_DELTA_FEATURES
from lakefold_table.delta.table_features.features import FEATURES
from lakefold_table.lance.conflicts import RULES
from lakefold_table.lance.conflicts.rule import ADVICE, Severity
from lakefold_table.lance.operations import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_committer.states.machine import Chart, Named

DOCS = Path(__file__).resolve().parent
MADE_FROM = "<!-- Written by docs/generate.py; edit {source} instead. -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def page(title: str, source: str, text: str, body: str) -> str:
    """Returns a whole page: the file it is generated from, the text, and the body."""
    return f"{MADE_FROM.format(source=source)}\n# {title}\n\n{text}\n\n{body}"


VERDICTS = [
    ["`·`", "compatible", "It is committed unchanged, with ids that the table assigns now.", "Nothing."],
    ["`m`", "rebase", "It is adapted to the versions in between, then committed.", "Nothing."],
    ["`c`", "carried", "Its rows are followed to where they are now, then it is committed.", "Nothing."],
    [
        "`r` `R`",
        "retryable",
        "Rejected. Built on the newest version it may pass.",
        ADVICE[Severity.RETRYABLE],
    ],
    ["`x` `X`", "incompatible", "Rejected. What it was built on is gone.", ADVICE[Severity.INCOMPATIBLE]],
]


BESIDE = """\
## Other conflicts

These proposals are Rejected as well, whatever the operation in between was:

- **Both removed the same row.** Affected rows of a proposal are merged with the rows that are deleted
  already. If it deletes or moves a row that was deleted meanwhile, it is retryable, and the outcome names
  the row (`row_addresses`). A row that a Rewrite has moved is named by the address under which the
  proposal names it.
- **A deletion file is gone.** To follow rows through a Rewrite the committer needs the deletion files that
  the Rewrite read. If they were cleaned up, the proposal is retryable.
- **A field id belongs to another column now.** The id of a dropped column can be used again. A proposal
  that uses such an id is retryable, with the schema of the newest version. Data files of an Append or
  Update may contain dropped columns whose ids were not used again; a fragment that contains only such
  columns is retryable.
- **The read version is too old.** It is more than 10,000 versions old, or a version after it was removed:
  retryable.
- **The table exists already.** An envelope with `create` is retryable, as an append; a Clone is incompatible,
  because it can only create a table.
"""


def conflicts() -> str:
    """Returns the page of conflicts: which operations conflict, why, and what the writer should do."""
    verdicts = [[sign, name, meaning, _sentence(to_do)] for sign, name, meaning, to_do in VERDICTS]
    proposed = [kind for kind in Kind if kind is not Kind.UNKNOWN]
    matrix = [[f"`{ours}`", *(_signs(ours, theirs) for theirs in Kind)] for ours in proposed]
    head = ["proposed", *(f"`{kind}`" for kind in proposed), "none"]
    reasons = "\n".join(f"### `{ours}`\n\n{_reasons(ours)}" for ours in proposed)
    return page(
        "Which operations conflict with which",
        "table/lakefold_table/lance/conflicts/matrix.py",
        "A proposal that was built on version R and is folded on version V is compared with all versions in\n"
        "(R, V]. If several rules apply, incompatible wins over retryable, and the newest version is named.\n"
        "The outcome contains the evidence: the other version and its operation, fragments, rows, fields\n"
        "and keys.\n\n"
        "The rules are those of pylance 14, since its users share the tables.\n"
        "[Lance fact 5.2](format/lance.md#fact-5.2) says where they differ from the specification, decision\n"
        "[0009](decisions/0009-the-rules-are-those-of-pylance.md) where ours differ from pylance's.\n"
        "Decision [0063](decisions/0063-rows-are-followed-through-a-compaction.md) says how a Delete or an\n"
        "Update is carried over a Rewrite, and a Rewrite over them, which pylance refuses. Decision\n"
        "[0073](decisions/0073-an-upsert-is-ordered-by-its-first-proposal.md) says which Updates that\n"
        "insert rows don't conflict with an Append: those with the property `lakefold.appends` = `later`.",
        f"{table(['sign', 'verdict', 'outcome', 'what its writer does'], verdicts)}\n"
        "## The matrix\n\n"
        "A row is the operation that is proposed, a column the operation in between (`none`: a version\n"
        "without a transaction, whose operation is unknown; outcomes call it `unknown`). A capital letter\n"
        "holds for any two of these operations, a small letter under the conditions below.\n\n"
        f"{table(head, matrix)}\n"
        "## The conditions\n\n"
        '"It" is the operation in between.\n\n'
        f"{reasons}\n"
        f"{BESIDE}",
    )


def _signs(ours: Kind, theirs: Kind) -> str:
    letters = {
        Severity.REBASE: "m",
        Severity.CARRIED: "c",
        Severity.RETRYABLE: "r",
        Severity.INCOMPATIBLE: "x",
    }
    rules = RULES[ours].get(theirs, ())
    signs = {letters[rule.severity].upper() if rule.always else letters[rule.severity] for rule in rules}
    return "".join(sorted(signs, key=lambda sign: (sign.lower(), sign))) or "·"


def _reasons(ours: Kind) -> str:
    """Returns the rules of one row of the matrix; those with the same reason share a line."""
    reasons: dict[tuple[Severity, str, str, str], list[str]] = {}
    for theirs, rules in RULES[ours].items():
        for rule in rules:
            if theirs is not Kind.UNKNOWN:
                reason = rule.severity, rule.when, rule.carries, rule.to_do
                reasons.setdefault(reason, []).append(f"`{theirs}`")
    if not reasons:
        return "It conflicts with nothing.\n"
    rows = [
        [
            ", ".join(names),
            severity.name.lower(),
            _sentence(when),
            _sentence(carries) if carries else "",
            _sentence(to_do),
        ]
        for (severity, when, carries, to_do), names in sorted(reasons.items(), key=lambda item: -item[0][0])
    ]
    return table(["after", "verdict", "if", "carried", "what its writer does"], rows)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def states() -> str:
    """Each state machine of a table in the committer: a diagram, its states and its events."""
    return page(
        "The states of a table in the committer",
        "committer/lakefold_committer/states/charts.py",
        "Each branch of a table has a queue (`loop/table_queue.py`) and a writer\n"
        "(`tables/table_writer.py`). The queue prepares the next version while the one before it is\n"
        "published, so it has a machine for each; two more say whether it is worked on and whether its\n"
        "entries are being read again. The last machine is the writer's.\n\n"
        "An event that has no arrow in a state is an error of the committer's own code: the partition stops\n"
        "and names state and event. The simulation takes every transition\n"
        "(`tests/simulation/test_transitions.py`).",
        "\n".join(map(_machine, CHARTS)),
    )


def _machine(chart: Chart[Any, Any]) -> str:
    rows = [
        [f"`{state.title}`", state.meaning, ", ".join(_arrows(row)) or "none"]
        for state, row in chart.transitions.items()
    ]
    events = [[f"`{event.title}`", event.meaning] for event in chart.events]
    return (
        f"## {chart.name.capitalize()}\n\n{chart.about}\n\n"
        f"```mermaid\nstateDiagram-v2\n{_diagram(chart)}```\n\n"
        f"{table(['state', 'meaning', 'event → next state'], rows)}\n"
        f"{table(['event', 'meaning'], events)}"
    )


def _arrows(row: Mapping[Named, Named]) -> list[str]:
    return [f"{event.title} → `{following.title}`" for event, following in row.items()]


def _diagram(chart: Chart[Any, Any]) -> str:
    lines = [f"    [*] --> {chart.initial.name}"]
    lines += [f"    {state.name}: {state.title}" for state in chart.transitions]
    for state, row in chart.transitions.items():
        for following in dict.fromkeys(row.values()):
            events = ", ".join(event.title for event in row if row[event] is following)
            lines.append(f"    {state.name} --> {following.name}: {events}")
    return "".join(f"{line}\n" for line in lines)


def settings() -> str:
    """Returns the page of settings, each with its meaning, default and environment variable."""
    rows = [
        [
            f"`{name}`",
            field.description or "",
            "" if field.default_factory or field.default in (None, "", {}) else f"`{field.default}`",
            f"`{PREFIX}{name.upper()}`",
        ]
        for name, field in Settings.model_fields.items()
    ]
    return page(
        "Settings",
        "lakefold/console/settings.py",
        "A setting comes from a flag (`--group-max-wait`), else from its environment variable, else from\n"
        "the TOML file that `--config` names, else it has its default. `lakefold committer --print-config`\n"
        "prints the effective settings.\n"
        "\n"
        "In the environment, several roots are separated by commas (`LAKEFOLD_ROOTS=file:///a,file:///b`),\n"
        "or are a JSON list. `kafka` and `storage_options` are tables of options. There is one variable for\n"
        "each option, with its dots as underscores (`LAKEFOLD_KAFKA__SASL_PASSWORD` for `sasl.password`,\n"
        "`LAKEFOLD_STORAGE_OPTIONS__AWS_REGION`), or one variable with a JSON object of all of them\n"
        '(`LAKEFOLD_KAFKA=\'{"sasl.password": "…"}\'`). In the file they are TOML tables with quoted names:\n'
        '`[kafka]`, then `"sasl.password" = "…"`; roots are a list.',
        table(["setting", "meaning", "default", "in the environment"], rows),
    )


def metrics() -> str:
    """Returns the page of the committer's and the maintainer's metrics, each with its type and meaning."""
    committers, maintainers = (
        table(
            ["metric", "type", "meaning"],
            [
                [f"`{_exposed(family.name, family.type)}`", family.type, family.documentation]
                for family in registry.collect()
            ],
        )
        for registry in (Metrics().registry, MaintenanceMetrics().registry)
    )
    return page(
        "Metrics of the committer",
        "committer/lakefold_committer/observability/metrics.py",
        "Served in Prometheus' text format at `/metrics`, beside `/livez` and `/readyz`.",
        f"{committers}\n## Metrics of the maintainer\n\n`lakefold maintain` serves them in the same way, "
        f"each with the label `table`.\n\n{maintainers}",
    )


def verbs() -> str:
    """Returns the page of verbs, each with what it does, and of exit codes."""
    rows = [[f"`lakefold {name}`", verb.summary] for name, verb in VERBS.items()]
    return page(
        "Verbs of the command line",
        "lakefold/cli.py",
        "Each verb has `--help`. With `--json` it prints one JSON document, or one line for each item of a\n"
        "stream. Logs go to stderr.",
        table(["verb", "what it does"], rows)
        + "\n"
        + table(["exit code", "meaning"], [[str(code), text] for code, text in EXIT_CODES.items()]),
    )


SPARK = """\
```python
from lakefold.spark import register

register(spark)  # once for each session; the executors need lakefold[ingest] as well
spark.read.format("lakefold").option("versionAsOf", 12).load("s3://lake/flights.lance")
spark.readStream.format("lakefold").option("maxVersionsPerTrigger", 100).load("s3://lake/flights.lance")
```

In SQL, name a table by `CREATE TEMPORARY VIEW flights USING lakefold OPTIONS (path
's3://lake/flights.lance')`. `CREATE TABLE` is refused, because Spark passes no options to a Python source
when it reads a table of its catalog.

An option that isn't listed below is refused, as is one that has no meaning for this read. Case doesn't
matter. Options that begin with `storage.` or `storageOptions.`, as `storage.aws_region`, are passed to the
store without this prefix, like `storage_options` of `lakefold.open`. Spark makes their names lower-case."""

SPARK_NOTES = """\
## What a batch query reads

- **The version** is chosen once, when `load` is called, and every task reads that version. A frame has the
  same rows whenever it is used.
- **Filters** are applied by Lance if its result is the same as Spark's for every value; Spark applies the
  others, which `explain()` shows. `register` enables this (`spark.sql.python.filterPushdown.enabled`); Spark
  4.0 doesn't have it.
- **Columns**: Spark doesn't pass the columns of a query to a Python source. Name them by `columns`, or by a
  schema (`.schema("id long, text string")`); then the others aren't read.
- **Types**: unsigned integers become the next wider type (64 bits: `decimal(20,0)`), lists of fixed size
  become arrays, dictionaries their values, extension types their storage types. Every column may be null.
  Times finer than a microsecond, decimals of more than 38 digits, blobs and bfloat16 are refused; the error
  names the column.
- **Partitions** contain consecutive fragments up to `maxPartitionBytes`.

## What a stream reads

- **Without `startingVersion`** the content at the time of `load` is read first, then the rows of each new
  version. Spark's checkpoint contains a cursor: a batch that is run again reads the same rows, and if the
  table or branch was removed and created again, the query ends with an error.
- **A version is never split** over batches; the content at the start is, by fragments.
- **Versions that delete or change rows** end a query that reads inserts, with an error that names the option
  to set. With `skipChangeCommits` and `ignoreDeletes` the appended rows of such a version are still read, as
  many proposals share a version.
- **Changed columns** end a query. If it is started again, it continues with the new columns. A row that is
  older than a column has null in it. If a value doesn't fit the new type of its column, the query ends with
  an error that names version and column; with `misfits` it continues.
- `startingVersion`, `endingVersion` and the two times are included, as in Delta. (`lakefold.changes(uri, 7,
  12)` begins after version 7.)
- **Triggers**: `availableNow` ends at the newest version at its start; `once` ignores limits. Before Spark
  4.2 a source doesn't know where a batch begins, so the first batch after a restart ignores limits, and
  `availableNow` is one batch."""


def spark() -> str:
    """Returns the page of Spark's options: which reads each is for, its meaning and its default."""
    marks = {Use.ROWS: "rows", Use.CHANGES: "changes", Use.STREAM: "stream"}
    rows = [
        [
            f"`{option.name}`",
            ", ".join(marks[use] for use in Use if use in option.uses),
            option.meaning,
            option.default,
        ]
        for option in OPTIONS
    ]
    where = "`rows`: `spark.read`; `changes`: that with `readChangeFeed`; `stream`: `spark.readStream`.\n\n"
    return page(
        "Reading tables from Spark",
        "reader/lakefold_reader/spark/options.py",
        SPARK.rstrip("\n"),
        f"{where}{table(['option', 'for', 'meaning', 'default'], rows)}\n{SPARK_NOTES}",
    )


SPARK_WRITES = """\
```python
from lakefold.spark import register, sink

register(spark)  # once for each session; the executors need lakefold[ingest] as well
(
    frame.write.format("lakefold")
    .mode("append")
    .option("kafka.bootstrap.servers", "broker:9092")
    .save("s3://lake/flights.lance")
)
(
    events.writeStream.format("lakefold")
    .option("kafka.bootstrap.servers", "broker:9092")
    .option("checkpointLocation", "/var/flights")
    .start("s3://lake/flights.lance")
)
events.writeStream.foreachBatch(sink("s3://lake/flights.lance", "broker:9092"))  # the same, in Python
```

Each write is one proposal in the log, and a committer must run. If the table does not exist, it is
created with the columns of the rows. Columns are matched by name, case-sensitively; rows that don't fit
fail before anything is sent, with an error that names the columns and types.

An option that isn't listed below is refused with the nearest one that is, and so is an option that this
release doesn't support yet. Case doesn't matter. Options that begin with `kafka.` are passed to Kafka's
client (librdkafka) without this prefix, options that begin with `storage.` or `storageOptions.` to the
store. What an option doesn't say comes from the environment of Spark's driver and from the file
`config`, as for `lakefold` itself."""

SPARK_WRITE_NOTES = """\
## Modes

- **`append`** adds the rows.
- **`overwrite`** replaces all rows in one version; readers see the old rows or the new ones. The table
  keeps its columns, and the rows must fit them, unless `overwriteSchema` is true. An overwrite that was
  built while another one was folded is built again on that one. A streaming query with the output mode
  `complete` overwrites the table with each batch.
- **`overwrite` with `replaceWhere`** removes the rows for which the condition is true and adds those of the
  batch, in one version. If rows of the batch don't satisfy the condition, the write fails with their number
  and an example. The condition is SQL as pylance reads it. The driver finds the rows to remove, with an
  index if the table has one; rows that others append meanwhile stay.
- **`upsert`** (`writeMode`) updates the rows whose `keys` are in the table and inserts the others, as
  `lakefold.upsert` does, and **`delete`** deletes them. If a key is in several rows of a batch, the last one
  in the order of `orderBy` counts. The options `when…` are the clauses of Delta's MERGE, each with a
  condition in SQL, in which `source.x` is column `x` of the batch and `target.x` column `x` of the table, or
  `true`. If one of them is given, only what is given is done. A deletion is checked before an update. In
  Python, `clauses` of `sink` has them in an order of your own (`lakefold.MatchedUpdate`, …). `sink` has Spark
  partition a batch of more than 50,000 rows by its keys; each task finds its keys in the table, with an index
  of a key column if the table has one, and writes the new rows. Smaller batches are
  merged by the driver, and so are those with `badRecords` or with clauses for rows that the batch lacks, and
  each batch of `format("lakefold")`, where Spark doesn't let a writer partition the rows: they must fit into
  the driver's memory (`spark.driver.maxResultSize`). These modes wait for the commit, and if others changed
  the same rows meanwhile, the batch is built again by itself. An upsert updates all rows that the log had
  before it. Rows that others append while it is being committed come after it, also if they have one of its
  keys.
- **`cdc`** (`writeMode`) applies change events by `keys`, see below. It collects and waits as `upsert` does.
- **`error`** and **`ignore`** are refused by Spark for every Python data source. Name the mode: `error`
  is Spark's default.

## File sizes

Each task of Spark writes its own files, at most `maxRecordsPerFile` rows or `maxBytesPerFile` bytes in one.
So a batch of few rows in many partitions becomes many small files. `sink(…, target_rows_per_file=500_000)`
has Spark keep and count the rows, and writes each batch by so few tasks that a file has about so many rows.
With `sort_by="at"` the rows of a file are in this order; with both, each file has another part of the range,
so that a filter on the column reads few files. In other cases use `repartition`, `coalesce` or
`sortWithinPartitions` of the frame. `lakefold maintain` makes large files of small ones later.

## Change events

The mode `cdc` (in Python also `lakefold.apply_changes`) applies rows that say what happened to a row of the
table. The last event of a key in a batch counts: it writes the row, or deletes it. Columns that the events
don't have keep their values.

- **`operationColumn`** says what happened, and the other columns are the row. `operations` says what its
  values mean, for example `I=upsert,D=delete`. A deletion needs its keys only. This reads what Debezium's
  `ExtractNewRecordState` leaves, too: `operationColumn=__deleted`, `operations=true=delete,false=upsert`.
- **`envelope=debezium`**: the columns `op` (`c`, `r`, `u`, `d`), `before` and `after`, or a struct of these
  as `payload` or `value`, or the messages as Kafka delivers them: `value` as JSON, and `key` for tombstones.
  JSON is read with the types of the table, so create the table first, by an append without rows; a value of
  another type is an error, never converted. Messages are best without their schemas
  (`value.converter.schemas.enable=false`). A message without a value deletes the row of its key. In structs
  made by `from_json`, leave such messages out (`where value is not null`): there a missing `op` may also be
  JSON that could not be read, so it is an error. `m` is ignored. `t` (truncate) fails the batch.
- **`envelope=delta`**, **`envelope=lakefold`**: the change feed of a table, with `_change_type`. Its order is
  `_commit_version` unless `orderBy` is given.

`orderBy` names columns of the row, of the envelope (`ts_ms`, `source.lsn`) or beside it (`offset`). Without
it the last row counts, in the order of the messages within a Kafka partition as long as the query doesn't
shuffle them. If a write creates the table, or adds columns by `mergeSchema`, it gets these columns, too.

**Late and repeated events.** If the table has the columns of `orderBy`, an event that is older than the row
in the table has no effect, and neither has an update that is as old. So order by what no two events share,
such as `source.lsn`, or `source.ts_ms,source.lsn`: of two updates with the same time in different batches
the second one would have no effect. If the table lacks these columns, each batch is applied as it comes.
Nothing is kept of a deleted row: an older event in the same batch as its deletion has no effect, but one in
a later batch inserts the row again, until the deletion comes again ([decision
0074](../decisions/0074-nothing-is-kept-of-a-row-that-an-event-deleted.md)). Kafka keeps the order of
messages with the same key, and a batch that Spark runs again is known by its number, so this needs a source
that mixes up its own events, or a topic that is read again from the start.

## Bad rows

A null in a column that is not nullable, a value that the table's type can't hold (300 in a `uint8`), a key
or an ordering column without a value, an unknown operation and JSON that can't be read fail the batch
before anything is sent. The error (`lakefold.BadRowsError`) has the number of such rows, their columns and
some examples. Columns that are missing or have another type are no bad rows: they always fail the batch.

With `badRecords` (in Python `bad_records`, also of `lakefold.append`, `upsert` and `apply_changes`) the
batch goes on without these rows. They are appended to the table that it names, which is created if it does
not exist, in the columns `table`, `app_id` and `batch_id` (for which batch they were meant), `column`,
`reason` and `row` (the row as a JSON object, with Kafka's offset if the frame has it). Several tables may
share one. The bad rows of a batch are a proposal of their own in the log, with a key made from the batch's,
and are awaited before the batch is sent. So each of them is there once, wherever the process ends and
however often the batch is run again, as long as the columns of the table stay the same in between.

## Exactly once

- **A streaming query** has its id as `txnAppId` and its batch numbers as `txnVersion`. If its driver
  dies at any point and it is started again from its checkpoint, each batch is in the table once. Spark
  runs a batch that is not in the checkpoint again, and the committer recognises its key.
- **A checkpoint that is older than the table**, or a second query with the same `txnAppId`, fails
  (`onOlderBatch`). If a checkpoint is deleted, the query gets a new id and all its rows are added again.
  With a `txnAppId` it fails instead.
- **A batch** (`write`) is added as often as it is run, unless it has `txnAppId` and `txnVersion`.
- **Tasks that Spark runs again**, or twice at a time (speculation): only the files of the attempt that
  Spark counts are in the proposal. A task that fails removes its files, and the driver removes those of
  a batch that was not sent. Files of a killed process stay until `lakefold cleanup` removes them.
- **A refusal that a newer version of the table would change** (its columns were changed while the rows
  were written) fails the batch, because Spark doesn't run the tasks again: start the query again.
  `sink` writes the rows again by itself.

## Figures of a batch

Spark has no metrics for the writes of Python data sources, so `StreamingQueryProgress` shows only the
number of rows and the duration of a batch. Rows, files, bytes, the smallest and the largest file, and the
seconds of writing, sending and waiting are logged for each batch by the logger `lakefold`, in the text and as
the field `batch` of the record. `sink` logs on the driver, and calls `on_report` with the same figures, for
metrics of your own.
`format("lakefold")` logs in a Python process of Spark; from Spark 4.1 on, the setting
`spark.sql.pyspark.worker.logging.enabled` collects what such processes log
(`spark.tvf.python_worker_logs()`)."""


def _planned_uses(option: WriteOption) -> str:
    """Returns in which uses this release does not support the option, as the beginning of its meaning."""
    if not option.planned:
        return ""
    return "not supported yet: " if option.planned == option.uses else "only for `sink` yet: "


def spark_writes() -> str:
    """Returns the page of the options of Spark's writes."""
    parameters = parameters_of(WriteUse.SINK)
    rows = [
        [
            f"`{option.name}`",
            f"`{option.parameter}`" if option in parameters else "",
            _write_uses(option),
            f"{_planned_uses(option)}{option.meaning}",
            option.shown_default,
        ]
        for option in WRITE_OPTIONS
    ]
    where = (
        "`write`: `frame.write`; `stream`: `frame.writeStream`; in brackets the modes, if not all.\n"
        "`in Python`: the parameter of `sink`, which also has `kafka`, `storage_options`, `clauses`,\n"
        "`target_rows_per_file` and `sort_by`.\n\n"
    )
    return page(
        "Writing tables from Spark",
        "ingest/lakefold_ingest/options/write_options.py",
        SPARK_WRITES,
        f"{where}{table(['option', 'in Python', 'for', 'meaning', 'default'], rows)}\n{SPARK_WRITE_NOTES}\n",
    )


SPARK_TYPES_TEXT = """\
What a table stores for each type of Spark's columns. A test writes values at the edges of each (the
smallest and largest, far dates, NaN, empty ones) with Spark and reads them by pylance. The same is stored
inside arrays, maps and structs. A user-defined type is stored as its SQL type. A refused type is named
before anything is written."""


def spark_types() -> str:
    """Returns the page of Spark's types."""
    rows = [
        [f"`{kind.name}`", f"`{kind.stored}`" if kind.stored else "refused", kind.remark]
        for kind in SPARK_TYPES
    ]
    source = "ingest/lakefold_ingest/spark/spark_types.py"
    return page(
        "Spark's types in tables", source, SPARK_TYPES_TEXT, table(["Spark", "Lance", "remark"], rows)
    )


def _write_uses(option: WriteOption) -> str:
    marks = {WriteUse.BATCH: "write", WriteUse.STREAM: "stream"}
    uses = ", ".join(mark for use, mark in marks.items() if use in option.uses)
    modes = "" if option.modes == ALL_MODES else ", ".join(mode for mode in WriteMode if mode in option.modes)
    return f"{uses} ({modes})" if modes else uses


def delta_features() -> str:
    """Returns the page of the features of Delta tables."""
    rows = []
    for feature in FEATURES:
        names = [f"`{name}`" for name in feature.names]
        others = f" (also {', '.join(names[1:])})" if names[1:] else ""
        versions = [f"reader {feature.reader}"] if feature.reader else []
        versions += [f"writer {feature.writer}"] if feature.writer else []
        whose = "readers and writers" if feature.readers else "writers"
        rows.append([f"{names[0]}{others}", whose, ", ".join(versions), feature.read, feature.write])
    source = "table/lakefold_table/delta/table_features/features.py"
    head = ["feature", "for", "also from version", "read", "commit"]
    return page("Features of Delta tables", source, ABOUT_DELTA_FEATURES, table(head, rows))


def delta_conflicts() -> str:
    """Returns the page of the conflicts between proposals for Delta tables."""
    rows = [[rule.name, f"{rule.when[0].upper()}{rule.when[1:]}."] for rule in DELTA_RULES]
    source = "table/lakefold_table/delta/conflicts/rules.py"
    body = table(["step", "the version before conflicts if"], rows)
    return page("Conflicts in Delta tables", source, ABOUT_DELTA_CONFLICTS, body)


PAGES = {
    "conflicts.md": conflicts,
    "states.md": states,
    "reference/delta-conflicts.md": delta_conflicts,
    "reference/delta-features.md": delta_features,
    "reference/settings.md": settings,
    "reference/metrics.md": metrics,
    "reference/verbs.md": verbs,
    "reference/spark.md": spark,
    "reference/spark-writes.md": spark_writes,
    "reference/spark-types.md": spark_types,
}


def main() -> int:
    """Writes the pages, or compares them if `--check` is given. Returns the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    check = parser.parse_args().check
    pages = {name: write() for name, write in PAGES.items()}
    stale = [name for name, text in pages.items() if _stored(name) != text]
    if check:
        for name in stale:
            print(f"docs/{name} is out of date: run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(pages[name], encoding="utf-8")
    return 0


def _stored(name: str) -> str:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _exposed(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


if __name__ == "__main__":
    sys.exit(main())
