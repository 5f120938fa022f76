"""Append: new fragments beside those that are there (Lance facts 6.1 and 6.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.format import Requirements
from lakefold_table.lance.manifests.naming import data_path, is_inside
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.schemas.fragment_files import of_fields_left, without_dropped
from lakefold_table.lance.validity import file_fault, new_fragment_fault

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Invalid
    from lakefold_table.lance.manifests.packed import Packed
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, envelope: Envelope) -> Requirements:
    """The sizes of the new fragments' files."""
    return sizes_of(file for one in envelope.lance.append.fragments for file in one.files)


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The fragments, which get the next free ids."""
    packed = proposal.packed
    if packed is not None:
        fault = _packed_fault(table, proposal, packed)
        if fault is not None or proposal.sizes is None or 0 not in packed.sizes:
            return fault or Change(proposal.transaction, packed=packed)
        return Change(proposal.transaction, packed=packed, held=packed.with_sizes(proposal.sizes))
    fragments: Sequence[DataFragment] = proposal.transaction.append.fragments
    fault = table.new_fragments_fault(fragments, dropped=proposal.dropped)
    if fault is not None:
        return fault
    return Change(proposal.transaction, added=of_fields_left(fragments, proposal.dropped))


def sizes_of(files: Iterable[DataFile]) -> Requirements:
    """The sizes of new data files in the table itself: not under another base, nor what is no plain path."""
    own = [file for file in files if not file.HasField("base_id") and is_inside(file.path)]
    return Requirements(
        sizes=frozenset(data_path(file.path) for file in own),
        unsaid=frozenset(data_path(file.path) for file in own if not file.file_size_bytes),
    )


def _packed_fault(table: VersionBuilder, proposal: Proposal, packed: Packed) -> Invalid | None:
    """What is wrong with fragments that are sound in themselves, on this table: the same as one by one.

    Where nothing is, none of them is decoded; else the first faulty one is looked for.
    """
    sizes = proposal.sizes
    samples = (without_dropped(_sample(kind), proposal.dropped) for kind in packed.kinds)
    kinds_fit = all(new_fragment_fault(one, table.columns, ()) is None for one in samples)
    files_fit = sizes is None or _as_said(packed, sizes)
    if not (kinds_fit and files_fit):
        fault = _first_fault(table, proposal, packed)
        if fault is not None:
            return fault
    return table.numbering.room_fault(packed.count, sum(packed.rows))


def _sample(kind: DataFragment) -> DataFragment:
    """A fragment of this kind."""
    sample = DataFragment()
    sample.CopyFrom(kind)
    sample.physical_rows = 1
    for number, file in enumerate(sample.files):
        file.path = f"{number}.lance"
    return sample


def _as_said(packed: Packed, sizes: array[int]) -> bool:
    """Whether every file is there and has the size that the proposal says.

    Raises `ValueError` unless all were looked at: what nobody looked at counts for nothing.
    """
    said, found = np.frombuffer(packed.sizes, np.uint64), np.frombuffer(sizes, np.int64)
    if said.shape != found.shape:
        raise ValueError(f"{len(found)} files were looked at, the proposal has {len(said)}")
    there = found >= 0
    return bool((there & ((said == 0) | (said == found.astype(np.uint64)))).all())


def _first_fault(table: VersionBuilder, proposal: Proposal, packed: Packed) -> Invalid | None:
    at, sizes = 0, proposal.sizes
    for fragments in packed.fragments():
        for one in fragments:
            paths = [data_path(file.path) for file in one.files]
            there = [] if sizes is None else sizes[at : at + len(paths)]
            seen = {path: None if size < 0 else size for path, size in zip(paths, there, strict=False)}
            left = without_dropped(one, proposal.dropped)
            fault = new_fragment_fault(left, table.columns, table.base_ids) or file_fault(one, seen)
            if fault is not None:
                return fault
            at += len(paths)
    return None
