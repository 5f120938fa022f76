"""The page of Python's names, whose texts the site takes from the docstrings."""

from __future__ import annotations

from typing import Final

import lakefold
import lakefold.spark
from docs.markdown import page

GROUPS: Final = {
    "Write": ("append", "upsert", "delete", "apply_changes", "Writer", "WriteOptions", "BatchReport"),
    "Clauses of a merge": (
        "MatchedUpdate",
        "MatchedDelete",
        "NotMatchedInsert",
        "NotMatchedBySourceUpdate",
        "NotMatchedBySourceDelete",
    ),
    "Read": ("open", "Table", "changes"),
    "Follow": ("tail", "Tail", "Change", "Cursor", "OutcomesTopic", "Pace", "consumers", "Consumer"),
    "Maintain": ("compact",),
    "Errors": tuple(sorted(name for name in lakefold.__all__ if name.endswith("Error"))),
}
"""The public names of `lakefold` by what they are for."""
_TEXT: Final = """\
The public names of `lakefold` and of `lakefold.spark`; everything else may change. `lakefold.__version__` is
the installed release. A name is loaded when it is first used, so `import lakefold` is fast, and readers need
neither Kafka nor Spark."""


def python_page() -> str:
    """Returns the page. Raises `ValueError` if a public name is left out."""
    named = {name for names in GROUPS.values() for name in names}
    if named != set(lakefold.__all__):
        message = (
            f"GROUPS in docs/python_page.py and lakefold.__all__ differ: {named ^ set(lakefold.__all__)}"
        )
        raise ValueError(message)
    groups = {**{group: [f"lakefold.{name}" for name in names] for group, names in GROUPS.items()}}
    groups["Spark"] = [f"lakefold.spark.{name}" for name in sorted(lakefold.spark.__all__)]
    parts = [
        f"## {group}\n\n" + "\n".join(f"::: {name}\n" for name in names) for group, names in groups.items()
    ]
    return page("Python", "docs/python_page.py", _TEXT, "\n".join(parts))
