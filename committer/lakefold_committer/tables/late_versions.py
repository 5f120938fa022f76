"""Late versions: files that a committer put among the versions too late, and that are not versions.

A put that arrives late succeeds if others have published later versions meanwhile and removed the old ones.
Readers and committers recognise a late version by `lakefold_table.versions.succession`. The committer that
put it removes it: no version was made from it, it answers no entry, and its entries are folded again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.recovery.stored_versions import link_of, read_state
from lakefold_table.branch_names import branch_root
from lakefold_table.errors import LakefoldError, VersionExpiredError
from lakefold_table.roots import above
from lakefold_table.storage import open_storage
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.succession import Succession, succession

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.format import AnyFormat, Publication, State
    from lakefold_table.versions.versions import Versions

LOG = structlog.get_logger("lakefold.committer")


def is_followed(table_format: AnyFormat, versions: Versions, state: State | None) -> bool:
    """Returns whether later versions were made from this one, whose file a committer has put."""
    return state is not None and _relation(table_format, versions, state) is Succession.FOLLOWS


def remove_late(
    table_format: AnyFormat,
    versions: Versions,
    publication: Publication,
    state: State | None,
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Removes the file of a publication if it exists and is a late version. Returns whether it was removed.

    It stays if a tag names its version. If the store can't be reached now, a warning is logged and the file
    stays: readers recognise it as a late version as well.
    """
    try:
        if state is None or not versions.holds(publication):
            return False
        if _relation(table_format, versions, state) is not Succession.APART:
            return False
        if _is_tagged(versions, state, storage_options):
            LOG.warning("late version is tagged", table=versions.storage.uri, file=publication.path)
            return False
        versions.storage.delete(publication.path)
    except LakefoldError as error:
        LOG.warning(
            "late version not removed", table=versions.storage.uri, file=publication.path, error=str(error)
        )
        return False
    LOG.warning(
        "removed a late version",
        table=versions.storage.uri,
        file=publication.path,
        why="it was stored after others had published this version and later ones",
    )
    return True


def _relation(table_format: AnyFormat, versions: Versions, state: State) -> Succession:
    """Returns how this version is related to the next one, or to the newest if the next one was removed."""
    ours = link_of(state)
    newest = versions.latest()
    if newest <= state.version:
        return Succession.UNKNOWN
    try:
        return succession(ours, link_of(read_state(table_format, versions, state.version + 1)))
    except VersionExpiredError:
        # The versions in between may have changed the marks.
        later = link_of(read_state(table_format, versions, newest))
        return succession(ours, replace(later, parent="", keeps_marks=False))


def _is_tagged(versions: Versions, state: State, storage_options: Mapping[str, str] | None) -> bool:
    storage, branch = versions.storage, state.branch
    if branch:
        storage = open_storage(above(storage.uri, branch_root(branch)), storage_options)
    named = Refs(storage).tags().values()
    return any(tag.version == state.version and (tag.branch or "") == branch for tag in named)
