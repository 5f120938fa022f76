"""The fold: (table, entries) -> (next table, outcomes, publication). A function of nothing but these.

It reads no clock, creates no ids and does no IO: a version's time is the log's, its uuid a hash of its
inputs. So the same entries on the same table give the same bytes, whichever process folds them and when
(fold-is-a-function).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.binding import misplaced
from lakefold_committer.fold.branch_end import after_removal, deletion_fault, ended
from lakefold_committer.fold.keys import PROMOTE, Keys
from lakefold_committer.fold.tagging import TagAnswers
from lakefold_table.app_removal import FORGET_APP, AppRemoval
from lakefold_table.author import Author, text_of
from lakefold_table.branch_deletion import DELETE_BRANCH
from lakefold_table.durations import LATEST_US
from lakefold_table.entry import (
    MAX_TEXT,
    Committed,
    Conflict,
    Duplicate,
    Entry,
    Invalid,
    Outcome,
    Rejected,
    Result,
    Tagged,
    cut,
)
from lakefold_table.errors import DamagedError
from lakefold_table.format import Accepted, AnyFormat, CommitMetadata, Draft, Fetched, Publication, State
from lakefold_table.marks import record as names
from lakefold_table.marks.marks import (
    RULES,
    Marks,
    Rebinding,
    decode_marks,
    table_id_of,
    with_keys_of,
)
from lakefold_table.marks.record import Batches, Record, encode_record
from lakefold_table.marks.rollbacks import rolled_back
from lakefold_table.proposal import ANY_FORMAT
from lakefold_table.tag_proposal import TagChange, tagged
from lakefold_table.values import uuid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Promotes
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import Position

MAX_AHEAD_US = 5 * 60 * 1_000_000
"""How far the log's time may be ahead of the committer's clock. Brokers' clocks differ by less."""
MOST_ROWS = 2**64 - 1


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """A table for the fold: its newest version (None: no table) and the marks of that version.

    `pending`: what was answered since that version, was not reported yet, and is part of no version:
    refusals, and tags that were set. The next version records that, since its marks will cover these
    positions. `move`: the last rebinding, if no version records it yet.
    """

    uri: str
    state: State | None = None
    marks: Marks = field(default_factory=Marks)
    pending: tuple[Outcome, ...] = ()
    move: Rebinding | None = None

    @property
    def version(self) -> int:
        """The number of the newest version, 0 if there is no table."""
        return 0 if self.state is None else self.state.version

    def moving(self, move: Rebinding) -> FoldedTable:
        """Returns the table after a rebinding, which the next version records."""
        return replace(self, marks=self.marks.moved(move), move=move)

    def reported(self) -> FoldedTable:
        """Returns the table after all outcomes so far have been reported."""
        return replace(self, pending=())

    def reported_below(self, offset: int) -> FoldedTable:
        """Returns the table after the outcomes below this offset have been reported."""
        pending = tuple(outcome for outcome in self.pending if outcome.position.offset >= offset)
        return self if len(pending) == len(self.pending) else replace(self, pending=pending)


@dataclass(frozen=True, slots=True)
class FoldInputs:
    """What a fold depends on besides the table and the entries.

    `epoch` is the owner's, `owner` is its number (None: committers aren't numbered). `must_publish`: the
    owner hasn't published under its epoch yet, so a version is made even if every entry is refused.
    `answers`: the answers to positions that were folded before, by offset. `outcomes_offset`: the end of the
    known outcomes; those of later versions come after it. `clock_us`: the committer's own clock, in
    microseconds since 1970 (None: no clock bounds the log's time). `rules`: their version, which each
    version records. `replayed`: the answers that a replay takes for tags and deletions of branches, since
    nothing records which tags there were then. `last`: of a branch that no longer exists, the position of the
    last entry that was committed to it (None: not known, or the branch exists).
    """

    epoch: int
    must_publish: bool = False
    answers: Mapping[int, Result] = field(default_factory=dict)
    outcomes_offset: int | None = None
    owner: Owner | None = None
    clock_us: int | None = None
    rules: int = RULES
    replayed: Mapping[int, Result] | None = None
    last: Position | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """The next table, outcomes for the entries in order, and the file to publish (None: nothing changed).

    `ahead`: how many entries have a log time that is too far ahead of the committer's clock to be used.
    `tags`: the last change of each of the table's tags.
    """

    table: FoldedTable
    outcomes: tuple[Outcome, ...]
    publication: Publication | None
    ahead: int = 0
    tags: tuple[TagChange, ...] = ()


def fold(
    table_format: AnyFormat, table: FoldedTable, group: Sequence[Entry], fetched: Fetched, inputs: FoldInputs
) -> Folded:
    """Folds a group of a table's entries, all from one log and in its order.

    The accepted entries become a version. The outcomes hold once the tags are changed and the publication, if
    there is one, has succeeded, in this order. Every entry gets its outcome, unless the group was cut on
    another state of the table and an entry can't share a version with those before it, or it tags that
    version: then only those before it get outcomes, and it is folded with the next group.
    """
    covered = table.marks.offset_of(group[0].position.log)
    draft = table_format.draft(table.state, fetched, of_format(table_format, group))
    tagging = TagAnswers(table_format.name, table_format.refs, table.state, fetched.tags, inputs.replayed)
    folding = _Folding(draft, table_format.name, table, inputs, covered, tagging, fetched.needed_by)
    refusal = misplaced(table.marks, group[0].position)
    if refusal is not None:
        results = [
            refusal if folding.is_new(entry.position) else folding.answered_before(entry) for entry in group
        ]
        return Folded(table, _outcomes(group, results, table.marks.table_id), None)
    results = list(folding.answers(group))
    group = group[: len(results)]
    must_publish = inputs.must_publish or table.move is not None
    if folding.changes or (must_publish and table.state is not None):
        return folding.publish(group, results)
    outcomes = _outcomes(group, results, table.marks.table_id)
    new = tuple(outcome for outcome in outcomes if folding.is_new(outcome.position))
    after = replace(table, pending=(*table.pending, *new))
    return Folded(after, outcomes, None, folding.ahead, tagging.changes)


def of_format(table_format: AnyFormat, group: Iterable[Entry]) -> list[Entry]:
    """Returns the entries that the table's format judges: those without a fault and of no other format."""
    name = table_format.name
    return [
        entry
        for entry in group
        if entry.fault is None and (entry.proposal is None or entry.proposal.format == name)
    ]


class _Folding:
    """Folds a group. `covered`: the last offset of its log that the table's marks cover.

    `format_name`: of the table's format. `needed_by`: as of `Fetched`.
    """

    def __init__(
        self,
        draft: Draft,
        format_name: str,
        table: FoldedTable,
        inputs: FoldInputs,
        covered: int,
        tagging: TagAnswers,
        needed_by: Sequence[str] | None,
    ) -> None:
        self._draft = draft
        self._format_name = format_name
        self._table = table
        self._inputs = inputs
        self._keys = Keys(table.marks)
        self._covered = covered
        self._tagging = tagging
        self._needed_by = needed_by
        self._ends = False
        self._promotes: Promotes | None = None
        self._operations: dict[int, str] = {}
        self._ahead = 0
        clock = inputs.clock_us
        self._latest_us = LATEST_US if clock is None else min(max(clock, 0) + MAX_AHEAD_US, LATEST_US)

    @property
    def _version(self) -> int:
        """The number of the version that is being made."""
        return self._draft.version

    @property
    def ahead(self) -> int:
        """How many entries so far have a log time that is too far ahead to be used."""
        return self._ahead

    @property
    def changes(self) -> bool:
        """Whether any entry so far became part of the version that is being made."""
        return bool(self._operations)

    def is_new(self, position: Position) -> bool:
        """Returns whether this position is beyond what the table's marks cover."""
        return position.offset > self._covered

    def answers(self, group: Sequence[Entry]) -> Iterator[Result]:
        """Yields the results of the entries, up to the first that can't share this version."""
        for entry in group:
            result = self._answer(entry)
            if result is None:
                return
            yield result

    def _answer(self, entry: Entry) -> Result | None:
        """Returns the result of an entry, None if it is to be folded for the next version."""
        if not self.is_new(entry.position):
            return self.answered_before(entry)
        if self._ends:
            return None
        if entry.time_us > self._latest_us:
            self._ahead += 1
        if entry.proposal is not None and entry.proposal.format == ANY_FORMAT:
            return self._answer_any_format(entry)
        seen = self._keys.seen(entry)
        other = entry.fault or self._other_format(entry) or self._other_table(entry) or self._taken(entry)
        if entry.envelope.HasField("promotes") and not (seen or other):
            other = self._keys.promote_fault(entry.envelope.promotes)
        verdict = seen or other or self._draft.add(entry)
        if isinstance(verdict, Invalid):
            return self._explained(entry, verdict).shortened()
        if not isinstance(verdict, Accepted):
            return verdict
        if not self._operations:
            self._roll_back(self._draft.restored)
            self._begin_branch(entry)
        version = self._draft.version
        self._add_keys(entry, version, verdict.recorded_batch)
        promotes = self._promotes is not None
        self._operations[entry.position.offset] = PROMOTE if promotes else verdict.operation
        return Committed(
            version,
            verdict.rebased,
            _rows(verdict.rows_added),
            _rows(verdict.rows_deleted),
            verdict.first_fragment_id,
            verdict.num_fragment_ids,
        )

    def _add_keys(self, entry: Entry, version: int, recorded_batch: int | None) -> None:
        """Remembers the keys of an accepted entry: its own, those that it undoes or has of a branch."""
        envelope, time_us = entry.envelope, self._time(entry)
        self._keys.add(entry, version, time_us, recorded_batch)
        if envelope.HasField("reverts"):
            self._keys.undo(envelope.reverts, version)
        if envelope.HasField("promotes"):
            self._keys.promote(envelope.promotes, version, time_us)
            self._promotes = envelope.promotes

    def _answer_any_format(self, entry: Entry) -> Result | None:
        """Returns what `_answer` does, for a proposal that no format reads."""
        if isinstance(entry.proposal, AppRemoval):
            return self._forget(entry, entry.proposal)
        other = self._other_table(entry)
        if other is not None and entry.position.offset not in (self._inputs.replayed or {}):
            return other
        tag = tagged(entry)
        if tag is None:
            return self._delete(entry)
        making = self._version if self.changes else None
        answer = self._tagging.answer(entry, tag, self._time(entry), making)
        return answer.shortened() if isinstance(answer, Invalid) else answer

    def _delete(self, entry: Entry) -> Result | None:
        """Returns the result of an entry that deletes the branch, which makes the branch's last version."""
        if self.changes:
            return None
        replayed = None if self._inputs.replayed is None else self._inputs.replayed.get(entry.position.offset)
        if replayed is not None and not isinstance(replayed, Committed):
            return replayed
        fault = deletion_fault(self._table.state, entry, self._needed_by)
        if fault is not None:
            return self._explained(entry, fault).shortened()
        return self._commit_alone(entry, DELETE_BRANCH)

    def _forget(self, entry: Entry, proposal: AppRemoval) -> Result | None:
        """Returns the result of an entry by which the table forgets an app, in a version of its own."""
        if self.changes:
            return None
        refusal = (
            self._keys.seen(entry) or self._other_table(entry) or self._forgetting_fault(entry, proposal)
        )
        if refusal is not None:
            return self._explained(entry, refusal).shortened() if isinstance(refusal, Invalid) else refusal
        self._keys.add(entry, self._version, self._time(entry))
        return self._commit_alone(entry, FORGET_APP)

    def _forgetting_fault(self, entry: Entry, proposal: AppRemoval) -> Invalid | None:
        """Returns why an app can't be forgotten; None if it is forgotten by now."""
        app_id, envelope = proposal.message.app_id, entry.envelope
        if self._table.state is None:
            on_branch = f" has no branch {envelope.branch}" if envelope.branch else " does not exist"
            return Invalid(f"the table at {envelope.table}{on_branch}", "check its name")
        if envelope.app_id or envelope.HasField("batch_id"):
            hint = "leave app_id and batch_id of the envelope out, and name the app in `forget_app`"
            return Invalid("an app is forgotten under no batch id", hint)
        is_in_marks, is_in_format = self._keys.forget(app_id), self._draft.forget(app_id)
        if is_in_marks or is_in_format:
            return None
        hint = "`lakefold show TABLE` lists the apps that it knows"
        return Invalid(f"the table knows no batch of the app {cut(app_id)!r}", hint)

    def _commit_alone(self, entry: Entry, operation: str) -> Committed:
        """Returns the result of an entry that changes nothing but marks, as the only one of its version."""
        self._ends = True
        self._operations[entry.position.offset] = operation
        return Committed(self._version)

    def _explained(self, entry: Entry, fault: Invalid) -> Invalid:
        """Returns why an entry is refused: if its branch was deleted, that is the reason."""
        last = self._inputs.last
        if last is None or not entry.envelope.branch or entry.begins_table or self.changes:
            return fault
        return after_removal(entry, last)

    def _other_format(self, entry: Entry) -> Invalid | None:
        """Returns why an entry can't be folded whose proposal is for tables of another format."""
        if entry.proposal is None or entry.proposal.format == self._format_name:
            return None
        return Invalid(
            f"the table has the format {self._format_name}, the proposal is for one of format "
            f"{entry.proposal.format}",
            "send a proposal in the table's own format",
        )

    def _other_table(self, entry: Entry) -> Rejected | None:
        """Returns why an entry is refused that was built on another table of this name; None if it wasn't.

        The newest version may be another client's, which restored older marks: what is built on it names the
        table as these do.
        """
        named, state = entry.envelope.table_id, self._table.state
        if not named or (state is None and not self.changes):
            return None
        now = self._table.marks.full_id
        if named == now or (state is not None and named == _carried_id(state)):
            return None
        return Rejected(
            Conflict(
                retryable=True,
                message=f"this was built on the table {cut(named)}, and the table at this location is "
                f"{now or 'another one'} now: it was made anew or restored to an earlier copy",
            )
        )

    def _taken(self, entry: Entry) -> Rejected | None:
        """Returns why an entry is refused that is to become a version of another number than the next one."""
        envelope = entry.envelope
        if not envelope.HasField("as_version") or envelope.as_version == self._version:
            return None
        message = f"it was to become version {envelope.as_version}, and the next one is {self._version}"
        return Rejected(Conflict(retryable=True, message=message, other_version=self._table.version))

    def _roll_back(self, version: int | None) -> None:
        """Notes which keys a Restore of this version leaves out; it is the first entry of its own version."""
        if version is not None:
            marks = rolled_back(self._table.marks, self._version, version, self._draft.metadata)
            self._keys = Keys(marks)

    def _begin_branch(self, entry: Entry) -> None:
        """Takes over the keys of the version that a branch begins at; it is the first of its own version."""
        if entry.proposal is not None and entry.proposal.begun_branch:
            self._keys = Keys(with_keys_of(self._table.marks, self._draft.metadata))

    def publish(self, group: Sequence[Entry], results: Sequence[Result]) -> Folded:
        """Returns the version of this group, and the table after it."""
        base, marks = self._table, self._table.marks
        new_entries = [entry for entry in group if self.is_new(entry.position)]
        first, last = (new_entries[0], new_entries[-1]) if new_entries else (group[0], group[-1])
        table_id = marks.table_id or table_id_of(first.position)
        time_us = time_after(base.state, self._time(last))
        since, operations = self._draft.operations
        marks = replace(
            self._keys.marks(),
            table_id=table_id,
            branch=first.envelope.branch,
            version=self._version,
            epoch=self._inputs.epoch,
            owner=self._inputs.owner,
            rules=self._inputs.rules,
            operations_since=since,
            operations=operations,
        )
        if base.move is not None:
            marks = marks.dated(self._time(first))
        if new_entries:
            marks = marks.at(last.position, last.fingerprint)
        if DELETE_BRANCH in self._operations.values():
            marks = ended(marks, last.position, self._time(last))
        outcomes = _outcomes(group, results, table_id)
        news = [outcome for outcome in outcomes if self.is_new(outcome.position)]
        record = replace(self._record(news, first, last), author_of=_authors(new_entries, news))
        if new_entries and last.fingerprint is not None and not last.position.log.is_file:
            record = replace(record, last_digest=last.fingerprint.digest)
        commit = CommitMetadata(
            marks.encode(),
            {
                **self._properties(record, table_id, time_us),
                **self._other_inputs(marks, record.log.partition),
            },
            _version_uuid(table_id, record),
            time_us,
            ", ".join(dict.fromkeys(author.name for author in record.author_of.values() if author.name)),
        )
        state, publication = self._draft.finish(commit)
        after = FoldedTable(base.uri, state, marks)
        return Folded(after, outcomes, publication, self._ahead, self._tagging.changes)

    def answered_before(self, entry: Entry) -> Result:
        """Returns the answer given when this position was folded. A file log has Duplicate for Committed."""
        answer = self._inputs.answers.get(entry.position.offset)
        if entry.position.log.is_file and (answer is None or isinstance(answer, Committed | Tagged)):
            return Duplicate(answer.version if answer else 0)
        if answer is not None:
            return answer
        return self._keys.seen(entry) or Invalid(
            "this position was answered before, and no version that is left records the answer",
            "check whether the table has its rows before you send it again",
        )

    def _record(self, news: Sequence[Outcome], first: Entry, last: Entry) -> Record:
        answered = (*self._table.pending, *news)
        refused = {new.position.offset: new for new in answered if not isinstance(new.result, Committed)}
        committed = {new.position.offset: new.result for new in news if isinstance(new.result, Committed)}
        position = first.position
        offsets = [*refused, *committed]
        is_named = self._ends or self._promotes is not None
        return Record(
            log=position.log,
            topic=position.topic,
            first_offset=min(offsets, default=position.offset),
            last_offset=max(offsets, default=position.offset - 1),
            committed=committed,
            refused=refused,
            base_version=self._table.version,
            first_time_us=_log_time(first),
            last_time_us=_log_time(last),
            apps=_batches(new for new in news if isinstance(new.result, Committed)),
            epoch=self._inputs.epoch,
            rules=self._inputs.rules,
            operation_of=self._operations if is_named or len(set(self._operations.values())) > 1 else {},
            promotes=self._promotes,
        )

    def _properties(self, record: Record, table_id: str, time_us: int) -> dict[str, str]:
        first_fragment_id, first_row_id = self._draft.first_ids
        return {
            names.VERSION: str(self._version),
            names.TABLE_ID: table_id,
            names.TIME: str(time_us),
            names.FIRST_FRAGMENT_ID: str(first_fragment_id),
            names.FIRST_ROW_ID: str(first_row_id),
            names.POSITIONS: _range_text(record),
            names.RECORD: encode_record(record),
            **({names.AUTHOR: text_of(record.author_of.values())} if record.author_of else {}),
        }

    def _other_inputs(self, marks: Marks, partition: int) -> dict[str, str]:
        """Returns the properties of a version from which a replay takes the other inputs of the fold."""
        inputs = {} if self._table.move is None else {names.MOVE: marks.moves[-1].encode()}
        if self._inputs.outcomes_offset is not None:
            inputs[names.OUTCOMES] = f"{partition}@{self._inputs.outcomes_offset}"
        if self._inputs.owner is not None:
            inputs[names.OWNER] = self._inputs.owner.encode()
        if self._table.state is not None and self._table.state.uuid:
            inputs[names.PARENT] = self._table.state.uuid
        if self._ahead:
            inputs[names.CLOCK] = str(self._inputs.clock_us)
        return inputs

    def _time(self, entry: Entry) -> int:
        """Returns the time that counts for an entry: the log's, or the committer's if the log's is far ahead.

        A broker's clock may jump. An entry that is dated years ahead would date all later versions as late,
        and batch ids would seem old enough to be forgotten.
        """
        time_us, clock = _log_time(entry), self._inputs.clock_us
        return time_us if clock is None or time_us <= self._latest_us else max(clock, 0)


def time_after(before: State | None, time_us: int) -> int:
    """Returns the time of the version after `before`: `time_us`, or a microsecond more than that one's.

    A version of another client may have a time after which none can be. It doesn't count then.
    """
    if before is None or before.time_us >= LATEST_US:
        return time_us
    return max(time_us, before.time_us + 1)


def _carried_id(state: State) -> str:
    """Returns the id of the table that the marks in a version name, "" if it has none that can be read."""
    try:
        marks = decode_marks(state.metadata)
    except DamagedError:
        return ""
    return "" if marks is None else marks.full_id


def _log_time(entry: Entry) -> int:
    """Returns the entry's log time within the range of a timestamp: writers may set any number."""
    return min(max(entry.time_us, 0), LATEST_US)


def _rows(count: int) -> int:
    """Returns a number of rows within the range of an outcome: versions of others may hold any number."""
    return min(max(count, 0), MOST_ROWS)


def _range_text(record: Record) -> str:
    log = f"{record.topic or record.log.topic_id}/{record.log.partition}"
    return (
        f"{log}@{record.first_offset}-{record.last_offset}"
        if record.last_offset >= record.first_offset
        else ""
    )


def _version_uuid(table_id: str, record: Record) -> str:
    """Returns the uuid of a version's transaction, a hash of its inputs, so that no other version has it."""
    offsets = f"{record.first_offset}-{record.last_offset}"
    inputs = f"{table_id} {record.base_version} {record.log} {offsets} {record.epoch}"
    return uuid_of(f"version {inputs}".encode())


def outcome_of(entry: Entry, result: Result, table_id: str = "") -> Outcome:
    """Returns the outcome of an entry, with its names cut to the length that every version may carry."""
    envelope = entry.envelope
    uuid, app_id, branch = entry.uuid, envelope.app_id, envelope.branch
    if max(len(uuid), len(app_id), len(branch)) > MAX_TEXT:
        uuid, app_id, branch = cut(uuid), cut(app_id), cut(branch)
    return Outcome(entry.position, envelope.table, result, uuid, app_id, entry.batch_id, table_id, branch)


def _outcomes(entries: Sequence[Entry], results: Sequence[Result], table_id: str) -> tuple[Outcome, ...]:
    return tuple(outcome_of(entry, result, table_id) for entry, result in zip(entries, results, strict=True))


def _authors(entries: Iterable[Entry], outcomes: Iterable[Outcome]) -> dict[int, Author]:
    """Returns who sent the committed ones of some entries, by offset, as far as they say it."""
    named = {
        each.position.offset: each.envelope.author for each in entries if each.envelope.HasField("author")
    }
    if not named:
        return {}
    committed = [each.position.offset for each in outcomes if isinstance(each.result, Committed)]
    return {offset: Author.of(named[offset]) for offset in committed if offset in named}


def _batches(outcomes: Iterable[Outcome]) -> tuple[Batches, ...]:
    """Returns the batch ids of each app among the entries, for people who read the table's log."""
    batches: dict[str, list[int]] = {}
    for outcome in outcomes:
        if outcome.app_id and outcome.batch_id is not None:
            batches.setdefault(outcome.app_id, []).append(outcome.batch_id)
    return tuple(Batches(app_id, min(ids), max(ids), len(ids)) for app_id, ids in sorted(batches.items()))
