"""Late versions: files that a committer put among the versions too late, and that are not versions.

A put that arrives late succeeds if others have published later versions meanwhile and removed the old ones.
Readers and committers recognise a late version by `lakefold_table.versions.succession`. The committer that
put it removes it: no version was made from it, it answers no entry, and its entries are folded again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakefold_table.branch_names import main_of
from lakefold_table.errors import LakefoldError, VersionExpiredError
from lakefold_table.storage import open_storage
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.succession import Succession, link_of, succession

if TYPE_CHECKING:
    from lakefold_table.format import Publication, State
    from lakefold_table.versions.stored_table import StoredTable

LOG = structlog.get_logger("lakefold.committer")


def is_followed(stored: StoredTable, state: State | None) -> bool:
    """Returns whether later versions were made from this one, whose file a committer has put."""
    return state is not None and _relation(stored, state) is Succession.FOLLOWS


def remove_late(stored: StoredTable, publication: Publication, state: State | None) -> bool:
    """Removes the file of a publication if it exists and is a late version. Returns whether it was removed.

    It stays if a tag names its version. If the store can't be reached now, a warning is logged and the file
    stays: readers recognise it as a late version as well.
    """
    try:
        if state is None or not stored.versions.holds(publication):
            return False
        if _relation(stored, state) is not Succession.APART:
            return False
        if _is_tagged(stored, state):
            LOG.warning("late version is tagged", table=stored.uri, file=publication.path)
            return False
        stored.storage.delete(publication.path)
    except LakefoldError as error:
        LOG.warning("late version not removed", table=stored.uri, file=publication.path, error=str(error))
        return False
    LOG.warning(
        "removed a late version",
        table=stored.uri,
        file=publication.path,
        why="it was stored after others had published this version and later ones",
    )
    return True


def _relation(stored: StoredTable, state: State) -> Succession:
    """Returns how this version is related to the next one, or to the newest if the next one was removed."""
    ours = link_of(state)
    newest = stored.versions.latest()
    if newest <= state.version:
        return Succession.UNKNOWN
    try:
        return succession(ours, link_of(stored.read_state(state.version + 1)))
    except VersionExpiredError:
        # The versions in between may have changed the marks.
        later = link_of(stored.read_state(newest))
        return succession(ours, replace(later, parent="", keeps_marks=False))


def _is_tagged(stored: StoredTable, state: State) -> bool:
    storage, branch = stored.storage, state.branch
    if branch:
        storage = open_storage(main_of(storage.uri, branch), stored.options)
    named = Refs(storage).tags().values()
    return any(tag.version == state.version and (tag.branch or "") == branch for tag in named)
