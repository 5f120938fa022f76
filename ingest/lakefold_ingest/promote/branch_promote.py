"""The operation that promotes a branch: planned on the newest version, and planned again if it is refused.

Rows are read from the branch and written into new files of the main branch, so that the branch can be deleted
later. They are written once, however often it is planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from lakefold_ingest.formats import seen_source
from lakefold_ingest.lance.data_files import write_fragments
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.merge.lance.format import LanceMerging
from lakefold_ingest.merge.lance.version_changes import set_row_ids
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.promote.promotion import PromotedBranch, Promotion, PromotionPlan
from lakefold_ingest.revert.conflicts import PromoteConflictError
from lakefold_ingest.revert.lance.proposal import changed_rows
from lakefold_ingest.revert.row_history import NO_ADDRESSES, ReturningRows
from lakefold_ingest.rows.fitting import has_blob_v2
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_ingest.lance.view import LanceView
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment

ATTEMPTS: Final = 20
"""How often it is planned at most. Each time others changed the same rows meanwhile."""
PREDICATE: Final = "promoted"
"""What a Delete says of the rows that it removes."""


@dataclass(slots=True)
class PromoteBranch(ChangesAnyRow):
    """An `Operation` that puts what was written to a branch on the main branch. `plan`: the last one."""

    branch: PromotedBranch
    attempts: int = ATTEMPTS
    schema: None = None
    batch_columns: None = None
    plan: PromotionPlan | None = field(default=None, init=False)
    _written: tuple[object, list[DataFragment]] | None = field(default=None, init=False)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Plans on the version of `view` and returns the proposal; None if nothing was written since.

        Raises `PromoteConflictError` if rows were changed on both branches, and as `Promotion.plan`.
        """
        view = lance_view(view, "promoting a branch")
        promotion = Promotion(self.branch, seen_source(view.uri, settings.storage_options), view)
        plan = self.plan = promotion.plan()
        if plan.conflicts:
            raise PromoteConflictError(plan.conflicts, where=view.uri)
        if not plan.changes_rows and not plan.names_keys:
            return None
        envelope = view.nothing(key)
        if plan.changes_rows:
            envelope = self._changed(promotion, plan, view, key, settings)
        envelope.promotes.CopyFrom(plan.message)
        return envelope

    def _changed(
        self, promotion: Promotion, plan: PromotionPlan, view: LanceView, key: Key, settings: WriteSettings
    ) -> Envelope:
        table = LanceMerging().open(view, settings.storage_options)
        files = self._files(promotion, plan, view, settings)
        set_row_ids(files, plan.row_ids)
        arrays, names = [], sorted(plan.keys, key=lambda name: view.field_ids([name]))
        if names:
            rows = promotion.branch.rows(np.sort(plan.effect.added), self.branch.until, names)
            arrays = ReturningRows(rows, NO_ADDRESSES).key_arrays(rows, names)
        envelope = changed_rows(table, key, plan.removed, files, names, arrays, PREDICATE)
        if plan.effect.replaced_by:
            # Rows that others add meanwhile would have been replaced.
            envelope.reads.any_row = True
        return envelope

    def _files(
        self, promotion: Promotion, plan: PromotionPlan, view: LanceView, settings: WriteSettings
    ) -> list[DataFragment]:
        """Returns the fragments with the added rows, which are written again only if they have to differ."""
        branch, until, added = promotion.branch, self.branch.until, plan.effect.added
        blobs = [field.name for field in view.schema if has_blob_v2(field)]
        if blobs and added.size:
            message = f"rows with the blob columns {', '.join(blobs)} can't be promoted yet"
            raise InvalidError(message, where=view.uri, hint="send the batches to the main branch")
        target = view.target(branch.rows(NO_ADDRESSES, until).schema, settings)
        written_for = (plan.message.since, target.field_ids, target.fitting.schema)
        if self._written is not None and self._written[0] == written_for:
            return self._written[1]
        written: list[DataFragment] = []
        try:
            parts = (added[: plan.effect.same_ids], added[plan.effect.same_ids :])
            batches = chain.from_iterable(branch.batches(part, until) for part in parts)
            written.extend(write_fragments(target, batches))
        except BaseException as error:
            remove_unused(target, written, str(error))
            raise
        self._written = written_for, written
        return written
