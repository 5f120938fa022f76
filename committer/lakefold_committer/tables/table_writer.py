"""A table that this committer writes: its state in memory, and how its next version is published.

Correctness doesn't depend on being the only committer (fence-by-fact): a committer that loses a put reads the
winner's version and folds again on it, and if it reads a version of a higher epoch, it steps down.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.fold.binding import check_log, misplaced
from lakefold_committer.fold.fold import Folded, FoldedTable, FoldInputs, fold
from lakefold_committer.recovery.missing_table import answerable, check_absent, is_dropped
from lakefold_committer.recovery.open_table import check_rules, open_table
from lakefold_committer.recovery.recover_marks import check_follows
from lakefold_committer.states.charts import WRITER, WriterEvent, WriterState
from lakefold_committer.tables.absent_removals import AbsentRemovals, absent_removals
from lakefold_committer.tables.files_after import FilesAfterWriter
from lakefold_committer.tables.late_versions import is_followed, remove_late
from lakefold_committer.tables.prefetcher import Prefetcher, SizeCheck
from lakefold_committer.tables.previews import NOTHING, Previews
from lakefold_committer.tables.refs import NeededVersions, record_branch, write_tags, write_tags_again
from lakefold_committer.tables.requirements import answers_before, fetch, files_in
from lakefold_table.entry import Entry, Invalid, Outcome, Result
from lakefold_table.errors import (
    FencedError,
    LocationError,
    NotATableError,
    OutnumberedError,
    RetryError,
    StopError,
)
from lakefold_table.marks.marks import own_marks
from lakefold_table.marks.record import decode_record, is_own
from lakefold_table.marks.rollbacks import after_foreign
from lakefold_table.versions.lost_answers import Published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.format import AnyFormat, Fetched, Publication, State
    from lakefold_table.formats import Formats
    from lakefold_table.marks.marks import Marks
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import LogId, Position
    from lakefold_table.versions.stored_table import StoredTable

LOG = structlog.get_logger("lakefold.committer")
BEHIND = (WriterState.BEHIND, WriterState.BEHIND_AS_OWNER)
"""The states in which versions of others are read before the next group is folded."""
UNKNOWN_PUTS = 5
"""How often a version is put without an answer before the store counts as not reachable."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The outcomes of a group, one for each entry, and the version that was published (None: no change)."""

    outcomes: tuple[Outcome, ...]
    publication: Publication | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group that is folded in memory, and what was read for that. Its outcomes hold once it is published.

    `files`: those of the table that the entries name. `states`, `restored`: as in `Fetched`.
    """

    group: tuple[Entry, ...]
    folded: Folded
    files: Sequence[str]
    states: Mapping[tuple[str, int], State | None]
    restored: Mapping[str, int]

    @property
    def step(self) -> GroupResult:
        """The result once the version is published."""
        return GroupResult(self.folded.outcomes, self.folded.publication)


class TableWriter:
    """Folds groups into one open table and publishes its versions. docs/states.md has its states.

    `prepare` folds a group in memory, and `put` publishes its version. The next group may be prepared while a
    version is being put, each by a thread of its own. If another version has the number of the one that was
    put, all that was prepared since is worthless: call `fall_back`, and prepare it again. `fold` does both.

    `check_sizes`: whether the size of each new file is checked (None: if that is cheap). `roots`: the folders
    that may hold other tables which entries name (None: any).
    `recovery`: what the marks are checked against. `formats`: those that a new table may get (None: this).
    """

    def __init__(
        self,
        stored: StoredTable,
        *,
        check_sizes: bool | None = None,
        roots: Sequence[str] | None = None,
        recovery: RecoveryContext | None = None,
        formats: Formats | None = None,
    ) -> None:
        self._stored = stored
        self._formats = formats
        checks_all = stored.storage.cheap_size if check_sizes is None else check_sizes
        self._size_check = SizeCheck.ALL if checks_all else SizeCheck.UNKNOWN
        self._roots = roots
        self._previews = NOTHING
        self._prefetcher = self._new_prefetcher()
        self._recovery = recovery
        self._confirmed = self._opened()
        self._check_owner(self._confirmed.marks, stored.uri)
        self._epoch = self._confirmed.marks.epoch + 1
        self._state = WRITER.machine()
        # The table with all that was prepared: the next group is folded on it.
        self._ahead = self._confirmed
        self._reopened_at: Position | None = None
        self._reported_below = 0
        self._is_branch_recorded = False
        self._files_after = FilesAfterWriter()
        self._needs = NeededVersions(stored, roots)
        self.late_versions_removed = 0
        self.absent_removals: list[AbsentRemovals] = []

    @property
    def table(self) -> FoldedTable:
        """The table as of its newest version that is known to be published."""
        return self._confirmed

    @property
    def ahead(self) -> FoldedTable:
        """The table as it will be once all that was prepared is published."""
        return self._ahead

    @property
    def epoch(self) -> int:
        """The owner's number under which versions are published."""
        return self._epoch

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory the table takes: mostly its manifest."""
        state = self._confirmed.state
        return 0 if state is None else state.memory_bytes

    def resume(self, epoch: int) -> None:
        """Continues as the owner of this epoch, if no other committer has taken over since it published."""
        if self._confirmed.marks.epoch == epoch:
            self._epoch = epoch
            self._state.send(WriterEvent.RESUMED)

    def fold(self, group: Sequence[Entry]) -> GroupResult:
        """Folds a group and publishes its version. The outcomes hold when this returns.

        Returns fewer outcomes than entries if only the first of them can share a version on the table as it
        is now. The others are still to be folded. Raises as `prepare` and `put` do. After `RetryError` it may
        be called again with the same group.
        """
        while True:
            prepared = self.prepare(group)
            try:
                is_published = self.put(prepared)
            except BaseException:
                self.fall_back()
                raise
            if is_published:
                return self.confirm(prepared)
            self.fall_back(lost=True)

    def prepare(self, group: Sequence[Entry]) -> Prepared:
        """Folds a group in memory, or its first entries, on all that was prepared before it.

        Raises `RetryError` if the store can't be reached, `FencedError` if another committer owns the table,
        `GapError` if it follows another log, and other kinds if nothing can be folded into the table.
        """
        if self._state.state in BEHIND:
            self._catch_up(group[0].position)
        self._state.send(WriterEvent.FOLD_BEGUN)
        self._ahead = self._ahead.reported_below(self._reported_below)
        with self._seen_dropped():
            folded, fetched = self._folded(group)
        self._ahead = folded.table
        if folded.publication is not None:
            self._state.send(WriterEvent.VERSION_PREPARED)
        self._prefetcher.remember(folded)  # The next group may be folded before these are written.
        done = tuple(group[: len(folded.outcomes)])
        return Prepared(done, folded, files_in(fetched), fetched.states, fetched.restored)

    def put(self, prepared: Prepared, sure: Callable[[], None] | None = None) -> bool:
        """Changes the tags and publishes what was prepared, in its order.

        Returns False if another version has its number, or others changed a tag or remove what is needed.
        `sure` waits for the conditions of the group, or raises: then nothing is published. If the group
        changes nothing, the next version must not exist: a refusal may only be reported on the newest one.
        Raises `RetryError` if the store can't be reached: put the same again, or fall back. Raises
        `StopError` if the table was dropped: open it again.
        """
        needed = self._needs.held(prepared.folded, prepared.states, prepared.restored)
        with self._seen_dropped(), needed as are_kept:
            return are_kept and self._put(prepared, sure)

    def _put(self, prepared: Prepared, sure: Callable[[], None] | None) -> bool:
        publication, after, tags = prepared.folded.publication, prepared.folded.table, prepared.folded.tags
        is_late = partial(self._is_next_published, after, prepared.folded.outcomes)
        if publication is None:
            if sure is not None:
                sure()
            at = prepared.group[0].position
            # A table of another log was read again since, which is enough: its owner may always be quicker.
            is_read = self._reopened_at == at and misplaced(after.marks, at) is not None
            return is_read or (write_tags(self._stored.storage, tags, is_late) and not is_late())
        if _has_invalid(prepared.folded.outcomes):
            # An entry may be invalid because versions are missing here that its writer has read.
            self._stored.versions.doubt()
        self._prefetcher.sync(prepared.files)
        # The version covers the tags' positions, so they are changed first; if it exists, they were.
        is_taken = partial(self._is_published, publication.version, prepared.folded.outcomes)
        if tags and not is_taken():
            if sure is not None:
                sure()
            if not write_tags(self._stored.storage, tags, is_taken):
                return False
        is_first = self._state.state is WriterState.ANNOUNCING
        if self._publish(publication, after, sure) is Published.THEIRS:
            return False
        if is_first:
            write_tags_again(self._stored.storage, tags, is_late)
            self._needs.remove_ended(after)
        self._record_branch(after)
        self._files_after.write(self._stored, after)
        return True

    def confirm(self, prepared: Prepared) -> GroupResult:
        """Notes that what was prepared is published. Returns the result of its group."""
        self._confirmed = prepared.folded.table
        self._prefetcher.forget(prepared.folded)
        if prepared.folded.publication is not None:
            self._state.send(WriterEvent.VERSION_PUBLISHED)
            if self._recovery is not None:
                self._recovery.add_published(self._confirmed.uri, prepared.folded.outcomes)
        return prepared.step

    def fall_back(self, *, lost: bool = False) -> None:
        """Forgets what was prepared and not confirmed. `lost`: versions of others are read before a fold."""
        self._ahead = self._confirmed
        self._prefetcher.forget_all()
        self._state.send(WriterEvent.VERSION_LOST if lost else WriterEvent.FALLEN_BACK)

    def reported(self, below: int | None = None) -> None:
        """Notes that all outcomes, or those of entries below an offset, have been reported."""
        if below is None:
            self._confirmed = self._ahead = self._ahead.reported()
        else:
            self._reported_below = below

    def preview(self, group: Sequence[Entry], previews: Previews) -> GroupResult:
        """Folds a group in memory only. Returns the outcomes and the version that `fold` would.

        After this the object can't `fold`. For all that share `previews`, what it folds counts as stored.
        """
        if self._previews is NOTHING:
            previews.begin(self._confirmed)
            self._previews = previews
            self._prefetcher = self._new_prefetcher()
        self._state.send(WriterEvent.PREVIEWED)
        prepared = self.prepare(group)
        previews.add(self._stored.format.refs, self._confirmed, prepared.folded)
        self._confirmed = prepared.folded.table
        return prepared.step

    def _opened(self) -> FoldedTable:
        """Returns the table as it is stored now.

        Raises `StopError` if there was a table, and something else is stored there.
        """
        try:
            return open_table(self._stored, self._recovery)
        except LocationError as error:
            if isinstance(error, NotATableError) and self._take_stored_format():
                return open_table(self._stored, self._recovery)
            check_absent(self._stored, "", self._recovery, problem=error.message)
            raise

    def _folded(self, group: Sequence[Entry]) -> tuple[Folded, Fetched]:
        """Returns the result of the fold, and what was read for it."""
        if self._ahead.state is None:
            self._take_format(group[0])
            group = self._answerable(group)
        elif group[0].fault is not None and self._confirmed.state is not None and self._previews is NOTHING:
            # The file of a claim is missing. That counts only if the store has the table's other files.
            self._stored.versions.check_any_exists(self._confirmed.version)
        log = group[0].position.log
        accept = None if self._recovery is None else self._recovery.accept
        check_log(self._ahead.marks, group[0].position, self._ahead.uri, accept)
        self._ahead, fetched = fetch(self._stored, self._prefetcher, self._ahead, group)
        covered = self._ahead.marks.offset_of(log)
        before = [entry.position.offset for entry in group if entry.position.offset <= covered]
        inputs = FoldInputs(
            epoch=self._epoch,
            must_publish=self._must_publish(log, anything_new=len(before) < len(group)),
            answers=self._answers_before(log, before),
            outcomes_offset=self._outcomes_offset(log),
            owner=None if log.is_file else self._owner,
            clock_us=time.time_ns() // 1000,
            last=self._last_committed(group[0]),
        )
        return fold(self._stored.format, self._ahead, group, fetched, inputs), fetched

    def _last_committed(self, entry: Entry) -> Position | None:
        """Returns the last position that was committed to the entry's branch, if that no longer exists."""
        if self._recovery is None or self._ahead.state is not None or not entry.envelope.branch:
            return None
        index = self._recovery.outcome_index
        last = None if index is None else index.last_committed(self._ahead.uri)
        return None if last is None else last.position

    def _take_format(self, entry: Entry) -> None:
        """Gives a table that does not exist the format of the entry that is folded first.

        Raises `NotATableError` if data files of another format may be at the root.
        """
        own = self._stored.format
        if self._formats is None or entry.proposal is None or entry.proposal.format == own.name:
            return
        table_format = self._formats.of_entry(entry)
        if own.is_data_name is not None:
            self._stored.in_format(table_format).versions.latest()
        self._use(table_format)

    def _take_stored_format(self) -> bool:
        """Takes another format if the table has it, or if a crash left only the beginning of such a table.

        Returns whether it has taken one.
        """
        for table_format in self._formats or ():
            versions = self._stored.in_format(table_format).versions
            is_other = table_format.name != self._stored.format.name
            if is_other and (versions.has_any() or versions.may_begin()):
                self._use(table_format)
                return True
        return False

    def _use(self, table_format: AnyFormat) -> None:
        self._stored = self._stored.in_format(table_format)
        self._prefetcher = self._new_prefetcher()

    def _new_prefetcher(self) -> Prefetcher:
        return Prefetcher(
            self._stored,
            self._roots,
            size_check=self._size_check,
            formats=self._formats,
            previews=self._previews,
        )

    def _answerable(self, group: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the entries that may be answered without a table.

        If this raises, the table is opened again before the next group is folded.
        """
        try:
            return answerable(self._stored, group, self._recovery)
        except BaseException:
            self._state.send(WriterEvent.ABSENCE_DOUBTED)
            raise

    def _record_branch(self, table: FoldedTable) -> None:
        """Records a branch in its table, once for each time that it was opened.

        No decision depends on the record. If a committer dies before this, the next one does it.
        """
        branch = "" if table.state is None else table.state.branch
        if branch and not self._is_branch_recorded:
            record_branch(self._stored, branch, self._roots)
            self._is_branch_recorded = True

    @property
    def _owner(self) -> Owner | None:
        return None if self._recovery is None else self._recovery.owner

    def _check_owner(self, marks: Marks, uri: str) -> None:
        """Raises `OutnumberedError` if a committer that took over from this one made the version."""
        if self._owner is not None and marks.owner is not None and self._owner.precedes(marks.owner):
            raise OutnumberedError(
                f"version {marks.version} was published by committer number {marks.owner.generation} of the "
                f"partition, and this one has number {self._owner.generation}",
                generation=marks.owner.generation,
                where=uri,
                hint="another committer has taken over; this one stops",
            )

    def _outcomes_offset(self, log: LogId) -> int | None:
        """Returns the offset up to which the outcomes of this log are known, None if it is unknown."""
        offset = self._recovery is not None and self._recovery.log == log and self._recovery.outcomes_offset
        return offset() if offset else None

    def _must_publish(self, log: LogId, *, anything_new: bool) -> bool:
        """Returns whether a version is made even if every entry is refused.

        In Kafka's log that is the owner's first version, which fences others. In a file log it is each
        version with new answers, since no committed offset shows what was answered.
        """
        return anything_new if log.is_file else self._state.state is WriterState.UNANNOUNCED

    def _answers_before(self, log: LogId, offsets: Sequence[int]) -> dict[int, Result]:
        newest = self._previews.stored(self._confirmed.uri, self._confirmed.marks.version)
        return answers_before(self._stored, newest, log, offsets) if offsets else {}

    def _publish(
        self, publication: Publication, after: FoldedTable, sure: Callable[[], None] | None
    ) -> Published:
        follows = partial(is_followed, self._stored, after.state)
        for _ in range(UNKNOWN_PUTS):
            try:
                published = self._stored.versions.publish(publication, sure, follows)
            except StopError:
                removed = remove_late(self._stored, publication, after.state)
                self.late_versions_removed += removed
                raise
            if published is not Published.UNKNOWN:
                return published
        message = f"version {publication.version} was put {UNKNOWN_PUTS} times without an answer"
        hint = "check the store; the same version is put again"
        raise RetryError(message, where=self._ahead.uri, hint=hint)

    @contextmanager
    def _seen_dropped(self) -> Iterator[None]:
        """Raises `StopError` instead of `RetryError` if the table was dropped since it was opened."""
        try:
            yield
        except RetryError as error:
            if self._previews is not NOTHING or self._confirmed.state is None:
                raise
            if not is_dropped(self._stored, self._confirmed):
                raise
            message, hint = "the table was dropped", "the table that is stored there now is opened"
            raise StopError(message, where=self._confirmed.uri, hint=hint) from error

    def _is_next_published(self, table: FoldedTable, outcomes: Sequence[Outcome]) -> bool:
        """Returns whether another client has published a version after this one."""
        if table.state is None:
            return self._stored.versions.latest() >= self._stored.versions.first
        return self._is_published(table.version + 1, outcomes)

    def _is_published(self, version: int, outcomes: Sequence[Outcome]) -> bool:
        """Returns whether this version exists, which is the next one.

        Raises `StopError` if others have published more and removed it.
        """
        if not self._stored.storage.cheap_size or _has_invalid(outcomes):
            # Others may have published more, and removed the next version: then this one refuses nothing.
            self._stored.versions.doubt()
        self._stored.versions.check_newest(version - 1)
        return self._stored.versions.exists(version)

    def _catch_up(self, at: Position) -> None:
        """Reads the versions that others published after the last confirmed version."""
        table = self._confirmed.reported_below(self._reported_below)
        try:
            if table.state is None or misplaced(table.marks, at) is not None:
                table = self._reopened(table, at)
            else:
                while self._stored.versions.exists(table.version + 1):
                    table = self._taken_in(table, at)
        except FencedError:
            self._state.send(WriterEvent.FENCED)
            raise
        self._confirmed = self._ahead = table
        self._state.send(WriterEvent.CAUGHT_UP)

    def _reopened(self, table: FoldedTable, at: Position) -> FoldedTable:
        """Returns the table as it is stored now: it may have been bound to this log meanwhile."""
        pending = table.pending
        # The epoch of another log's committer has no meaning in this log.
        table = self._opened()
        self._check_owner(table.marks, table.uri)
        table = _without_recorded(replace(table, pending=pending))
        self._raise_epoch(table.marks)
        self._reopened_at = at
        return table

    def _raise_epoch(self, marks: Marks) -> None:
        """Begins an epoch above that of these marks. No version of the new epoch is published yet."""
        self._epoch = max(self._epoch, marks.epoch + 1)
        self._state.send(WriterEvent.EPOCH_RAISED)

    def _taken_in(self, table: FoldedTable, at: Position) -> FoldedTable:
        """Returns the table after the next version, which another client has published."""
        own, version = self._stored.format, table.version + 1
        state = self._stored.read_newest(version, table.state)
        if table.state is not None:
            check_follows(table.state, state, table.uri)
        if not is_own(state.properties, version):
            own.check_writable(state, table.uri)
            before = table.state
            followed = state if before is None else own.follow_foreign(before, state)
            absent = () if before is None else own.absent_removals(before, state)
            self.absent_removals += absent_removals(table.uri, version, absent)
            return replace(table, state=followed, marks=after_foreign(table.marks, state))
        marks = own_marks(state, table.uri)
        check_rules(marks.rules, table.uri)
        self._check_owner(marks, table.uri)
        is_unordered = self._owner is None or marks.owner is None or marks.owner.chain != self._owner.chain
        if is_unordered and marks.epoch > self._epoch and misplaced(marks, at) is None:
            raise FencedError(
                f"version {version} was published by a committer of a later epoch: {marks.epoch}, "
                f"this one has {self._epoch}",
                where=table.uri,
                hint="another committer has taken over; this one stops",
            )
        if marks.epoch >= self._epoch:
            self._raise_epoch(marks)
        return _without_recorded(FoldedTable(table.uri, state, marks, table.pending))


def _without_recorded(table: FoldedTable) -> FoldedTable:
    """Returns the table without the pending refusals that its newest version records.

    Raises `FencedError` if that version's committer gave another answer. Both may be right, by what each of
    them read of the store, and the recorded answer holds. This one was not reported yet, so the next start
    reads the recorded answers.
    """
    marks = table.marks
    covered = [
        outcome
        for outcome in table.pending
        if outcome.position.offset <= marks.offset_of(outcome.position.log)
    ]
    if not covered or table.state is None:
        return table
    record = decode_record(table.state.properties, table.uri)
    for outcome in covered:
        position = outcome.position
        if record is None or record.log != position.log or record.answer(position.offset) != outcome.result:
            raise FencedError(
                f"another committer has answered {position} in version {marks.version}",
                where=table.uri,
                hint="two committers fold this table; this one stops",
            )
    return replace(table, pending=tuple(outcome for outcome in table.pending if outcome not in covered))


def _has_invalid(outcomes: Sequence[Outcome]) -> bool:
    return any(isinstance(outcome.result, Invalid) for outcome in outcomes)
