"""Drops a table, so that it can be told from one whose store is away: it leaves a note beside its place.

The note says how far which log was folded into the table. Of one that is there its marks tell that; of one
that was deleted by hand, the outcomes do.

Whether a table may be dropped is decided where versions are: `condemn` publishes one that says it is dropped,
under the same condition as any other version. Who binds or folds the table at the same time loses that put or
makes this one lose, and then reads what the other said. So what was seen before a prompt decides nothing.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.binding.nested_tables import check_alone, noted_in_bucket, noted_in_folder
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.tables.branches import located, versions_of
from lakefold_committer.tables.rebinding import publish_move
from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import describe, watermarks
from lakefold_table.branch_names import root_of
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError, NotATableError, PreconditionError, RetryError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.storage import open_storage
from lakefold_table.uri import FILE, canonical, local_path, place
from lakefold_table.versions.dropped import INSIDE, Dropped, DroppedBranch, read_dropped, write_dropped
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.removal import remove_line, remove_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold.binding.rebinding import Cluster
    from lakefold_committer.fold.fold import Table
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import LogId, Position

_ROUNDS = 20
"""How often branches that appear while a table is condemned are condemned as well."""


def lines_there(uri: str, storage_options: Mapping[str, str]) -> tuple[DroppedBranch, ...]:
    """Returns the table's branches and its main line, the main one last, with what was folded into each.

    Raises `NotATableError` if there is no table, `PreconditionError` if any of them is bound to a log, or if
    other tables lie inside its folder.
    """
    lines = tuple(_line(uri, branch, storage_options) for branch in _branches(uri, storage_options))
    if not lines[-1].version:
        raise NotATableError("there is no table here", where=uri)
    check_alone(uri, [line.branch for line in lines], storage_options)
    return lines


def condemn(uri: str, storage_options: Mapping[str, str]) -> tuple[DroppedBranch, ...]:
    """Publishes a version of each branch and of the main line that says that the table is dropped.

    From then on committers refuse what is proposed to it, and `lakefold adopt` refuses to bind it. Returns
    what `lines_there` does. Raises `PreconditionError` if one of them is bound to a log by now, and as
    `publish_move` does; what was condemned until then `lakefold adopt --keep` binds again.
    """
    lines_there(uri, storage_options)
    condemned: dict[str, DroppedBranch] = {}
    for _ in range(_ROUNDS):
        missing = [name for name in _branches(uri, storage_options) if name not in condemned]
        if not missing:
            return tuple(line for name, line in sorted(condemned.items(), key=lambda one: not one[0]))
        for branch in missing:
            condemned[branch] = _condemned_line(uri, branch, storage_options)
    raise RetryError("branches are made while the table is dropped", where=uri, hint="call it again")


def _condemned_line(uri: str, branch: str, storage_options: Mapping[str, str]) -> DroppedBranch:
    def decide(table: Table) -> Rebinding:
        _check_unbound(table.marks, table.uri)
        return Rebinding(RebindReason.DROPPED, None, None, time.time_ns() // 1000)

    table = _opened(uri, branch, storage_options)
    if table.version and not table.marks.dropped:
        publish_move(*located(uri, branch, storage_options), root_of(uri, branch), decide)
    return _line_of(table, branch)


def _branches(uri: str, storage_options: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the table's branches, then the empty one of its main line."""
    return (*sorted(Refs(open_storage(uri, storage_options)).branches()), "")


def _line(uri: str, branch: str, storage_options: Mapping[str, str]) -> DroppedBranch:
    table = _opened(uri, branch, storage_options)
    _check_unbound(table.marks, table.uri)
    return _line_of(table, branch)


def _line_of(table: Table, branch: str) -> DroppedBranch:
    return DroppedBranch(branch, table.marks.table_id, table.version, _folded(table.marks))


def _check_unbound(marks: Marks, where: str) -> None:
    if marks.position is not None:
        raise PreconditionError(
            f"it is bound to {marks.position}: a committer may fold it at any time",
            where=where,
            hint="`lakefold detach` first",
        )


def _opened(uri: str, branch: str, storage_options: Mapping[str, str]) -> Table:
    return open_table(*located(uri, branch, storage_options), root_of(uri, branch))


def lines_reported(uri: str, cluster: Cluster) -> tuple[DroppedBranch, ...]:
    """The lines that were reported of, of whatever lay there, with the last position committed to each.

    Reads the outcomes of all partitions: the table may have been moved. Only those count that committers of
    the cluster's group signed. Raises `RetryError` if no broker answers, `InvalidError` if the ACLs refuse.
    """
    admin = Admin(cluster.kafka)
    last: dict[str, dict[LogId, Position]] = {}
    newest: dict[str, tuple[int, str]] = {}
    outcomes = cluster.topics.outcomes
    for partition in range(describe(admin, outcomes).partitions):
        start = watermarks(admin, outcomes, partition).start
        for _, one in cluster.witness(partition).outcomes(start, {uri}):
            if isinstance(one.result, Committed):
                last.setdefault(one.branch, {})[one.position.log] = one.position
                newest[one.branch] = one.result.version, one.table_id
    return tuple(
        DroppedBranch(branch, newest[branch][1], newest[branch][0], tuple(positions.values()))
        for branch, positions in sorted(last.items())
    )


def known_dropped(uri: str, storage_options: Mapping[str, str]) -> Dropped | None:
    """What was noted of the place before; nothing where that can't be read: it is written anew."""
    try:
        return read_dropped(uri, storage_options)
    except DamagedError:
        return None


def note(uri: str, lines: tuple[DroppedBranch, ...], storage_options: Mapping[str, str]) -> Dropped:
    """Writes that a table with these lines lay there and is gone. Returns it with what was noted before."""
    noted = Dropped(_now_us(), lines).after(known_dropped(uri, storage_options))
    write_dropped(uri, noted, storage_options)
    return noted


def remove(
    uri: str,
    lines: tuple[DroppedBranch, ...],
    storage_options: Mapping[str, str],
    progress: Callable[[int], None],
) -> None:
    """Removes the files of a condemned table and leaves the note. Goes on where that was cut short.

    What notes in its folder tell of tables that lay there and were dropped before is taken into its own note.

    On a local disk its folder is moved aside first, in one step, and what was moved is proven to be the
    condemned table and no other. If it isn't, it is put back. In a bucket, the objects are looked through
    before the first version is removed and before the first other object is.

    Raises `PreconditionError` if it is another table, or if other tables lie inside its folder.
    """
    before = known_dropped(uri, storage_options)
    branches = [line.branch for line in lines]
    if place(uri).scheme == FILE:
        _remove_folder(uri, lines, before)
    else:
        check_alone(uri, branches, storage_options)
        inside = noted_in_bucket(open_storage(uri, storage_options))
        removing = Dropped(_now_us(), lines, removing=True, inside=inside).after(before)
        write_dropped(uri, removing, storage_options)
        for branch in (*filter(None, branches), ""):
            remove_line(versions_of(uri, branch, storage_options))
        check_alone(uri, branches, storage_options)
        remove_rest(open_storage(uri, storage_options), progress, besides={INSIDE})
    note(uri, lines, storage_options)


def _remove_folder(uri: str, lines: tuple[DroppedBranch, ...], before: Dropped | None) -> None:
    path = Path(local_path(uri))
    if before is not None and before.aside:
        _remove_aside(uri, path, before, None)
    if not path.exists():
        return
    name = f"{path.name}.{uuid.uuid4().hex}.dropped"
    removing = Dropped(_now_us(), lines, removing=True, aside=name).after(before)
    write_dropped(uri, removing)
    try:
        path.rename(path.with_name(name))
    except OSError as error:
        message = f"its folder can't be moved aside: {error.strerror}"
        raise PreconditionError(message, where=uri, hint="mend that, then drop it again") from error
    _remove_aside(uri, path, removing, before)


def _remove_aside(uri: str, path: Path, removing: Dropped, earlier: Dropped | None) -> None:
    """Removes the folder that was moved aside, once it is proven to hold the condemned table and no other.

    If it isn't, the note of `earlier` drops is written again: this table was not dropped.
    """
    aside = path.with_name(removing.aside)
    if not aside.exists():
        return
    if not removing.condemned:
        try:
            _check_condemned(uri, aside)
            check_alone(canonical(aside), [line.branch for line in removing.lines], {})
        except PreconditionError as error:
            write_dropped(uri, replace(earlier or Dropped(_now_us()), removing=False, aside=""))
            raise _put_back(uri, path, aside, error) from error
        inside = Dropped(removing.time_us, inside=noted_in_folder(aside)).after(removing).inside
        write_dropped(uri, replace(removing, condemned=True, inside=inside))
    shutil.rmtree(aside)


def _check_condemned(uri: str, folder: Path) -> None:
    moved = canonical(folder)
    tables = [_opened(moved, branch, {}) for branch in _branches(moved, {})]
    if not all(table.marks.dropped for table in tables if table.version):
        message = "it was bound to a log again while it was dropped"
        raise PreconditionError(message, where=uri, hint="nothing was deleted")


def _put_back(uri: str, path: Path, aside: Path, why: PreconditionError) -> PreconditionError:
    """Puts the folder back, and returns the error that says why it was not removed."""
    if path.exists():
        hint = f"another table was made at its place meanwhile: this one lies in {aside}"
        return PreconditionError(why.message, where=uri, hint=hint)
    aside.rename(path)
    return PreconditionError(why.message, where=uri, hint=why.hint)


def _now_us() -> int:
    return time.time_ns() // 1000


def _folded(marks: Marks) -> tuple[Position, ...]:
    """The last position that was folded of each log that the table ever followed."""
    last: dict[LogId, Position] = {}
    for move in marks.moves:
        for position in (move.before, move.after):
            if position is not None:
                known = last.pop(position.log, position)
                last[position.log] = max(known, position, key=lambda one: one.offset)
    return tuple(last.values())
