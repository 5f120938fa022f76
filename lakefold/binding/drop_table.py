"""Drops a table and leaves a note beside its location, so that it differs from a table that can't be reached.

The note records for each log up to which position it was folded into the table. That is read from the marks,
or from the outcomes if the table was deleted by other means.

A drop is decided by publishing a version that says so: `publish_dropped` publishes it, under the
same condition as any other version. If another process binds or folds the table at the same time, one of the
two loses that version and then reads what the other has written. So nothing that was read before a prompt
counts.
"""

from __future__ import annotations

import shutil
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from lakefold.binding.bound_partition import committed_table
from lakefold.binding.nested_tables import check_alone, noted_in_bucket, noted_in_folder
from lakefold_committer.tables.branches import branch_names, located
from lakefold_committer.tables.rebinding import publish_move
from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import describe, watermarks
from lakefold_table.entry import Committed
from lakefold_table.errors import (
    DamagedError,
    LakefoldError,
    NotATableError,
    PreconditionError,
    RetryError,
)
from lakefold_table.marks.marks import Marks, Rebinding, RebindReason
from lakefold_table.uri import canonical, local_path
from lakefold_table.versions import removal
from lakefold_table.versions.drop_note import (
    INSIDE,
    Dropped,
    DroppedBranch,
    deleted_before,
    read_dropped,
    write_dropped,
)
from lakefold_table.versions.removal import remove_branch, remove_rest
from lakefold_table.versions.version_removals import VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakefold.binding.rebinding import Cluster
    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_table.position import LogId, Position
    from lakefold_table.versions.table_address import TableAddress

_ROUNDS = 20
"""How often the branches are listed again, to drop those that were created meanwhile."""


def existing_branches(address: TableAddress) -> tuple[DroppedBranch, ...]:
    """Returns the table's branches, the main branch last, with the last positions that were folded into each.

    Branches that were deleted before are among them. Raises `NotATableError` if the table does not
    exist, `PreconditionError` if a branch is bound to a log, if other tables are stored inside its folder, or
    if a clean-up removes some of its versions.
    """
    tables = {branch: committed_table(address, branch) for branch in branch_names(address)}
    for table in tables.values():
        _check_unbound(table.marks, table.uri)
    if tables[""].state is None:
        raise NotATableError("no table exists here", where=address.uri)
    check_alone(address, tables)
    _check_no_clean_up(address, tables)
    existing = tuple(_dropped_branch(table, branch) for branch, table in tables.items())
    return (*deleted_before(address.open()), *existing)


def _check_no_clean_up(address: TableAddress, names: Iterable[str]) -> None:
    removals = VersionRemovals(address.open())
    for name in names:
        removals.check_ended(name, located(address, name).versions.numbers())


def publish_dropped(address: TableAddress) -> tuple[DroppedBranch, ...]:
    """Publishes a version of each branch that says that the table is dropped.

    From then on committers refuse proposals for it, and `lakefold adopt` refuses to bind it. Returns the same
    as `existing_branches`. Raises `PreconditionError` if a branch is bound to a log now, and what
    `publish_move` raises. `lakefold adopt --keep` binds the branches again that were dropped before an error.
    """
    existing_branches(address)
    dropped: dict[str, DroppedBranch] = {}
    for _ in range(_ROUNDS):
        missing = [name for name in branch_names(address) if name not in dropped]
        if not missing:
            branches = sorted(dropped.items(), key=lambda item: not item[0])
            # A branch may have been removed since the first look. Its note is written before that.
            deleted = deleted_before(address.open())
            return (*deleted, *(branch for _, branch in branches))
        for branch in missing:
            dropped[branch] = _with_last_version(address, branch)
    message = "other clients create branches while the table is dropped"
    raise RetryError(message, where=address.uri, hint="run the command again")


def _with_last_version(address: TableAddress, branch: str) -> DroppedBranch:
    def decide(table: FoldedTable) -> Rebinding:
        _check_unbound(table.marks, table.uri)
        return Rebinding(RebindReason.DROPPED, None, None, time.time_ns() // 1000)

    table = committed_table(address, branch)
    if table.state is not None and not table.marks.dropped:
        publish_move(located(address, branch), decide)
    return _dropped_branch(table, branch)


def _dropped_branch(table: FoldedTable, branch: str) -> DroppedBranch:
    return DroppedBranch(branch, table.marks.table_id, table.version, _folded(table.marks))


def _check_unbound(marks: Marks, where: str) -> None:
    if marks.position is not None:
        raise PreconditionError(
            f"the table is bound to {marks.position}, so a committer may fold entries into it at any time",
            where=where,
            hint="run `lakefold detach` first",
        )


def reported_branches(uri: str, cluster: Cluster) -> tuple[DroppedBranch, ...]:
    """Returns the branches of the table that the outcomes name, with the last position committed to each.

    Reads the outcomes of all partitions, because the table may have been moved. Only outcomes that committers
    of the cluster's group have signed count. Raises `RetryError` if no broker answers, `InvalidError` if the
    brokers' ACLs refuse the requests.
    """
    admin = Admin(cluster.kafka)
    last: dict[str, dict[LogId, Position]] = {}
    newest: dict[str, tuple[int, str]] = {}
    outcomes = cluster.topics.outcomes
    for partition in range(describe(admin, outcomes).partitions):
        start = watermarks(admin, outcomes, partition).start
        for _, outcome in cluster.reported_versions(partition).outcomes(start, {uri}):
            if isinstance(outcome.result, Committed):
                last.setdefault(outcome.branch, {})[outcome.position.log] = outcome.position
                newest[outcome.branch] = outcome.result.version, outcome.table_id
    return tuple(
        DroppedBranch(branch, newest[branch][1], newest[branch][0], tuple(positions.values()))
        for branch, positions in sorted(last.items())
    )


def known_dropped(address: TableAddress) -> Dropped | None:
    """Returns the note of an earlier drop at this location, None if it is missing or damaged."""
    try:
        return read_dropped(address)
    except DamagedError:
        return None


def note(address: TableAddress, branches: tuple[DroppedBranch, ...]) -> None:
    """Writes the note of a dropped table with these branches, joined with earlier notes."""
    noted = Dropped(_now_us(), branches).after(known_dropped(address))
    write_dropped(address, noted)


def remove(
    address: TableAddress,
    branches: tuple[DroppedBranch, ...],
    progress: Callable[[int], None],
) -> None:
    """Removes the files of a dropped table and leaves the note. Continues a removal that was interrupted.

    Notes inside its folder, of tables that were stored there and dropped before, are copied into its note.

    On a local disk its folder is renamed first, in a single step. Then it is verified that the renamed folder
    is the dropped table; if not, it is renamed back. In a bucket the objects are checked before the first
    version is removed, and again before the first other object is. Before each step the note has to say that
    this run removes them: another run may have ended meanwhile, and another table may be at the path.

    Raises `PreconditionError` if it is another table, if other tables are stored inside its folder, if a
    clean-up removes some of its versions, or if another run has begun.
    """
    before = known_dropped(address)
    names = [each.branch for each in branches]
    if before is None or not before.removing:
        _check_no_clean_up(address, names)
    if address.is_local:
        _remove_folder(address, branches, before)
    else:
        check_alone(address, names)
        inside = noted_in_bucket(address.open())
        run = uuid.uuid4().hex
        removing = Dropped(_now_us(), branches, removing=True, run=run, inside=inside).after(before)
        write_dropped(address, removing)
        begun = before or Dropped(0)
        try:
            _check_still_dropped(address, names, continues=begun.removing)
        except LakefoldError:
            write_dropped(address, replace(removing, removing=begun.removing, run=begun.run))
            raise
        check = partial(_check_same_run, address, run)
        for name in (*filter(None, names), ""):
            remove_branch(located(address, name).versions, check)
        check_alone(address, names)
        remove_rest(address.open(), progress, INSIDE.__eq__, check)
        check()
    note(address, branches)


@contextmanager
def removal_stopped(address: TableAddress) -> Iterator[None]:
    """Has a run of the command that is removing files of a table in a bucket end, so that the table is kept.

    The run reads in the note that it may not go on, for which it gets the time. If the block raises an error,
    the command may be run again to continue.
    """
    if address.is_local:
        yield
        return
    noted = _stopped(address)
    try:
        if noted is not None:
            Event().wait(2 * removal.CHECKED_S)
        yield
    except BaseException:
        if noted is not None:
            write_dropped(address, replace(noted, run=""))
        raise
    # It may have begun to remove since, before it could see that the table is kept.
    _stopped(address)


def _stopped(address: TableAddress) -> Dropped | None:
    """Writes that no run may go on, if one removes files. Returns what the note said, None if none does."""
    noted = known_dropped(address)
    if noted is None or not noted.removing:
        return None
    write_dropped(address, replace(noted, removing=False, run=""))
    return noted


def _check_still_dropped(address: TableAddress, names: Iterable[str], *, continues: bool) -> None:
    """Raises `PreconditionError` if a branch has versions, and the newest doesn't say that it was dropped."""
    for name in names:
        try:
            table = committed_table(address, name)
        except (DamagedError, NotATableError):
            # Only a part of the table may be left.
            if continues:
                continue
            raise
        if table.state is not None and not table.marks.dropped:
            message = "the table was dropped meanwhile, and another one was created at its path"
            raise PreconditionError(message, where=address.uri, hint="look at it before you drop it as well")


def _check_same_run(address: TableAddress, run: str) -> None:
    noted = read_dropped(address)
    if noted is None or not noted.removing or noted.run != run:
        message = "the command was run again meanwhile, or the table was kept, so this run removes no more"
        hint = "if files of the table are left, `lakefold drop` removes them"
        raise PreconditionError(message, where=address.uri, hint=hint)


def _remove_folder(
    address: TableAddress, branches: tuple[DroppedBranch, ...], before: Dropped | None
) -> None:
    path = Path(local_path(address.uri))
    if before is not None and before.aside:
        _remove_aside(address, path, before, None)
    if not path.exists():
        return
    name = f"{path.name}.{uuid.uuid4().hex}.dropped"
    removing = Dropped(_now_us(), branches, removing=True, aside=name).after(before)
    write_dropped(address, removing)
    try:
        path.rename(path.with_name(name))
    except OSError as error:
        message = f"the table's folder can't be renamed: {error.strerror}"
        raise PreconditionError(
            message, where=address.uri, hint="fix that, then drop the table again"
        ) from error
    _remove_aside(address, path, removing, before)


def _remove_aside(address: TableAddress, path: Path, removing: Dropped, earlier: Dropped | None) -> None:
    """Removes the renamed folder if it holds the dropped table and no other table.

    Otherwise the note of `earlier` drops is written again, because this table was not dropped, and
    `PreconditionError` is raised.
    """
    aside = path.with_name(removing.aside)
    if not aside.exists():
        return
    if not removing.condemned:
        try:
            _check_is_dropped(address, aside)
            check_alone(address.at(canonical(aside)), [each.branch for each in removing.branches])
        except PreconditionError as error:
            write_dropped(address, replace(earlier or Dropped(_now_us()), removing=False, aside=""))
            raise _renamed_back(address, path, aside, error) from error
        inside = Dropped(removing.time_us, inside=noted_in_folder(aside)).after(removing).inside
        write_dropped(address, replace(removing, condemned=True, inside=inside))
    shutil.rmtree(aside)


def _check_is_dropped(address: TableAddress, folder: Path) -> None:
    moved = address.at(canonical(folder))
    tables = [committed_table(moved, branch) for branch in branch_names(moved)]
    if not all(table.marks.dropped for table in tables if table.state is not None):
        message = "the table was bound to a log again while it was dropped"
        raise PreconditionError(message, where=address.uri, hint="nothing was deleted")


def _renamed_back(
    address: TableAddress, path: Path, aside: Path, why: PreconditionError
) -> PreconditionError:
    """Renames the folder back, and returns the error that says why it was not removed."""
    if path.exists():
        hint = f"another table was created at its path meanwhile, so this one stays in {aside}"
        return PreconditionError(why.message, where=address.uri, hint=hint)
    aside.rename(path)
    return PreconditionError(why.message, where=address.uri, hint=why.hint)


def _now_us() -> int:
    return time.time_ns() // 1000


def _folded(marks: Marks) -> tuple[Position, ...]:
    """Returns the last folded position of each log that the table was ever bound to."""
    last: dict[LogId, Position] = {}
    for move in marks.moves:
        for position in (move.before, move.after):
            if position is not None:
                earlier = last.pop(position.log, position)
                last[position.log] = max(earlier, position, key=lambda at: at.offset)
    return tuple(last.values())
