"""The pages of Spark's options and types: how tables are read and written from Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.markdown import page, table
from docs.spark_types import SPARK_TYPES
from lakefold_ingest.options.write_options import WRITE_OPTIONS, WRITES, WriteMode, WriteUse
from lakefold_ingest.spark.arrow_schema import VECTOR_SIZE
from lakefold_reader.spark.options import OPTIONS, Use

if TYPE_CHECKING:
    from lakefold_reader.spark.option_table import Option

SPARK = """\
```python
# needs a Spark session with lakefold[ingest], and a table
from lakefold.spark import register

register(spark)  # tables answer filters; the executors need lakefold[ingest] as well
spark.read.format("lakefold").option("versionAsOf", 12).load("s3://lake/flights.lance")
spark.readStream.format("lakefold").option("maxVersionsPerTrigger", 100).load("s3://lake/flights.lance")
```

Spark finds the format by itself if lakefold is installed in the Python of its driver (`PYSPARK_PYTHON`, or
`spark.pyspark.python`); if it says `DATA_SOURCE_NOT_FOUND`, that Python lacks `lakefold[ingest]`. `register`
has tables answer filters, so that less is read.

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
  others, which `explain()` shows. Tasks search the table's scalar indices if these find all rows. `register`
  enables this (`spark.sql.python.filterPushdown.enabled`); Spark 4.0 doesn't have it. A session that has not
  called it reads all rows, and Spark filters them.
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
  many proposals share a version. If the version of a Delta table doesn't show which rows those are, e.g. as a
  table without deletion vectors has a file written again, `skipChangeCommits` ends the query with an error.
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
            ", ".join(marks[use] for use in Use if option.is_for(use)),
            option.meaning,
            option.default_in_words,
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
# needs a Spark session with lakefold[ingest], brokers, and a frame and a stream of events
from lakefold.spark import register, sink

register(spark)  # once for each session, see below
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

Drivers and executors need `lakefold[ingest]`. Spark finds the format by itself if lakefold is installed in
the Python of its driver (`PYSPARK_PYTHON`, or `spark.pyspark.python`); if it says `DATA_SOURCE_NOT_FOUND`,
that Python lacks it. So writes don't need `register`, which makes [reads](spark.md) faster and can serve
metrics.

With Spark Connect use `format("lakefold")`: `sink` needs the process of Spark's driver, and says so. With
Spark 4.0 use `sink` for streaming queries: `writeStream.format("lakefold")` needs 4.1. Spark refuses the
output mode `update` for a Python data source: use `sink(…, write_mode="upsert")`. The trigger `continuous` is
refused.

Each write is one proposal in the log, and a committer must run. If the table does not exist, it is
created with the columns of the rows. Columns are matched by name, case-sensitively; rows that don't fit
fail before anything is sent, with an error that names the columns and types.

`toTable(name)` needs the option `table` (or `path`) as well, and writes there. Spark notes the name in its
session catalog without the options, so the name can't be read: for a name to read by, use `CREATE TEMPORARY
VIEW flights USING lakefold OPTIONS (path 's3://lake/flights.lance')`, and `start` to write.

An option that isn't listed below is refused with the nearest one that is, and so is an option that this
release doesn't support yet. Case doesn't matter. Options that begin with `kafka.` are passed to Kafka's
client (librdkafka) without this prefix; names that only the Java client has, as `kafka.sasl.jaas.config`, are
refused with those to use instead. Options that begin with `storage.` or `storageOptions.` are passed to the
store. What an option doesn't say comes from the environment of Spark's driver and from the file
`config`, as for `lakefold` itself."""

SPARK_WRITE_NOTES = """\
## Modes

- **`append`** adds the rows. If the committer refuses them because others changed the table's columns
  while Spark wrote the files, these are proposed again if they fit the table as it is now: if it only got
  nullable columns, these are null in the rows. Otherwise the write fails, see [below](#exactly-once).
- **`overwrite`** replaces all rows in one version; readers see the old rows or the new ones. The table
  keeps its columns, and the rows must fit them, unless `overwriteSchema` is true. With `mergeSchema` it
  gets those that only the rows have as well, also with `replaceWhere`. An overwrite that was
  built while another one was folded is built again on that one; one that keeps the columns fails if
  others changed them since, and is to be run again. A streaming query with the output mode
  `complete` overwrites the table with each batch.
- **`overwrite` with `replaceWhere`** removes the rows for which the condition is true and adds those of the
  batch, in one version. If rows of the batch don't satisfy the condition, the write fails with their number
  and an example. The condition is SQL as pylance reads it. The driver finds the rows to remove, with an
  index if the table has one. Rows that others append to a Lance table meanwhile stay; in a Delta table those
  for which the condition may be true refuse it, and it is built again, at most three times.
- **`upsert`** (`writeMode`) updates the rows whose `keys` are in the table and inserts the others, as
  `lakefold.upsert` does, and **`delete`** deletes them. If a key is in several rows of a batch, the last one
  in the order of `orderBy` counts. The options `when…` are the clauses of Delta's MERGE, each with a
  condition in SQL, in which `source.x` is column `x` of the batch, which the table may lack, and `target.x`
  column `x` of the table, or `true`. If one of them is given, only what is given is done. A deletion is
  checked before an update. What an update changes, `updateColumns` and `whenMatchedSet` say: with
  `whenMatchedSet=n=target.n + source.n` rows add up. A sum that its type can't hold wraps around, but with
  `cast(target.n as bigint) + source.n` one that the column can't hold fails. In Python, `clauses` of `sink`
  has them in an order of your own (`lakefold.MatchedUpdate`, …). These modes wait for the commit, and if
  others changed the same rows meanwhile, the batch is built again automatically. An upsert updates all rows
  that the log had before it. Rows that others append while it is being committed come after it, also if they
  have one of its keys.
- **`cdc`** (`writeMode`) applies change events by `keys`, see below. It waits as `upsert` does.
- **`error`** and **`ignore`** are refused by Spark for every Python data source. Name the mode: `error`
  is Spark's default.

## Delta tables

A table that exists is written in its own format. `format=delta` creates a Delta table, with the
partitions of the option `partitionBy`: `.option("partitionBy", "day")`. The method is of no use for a
Python source: Spark ignores `writeStream.partitionBy("day")`, so the table would have no partitions,
and refuses `write.partitionBy("day")`. Options such as `delta.enableDeletionVectors` are
[properties](delta-features.md#properties) of a table that is created; without them it has none. Rows
are appended by all of these functions, with `mergeSchema` and `badRecords`; `overwrite` replaces all
rows, or with `replaceWhere` those of any condition that readers take as a filter; one on partition
columns alone reads no rows. `upsert`, `delete` and `cdc` work as for Lance tables, with all clauses.
CHECK constraints and invariants are checked for each row if they compare columns with constants. A
proposal can't give a table a constraint that is surely no SQL (`x >`), but any other. What else
a table requires of its writers is refused by name before a file is written: other expressions,
generated columns, defaults of columns that the batch lacks. Texts that are longer than `char(n)` or
`varchar(n)` allows are bad rows, and those of `char(n)` get spaces up to n characters. With
`overwriteSchema` a table keeps its properties, and its partition columns unless `partitionBy` gives
others. `commitProperties` and `userMetadata` are what delta-spark calls `userMetadata`: `DESCRIBE
HISTORY` and `lakefold log` show it.

- **Deletion vectors**: with `delta.enableDeletionVectors` = true deleted and updated rows are marked in a
  deletion vector of their file, and writers that change different rows of one file don't disturb each
  other. Without it the files are written again without these rows, and two writers that change rows of
  one file conflict: the second one reads it again. The change feed compares such files, and leaves out rows
  that are in both, so it costs reading them. New tables don't have it, so that every client reads them
  (decision [0115](../decisions/0115-new-delta-tables-have-neither-deletion-vectors-nor-a-change-feed.md)).
- **New keys**: two upserts that insert the same key conflict, and the second one is built again. The
  committer compares the inserted keys with the statistics of the files that others added meanwhile, in at
  most 32 ranges for each key column. So it may also turn back an upsert of other keys in these ranges; a
  partition column, or keys that grow, keep writers apart. A batch that only updates or deletes rows is
  not turned back for rows that others add.
- **Change data**: with `delta.enableChangeDataFeed` = true a batch that changes some rows of a file
  writes change data files, with the old and the new values of updated rows. Row ids of updated rows stay
  with `delta.enableRowTracking` = true. A table with `delta.appendOnly` = true takes upserts that only
  insert.

## Where rows are merged

This is about the modes `upsert`, `delete` and `cdc`.

- **`sink`** has Spark partition a batch of more than 50,000 rows by its keys. Each task finds its keys in the
  table and writes the new rows; no row reaches the driver. The driver merges smaller batches itself. If the
  newest batches were small, Spark computes the rows once and gives them to the driver; else it keeps and
  counts them before.
- **`format("lakefold")`**: Spark doesn't let a Python writer partition the rows. So each task with more than
  1 MiB of rows stages them in files of the table's folder `data`, divided by their keys, and the driver
  merges them in parts of about 64 MiB or 250,000 rows. Its memory doesn't grow with the batch. It removes the
  staged files when the batch is done.
- **Clauses for rows that the batch lacks** (`whenNotMatchedBySource…`): `sink` stages and merges the rows as
  `format("lakefold")` does. Each part reads the key columns of the whole table.

Keys are compared in the table's types, and of several rows with one key the last one counts in whichever
tasks they are. An index on a key column (BTree or Bitmap) finds the keys of small batches. Otherwise the key
columns are read. A process remembers the lowest and the highest key of each fragment that it has read, and
leaves out fragments none of whose keys can be in a later batch. So it helps if the rows of a fragment have
neighbouring keys, as those of growing keys do.

## Executors

They need `lakefold[ingest]` in the driver's release, the driver's release of pylance, and access to the table
under the same URI. `sink` checks this at its first batch, for any mode and however small the batch is: tasks
read a file that the driver writes, and write one of their own, which is removed at once. A table that doesn't
exist yet is checked at the second batch. A fault is an `InvalidError` that names the executor's host and says
what is missing: a package, another release of pylance, or one that can't be loaded. Appends to a Delta table
need no pylance; merges do, for their conditions. Each task that writes compares the release of pylance again,
since executors may be added later. A data source can't run tasks before those of its batch. So with
`format("lakefold")`, in any mode, the first task of each process opens the table, loads pylance and checks
its release if it is a Lance table, and writes a file that is removed at
once ([without the right to delete it stays](../operations/stores.md)).

## File sizes

Each task of Spark writes its own files, at most `maxRecordsPerFile` rows or `maxBytesPerFile` bytes in one.

**Small batches** of `sink` become one file each, whatever the number of tasks: the driver takes their rows
from Spark as Arrow data and writes them by the code that the tasks use. No task runs Python then, which costs
a batch more than its file does ([decision 0091](../decisions/0091-the-driver-writes-small-batches.md)). A
batch is expected to be small if the newest four of the query had at most 25,000 rows and 8 MiB as Arrow data;
the first one is written by tasks. If a batch turns out to have more than 50,000 rows, or more than 16 MiB
hold at the width of the newest rows, the tasks write it: the driver never takes more of a partition.
`driver_rows` is another limit, and with 0 tasks write every append. Give 0 if the driver's Python process
forks (`multiprocessing` with `fork`), because a process that has used pylance must not fork. With `sort_by`
the tasks write every batch.

**Larger batches** of few rows a partition become many small files. `sink(…, target_rows_per_file=500_000)`
has Spark keep and count the rows, and writes each batch by fewer tasks, so that a file has about that many
rows;
`target_file_size="128m"` does it by the bytes that a row took in the newest files of the query, and leaves
its first batch as it is. With `sort_by="at"` the rows of a file are in this order; with a target as well,
each file has another part of the range, so that a filter on the column reads few files. `lakefold maintain`
makes large files of small ones later.

**`format("lakefold")`** gets the partitions of the frame as they are: a Python data source can't ask Spark
for others. A task that has at most 50,000 rows and less than 256 KiB of them in memory sends them to the
driver, and the driver writes those of all such tasks as if one task had them, so a small batch is one file;
with `driverRows=0` each task writes its own files. With `targetFileSize=128m` a file has about this size.
Then the driver also writes the rows of larger tasks that have fewer bytes than a file, up to 64 MiB in
memory: they wait in files of the table's folder that no version names. The first file of a task is measured
by its rows in memory, so it is smaller than the others; those of Delta tables all have the size. One process
writes all these rows, so for batches of gigabytes it is faster to divide the frame: `repartition("day")`,
`repartition(8)` or `coalesce(2)` decide how many tasks there are and which rows share one; a streaming frame
can be repartitioned too, but not sorted. With `sortBy=at` the rows of each file are put in order where they
are written, nulls first, and are held in memory for that (`maxRecordsPerFile`, `maxBytesPerFile`).
`lakefold.append`, `lakefold.Writer` and `lakefold append --sort-by` do the same. Rows that are merged by
keys have no such order, and a compaction joins files without sorting. Batches never share a file ([decision
0089](../decisions/0089-each-batch-keeps-its-own-fragments.md)): for larger ones choose a longer trigger.

## Columns that change

With `mergeSchema` a batch may have columns that the table lacks, and fields of structs, also in lists (of
Delta tables in maps, too): they are added before its rows, nullable. It may have wider types as well: a whole
number with more bits, a double for a float, a decimal with more digits, a timestamp without zone for a date,
also inside of structs, lists and maps. Such a column is written again on the driver and gets the wider type
before the batch's rows; the query goes on. This takes about a tenth of a second for each million rows on a
local disk. Above 50 million rows (deleted ones included) the batch fails instead, before anything is written;
the error says how to do it by hand ([decision
0085](../decisions/0085-a-wider-column-is-written-again-by-the-batch.md)). Indices of the column have to be
made again. Other writers need no restart, except batches of `format("lakefold")` that were being written for
the narrow type: they fail and are run again. A whole number never becomes a decimal or a double by itself,
and vectors keep their type. In a Delta table a column gets a wider type only if `delta.enableTypeWidening` is
true; its older files stay, so neither the number of rows nor other writers matter. Elements of lists, and
keys and values of maps, get wider types as well.

A column that has only nulls (`void`) has no type. No table is created with such a column, at any depth: a
CSV file without rows, for example, doesn't say which types its columns have. In a table of another client it
gets the type of the batch in the same way; in Lance tables not that of a struct, list or map, and in Delta
tables not inside of lists and maps.

Before a table is created or gets columns for a batch, the columns, types and conditions of the batch are
checked, and the keys and values of an upsert or of change events if the driver has the rows. What is noticed
only while tasks write or merge rows (a value that doesn't fit, a key twice) fails the batch after that: then
the table stays as it is, empty or with columns that are null.

## Change events

The mode `cdc` (in Python also `lakefold.apply_changes`) applies rows that say what happened to a row of the
table. The last event of a key in a batch counts: it writes the row, or deletes it. Columns that no event of a
batch has keep their values; if some events have a column, it becomes null in the rows of the others.

- **`operationColumn`** says what happened, and the other columns are the row. `operations` says what its
  values mean, for example `I=upsert,D=delete`. A deletion needs its keys only. This reads what Debezium's
  `ExtractNewRecordState` leaves, too: `operationColumn=__deleted`, `operations=true=delete,false=upsert`.
- **`envelope=debezium`**: the columns `op` (`c`, `r`, `u`, `d`), `before` and `after`, or a struct of these
  as `payload` or `value`, or the messages as Kafka delivers them: `value` as JSON, and `key` for tombstones.
  JSON is read with the types of the table. If that does not exist, `sink` creates it with the columns that
  the schemas of the messages say; without schemas, and for `format`, create it first, by an append without
  rows. A value of another type is an error, and converted only as the next paragraph says. A message without
  a value deletes
  the row of its key. In structs made by `from_json`, leave such messages out (`where value is not null`):
  there a missing `op` may also be JSON that could not be read, so it is an error. `m` is ignored. `t`
  (truncate) fails the batch.

  Debezium sends dates, times, instants and decimals as numbers and texts, and bytes as base64. They are
  converted if the messages have their schemas (`value.converter.schemas.enable=true`), or for columns that
  `debeziumTypes` names, such as `born=Date,price=Decimal(2),photo=Bytes`; so are columns of structs.
  [Values of Debezium and Kafka Connect](debezium-types.md) has each form of values, and into which columns it
  is read.

  An update that gives a row another key, as its `before` and `after` say, deletes the row with the old
  key and writes the one with the new key; the order is that of the event. If `before` is there without
  the key (a null, or another `REPLICA IDENTITY` of PostgreSQL's), it isn't known which row is changed:
  the event is a bad row. An update without `before` changes no key: PostgreSQL sends it only if a column
  of the replica identity changes. So if `keys` are not the source's primary key, use `REPLICA IDENTITY
  FULL`. Debezium itself sends a change of a primary key as a deletion and a new row, which needs no
  `before`.

  PostgreSQL's connector sends `__debezium_unavailable_value` in place of large values that an update did not
  change, in columns of texts, JSON and bytes. Such a row gets the value that an earlier event of the batch
  has, if that event is newer than the row in the table, or else keeps the one that it has in the table. So
  have the connector send a snapshot first: a row that the table lacks is inserted with the text as it is.
  Inside of a list, struct or map it makes the event a bad row.
  Another `unavailable.value.placeholder` is not recognised: with
  `REPLICA IDENTITY FULL` the events have all values.
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
0074](../decisions/0074-nothing-is-kept-of-a-row-that-an-event-deleted.md)). A batch that Spark runs again is
known by its number, and Kafka keeps the order in which messages of a partition were stored. So this needs a
topic that is read again from the start, or a producer that doesn't keep its order. Debezium's does, since
Kafka Connect has one request in flight. Producers of your own have to be idempotent (`enable.idempotence`,
which librdkafka has off by default): another one may send messages again after later ones.

## Bad rows

A null in a column that is not nullable, a value that the table's type can't hold (300 in a `uint8`, a
time that is not of a day, 9007199254740993 in JSON for a `double`, which would be another number), a key
or an ordering column without a value, an unknown operation, JSON that can't be read and a text that a
JSON column can't store (broken, with a name twice in an object, nested more than 500 levels deep) fail
the batch before its rows are sent. The error (`lakefold.BadRowsError`) has the number of such rows, their
columns and some examples. Columns that are missing or have another type are not bad rows: they always
fail the batch.

With `badRecords` (in Python `bad_records`, also of `lakefold.append`, `upsert` and `apply_changes`) the
batch goes on without these rows. They are appended to the table that it names, which is created if it does
not exist, in the columns `table`, `app_id` and `batch_id` (for which batch they were meant), `column`,
`reason` and `row` (the row as a JSON object). `badRecordsColumns` names columns of the batch that say where a
row comes from: Kafka's `topic`, `partition`, `offset` and the message itself, or `_metadata.file_path` of a
file under a name of its own. They go to the column `source` of the bad rows, as a JSON object, and not to the
table ([an example](../cookbook.md)). Columns of `orderBy` may be among them, and go
to the table as well if it has them; columns of `keys` may not.

When a write begins, it fails if that table can't have bad rows: it has other columns, is the written table,
is inside of it or around it, is a folder of other files, or is not below the `roots` that are set for the
process (environment or `config`). The table is created with the first bad row only.

Several tables may share one table of bad rows. The bad rows of a batch are a proposal of their own in the
log, with a key made from the batch's, and are awaited before the batch is sent. So each of them is in their
table once, wherever the process ends and however often the batch is run again, as long as the columns of the
table stay the same in between.

## Exactly once

- **A streaming query** has its id as `txnAppId` and its batch numbers as `txnVersion`. If its driver
  dies at any point and it is started again from its checkpoint, each batch is in the table once. Spark
  runs a batch that is not in the checkpoint again, and the committer recognises its key.
- **A query that moves from Delta's sink to this one** goes on where it ended, if it keeps its checkpoint:
  Delta's sink numbers its batches under the query's id as well, and what another client has recorded is not
  added again. A query that wrote with a `txnAppId` keeps that, too.
- **A checkpoint that is older than the table**, or a second query with the same `txnAppId`, fails
  (`onOlderBatch`). If a checkpoint is deleted, the query gets a new id and all its rows are added again.
  With a `txnAppId` it fails instead: its batch 0 has the key of one that the table has, but not its query.
  The messages of a query name it (the header `lakefold-query`). So a job that begins with a new checkpoint
  each time (`availableNow` in a container whose disk is not kept) needs a `txnAppId` with the day in it, or
  none, and after the deletion of a checkpoint give the query another one. The log says which query sent a
  batch as long as it has the message and the table the version. After that, **if the table has only batch 0
  of that app**, the new batch 0 still fails if the number of its rows or their columns differ from those of
  the first one. If both are the same, or the rows are merged or have `badRecords`, it is taken for a
  repetition, and its rows are left out without a warning. A batch 0 that is repeated after a crash fails as
  well if its rows depend on the time or on another table and are more or fewer now: start the query once with
  `onOlderBatch=skip`.
- **Give each query a `txnAppId` of its own.** While two queries that share it are at the same batch, the
  table takes the second batch for a repetition of the first, and lacks its rows. The query fails then. For
  the first batch after its start, which may be a repetition, this needs the log as above; with `wait=log`
  also the other query's batch has to be in the table already. `format` keeps the number of the
  last batch in the temporary folder of the driver's machine (`TMPDIR`), and logs a warning if it can't.
  With `wait=log` it fails at a later batch (`onRefused`), once the outcome is known.
- **`wait=log`**: Spark may have each batch of `format` sent by another process of the driver's machine. They
  share the list of batches without outcome in `TMPDIR` too, so `maxUnanswered` and `maxLag` are those of the
  query. When a query ends, as each `availableNow` does, the outcomes of its last batches are unread: a
  refusal of these is reported by the next run that has a batch. So use `wait=commit` if the job's end has to
  mean that all of its rows are in the table, or call `wait_for_outcomes(query)` of the function that `sink`
  returned, after `query.awaitTermination()`: it raises such a refusal, and also if an outcome is not known
  in time. `format` has nothing like it.
- **A batch** (`write`) is added as often as it is run, unless it has `txnAppId` and `txnVersion`.
- **Tasks that Spark runs again**, or twice at a time (speculation): only the files of the attempt that
  Spark counts are in the proposal, or the rows that it left to the driver. A task that fails removes its
  files, and the driver removes those of a batch that was not sent, and what tasks have staged. Files of a
  killed process, and of an attempt that lost, stay until `lakefold maintain` removes them, which knows them
  by their names.
- **If the files of a batch don't fit the table any more**, because its columns or what it requires were
  changed while the rows were written, the batch fails, because Spark doesn't run the tasks again. Run
  the write or start the query again: the batch is written for the table as it is then. `sink` writes the
  rows again automatically.

## Figures of a batch

Spark has no metrics for the writes of Python data sources: `StreamingQueryProgress` shows only the number
of rows and the duration of a batch, and `DataFrame.observe` adds only what can be computed from rows. So
rows, files, bytes, the smallest and the largest file, the seconds of writing, sending and waiting, the
attempts, and how far the committer is behind (with `wait=log`) are found elsewhere:

- **In the log** of each batch: the logger `lakefold`, in the text and as the field `batch` of the record.
- **Beside Spark's progress**: `lakefold.spark.progress(query)` returns `query.recentProgress` with the
  figures of each batch under `lakefold`. `sink` keeps those of 1,000 batches in the driver's process.
  `format("lakefold")` commits in other processes of the driver's machine: they store those of the newest 100
  batches of a query in the temporary folder (`TMPDIR`), which the driver's Python must share.
- **In Prometheus**: `sink(…, metrics_port=9464)`, or `register(spark, metrics_port=9464)` for the streaming
  queries of `format("lakefold")`, has the driver serve [sums over its batches](metrics.md) and a histogram of
  file sizes at `127.0.0.1:9464/metrics`; `metrics_host` opens another address. All of a driver share them.
  Failed batches of `format` are not counted. A session of Spark Connect can't serve them.
- **In your own code**: `sink` calls `on_report` with a `BatchReport` of each batch.
- **In traces**: a batch of `sink` is a span if the driver's Python process is traced, and a batch of
  `format("lakefold")` if the variables of OpenTelemetry are set for Spark's Python processes, as by
  `spark.executorEnv.OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318`, with `lakefold[otel]` installed. The
  committer's spans are below it, down to the version ([traces](../operations/observe.md#traces)).

`format("lakefold")` logs in a Python process of Spark; from Spark 4.1 on, the setting
`spark.sql.pyspark.worker.logging.enabled` collects what such processes log
(`spark.tvf.python_worker_logs()`)."""


def spark_writes() -> str:
    """Returns the page of the options of Spark's writes."""
    parameters = WRITES.of(WriteUse.SINK)
    rows = [
        [
            f"`{option.name}`",
            f"`{option.parameter}`" if option in parameters else "",
            _write_uses(option),
            option.meaning,
            option.default_in_words,
        ]
        for option in WRITE_OPTIONS
    ]
    where = (
        "`write`: `frame.write`; `stream`: `frame.writeStream`; in brackets the modes, if not all.\n"
        "`in Python`: the parameter of `sink`, which also has `kafka`, `storage_options`, `clauses`,\n"
        "`target_rows_per_file`, `target_file_size`, `sort_by` and `driver_rows`. A Python data source\n"
        "can't have Spark divide the rows anew, so `format` [reaches its sizes\n"
        "otherwise](#file-sizes). Batches never share a file, with either.\n\n"
    )
    return page(
        "Writing tables from Spark",
        "ingest/lakefold_ingest/options/write_options.py",
        SPARK_WRITES,
        f"{where}{table(['option', 'in Python', 'for', 'meaning', 'default'], rows)}\n{SPARK_WRITE_NOTES}\n",
    )


SPARK_TYPES_TEXT = """\
What a table stores for each type of Spark's columns. A test writes values at the edges of each (the
smallest and largest, far dates, NaN, empty ones) with Spark and reads them by pylance and delta-rs. The same
is stored inside arrays, maps and structs. A user-defined type is stored as its SQL type. A refused type is
named before anything is written."""
SPARK_METADATA = f"""\
## Metadata of columns

If a write creates a Lance table or adds columns, the metadata of a column in Spark becomes that of its field,
at any depth. So it can say what Lance reads in it; lance-spark has the same keys:

```python
from pyspark.sql.types import ArrayType, BinaryType, FloatType, LongType, StringType, StructType

schema = (
    StructType()
    .add("id", LongType(), nullable=False, metadata={{"lance-schema:unenforced-primary-key": "true"}})
    .add("vector", ArrayType(FloatType()), metadata={{"{VECTOR_SIZE}": 768}})
    .add("text", StringType(), metadata={{"lance-encoding:compression": "zstd"}})
    .add("document", StringType(), metadata={{"ARROW:extension:name": "arrow.json"}})
    .add("picture", BinaryType(), metadata={{"lance-encoding:blob": "true"}})
)
```

- **`{VECTOR_SIZE}`** makes an array a list of fixed size, which vector indices need. A row with
  another number of values can't be written. An array fits a column of vectors that the table has without this
  metadata.
- **`lance-encoding:blob`** needs data files before version 2.2 (`dataStorageVersion=2.1`). With files of
  version 2.2 Lance stores blobs in another form, blob v2, which only pylance writes: a table with such a
  column is not created, and values for one that exists are refused by the name of the column. Rows without
  the column can be appended and inserted, and have null in it; rows can be deleted, but not updated.
- **Other values** than texts are stored as JSON, and names that begin with two underscores, which Spark uses
  itself, are left out. A Delta table takes no metadata from Spark.
"""


def spark_types() -> str:
    """Returns the page of Spark's types."""
    rows = [
        [f"`{kind.name}`", *(f"`{name}`" if name else "refused" for name in kind.in_tables), kind.remark]
        for kind in SPARK_TYPES
    ]
    shown = table(["Spark", "Lance", "Delta", "remark"], rows)
    source = "docs/spark_types.py"
    return page("Spark's types in tables", source, SPARK_TYPES_TEXT, f"{shown}\n{SPARK_METADATA}")


def _write_uses(option: Option) -> str:
    marks = {WriteUse.BATCH: "write", WriteUse.STREAM: "stream"}
    uses = ", ".join(mark for use, mark in marks.items() if option.is_for(use))
    modes = ", ".join(mode for mode in WriteMode if mode in option.modes)
    return f"{uses} ({modes})" if modes else uses
