"""Tables with a fragment-reuse index: how the tests make them, and what they read of them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import lance
from pyroaring import BitMap64

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, IndexMetadata
from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, covering
from lakefold_table.lance.indexing.reuse import TYPE_URL
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import append, reuse_of, rows
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import version_of

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.entry import Result


def deferred(dataset: lance.LanceDataset, rows_each: int = 1000) -> None:
    dataset.optimize.compact_files(target_rows_per_fragment=rows_each, defer_index_remap=True)


def deferred_in_parts(dataset: lance.LanceDataset) -> None:
    deferred(dataset, 25)


def indexed(path: Path) -> Path:
    """Nine fragments of ten rows with indices on all columns, some rows deleted, and one more behind."""
    lance.write_dataset(rows(0, 90), str(path), max_rows_per_file=10)
    lance.dataset(str(path)).create_scalar_index("a", "BTREE")
    lance.dataset(str(path)).create_scalar_index("s", "BITMAP")
    lance.dataset(str(path)).create_scalar_index("b", "BTREE")
    lance.dataset(str(path)).delete("a % 4 = 1")
    append(lance.dataset(str(path)))
    return path


def reservation(table: Path) -> Envelope:
    """The proposal that reserves the id of a fragment."""
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), version_of(table).manifest.version
    envelope.lance.reserve_fragments.num_fragments = 1
    return envelope


def with_reuse(envelope: Envelope, reserved_in: int, number: int) -> Envelope:
    """The Rewrite of a group into the fragment `number`, with a fragment-reuse index that says so.

    pylance's compaction with `defer_index_remap` sends that for fragments which an index covers.
    """
    (group,) = envelope.lance.rewrite.groups
    (new,) = group.new_fragments
    new.id = number
    index = IndexMetadata(name=FRAGMENT_REUSE, dataset_version=reserved_in)
    index.uuid.uuid = uuid.uuid4().bytes
    described = FragmentReuseIndexDetails()
    listed = described.inline.versions.add(dataset_version=reserved_in).groups.add()
    old = lance.dataset(envelope.table.removeprefix("file://"), version=envelope.lance.read_version)
    ids = {fragment.id for fragment in group.old_fragments}
    addresses = old.to_table(columns=["_rowaddr"])["_rowaddr"].to_pylist()
    listed.changed_row_addrs = BitMap64([each for each in addresses if each >> 32 in ids]).serialize()
    for fragment in group.old_fragments:
        deleted = fragment.deletion_file.num_deleted_rows
        listed.old_fragments.add(
            id=fragment.id, physical_rows=fragment.physical_rows, num_deleted_rows=deleted
        )
    listed.new_fragments.add(id=number, physical_rows=new.physical_rows)
    index.index_details.type_url = TYPE_URL
    index.index_details.value = described.SerializeToString(deterministic=True)
    envelope.fragment_reuse_index.CopyFrom(covering(index, Bitmap([number])))
    return envelope


def details(index: IndexMetadata) -> FragmentReuseIndexDetails:
    return FragmentReuseIndexDetails.FromString(index.index_details.value)


def versions(path: Path) -> list[int]:
    index = reuse_of(version_of(path))
    assert index is not None
    return [version.dataset_version for version in details(index).inline.versions]


def sent(table: Path, *envelopes: Envelope) -> list[Result]:
    committer, first = owned(table), 100 * len(manifest_files(table))
    return [fold(committer, [envelope], at)[0] for at, envelope in enumerate(envelopes, first)]
