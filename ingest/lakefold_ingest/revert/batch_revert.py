"""The operation that undoes batches: planned on the newest version, and planned again if it is refused.

Between the plan and the version others may commit. If that concerns rows that go, the committer refuses the
proposal as it refuses any Update of rows that others changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.formats import seen_source
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.revert.conflicts import RevertConflictError
from lakefold_ingest.revert.formats import row_history
from lakefold_ingest.revert.named_entries import EntrySearch, keys_brought_back
from lakefold_ingest.revert.plan import plan_revert
from lakefold_ingest.revert.row_history import NO_ADDRESSES, ReturningRows
from lakefold_reader.versions.branches import with_history
from lakefold_reader.versions.listing import numbers_of
from lakefold_table.errors import InvalidError, OptionName, PreconditionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.revert.entries import LoggedEntries, NamedVersion
    from lakefold_ingest.revert.plan import RevertPlan
    from lakefold_ingest.revert.row_history import RowHistory
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source

ATTEMPTS: Final = 20
"""How often the plan is made at most. Each time others changed the rows meanwhile."""


@dataclass(frozen=True, slots=True)
class RevertRequest:
    """What is to be undone: `batches`, or all entries of `version`, or those at `positions` of the log.

    `keep_later`: rows that later entries changed stay as these left them. `with_dependents`: these entries
    are undone as well. `keys`: the columns that identify a row; empty: as the table or the entries say it.
    `since`: the entries came after this version.

    Raises `InvalidError` if not exactly one of the first three is given, or both of the next two.
    """

    batches: tuple[tuple[str, int], ...] = ()
    version: int | None = None
    positions: tuple[int, int] | None = None
    keep_later: bool = False
    with_dependents: bool = False
    keys: tuple[str, ...] = ()
    since: int | None = None

    def __post_init__(self) -> None:
        given = [bool(self.batches), self.version is not None, self.positions is not None]
        if sum(given) != 1:
            message = "name what is to be undone in one way: batches, a version, or positions"
            raise InvalidError(message, where=OptionName("batches"), hint='give batches=["loader:7"]')
        if self.keep_later and self.with_dependents:
            message = "rows that were changed later either stay as they are, or those changes are undone too"
            raise InvalidError(message, where=OptionName("keep_later"), hint="give one of both options")

    def __str__(self) -> str:
        if self.version is not None:
            return f"version {self.version}"
        if self.positions is not None:
            first, last = self.positions
            return f"position {first}" if first == last else f"positions {first}-{last}"
        return ", ".join(f"{app_id}:{batch_id}" for app_id, batch_id in self.batches)

    def named(self, source: Source, newest: int, log: LoggedEntries) -> list[NamedVersion]:
        """Returns the entries that are meant, of the versions up to `newest`.

        Raises as `EntrySearch`, and `InvalidError` for a batch that came before `since`.
        """
        search = EntrySearch(source, newest, log)
        if self.version is not None:
            return [search.by_version(self.version)]
        if self.positions is not None:
            return search.by_positions(*self.positions)
        named = search.by_batches(self.batches)
        for each in named:
            if self.since is not None and each.version <= self.since:
                batches = ", ".join(map(str, each.keys))
                message = f"{batches} is in version {each.version}, so version {self.since} has it"
                hint = "restore an earlier version, or take the batch out: `lakefold revert`"
                raise InvalidError(message, where=source.uri, hint=hint)
        return named


@dataclass(slots=True)
class RevertBatches(ChangesAnyRow):
    """An `Operation` that undoes batches. `plan`: the last that was made."""

    request: RevertRequest
    log: LoggedEntries
    attempts: int = ATTEMPTS
    schema: None = None
    batch_columns: None = None
    plan: RevertPlan | None = field(default=None, init=False)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope:
        """Plans on the version of `view` and returns the proposal.

        If no row goes or comes back, it only says what is undone, so that a later revert brings none back.
        Raises `RevertConflictError` if later entries changed rows, unless the request says what to do then;
        `PreconditionError`, `VersionExpiredError` or `InvalidError` if it isn't known what is to be undone.
        """
        history, plan = self.planned(view, settings.storage_options)
        self.check(plan, view.uri)
        if plan.changes_nothing:
            envelope = view.nothing(key)
        else:
            envelope = history.proposal(view, key, settings, plan.removed, _returned(history, plan))
        envelope.reverts.SetInParent()
        numbers = numbers_of(history.source)
        for each in plan.entries:
            again = keys_brought_back(history.source, numbers, each.version)
            envelope.reverts.keys.extend(name.message() for name in (*each.keys, *again))
            envelope.reverts.entries.append(each.message())
        return envelope

    def planned(self, view: View, storage_options: Mapping[str, str]) -> tuple[RowHistory, RevertPlan]:
        """Returns the plan on the version of `view`, and the history of rows that it was made from.

        A branch without versions of its own has the rows of the version that it begins at, at the same
        addresses, so what led to that version is undone on it.
        """
        return self.plan_at(with_history(seen_source(view.uri, storage_options), view.version), view.version)

    def plan_at(self, source: Source, version: int) -> tuple[RowHistory, RevertPlan]:
        """Returns the plan on a version of a branch that has the versions before, and their history."""
        history = row_history(source, version)
        request = self.request
        named = request.named(source, version, self.log)
        self.plan = plan_revert(
            history, named, self.log, keys=request.keys, with_dependents=request.with_dependents
        )
        if self.plan.changes_nothing:
            for each in named:
                _check_changes_rows(history, each.version)
        return history, self.plan

    def check(self, plan: RevertPlan, where: str) -> None:
        """Raises `RevertConflictError` or `PreconditionError` if the plan isn't one to carry out."""
        request = self.request
        if plan.conflicts and not request.keep_later:
            raise RevertConflictError(plan.conflicts, where=where)
        if plan.reverts and request.keep_later:
            versions = ", ".join(map(str, plan.reverts))
            message = f"rows of what is to be undone were changed by the reverts in versions {versions}"
            hint = "undo those first, or as well: --with-dependents (with_dependents=True)"
            raise PreconditionError(message, where=where, hint=hint)
        if plan.uncertain and request.keep_later:
            versions = ", ".join(map(str, plan.uncertain))
            message = f"which removed rows of version {versions} were changed later isn't known"
            hint = (
                "name the columns that identify a row (--keys, keys=), or undo what was built on them as well"
            )
            raise PreconditionError(message, where=where, hint=hint)


def _check_changes_rows(history: RowHistory, version: int) -> None:
    """Raises `PreconditionError` for a version that changed columns and no row, e.g. a rename."""
    before, after = (history.column_names(each) for each in (version - 1, version))
    if before is not None and after is not None and before != after:
        columns = f"{', '.join(before)} became {', '.join(after)}"
        message = f"version {version} changed columns and no row: {columns}"
        hint = "change them back: `lakefold alter`, `lakefold.alter`"
        raise PreconditionError(message, where=history.source.uri, hint=hint)


def _returned(history: RowHistory, plan: RevertPlan) -> ReturningRows:
    """Returns the rows that come back, first those with ids that rows which go have now."""
    if not plan.returned:
        return ReturningRows(history.rows(NO_ADDRESSES, plan.newest), NO_ADDRESSES)
    rows = pa.concat_tables([history.rows(rows, version) for version, rows in plan.returned])
    now = history.row_ids(plan.removed, plan.newest)
    before = [history.row_ids(each, version) for version, each in plan.returned]
    if now is None or any(ids is None for ids in before):
        return ReturningRows(rows, NO_ADDRESSES, plan.keys)
    ids = np.concatenate([each for each in before if each is not None])
    kept = np.isin(ids, now)
    order = np.argsort(~kept, kind="stable")
    return ReturningRows(rows.take(pa.array(order)), ids[kept], plan.keys)
