"""How a put of a version ended if the store's answer was lost, or the name was already taken.

Only stores over a network lose answers: a local disk stores durably, or fails and is tried again.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefold_table.format import Publication
    from lakefold_table.storage.base import Storage


class Published(Enum):
    """How a publication ended: `OURS` is stored, `THEIRS` has its name, `UNKNOWN` must be tried again."""

    OURS = "ours"
    THEIRS = "theirs"
    UNKNOWN = "unknown"


def settled(storage: Storage, publication: Publication) -> Published:
    """Returns how a put ended, from the file that has the version's name now.

    The first buffer is compared with it: it names the version's transaction, so equal bytes mean that our own
    put succeeded.
    """
    ours = bytes(publication.buffers[0])
    try:
        stored = storage.get_range(publication.path, 0, len(ours))
    except FileNotFoundError:
        return Published.UNKNOWN
    return Published.OURS if stored == ours else Published.THEIRS
