"""The envelopes of a compaction: a Rewrite, and what it needs before if indices know rows by their addresses.

An index that covers rewritten fragments must learn where the rows were moved. With stable row ids it needs
nothing. Otherwise the proposal carries a fragment-reuse index (Lance fact 10.7), by which every reader
translates the old addresses, so that no index is rewritten. It names the new fragments by their ids, which
are reserved before.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, IndexMetadata
from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, covering
from lakefold_table.lance.indexing.reuse import TYPE_URL
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.lance.tasks import RewrittenTask


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


def reservation(survey: TableSurvey, count: int) -> Envelope:
    """Returns the proposal that reserves the ids of `count` new fragments."""
    envelope = _begin(survey)
    envelope.lance.reserve_fragments.num_fragments = count
    return envelope


def rewrite_with_reuse(
    survey: TableSurvey, results: Sequence[RewrittenTask], *, reserved_in: int, first_id: int
) -> Envelope:
    """Returns the Rewrite with its fragment-reuse index.

    `reserved_in`: the version in which the ids from `first_id` on were reserved for the new fragments.
    """
    ids = iter(range(first_id, first_id + sum(len(result.new) for result in results)))
    for result in results:
        for fragment in result.new:
            fragment.id = next(ids)
    envelope = rewrite(survey, results)
    details = FragmentReuseIndexDetails()
    version = details.inline.versions.add(dataset_version=reserved_in)
    for result in results:
        group = version.groups.add(changed_row_addrs=result.moved_rows)
        for fragment in result.old:
            group.old_fragments.add(
                id=fragment.id,
                physical_rows=fragment.physical_rows,
                num_deleted_rows=fragment.deletion_file.num_deleted_rows,
            )
        for fragment in result.new:
            group.new_fragments.add(id=fragment.id, physical_rows=fragment.physical_rows)
    index = IndexMetadata(name=FRAGMENT_REUSE, dataset_version=reserved_in, index_version=0)
    index.uuid.uuid = uuid.uuid4().bytes
    index.index_details.type_url = TYPE_URL
    index.index_details.value = details.SerializeToString(deterministic=True)
    covered = Bitmap([fragment.id for result in results for fragment in result.new])
    envelope.fragment_reuse_index.CopyFrom(covering(index, covered))
    return envelope


def _begin(survey: TableSurvey) -> Envelope:
    envelope = Envelope(table=survey.table, branch=survey.branch)
    envelope.lance.read_version = survey.version
    envelope.lance.uuid = str(uuid.uuid4())
    return envelope
