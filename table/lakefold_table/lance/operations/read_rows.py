"""Finds out whether rows that a proposal has read are in the table as they were (decision 0120).

A row that was changed was moved to another fragment, and is deleted where it was; so only deletions count.
Rewrites move rows as they are: each row is followed into the fragment that has it now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_table.entry import BUILD_AGAIN, Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.lance.operations.carried_rows import (
    both_deleted,
    files_to_follow,
    groups_of,
    unreadable,
    unreadable_now,
)
from lakefold_table.lance.proposal_footprint import known_version, read_rows
from lakefold_table.lance.rows.deleted_rows import deleted_rows
from lakefold_table.lance.rows.row_moves import TracedRows, moved_rows
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.format import Requirements
    from lakefold_table.lance.operations.carried_rows import Rewrites
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState, envelope: Envelope) -> Requirements:
    """Returns the deletion files that show which of the rows that a proposal has read are deleted now."""
    rewrites = state.history.rewrites(known_version(envelope.lance) or state.version)
    ordered = [step for step in rewrites if step[1].moved is not None]
    return files_to_follow(state, set(envelope.reads.rows), ordered)


def fault(table: VersionBuilder, envelope: Envelope, rewrites: Rewrites) -> Rejected | Invalid | None:
    """Returns why a proposal can't be accepted if rows that it has read are malformed, deleted or changed.

    `rewrites`: those since its read version, oldest first.
    """
    rows = read_rows(envelope)
    if isinstance(rows, Invalid):
        return rows

    def deleted(fragment: DataFragment) -> Bitmap:
        return deleted_rows(table, fragment)

    followed = {number: TracedRows.of(number, offsets) for number, offsets in rows.items()}
    gone: list[TracedRows] = []
    for version, rewrite in rewrites:
        met = rewrite.touched & followed.keys()
        if met and rewrite.moved is None:
            return _unordered(version, met)
        for group in groups_of(rewrite, met):
            try:
                followed, lost = moved_rows(followed, group, deleted)
            except DamagedError as error:
                return unreadable(version, error)
            gone += [] if lost is None else [lost]
    current = table.get(followed)
    for number, each in followed.items():
        try:
            marked = deleted(current[number]) if number in current else each.rows
        except DamagedError as error:
            return unreadable_now(number, error)
        gone.append(each.only(each.within(marked)))
    origins = np.concatenate([np.empty(0, np.uint64), *(each.origins for each in gone)])
    return both_deleted(origins) if origins.size else None


def _unordered(version: int, fragments: frozenset[int]) -> Rejected:
    return Rejected(
        Conflict(
            retryable=True,
            message=f"the Rewrite of version {version} moved rows of the fragments {some(fragments)}, which "
            f"the proposal has read, and doesn't say that it kept their order; {BUILD_AGAIN}",
            other_version=version,
            other_operation="rewrite",
            fragment_ids=tuple(sorted(fragments)),
        )
    )
