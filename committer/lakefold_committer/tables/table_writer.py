"""A table that this committer folds for: state in memory, the conditional put, and what a lost one means.

Correctness doesn't depend on being the only one (fence-by-fact): whoever loses a put reads the winner's
version and folds again on it; whoever meets a higher epoch steps down.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakefold_committer.fold.binding import check_log, misplaced
from lakefold_committer.fold.fold import Folded, Table, Terms, fold
from lakefold_committer.recovery.missing_table import answerable, check_absent, is_dropped
from lakefold_committer.recovery.open_table import check_rules, open_table
from lakefold_committer.recovery.recover_marks import check_follows
from lakefold_committer.recovery.stored_versions import own_marks, read_newest
from lakefold_committer.states.charts import WRITER, WriterEvent, WriterState
from lakefold_committer.tables.branch_origin import record_branch
from lakefold_committer.tables.prefetcher import Look, Prefetcher
from lakefold_committer.tables.requirements import answers_before, files_in, observe
from lakefold_committer.tables.stray_files import is_followed, remove_stray
from lakefold_table.entry import Invalid
from lakefold_table.errors import FencedError, OutnumberedError, PlaceError, RetryError, StopError
from lakefold_table.marks.record import decode_record, is_own
from lakefold_table.marks.rollbacks import after_foreign
from lakefold_table.versions.versions import Published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.entry import Entry, Outcome, Result
    from lakefold_table.format import AnyFormat, Publication
    from lakefold_table.formats import Formats
    from lakefold_table.marks.marks import Marks
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import LogId, Position
    from lakefold_table.versions.versions import Versions

BEHIND = (WriterState.BEHIND, WriterState.BEHIND_AS_OWNER)
"""What others published is read before the next group is folded."""
UNKNOWN_PUTS = 5
"""How often a put of unknown end is tried again before the store counts as not reachable."""


@dataclass(frozen=True, slots=True)
class Step:
    """What folding one group came to: an outcome for each entry, the version published (None: no change)."""

    outcomes: tuple[Outcome, ...]
    publication: Publication | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group that is folded in memory. Its outcomes hold once it was put.

    `files`: those of the table that the fold looked at because the entries name them.
    """

    group: tuple[Entry, ...]
    folded: Folded
    files: Sequence[str] = ()

    @property
    def step(self) -> Step:
        """What it comes to when it was put."""
        return Step(self.folded.outcomes, self.folded.publication)


class TableWriter:
    """One table, opened.

    `prepare` folds a group in memory, `put` publishes what was prepared; the next group may be prepared while
    one is being put, each by a thread of its own. A put that found another's version in its place makes what
    was prepared since worthless: `fall_back`, and prepare it all again. `fold` does it one after the other.

    `check_sizes`: look at the size of each new file (None: where that is cheap). `roots`: where other tables
    that entries name may lie (None: anywhere), and `storage_options` how they are reached. `proofs`: what
    proves the marks from outside. `formats`: those that the table may get if it does not exist yet (None:
    only `table_format`).
    """

    def __init__(
        self,
        table_format: AnyFormat,
        versions: Versions,
        uri: str,
        *,
        check_sizes: bool | None = None,
        roots: Sequence[str] | None = None,
        proofs: RecoveryContext | None = None,
        storage_options: Mapping[str, str] | None = None,
        formats: Formats | None = None,
    ) -> None:
        self._format = table_format
        self._formats = formats
        self._versions = versions
        looks = versions.storage.cheap_size if check_sizes is None else check_sizes
        self._look = Look.ALL if looks else Look.UNSAID
        self._roots = roots
        self._bringer = Prefetcher(table_format, versions, roots, look=self._look, options=storage_options)
        self._options = storage_options
        self._proofs = proofs
        self._stands = self._opened(uri)
        self._check_owner(self._stands.marks, uri)
        self._epoch = self._stands.marks.epoch + 1
        self._state = WRITER.machine()
        # As after everything that was prepared: what the next group is folded on.
        self._table = self._stands
        self._looked_at: Position | None = None
        self._reported_below = 0
        self._stored: int | None = None
        self._recorded = False
        self.strays_removed = 0
        """How many files this committer put too late, and removed."""

    @property
    def table(self) -> Table:
        """The table as it is known to stand."""
        return self._stands

    @property
    def ahead(self) -> Table:
        """The table as it will be once everything is put that was prepared."""
        return self._table

    @property
    def epoch(self) -> int:
        """The owner's number under which versions are published."""
        return self._epoch

    @property
    def memory_bytes(self) -> int:
        """About how much of memory the table takes: mostly its manifest."""
        state = self._stands.state
        return 0 if state is None else state.memory_bytes

    def resume(self, epoch: int) -> None:
        """Continues as the owner of this epoch, if no other committer has taken over since it published."""
        if self._stands.marks.epoch == epoch:
            self._epoch = epoch
            self._state.send(WriterEvent.RESUMED)

    def fold(self, group: Sequence[Entry]) -> Step:
        """Folds one group and publishes its version; the outcomes hold when this returns.

        There are fewer outcomes than entries where the table, as it is by now, lets only the first of them
        share a version; the others are still to be folded. Raises as `prepare` and `put` do. After
        `RetryError` it may be called again with the same group.
        """
        while True:
            prepared = self.prepare(group)
            try:
                stands = self.put(prepared)
            except BaseException:
                self.fall_back()
                raise
            if stands:
                return self.confirm(prepared)
            self.fall_back(lost=True)

    def prepare(self, group: Sequence[Entry]) -> Prepared:
        """Folds a group in memory, or the first of it, on all that was prepared before it.

        Raises `RetryError` where the store can't be reached, `FencedError` where another committer owns the
        table, `GapError` where it follows another log, other kinds where it can't be gone on with.
        """
        if self._state.state in BEHIND:
            self._catch_up(group[0].position)
        self._state.send(WriterEvent.FOLD_BEGUN)
        self._table = self._table.reported_below(self._reported_below)
        with self._seen_dropped():
            folded, files = self._folded(group)
        group = group[: len(folded.outcomes)]
        self._table = folded.table
        if folded.publication is not None:
            self._state.send(WriterEvent.VERSION_PREPARED)
            # The next group may be folded before these are written.
            self._bringer.remember(folded.publication.before)
        return Prepared(tuple(group), folded, files)

    def put(self, prepared: Prepared, sure: Callable[[], None] | None = None) -> bool:
        """Publishes what was prepared, in its order; False where somebody else's version is in its place.

        `sure` waits for what must hold for the group to count; what it raises is raised, and nothing was
        published. Where there is nothing to publish, the next version is probed absent: a refusal may only be
        reported on the newest one. Raises `RetryError` where the store can't be reached: put the same again,
        or fall back. Raises `StopError` where the table was dropped: open it anew.
        """
        with self._seen_dropped():
            return self._put(prepared, sure)

    def _put(self, prepared: Prepared, sure: Callable[[], None] | None) -> bool:
        publication, after = prepared.folded.publication, prepared.folded.table
        if publication is None:
            if sure is not None:
                sure()
            at = prepared.group[0].position
            # Of what is another's it is enough to have looked since: its owner may be quicker for ever.
            looked = self._looked_at == at and misplaced(after.marks, at) is not None
            return looked or not self._next_is_there(after, prepared.folded.outcomes)
        if any(isinstance(one.result, Invalid) for one in prepared.folded.outcomes):
            # What is wrong with an entry may be that versions are missing here which it has seen.
            self._versions.doubt()
        self._bringer.sync(prepared.files)
        if self._publish(publication, after, sure) is Published.THEIRS:
            return False
        self._record_branch(after)
        return True

    def confirm(self, prepared: Prepared) -> Step:
        """Notes that what was prepared has been put."""
        self._stands = prepared.folded.table
        if prepared.folded.publication is not None:
            self._state.send(WriterEvent.VERSION_PUBLISHED)
            self._bringer.forget(prepared.folded.publication.before)
            if self._proofs is not None:
                self._proofs.tell(self._stands.uri, prepared.folded.outcomes)
        return prepared.step

    def fall_back(self, *, lost: bool = False) -> None:
        """Forgets what was prepared and not confirmed. `lost`: what others published is taken in first."""
        self._table = self._stands
        self._bringer.forget_all()
        self._state.send(WriterEvent.VERSION_LOST if lost else WriterEvent.FALLEN_BACK)

    def reported(self, below: int | None = None) -> None:
        """Notes that all outcomes given so far, or those of offsets below, have been reported."""
        if below is None:
            self._stands = self._table = self._table.reported()
        else:
            self._reported_below = below

    def preview(self, group: Sequence[Entry]) -> Step:
        """Folds one group in memory only: outcomes and versions as `fold` would give them.

        An object that was used so can't `fold` any more: it takes its previews for versions.
        """
        if self._stored is None:
            self._stored = self._stands.version
        self._state.send(WriterEvent.PREVIEWED)
        prepared = self.prepare(group)
        self._stands = prepared.folded.table
        return prepared.step

    def _opened(self, uri: str) -> Table:
        """The table as it is there now; `StopError` where something else is, and there was a table."""
        try:
            return open_table(self._format, self._versions, uri, self._proofs)
        except PlaceError as error:
            if self._take_format_there():
                return open_table(self._format, self._versions, uri, self._proofs)
            check_absent(self._format, uri, "", self._proofs, self._options, seen=error.message)
            raise

    def _folded(self, group: Sequence[Entry]) -> tuple[Folded, Sequence[str]]:
        """The fold, and which files of the table it looked at."""
        if self._table.state is None:
            self._take_format(group[0])
            group = self._answerable(group)
        elif group[0].fault is not None and self._stands.state is not None and self._stored is None:
            # What was claimed is missing; so is all else of a store that is away.
            self._versions.check_there(self._stands.version)
        log = group[0].position.log
        accept = None if self._proofs is None else self._proofs.accept
        check_log(self._table.marks, group[0].position, self._table.uri, accept)
        self._table, observed = observe(self._format, self._versions, self._bringer, self._table, group)
        covered = self._table.marks.offset_of(log)
        before = [entry.position.offset for entry in group if entry.position.offset <= covered]
        terms = Terms(
            epoch=self._epoch,
            must_publish=self._must_publish(log, anything_new=len(before) < len(group)),
            answers=self._answers_before(log, before),
            outcomes_offset=self._outcomes_offset(log),
            owner=None if log.is_file else self._owner,
            clock_us=time.time_ns() // 1000,
        )
        return fold(self._format, self._table, group, observed, terms), files_in(observed)

    def _take_format(self, entry: Entry) -> None:
        """A table that does not exist gets the format of the entry that is folded first."""
        if self._formats is None or entry.proposal is None or entry.proposal.format == self._format.name:
            return
        self._use(self._formats.of_entry(entry))

    def _take_format_there(self) -> bool:
        """Takes the format of a table that another committer began meanwhile; returns whether one did."""
        for one in self._formats or ():
            versions = self._versions.in_format(one.folder, one.detect)
            if one.name != self._format.name and versions.has_any():
                self._use(one)
                return True
        return False

    def _use(self, table_format: AnyFormat) -> None:
        self._format = table_format
        self._versions = self._versions.in_format(self._format.folder, self._format.detect)
        self._bringer = Prefetcher(
            self._format, self._versions, self._roots, look=self._look, options=self._options
        )

    def _answerable(self, group: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the entries that may be answered without a table.

        If this raises, the table is looked for again before the next group is folded.
        """
        try:
            return answerable(self._format, self._table.uri, group, self._proofs, self._options)
        except BaseException:
            self._state.send(WriterEvent.ABSENCE_DOUBTED)
            raise

    def _record_branch(self, table: Table) -> None:
        """Has the table that this is a branch of know it, once for each time the branch was opened.

        Nothing is decided by it; where a committer died before it got here, the next one does it.
        """
        branch = "" if table.state is None else table.state.branch
        if branch and not self._recorded:
            record_branch(self._versions.storage, branch, self._roots, self._options)
            self._recorded = True

    @property
    def _owner(self) -> Owner | None:
        return None if self._proofs is None else self._proofs.owner

    def _check_owner(self, marks: Marks, uri: str) -> None:
        """Raises `OutnumberedError` if the version was made by who took over from this committer."""
        if self._owner is not None and marks.owner is not None and self._owner.precedes(marks.owner):
            raise OutnumberedError(
                f"version {marks.version} was published by committer {marks.owner.generation} of a row in "
                f"which this one is {self._owner.generation}",
                generation=marks.owner.generation,
                where=uri,
                hint="another committer has taken over; this one stops",
            )

    def _outcomes_offset(self, log: LogId) -> int | None:
        """How far the outcomes of this log are known; None where nobody can tell."""
        told = self._proofs is not None and self._proofs.log == log and self._proofs.outcomes_offset
        return told() if told else None

    def _must_publish(self, log: LogId, *, anything_new: bool) -> bool:
        """Whether a version is made even if every entry is refused.

        From Kafka the owner's first one, which fences others. From a file each one that says anything new: no
        offset is kept beside the table that could say what was answered.
        """
        return anything_new if log.is_file else self._state.state is WriterState.UNANNOUNCED

    def _answers_before(self, log: LogId, offsets: Sequence[int]) -> dict[int, Result]:
        newest = self._stands.marks.version if self._stored is None else self._stored
        return answers_before(self._format, self._versions, newest, log, offsets) if offsets else {}

    def _publish(self, publication: Publication, after: Table, sure: Callable[[], None] | None) -> Published:
        follows = partial(is_followed, self._format, self._versions, after.state)
        for _ in range(UNKNOWN_PUTS):
            try:
                published = self._versions.publish(publication, sure, follows)
            except StopError:
                removed = remove_stray(self._format, self._versions, publication, after.state, self._options)
                self.strays_removed += removed
                raise
            if published is not Published.UNKNOWN:
                return published
        raise RetryError(
            f"version {publication.version} was put {UNKNOWN_PUTS} times without an answer",
            where=self._table.uri,
            hint="the store seems unwell; the same version is tried again",
        )

    @contextmanager
    def _seen_dropped(self) -> Iterator[None]:
        """Tells a table that is away for now from one that was dropped since it was opened."""
        try:
            yield
        except RetryError as error:
            if self._stored is not None or self._stands.state is None:
                raise
            if not is_dropped(self._versions, self._stands, self._options):
                raise
            message, hint = "the table was dropped", "what is there by now is opened"
            raise StopError(message, where=self._stands.uri, hint=hint) from error

    def _next_is_there(self, table: Table, outcomes: Sequence[Outcome]) -> bool:
        """Whether somebody else published after this."""
        if table.state is None:
            return self._versions.latest() > 0
        if not self._versions.storage.cheap_size or any(isinstance(one.result, Invalid) for one in outcomes):
            # Others may have gone on, and removed the next version: then nothing is refused on this one.
            self._versions.doubt()
        self._versions.prove_newest(table.version)
        return self._versions.exists(table.version + 1)

    def _catch_up(self, at: Position) -> None:
        """Takes in the versions that others made after what stands."""
        table = self._stands.reported_below(self._reported_below)
        try:
            if table.state is None or misplaced(table.marks, at) is not None:
                table = self._reopened(table, at)
            else:
                while self._versions.exists(table.version + 1):
                    table = self._taken_in(table, at)
        except FencedError:
            self._state.send(WriterEvent.FENCED)
            raise
        self._stands = self._table = table
        self._state.send(WriterEvent.CAUGHT_UP)

    def _reopened(self, table: Table, at: Position) -> Table:
        """Returns the table as it is now: one of another log may be bound to this one by now."""
        pending = table.pending
        # The epoch of another log's committer says nothing here.
        table = self._opened(table.uri)
        self._check_owner(table.marks, table.uri)
        table = _without_recorded(replace(table, pending=pending))
        self._raise_epoch(table.marks)
        self._looked_at = at
        return table

    def _raise_epoch(self, marks: Marks) -> None:
        """Begins an epoch above that of these marks, of which no version is published."""
        self._epoch = max(self._epoch, marks.epoch + 1)
        self._state.send(WriterEvent.EPOCH_RAISED)

    def _taken_in(self, table: Table, at: Position) -> Table:
        """The table with the version that somebody made after it."""
        version = table.version + 1
        state = read_newest(self._format, self._versions, version)
        if table.state is not None:
            check_follows(table.state, state, table.uri)
        if not is_own(state.properties, version):
            self._format.check_writable(state, table.uri)
            followed = self._format.follow_foreign(table.state, state) if table.state is not None else state
            return replace(table, state=followed, marks=after_foreign(table.marks, state))
        marks = own_marks(state, table.uri)
        check_rules(marks, table.uri)
        self._check_owner(marks, table.uri)
        strange = self._owner is None or marks.owner is None or marks.owner.chain != self._owner.chain
        if strange and marks.epoch > self._epoch and misplaced(marks, at) is None:
            raise FencedError(
                f"version {version} was published by a committer of a later epoch: {marks.epoch}, "
                f"this one has {self._epoch}",
                where=table.uri,
                hint="another committer has taken over; this one stops",
            )
        if marks.epoch >= self._epoch:
            self._raise_epoch(marks)
        return _without_recorded(Table(table.uri, state, marks, table.pending))


def _without_recorded(table: Table) -> Table:
    """The table without the pending refusals that its newest version records.

    Raises `FencedError` where that version's committer answered something else. Both may be right, by what
    each of them saw of the store; what the table recorded holds. Nothing was reported yet, so whoever starts
    again reads the recorded answers.
    """
    covered = [one for one in table.pending if one.position.offset <= table.marks.offset_of(one.position.log)]
    if not covered or table.state is None:
        return table
    record = decode_record(table.state.properties, table.uri)
    for one in covered:
        if (
            record is None
            or record.log != one.position.log
            or record.answer(one.position.offset) != one.result
        ):
            raise FencedError(
                f"another committer has answered {one.position} in version {table.marks.version}",
                where=table.uri,
                hint="two committers fold this table; this one stops",
            )
    return replace(table, pending=tuple(one for one in table.pending if one not in covered))
