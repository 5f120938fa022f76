"""Files that a committer put among the versions, and that are no versions of the table.

A put that arrives late finds its place free if others went on meanwhile and removed old versions. Readers
and committers tell it from a version by `lakefold_table.versions.succession`. The committer that put it
removes it: no version was made from it, nothing was answered by it, and its entries are folded again.
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
    """Whether the versions behind the file of this one, which a committer put, were made from it."""
    return state is not None and _behind(table_format, versions, state) is Succession.FOLLOWS


def remove_stray(
    table_format: AnyFormat,
    versions: Versions,
    publication: Publication,
    state: State | None,
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Removes the file of a publication if it is there and proven to be no version; returns whether it did.

    It stays if a tag names its version. If the store can't be asked now, that is logged, and it stays:
    readers know it from a version as well.
    """
    try:
        if state is None or not versions.holds(publication):
            return False
        if _behind(table_format, versions, state) is not Succession.APART:
            return False
        if _is_tagged(versions, state, storage_options):
            LOG.warning("stray file is tagged", table=versions.storage.uri, file=publication.path)
            return False
        versions.storage.delete(publication.path)
    except LakefoldError as error:
        LOG.warning(
            "stray file not removed", table=versions.storage.uri, file=publication.path, error=str(error)
        )
        return False
    LOG.warning(
        "removed a stray file",
        table=versions.storage.uri,
        file=publication.path,
        why="it arrived after others had gone on without it",
    )
    return True


def _behind(table_format: AnyFormat, versions: Versions, state: State) -> Succession:
    """What the versions behind this one tell of it: the next one, else the newest."""
    ours = link_of(state)
    newest = versions.latest()
    if newest <= state.version:
        return Succession.UNKNOWN
    try:
        return succession(ours, link_of(read_state(table_format, versions, state.version + 1)))
    except VersionExpiredError:
        # What lies between may have changed the marks.
        behind = link_of(read_state(table_format, versions, newest))
        return succession(ours, replace(behind, parent="", keeps_marks=False))


def _is_tagged(versions: Versions, state: State, storage_options: Mapping[str, str] | None) -> bool:
    storage, branch = versions.storage, state.branch
    if branch:
        storage = open_storage(above(storage.uri, branch_root(branch)), storage_options)
    named = Refs(storage).tags().values()
    return any(tag.version == state.version and (tag.branch or "") == branch for tag in named)
