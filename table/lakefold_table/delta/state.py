"""A Delta table at a version as the fold has it, and how it is made from the files of its log.

One commit says what it changed, so a version needs all commits before it, or a checkpoint and the commits
since. Which checkpoint there is says `_last_checkpoint`, so a version is opened without listing the log. If
that file is missing, false or newer than the version, the log is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.table_actions import (
    Action,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    TableProtocol,
)
from lakefold_table.delta.checkpoints.content import checkpoint_actions, checkpoint_paths
from lakefold_table.delta.commit_head import (
    DOMAINS,
    MARKS_APP,
    MARKS_DOMAIN,
    keeps_marks,
    marks_in,
    own_head,
)
from lakefold_table.delta.conflicts.footprint import CommitFootprint, footprint_of
from lakefold_table.delta.json_text import is_long
from lakefold_table.delta.log_segment.last_checkpoint import checkpoint_hint
from lakefold_table.delta.log_segment.names import (
    FOLDER,
    LAST_CHECKPOINT,
    LISTING,
    NAMING,
    LogFileKind,
    checksum_path,
    commit_path,
)
from lakefold_table.delta.log_segment.segment import LogSegment, segment_of
from lakefold_table.delta.proposal import NAME
from lakefold_table.delta.snapshot.checksum import check_snapshot, version_checksum
from lakefold_table.delta.snapshot.reconciliation import Reconciliation
from lakefold_table.delta.snapshot.snapshot import APPS
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.errors import RESTORE, DamagedError, LakefoldError
from lakefold_table.format import NO_FILES, CommitMetadata, Files
from lakefold_table.marks.marks import decode_marks
from lakefold_table.values import uuid_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

HISTORY: Final = 100
"""Of how many of the last versions a state knows what they did. Older ones are read if they are needed."""
MOST_FOLLOWED: Final = 30
"""How many commits are read to make a version from one before it. For more, a checkpoint may be quicker."""
MOST_AFTER: Final = 100_000
"""How many commits after a checkpoint are requested by its hint alone. For more the log is listed before."""
BYTES_OF_FILE: Final = 600
"""About how much memory a file takes, with its statistics."""
BYTES_OF_STATE: Final = 100_000
_NONE: Final[Mapping[int, Sequence[Action]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DeltaState:
    """A version of the table. `snapshot`: None until all files were read, and if some are gone.

    `marks`: those of the last version that a committer made, up to this one. `own`: what the version's commit
    says of itself, None if another client made it. `identity`: that of the commit's file. `history`: what the
    last versions did, oldest first, this one included. `keeps_metadata`: another client made it, and left the
    marks as they were. `restored`: the version that it restored, None if it names none.
    """

    version: int
    snapshot: DeltaSnapshot | None
    marks: Mapping[str, str]
    own: CommitMetadata | None
    identity: str
    time_us: int
    history: tuple[CommitFootprint, ...] = ()
    missing_files: tuple[str, ...] = ()
    keeps_metadata: bool = False
    restored: int | None = None
    format: str = field(default=NAME, init=False)
    is_clone: bool = field(default=False, init=False)
    branch: str = field(default="", init=False)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The marks. The table's own properties are in its metaData action."""
        return self.marks

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that a committer recorded in the commit; empty if another client made it."""
        return {} if self.own is None else self.own.properties

    @property
    def uuid(self) -> str:
        """Identifies the version's commit."""
        return self.identity if self.own is None else self.own.uuid

    @property
    def proves_marks(self) -> bool:
        """Whether the `txn` action that names the last committer's version names that of the marks."""
        last = None if self.snapshot is None else self.snapshot.apps.get(MARKS_APP)
        marks = None if last is None else decode_marks(self.marks)
        return last is not None and marks is not None and marks.version == last.version

    def lost_marks(self, *, has_all: bool) -> str:
        """Returns why the version may have lost marks that it lacks (Delta fact 7.1)."""
        if self.snapshot is None or self.marks:
            return ""
        last = self.snapshot.apps.get(MARKS_APP)
        if last is not None:
            return f"the marks of version {last.version}, the last one that a committer made, are gone"
        if has_all or self.snapshot.metadata.configuration.get(APPS) is None:
            return ""
        return (
            f"the table has no marks, but {APPS} lets other clients forget which version a committer made "
            "last, and the commits are gone that would show it"
        )

    @property
    def history_start(self) -> int:
        """The version since which it is known what each version did."""
        return self.history[0].version - 1 if self.history else self.version

    def since(self, version: int) -> tuple[CommitFootprint, ...]:
        """Returns what the versions after this one did, as far as it is known."""
        # The history has no gap, so a version's index is known.
        return self.history[max(0, version - self.history_start) :]

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory the state takes."""
        files = 0 if self.snapshot is None else len(self.snapshot.files) + len(self.snapshot.tombstones)
        return BYTES_OF_STATE + BYTES_OF_FILE * files

    @property
    def schema(self) -> object:
        """The schema as JSON."""
        return None if self.snapshot is None else self.snapshot.metadata.schema_text


def decode_state(
    path: str, data: bytes, uri: str = "", files: Files = NO_FILES, like: DeltaState | None = None
) -> DeltaState:
    """Returns the version whose commit is at `path`, with what it still lacks. Raises `DamagedError`.

    `like`: a version of the table that is known. If it is one of the last before this one, only the commits
    after it are read.
    """
    version = version_at(path, uri)
    contents = {**files, path: data}
    if like is not None and like.snapshot is not None and 0 <= version - like.version <= MOST_FOLLOWED:
        followed = _following(like, like.snapshot, version, contents, uri)
        if followed is not None:
            return followed
    return _whole(version, contents, uri)


def _whole(version: int, files: Files, uri: str) -> DeltaState:
    """Returns the version by a checkpoint and the commits since, or what it still lacks.

    Commits are parsed once, when all that the version needs was read.
    """
    needed = _needed(version, files)
    lacking = _lacking_at_first(version, needed, files)
    if lacking:
        return _lacking(version, lacking)
    if needed is None or any(files[each] is None for each in needed):
        if LISTING not in files:
            return _lacking(version, (LISTING,))
        # Its log was cleaned up. What the commit itself says is still known.
        actions = _actions(files, version, uri)
        return replace(_stated(version, actions, files), history=(footprint_of(version, actions),))
    names = [each.removeprefix(LISTING) for each in files if files[each] is not None]
    segment = segment_of(names, version, uri)
    lacking = missing_files(segment, files, uri)
    if lacking:
        return _lacking(version, lacking)
    history = _history(files, version, uri)
    stated = history[version]
    partial = _stated(version, stated, files)
    snapshot = load_snapshot(segment, files, uri, history)
    if not segment.commits:
        # A checkpoint of the version itself has no commitInfo.
        snapshot = replace(snapshot, in_commit_ms=_in_commit_ms(stated))
    marks = partial.marks
    if partial.own is None:
        marks = _marks_of_domain(snapshot) or _carried(history, files, uri)
    if partial.own is None and not marks and MARKS_APP in snapshot.apps:
        made = commit_path(snapshot.apps[MARKS_APP].version)
        if made not in files:
            return _lacking(version, (made,))
        marks = _marks_of(made, files[made], snapshot.apps[MARKS_APP].version, uri)
    return replace(partial, snapshot=snapshot, marks=marks, history=_footprints(history)[-HISTORY:])


def _stated(version: int, actions: Sequence[Action], files: Files) -> DeltaState:
    """Returns the version by its own commit alone."""
    own = own_head(actions, version)
    return DeltaState(
        version,
        None,
        {} if own is None else own.metadata,
        own,
        uuid_of(files[commit_path(version)] or b""),
        time_of(actions, own),
        keeps_metadata=keeps_marks(actions, own),
        restored=restored_in(actions),
    )


def _actions(files: Files, version: int, uri: str) -> list[Action]:
    path = commit_path(version)
    return list(parse_actions(files[path] or b"", f"{uri}/{path}"))


def version_at(path: str, uri: str) -> int:
    """Returns the version of a commit's path. Raises `DamagedError` if it is the path of no commit."""
    version = NAMING.parse(path.removeprefix(f"{FOLDER}/"))
    if version is None:
        raise DamagedError("the file is not a commit of a Delta table", where=f"{uri}/{path}")
    return version


def time_of(actions: Sequence[Action], own: CommitMetadata | None) -> int:
    """Returns the time of a commit in microseconds since 1970; 0 if it gives none."""
    if own is not None:
        return own.time_us
    for action in actions:
        if isinstance(action, CommitInfo):
            in_commit_ms = action.in_commit_ms
            stamped = action.extra.get("timestamp")
            at = in_commit_ms if in_commit_ms is not None else stamped
            return int(at) * 1000 if is_long(at) and at is not None else 0
    return 0


def restored_in(actions: Sequence[Action]) -> int | None:
    """Returns the version that a commit restored, None if it is no RESTORE or names none."""
    return next((action.restored for action in actions if isinstance(action, CommitInfo)), None)


def _in_commit_ms(actions: Sequence[Action]) -> int | None:
    return next((action.in_commit_ms for action in actions if isinstance(action, CommitInfo)), None)


def _lacking(version: int, missing: tuple[str, ...]) -> DeltaState:
    return DeltaState(version, None, {}, None, "", 0, missing_files=missing)


def _following(
    like: DeltaState, before: DeltaSnapshot, version: int, files: Files, uri: str
) -> DeltaState | None:
    """Returns the version by one before it and the commits since, or what it still lacks.

    Returns None if it can't be made so. `before`: the snapshot of `like`. Its commit is read again: the table
    may have been made anew since.
    """
    commits = [commit_path(number) for number in range(like.version, version + 1)]
    checksum = checksum_path(version)
    lacking = tuple(each for each in (*commits, checksum) if each not in files)
    if lacking:
        return _lacking(version, lacking)
    if any(files[each] is None for each in commits) or uuid_of(files[commits[0]] or b"") != like.identity:
        return None
    reconciliation, marks, history = Reconciliation(before), like.marks, list(like.history)
    protocol: TableProtocol | None = before.protocol
    actions: Sequence[Action] = ()
    for number in range(like.version + 1, version + 1):
        actions = _actions(files, number, uri)
        own = own_head(actions, number)
        if own is None and _may_change_marks(actions):
            return None
        marks = marks if own is None else own.metadata
        reconciliation.add_commit(actions, f"{uri}/{commit_path(number)}")
        history.append(footprint_of(number, actions, protocol))
        protocol = _protocol_after(actions, protocol)
    snapshot = reconciliation.snapshot(version, uri)
    _check(snapshot, files[checksum], f"{uri}/{checksum}")
    stated = _stated(version, actions or _actions(files, version, uri), files)
    return replace(stated, snapshot=snapshot, marks=marks, history=tuple(history[-HISTORY:]))


def _may_change_marks(actions: Sequence[Action]) -> bool:
    """Returns whether another client's commit may say where the marks are, or what they are."""
    return any(
        isinstance(action, TableProtocol)
        or (isinstance(action, AppTransaction) and action.app_id == MARKS_APP)
        or (isinstance(action, DomainMetadata) and action.domain == MARKS_DOMAIN)
        for action in actions
    )


def _needed(version: int, files: Files) -> list[str] | None:
    """Returns the files of a checkpoint that exists by the hint, and of all commits after it.

    Without a listing and a hint for this version, these are the commits of a young table, or the listing.
    Returns None if the files that are listed don't make this version.
    """
    listed = files.get(LISTING)
    if listed is not None:
        return _listed(version, listed)
    hint = files.get(LAST_CHECKPOINT)
    checkpoint = None if hint is None else checkpoint_hint(hint)
    if checkpoint is None and version <= HISTORY:
        return [commit_path(number) for number in range(version)]
    if checkpoint is None or not 0 <= version - checkpoint.version <= MOST_AFTER:
        return [LISTING]
    # A hint may name any number of parts, so the others are read once the first is known to exist.
    paths = checkpoint.paths if checkpoint.paths[0] in files else checkpoint.paths[:1]
    if any(path in files and files[path] is None for path in paths):
        return [LISTING]
    return [*paths, *(commit_path(number) for number in range(checkpoint.version + 1, version))]


def _listed(version: int, listing: bytes) -> list[str] | None:
    try:
        return list(segment_of(listing.decode(errors="replace").split("\n"), version).paths)
    except LakefoldError:
        return None


def _lacking_at_first(version: int, needed: list[str] | None, files: Files) -> tuple[str, ...]:
    """Returns the files that are needed as far as names show it, and were not read."""
    if version and LAST_CHECKPOINT not in files:
        return (LAST_CHECKPOINT,)
    # Whether the version has a checksum file, only a request shows.
    return tuple(each for each in (*(needed or ()), checksum_path(version)) if each not in files)


def _history(files: Files, version: int, uri: str) -> dict[int, Sequence[Action]]:
    """Returns the actions of the last versions whose commits were read, oldest first, without a gap."""
    first = version
    while first > max(0, version - HISTORY + 1) and files.get(commit_path(first - 1)) is not None:
        first -= 1
    return {number: _actions(files, number, uri) for number in range(first, version + 1)}


def _footprints(history: Mapping[int, Sequence[Action]]) -> tuple[CommitFootprint, ...]:
    protocol: TableProtocol | None = None
    footprints = []
    for number, actions in history.items():
        footprints.append(footprint_of(number, actions, protocol))
        protocol = _protocol_after(actions, protocol)
    return tuple(footprints)


def _protocol_after(actions: Sequence[Action], before: TableProtocol | None) -> TableProtocol | None:
    return next((action for action in actions if isinstance(action, TableProtocol)), before)


def _carried(history: Mapping[int, Sequence[Action]], files: Files, uri: str) -> Mapping[str, str]:
    """Returns the marks of the last version of a committer among the commits that were read."""
    for number, actions in reversed(list(history.items())):
        head = own_head(actions, number)
        if head is not None:
            return head.metadata
    for number in range(min(history) - 1, -1, -1):
        data = files.get(commit_path(number))
        if data is None:
            break
        head = own_head(parse_actions(data, f"{uri}/{commit_path(number)}"), number)
        if head is not None:
            return head.metadata
    return {}


def _marks_of_domain(snapshot: DeltaSnapshot) -> Mapping[str, str]:
    """Returns the marks that the table carries itself. A domain means nothing without the feature."""
    return (
        marks_in(snapshot.domains.get(MARKS_DOMAIN)) if DOMAINS in writer_features(snapshot.protocol) else {}
    )


def _marks_of(path: str, data: bytes | None, version: int, uri: str) -> Mapping[str, str]:
    """Returns the marks of the committer's version that a `txn` action names; none if they are gone."""
    head = None if data is None else own_head(parse_actions(data, f"{uri}/{path}"), version)
    return {} if head is None else head.metadata


def missing_files(segment: LogSegment, files: Files, where: str = "") -> tuple[str, ...]:
    """Returns the paths of the files that are still to be read to make this version; none if all were.

    To be called again with what was read: a checkpoint names its sidecars. Raises `DamagedError`.
    """
    needed = [*checkpoint_paths(segment.checkpoint, files, where), *(file.path for file in segment.commits)]
    if segment.checksum is not None:
        needed.append(segment.checksum.path)
    return tuple(path for path in needed if path not in files)


def load_snapshot(
    segment: LogSegment, files: Files, where: str = "", parsed: Mapping[int, Sequence[Action]] = _NONE
) -> DeltaSnapshot:
    """Returns the version that the files make, all of which were read. Raises `DamagedError`.

    `parsed`: the actions of commits that were parsed before, by their versions.
    If the version has a checksum file that exists and can be read, the version is compared with it.
    """
    reconciliation = Reconciliation()
    if segment.checkpoint:
        path = f"{where}/{segment.checkpoint[0].path}"
        reconciliation.add_checkpoint(checkpoint_actions(segment.checkpoint, files, where), path)
    for file in segment.commits:
        data = files.get(file.path)
        path = f"{where}/{file.path}"
        if data is None:
            raise DamagedError("the file of a version is missing", where=path, hint=RESTORE)
        compacted = file.kind is LogFileKind.COMPACTED
        known = None if compacted else parsed.get(file.version)
        actions = parse_actions(data, path) if known is None else known
        reconciliation.add_commit(actions, path, compacted=compacted)
    snapshot = reconciliation.snapshot(segment.version, where)
    if segment.checksum is not None:
        _check(snapshot, files.get(segment.checksum.path), f"{where}/{segment.checksum.path}")
    return snapshot


def _check(snapshot: DeltaSnapshot, data: bytes | None, where: str) -> None:
    """Raises `DamagedError` if the checksum file of a version exists, can be read, and says another one."""
    checksum = None if data is None else version_checksum(data)
    if checksum is not None:
        check_snapshot(snapshot, checksum, where)
