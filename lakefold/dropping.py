"""Drops a table, so that it can be told from one whose store is away: it leaves a note beside its place.

The note says how far which log was folded into the table. Of one that is there its marks tell that; of one
that was deleted by hand, the outcomes do.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold_committer.lines import root_of, versions_of
from lakefold_committer.opening import open_table
from lakefold_log.admin import Admin
from lakefold_log.outcomes import read_outcomes
from lakefold_log.topics import describe, watermarks
from lakefold_table.dropped import INSIDE, Dropped, Line, read_dropped, write_dropped
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError, InvalidError, NotATableError
from lakefold_table.lance.table import LanceFormat
from lakefold_table.refs import Refs
from lakefold_table.removing import remove_line, remove_rest
from lakefold_table.storage import open_storage
from lakefold_table.uri import FILE, local_path, place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_log.admin import KafkaConfig
    from lakefold_log.topics import Topics
    from lakefold_table.entry import LogId, Position
    from lakefold_table.marks import Marks


def lines_there(uri: str, storage_options: Mapping[str, str]) -> tuple[Line, ...]:
    """The lines of the table, the main one last, with what was folded into each.

    Raises `NotATableError` where there is none, `InvalidError` while any line is bound to a log.
    """
    found = []
    for branch in (*sorted(Refs(open_storage(uri, storage_options)).branches()), ""):
        root = root_of(uri, branch)
        table = open_table(LanceFormat(), versions_of(uri, branch, storage_options), root)
        bound = table.marks.position
        if bound is not None:
            raise InvalidError(
                f"it is bound to {bound}: a committer may fold it at any time",
                where=root,
                hint="`lakefold detach` first",
            )
        found.append(Line(branch, table.marks.table_id, table.version, _folded(table.marks)))
    if not found[-1].version:
        raise NotATableError("there is no table here", where=uri)
    return tuple(found)


def lines_reported(uri: str, config: KafkaConfig, topics: Topics) -> tuple[Line, ...]:
    """The lines that were reported of, of whatever lay there, with the last position committed to each.

    Reads the outcomes of all partitions: the table may have been moved. Raises `RetryError` where no broker
    answers.
    """
    admin = Admin(config)
    last: dict[str, dict[LogId, Position]] = {}
    newest: dict[str, tuple[int, str]] = {}
    for partition in range(describe(admin, topics.outcomes).partitions):
        start = watermarks(admin, topics.outcomes, partition).start
        for _, one in read_outcomes(config, topics, partition, start, tables={uri}):
            if isinstance(one.result, Committed):
                last.setdefault(one.branch, {})[one.position.log] = one.position
                newest[one.branch] = one.result.version, one.table_id
    return tuple(
        Line(branch, newest[branch][1], newest[branch][0], tuple(positions.values()))
        for branch, positions in sorted(last.items())
    )


def known_dropped(uri: str, storage_options: Mapping[str, str]) -> Dropped | None:
    """What was noted of the place before; nothing where that can't be read: it is written anew."""
    try:
        return read_dropped(uri, storage_options)
    except DamagedError:
        return None


def note(uri: str, lines: tuple[Line, ...], storage_options: Mapping[str, str], *, removing: bool) -> Dropped:
    """Write the note: these lines lay there, and are dropped. Gives it, with what was noted before."""
    now = Dropped(time.time_ns() // 1000, lines, removing=removing)
    told = now.after(known_dropped(uri, storage_options))
    write_dropped(uri, told, storage_options)
    return told


def remove(
    uri: str, branches: list[str], storage_options: Mapping[str, str], told: Callable[[int], None]
) -> None:
    """Remove the table's files. On a local disk its folder is moved aside first, in one step."""
    if place(uri).scheme == FILE:
        _remove_folder(uri)
        return
    for branch in (*branches, ""):
        remove_line(versions_of(uri, branch, storage_options))
    remove_rest(open_storage(uri, storage_options), told, besides={INSIDE})


def _remove_folder(uri: str) -> None:
    path = Path(local_path(uri))
    if path.exists():
        try:
            path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.dropped"))
        except OSError as error:
            raise InvalidError(f"its folder can't be moved aside: {error.strerror}", where=uri) from error
    aside = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.dropped")
    for one in [one for one in path.parent.iterdir() if aside.fullmatch(one.name)]:
        shutil.rmtree(one)


def _folded(marks: Marks) -> tuple[Position, ...]:
    """The last position that was folded of each log that the table ever followed."""
    last: dict[LogId, Position] = {}
    for move in marks.moves:
        for position in (move.before, move.after):
            if position is not None:
                known = last.pop(position.log, position)
                last[position.log] = max(known, position, key=lambda one: one.offset)
    return tuple(last.values())
