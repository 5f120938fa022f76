"""One version that is folded again: what its record says went into it, and what came of the comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.marks.marks import Rebinding, table_id_of
from lakefold_table.marks.owner import Owner
from lakefold_table.marks.record import CLOCK, MOVE, OUTCOMES, OWNER, PARENT, TABLE_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_committer.fold.fold import Table
    from lakefold_table.entry import Entry, Outcome, Result
    from lakefold_table.format import Difference, Fetched, Requirements, State
    from lakefold_table.marks.record import Record


class Verdict(StrEnum):
    """What came of one version. Only `DIFFERENT` says that something is wrong."""

    SAME = "same"
    DIFFERENT = "different"
    FOREIGN = "foreign"
    MOVED = "moved"
    OTHER_RULES = "other rules"
    NOT_COMPARED = "not compared"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One version, or (`GONE`) the run of versions from `version` to `last`.

    `positions`: the entries' range in the log, `committed` and `refused` how many of them, as recorded.
    `operation`: of a foreign version, what it did. `notes`: what could not be compared, and why.
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
    """A version that is to be made again: its file, its record, the table's id that it carries.

    `move`: how the table came to the log that it was folded from. `outcomes_offset`, `owner`, `clock_us`: as
    the fold knew them. `names_parent`: it names the version that it was made from.
    """

    version: int
    stored: bytes
    record: Record
    table_id: str
    move: Rebinding | None = None
    outcomes_offset: int | None = None
    owner: Owner | None = None
    names_parent: bool = True
    clock_us: int | None = None

    @classmethod
    def of(cls, version: int, stored: bytes, record: Record, properties: Mapping[str, str]) -> Case:
        """By the properties of the version's transaction. Raises `DamagedError`."""
        try:
            move = Rebinding.decode(properties[MOVE]) if MOVE in properties else None
            owner = Owner.decode(properties[OWNER]) if OWNER in properties else None
            offset = int(properties[OUTCOMES].partition("@")[2]) if OUTCOMES in properties else None
            clock = int(properties[CLOCK]) if CLOCK in properties else None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"version {version} tells of its log what can't be read: {error!r}") from error
        table_id, names_parent = properties.get(TABLE_ID, ""), PARENT in properties
        return cls(version, stored, record, table_id, move, offset, owner, names_parent, clock)

    @property
    def answers(self) -> Mapping[int, Result]:
        """What was answered, by offset, in the log's order."""
        refused = {offset: outcome.result for offset, outcome in self.record.refused.items()}
        return dict(sorted({**self.record.committed, **refused}.items()))

    def told(self, verdict: Verdict, *notes: str, found: Sequence[Difference] = ()) -> Replayed:
        """What came of it."""
        record = self.record
        log = f"{record.topic or record.log.topic_id}/{record.log.partition}"
        some = record.last_offset >= record.first_offset
        return Replayed(
            self.version,
            verdict,
            positions=f"{log}@{record.first_offset}-{record.last_offset}" if some else "",
            committed=len(record.committed),
            refused=len(record.refused),
            differences=tuple(found),
            notes=notes,
        )


def group_of(
    case: Case, base: Table, entries: Mapping[int, Entry]
) -> tuple[tuple[Outcome, ...], Sequence[Entry]]:
    """The refusals that waited for a version to record them, and the entries that were folded into this one.

    The record tells the log time of the first of these. Refusals in front of it were given by an earlier fold
    on the same table; of two at one time either may have been, which makes no difference.
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


def _may_begin(case: Case, base: Table, entry: Entry) -> bool:
    """Whether this may be the group's first entry: by its time, and by the table's id if it gave that."""
    if entry.time_us != case.record.first_time_us:
        return False
    return bool(base.marks.table_id) or table_id_of(entry.position) == case.table_id


def gone_of(needs: Requirements, state: State | None, observed: Fetched) -> list[str]:
    """What the fold asked for and the shell couldn't bring any more."""
    gone = [f"the file {path} is gone" for path, data in observed.contents.items() if data is None]
    versions = {number for number, schema in observed.schemas.items() if schema is None}
    gone += [f"version {number} is gone" for number in sorted(versions)]
    gone += [
        f"version {number} of {root or 'this table'} is gone"
        for (root, number), one in observed.states.items()
        if one is None
    ]
    since = needs.operations_since
    if state is not None and since is not None and state.history_start > since:
        gone.append(f"what the versions from {since + 1} to {state.history_start} did can't be told any more")
    return gone


def judged(case: Case, found: Sequence[Difference], gone: Sequence[str], notes: Sequence[str]) -> Replayed:
    """What it comes to: a difference proves nothing where something that decided is gone."""
    if not found:
        return case.told(Verdict.SAME, *notes)
    if gone:
        return case.told(Verdict.NOT_COMPARED, *gone, *notes)
    return case.told(Verdict.DIFFERENT, *notes, found=found)
