"""Writes the pages of the documentation that are generated from the code.

`python -m docs.generate` writes them. With `--check` it writes nothing, and fails if a page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.cookbook_page import cookbook
from docs.debezium_page import debezium_types
from docs.delta_resolutions import RESOLUTIONS
from docs.delta_writer_rules import WRITER_RULES
from docs.markdown import page, table
from docs.python_page import python_page
from docs.spark_pages import spark, spark_types, spark_writes
from lakefold.cli import EXIT_CODES, VERBS
from lakefold.console.settings import PREFIX, Settings
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.states.charts import CHARTS
from lakefold_ingest.spark.batch_metrics import SinkMetrics
from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics
from lakefold_table.delta.conflicts.rules import RULES as DELTA_RULES
from lakefold_table.delta.table_features.features import FEATURES
from lakefold_table.delta.table_features.table_properties import PROPERTIES
from lakefold_table.lance.conflicts import RULES
from lakefold_table.lance.conflicts.rule import ADVICE, RuleEffect
from lakefold_table.lance.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_committer.states.machine import Chart, Named

DOCS = Path(__file__).resolve().parent

DELTA_RESOLUTIONS = """\
## What is resolved

Delta's check also fits a transaction to some changes instead of turning it back. A committer does that for
these, the last three beyond Delta's check."""

VERDICTS = [
    ["`·`", "compatible", "It is committed unchanged, with ids that the table assigns now.", "Nothing."],
    ["`m`", "rebase", "It is adapted to the versions in between, then committed.", "Nothing."],
    ["`c`", "carried", "Its rows are followed to where they are now, then it is committed.", "Nothing."],
    [
        "`r` `R`",
        "retryable",
        "Rejected. Built on the newest version it may pass.",
        ADVICE[RuleEffect.RETRYABLE],
    ],
    ["`x` `X`", "incompatible", "Rejected. What it was built on is gone.", ADVICE[RuleEffect.INCOMPATIBLE]],
]


DELTA_FEATURES = """\
The features of Delta's protocol, and what this release does with a table that has them. "Read" is about
the log: the snapshot of a version is made from it. "Commit" is about proposals and the commits that are made
of them. A feature that is not in this table is refused by its name.

The facts about the format are in [delta.md](../format/delta.md).

## What a proposal must keep to

A proposal that breaks one of these rules is Invalid, and its outcome says which. A table of another client
may break those about protocol and metadata: a proposal may not begin to. A proposal that removes all files
may change what files that stay need, and so may one with the operation `RESTORE` that has read all rows: its
writer has seen that the files which stay were in the version with these metadata."""

DELTA_PROPERTIES = """\
## Properties

A table that a write creates gets the properties that the write gives: options such as
`delta.enableDeletionVectors` of `format("lakefold")`, `--property` of `lakefold append`, `table_properties`
of `lakefold.append`, `lakefold.Writer` and `sink`. The features that they need are added to its protocol, and
no others: without properties a table has none, as one of delta-spark. `delta.feature.NAME` = `supported` adds
a feature that nothing uses yet. `delta.constraints.NAME` is a CHECK constraint. A name that is unknown
here, and a value that a property can't have, are refused before anything is sent. Names that don't begin with
`delta.` are your own; those of [maintenance](../operations/maintain.md) are among them.

If the table exists, it keeps the properties that it has, as with delta-spark: properties of a write are only
checked then ([decision 0098](../decisions/0098-a-write-gives-properties-to-new-tables-only.md)).
`lakefold.alter` and `lakefold alter` change them, and add the features that they need. They refuse a new
CHECK constraint, which all rows would have to meet, and row tracking if there are rows without ids."""

DELTA_CONFLICTS = """\
A proposal for a Delta table is compared with each version after its read version, and with the proposals
that share its version before it. The rules are the steps of Delta's own check. If one applies, the proposal
is Rejected, and the outcome names the version and the paths or names that both touched. Every conflict is
retryable: built again on the newest version, the proposal may pass.

A proposal without a read version is compared with nothing: it only adds files, or creates the table.

`read_files` are paths as in the table's log. A proposal is Invalid that names a file which the table has not
had since its read version: no rule would notice what becomes of the file that is meant.

`read_predicates` are conditions of Delta's SQL. A file counts as read if any of them can be true for a row of
it. That is decided by the file's values of the partition columns, and by its statistics. Understood are
comparisons of a column with a constant, `IN`, `BETWEEN`, `IS NULL`, `<=>`, `AND`, `OR` and `NOT`, for
integers, decimals, texts, booleans, dates and times. Constants may name their type as in Spark: `1L`, `1S`,
`1Y`, `2.5BD`, `DATE '…'`, `TIMESTAMP '…'`, `X'…'` for partition columns of bytes. All else counts as true for
any row, as do numbers with a `D` or an exponent, and conditions on nested columns and on tables with mapped
column names.

The isolation level is that of the proposal, else the table's `delta.isolationLevel`, else `serializable`.
With `serializable` the table is as if each proposal had been made on the version before its own. With
`write-serializable` that is so for rows that are written, but a proposal may have read the table before
rows were added that its version comes after. A version of several proposals has the strictest level of
them. A proposal is judged by what it says that it has read. [What holds for the operations of
Lakefold](../concepts.md#isolation) depends on the level of the table.

Proposals that only add and remove files share a version. One that changes the protocol, the metadata or a
domain is alone in its version, and so is one whose `commitInfo` has a text as `userMetadata`, which its
commit records. One with `cdc` actions shares its version only with others that have some.
One that removes a file which another adds is in the next version.

Changes of the metadata are compatible if a committer has made them, and they only concern the name, the
description, properties of the user's own and properties on which no file depends (such as
`delta.checkpointInterval`), enable row tracking, give wider types to columns at the top (also in their
arrays and maps), or add columns that may be null and have no default or other metadata. The commit says
in `lakefoldChange` of its commitInfo what it changed, and what was there before. Two proposals that
change the metadata are merged if the first change is compatible and makes no type wider, and if they
change different properties and columns, or change one in the same way: two writers that add a column of
one name and type both pass. Row tracking counts as a conflict for a proposal that writes rows of other
files again, since these keep their ids from then on.

## Compared with delta-spark

`tests/delta_logs/verdicts.json` has delta-spark 4.3.1's verdicts on pairs of transactions that begin at one
version, `races.json` those on pairs of whole operations (appends, deletions, updates, merges, overwrites,
compactions, RESTORE, and changes of columns, properties, constraints, features, row tracking and clustering
columns; on a table with partitions and on a clustered one, whose OPTIMIZE this delta-spark can't do), with
both isolation levels. `make test` compares our answers with all of them, and has some judged again. We turn
back two more kinds: a change of the protocol conflicts with everything that was built before, since a
writer that did not know it may not have kept to it; and a removal of files conflicts with a condition on
other columns than those of the partition, since nothing in its action shows which rows the files had. Of
these pairs we commit both, and delta-spark the first alone: deletions of different rows of one file; an
append beside a condition that the statistics of its file can't meet; a compatible change of the metadata
beside an append, a removal or a change of the protocol; two such changes of different properties and
columns; a RESTORE of a table without partitions that says that it has read nothing. The differences are
listed with their reasons in `pairs.py` and `races.py` beside these files.

`tests/delta_logs/recorded/` has the commits of delta-spark's operations on their own. `make test` proposes
each for a copy of the table before it, and compares the version that a committer makes with delta-spark's,
action by action. What a committer refuses is listed with the reason in `tests/delta_logs/operations.py`.

## Rows of one file

A proposal that deletes rows of a file by a deletion vector names these rows in `affected_rows`, by the path
of the file. Deleting other rows of the file meanwhile is no conflict then: the committer merges the
deletion vectors. The merged vector is in its action if it has at most 1,024 bytes, else in a file of the
table. Nothing else that the proposal has read in a file of which others only delete rows counts, unless it
sets `read_whole_table` or names the rows in `read_rows`. A row that both delete is a conflict, and so are
rows that came back by a RESTORE.

`read_rows` are rows that the proposal has read and keeps, by the path of their file. It is a conflict if one
of them was deleted or changed, wherever a compaction has put it. With `names_read_rows` the rows in
`affected_rows` and `read_rows` and the files in `read_files` are all that the proposal has read: what others
remove is judged by these alone, whatever the level, and `read_predicates` are about rows that they add.

A compaction (`dataChange` false) that keeps the order of the rows says so in a tag of each file that it
adds, `lakefold.rowsOf`. It is a JSON array with an array for each part of the file, in the order of the
rows: the path of a removed file, how many rows are stored in that file, the index of the first row that the
part has, and the number of its rows. Index and number are among the rows that were not deleted when the
compaction read the file. A proposal with `affected_rows` that was built before the compaction is committed
on the new files. Rows that others delete while the compaction runs are deleted from its new files; the
committer then adds a fifth member to the part: the deletion vector that the file had before, or null.
Without the tag both are conflicts. A merge or a delete that writes the other rows of a file again says the
same, for readers and reverts: its fifth member is the vector with which the rows that it left out would
have been deleted. A tag of more than 16 KiB is left out."""


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
- **A column was replaced by one of the same name.** pylance does so if it casts a column. Rows that were
  written before have their values in the replaced column, and would be null in the new one. So an
  Append with such rows is retryable.
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
        "table/lakefold_table/lance/conflicts/rules.py",
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
    signs_of = {
        RuleEffect.REBASE: "m",
        RuleEffect.CARRIED: "c",
        RuleEffect.RETRYABLE: "r",
        RuleEffect.INCOMPATIBLE: "x",
    }
    rules = RULES[ours].get(theirs, ())
    signs = {signs_of[rule.effect].upper() if rule.always else signs_of[rule.effect] for rule in rules}
    return "".join(sorted(signs, key=lambda sign: (sign.lower(), sign))) or "·"


def _reasons(ours: Kind) -> str:
    """Returns the rules of one row of the matrix; those with the same reason share a line."""
    reasons: dict[tuple[RuleEffect, str, str, str], list[str]] = {}
    for theirs, rules in RULES[ours].items():
        for rule in rules:
            if theirs is not Kind.UNKNOWN:
                reason = rule.effect, rule.when, rule.carries, rule.to_do
                reasons.setdefault(reason, []).append(f"`{theirs}`")
    if not reasons:
        return "It conflicts with nothing.\n"
    rows = [
        [
            ", ".join(names),
            effect.name.lower(),
            _sentence(when),
            _sentence(carries) if carries else "",
            _sentence(to_do),
        ]
        for (effect, when, carries, to_do), names in sorted(reasons.items(), key=lambda item: -item[0][0])
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
        "and names state and event. Each transition is taken by the simulation, or by a scenario that\n"
        "sets up what a seed rarely meets (`tests/simulation/test_transitions.py`).",
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
    """Returns the page of all metrics, each with its type and meaning."""
    committers, maintainers, sinks = (
        table(
            ["metric", "type", "meaning"],
            [
                [f"`{_exposed(family.name, family.type)}`", family.type, family.documentation]
                for family in registry.collect()
            ],
        )
        for registry in (Metrics().registry, MaintenanceMetrics().registry, SinkMetrics().registry)
    )
    return page(
        "Metrics of the committer",
        "committer/lakefold_committer/observability/metrics.py",
        "Served in Prometheus' text format at `/metrics`, beside `/livez` and `/readyz`.",
        f"{committers}\n## Metrics of the maintainer\n\n`lakefold maintain` serves them in the same way, "
        f"each with the label `table`.\n\n{maintainers}\n## Metrics of Spark's sinks\n\n"
        "`lakefold.spark.sink(…, metrics_port=…)` and `lakefold.spark.register(spark, metrics_port=…)` have "
        f"the driver serve them, each with the labels `table` and `app_id`.\n\n{sinks}",
    )


def verbs() -> str:
    """Returns the page of verbs, each with what it does, and of exit codes."""
    rows = [[f"`lakefold {name}`", verb.summary] for name, verb in VERBS.items()]
    return page(
        "Verbs of the command line",
        "lakefold/cli.py",
        "Each verb has `--help`. With `--json` it prints one JSON document, or one line for each item of a\n"
        "stream. Logs go to stderr. A verb that opens a table says which format the table has: on stderr,\n"
        "or with `--json` as `format`.",
        table(["verb", "what it does"], rows)
        + "\n"
        + table(["exit code", "meaning"], [[str(code), text] for code, text in EXIT_CODES.items()]),
    )


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
    rules = []
    for rule, before in zip(WRITER_RULES, (None, *WRITER_RULES), strict=False):
        section = "" if before is not None and before.section == rule.section else rule.section
        says = f"… {rule.says} …" if rule.says else ""
        rules.append([section, rule.requires, says, f"`{rule.tests}`"])
    required = table(["section", "required", "the outcome says", "test"], rules)
    properties = [
        [f"`{each.name}`", each.values, each.effect or "kept for other clients"] for each in PROPERTIES
    ]
    described = f"{DELTA_PROPERTIES}\n\n{table(['property', 'value', 'here'], properties)}"
    body = f"{required}\n## The features\n\n{table(head, rows)}\n{described}"
    return page("Features of Delta tables", source, DELTA_FEATURES, body)


def delta_conflicts() -> str:
    """Returns the page of the conflicts between proposals for Delta tables."""
    rows = [[rule.name, f"{rule.when[0].upper()}{rule.when[1:]}.", rule.evidence] for rule in DELTA_RULES]
    source = "table/lakefold_table/delta/conflicts/rules.py"
    body = table(["step", "the version before conflicts if", "the outcome names"], rows)
    resolved = [
        [each.step, f"{each.how[0].upper()}{each.how[1:]}.", f"`{each.test}`"] for each in RESOLUTIONS
    ]
    body += f"\n{DELTA_RESOLUTIONS}\n\n{table(['changed meanwhile', 'resolved by', 'test'], resolved)}"
    return page("Conflicts in Delta tables", source, DELTA_CONFLICTS, body)


PAGES = {
    "conflicts.md": conflicts,
    "cookbook.md": cookbook,
    "reference/python.md": python_page,
    "states.md": states,
    "reference/debezium-types.md": debezium_types,
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
