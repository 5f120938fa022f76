"""The types that operations share: a `Proposal` is the input of an operation, a `TableChange` its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.lance.verdicts import Rebase

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment, IndexMetadata, Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.format import NewFile
    from lakefold_table.lance.manifests.fragments import Fragments
    from lakefold_table.lance.manifests.packed_append import Packed
    from lakefold_table.lance.schemas.data_files import FileVersion

NOTHING = Rebase()


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry that the conflict rules have accepted, with what its operation needs to know of it.

    `affected_rows`: the row offsets that it deletes or moves, by fragment id; None if the envelope doesn't
    say. `rebase`: what must be adapted to the versions after its read version (Lance fact 5.4). `packed`: the
    fragments of an Append that stay encoded; the transaction then lists none. `sizes`: the sizes of their
    files in the store, -1 for a missing file; None if they were not requested. `dropped`: the ids of fields
    that were dropped since the read version, which the data files may still have. `carried_to`: ids of
    fragments into which Rewrites moved rows that it deletes or moves: it is as built on the newest version
    there, but has no deletion files for them.
    """

    envelope: Envelope
    affected_rows: Mapping[int, Bitmap] | None = None
    rebase: Rebase = NOTHING
    packed: Packed | None = None
    sizes: array[int] | None = None
    dropped: frozenset[int] = frozenset()
    carried_to: frozenset[int] = frozenset()

    @property
    def transaction(self) -> Transaction:
        """The proposed transaction. It must not be changed."""
        return self.envelope.lance


@dataclass(frozen=True, slots=True)
class TableChange:
    """The changes of a table by an operation, which are applied together or not at all.

    `transaction`: the proposal, rebased, as it is stored in the version; other clients check their own
    commits against it. `added`: new fragments in order; ids, row ids and row versions that they lack are
    assigned. `packed`: further new fragments that stay encoded and that the transaction doesn't list; `held`:
    the form in which the table stores them, if that is different. `replaced`: the new form of existing
    fragments, by id. `removed`: the ids of fragments that are removed. `whole`: a list of fragments that
    replaces the table's; `added`, `replaced` and `removed` then apply to it. `head`: a manifest (without
    fragments) that replaces the table's; `file_version` is the version of its data files if it doesn't state
    that itself. `indices`: the entries of the index section, None if they stay the same. `reserved`: how many
    fragment ids are used up. `row_ids`: how many row ids are used up by added fragments that have their own
    sequences. `before`: files that must be written before the version is published. `rows_added` and
    `rows_deleted`: the counts for the outcome, None if they follow from the fragments.
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
