"""What the fold needs but may not fetch: the shell asks the format what that is, and brings it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.opening import own_properties, read_state
from lakefold_log.record import decode_record
from lakefold_table.errors import VersionExpiredError
from lakefold_table.format import Observed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.fold import Table
    from lakefold_table.entry import Entry, LogId, Result
    from lakefold_table.format import AnyFormat, State
    from lakefold_table.versions import Versions


def observe(
    table_format: AnyFormat, versions: Versions, table: Table, group: Sequence[Entry], *, check_sizes: bool
) -> tuple[Table, Observed]:
    """What the format needs to fold this group, and the table knowing what older versions did."""
    needs = table_format.needs(table.state, group)
    sizes = versions.storage.sizes(needs.sizes) if check_sizes else {}
    state = table.state
    if state is not None and needs.operations_since is not None:
        table = replace(table, state=_informed(table_format, versions, state, needs.operations_since))
    schemas = {version: _schema(table_format, versions, version) for version in needs.versions}
    return table, Observed(sizes, schemas)


def answers_before(versions: Versions, table: Table, log: LogId, offsets: Sequence[int]) -> dict[int, Result]:
    """The answers recorded for positions of this log that the table's marks cover.

    Walks back over the versions; stops at the first one that is gone or that no longer can hold these
    offsets. An offset without an answer in the result was folded into a version that is gone.
    """
    wanted, found = set(offsets), dict[int, "Result"]()
    version = table.marks.version
    while wanted and version:
        try:
            properties = own_properties(versions, version)
        except VersionExpiredError:
            break
        record = decode_record(properties, versions.storage.uri) if properties is not None else None
        if record is not None and record.log == log:
            answers = {offset: record.answer(offset) for offset in wanted}
            found.update({offset: answer for offset, answer in answers.items() if answer is not None})
            wanted -= found.keys()
            if record.first_offset <= min(wanted, default=record.first_offset):
                break
        version -= 1
    return found


def _informed(table_format: AnyFormat, versions: Versions, state: State, since: int) -> State:
    """Reads what the versions after `since` did, newest first, back to the first gap."""
    older: list[State] = []
    for version in range(state.told_since, since, -1):
        try:
            older.append(read_state(table_format, versions, version))
        except VersionExpiredError:
            break
    informed: State = table_format.informed(state, older)
    return informed


def _schema(table_format: AnyFormat, versions: Versions, version: int) -> object:
    try:
        return read_state(table_format, versions, version).schema
    except VersionExpiredError:
        return None
