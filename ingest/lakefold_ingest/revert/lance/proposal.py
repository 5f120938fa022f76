"""The Update of a Lance table that takes out the rows of a batch and puts back those that it removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.lance.data_files import write_fragments
from lakefold_ingest.lance.proposals import append, begin_envelope
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.merge.key_hashes import key_hashes
from lakefold_ingest.merge.lance.deletions import delete_rows
from lakefold_ingest.merge.lance.format import LanceMerging
from lakefold_ingest.merge.lance.version_changes import set_row_ids
from lakefold_ingest.merge.new_rows import in_type
from lakefold_ingest.merge.read_version import offsets_by_number
from lakefold_ingest.revert.row_history import NO_ADDRESSES
from lakefold_ingest.rows.fitting import has_blob_v2
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.lance.view import LanceView
    from lakefold_ingest.merge.lance.version_changes import LanceReadVersion
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.revert.row_history import Addresses, ReturningRows
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment

PREDICATE = "reverted"
"""What a Delete says of the rows that it removes."""


def revert_proposal(
    view: View, key: Key, settings: WriteSettings, removed: Addresses, returned: ReturningRows
) -> Envelope:
    """See `RowHistory.proposal`: a Delete, an Append, or an Update."""
    view = lance_view(view, "undoing a batch")
    table = LanceMerging().open(view, settings.storage_options)
    rows = _in_storage_types(view, settings, returned.rows)
    files = _written(view, settings, rows, returned.row_ids if table.stable_row_ids else NO_ADDRESSES)
    names = sorted(returned.keys, key=lambda name: view.field_ids([name]))
    arrays = returned.key_arrays(rows, names) if files else []
    envelope = changed_rows(table, key, removed, files, names, arrays, PREDICATE)
    if table.is_serializable and not envelope.lance.HasField("append"):
        # What others read or added meanwhile is none of it.
        envelope.reads.SetInParent()
    return envelope


def changed_rows(
    table: LanceReadVersion,
    key: Key,
    removed: Addresses,
    files: Sequence[DataFragment],
    names: Sequence[str],
    arrays: Sequence[pa.Array],
    predicate: str,
) -> Envelope:
    """Returns the proposal that removes rows and adds fragments.

    `names` and `arrays`: columns that identify the added rows, and their values.
    `predicate`: what a Delete says of the rows that it removes.
    """
    view = table.view
    if not removed.size and not arrays:
        return append(view.uri, key, view.version, files)
    deleted = delete_rows(table, offsets_by_number(removed))
    envelope = begin_envelope(view.uri, key, view.version)
    deleted.add_affected(envelope)
    if not files:
        deleted.as_delete(envelope, predicate)
        return envelope
    deleted.as_update(envelope, files)
    update = envelope.lance.update
    # All values of the new rows are new, so no index may claim to cover them.
    update.fields_for_preserving_frag_bitmap.extend(field.id for field in view.fields)
    if arrays:
        update.inserted_rows.field_ids.extend(view.field_ids([name])[0] for name in names)
        update.inserted_rows.exact.key_hashes.extend(np.unique(key_hashes(arrays)).tolist())
    return envelope


def _in_storage_types(view: LanceView, settings: WriteSettings, rows: pa.Table) -> pa.Table:
    """Returns the rows that come back as they are written."""
    blobs = [field.name for field in view.schema if has_blob_v2(field)]
    if blobs and rows.num_rows:
        message = f"rows with the blob columns {', '.join(blobs)} can't be put back yet"
        hint = "restore a version, or write the rows again by pylance"
        raise InvalidError(message, where=view.uri, hint=hint)
    schema = LanceMerging().target(view, settings).fitting.schema
    return pa.table([in_type(rows.column(field.name), field) for field in schema], schema=schema)


def _written(
    view: LanceView, settings: WriteSettings, rows: pa.Table, row_ids: Addresses
) -> list[DataFragment]:
    """Writes the rows that come back. The first of them keep these ids."""
    if not rows.num_rows:
        return []
    target = LanceMerging().target(view, settings)
    written: list[DataFragment] = []
    try:
        written.extend(write_fragments(target, rows.to_batches()))
    except BaseException as error:
        remove_unused(target, written, str(error))
        raise
    set_row_ids(written, row_ids)
    return written
