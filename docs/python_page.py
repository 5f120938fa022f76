"""The page of Python's names: their signatures and docstrings, read from the source."""

from __future__ import annotations

import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import griffe

import lakefold
import lakefold.spark
from docs.markdown import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType, ModuleType

GROUPS: Final = {
    "Tables": ("create", "alter"),
    "Clients that know nothing of Lakefold": ("catalog",),
    "Write": (
        "append",
        "overwrite",
        "upsert",
        "delete",
        "apply_changes",
        "Writer",
        "WriteOptions",
        "BatchReport",
    ),
    "Clauses of a merge": (
        "MatchedUpdate",
        "MatchedDelete",
        "NotMatchedInsert",
        "NotMatchedBySourceUpdate",
        "NotMatchedBySourceDelete",
    ),
    "Read": ("open", "Table", "changes", "diff", "Diff"),
    "Follow": ("tail", "Tail", "Change", "Cursor", "OutcomesTopic", "Pace", "consumers", "Consumer"),
    "Versions by names, and back to one": (
        "tag",
        "branch",
        "promote",
        "PromoteReport",
        "refs",
        "restore",
        "revert",
        "RevertReport",
    ),
    "Find out": ("status", "history", "explain", "redrive"),
    "Maintain": ("compact", "cleanup"),
    "Errors": tuple(sorted(name for name in lakefold.__all__ if name.endswith("Error"))),
}
"""The public names of `lakefold` by what they are for."""
_WIDTH: Final = 100
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
    groups = {group: [(lakefold, name) for name in names] for group, names in GROUPS.items()}
    groups["Spark"] = [(lakefold.spark, name) for name in sorted(lakefold.spark.__all__)]
    parts = [
        f"## {group}\n\n" + "\n".join(_described(home, name) for home, name in names)
        for group, names in groups.items()
    ]
    return page("Python", "docs/python_page.py", _TEXT, "\n".join(parts))


def _described(home: ModuleType, name: str) -> str:
    """Returns the section of a public name of a module."""
    value = getattr(home, name)
    shown = _source_of(value)
    path = f"{home.__name__}.{name}"
    parts = [f"### {path}\n", _code(_signature(shown, path)), _docstring(shown)]
    if isinstance(value, type):
        bases = () if name.endswith("Error") else getattr(value, "__orig_bases__", value.__bases__)
        own = [base for base in bases if getattr(base, "__module__", "").startswith("lakefold")]
        parts.extend(part for each in (*own, value) for part in _members(_source_of(each), name))
    return "\n".join(filter(None, parts))


def _source_of(value: type | FunctionType) -> griffe.Object:
    """Returns what the source says of a class or function."""
    source: griffe.Object = _module(value.__module__)[value.__qualname__]
    return source


@cache
def _module(module: str) -> griffe.Module:
    """Returns what the source of an imported module defines."""
    path = Path(sys.modules[module].__file__ or "")
    return griffe.visit(module, filepath=path, code=path.read_text(encoding="utf-8"))


def _members(shown: griffe.Object, name: str) -> Iterator[str]:
    """Yields the texts of the public attributes and methods that a class defines, in their order."""
    for member in shown.members.values():
        if member.name.startswith("_") or isinstance(member, griffe.Alias) or not member.has_docstring:
            continue
        if isinstance(member, griffe.Attribute):
            yield f"#### `{member.name}: {member.annotation}`\n"
        elif isinstance(member, griffe.Function):
            yield f"#### {name}.{member.name}\n"
            yield _code(_signature(member, member.name))
        yield _docstring(member)


def _signature(shown: griffe.Object, name: str) -> str:
    """Returns how a function or class is called, or what an error is derived from."""
    if isinstance(shown, griffe.Class) and (name.endswith("Error") or not shown.parameters):
        bases = ", ".join(map(str, shown.bases))
        return f"class {name}({bases})" if bases else f"class {name}"
    call = shown.signature(name=name) if isinstance(shown, griffe.Class | griffe.Function) else None
    return textwrap.fill(call or name, _WIDTH, subsequent_indent="    ")


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _docstring(shown: griffe.Object) -> str:
    """Returns a docstring, which is Markdown already."""
    return f"{shown.docstring.value}\n" if shown.docstring else ""
