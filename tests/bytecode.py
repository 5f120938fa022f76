"""Compiles all modules, so that no two test processes compile the same one.

`make test` starts several processes at once, each of which imports most tests. pytest compiles a module of
tests in a manner of its own, for what it reports of an `assert`, and keeps that beside Python's bytecode. To
have it collect the tests does the same, but also imports the modules and makes an item of each test.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from _pytest.assertion import rewrite

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = (
    *("lakefold", "protos", "table", "log", "ingest", "committer", "reader", "maintenance"),
    *("benchmarks", "deploy", "docs", "examples", "tests"),
)


def compile_all(sources: Iterable[Path], config: pytest.Config) -> bool:
    """Compiles what has changed of these modules. Returns False if one has an error, which it prints."""
    return False not in [_compiled(source, config) for source in sources]


def _compiled(source: Path, config: pytest.Config) -> bool:
    if not source.match("test_*.py") and source.name != "conftest.py":
        return bool(compileall.compile_file(source, quiet=1))
    folder = rewrite.get_cache_dir(source)
    compiled = folder / f"{source.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(source, compiled) is not None:
        return True
    try:
        digest, code = rewrite._rewrite_test(source, config)
    except SyntaxError as error:
        print(f"{source}:{error.lineno}: {error.msg}", file=sys.stderr)  # noqa: T201 - a program
        return False
    folder.mkdir(exist_ok=True)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, compiled)
    return True


if __name__ == "__main__":
    modules = [source for folder in FOLDERS for source in (ROOT / folder).rglob("*.py")]
    sys.exit(not compile_all(modules, pytest.Config.fromdictargs({}, [])))
