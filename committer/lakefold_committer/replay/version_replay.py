"""A version that is folded again: the entries that its record names, and the result of the comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.marks.marks import Rebinding, table_id_of
from lakefold_table.marks.owner import Owner
from lakefold_table.marks.record import CLOCK, MOVE, OUTCOMES, OWNER, PARENT, TABLE_ID, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_table.entry import Entry, Outcome, Result
    from lakefold_table.format import Difference, Fetched, Requirements, State


class Verdict(StrEnum):
    """The result for a version. Only `DIFFERENT` means that something is wrong."""

    SAME = "same"
    DIFFERENT = "different"
    FOREIGN = "foreign"
    MOVED = "moved"
    NOT_COMPARED = "not compared"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result for a version, or (`GONE`) for the versions from `version` to `last`.

    `positions`: the recorded range of its entries in the log, with the numbers of `committed` and `refused`
    ones. `operation`: what a foreign version did. `notes`: what could not be compared, and why.
    """

    version: int
    verdict: Verdict
    last: int = 0
    operation: str = ""
    positions: str = ""
    committed: int = 0
    refused: int = 0
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A version that is to be made again: its file, its record, and the table's id that it contains.

    `move`: the rebinding that it recorded, None if there was none. `outcomes_offset`, `owner`, `clock_us`: as
    the fold knew them. `has_parent`: whether it names the version that it was made from.
    """

    version: int
    stored: bytes
    record: Record
    table_id: str
    move: Rebinding | None = None
    outcomes_offset: int | None = None
    owner: Owner | None = None
    has_parent: bool = True
    clock_us: int | None = None

    @classmethod
    def of(cls, version: int, stored: bytes, record: Record, properties: Mapping[str, str]) -> Case:
        """Returns the case from the properties of the version's transaction.

        Raises `DamagedError` if a property can't be decoded.
        """
        try:
            move = Rebinding.decode(properties[MOVE]) if MOVE in properties else None
            owner = Owner.decode(properties[OWNER]) if OWNER in properties else None
            offset = int(properties[OUTCOMES].partition("@")[2]) if OUTCOMES in properties else None
            clock = int(properties[CLOCK]) if CLOCK in properties else None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"version {version} has unreadable properties: {error!r}") from error
        table_id, has_parent = properties.get(TABLE_ID, ""), PARENT in properties
        return cls(version, stored, record, table_id, move, offset, owner, has_parent, clock)

    @property
    def answers(self) -> Mapping[int, Result]:
        """The recorded results by offset, in the log's order."""
        refused = {offset: outcome.result for offset, outcome in self.record.refused.items()}
        return dict(sorted({**self.record.committed, **refused}.items()))

    def result(self, verdict: Verdict, *notes: str, differences: Sequence[Difference] = ()) -> Replayed:
        """Returns the result for this version."""
        record = self.record
        log = f"{record.topic or record.log.topic_id}/{record.log.partition}"
        has_entries = record.last_offset >= record.first_offset
        return Replayed(
            self.version,
            verdict,
            positions=f"{log}@{record.first_offset}-{record.last_offset}" if has_entries else "",
            committed=len(record.committed),
            refused=record.refusals,
            differences=tuple(differences),
            notes=notes,
        )


def group_of(
    case: Case, base: FoldedTable, entries: Mapping[int, Entry]
) -> tuple[tuple[Outcome, ...], Sequence[Entry]]:
    """Returns the refusals that were pending before this fold, and the entries folded into this version.

    The record contains the log time of the first of these entries. Earlier refusals were made by a previous
    fold on the same table. If two entries have that time, it does not matter which of them was the first.
    """
    record, answers = case.record, case.answers
    if not answers:
        only = entries[record.first_offset]
        first, last = (replace(only, time_us=at) for at in (record.first_time_us, record.last_time_us))
        return (), (first, last)
    offsets = list(answers)
    most = next((at for at, offset in enumerate(offsets) if offset in record.committed), len(offsets) - 1)
    begin = next((at for at in range(most + 1) if _may_begin(case, base, entries[offsets[at]])), 0)
    pending = tuple(record.refused[offset] for offset in offsets[:begin])
    return pending, [entries[offset] for offset in offsets[begin:]]


def _may_begin(case: Case, base: FoldedTable, entry: Entry) -> bool:
    """Returns whether this may be the group's first entry, by its time and (for a new table) its id."""
    if entry.time_us != case.record.first_time_us:
        return False
    return bool(base.marks.table_id) or table_id_of(entry.position) == case.table_id


def notes_on_missing(needs: Requirements, state: State | None, fetched: Fetched) -> list[str]:
    """Returns notes on what the fold needs and the store no longer has."""
    notes = [f"the file {path} is gone" for path, data in fetched.contents.items() if data is None]
    versions = {number for number, schema in fetched.schemas.items() if schema is None}
    notes += [f"version {number} is gone" for number in sorted(versions)]
    notes += [
        f"version {number} of {root or 'this table'} is gone"
        for (root, number), older in fetched.states.items()
        if older is None
    ]
    since = needs.operations_since
    if state is not None and since is not None and state.history_start > since:
        notes.append(f"what the versions from {since + 1} to {state.history_start} did is no longer known")
    return notes


def result_of(
    case: Case, differences: Sequence[Difference], missing: Sequence[str], notes: Sequence[str]
) -> Replayed:
    """Returns the result of the comparison. Differences don't count if something the fold needs is gone."""
    if not differences:
        return case.result(Verdict.SAME, *notes)
    if missing:
        return case.result(Verdict.NOT_COMPARED, *missing, *notes)
    return case.result(Verdict.DIFFERENT, *notes, differences=differences)
