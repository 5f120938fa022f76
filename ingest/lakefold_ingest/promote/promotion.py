"""What a promote of a branch puts on the main branch, and which of it conflicts with what that got meanwhile.

It is planned on the newest version of the main branch. Rows that were changed on both are conflicts, and rows
that both inserted by a merge under the same keys; what is committed after the plan, the committer judges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.promote.branch_effect import INSTEAD, BranchEffect, PromotedRows
from lakefold_ingest.revert.conflicts import LaterChange, RowConflict
from lakefold_ingest.revert.effects import VersionEffects
from lakefold_ingest.revert.entries import entry_text, record_at
from lakefold_ingest.revert.following import FollowedRows, first_version_with
from lakefold_ingest.revert.lance.history import LanceRowHistory
from lakefold_ingest.revert.logged_entries import NoEntries
from lakefold_ingest.revert.row_history import NO_ADDRESSES, UNKNOWN_ENTRY, indices_in
from lakefold_protos.lakefold.log_pb2 import Promotes
from lakefold_reader.format.value_numbers import equal_rows
from lakefold_reader.lance.scan.columns import schema_of
from lakefold_reader.lance.versions import kind_in, read_state, transaction_of
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.proposals import newest_marks
from lakefold_reader.versions.ranges import expired
from lakefold_table.errors import PreconditionError, VersionExpiredError
from lakefold_table.lance.isolation import is_serializable
from lakefold_table.lance.kinds import Kind
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.promoted_keys import add_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_ingest.lance.view import LanceView
    from lakefold_ingest.revert.row_history import Addresses
    from lakefold_reader.format.source import Source

CHANGE_NOTHING: Final = frozenset(
    {
        Kind.CREATE_INDEX,
        Kind.REWRITE,
        Kind.RESERVE_FRAGMENTS,
        Kind.UPDATE_CONFIG,
        Kind.UPDATE_BASES,
        Kind.CLONE,
    }
)
"""Operations after which each row has the values that it had."""


@dataclass(frozen=True, slots=True)
class PromotedBranch:
    """A branch up to its version `until`. `fork`: distinguishes it from another of its name.

    `begin`: the version of the main branch at which it began, which is also the number of its first version.
    """

    source: Source
    name: str
    fork: str
    begin: int
    until: int


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """What a promote does to the newest version of the main branch.

    `message`: as the envelope has it. `removed`: rows that go, ascending; `row_ids`: the ids that the first
    of the added rows of `effect` keep. `keys`: the columns by which rows were merged on the branch.
    `conflicts`: the rows that were changed on both branches.
    """

    message: Promotes
    effect: BranchEffect
    removed: Addresses
    row_ids: Addresses
    keys: tuple[str, ...]
    conflicts: tuple[RowConflict, ...]

    @property
    def changes_rows(self) -> bool:
        """Whether any row goes or comes."""
        return bool(self.removed.size or self.effect.added.size)

    @property
    def names_keys(self) -> bool:
        """Whether the branch got any entry since the last promote."""
        return bool(self.message.keys or self.message.undone or self.message.left_out)


class Promotion:
    """A branch that is to be promoted, and the main branch as `view` has it."""

    def __init__(self, branch: PromotedBranch, main: Source, view: LanceView) -> None:
        self._since, self._since_version = view.carried.last_promote(branch.fork)
        # Another promote, of a later version, may have come first.
        branch = replace(branch, until=max(branch.until, self._since))
        self._of = branch
        self._view = view
        self.branch = LanceRowHistory(branch.source, branch.until)
        self._main = LanceRowHistory(main, view.version)
        self._rows = PromotedRows(self.branch, self._main, branch.begin)

    def plan(self) -> PromotionPlan:
        """Returns the plan.

        Raises `PreconditionError` if the columns of both differ, and for what else the versions since the
        last promote don't allow, `VersionExpiredError` if one is gone that shows what was done.
        """
        try:
            return self._plan()
        except VersionExpiredError as error:
            raise VersionExpiredError(
                error.message, oldest=error.oldest, where=error.where, hint=INSTEAD
            ) from error

    def _plan(self) -> PromotionPlan:
        of, since = self._of, self._since or self._of.begin
        effect = self._rows.effect(since, of.until)
        message = Promotes(branch=of.name, fork=of.fork, until=of.until)
        message.since, message.since_version = self._since, self._since_version
        add_keys(message, self._marks(since), self._marks(of.until))
        if effect.removed.size or effect.added.size:
            self._check_columns(since, effect)
        followed = self._rows.located(effect.removed, self._since, self._since_version)
        is_lost = followed.lost_in > 0
        now = followed.now[~is_lost]
        removed = np.sort(now)
        keys = self._key_columns(since) if effect.added.size and not effect.replaced_by else ()
        conflicts = [*self._lost(followed, effect.removed)]
        changed = {each.row for each in conflicts}
        inserted = self._inserted_again(effect.added, removed, keys) if keys else ()
        conflicts += [each for each in inserted if each.row not in changed]
        if not conflicts:
            self._check_content(effect, removed)
            if effect.added.size:
                self._check_new_columns(removed)
        ids = self._row_ids(effect, since, now) if effect.same_ids and not conflicts else removed[:0]
        return PromotionPlan(message, effect, removed, ids, keys, tuple(conflicts))

    def _marks(self, version: int) -> Marks:
        """Returns the marks that count for a version of the branch: it began with those of the main one."""
        source = self._of.source
        marks = newest_marks(source, version)
        if marks is None:
            marks = decode_marks(read_state(source, self._of.begin).head.table_metadata, source.uri)
        return marks or Marks()

    def _check_columns(self, since: int, effect: BranchEffect) -> None:
        """Raises `PreconditionError` unless rows of the branch have the columns of the main branch."""
        ours = self._view.schema
        then, now = (read_state(self._of.source, version) for version in (since, self._of.until))
        base, main = (read_state(self._main.source, each) for each in (self._base, self._main.newest))
        before, theirs = schema_of(then.head), schema_of(now.head)
        names, on_main = ({each.id: each.name for each in state.head.fields} for state in (now, main))
        shared_ids = {each.id for each in then.head.fields} & {each.id for each in base.head.fields}
        moved = [
            each.name
            for each in before.fields
            if each.id in shared_ids and names.get(each.id) != on_main.get(each.id)
        ]
        types = {field.name: field.type for field in ours}
        other = [field.name for field in theirs.arrow if types.get(field.name) != field.type]
        dropped = [each for each in before.names if each not in theirs.names and each in ours.names]
        known = {each.id for each in before.fields}
        new = {field.id: field.name for field in theirs.fields if field.id not in known}
        shared = (
            now.fragments.get(set(then.fragments.ids())).values() if new and not effect.replaced_by else ()
        )
        written = {number for each in shared for file in each.files for number in file.fields}
        valued = sorted(name for number, name in new.items() if number in written)
        for named, what, remedy in (
            (other, "that the main branch lacks or has in another type", "give it these columns"),
            (dropped, "that were dropped on the branch", "drop them on the main branch"),
            (
                valued,
                "that were added on the branch with values for rows of the main branch",
                "do that there",
            ),
            (moved, "that one of both branches renamed or wrote anew", "do the same on the other branch"),
        ):
            if named:
                message = f"a promote can't change columns, and there are some {what}: {', '.join(named)}"
                hint = f"{remedy} first, and promote again; or send the batches to the main branch"
                raise PreconditionError(message, where=self._of.source.uri, hint=hint)

    def _check_new_columns(self, removed: Addresses) -> None:
        """Raises `PreconditionError` if rows that the branch changed have values in new columns on main."""
        base, now = (read_state(self._main.source, each) for each in (self._base, self._main.newest))
        known = {*schema_of(base.head).names}
        new = [name for name in schema_of(now.head).names if name not in known]
        rows = self._main.rows(removed, self._main.newest, new) if new and removed.size else None
        valued = [] if rows is None else [name for name in new if rows[name].null_count < rows.num_rows]
        if valued:
            message = (
                "rows that were changed on the branch have values in columns that the main branch got since: "
                f"{', '.join(valued)}"
            )
            hint = "send the batches of the branch to the main branch"
            raise PreconditionError(message, where=self._of.source.uri, hint=hint)

    @property
    def _base(self) -> int:
        """The version of the main branch that the branch began with, or that has its last promote."""
        return self._since_version or self._of.begin

    def _lost(self, followed: FollowedRows, rows: Addresses) -> Iterator[RowConflict]:
        """Yields the conflicts of rows that the branch removed, and that others changed on main."""
        for version in np.unique(followed.lost_in[followed.lost_in > 0]).tolist():
            chosen = followed.lost_in == version
            effects = VersionEffects(self._main, version, numbers_of(self._main.source), NoEntries())
            owners, changed = effects.entry_of(followed.last[chosen]), effects.changes(followed.last[chosen])
            names = self._names(rows[chosen])
            for name, owner, is_changed in zip(names, owners.tolist(), changed.tolist(), strict=True):
                yield self._conflict(name, "changed" if is_changed else "deleted", version, owner)

    def _inserted_again(
        self, added: Addresses, removed: Addresses, keys: Sequence[str]
    ) -> Iterator[RowConflict]:
        """Yields the conflicts of rows that the main branch has got since under keys of added rows."""
        main, begin = self._main, self._of.begin
        among = np.setdiff1d(main.added_after(begin), removed)
        if not among.size:
            return
        rows = self.branch.rows(np.sort(added), self._of.until, keys)
        same = equal_rows(rows, main.rows(among, main.newest, keys))
        again, order = among[same[same >= 0]], np.argsort(same[same >= 0])
        versions = [each for each in numbers_of(main.source) if begin <= each <= main.newest]
        first = first_version_with(main, again[order], versions)
        rows = rows.filter(pa.array(same >= 0)).take(pa.array(order))
        for row, version in zip(rows.to_pylist(), first.tolist(), strict=True):
            yield self._conflict(_named(row), "inserted again", version, UNKNOWN_ENTRY)

    def _names(self, rows: Addresses) -> list[str]:
        """Returns removed rows of the branch in words: their keys if they are known, else their places."""
        since = self._since or self._of.begin
        keys = self._key_columns(since)
        if not keys:
            return [self.branch.location(address) for address in rows.tolist()]
        return [_named(row) for row in self.branch.rows(rows, since, keys).to_pylist()]

    def _conflict(self, row: str, change: LaterChange, later: int, owner: int) -> RowConflict:
        summary = self._main.source.summary(later)
        offset = None if owner == UNKNOWN_ENTRY else owner
        entry = entry_text(record_at(self._main.source, later), offset)
        operation = "" if summary is None else summary.operation
        return RowConflict(
            self._since_version or self._of.begin, row, change, later, offset, entry, operation
        )

    def _key_columns(self, since: int) -> tuple[str, ...]:
        """Returns the columns by which rows were merged on the branch since, empty if none were.

        Raises `PreconditionError` if that was by several keys.
        """
        source, until = self._of.source, self._of.until
        history = read_state(source, until).history
        if history.since <= since and history.latest.get(Kind.UPDATE, 0) <= since:
            return ()
        merged = set[tuple[str, ...]]()
        for version in range(since + 1, until + 1):
            summary = source.summary(version)
            if summary is None:
                raise expired(source, f"version {version} is gone: it was cleaned up")
            transaction = transaction_of(summary)
            if transaction is not None and transaction.update.inserted_rows.field_ids:
                merged.add(self.branch.key_columns(version))
        if len(merged) > 1:
            texts = "; ".join(sorted(", ".join(keys) for keys in merged))
            message = f"rows were merged on the branch by different keys: {texts}"
            raise PreconditionError(message, where=source.uri, hint=INSTEAD)
        return merged.pop() if merged else ()

    def _check_content(self, effect: BranchEffect, removed: Addresses) -> None:
        """Raises `PreconditionError` if what the main branch got decides what the branch would have done.

        That is so if all rows were replaced, or if the level of the table is `serializable`.
        """
        main = self._main
        state = read_state(main.source, main.newest)
        why = ""
        if effect.replaced_by:
            rows = sum(each.physical_rows - each.deletion_file.num_deleted_rows for each in state.fragments)
            why = "all rows of the branch were replaced" if rows != removed.size else ""
        elif is_serializable(state.head.config) and effect.removed.size:
            others = any(map(self._changes_others, range(self._of.begin + 1, main.newest + 1)))
            why = "the level of the table is serializable" if others else ""
        if why:
            message = f"{why}, and the main branch got other changes of rows since the branch began"
            raise PreconditionError(message, where=main.source.uri, hint=INSTEAD)

    def _changes_others(self, version: int) -> bool:
        """Returns whether a version of the main branch changed rows, and is no promote of the branch."""
        source = self._main.source
        summary, record = source.summary(version), record_at(source, version)
        promotes = None if record is None else record.promotes
        if promotes is not None and promotes.fork == self._of.fork:
            return False
        return summary is None or kind_in(summary) not in CHANGE_NOTHING

    def _row_ids(self, effect: BranchEffect, since: int, now: Addresses) -> Addresses:
        """Returns the ids on the main branch of the rows that the first added ones replace."""
        ids = self.branch.row_ids(effect.added[: effect.same_ids], self._of.until)
        before = self.branch.row_ids(effect.removed, since)
        order = np.argsort(now)
        on_main = self._main.row_ids(now[order], self._main.newest)
        if ids is None or before is None or on_main is None:
            return NO_ADDRESSES
        before = before[order]
        by_id = np.argsort(before)
        _, at = indices_in(ids, before[by_id])
        return on_main[by_id[at]]


def _named(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())
