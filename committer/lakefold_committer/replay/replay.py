"""Folds the log again and compares with what is stored, byte for byte: the proof that the fold is a function.

For each version that a committer made, its own record names the entries, the version they were folded on and
the owner's epoch. They are folded once more on the version before, in memory, and must give the same files.
Nothing is written.

The result names what isn't compared: versions of other clients, what is gone (a version, entries of the log,
files that the fold needs), and refusals that depend on what a store held at that time. A refusal that was
reported while no later version was made is in no version, so it is not compared either.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.fold import Folded, FoldedTable, FoldInputs, fold, of_format
from lakefold_committer.fold.grouping import first_group
from lakefold_committer.recovery.open_table import check_rules
from lakefold_committer.recovery.recover_marks import recover_marks
from lakefold_committer.replay.log_reader import Entries, EntriesGoneError, checked, with_claims
from lakefold_committer.replay.version_replay import (
    Case,
    Replayed,
    Verdict,
    group_of,
    notes_on_missing,
    result_of,
)
from lakefold_committer.tables.branches import branch_location
from lakefold_committer.tables.prefetcher import Prefetcher, SizeCheck
from lakefold_committer.tables.requirements import fetch, with_history
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    NotATableError,
    RetryError,
    StopError,
    VersionExpiredError,
)
from lakefold_table.format import Difference, RecordedVersion
from lakefold_table.formats import Formats
from lakefold_table.marks.marks import decode_marks, own_marks
from lakefold_table.marks.record import decode_record
from lakefold_table.marks.rollbacks import after_foreign
from lakefold_table.roots import below
from lakefold_table.uri import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_table.entry import Entry
    from lakefold_table.format import Fetched, Publication, ReplayingFormat, State
    from lakefold_table.versions.stored_table import StoredTable

NOTE = "offset {}: refused for what the store held then, taken from the record"
CLAIM_NOTE = "offset {}: a claim refused for its file or the memory it takes, taken from the record"
UNREADABLE = (VersionExpiredError, NotATableError, DamagedError, InvalidError, StopError)


def replay(
    stored: StoredTable, entries: Entries, first: int | None = None, last: int | None = None
) -> Iterator[Replayed]:
    """Yields the results for the versions from `first` (None: the oldest) to `last` (None: the newest).

    Raises `NotATableError` if there is no table, and `InvalidError` if the range is empty, both at once;
    `RetryError` if the store or the log can't be reached.
    """
    uri = stored.uri
    numbers = stored.versions.numbers()
    if not numbers:
        raise NotATableError("there is no table here", where=uri, hint="name the table's root")
    begin = numbers[0] if first is None else first
    end = numbers[-1] if last is None else last
    chosen = [number for number in numbers if begin <= number <= end]
    if not chosen:
        hint = f"the stored versions are {numbers[0]} to {numbers[-1]}"
        raise InvalidError(f"no version is stored between {begin} and {end}", where=uri, hint=hint)
    return _Replay(stored, entries).run(chosen, None if first is None else begin)


class _Replay:
    """Replays the versions in order. `_bases`: the possible states of the last version, the likeliest first.

    If that version differs, it has two states: as it is stored, and as it was folded again. The next version
    was built on one of them, and must not be reported as different for the same reason.
    """

    def __init__(self, stored: StoredTable, entries: Entries) -> None:
        self._stored, self._entries = stored, entries
        self._prefetcher = Prefetcher(stored, size_check=SizeCheck.NONE)
        self._sizes = Prefetcher(stored).sizes
        # The record says whether a claim was refused for its size, so today's limit must not decide it.
        self._claims = Claims(stored.options, most_bytes=None, formats=Formats(stored.format))
        self._bases: tuple[FoldedTable, ...] = ()

    def run(self, numbers: Sequence[int], first: int | None) -> Iterator[Replayed]:
        """Yields the result for each version. `first`: the first version that was requested, None for any."""
        expected = first if first is not None else 1 if not self._begins(numbers[0]) else numbers[0]
        for number in numbers:
            if number > expected:
                self._bases = ()
                yield Replayed(expected, Verdict.GONE, last=number - 1)
            yield self._replay_version(number)
            expected = number + 1

    def _begins(self, version: int) -> bool:
        """Returns whether this is the table's first version. That of a clone has the number of its source."""
        try:
            return version == 1 or self._stored.read_summary(version).begins_clone
        except UNREADABLE:
            return False

    def _replay_version(self, version: int) -> Replayed:
        try:
            properties = self._stored.own_properties(version)
            if properties is None:
                return self._foreign(version)
            data = self._stored.versions.read(version)
            record = decode_record(properties, self._stored.uri)
        except VersionExpiredError:
            self._bases = ()
            return Replayed(version, Verdict.GONE, last=version)
        except DamagedError as error:
            self._bases = ()
            unreadable = Difference("file", f"can't be read: {error.message}", "not known")
            return Replayed(version, Verdict.DIFFERENT, differences=(unreadable,))
        except InvalidError as error:
            self._bases = ()
            return Replayed(version, Verdict.NOT_COMPARED, notes=(str(error),))
        if record is None:
            raise DamagedError(f"version {version} has lost its record", where=self._stored.uri)
        return self._own(Case.of(version, data, record, properties))

    def _foreign(self, version: int) -> Replayed:
        """Returns the result for a version of another client, which can't be folded again."""
        before = self._bases[0] if self._bases else None
        like = None if before is None else before.state
        state = self._stored.read_state(version, like)
        summary = self._stored.read_summary(version)
        if before is None or before.state is None or state.is_clone or not before.marks.table_id:
            self._bases = self._opened(state)
        else:
            after = self._stored.format.follow_foreign(before.state, state)
            self._bases = (replace(before, state=after, marks=after_foreign(before.marks, state)),)
        marks = decode_marks(state.metadata, self._stored.uri)
        if marks is not None and marks.version == version and not state.is_clone:
            lost = Difference("record", "absent", f"present: the marks were made for version {version}")
            return Replayed(version, Verdict.DIFFERENT, operation=summary.operation, differences=(lost,))
        return Replayed(version, Verdict.FOREIGN, operation=summary.operation)

    def _own(self, case: Case) -> Replayed:
        """Returns the result for a version that a committer made. Folds it again if that is possible."""
        if case.move is not None and case.move.why.by_verb:
            self._continue_from(case.version)
            return case.result(Verdict.MOVED, f"{case.move.why}: {case.move}")
        check_rules(case.record.rules, self._stored.uri)
        bases = self._bases_of(case)
        if not bases:
            self._continue_from(case.version)
            return case.result(
                Verdict.NOT_COMPARED, f"version {case.version - 1}, which it was built on, is gone"
            )
        try:
            entries, recorded_faults = self._read(case)
        except EntriesGoneError as error:
            self._continue_from(case.version)
            return case.result(Verdict.NOT_COMPARED, f"its entries are gone: {error}")
        others = [entry for entry in entries.values() if not self._is_of_this_branch(entry)]
        if others:
            self._continue_from(case.version)
            differences = [
                Difference(f"entry {entry.position}", f"for {self._stored.uri}", f"for {_target_text(entry)}")
                for entry in others
            ]
            return case.result(Verdict.DIFFERENT, differences=differences)
        result, table = self._folded(case, bases[0], entries)
        for base in (*bases[1:], None):
            if result.verdict is not Verdict.SAME:
                result, table = self._folded(case, base or self._with_history(case, bases[0]), entries)
        claim_notes = [CLAIM_NOTE.format(offset) for offset in sorted(recorded_faults)]
        result = replace(result, notes=(*result.notes, *claim_notes))
        if result.verdict is Verdict.SAME and table is not None:
            self._bases = (table,)
        else:
            self._continue_from(case.version)
            self._bases += () if table is None else (table,)
        return result

    def _with_history(self, case: Case, base: FoldedTable) -> FoldedTable:
        """Returns the base with the history of all versions that the committer knew of.

        It may have read further back than these entries need, for entries of a later version.
        """
        since = self._operations_since(case)
        return base if since is None else with_history(self._stored, base, since)

    def _operations_since(self, case: Case) -> int | None:
        """Returns the version after which the committer knew what each version did.

        Returns None if the version's marks can't be read.
        """
        with suppress(DamagedError, InvalidError):
            stored: State = self._stored.format.decode(
                self._stored.versions.path(case.version), case.stored, self._stored.uri
            )
            marks = decode_marks(stored.metadata)
            return None if marks is None else marks.operations_since
        return None

    def _is_of_this_branch(self, entry: Entry) -> bool:
        return branch_location(entry.envelope.table, entry.envelope.branch) == parse_location(
            self._stored.uri
        )

    def _read(self, case: Case) -> tuple[Mapping[int, Entry], frozenset[int]]:
        """Returns the entries that the version answers, or the entry that it names if it answers none.

        Also returns the offsets of claims whose fault is taken from the record.
        """
        record = case.record
        if not case.answers:
            entries = self._entries.at(record.log, record.topic, [record.first_offset])
            return checked(record, entries), frozenset()
        entries = checked(record, self._entries.at(record.log, record.topic, list(case.answers)))
        entries, faults = with_claims(entries, record.refused, self._claims)
        return entries, faults

    def _folded(
        self, case: Case, base: FoldedTable, entries: Mapping[int, Entry]
    ) -> tuple[Replayed, FoldedTable | None]:
        """Returns the result of folding the version again on this base, and the table after it.

        The table is None if no version could be made.
        """
        pending, group = group_of(case, base, entries)
        table = replace(base, pending=pending)
        if case.move is not None:
            table = table.moving(case.move)
        committed = [entry for entry in group if entry.position.offset in case.record.committed]
        replaying = self._stored.format.replaying(self._recorded(case))
        if len(first_group(committed, replaying, None, table.state)) < len(committed):
            apart = Difference("entries", "in one version", "of kinds that can't share one")
            return case.result(Verdict.DIFFERENT, differences=[apart]), None
        table, fetched = fetch(self._stored, self._prefetcher, table, group)
        missing = notes_on_missing(
            self._stored.format.requirements(table.state, of_format(self._stored.format, group)),
            table.state,
            fetched,
        )
        try:
            folded, replaying = self._fold(case, table, group, fetched)
        except RetryError:
            raise
        except (StopError, DamagedError, InvalidError) as error:
            broken = Difference("the whole version", "there", f"can't be made: {error}")
            return result_of(case, [broken], missing, ()), None
        notes = [NOTE.format(offset) for offset in sorted(replaying.undecided)]
        differences = self._differences(case, folded.publication)
        for offset in sorted(replaying.unlike):
            differences.append(Difference(f"answer[{offset}]", f"{case.answers[offset]!r}", "another one"))
        return result_of(case, differences, missing, notes), folded.table.reported()

    def _fold(
        self, case: Case, table: FoldedTable, group: Sequence[Entry], fetched: Fetched
    ) -> tuple[Folded, ReplayingFormat[Any]]:
        """Folds the group, and once more without entries that the fold accepts and the record refused."""
        inputs = FoldInputs(
            case.record.epoch,
            must_publish=True,
            outcomes_offset=case.outcomes_offset,
            owner=case.owner,
            clock_us=case.clock_us,
            rules=case.record.rules,
            replayed=case.answers,
        )
        recorded = self._recorded(case)
        replaying = self._stored.format.replaying(recorded)
        folded: Folded | None = None
        try:
            folded = fold(replaying, table, group, fetched, inputs)
        except ValueError:
            # An entry that was refused at that time may be unable to share a version with the others.
            if not replaying.accepted:
                raise
        undecided, unlike = replaying.undecided, replaying.unlike
        if folded is None or undecided or replaying.accepted:
            unsettled = undecided | unlike
            replaying = self._stored.format.replaying(replace(recorded, given=unsettled))
            folded = fold(replaying, table, group, fetched, inputs)
            replaying.undecided, replaying.unlike = undecided, unlike
        return folded, replaying

    def _recorded(self, case: Case) -> RecordedVersion:
        path = self._stored.versions.path(case.version)
        return RecordedVersion(path, case.stored, self._stored.uri, case.answers, self._sizes)

    def _differences(self, case: Case, publication: Publication | None) -> list[Difference]:
        """Returns how the version's file differs from the folded one, and the files published before it."""
        if publication is None:
            return [Difference("the whole version", "there", "nothing to publish")]
        path = self._stored.versions.path(case.version)
        folded = b"".join(publication.buffers)
        differences = self._stored.format.differences(case.stored, folded, below(self._stored.uri, path))
        if publication.path != path:
            differences.append(Difference("path", path, publication.path))
        for file in publication.before:
            try:
                stored: bytes | None = self._stored.storage.get(file.path)
            except FileNotFoundError:
                stored = None
            if stored != file.data:
                text = "absent" if stored is None else f"{len(stored)} bytes"
                differences.append(Difference(f"file {file.path}", text, f"{len(file.data)} bytes"))
        return differences

    def _bases_of(self, case: Case) -> Sequence[FoldedTable]:
        """Returns the states that the version may have been built on; empty if they are gone."""
        if not case.record.base_version and not case.has_parent:
            return (FoldedTable(self._stored.uri),)
        before = case.version - 1
        bases = self._bases
        try:
            if not bases:
                bases = self._opened(self._stored.read_state(before))
            if bases and not bases[0].marks.table_id:
                bases = (FoldedTable(self._stored.uri, self._never_folded(case, before)),)
        except UNREADABLE:
            return ()
        return bases

    def _never_folded(self, case: Case, before: int) -> State:
        """Returns the table's state before its first fold, with the history that the committer had read.

        The marks contain the version from which that history begins.
        """
        state: State = self._stored.format.decode(
            self._stored.versions.path(case.version), case.stored, self._stored.uri
        )
        since = own_marks(state, self._stored.uri).operations_since
        first = min(max(since, 1), before)
        state = self._stored.read_state(first)
        for number in range(first + 1, before + 1):
            after = self._stored.read_state(number, state)
            state = self._stored.format.follow_foreign(state, after)
        return state

    def _opened(self, state: State) -> tuple[FoldedTable, ...]:
        """Returns the table as a committer opens it at this version; empty if it can't be opened."""
        try:
            return (recover_marks(self._stored, state),)
        except UNREADABLE:
            return ()

    def _continue_from(self, version: int) -> None:
        """Makes the stored version the base of the next one, also if it differs from the folded version."""
        try:
            state = self._stored.read_state(version)
            self._bases = (FoldedTable(self._stored.uri, state, own_marks(state, self._stored.uri)),)
        except UNREADABLE:
            self._bases = ()


def _target_text(entry: Entry) -> str:
    return " ".join(filter(None, (entry.envelope.table, entry.envelope.branch)))
