"""Versions that only bind a table to another log, or to none: `adopt`, `rebind` and `detach` publish them.

They are published like any other version. A committer that has the table open finds that another version has
its number, reads it and follows the rebinding. Such a version changes only the marks. It keeps their epoch,
so the table's owner stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import time_after
from lakefold_committer.recovery.open_table import check_rules
from lakefold_committer.recovery.recover_marks import carried_marks, recover_marks
from lakefold_committer.tables.late_versions import is_followed, remove_late
from lakefold_table.errors import NotATableError, RetryError, StopError
from lakefold_table.format import CommitMetadata, Draft, Fetched, Publication, State
from lakefold_table.marks import record as names
from lakefold_table.marks.marks import RULES, Marks, Rebinding
from lakefold_table.marks.record import Record, encode_record
from lakefold_table.position import LogId
from lakefold_table.values import uuid_of
from lakefold_table.versions.lost_answers import Published

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_table.versions.stored_table import StoredTable

ATTEMPTS = 20
"""How often the version is made again if others publish theirs first."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A rebinding that was published as `version` of the table `table_id`. `format`: the table's, by name."""

    version: int
    table_id: str
    move: Rebinding
    format: str


def publish_move(
    stored: StoredTable,
    decide: Callable[[FoldedTable], Rebinding],
    *,
    outcomes: str = "",
    unproven: bool = False,
) -> Moved:
    """Publishes the rebinding that `decide` returns for the newest version. `decide` may raise to refuse.

    `outcomes`: the offset after which later versions are reported, as in `record.OUTCOMES`. `unproven`: if
    the marks can't be verified, those of the newest version are used. Raises `NotATableError` if the table
    does not exist, `StopError` if its marks can't be verified or are newer than this release, `RetryError` if
    the store can't be reached or others always publish first. If the file that was put arrived too late to be
    a version, it is removed before `StopError` is raised, unless a tag names it.
    """
    for _ in range(ATTEMPTS):
        newest = stored.versions.latest()
        if newest < stored.versions.first:
            raise NotATableError("there is no table here", where=stored.uri, hint="name the table's root")
        table = _opened(stored, newest, unproven=unproven)
        move = _never_back(decide(table), table.marks)
        draft = stored.format.draft(table.state, Fetched())
        marks, state, publication = _version(draft, table, move, outcomes)
        follows = partial(is_followed, stored, state)
        try:
            published = stored.versions.publish(publication, follows=follows)
        except StopError:
            remove_late(stored, publication, state)
            raise
        if published is Published.OURS:
            return Moved(publication.version, marks.table_id, marks.moves[-1], stored.format.name)
    raise RetryError(
        f"other clients published a version first, {ATTEMPTS} times", where=stored.uri, hint="try again"
    )


def _never_back(move: Rebinding, marks: Marks) -> Rebinding:
    """Returns the rebinding with a new position that is not before the last one folded from that log.

    The committed offset of the group may be before it: a committer that died between a version and its report
    has folded entries that were not answered. They are in the table, and their answers are in its versions.
    A table goes back only if the log lost its last entries and that was accepted.
    """
    after = move.after
    if after is None or not move.why.by_verb:
        return move
    return replace(move, after=replace(after, offset=max(after.offset, marks.offset_of(after.log))))


def _opened(stored: StoredTable, newest: int, *, unproven: bool) -> FoldedTable:
    uri = stored.uri
    state = stored.read_newest(newest)
    stored.format.check_writable(state, uri)
    try:
        table = recover_marks(stored, state)
    except StopError:
        if not unproven:
            raise
        table = carried_marks(state, uri)
    check_rules(table.marks.rules, uri)
    return table


def _version(
    draft: Draft, table: FoldedTable, move: Rebinding, outcomes: str
) -> tuple[Marks, State, Publication]:
    """Returns the next version's marks, state and publication. It differs from the last one in its marks."""
    time_us = time_after(table.state, move.time_us)
    move = replace(move, time_us=time_us)
    since, operations = draft.operations
    version = table.version + 1
    marks = replace(
        table.marks.moved(move),
        table_id=table.marks.table_id or _table_id(table, move),
        branch="" if table.state is None else table.state.branch,
        version=version,
        rules=RULES,
        operations_since=since,
        operations=operations,
    )
    record = _record(table, move, marks.epoch)
    first_fragment_id, first_row_id = draft.first_ids
    properties = {
        names.VERSION: str(version),
        names.TABLE_ID: marks.table_id,
        names.TIME: str(time_us),
        names.FIRST_FRAGMENT_ID: str(first_fragment_id),
        names.FIRST_ROW_ID: str(first_row_id),
        names.POSITIONS: "",
        names.RECORD: encode_record(record),
        names.MOVE: move.encode(),
        **({names.OUTCOMES: outcomes} if outcomes else {}),
        **({} if table.state is None else {names.PARENT: table.state.uuid}),
    }
    made_of = f"move {marks.table_id} {version} {move.encode()}"
    name = uuid_of(made_of.encode())
    state, publication = draft.finish(CommitMetadata(marks.encode(), properties, name, time_us))
    return marks, state, publication


def _table_id(table: FoldedTable, move: Rebinding) -> str:
    """Returns the id of a table into which nothing was folded yet."""
    return uuid_of(f"adopted {table.uri} {table.version} {move.encode()}".encode())


def _record(table: FoldedTable, move: Rebinding, epoch: int) -> Record:
    """Returns a record without entries."""
    position = move.after or move.before
    log = LogId("", "", 0) if position is None else position.log
    offset = -1 if position is None else position.offset
    return Record(
        log=log,
        topic="" if position is None else position.topic,
        first_offset=offset + 1,
        last_offset=offset,
        committed={},
        refused={},
        base_version=table.version,
        first_time_us=0,
        last_time_us=0,
        apps=(),
        epoch=epoch,
        rules=RULES,
    )
