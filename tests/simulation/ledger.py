"""The invariants, checked whenever something stored has changed: a version appears, a report is decided.

The ledger gets each stored object and each report, keeps what it needs of them, and raises
`BrokenError` at the step that broke an invariant of architecture.md, by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome, Rejected, Result
from lakefold_table.marks.marks import own_marks
from lakefold_table.marks.record import decode_record, is_own
from tests.folding import FORMAT
from tests.memory_storage import MemoryStorage
from tests.simulation.model import BRANCHES, OUTSIDE, REWRITE, Sent
from tests.simulation.rows import (
    Live,
    MissingRowsError,
    Moves,
    Rows,
    added,
    count,
    deletions_of,
    followed,
    moves_of,
    rewritten,
    rows_of,
    without,
)
from tests.simulation.runtime import BrokenError
from tests.whole_versions import broken_invariants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.state import LanceState
    from lakefold_table.marks.marks import Marks
    from lakefold_table.marks.record import Record
    from lakefold_table.position import LogId
    from tests.simulation.broker import Report
    from tests.simulation.runtime import Process

VERSIONS: Final = f"{FORMAT.folder}/"


def demand(holds: object, invariant: str, what: str) -> None:
    """Raises `BrokenError` unless it holds."""
    if not holds:
        raise BrokenError(f"{invariant}: {what}")


@dataclass
class Line:
    """What is known of a table.

    `answers`: what its versions record, by offset; `owners`: by epoch. `strays`: files that were put where a
    version had been `removed`. `touched`: others changed its metadata since our newest version. `undone`: the
    rows that others deleted. `torn`: answers in versions that also hold entries which the log lost; `floor`:
    how far the position may go back since then. `deletions`: what the deletion files of the newest version
    say. `moves`: where Rewrites moved rows.
    """

    uri: str
    states: dict[int, LanceState] = field(default_factory=dict)
    rows: dict[int, Rows] = field(default_factory=dict)
    deletions: dict[int, Bitmap] = field(default_factory=dict)
    moves: Moves = field(default_factory=dict)
    undone: Rows = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    strays: dict[str, bytes] = field(default_factory=dict)
    newest: int = 0
    marks: Marks | None = None
    touched: bool = False
    answers: dict[int, Result] = field(default_factory=dict)
    keys: dict[object, int] = field(default_factory=dict)
    owners: dict[int, Process | None] = field(default_factory=dict)
    tried: dict[Process, dict[str, bytes]] = field(default_factory=dict)
    recorded: dict[int, list[int]] = field(default_factory=dict)
    torn: dict[int, Result] = field(default_factory=dict)
    floor: int | None = None

    def lose_end(self, end: int) -> None:
        """The log lost its entries from `end` on; what was folded of them stays."""
        for version, offsets in self.recorded.items():
            if any(offset >= end for offset in offsets):
                self.torn.update({offset: self.answers[offset] for offset in offsets if offset < end})
                self.recorded[version] = []
        kept = [offset for offsets in self.recorded.values() for offset in offsets]
        self.answers = {at: result for at, result in self.answers.items() if at < end and at not in self.torn}
        self.torn = {at: result for at, result in self.torn.items() if at < end}
        self.floor = max(kept, default=-1)


@dataclass
class Ledger:
    """All that lasts of a partition. `sent` is the log as its producers meant it, by offset.

    `history`: all that was ever sent; `cut_off`: which of it the log lost with its end, and what its tables
    made of that. `claims`: who claims a file. `lost`: entries that were removed without an answer, as
    an operator accepted it. `forgotten`: those whose outcomes were removed, `twice`: and then given again.
    `judged_again`: those that were refused before an operator accepted that the log lost its end.
    `harsh`: branches to which something happened that the log doesn't contain.
    """

    log: LogId
    history: list[Sent] = field(default_factory=list)
    cut_off: dict[int, Result | None] = field(default_factory=dict)
    sent: dict[int, Sent] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    reported: dict[int, Outcome] = field(default_factory=dict)
    stamped: int = 0
    by_line: dict[str, list[int]] = field(default_factory=dict)
    claims: dict[str, list[int]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    twice: set[int] = field(default_factory=set)
    judged_again: set[int] = field(default_factory=set)
    harsh: set[str] = field(default_factory=set)

    @property
    def unanswered(self) -> list[int]:
        """The offsets that have no outcome, and shall have an outcome."""
        return [
            sent_entry
            for sent_entry in self.sent
            if sent_entry not in self.reported and sent_entry not in self.lost
        ]

    def line(self, uri: str) -> Line:
        """What is known of a table."""
        return self.lines.setdefault(uri, Line(uri))

    def add(self, sent: Sent) -> None:
        """A message of the log."""
        self.sent[sent.offset] = sent
        self.history.append(sent)
        if sent.claim:
            self.claims.setdefault(f"{sent.envelope.table}/{sent.claim_path}", []).append(sent.offset)
        if sent.kind not in OUTSIDE:
            self.by_line.setdefault(sent.uri, []).append(sent.offset)

    def lose_end(self, end: int, forgotten: Iterable[int]) -> None:
        """The log lost its entries from `end` on, and the outcomes of the `forgotten` ones are gone."""
        for index, sent in enumerate(self.history):
            if index not in self.cut_off and sent.offset >= end:
                answers = {} if sent.kind in OUTSIDE else self.line(sent.uri).answers
                self.cut_off[index] = answers.get(sent.offset)
        for line in self.lines.values():
            line.lose_end(end)
        self.forgotten.update(forgotten)
        self.sent = {at: sent for at, sent in self.sent.items() if at < end}
        self.reported = {at: outcome for at, outcome in self.reported.items() if at < end}
        for offsets in (self.lost, self.forgotten, self.twice, self.judged_again):
            offsets.difference_update([offset for offset in offsets if offset >= end])
        for some in (*self.by_line.values(), *self.claims.values()):
            some[:] = [number for number in some if number < end]

    def accept(self, start: int) -> None:
        """An operator accepts that the log lost its end: all that is left is answered again."""
        self.forgotten.update(self.reported)
        self.judged_again.update(
            offset
            for offset, outcome in self.reported.items()
            if isinstance(outcome.result, Rejected | Invalid)
        )
        self.stamped = start

    def lost_answer(self, sent: Sent) -> Committed | None:
        """What was committed under the same key, of an entry that the log lost."""
        for index, answer in self.cut_off.items():
            single = self.history[index]
            if isinstance(answer, Committed) and (single.uri, single.key) == (sent.uri, sent.key):
                return answer
        return None

    def stored(self, uri: str, path: str, process: Process | None) -> None:
        """An object is there; `process` None: a foreign client put it."""
        if not path.startswith(VERSIONS):
            return
        line, data = self.line(uri), MemoryStorage(uri).get(path)
        if path in line.removed:
            # It is not a version of the branch, so no answer may name it.
            line.strays[path] = data
            return
        demand(path not in line.files, "one-commit-point", f"{uri}/{path} was published twice")
        line.files[path] = data
        state = FORMAT.decode(path, data, uri)
        demand(
            state.version == line.newest + 1 or (not line.newest and "/tree/" in uri),
            "one-commit-point",
            f"{uri}: version {state.version} came after {line.newest}",
        )
        before = line.states.get(line.newest)
        line.states[state.version] = state
        line.deletions = deletions_of(uri, state)
        line.rows[state.version] = rows_of(state, line.deletions)
        last = line.rows.get(line.newest, {})
        line.newest = state.version
        if process is None:
            note_undone(line, last)
        else:
            demand(is_own(state.properties, state.version), "position-travels", f"{path} says nothing of us")
            record = decode_record(state.properties)
            assert record is not None
            self._published(line, before, state, record, process)

    def tried(self, uri: str, path: str, data: bytes, process: Process) -> None:
        """A process is about to put this; where these bytes are there already, it takes them for its own."""
        if path.startswith(VERSIONS):
            self.line(uri).tried.setdefault(process, {})[path] = data

    def removed(self, uri: str, path: str) -> None:
        """A committer removed the file of a claim, which no committer needs again."""
        offsets = self.claims.get(f"{uri}/{path}", ())
        results = [self.reported[offset].result for offset in offsets if offset in self.reported]
        lost = sum(offset in self.lost for offset in offsets)
        demand(
            len(results) + lost >= len(offsets)
            or any(isinstance(result, Committed | Duplicate) for result in results),
            "every-entry-answered",
            f"{path} of {uri} is removed, answered is {results} of {offsets}",
        )

    def gone(self, uri: str) -> None:
        """The table was dropped: a table that is created there later is another."""
        self.lines.pop(uri, None)

    def _published(
        self, line: Line, before: LanceState | None, state: LanceState, record: Record, process: Process
    ) -> None:
        name = f"{line.uri} version {state.version}"
        marks = own_marks(state, line.uri)
        self._check_marks(line, marks, name)
        if before is not None:
            demand(state.time_us > before.time_us, "fold-is-a-function", f"{name}: its time is not later")
        text = broken_invariants(before, state, line.deletions)
        demand(not text, "the table's own invariants", f"{name}: {text}")
        owner = line.owners.setdefault(marks.epoch, process)
        demand(
            owner is process,
            "fence-by-fact",
            f"{name}: epoch {marks.epoch} is {owner and owner.name}'s",
        )
        for offset in self._covered(line, line.marks, marks):
            demand(
                record.answer(offset) is not None
                or offset in self.reported
                or offset in self.lost
                or (line.floor is not None and offset in {*line.answers, *line.torn}),
                "position-travels",
                f"{name} covers {offset}, and nothing says its answer",
            )
        for offset, answer in record.committed.items():
            self._check_committed(line, offset, answer, name)
        for offset, refused in record.refused.items():
            self._note(line, offset, refused.result, name)
        line.recorded[state.version] = [*record.committed, *record.refused]
        self._check_content(line, before, state, record)
        line.marks, line.floor = marks, None
        line.touched = False

    def _check_marks(self, line: Line, marks: Marks, name: str) -> None:
        last = line.marks
        if last is None:
            return
        demand(marks.table_id == last.table_id, "position-travels", f"{name}: another table id")
        demand(marks.epoch >= last.epoch, "fence-by-fact", f"{name}: epoch {marks.epoch} after {last.epoch}")
        demand(
            marks.rules >= last.rules,
            "fold-is-a-function",
            f"{name}: rules {marks.rules}, {last.rules} before",
        )
        demand(
            marks.offset_of(self.log) >= self._least(line, last),
            "positions-grow",
            f"{name}: {marks.position}",
        )
        for app_id, mark in last.apps.items():
            now = marks.apps.get(app_id)
            held = {number for first, end in mark.intervals for number in range(first, end + 1)}
            demand(
                now is not None and all(now.has(number) for number in held),
                "at-most-once-per-key",
                f"{name} forgot batches of {app_id}",
            )

    def _least(self, line: Line, last: Marks | None) -> int:
        """The lowest offset that the next version's marks may hold."""
        before = -1 if last is None else last.offset_of(self.log)
        return before if line.floor is None else min(before, line.floor)

    def _covered(self, line: Line, last: Marks | None, now: Marks) -> Iterable[int]:
        first = self._least(line, last)
        return [
            number for number in self.by_line.get(line.uri, ()) if first < number <= now.offset_of(self.log)
        ]

    def _check_committed(self, line: Line, offset: int, answer: Committed, name: str) -> None:
        sent = self.sent[offset]
        demand(
            offset not in line.answers,
            "every-entry-answered",
            f"{name} holds {offset}, which was {line.answers.get(offset)}",
        )
        if sent.key is not None:
            demand(
                sent.key not in line.keys,
                "at-most-once-per-key",
                f"{name} holds {sent.key} of {offset} again: {line.keys.get(sent.key)}",
            )
            line.keys[sent.key] = offset
        self._note(line, offset, answer, name)

    def _note(self, line: Line, offset: int, answer: Result, name: str) -> None:
        """Compares what a version records of an entry with what was recorded or reported before."""
        known = line.answers.setdefault(offset, answer)
        demand(known == answer, "every-entry-answered", f"{name} says {answer} of {offset}, it was {known}")
        if offset in self.reported and offset not in self.forgotten:
            result = self.reported[offset].result
            demand(
                type(result) is type(answer),
                "every-entry-answered",
                f"{name} says {answer} of {offset}, reported was {result}",
            )

    def _check_content(
        self, line: Line, before: LanceState | None, state: LanceState, record: Record
    ) -> None:
        """The rows of the version before, as what was committed left them in its order, and nothing else."""
        name = f"{line.uri} version {state.version}"
        rows = {} if before is None else line.rows[before.version]
        for offset, answer in record.committed.items():
            rows = self._rows_after(line, rows, self.sent[offset], answer)
        now = line.rows[state.version]
        demand([*now.items()] == [*rows.items()], "every-entry-answered", f"{name} holds {now}, not {rows}")
        if before is not None:
            demand(
                user_metadata(before) == user_metadata(state), "every-entry-answered", f"{name}: its metadata"
            )

    def _rows_after(self, line: Line, rows: Rows, sent: Sent, answer: Committed) -> Rows:
        """The rows that live after an entry; a branch begins with those of a version of its main line."""
        if sent.kind in BRANCHES:
            return self.line(sent.envelope.table).rows[sent.envelope.lance.clone.ref_version]
        if sent.kind == REWRITE:
            rows = rewritten(rows, sent.rewrites, sent.envelope, answer)
            line.moves.update(moves_of(sent.rewrites, answer))
            return rows
        new = added(sent.envelope, answer)
        counted = (answer.rows_added, answer.rows_deleted)
        demand(
            counted == (count(new), count(sent.deletes)),
            "every-entry-answered",
            f"{sent.offset} ({sent.kind}) is {answer}, it adds {new} and deletes {sent.deletes}",
        )
        try:
            return {**without(rows, followed(sent.deletes, rows, line.moves)), **new}
        except MissingRowsError as error:
            raise BrokenError(f"every-entry-answered: {sent.offset} is {answer}: {error}") from error

    def report(self, report: Report, process: Process) -> None:
        """A report was decided."""
        for outcome in report.outcomes:
            self._reported(outcome, process)
        metadata = report.offset_metadata
        demand(
            (metadata.cluster_id, metadata.topic_id) == (self.log.cluster_id, self.log.topic_id),
            "no-silent-gap",
            "the offset's metadata",
        )
        low = metadata.low_watermark
        demand(
            low >= self.stamped,
            "no-silent-gap",
            f"the committed offset goes back from {self.stamped} to {low}",
        )
        for offset in range(self.stamped, low):
            demand(
                offset not in self.sent or offset in self.reported or offset in self.lost,
                "no-silent-gap",
                f"the committed offset says {low}, {offset} has no answer",
            )
        self.stamped = low

    def _reported(self, outcome: Outcome, process: Process) -> None:
        offset, result = outcome.position.offset, outcome.result
        demand(offset in self.sent, "every-entry-answered", f"{offset} was never sent")
        sent = self.sent[offset]
        self._check_answered_again(sent, outcome)
        self.reported[offset] = outcome
        if sent.kind in OUTSIDE:
            return
        line = self.line(sent.uri)
        recorded = line.answers.get(offset, line.torn.get(offset))
        if isinstance(result, Committed):
            demand(recorded == result, "one-commit-point", f"{offset} is {result}, its table says {recorded}")
        elif offset in line.answers and not (offset in self.twice and sent.uri in self.harsh):
            # Else the version that recorded it may be gone too, and then it can't be known.
            demand(
                type(recorded) is type(result), "every-entry-answered", f"{offset}: {result}, not {recorded}"
            )
        if isinstance(result, Duplicate) and sent.key is not None:
            demand(sent.key in line.keys, "at-most-once-per-key", f"{offset} is {result} of what isn't there")
        # No committer publishes a version of a branch after the one that deletes it.
        is_deleted = line.marks is not None and line.marks.deleted_by is not None
        if outcome.table_id and line.newest and not is_deleted:
            demand(
                any(line.files.get(path) == data for path, data in line.tried.get(process, {}).items()),
                "fence-by-fact",
                f"{process.name} reports {offset} of {sent.uri} and has not published a version of it",
            )

    def _check_answered_again(self, sent: Sent, outcome: Outcome) -> None:
        """No entry is answered twice unless the first answer was forgotten; what was folded stays folded."""
        before = self.reported.get(sent.offset)
        if before is None:
            return
        what = f"{sent.offset} is answered twice: {before}, {outcome}"
        demand(sent.offset in self.forgotten, "every-entry-answered", what)
        self.forgotten.discard(sent.offset)
        self.twice.add(sent.offset)
        is_torn = sent.kind not in OUTSIDE and sent.offset in self.line(sent.uri).torn
        if isinstance(before.result, Committed) and sent.uri not in self.harsh and not is_torn:
            demand(before.result == outcome.result, "every-entry-answered", what)

    def check_unchanged(self) -> None:
        """No version that is still there has other bytes than it had when it appeared."""
        for line in (line for line in self.lines.values() if line.newest):
            storage = MemoryStorage(line.uri)
            for listed in storage.list(FORMAT.folder):
                demand(
                    line.strays.get(listed.path, line.files.get(listed.path)) == storage.get(listed.path),
                    "one-commit-point",
                    f"{line.uri}/{listed.path} was changed",
                )


def note_undone(line: Line, before: Rows) -> None:
    """Notes what another client deleted by its version."""
    now = line.rows[line.newest]
    for number, live in before.items():
        left = now[number].rows if number in now else frozenset()
        gone = live.rows - left
        if gone:
            known = line.undone[number].rows if number in line.undone else frozenset()
            line.undone[number] = Live(live.file, known | gone)


def user_metadata(state: LanceState) -> dict[str, str]:
    """The table's metadata without our marks."""
    return {key: value for key, value in state.metadata.items() if not key.startswith("lakefold.")}
