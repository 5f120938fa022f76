"""The tests that a change can reach, for `make test SINCE=main`: what they import leads to a changed file.

A file leads to the modules that it imports, or names in a text, as the command line does with its verbs and a
test with the program of another process, and to files that it names. What no file names, such as data that is
found by listing a folder, is not seen: before a change is submitted, `make test` runs all.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from tests.repository import tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tests.repository.checks import Source

ALWAYS: Final = "tests/repository"
"""Checks of all files."""
OF_ALL: Final = re.compile(r"pyproject\.toml|.*\.lock|Makefile|tests/conftest\.py|tests/distribution\.py")
"""Files that every test depends on."""
IMPORTED_FROM: Final = frozenset({"protos", "table", "log", "ingest", "committer", "reader", "maintenance"})
"""The folders that Python imports packages from, beside the repository itself."""
DOTTED: Final = re.compile(r"\b[A-Za-z_]\w*(?:\.\w+)+\b|\blakefold\b")
FILE: Final = re.compile(r"\b[\w-]+\.(?:md|js|mjs|json|yaml|txt|proto|toml|css|html|sh)\b")


def reached(changed: Collection[str], sources: Collection[Source]) -> list[str]:
    """Returns the paths of the tests, among these sources, that the changed files can reach, in order."""
    if any(OF_ALL.fullmatch(path) for path in changed):
        return ["tests"]
    used_by = _users(sources)
    reachable, left = set[str](), list(changed)
    while left:
        path = left.pop()
        if path not in reachable:
            reachable.add(path)
            left += used_by.get(path, ())
    return [ALWAYS, *sorted(path for path in reachable if _is_test(path))]


def _is_test(path: str) -> bool:
    pure = PurePosixPath(path)
    return pure.parts[0] == "tests" and pure.name.startswith("test_") and not path.startswith(f"{ALWAYS}/")


def _users(sources: Collection[Source]) -> Mapping[str, Collection[str]]:
    """Returns the sources that use each file, by its path."""
    modules = {name_of(source.path): source.path for source in sources if source.path.endswith(".py")}
    by_file_name: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        by_file_name[source.pure.name].add(source.path)
    used_by: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        if not source.path.endswith(".py"):
            continue
        for name in (*_imported(source), *DOTTED.findall(source.text)):
            for used in _modules_of(name, modules):
                used_by[used].add(source.path)
        for file in FILE.findall(source.text):
            for used in by_file_name.get(file, ()):
                used_by[used].add(source.path)
    return used_by


def name_of(path: str) -> str:
    """Returns the name under which the module at this path is imported."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    parts = parts[parts[0] in IMPORTED_FROM :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _modules_of(name: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Yields the paths of the module that is named, or that has what is named, and of its packages."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = modules.get(".".join(parts[:count]))
        if path is not None:
            yield path


def _changed_since(commit: str) -> list[str]:
    """Returns the files that differ from the commit at which this branch left another one, also new ones."""
    begin = _git("merge-base", commit, "HEAD").strip()
    return [
        *_git("diff", "--name-only", begin).split("\n"),
        *_git("ls-files", "--others", "--exclude-standard").split("\n"),
    ]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=tree.ROOT, check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    paths = reached([path for path in _changed_since(sys.argv[1]) if path], tree.texts())
    sys.stdout.write(" ".join(paths))
