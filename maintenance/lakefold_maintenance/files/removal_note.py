"""A note in the table with the files that no version names, and with those that are about to be removed.

Maintainers remember by the note what they have seen: a file is removed only if several rounds have seen that
nothing names it. And `lakefold redrive` sees by the note which proposals are too late: a file is listed as
about to be removed for at least `NOTICE_S` before it is removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.storage.base import Storage

PATH: Final = "_lakefold/unnamed-files"
NOTICE_S: Final = 600.0
"""How long a file is listed before it is removed. `redrive` reads the list before it sends a proposal."""


@dataclass(frozen=True, slots=True)
class RemovalNote:
    """The paths of files, each with the time in seconds since 1970 since when it is listed.

    `unnamed`: no version names it. `removing`: it is about to be removed as well.
    """

    unnamed: Mapping[str, float] = field(default_factory=dict)
    removing: Mapping[str, float] = field(default_factory=dict)


def read_note(storage: Storage) -> RemovalNote:
    """Returns the table's note; one without files if it doesn't exist or is damaged. Raises `RetryError`."""
    try:
        content = json.loads(storage.get(PATH))
        unnamed, removing = (
            {str(path): float(since) for path, since in content[part].items()}
            for part in ("unnamed", "removing")
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return RemovalNote()
    return RemovalNote(unnamed, removing)


def write_note(storage: Storage, note: RemovalNote) -> None:
    """Replaces the table's note."""
    content = {"unnamed": dict(note.unnamed), "removing": dict(note.removing)}
    storage.put(PATH, [json.dumps(content, indent=1, sort_keys=True).encode()])
