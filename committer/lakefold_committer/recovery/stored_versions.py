"""Reads stored versions: the whole state, a summary of what they did, and a committer's own properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError, RetryError
from lakefold_table.marks.marks import PREFIX, Marks, decode_marks
from lakefold_table.marks.record import PARENT, is_own
from lakefold_table.storage.base import read_into
from lakefold_table.versions.heads import read_head
from lakefold_table.versions.succession import Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.format import AnyFormat, State, VersionHead, VersionSummary
    from lakefold_table.versions.versions import Versions


def read_state(table_format: AnyFormat, versions: Versions, version: int, like: State | None = None) -> State:
    """Returns the whole state of a version. `like`: as of `Format.decode`."""
    path, data, uri = versions.path(version), versions.read(version), versions.storage.uri
    files: dict[str, bytes | None] = {}
    while True:
        state: State = table_format.decode(path, data, uri, files, like)
        if not _read_missing(versions, files, state.missing_files):
            return state


def read_summary(table_format: AnyFormat, versions: Versions, version: int) -> VersionSummary:
    """Returns the summary of what a version did."""
    path, data, uri = versions.path(version), versions.read(version), versions.storage.uri
    files: dict[str, bytes | None] = {}
    while True:
        summary = table_format.summarize(path, data, uri, files)
        if not _read_missing(versions, files, summary.missing_files):
            return summary


def _read_missing(versions: Versions, files: dict[str, bytes | None], missing: Iterable[str]) -> bool:
    """Reads the missing files that a version needs into `files`. Returns whether it read any."""
    unread = [path for path in missing if path not in files]
    read_into(files, versions.storage, unread)
    return bool(unread)


def read_newest(
    table_format: AnyFormat, versions: Versions, version: int, like: State | None = None
) -> State:
    """Returns the newest version after it was made durable. `like`: as of `Format.decode`.

    Versions are built on it and outcomes report it, so it must survive a power cut. Raises `RetryError` if it
    is removed while it is read: then it isn't the newest version any more.
    """
    state = read_state(table_format, versions, version, like)
    try:
        versions.storage.make_durable([versions.path(version)])
    except FileNotFoundError as error:
        message = f"version {version} was removed while it was read"
        raise RetryError(message, where=versions.storage.uri, hint="read the newest again") from error
    return state


def own_properties(table_format: AnyFormat, versions: Versions, version: int) -> Mapping[str, str] | None:
    """Returns the properties of a version a committer made, None if another client made it."""
    head = own_head(table_format, versions, version)
    return None if head is None else head.properties


def own_head(table_format: AnyFormat, versions: Versions, version: int) -> VersionHead | None:
    """Returns the head of a version a committer made, None if another client made it.

    Raises `VersionExpiredError` if it is gone.
    """
    try:
        start, _ = read_head(versions.storage, versions.path(version), table_format.head_length)
    except FileNotFoundError as error:
        raise versions.missing(version) from error
    head = table_format.head(start)
    return head if head is not None and is_own(head.properties, version) else None


def link_of(state: State) -> Link:
    """Returns what a version records of itself and of the version that it was made from."""
    made_here = is_own(state.properties, state.version)
    return Link(
        uuid=state.uuid,
        parent=state.properties.get(PARENT, "") if made_here else "",
        marks={key: value for key, value in state.metadata.items() if key.startswith(PREFIX)},
        is_own=made_here,
        keeps_marks=state.keeps_metadata,
    )


def link_of_summary(summary: VersionSummary) -> Link:
    """Returns what `link_of` returns, with a digest of the marks. Compare it only with that of a summary."""
    made_here = is_own(summary.properties, summary.version)
    return Link(
        uuid=summary.uuid,
        parent=summary.properties.get(PARENT, "") if made_here else "",
        marks={PREFIX: summary.marks} if summary.marks else {},
        is_own=made_here,
        keeps_marks=summary.keeps_metadata,
    )


def own_marks(state: State, uri: str) -> Marks:
    """Returns the marks of a version that a committer made. Raises `DamagedError` if it has none."""
    marks = decode_marks(state.metadata, uri)
    if marks is None or marks.version != state.version:
        raise DamagedError(
            f"version {state.version} was made by a committer, but has no marks of its own",
            where=uri,
            hint="its file was changed: restore it",
        )
    return marks
