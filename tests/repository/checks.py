"""What this repository asks of its own files, as functions from a file to complaints.

Each check takes a `Source` and yields sentences that say what is wrong, so that `test_checks.py` can show it
bite on a broken sample and `test_repository.py` can hold all of them against the tree.
"""

from __future__ import annotations

import ast
import gc
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

MODULE_LINES = 600
LONE_LINES = 60
SAYING_NOTHING = {
    *("told", "found", "place", "there", "one", "way", "deed"),
    *("places", "ones", "ways", "deeds"),
}
FUNCTION_LINES = 70
NAMELESS = {"util", "utils", "helper", "helpers", "common", "misc", "stuff"}
# The core does no IO and gives the same bytes in every process, where hash() of a text differs.
IMPURE_BUILTINS = {"open", "print", "input", "hash", "id", "exec", "eval"}

# Written with a class of a single letter, so that this file passes its own check.
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:[h]ome|[r]oot|[U]sers|[w]ork|[o]pt|[t]mp)/\w")
REGISTRY_HOST = re.compile(
    r"[r]epo1?\.maven|[p]ypi\.org|[p]ythonhosted\.org|[n]pmjs\.|[c]rates\.io|[p]roxy\.golang"
)
BARE_NOQA = re.compile(r"# no[q]a(?::\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?\s*$", re.MULTILINE)
ASKING = re.compile(r"all[_-]faults")
BREAK = re.compile(r"\n[ \t]*(?:#:?[ \t]+|>[ \t]+)?")


@dataclass(frozen=True)
class Source:
    """A tracked file: its path from the repository's root, and its text."""

    path: str
    text: str

    @cached_property
    def pure(self) -> PurePosixPath:
        """The path, in parts."""
        return PurePosixPath(self.path)

    @cached_property
    def tree(self) -> ast.Module:
        """The module's syntax tree (Python files only)."""
        return _parsed(self.text)

    @cached_property
    def joined(self) -> str:
        """The text as one line. A sentence continues in the next line, in a comment after its sign."""
        return BREAK.sub(" ", self.text)

    def line(self, offset: int) -> int:
        """Returns the number of the line at this offset of the text."""
        return self.text.count("\n", 0, offset) + 1


@cache
def _parsed(text: str) -> ast.Module:
    # The trees of all modules are kept: to visit them repeatedly takes longer than to parse them.
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.enable()


def module_size(source: Source) -> Iterator[str]:
    """Yields the modules that are too long."""
    lines = source.text.count("\n")
    if lines > MODULE_LINES:
        yield f"{source.path} has {lines} lines, at most {MODULE_LINES}: split it by meaning"


def function_size(source: Source) -> Iterator[str]:
    """Yields the functions that are too long."""
    if source.text.count("\n") <= FUNCTION_LINES:
        return
    for node in _statements(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES:
            yield f"{source.path}:{node.lineno} {node.name} has {lines} lines, at most {FUNCTION_LINES}"


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yields all statements below a node. It visits no expression, which most of a syntax tree is."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


def module_docstring(source: Source) -> Iterator[str]:
    """Yields the modules without a docstring at their beginning."""
    # To parse a module takes longer than to look at its first characters.
    if not source.text.startswith('"""') and not ast.get_docstring(source.tree):
        yield f"{source.path} has no docstring at its beginning: say there why the module exists"


def telling_name(source: Source) -> Iterator[str]:
    """Yields the modules and folders whose names say nothing."""
    for part in (*source.pure.parent.parts, source.pure.stem):
        if part.removeprefix("test_") in NAMELESS:
            yield f"{source.path}: name the module or folder after what is in it instead of `{part}`"


def finished(source: Source) -> Iterator[str]:
    """Yields the lines that leave work for later."""
    for match in UNFINISHED.finditer(source.text):
        yield f"{source.path}:{source.line(match.start())} {match[0]}: do it, or make it an issue"


def no_machine_path(source: Source) -> Iterator[str]:
    """Yields the lines with a path of a particular machine."""
    for match in MACHINE_PATH.finditer(source.text):
        yield f"{source.path}:{source.line(match.start())} a path of one machine: {match[0]}…"


def no_registry_host(source: Source) -> Iterator[str]:
    """Yields the lines with the host of a package registry: the user's settings decide."""
    for match in REGISTRY_HOST.finditer(source.text):
        yield f"{source.path}:{source.line(match.start())} names the host of a package registry: {match[0]}…"


def reasoned_exceptions(source: Source) -> Iterator[str]:
    """Yields the inline exceptions to a linter that have no reason beside them."""
    for match in BARE_NOQA.finditer(source.text):
        yield f"{source.path}:{source.line(match.start())} write the reason after `{match[0].strip()}`"


def no_sleep(source: Source) -> Iterator[str]:
    """Yields where a test sleeps instead of waiting for a condition."""
    for node in ast.walk(source.tree) if "sleep" in source.text else ():
        if not isinstance(node, ast.Attribute | ast.ImportFrom):
            continue
        called = isinstance(node, ast.Attribute) and node.attr == "sleep" and _names(node.value, "time")
        taken = isinstance(node, ast.ImportFrom) and node.module == "time" and _takes(node, "sleep")
        if called or taken:
            yield f"{source.path}:{node.lineno} sleeps: wait for a condition with tests.waiting.until"


def shared_class_names(sources: Iterable[Source]) -> Iterator[str]:
    """Yields the names that several public classes have."""
    modules: dict[str, list[str]] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(source.path)
    for name, paths in sorted(modules.items()):
        if len(paths) > 1:
            yield f"{name} is a class in {' and in '.join(paths)}: give one of them another name"


def lone_modules(sources: Iterable[Source]) -> Iterator[str]:
    """Yields the modules of a few lines that a single other module imports: they are parts of that one.

    `sources`: all that import such modules, with paths below the folders that Python imports from.
    """
    importers: dict[str, set[str]] = {}
    sources = list(sources)
    for source in sources:
        for node in _statements(source.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers.setdefault(name, set()).add(source.path)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importers.setdefault(alias.name, set()).add(source.path)
    for source in sources:
        name = ".".join(source.pure.with_suffix("").parts)
        lines, users = len(source.text.splitlines()), importers.get(name, set())
        if lines < LONE_LINES and len(users) < 2 and not source.pure.stem.startswith("__"):
            user = next(iter(users), "nobody")
            yield f"{name} has {lines} lines and is imported by {user}: join it to that"


def unlisted_samples(sources: Iterable[Source], listed: Container[str]) -> Iterator[str]:
    """Yields the tests of which `make test` runs a sample, and no target of make the whole.

    `listed`: the files that `make test-faults` runs beside `tests/faults`.
    """
    for source in sources:
        is_test = source.pure.name.startswith("test_") and not source.path.startswith("tests/faults/")
        asks = is_test and ASKING.search(source.text) and any(map(_asks_for_all, ast.walk(source.tree)))
        if asks and source.path not in listed:
            yield f"{source.path} asks for `all_faults`: add it to EACH_POINT or STORMS in the Makefile"


def nameless_locals(source: Source) -> Iterator[str]:
    """Yields where a name is bound that says nothing of what it holds."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                pass
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case _:
                continue
        if name.strip("_") in SAYING_NOTHING:
            yield f"{source.path}:{node.lineno} `{name}`: name it by the noun of its field"


def pure_builtins(source: Source) -> Iterator[str]:
    """Yields where the core calls a builtin that does IO or differs from process to process.

    The linter's list of banned names (`ruff-core.toml`) can't name builtins; this check is its other half.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
            yield f"{source.path}:{node.lineno} calls {node.func.id}() in the pure core"


def _asks_for_all(node: ast.AST) -> bool:
    match node:
        case ast.arg(arg=name) | ast.Name(id=name):
            return name == "all_faults"
        case ast.Constant(value=str(text)):
            return text == "--all-faults"
    return False


def _names(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _takes(node: ast.ImportFrom, name: str) -> bool:
    return any(alias.name == name for alias in node.names)
