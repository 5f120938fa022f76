"""What is wrong with a proposal in itself, whatever else was committed: its Invalid outcomes.

What is accepted here ends in manifests that other clients must open, so whatever would make a table
unreadable to them is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lakefold.log_pb2 import Reads
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Invalid
from lakefold_table.lance.conflicts.keys import APPENDS, precedes_appends
from lakefold_table.lance.isolation import ISOLATION, READING, level_fault
from lakefold_table.lance.kinds import FOLDED, Kind
from lakefold_table.lance.manifests.plain_append import MAX_ROWS, MAX_UUID_LENGTH
from lakefold_table.lance.rows.row_order import ROW_ORDER, states_order
from lakefold_table.lance.schemas.columns import Columns, some
from lakefold_table.lance.schemas.data_files import path_fault, size_fault
from lakefold_table.marks.marks import PREFIX
from lakefold_table.roots import is_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import BasePath, DataFragment

MOST_BASES = 10_000
"""How many bases a proposal may add: the committer has to check the path of each."""
BUILT_ON_NONE = frozenset({Kind.OVERWRITE, Kind.RESTORE})
MANAGED_BLOBS = "lance.blob.managed"
DATA_OVERLAYS_REFUSED = Invalid(
    "data overlays are not folded: Lance clients open no table that has some (feature flag 64)",
    "propose whole columns: an Update that rewrites columns, or a DataReplacement",
)
"""The answer to every DataOverlay (decision 0011).

The operation puts files with single values over those of a fragment. pylance 14 commits it, then can't open
the table any more: it refuses flag 64 unless an environment variable allows it (Lance fact 6.16).
"""


def envelope_fault(envelope: Envelope, kind: Kind) -> Invalid | None:
    """Returns what no table could fold in this release, or None."""
    transaction = envelope.lance
    if kind is Kind.UNKNOWN:
        return Invalid("the transaction has no operation", "set one of the operations of Lance's Transaction")
    if kind is Kind.DATA_OVERLAY:
        return DATA_OVERLAYS_REFUSED
    if kind not in FOLDED:
        folded = ", ".join(sorted(FOLDED))
        return Invalid(f"this release does not fold {kind}", f"it folds {folded}")
    if envelope.HasField("fragment_reuse_index") and kind is not Kind.REWRITE:
        return Invalid("a fragment-reuse index belongs to a Rewrite only", "leave it out")
    only_columns = kind is Kind.OVERWRITE and envelope.reads == Reads(columns=True)
    if envelope.HasField("reads") and kind not in READING and not only_columns:
        named = ", ".join(sorted(READING))
        return Invalid(f"an envelope with the operation {kind} has `reads`", f"only these have it: {named}")
    if len(transaction.uuid) > MAX_UUID_LENGTH:
        return Invalid(
            f"the transaction's uuid has {len(transaction.uuid)} characters", "use 36, as UUIDs have"
        )
    if _has_unknown_fields(transaction):
        return Invalid(
            "the transaction has fields that this release doesn't know, or of another type than it knows",
            "send it to a newer release, or without them: they might mean something",
        )
    properties = dict(transaction.transaction_properties)
    if kind is Kind.REWRITE and states_order(transaction):
        del properties[ROW_ORDER]
    if kind is Kind.UPDATE and precedes_appends(transaction):
        del properties[APPENDS]
    return reserved_key_fault(properties)


def config_fault(sets: Mapping[str, str], deletes: Collection[str] = ()) -> Invalid | None:
    """Refuses to change keys of the configuration that are reserved for the log, or a malformed level."""
    return reserved_key_fault({*sets, *deletes} - {ISOLATION}) or level_fault(sets)


def reserved_key_fault(keys: Collection[str]) -> Invalid | None:
    """Refuses keys that are reserved for the log."""
    reserved = [key for key in keys if key.startswith(PREFIX)]
    if not reserved:
        return None
    return Invalid(
        f"keys {some(reserved)} may not be set: {PREFIX}* is reserved for the log", "use another prefix"
    )


def managed_blobs_fault(value: str | None) -> Invalid | None:
    """Refuses the key that switches managed blobs on: pylance sets a feature flag then (Lance fact 6.11)."""
    if value is None or value == "false":
        return None
    if value == "true":
        return Invalid("managed blobs are not known in this release", f"leave {MANAGED_BLOBS} out")
    return Invalid(f"{MANAGED_BLOBS} can't be {value!r}", "Lance clients take true or false")


def read_version_fault(transaction: Transaction, kind: Kind, version: int) -> Invalid | None:
    """Refuses a proposal that isn't built on a version, or names a read version that doesn't exist yet.

    An Overwrite and a Restore need none: without a read version they apply to the newest version (Lance fact
    5.7).
    """
    if 0 < transaction.read_version <= version or (not transaction.read_version and kind in BUILT_ON_NONE):
        return None
    if not transaction.read_version:
        return Invalid(
            "the transaction has no read version, so the meaning of its field ids is not known",
            "set it to the version whose schema the files were written with",
        )
    return Invalid(
        f"read version {transaction.read_version} is above the latest version {version}",
        "read the table's version again; it may have been restored to an earlier copy",
    )


def named_fragments_fault(transaction: Transaction, ever_used: int) -> Invalid | None:
    """Refuses to look up more fragments than the table ever had."""
    delete, update = transaction.delete, transaction.update
    named = len(delete.deleted_fragment_ids) + len(delete.updated_fragments)
    named += len(update.removed_fragment_ids) + len(update.updated_fragments)
    if named <= 2 * ever_used:
        return None
    return Invalid(
        f"the transaction names {named} fragments, but the table never had more than {ever_used}",
        "name each fragment that it changes or removes once",
    )


def new_fragment_fault(fragment: DataFragment, columns: Columns, bases: Collection[int]) -> Invalid | None:
    """Returns what is wrong with a fragment that a transaction adds, or None."""
    if not 0 < fragment.physical_rows <= MAX_ROWS:
        return Invalid(
            f"a fragment has {fragment.physical_rows} rows", "a fragment must have from 1 to 2^32 - 1 rows"
        )
    if fragment.HasField("deletion_file") or fragment.overlays:
        return Invalid(
            "a new fragment may have no deletion file and no overlays", "leave deleted rows out of it"
        )
    if (
        fragment.WhichOneof("row_id_sequence")
        or fragment.WhichOneof("created_at_version_sequence")
        or fragment.WhichOneof("last_updated_at_version_sequence")
    ):
        return Invalid(
            "a new fragment may contain no row ids or versions", "they are given when it is folded"
        )
    fault = columns.fault(fragment)
    if fault:
        return fault
    return next((fault for file in fragment.files if (fault := path_fault(file, bases))), None)


def file_fault(fragment: DataFragment, sizes: Mapping[str, int | None]) -> Invalid | None:
    """Returns what is wrong with a fragment's files whose sizes were fetched, or None."""
    return next((fault for file in fragment.files if (fault := size_fault(file, sizes))), None)


def base_path_fault(bases: Sequence[BasePath], outside: Collection[str]) -> Invalid | None:
    """Returns why files of the table must not be stored below these bases.

    The committer itself reads only deletion files there. But a reader opens every file that a version names,
    which could be in another tenant's bucket or on the reader's own machine.
    """
    if len(bases) > MOST_BASES:
        return Invalid(f"the transaction adds {len(bases)} bases", f"add at most {MOST_BASES} at a time")
    for base in bases:
        if not base.path:
            return Invalid("a base has no path", "give the path or URI below which its files are")
        if not is_whole(base.path):
            return Invalid(f"the base {base.path!r} is not an absolute path or URI", "give the whole path")
        if base.path in outside:
            return Invalid(
                f"the base {base.path!r} is not below the roots of this committer",
                "name a path below them, without `..`; or add its root to the committer's `roots`",
            )
    return None


def _has_unknown_fields(transaction: Transaction) -> bool:
    """Returns whether the message contains fields that this release doesn't know.

    Such a field may also be a known field with another wire type; Lance clients can't read a message with
    such a field (Lance fact 3.7).
    """
    known = Transaction()
    known.CopyFrom(transaction)
    known.DiscardUnknownFields()
    return known.ByteSize() != transaction.ByteSize()
