"""A table that this committer folds for: state in memory, the conditional put, and what a lost one means.

Correctness doesn't depend on being the only one (fence-by-fact): whoever loses a put reads the winner's
version and folds again on it; whoever meets a higher epoch steps down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakefold_committer.binding import check_log, misplaced
from lakefold_committer.branching import record_branch
from lakefold_committer.bringing import Bringer
from lakefold_committer.fold import Folded, Table, Terms, fold
from lakefold_committer.observing import answers_before, observe
from lakefold_committer.opening import check_rules, open_table
from lakefold_committer.stored import own_marks, read_newest
from lakefold_log.record import is_own
from lakefold_table.errors import FencedError, RetryError
from lakefold_table.versions import Published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.proofs import Proofs
    from lakefold_table.entry import Entry, LogId, Outcome, Position, Result
    from lakefold_table.format import AnyFormat, Publication
    from lakefold_table.versions import Versions

UNKNOWN_PUTS = 5
"""How often a put of unknown end is tried again before the store counts as not reachable."""


@dataclass(frozen=True, slots=True)
class Step:
    """What folding one group came to: an outcome for each entry, the version published (None: no change)."""

    outcomes: tuple[Outcome, ...]
    publication: Publication | None


class OwnedTable:
    """One table, opened.

    `check_sizes`: look at the size of each new file (None: where that is cheap). `roots`: where other tables
    that entries name may lie (None: anywhere). `proofs`: what proves the marks from outside.
    """

    def __init__(
        self,
        table_format: AnyFormat,
        versions: Versions,
        uri: str,
        *,
        check_sizes: bool | None = None,
        roots: Sequence[str] | None = None,
        proofs: Proofs | None = None,
    ) -> None:
        self._format = table_format
        self._versions = versions
        looks = versions.storage.cheap_size if check_sizes is None else check_sizes
        self._bringer = Bringer(table_format, versions, roots, check_sizes=looks)
        self._proofs = proofs
        self._table = open_table(table_format, versions, uri, proofs)
        self._epoch = self._table.marks.epoch + 1
        self._published = False
        self._stored: int | None = None
        self._roots = roots
        self._recorded = False

    @property
    def table(self) -> Table:
        """The table as it is known now."""
        return self._table

    def fold(self, group: Sequence[Entry]) -> Step:
        """Folds one group and publishes its version; the outcomes hold when this returns.

        There are fewer outcomes than entries where the table, as it is by now, lets only the first of them
        share a version; the others are still to be folded.

        Raises `RetryError` where the store can't be reached (call again with the same group), `StopError`
        where another committer owns the table.
        """
        at = group[0].position
        while True:
            folded = self._folded(group)
            if folded.publication is None:
                if misplaced(self._table.marks, at) is None and self._next_is_there():
                    self._catch_up(at)
                    continue
            elif self._publish(folded.publication) is Published.THEIRS:
                self._catch_up(at)
                continue
            else:
                self._published = True
            self._table = folded.table
            self._record_branch()
            return Step(folded.outcomes, folded.publication)

    def reported(self) -> None:
        """Notes that all outcomes given so far have been reported."""
        self._table = self._table.reported()

    def preview(self, group: Sequence[Entry]) -> Step:
        """Folds one group in memory only: outcomes and versions as `fold` would give them.

        An object that was used so can't `fold` any more: it takes its previews for versions.
        """
        if self._stored is None:
            self._stored = self._table.version
        folded = self._folded(group)
        if folded.publication is not None:
            self._published = True
            self._bringer.remember(folded.publication.before)
        self._table = folded.table
        return Step(folded.outcomes, folded.publication)

    def _folded(self, group: Sequence[Entry]) -> Folded:
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
        )
        return fold(self._format, self._table, group, observed, terms)

    def _record_branch(self) -> None:
        """Has the table that this is a branch of know it, once for each time the branch was opened.

        Nothing is decided by it; where a committer died before it got here, the next one does it.
        """
        branch = "" if self._table.state is None else self._table.state.branch
        if branch and not self._recorded:
            record_branch(self._versions.storage, branch, self._roots)
            self._recorded = True

    def _outcomes_offset(self, log: LogId) -> int | None:
        """How far the outcomes of this log are known; None where nobody can tell."""
        told = self._proofs is not None and self._proofs.log == log and self._proofs.outcomes_offset
        return told() if told else None

    def _must_publish(self, log: LogId, *, anything_new: bool) -> bool:
        """Whether a version is made even if every entry is refused.

        From Kafka the owner's first one, which fences others. From a file each one that says anything new: no
        offset is kept beside the table that could say what was answered.
        """
        return anything_new if log.is_file else not self._published

    def _answers_before(self, log: LogId, offsets: Sequence[int]) -> dict[int, Result]:
        newest = self._table.marks.version if self._stored is None else self._stored
        return answers_before(self._versions, newest, log, offsets) if offsets else {}

    def _publish(self, publication: Publication) -> Published:
        for _ in range(UNKNOWN_PUTS):
            published = self._versions.publish(publication)
            if published is not Published.UNKNOWN:
                return published
        raise RetryError(
            f"version {publication.version} was put {UNKNOWN_PUTS} times without an answer",
            where=self._table.uri,
            hint="the store seems unwell; the same version is tried again",
        )

    def _next_is_there(self) -> bool:
        """Whether somebody else published: a refusal may only be reported on the newest version."""
        if self._table.state is None:
            return self._versions.latest() > 0
        self._versions.prove_newest(self._table.version)
        return self._versions.exists(self._table.version + 1)

    def _catch_up(self, at: Position) -> None:
        """Takes in the versions that others made after ours."""
        before = self._table
        if before.state is None:
            self._table = replace(
                open_table(self._format, self._versions, before.uri, self._proofs), pending=before.pending
            )
            self._epoch = max(self._epoch, self._table.marks.epoch + 1)
            self._check_given()
            return
        while self._versions.exists(self._table.version + 1):
            self._take_in(self._table.version + 1, at)

    def _take_in(self, version: int, at: Position) -> None:
        table = self._table
        state = read_newest(self._format, self._versions, version)
        if not is_own(state.properties, version):
            self._format.check_writable(state, table.uri)
            followed = self._format.following(table.state, state) if table.state is not None else state
            self._table = replace(table, state=followed)
            return
        marks = own_marks(state, table.uri)
        check_rules(marks, table.uri)
        if marks.epoch > self._epoch and misplaced(marks, at) is None:
            raise FencedError(
                f"version {version} was published by a committer of a later epoch: {marks.epoch}, "
                f"this one has {self._epoch}",
                where=table.uri,
                hint="another committer has taken over; this one stops",
            )
        self._table = Table(table.uri, state, marks, table.pending)
        self._check_given()
        if marks.epoch >= self._epoch:
            self._epoch = marks.epoch + 1
            self._published = False

    def _check_given(self) -> None:
        """Raises `StopError` where another committer has answered entries that this one refused.

        Both may be right, by what each of them saw of the store; what the table recorded holds. Nothing was
        reported yet, so whoever starts again reads the recorded answers.
        """
        marks = self._table.marks
        twice = [
            one for one in self._table.pending if one.position.offset <= marks.offset_of(one.position.log)
        ]
        if twice:
            raise FencedError(
                f"another committer has answered {twice[0].position} in version {marks.version}",
                where=self._table.uri,
                hint="two committers fold this table; this one stops",
            )
