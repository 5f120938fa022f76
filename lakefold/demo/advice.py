"""Commands that a user may try after the demo; they work as they are printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.demo.folder import Folder


@dataclass(frozen=True, slots=True)
class Advice:
    """Commands for a shell in the current folder, and lines for a Python prompt in that folder."""

    python: str
    table: Sequence[str]
    prompt: Sequence[str]
    log: Sequence[str]


def advice_for(folder: Folder) -> Advice:
    """Returns the commands for the table, broker and logs of the run in `folder`."""
    lakefold, python = _lakefold(), _program("python")
    table, root, broker = (_short(path) for path in (folder.table, folder.root, folder.broker))
    quoted = repr(_short_text(folder.table))
    module, count = folder.table_format.python
    return Advice(
        python=python,
        table=(
            f"{lakefold} log {table}",
            f"{lakefold} show {table} --version 2",
            f"{lakefold} tail {table} --from 0",
        ),
        prompt=(
            f"import lakefold, {module}",
            f"table = lakefold.open({quoted})",
            'table.to_arrow(columns=["time_hour", "carrier", "dest", "dep_delay"], filter="dep_delay > 600")',
            f"next(lakefold.tail({quoted}, start=1)).inserted()",
            count.format(quoted),
        ),
        log=(
            f"{lakefold} up --dir {broker}",
            f"{lakefold} committer --root {root} --http-port 0 --until-caught-up",
            f"{lakefold} down",
        ),
    )


def _lakefold() -> str:
    """Returns how to call `lakefold` from the current folder, even if its script was not installed."""
    script = Path(sys.executable).with_name("lakefold")
    return _program("lakefold") if script.exists() else f"{_program('python')} -m lakefold"


def _program(name: str) -> str:
    """Returns how to call a program of this environment: by its name if a shell finds the same program."""
    path = Path(sys.executable).with_name(name)
    on_path = shutil.which(name)
    return name if on_path is not None and Path(on_path).absolute() == path else _short(path)


def _short(path: Path) -> str:
    return shlex.quote(_short_text(path))


def _short_text(path: Path) -> str:
    """Returns a path relative to the current folder if it is inside it, else the absolute path."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else os.fspath(path)
