"""The commits of a Delta table as a reader reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from lakefold_reader.versions.times import limited
from lakefold_table.author import MAX_NAME, Author
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.table_actions import Action, CommitInfo, TableMetadata
from lakefold_table.delta.commit_head import keeps_marks, own_head
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.log_segment.names import FOLDER
from lakefold_table.delta.log_segment.segment import segment_of
from lakefold_table.delta.state import DeltaState, time_of
from lakefold_table.delta.table_features.protocol_check import check_readable, check_types
from lakefold_table.errors import RESTORE, DamagedError, InvalidError, LakefoldError, VersionExpiredError
from lakefold_table.format import VersionSummary
from lakefold_table.marks.marks import digest_of_marks
from lakefold_table.marks.record import TABLE_ID
from lakefold_table.roots import below
from lakefold_table.storage.base import read_into
from lakefold_table.values import uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.table_actions import Action, TableMetadata
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

FORMAT = DeltaFormat()
UNKNOWN = "unknown"


class NotBuiltError(InvalidError):
    """What was requested is not built for tables of this format yet."""


@dataclass(frozen=True, slots=True)
class CommitContent:
    """The content of a version's commit that the summary lacks (`VersionSummary.content`).

    `metadata`: returns that of the table at this version, for which the whole version is read; None if it was
    not requested.
    """

    actions: tuple[Action, ...]
    metadata: Callable[[], TableMetadata] | None = None

    @property
    def info(self) -> CommitInfo:
        """The commitInfo action; an empty one if the commit has none."""
        return next((action for action in self.actions if isinstance(action, CommitInfo)), CommitInfo())


def content_of(summary: VersionSummary) -> CommitContent:
    """Returns the content of the commit of a version."""
    return cast("CommitContent", summary.content)


def not_built(what: str, where: str = "") -> NotBuiltError:
    """Returns the error for what this release can't do with Delta tables."""
    return NotBuiltError(f"{what} is not built for Delta tables", where=where, hint="use a client of Delta")


def read_summary(source: Source, version: int, *, whole: bool = False) -> VersionSummary | None:
    """Returns the summary of a version by its commit, or None if it does not exist. Raises `DamagedError`.

    Only the commit is read. `whole`: the metadata of the table can be requested of the content.
    """
    path = source.versions.path(version)
    requested_at = time.monotonic()
    try:
        data = source.storage.get(path)
    except FileNotFoundError:
        return None
    actions = tuple(parse_actions(data, below(source.uri, path)))
    content = CommitContent(actions, partial(metadata_at, source, version) if whole else None)
    own = own_head(actions, version)
    operation, text = content.info.extra.get("operation"), content.info.user_metadata
    properties = {} if own is None else own.properties
    return VersionSummary(
        version,
        operation if isinstance(operation, str) and operation else UNKNOWN,
        properties if text is None else {**properties, CommitInfo.USER_METADATA: text},
        begins_clone=False,
        footprint=None,
        keeps_metadata=keeps_marks(actions, own),
        restored=content.info.restored,
        uuid=uuid_of(data) if own is None else own.uuid,
        marks="" if own is None else digest_of_marks(own.metadata),
        # Delta fact 8.4. Clients have written microseconds as milliseconds, at which no reader may stop.
        time_us=limited(
            _commit_time(time_of(actions, own), content.info.in_commit_ms)
            or source.storage.stored_at(path)
            or 0
        ),
        table_id=properties.get(TABLE_ID, ""),
        branch="",
        own=own is not None,
        metadata=None if own is None else own.metadata,
        content=content,
        author=None if own is not None else _author(content.info),
        size=len(data),
        requested_at=requested_at,
    )


def _author(info: CommitInfo) -> Author | None:
    """Returns the user and the client that a commit names, e.g. `delta-rs.py-1.6.6`."""
    names = [info.extra.get(name) for name in ("userName", "clientVersion", "engineInfo")]
    user, client, engine = (each[:MAX_NAME] if isinstance(each, str) else "" for each in names)
    return Author(user, client or engine) if user or client or engine else None


def _commit_time(time_us: int, in_commit_ms: int | None) -> int:
    """Returns the time of a commit, which is the one in it if they differ (Delta fact 6.6).

    That is after the one of the version before, also if a committer folds entries of an earlier time.
    """
    return time_us if in_commit_ms in (None, time_us // 1000) else 1000 * (in_commit_ms or 0)


def metadata_at(source: Source, version: int) -> TableMetadata:
    """Returns the metadata of the table at a version. Raises as `read_state`."""
    return read_state(source, version)[1].metadata


def read_state(source: Source, version: int) -> tuple[DeltaState, DeltaSnapshot]:
    """Returns a version with its files. Raises `VersionExpiredError`, `DamagedError`.

    The last versions are kept. Raises `InvalidError` if the table needs features that this release can't
    read.
    """
    kept = source.kept_state(version, DeltaState)
    if kept is not None and kept.snapshot is not None:
        return kept, kept.snapshot
    like = source.state_like(version, DeltaState)
    path, data = source.versions.path(version), source.versions.read(version)
    files: dict[str, bytes | None] = {}
    while True:
        state = FORMAT.decode(path, data, source.uri, files, like)
        unread = [each for each in state.missing_files if each not in files]
        if not unread:
            break
        read_into(files, source.storage, unread)
    snapshot = state.snapshot
    if snapshot is None:
        # It raises what is missing.
        segment_of(source.storage.names(FOLDER), version, source.uri)
        message = f"commits that version {version} needs are gone, and no checkpoint has them"
        raise DamagedError(message, where=below(source.uri, path))
    check_readable(snapshot.protocol, source.uri)
    check_types(snapshot.metadata, source.uri)
    time_us = _commit_time(state.time_us, snapshot.in_commit_ms)
    state = replace(state, time_us=limited(time_us or source.storage.stored_at(path) or 0))
    source.keep_state(state)
    return state, snapshot


def removed_file(source: Source, encoded: str) -> LakefoldError:
    """Returns the error for a data file that does not exist.

    It was cleaned up if the newest version does not need it any more.
    """
    newest = source.versions.latest()
    _, snapshot = read_state(source, newest)
    if encoded in snapshot.files:
        return DamagedError("the data file is missing", where=below(source.uri, encoded), hint=RESTORE)
    message = f"the data file {encoded} was cleaned up, and only older versions need it"
    hint = f"the newest version, {newest}, can be read"
    return VersionExpiredError(message, oldest=newest, where=source.uri, hint=hint)
