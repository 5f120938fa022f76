"""The commits of a Delta table as a reader reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.table_features.protocol_check import check_readable
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.marks.record import TABLE_ID, is_own
from lakefold_table.roots import below

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from lakefold_table.delta.state import DeltaState
    from lakefold_table.format import VersionSummary

FORMAT = DeltaFormat()


class NotBuiltError(InvalidError):
    """What was requested is not built for tables of this format yet."""


@dataclass(frozen=True, slots=True)
class CommitContent:
    """What a version's commit holds beyond the summary (`VersionSummary.content`)."""

    actions: tuple[Action, ...]


def not_built(what: str, where: str = "") -> NotBuiltError:
    """Returns the error for what this release can't do with Delta tables."""
    hint = (
        "`lakefold show`, `log` and `lakefold.open(...).to_arrow()` read them; for more use a client of Delta"
    )
    return NotBuiltError(f"{what} is not built for Delta tables", where=where, hint=hint)


def read_summary(source: Source, version: int) -> VersionSummary | None:
    """Returns what the commit of a version says. Returns None if it does not exist. Raises `DamagedError`."""
    path = source.versions.path(version)
    requested_at = time.monotonic()
    try:
        data = source.storage.get(path)
    except FileNotFoundError:
        return None
    summary = FORMAT.summarize(path, data, source.uri)
    own = is_own(summary.properties, version)
    return replace(
        summary,
        table_id=summary.properties.get(TABLE_ID, "") if own else "",
        branch="",
        own=own,
        content=CommitContent(tuple(parse_actions(data, below(source.uri, path)))),
        size=len(data),
        requested_at=requested_at,
    )


def read_state(source: Source, version: int) -> tuple[DeltaState, DeltaSnapshot]:
    """Returns a version with its files. Raises `VersionExpiredError`, `DamagedError`.

    Raises `InvalidError` if the table needs features that this release can't read.
    """
    path, data = source.versions.path(version), source.versions.read(version)
    files: dict[str, bytes | None] = {}
    state = FORMAT.decode(path, data, source.uri, files)
    while state.missing_files:
        files.update({name: _content(source, name) for name in state.missing_files})
        state = FORMAT.decode(path, data, source.uri, files)
    if state.snapshot is None:
        message = f"commits that version {version} needs are gone, and no checkpoint has them"
        raise DamagedError(message, where=below(source.uri, path))
    check_readable(state.snapshot.protocol, source.uri)
    return state, state.snapshot


def _content(source: Source, path: str) -> bytes | None:
    try:
        return source.storage.get(path)
    except FileNotFoundError:
        return None
