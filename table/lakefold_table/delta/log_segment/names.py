"""The names of the files in `_delta_log` (Delta fact 1.1)."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER: Final = "_delta_log"
SIDECARS: Final = f"{FOLDER}/_sidecars"
LAST_CHECKPOINT: Final = f"{FOLDER}/_last_checkpoint"
LISTING: Final = f"{FOLDER}/"
"""Stands for the names of all files in the folder, as a file with a name in each line."""
LARGEST: Final = 2**63 - 1
UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME: Final = re.compile(
    rf"""(?P<version>\d{{20}})\.(?:
        (?P<commit>json)
        | (?P<checksum>crc)
        | checkpoint\.(?P<classic>parquet)
        | checkpoint\.(?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.parquet
        | checkpoint\.(?P<uuid>{UUID})\.(?P<encoding>json|parquet)
        | (?P<end>\d{{20}})\.compacted\.json
    )""",
    re.VERBOSE,
)


class LogFileKind(Enum):
    """The kind of a file of the log."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CLASSIC = "classic checkpoint"
    PART = "part of a checkpoint"
    V2 = "V2 checkpoint"
    COMPACTED = "compacted commits"


@value()
class LogFile:
    """A file of the log: its name in the folder, and what that says.

    `version`: of a commit, a checksum or a checkpoint; of compacted commits the first, whose last is `end`.
    `part` of `parts`: of a checkpoint in several files, from 1. `json`: it holds lines, not Parquet.
    """

    name: str
    kind: LogFileKind
    version: int
    end: int = 0
    part: int = 0
    parts: int = 0
    json: bool = False

    @property
    def path(self) -> str:
        """The path below the table's root."""
        return f"{FOLDER}/{self.name}"


def commit_path(version: int) -> str:
    """Returns the path of a version's commit below the table's root."""
    return f"{FOLDER}/{version:020}.json"


def checksum_path(version: int) -> str:
    """Returns the path of a version's checksum file."""
    return f"{FOLDER}/{version:020}.crc"


def log_file(name: str) -> LogFile | None:
    """Returns what a name in the folder says; None for names that are not of the log."""
    match = _NAME.fullmatch(name)
    version = int(match["version"]) if match else 0
    if match is None or version > LARGEST:
        return None
    if match["commit"]:
        return LogFile(name, LogFileKind.COMMIT, version, version, json=True)
    if match["checksum"]:
        return LogFile(name, LogFileKind.CHECKSUM, version, json=True)
    if match["classic"]:
        return LogFile(name, LogFileKind.CLASSIC, version)
    if match["uuid"]:
        return LogFile(name, LogFileKind.V2, version, json=match["encoding"] == "json")
    if match["parts"]:
        part, parts = int(match["part"]), int(match["parts"])
        inside = 1 <= part <= parts
        return LogFile(name, LogFileKind.PART, version, part=part, parts=parts) if inside else None
    end = int(match["end"])
    compacted = LogFile(name, LogFileKind.COMPACTED, version, end, json=True)
    return compacted if version < end <= LARGEST else None


class CommitNaming:
    """Commits in twenty digits."""

    def path(self, version: int) -> str:
        """Returns the path of a version's commit."""
        return commit_path(version)

    def parse(self, name: str) -> int | None:
        """Returns the version of a commit's name, None for other files of the log."""
        file = log_file(name)
        return file.version if file is not None and file.kind is LogFileKind.COMMIT else None


NAMING: Final = CommitNaming()


def detect(names: Iterable[str]) -> CommitNaming | None:
    """Returns the naming if any of these names is that of a commit, of compacted commits or a checkpoint.

    A log without any commit is that of a table as well, which can't be opened (Delta fact 2.7).
    """
    files = (file for file in map(log_file, names) if file is not None)
    return NAMING if any(file.kind is not LogFileKind.CHECKSUM for file in files) else None
