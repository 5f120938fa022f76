"""Tables with a fragment-reuse index: how the tests make them, and what they read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance

from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, IndexMetadata
from tests.oracle.committing import fold, owned
from tests.oracle.compactions import append, reuse_of, rows
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import version_of

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
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


def details(index: IndexMetadata) -> FragmentReuseIndexDetails:
    return FragmentReuseIndexDetails.FromString(index.index_details.value)


def versions(path: Path) -> list[int]:
    index = reuse_of(version_of(path))
    assert index is not None
    return [version.dataset_version for version in details(index).inline.versions]


def sent(table: Path, *envelopes: Envelope) -> list[Result]:
    committer, first = owned(table), 100 * len(manifest_files(table))
    return [fold(committer, [envelope], at)[0] for at, envelope in enumerate(envelopes, first)]
