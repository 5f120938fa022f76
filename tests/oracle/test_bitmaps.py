"""The bitmaps in pylance's messages: we read them, and write the same bytes."""

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, IndexMetadata, IndexSection
from lakefold_table.bitmaps import (
    Bitmap,
    decode_bitmap,
    decode_treemap,
    encode_bitmap,
    encode_treemap,
)
from tests.oracle.manifests import manifest_files, read_sections


def indices(table: Path) -> dict[str, IndexMetadata]:
    """The indices of the newest version by their names."""
    stream = read_sections(manifest_files(table)[-1]).index
    assert stream is not None
    return {index.name: index for index in IndexSection.FromString(stream).indices}


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_the_fragments_of_an_index(tmp_path: Path, count: int) -> None:
    rows = pa.table({"a": np.arange(10 * count)})
    lance.write_dataset(rows, str(tmp_path), max_rows_per_file=10).create_scalar_index("a", "BTREE")
    covered = indices(tmp_path)["a_idx"].fragment_bitmap
    assert decode_bitmap(covered) == Bitmap(range(count))
    assert encode_bitmap(Bitmap(range(count)), runs=True) == covered


def test_the_rows_that_a_compaction_moved(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": np.arange(20_000)}), str(tmp_path), max_rows_per_file=5000)
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 3 or a = 5007 or (a >= 15000 and a % 2 = 1)")
    dataset.optimize.compact_files(defer_index_remap=True)
    reuse = indices(tmp_path)["__lance_frag_reuse"].index_details
    (version,) = FragmentReuseIndexDetails.FromString(reuse.value).inline.versions
    (group,) = version.groups
    every = Bitmap(range(5000))
    rows = {0: every - Bitmap([0, 1, 2]), 1: every - Bitmap([7]), 2: every, 3: Bitmap(range(0, 5000, 2))}
    assert decode_treemap(group.changed_row_addrs) == rows
    assert encode_treemap(rows) == group.changed_row_addrs
