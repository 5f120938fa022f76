"""The files that make one version, chosen by their names (Delta facts 2.1, 2.2, 2.3 and 2.4)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.log_segment.names import LogFile, LogFileKind, commit_path, log_file
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, VersionExpiredError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PREFERRED: Final = (LogFileKind.V2, LogFileKind.CLASSIC, LogFileKind.PART)
"""Of several checkpoints of a version the first kind is read: the newest specification says the most, and a
checkpoint of parts may be a mixture of two."""
_CHECKPOINTS: Final = frozenset(_PREFERRED)
_RESTORE: Final = "restore the missing file from a copy, or read a version whose files are all in the log"


@value()
class LogSegment:
    """The files that make a version.

    `checkpoint`: the files of one checkpoint, in the order of their parts; empty if all commits are read.
    `commits`: commits and compacted commits after it, in order, without a gap. `checksum`: the
    version's checksum file, None if it has none.
    """

    version: int
    checkpoint: tuple[LogFile, ...]
    commits: tuple[LogFile, ...]
    checksum: LogFile | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files to be read, below the table's root; sidecars are named by the checkpoint."""
        return tuple(file.path for file in (*self.checkpoint, *self.commits))


def log_files(names: Iterable[str]) -> list[LogFile]:
    """Returns the files of the log among these names, without others, such as temporary ones."""
    return [file for file in map(log_file, names) if file is not None]


def newest_version(files: Iterable[LogFile]) -> int | None:
    """Returns the newest version that has a commit, compacted commits or a complete checkpoint."""
    files = list(files)
    versions = [file.end for file in files if file.kind in (LogFileKind.COMMIT, LogFileKind.COMPACTED)]
    return max([*versions, *_complete_checkpoints(files)], default=None)


def segment_of(names: Iterable[str], version: int | None = None, where: str = "") -> LogSegment:
    """Returns the files that make this version, or the newest version if none is given.

    `names`: of all files in `_delta_log`, or of those from a checkpoint on. Raises `VersionExpiredError` if
    the log begins after the version, `InvalidError` if it ends before the version, `NotATableError` if there
    is no version at all, and `DamagedError` if a commit is missing.
    """
    files = log_files(names)
    newest = newest_version(files)
    if newest is None:
        raise NotATableError("the folder holds no version of a Delta table", where=where)
    if version is None:
        version = newest
    elif version > newest:
        message = f"version {version} does not exist; the newest is {newest}"
        raise InvalidError(message, where=where, hint="read a version that exists")
    checkpoints = _complete_checkpoints(files)
    start = max((number for number in checkpoints if number <= version), default=None)
    commits = _commits(files, 0 if start is None else start + 1, version, where, checkpoints)
    checksums = (f for f in files if f.kind is LogFileKind.CHECKSUM and f.version == version)
    return LogSegment(version, () if start is None else checkpoints[start], commits, next(checksums, None))


def _complete_checkpoints(files: Sequence[LogFile]) -> dict[int, tuple[LogFile, ...]]:
    """Returns the files of one complete checkpoint for each version that has any."""
    sets: dict[int, list[tuple[LogFile, ...]]] = defaultdict(list)
    parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
    for file in files:
        if file.kind is LogFileKind.PART:
            parts[file.version, file.parts][file.part] = file
        elif file.kind in _CHECKPOINTS:
            sets[file.version].append((file,))
    for (version, count), by_part in parts.items():
        if len(by_part) == count:
            sets[version].append(tuple(by_part[part] for part in sorted(by_part)))
    # The largest name of the preferred kind, so that each reader of the same folder chooses the same files.
    return {
        version: min(
            sorted(candidates, key=lambda each: each[0].name, reverse=True),
            key=lambda each: _PREFERRED.index(each[0].kind),
        )
        for version, candidates in sets.items()
    }


def _commits(
    files: Sequence[LogFile], start: int, end: int, where: str, checkpoints: Mapping[int, object]
) -> tuple[LogFile, ...]:
    """Returns commits that cover all versions from `start` to `end`, in as few files as possible."""
    by_start: dict[int, LogFile] = {}
    for file in files:
        if file.kind in (LogFileKind.COMMIT, LogFileKind.COMPACTED) and file.end <= end:
            longest = by_start.get(file.version)
            if longest is None or file.end > longest.end:
                by_start[file.version] = file
    chosen = []
    version = start
    while version <= end:
        commit = by_start.get(version)
        if commit is None:
            raise _missing(version, end, by_start, checkpoints, where)
        chosen.append(commit)
        version = commit.end + 1
    return tuple(chosen)


def _missing(
    version: int, end: int, commits: Mapping[int, LogFile], checkpoints: Mapping[int, object], where: str
) -> DamagedError | VersionExpiredError:
    """Returns the error for a version whose commit is not in the log."""
    oldest = min(checkpoints, default=None)
    if version == 0 and oldest is not None:
        message = f"version {end} is older than the log, which begins with the checkpoint of version {oldest}"
        return VersionExpiredError(message, oldest=oldest, where=where, hint="read a version from there on")
    later = min((number for number in commits if number > version), default=None)
    follows = "" if later is None else f", though the log continues with version {later}"
    missing = commit_path(version)
    return DamagedError(f"the log has a gap: {missing} is missing{follows}", where=where, hint=_RESTORE)
