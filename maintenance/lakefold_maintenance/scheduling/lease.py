"""A note in the table that says which maintainer works on it, so that two of them don't do the same work.

The note only saves work. If two maintainers believe that they have it, because a clock is wrong or a store is
slow, both rewrite the same fragments, the committer refuses the second Rewrite, and its files are removed.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Final

import structlog

from lakefold_table.errors import InvalidError
from lakefold_table.storage.base import Put, Storage, put_or_exists

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = structlog.get_logger("lakefold")
PATH: Final = "_lakefold/maintainer"
SECONDS: Final = 120.0
"""How long a note counts after it was last renewed. A maintainer that was killed delays others for it."""
_AHEAD_SECONDS: Final = 120.0
"""A note that is further ahead of this clock doesn't count: it would hinder others for too long."""


class MaintainerNote:
    """The note of a maintainer in a table."""

    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._clock = clock
        self._id = str(uuid.uuid4())
        self._renewed_at = 0.0

    def acquire(self) -> bool:
        """Leaves the note. Returns False if the note of another maintainer exists and still counts."""
        if put_or_exists(self._storage, PATH, [self._content()]) is Put.EXISTS:
            if self._holder() not in {"", self._id}:
                return False
            # It is out of date or damaged. If others replace it as well, the last of them has it.
            self._storage.put(PATH, [self._content()])
            if self._holder() != self._id:
                return False
        self._renewed_at = self._clock()
        return True

    def renew(self) -> None:
        """Renews the note if a quarter of its time has passed."""
        # The clock may have been set back meanwhile.
        if abs(self._clock() - self._renewed_at) > SECONDS / 4:
            self._storage.put(PATH, [self._content()])
            self._renewed_at = self._clock()

    def release(self) -> None:
        """Removes the note if it is this maintainer's. Without the right to do so it stays for its time."""
        if self._holder() != self._id:
            return
        try:
            self._storage.delete(PATH)
        except InvalidError as error:
            LOG.warning("the maintainer's note can't be removed", path=PATH, error=str(error))

    def _holder(self) -> str:
        """Returns the id of the maintainer whose note counts, or an empty text."""
        try:
            note = json.loads(self._storage.get(PATH))
            holder, left_s = str(note["maintainer"]), float(note["until"]) - self._clock()
            return holder if 0 < left_s <= SECONDS + _AHEAD_SECONDS else ""
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return ""

    def _content(self) -> bytes:
        return json.dumps({"maintainer": self._id, "until": self._clock() + SECONDS}).encode()
