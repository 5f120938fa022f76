"""The files of tags and branches that a committer writes: what the fold decided, and what versions show."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.tables.prefetcher import stored_sizes
from lakefold_table.branch_names import MAIN, main_of
from lakefold_table.errors import DamagedError, InvalidError, LocationError, VersionExpiredError
from lakefold_table.tag_proposal import TagTarget
from lakefold_table.uri import canonical, is_under
from lakefold_table.versions.refs import Refs, UnknownRefError
from lakefold_table.versions.version_removals import Hold, VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_committer.fold.fold import Folded, FoldedTable
    from lakefold_table.format import State
    from lakefold_table.storage.base import Storage
    from lakefold_table.tag_proposal import TagChange
    from lakefold_table.versions.stored_table import StoredTable

LOG = structlog.get_logger("lakefold.committer")


class NeededVersions:
    """Keeps clean-ups from versions that a committer tags, restores or branches off.

    `stored`: the branch that it folds. `roots`: as `TableWriter` has them.
    """

    def __init__(self, stored: StoredTable, roots: Sequence[str] | None) -> None:
        self._stored = stored
        self._roots = roots

    @contextmanager
    def held(
        self,
        folded: Folded,
        states: Mapping[tuple[str, int], State | None],
        restored: Mapping[str, int],
    ) -> Iterator[bool]:
        """Keeps what a group needs until it is published, as far as it is of this table.

        Yields False if some of it is gone or is being removed. `states`: the older versions that were read
        for the fold; `restored`: the files that come back. Both as in `Fetched`.
        """
        uri, after = self._stored.uri, folded.table
        main = self._main(after)
        needed = {change.target for change in folded.tags if change.target is not None}
        for (root, version), state in states.items():
            # Without a state the root may be any text of a proposal.
            if state is None:
                continue
            own = canonical(root) if root else uri
            if main_of(own, state.branch) == main:
                needed.add(TagTarget(state.branch, version))
        storage = self._storage_of(main) if needed or restored else None
        if storage is None:
            yield True
            return
        until = _branch(after), after.version + (folded.publication is None)
        holds = [Hold(each.branch, range(each.version, each.version + 1), until) for each in needed]
        if restored:
            # Its files may be named by the removals of any later version.
            holds.append(Hold("", range(min(restored.values()), until[1]), until))
        with VersionRemovals(storage).held(holds) as are_spared:
            refs = Refs(storage)
            yield (
                are_spared
                and all(refs.has_version(each.version, each.branch or MAIN) for each in needed)
                and None not in stored_sizes(storage, restored).values()
            )

    def remove_ended(self, table: FoldedTable) -> None:
        """Removes what committers before this one left that were killed. Call it after the first version.

        If the store refuses that for good, they stay: no version depends on it.
        """
        storage = self._storage_of(self._main(table))
        if storage is not None:
            with suppress(LocationError):
                VersionRemovals(storage).remove_holds(_branch(table), table.version)

    def _main(self, table: FoldedTable) -> str:
        return main_of(self._stored.uri, _branch(table))

    def _storage_of(self, main: str) -> Storage | None:
        """Returns the store of the main branch, None if that is outside of the roots."""
        if main == self._stored.uri:
            return self._stored.storage
        is_ours = self._roots is None or is_under(main, self._roots)
        return self._stored.address.at(main).open() if is_ours else None


def _branch(table: FoldedTable) -> str:
    return "" if table.state is None else table.state.branch


def write_tags(storage: Storage, changes: Iterable[TagChange], is_late: Callable[[], bool]) -> bool:
    """Sets and removes tags durably. `storage`: the store of the main branch.

    `is_late` is called before each write, and after what it replaces was read: so a committer that was
    suspended meanwhile replaces no tag of its successor, if the store can replace files on a condition.
    Returns False if it returned True, or if another client has changed the tag, or removed the version, since
    that was read: then the entries are to be folded again. Raises `RetryError` if the store can't be reached.
    """
    refs = Refs(storage)
    for change in changes:
        if change.target is None:
            if is_late():
                return False
            with suppress(UnknownRefError):
                refs.delete_tag(change.name)
            continue
        branch, version = change.target.branch or None, change.target.version
        at_ns = change.time_us * 1000
        try:
            is_set = refs.set_tag(
                change.name, version, branch=branch, at_ns=at_ns, is_new=change.is_new, is_late=is_late
            )
        except (VersionExpiredError, UnknownRefError):
            return False
        if not is_set:
            return False
    return True


def write_tags_again(storage: Storage, changes: Iterable[TagChange], is_late: Callable[[], bool]) -> None:
    """Sets and removes tags once more after the first version of a new owner is published.

    Until then the owner before it could still change tags, and after that once, if it had begun to.
    `is_late`: whether this owner has a successor by now.
    """
    again = [replace(change, is_new=False) for change in changes]
    for _ in range(2):
        if write_tags(storage, again, is_late):
            return


def record_branch(stored: StoredTable, branch: str, roots: Sequence[str] | None) -> None:
    """Writes the file that describes a branch, unless it exists. `stored`: the branch itself.

    A branch is a table of its own, and exists from its first version on. The file is stored at the root of
    the main branch. Nothing is written if the branch is not stored where its name says (it was copied), or if
    the root of the main branch is outside of `roots` (None: anywhere). If the file can't be written, a
    warning is logged: the branch's versions don't need it. Raises `RetryError` if the store can't be reached.
    """
    main = main_of(stored.uri, branch)
    if main == stored.uri or not (roots is None or is_under(main, roots)):
        return
    try:
        recorded = Refs(stored.address.at(main).open()).record_branch(branch)
        why = "its first version doesn't record it"
    except (InvalidError, DamagedError) as error:
        recorded, why = False, str(error)
    if not recorded:
        LOG.warning("branch not described at the main branch", table=main, branch=branch, why=why)
