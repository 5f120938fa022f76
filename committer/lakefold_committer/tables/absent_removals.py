"""Versions of other clients that remove files which were not in the table.

A client that compacts a table without a look at what others have committed meanwhile removes files that are
gone, and adds their rows a second time. delta-rs does so, also beside its own compactions. Such a version is
valid, and nobody but its client knows what was meant: it is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG = structlog.get_logger("lakefold.committer")
HINT: Final = (
    "its rows may be in the table twice: compare them with the version before, and restore that if so; do "
    "not let that client compact this table beside others"
)


@dataclass(frozen=True, slots=True)
class AbsentRemovals:
    """A version of another client that removes files which were not in the table, and how many."""

    table: str
    version: int
    files: int


def absent_removals(table: str, version: int, paths: Sequence[str]) -> list[AbsentRemovals]:
    """Returns what to report of a version that removes absent files, which is logged; nothing if none is."""
    if not paths:
        return []
    message = "another client removed files that were not in the table"
    LOG.warning(message, table=table, version=version, files=len(paths), first=paths[0], hint=HINT)
    return [AbsentRemovals(table, version, len(paths))]
