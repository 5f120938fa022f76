"""Writes the pages of the documents that say what the code says, from the code: they can't say anything else.

`python docs/generate.py` writes them; with `--check` it writes nothing and fails where a page differs from
what would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.cli import EXIT_CODES, VERBS
from lakefold.console.settings import PREFIX, Settings
from lakefold_committer.observability.metrics import Metrics
from lakefold_reader.spark.options import OPTIONS, Use
from lakefold_table.lance.conflicts import RULES
from lakefold_table.lance.conflicts.rule import ADVICE, Severity
from lakefold_table.lance.operations import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DOCS = Path(__file__).resolve().parent
MADE_FROM = "<!-- Written by docs/generate.py; edit {source} instead. -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def page(title: str, source: str, text: str, body: str) -> str:
    """A whole page: where it comes from, what it shows, and the table."""
    return f"{MADE_FROM.format(source=source)}\n# {title}\n\n{text}\n\n{body}"


VERDICTS = [
    ["`·`", "compatible", "It is committed as it is, with the ids that the table gives it now.", "Nothing."],
    ["`m`", "rebase", "It is fitted to what came first, then committed.", "Nothing."],
    ["`r` `R`", "retryable", "Rejected. Built on what is there now it may pass.", ADVICE[Severity.RETRYABLE]],
    ["`x` `X`", "incompatible", "Rejected. What it was built on is gone.", ADVICE[Severity.INCOMPATIBLE]],
]


BESIDE = """\
## Beside the matrix

These are Rejected too, whatever the operation that came in between:

- **Rows that both took.** Told rows are joined with those that are deleted already. Where a proposal deletes
  or moves a row that is gone by now, it is retryable, and the outcome names the row (`row_addresses`).
- **Field ids that mean another column now.** A dropped column's id can be given again. A proposal that uses
  such an id is retryable, with the schema of the newest version. Data files of an Append or Update may hold
  columns that were dropped and whose ids nobody has been given; a fragment that holds no others is retryable.
- **A read version too old.** More than 10,000 versions behind, or with a version after it that is gone:
  retryable.
- **A table that is there.** An envelope with `create` is retryable, as an append; a Clone is incompatible, as
  it can only begin a table.
"""


def conflicts() -> str:
    """Which operation can't stand beside which, why, and what the writer should do."""
    verdicts = [[sign, name, meaning, _sentence(to_do)] for sign, name, meaning, to_do in VERDICTS]
    proposed = [kind for kind in Kind if kind is not Kind.UNKNOWN]
    matrix = [[f"`{ours}`", *(_signs(ours, theirs) for theirs in Kind)] for ours in proposed]
    head = ["proposed", *(f"`{kind}`" for kind in proposed), "none"]
    reasons = "\n".join(f"### `{ours}`\n\n{_reasons(ours)}" for ours in proposed)
    return page(
        "Which operations can stand beside which",
        "table/lakefold_table/lance/conflicts/matrix.py",
        "A proposal built on version R and folded on version V is held against everything in (R, V]. Where\n"
        "several rules apply, incompatible goes before retryable, and the newest version is named. The\n"
        "outcome carries the evidence: the other version and its operation, the fragments, rows, fields and\n"
        "keys.\n\n"
        "The rules are those of pylance 14, since its users share the tables.\n"
        "[Lance fact 5.2](format/lance.md#fact-5.2) says where they differ from the specification, decision\n"
        "[0009](decisions/0009-the-rules-are-those-of-pylance.md) where ours differ from pylance's.",
        f"{table(['sign', 'verdict', 'what becomes of it', 'what its writer does'], verdicts)}\n"
        "## The matrix\n\n"
        "A row is the operation proposed, a column what came in between (`none`: a version without a\n"
        "transaction, of which nobody can tell what it did; outcomes call it `unknown`). A capital holds\n"
        "for any two of their kinds, a small letter under the conditions below.\n\n"
        f"{table(head, matrix)}\n"
        "## The conditions\n\n"
        '"It" is the operation that came in between.\n\n'
        f"{reasons}\n"
        f"{BESIDE}",
    )


def _signs(ours: Kind, theirs: Kind) -> str:
    letters = {Severity.REBASE: "m", Severity.RETRYABLE: "r", Severity.INCOMPATIBLE: "x"}
    rules = RULES[ours].get(theirs, ())
    signs = {letters[rule.severity].upper() if rule.always else letters[rule.severity] for rule in rules}
    return "".join(sorted(signs, key=lambda sign: (sign.lower(), sign))) or "·"


def _reasons(ours: Kind) -> str:
    """The rules of one row, those with the same reason in one line."""
    found: dict[tuple[Severity, str, str], list[str]] = {}
    for theirs, rules in RULES[ours].items():
        for rule in rules:
            if theirs is not Kind.UNKNOWN:
                found.setdefault((rule.severity, rule.when, rule.to_do), []).append(f"`{theirs}`")
    if not found:
        return "Nothing stands against it.\n"
    rows = [
        [", ".join(names), severity.name.lower(), _sentence(when), _sentence(to_do)]
        for (severity, when, to_do), names in sorted(found.items(), key=lambda one: -one[0][0])
    ]
    return table(["after", "verdict", "where", "what its writer does"], rows)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def settings() -> str:
    """Each setting with its meaning, default and environment variable."""
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
        "shows what is in force.\n"
        "\n"
        "In the environment, several roots are parted by commas (`LAKEFOLD_ROOTS=file:///a,file:///b`), or\n"
        "are a JSON list. `kafka` and `storage_options` hold options: one a variable, its dots as\n"
        "underscores (`LAKEFOLD_KAFKA__SASL_PASSWORD` for `sasl.password`,\n"
        "`LAKEFOLD_STORAGE_OPTIONS__AWS_REGION`), or\n"
        'all as a JSON object (`LAKEFOLD_KAFKA=\'{"sasl.password": "…"}\'`). In the file they are TOML\n'
        'tables with quoted names: `[kafka]`, then `"sasl.password" = "…"`; roots are a list.',
        table(["setting", "meaning", "default", "in the environment"], rows),
    )


def metrics() -> str:
    """Each metric of the committer with its type and meaning."""
    rows = [
        [f"`{_exposed(family.name, family.type)}`", family.type, family.documentation]
        for family in Metrics().registry.collect()
    ]
    return page(
        "Metrics of the committer",
        "committer/lakefold_committer/observability/metrics.py",
        "Served in Prometheus' text format at `/metrics`, beside `/livez` and `/readyz`.",
        table(["metric", "type", "meaning"], rows),
    )


def verbs() -> str:
    """Each verb of the command line with what it does."""
    rows = [[f"`lakefold {name}`", verb.summary] for name, verb in VERBS.items()]
    return page(
        "Verbs of the command line",
        "lakefold/cli.py",
        "Each has `--help`; each prints one JSON document (streams: a line each) with `--json`, and logs to\n"
        "stderr.",
        table(["verb", "what it does"], rows)
        + "\n"
        + table(["exit code", "meaning"], [[str(code), text] for code, text in EXIT_CODES.items()]),
    )


SPARK = """\
```python
from lakefold.spark import register

register(spark)  # once for each session; the executors need lakefold[ingest], too
spark.read.format("lakefold").option("versionAsOf", 12).load("s3://lake/flights.lance")
spark.readStream.format("lakefold").option("maxVersionsPerTrigger", 100).load("s3://lake/flights.lance")
```

In SQL a table gets a name by `CREATE TEMPORARY VIEW flights USING lakefold OPTIONS (path 's3://lake/flights.lance')`.
`CREATE TABLE` is refused: Spark hands a Python source no options when it reads a table of its catalog.

A name that isn't below is refused, as is one that has no meaning for the read; case doesn't matter. Options
that begin with `storage.` or `storageOptions.` go to the store without that, as `storage.aws_region`, and
are the `storage_options` of `lakefold.open`; Spark makes their names lower-case.
"""

SPARK_NOTES = """\
## What a read gives

- **The version** is decided once, when `load` is called, and every task reads that one. A frame shows the
  same rows whenever it is used.
- **Filters** are answered by Lance where its answer is Spark's for every value; the rest by Spark.
  `explain()` shows those that are left. `register` lets Spark ask
  (`spark.sql.python.filterPushdown.enabled`); Spark 4.0 doesn't.
- **Columns**: no release of Spark tells a Python source which columns a query needs. Name them by
  `columns`, or by a schema (`.schema("id long, text string")`), and the others aren't read.
- **Types**: unsigned numbers become the next wider ones (64 bits: `decimal(20,0)`), lists of fixed size
  arrays, dictionaries their values, extension types what they are stored as. Every column may be null.
  Times finer than a microsecond, decimals of more than 38 digits, blobs and bfloat16 are refused by the
  column's name.
- **Partitions** hold neighbouring fragments up to `maxPartitionBytes`.

## What a stream gives

- **Without `startingVersion`** the content at the time of `load` comes first, then each version's rows.
  Where it stands is the text of a cursor in Spark's checkpoint: a batch that is run again reads the same
  rows, and a query on a table or a branch that was made anew ends with an error.
- **A version is never split** over batches; the content at the start is, by fragments.
- **Versions that delete or change rows** end a query that reads inserts, with what to set. Many proposals
  share a version here: with `skipChangeCommits` and `ignoreDeletes` the rows appended beside a delete or an
  update are still read.
- **Changed columns** end a query; started again, it goes on with the table's columns as they are then. A
  row older than a column has null in it. Where a value doesn't fit the column's type as it is then, the query
  ends with an error that names version and column; with `misfits` it goes on.
- `startingVersion`, `endingVersion` and the two times are included, as Delta's are. (`lakefold.changes(uri,
  7, 12)` begins behind version 7.)
- **Triggers**: `availableNow` ends at the version that is the newest at its start; `once` ignores limits.
  Before Spark 4.2 a source isn't told where a batch begins: there the first batch after a restart ignores
  limits, and `availableNow` is one batch.
"""


def spark() -> str:
    """Each option of the source for Spark, where it counts, its meaning and its default."""
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


PAGES = {
    "conflicts.md": conflicts,
    "reference/settings.md": settings,
    "reference/metrics.md": metrics,
    "reference/verbs.md": verbs,
    "reference/spark.md": spark,
}


def main() -> int:
    """Write the pages, or with `--check` compare them. Returns the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page differs")
    check = parser.parse_args().check
    pages = {name: write() for name, write in PAGES.items()}
    stale = [name for name, text in pages.items() if _found(name) != text]
    if check:
        for name in stale:
            print(f"docs/{name} is not what the code says: run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(pages[name], encoding="utf-8")
    return 0


def _found(name: str) -> str:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _exposed(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


if __name__ == "__main__":
    sys.exit(main())
