"""The files of this repository as git sees them: tracked, or new and not ignored."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from tests.repository.checks import Source

ROOT = Path(__file__).parents[2]
GENERATED = ("_pb2.py", "_pb2.pyi")
# Files that other tools write, or that others have written.
FOREIGN = {"LICENSE", "requirements.lock", "requirements-demo.lock", "lakefold/web/assets/uPlot.iife.min.js"}


@cache
def paths() -> tuple[str, ...]:
    """Every file of the repository, as a path from its root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(sorted(path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()))


@cache
def texts() -> tuple[Source, ...]:
    """Every text file that people write here."""
    return tuple(Source(path, text) for path in paths() if (text := _text(path)) is not None)


def modules() -> list[Source]:
    """Every Python module that people write here."""
    return [source for source in texts() if source.path.endswith(".py")]


def documents() -> list[Source]:
    """Every Markdown document, the change log aside: it speaks of what was."""
    return [source for source in texts() if source.path.endswith(".md") and source.path != "CHANGELOG.md"]


def source_at(path: str) -> Source:
    """The file at `path`."""
    return Source(path, (ROOT / path).read_text(encoding="utf-8"))


def _text(path: str) -> str | None:
    if path.endswith(GENERATED) or path in FOREIGN:
        return None
    data = (ROOT / path).read_bytes()
    return None if b"\0" in data else data.decode("utf-8", "replace")
