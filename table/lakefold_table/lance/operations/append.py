"""Append: adds new fragments to a table (Lance facts 6.1 and 6.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.manifests.naming import data_path, is_inside
from lakefold_table.lance.schemas.fragment_files import without_dropped_fields, without_dropped_files
from lakefold_table.lance.validity import file_fault, new_fragment_fault

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Invalid
    from lakefold_table.lance.manifests.packed_append import Packed
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: the sizes of the new fragments' files."""
    return sizes_of(file for fragment in envelope.lance.append.fragments for file in fragment.files)


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that adds the fragments; they get the next free ids."""
    packed = proposal.packed
    if packed is not None:
        fault = _packed_fault(table, proposal, packed)
        if fault is not None or proposal.sizes is None or 0 not in packed.sizes:
            return fault or TableChange(proposal.transaction, packed=packed)
        return TableChange(proposal.transaction, packed=packed, held=packed.with_sizes(proposal.sizes))
    fragments: Sequence[DataFragment] = proposal.transaction.append.fragments
    fault = table.new_fragments_fault(fragments, dropped=proposal.dropped)
    if fault is not None:
        return fault
    return TableChange(proposal.transaction, added=without_dropped_files(fragments, proposal.dropped))


def sizes_of(files: Iterable[DataFile]) -> Requirements:
    """Returns a request for the sizes of those of these data files that are in the table's own folder.

    Files under another base are left out, and so are paths that lead out of the folder.
    """
    own = [file for file in files if not file.HasField("base_id") and is_inside(file.path)]
    return Requirements(
        sizes=frozenset(data_path(file.path) for file in own),
        unknown_sizes=frozenset(data_path(file.path) for file in own if not file.file_size_bytes),
    )


def _packed_fault(table: VersionBuilder, proposal: Proposal, packed: Packed) -> Invalid | None:
    """Returns why encoded fragments don't fit this table; the answer is the same as if they were decoded.

    They have passed the checks that need no table. They are decoded only if something is wrong, to find the
    first faulty fragment.
    """
    sizes = proposal.sizes
    samples = (without_dropped_fields(_sample(kind), proposal.dropped) for kind in packed.kinds)
    kinds_fit = all(new_fragment_fault(sample, table.columns, ()) is None for sample in samples)
    files_fit = sizes is None or _sizes_match(packed, sizes)
    if not (kinds_fit and files_fit):
        fault = _first_fault(table, proposal, packed)
        if fault is not None:
            return fault
    return table.numbering.room_fault(packed.count, sum(packed.rows))


def _sample(kind: DataFragment) -> DataFragment:
    """Returns a fragment of this kind, with a row count and file names so that it can be checked."""
    sample = DataFragment()
    sample.CopyFrom(kind)
    sample.physical_rows = 1
    for number, file in enumerate(sample.files):
        file.path = f"{number}.lance"
    return sample


def _sizes_match(packed: Packed, sizes: array[int]) -> bool:
    """Returns whether every file exists and has the size that the proposal states.

    Raises `ValueError` if the sizes of only some of the files are known.
    """
    stated, stored = np.frombuffer(packed.sizes, np.uint64), np.frombuffer(sizes, np.int64)
    if stated.shape != stored.shape:
        raise ValueError(f"the sizes of {len(stored)} files are known, the proposal has {len(stated)}")
    exists = stored >= 0
    return bool((exists & ((stated == 0) | (stated == stored.astype(np.uint64)))).all())


def _first_fault(table: VersionBuilder, proposal: Proposal, packed: Packed) -> Invalid | None:
    first, sizes = 0, proposal.sizes
    for fragments in packed.fragments():
        for fragment in fragments:
            paths = [data_path(file.path) for file in fragment.files]
            stored = [] if sizes is None else sizes[first : first + len(paths)]
            known_sizes = {
                path: None if size < 0 else size for path, size in zip(paths, stored, strict=False)
            }
            remaining = without_dropped_fields(fragment, proposal.dropped)
            fault = new_fragment_fault(remaining, table.columns, table.base_ids) or file_fault(
                fragment, known_sizes
            )
            if fault is not None:
                return fault
            first += len(paths)
    return None
