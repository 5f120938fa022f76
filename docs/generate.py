"""Writes the pages of the documents that say what the code says, from the code: they can't say anything else.

`python docs/generate.py` writes them; with `--check` it writes nothing and fails where a page differs from
what would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.cli import VERBS
from lakefold.settings import PREFIX, Settings
from lakefold_committer.metrics import Metrics
from lakefold_table.lance.conflicts import RULES
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


def conflicts() -> str:
    """Which operation can't stand beside which."""
    names = {kind: f"`{kind}`" for kind in Kind} | {Kind.UNKNOWN: "a version without a transaction"}

    def cell(ours: Kind, theirs: Kind) -> str:
        rules = RULES[ours].get(theirs, ())
        return "; ".join(f"{rule.severity.name.lower()}: {rule.when}" for rule in rules) or "compatible"

    rows = [[name, *(cell(kind, other) for kind in RULES)] for other, name in names.items()]
    return page(
        "Which operations can stand beside which",
        "table/lakefold_table/lance/conflicts/matrix.py",
        "A transaction built on version R and folded on version V is held against everything in (R, V].\n"
        "A column is the operation being folded, a row what came in between. *Compatible*: it is rebased\n"
        "and committed. *Retryable*: Rejected; built again on the newest version it may pass.\n"
        "*Incompatible*: Rejected; it may mean something else by now. An operation without a column isn't\n"
        "folded by this release and is answered Invalid; an Overwrite is folded where it creates the table.",
        table(["in between", *(f"`{kind}`" for kind in RULES)], rows),
    )


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
        "lakefold/settings.py",
        "A setting comes from a flag (`--group-max-wait`), else from its environment variable, else from\n"
        "the TOML file that `--config` names, else it has its default. `lakefold committer --print-config`\n"
        "shows what is in force.",
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
        "committer/lakefold_committer/metrics.py",
        "Served in Prometheus' text format at `/metrics`, beside `/livez` and `/readyz`.",
        table(["metric", "type", "meaning"], rows),
    )


def verbs() -> str:
    """Each verb of the command line with what it does."""
    rows = [[f"`lakefold {name}`", verb.summary] for name, verb in VERBS.items() if verb.built]
    return page(
        "Verbs of the command line",
        "lakefold/cli.py",
        "Each has `--help`; each prints one JSON document (streams: a line each) with `--json`, and logs to\n"
        "stderr. Exit codes: 0 done, 2 wrong usage, 3 refused, 4 damaged data, 5 try again.",
        table(["verb", "what it does"], rows),
    )


PAGES = {
    "conflicts.md": conflicts,
    "reference/settings.md": settings,
    "reference/metrics.md": metrics,
    "reference/verbs.md": verbs,
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
