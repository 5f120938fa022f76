"""The envelopes that maintenance sends: a compaction, and the removal of a fragment-reuse index.

A Rewrite leaves indices as they are. Those that know rows by their addresses cover none of the new
fragments, and queries scan these until the indices are brought up to date (decision 0113). A fragment-reuse
index would lead from the old addresses to the new ones, but with it graphs of vectors can't be searched, and
pylance's own compaction after it makes indices hide rows (Lance facts 10.10 and 10.11).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakefold_maintenance.lance.survey import lance_state
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.lance.scan.sound_indices import indices_without_reuse, stored_indices
from lakefold_table.lance.indexing.reuse import reuse_index
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.lance.rewriter import RewrittenTask


def rewrite(survey: TableSurvey, results: Sequence[RewrittenTask]) -> Envelope:
    """Returns the Rewrite of these results, a group for each, built on the version of the survey.

    It states that the rows kept their order, as they do in pylance's compactions (Lance fact 6.17). So the
    committer can follow each row, and neither a compaction nor a deletion beside it is refused.
    """
    envelope = _begin(survey)
    envelope.lance.rewrite.SetInParent()
    envelope.lance.transaction_properties[ROW_ORDER] = KEPT
    for result in results:
        envelope.lance.rewrite.groups.add(old_fragments=result.old, new_fragments=result.new)
    return envelope


def without_reuse_index(survey: TableSurvey) -> Envelope | None:
    """Returns the proposal that takes the fragment-reuse index away, with the coverage that relies on it.

    Returns None if the table has none. Raises `DamagedError` if that can't be read.
    """
    state = lance_state(survey)
    indices = stored_indices(state)
    reuse = reuse_index(indices)
    if reuse is None:
        return None
    envelope = _begin(survey)
    create = envelope.lance.create_index
    create.removed_indices.append(reuse)
    sound = indices_without_reuse(state, survey.source.content)
    after = {index.uuid.uuid: index for index in sound}
    for index in indices:
        changed = after.get(index.uuid.uuid, index)
        if changed is not index:
            # Named as removed too: the proposal is refused if another client has changed it since.
            create.removed_indices.append(index)
            create.new_indices.append(changed)
    return envelope


def _begin(survey: TableSurvey) -> Envelope:
    envelope = Envelope(table=survey.table, branch=survey.branch, table_id=survey.table_id)
    envelope.lance.read_version = survey.version
    envelope.lance.uuid = str(uuid.uuid4())
    return envelope
