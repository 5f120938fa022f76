"""The page of whole programs: those of `examples/`, with what each is for."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from docs.markdown import page

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
RECIPES: Final = {
    "Streams": {
        "kafka_json": "JSON messages of a Kafka topic become rows (Spark)",
        "debezium_cdc": "A table like its source database, by change events (Spark)",
        "new_files": "Files that arrive in a folder become rows (Spark)",
    },
    "Services": {
        "service": "A service whose requests share files and versions",
        "backfill": "Old rows at a limited rate beside a live stream",
        "publish_after_checks": "Rows are written to a branch, checked, and published at once",
    },
    "Queries": {
        "dashboard": "A dashboard by duckdb while rows stream in",
        "vector_search": "The nearest vector, of rows that were written a second ago",
    },
    "Tables": {"wider_column": "A column that is too small gets a wider type"},
    "Obligations": {"forget_a_person": "A person's rows are deleted for good"},
}
"""The headings of the page, and below each its programs in `examples/` with their titles."""
_TEXT: Final = """\
Programs of one page, which CI runs as they are printed here. Begin in an empty folder with `lakefold up`,
and with `lakefold committer` in a terminal of its own; with brokers of yours, pass their addresses as
`bootstrap_servers`.

The notebook [`measurements.ipynb`](../examples/measurements.ipynb) has plots of throughput, latency,
fragments and lag while a service writes."""


def cookbook() -> str:
    """Returns the page. Raises `ValueError` if an example is left out."""
    named = {name for recipes in RECIPES.values() for name in recipes}
    actual = {path.stem for path in EXAMPLES.glob("*.py")}
    if named != actual:
        message = f"RECIPES in docs/cookbook_page.py and examples/ differ: {sorted(named ^ actual)}"
        raise ValueError(message)
    parts = []
    for heading, recipes in RECIPES.items():
        parts.append(f"## {heading}\n")
        for name, title in recipes.items():
            text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
            purpose = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
            parts.append(f"### {title}\n\n{purpose}\n\n```python\n{text}```\n")
    return page("Cookbook", "examples/", _TEXT, "\n".join(parts))
