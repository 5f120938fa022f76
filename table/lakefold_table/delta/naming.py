"""How the versions of a Delta table are named, for what publishes and lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.log_segment.names import FOLDER, LogFileKind, commit_path, log_file

if TYPE_CHECKING:
    from collections.abc import Iterable


class CommitNaming:
    """Commits in twenty digits."""

    folder: Final = FOLDER

    def path(self, version: int) -> str:
        """Returns the path of a version's commit."""
        return commit_path(version)

    def parse(self, name: str) -> int | None:
        """Returns the version of a commit's name, None for other files of the log."""
        file = log_file(name)
        return file.version if file is not None and file.kind is LogFileKind.COMMIT else None


NAMING: Final = CommitNaming()


def detect(names: Iterable[str]) -> CommitNaming | None:
    """Returns the naming if any of these names is a version's."""
    return NAMING if any(NAMING.parse(name) is not None for name in names) else None
