"""Checks of what documents name: paths, modules, make targets, numbered decisions."""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tests.repository.checks import Source

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"^\.?[\w.*-]+(?:/[\w.*-]+)*/?$")
FILE = re.compile(r"^[\w*-]+\.(?:py|proto|md|toml|lock|json)$")
FOLDER = re.compile(r"`([\w/]+/)`( ○)?")
PARTS = re.compile(r"^\*\*`([\w/]+)/`\*\*[^\n]*$(.*?)(?=^\*\*|^#|\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\|([^|]*)\|", re.MULTILINE)
MODULE = re.compile(r"^((?:lakefold_\w+|tests|benchmarks)(?:\.\w+)+)$")
MAKE = re.compile(r"\bmake ([a-z][a-z-]+)\b")
HEADING = re.compile(r"\A# (\d{4}) · \S")
PROMISE = re.compile(r"^\| \*\*`([a-z-]+)`\*\* .*\| ([^|]+) \|$", re.MULTILINE)
SECTIONS = ("## Why", "## Decision", "## What follows")


def named_paths(document: Source, tracked: Collection[str]) -> Iterator[str]:
    """Yields the paths that the document names and that don't exist.

    A link's target is looked up from the document's own folder. Text in backticks is taken for a path if its
    first part is something at the repository's root, or if it ends like a file of this repository; `*` stands
    for any name. A bare file name and the end of a module's path may be in any folder.
    """
    top = {path.split("/")[0] for path in tracked}
    for target in LINK.findall(document.text):
        path = _resolve(document.pure.parent, target)
        if "://" not in target and not _exists(path, tracked):
            yield f"{document.path}: the link {target} leads nowhere"
    for code in CODE.findall(FENCE.sub("", document.text)):
        if FILE.match(code):
            exists = _ends_one(code, tracked)
        elif "/" in code and PATH.match(code) and code.split("/")[0] in top:
            exists = _exists(code, tracked)
        elif "/" in code and PATH.match(code) and code.endswith(".py"):
            exists = _ends_one(code, tracked)
        else:
            continue
        if not exists:
            yield f"{document.path}: there is no {code}"


def _ends_one(code: str, tracked: Collection[str]) -> bool:
    """Returns whether a tracked path ends with these names of folders and file."""
    if "*" in code:
        return any(PurePosixPath(path).match(code) for path in tracked)
    return any(f"/{path}".endswith(f"/{code}") for path in tracked)


def mapped(document: Source) -> dict[str, bool]:
    """Returns the folders on the map in the document, and whether the map marks each as pure.

    A line that begins with **`table/lakefold_table/`** names a package. The first column of the table below
    it names folders inside of the package.
    """
    folders: dict[str, bool] = {}
    for package, part in PARTS.findall(document.text):
        folders[package] = False
        for names in ROW.findall(part):
            folders |= {f"{package}/{name}".rstrip("/"): bool(mark) for name, mark in FOLDER.findall(names)}
    return folders


def named_modules(document: Source, sources: Collection[Source]) -> Iterator[str]:
    """Yields the dotted names of our packages that are neither a module nor a name in a module."""
    texts = {_dotted(source.pure): source.text for source in sources}
    for code in CODE.findall(document.text):
        if not MODULE.match(code) or code in texts:
            continue
        module, _, name = code.rpartition(".")
        if not re.search(rf"\b{re.escape(name)}\b", texts.get(module, "")):
            yield f"{document.path}: there is no {code}"


def named_targets(document: Source, targets: Collection[str]) -> Iterator[str]:
    """Yields the `make` targets that the document names and the Makefile doesn't have."""
    for code in [*CODE.findall(document.text), *FENCE.findall(document.text)]:
        for target in MAKE.findall(code):
            if target not in targets:
                yield f"{document.path}: there is no `make {target}`"


def cited_promises(document: Source, texts: Mapping[str, str]) -> Iterator[str]:
    """Yields the promises in the document's table that have no test, and the tests that don't cite theirs.

    `texts`: the texts of the tests by their paths.
    """
    for name, cell in PROMISE.findall(document.text):
        tests = CODE.findall(cell)
        if not tests:
            yield f"{document.path}: no test holds the promise {name}"
        for path in tests:
            if name not in texts.get(path, ""):
                yield f"{path} doesn't cite the promise {name} of {document.path}"


def decision_form(document: Source) -> Iterator[str]:
    """Yields the decisions that don't begin with their number, or lack a section."""
    heading = HEADING.match(document.text)
    if not heading or heading[1] != document.pure.name[:4]:
        yield f"{document.path}: begin it with `# {document.pure.name[:4]} · <title>`"
    for section in SECTIONS:
        if f"\n{section}\n" not in document.text:
            yield f"{document.path}: has no section `{section}`"


def decision_numbers(names: Collection[str]) -> Iterator[str]:
    """Yields gaps and duplicates in the numbers of the decisions (0000 is the template)."""
    numbers = sorted(name[:4] for name in names)
    expected = [f"{number:04}" for number in range(len(names))]
    if numbers != expected:
        yield f"decisions are numbered {', '.join(numbers)} instead of {', '.join(expected)}"


# Asked of each module for each document.
@cache
def _dotted(path: PurePosixPath) -> str:
    parts = list(path.with_suffix("").parts)
    first = next((i for i, part in enumerate(parts) if part.startswith("lakefold")), 0)
    return ".".join(part for part in parts[first:] if part != "__init__")


def _resolve(folder: PurePosixPath, target: str) -> str:
    parts: list[str] = []
    for part in (folder / target).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _exists(path: str, tracked: Collection[str]) -> bool:
    wanted = path.rstrip("/")
    pattern = re.compile(re.escape(wanted).replace(r"\*", "[^/]*") + "(/|$)")
    return any(pattern.match(each) for each in tracked)
