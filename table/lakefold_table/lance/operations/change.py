"""What passes between an operation and the table it is applied to: a proposal goes in, a change comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.lance.conflicts.verdicts import Rebase

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment, IndexMetadata, Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import NewFile
    from lakefold_table.lance.manifests.fragments import Fragments
    from lakefold_table.lance.manifests.packed import Packed
    from lakefold_table.lance.rows.bitmaps import Bitmap
    from lakefold_table.lance.schemas.data_files import FileVersion

NOTHING = Rebase()


@dataclass(frozen=True, slots=True)
class Proposal:
    """One entry as its operation sees it, after the conflict rules have let it through.

    `affected_rows`: the row offsets that it deletes or moves, by fragment id, None where nobody says.
    `rebase`: what must be fitted to what came after its read version (Lance fact 5.4).
    `packed`: the fragments of an Append that are kept encoded, and then not in the transaction; `sizes` those
    of their files as the shell found them (-1: not there), None where it didn't look. `dropped`: the ids of
    fields that were dropped since its read version, which its data files may hold.
    """

    envelope: Envelope
    affected_rows: Mapping[int, Bitmap] | None = None
    rebase: Rebase = NOTHING
    packed: Packed | None = None
    sizes: array[int] | None = None
    dropped: frozenset[int] = frozenset()

    @property
    def transaction(self) -> Transaction:
        """The proposed transaction; not to be changed."""
        return self.envelope.lance


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation does to a table: taken up as a whole, or not at all.

    `transaction` is the proposal as it stands in the version it becomes part of, rebased; foreign writers
    check theirs against it. `added`: new fragments in order; what has no id, row ids or versions gets them.
    `packed`: more new fragments, kept encoded, which the transaction doesn't list; `held`: as the table is to
    have them, where that differs.
    `replaced`: fragments that are there, in their new form. `removed`: ids that go.
    `whole`: the list of fragments to begin with instead of the table's; the three above come on top.
    `head`: the manifest (without fragments) to go on with instead of the table's, `file_version` that of its
    data files where it doesn't say so. `indices`: the entries of the index section to go on with, None where
    it stays as it is. `reserved`: fragment ids used up, `row_ids`: row ids used up by added fragments that
    bring their own sequences.
    `before`: files to be written before the version is put. `rows_added` and `rows_deleted` are what the
    outcome tells, None where they follow from the fragments.
    """

    transaction: Transaction
    added: Sequence[DataFragment] = ()
    replaced: Mapping[int, DataFragment] = field(default_factory=dict)
    removed: frozenset[int] = frozenset()
    whole: Fragments | None = None
    head: Manifest | None = None
    file_version: FileVersion | None = None
    indices: Sequence[IndexMetadata] | None = None
    reserved: int = 0
    row_ids: int = 0
    before: tuple[NewFile, ...] = ()
    rows_added: int | None = None
    rows_deleted: int | None = None
    packed: Packed | None = None
    held: Packed | None = None
