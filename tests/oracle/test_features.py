"""The flags that we compute from a version's content are those that pylance writes, version for version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.errors import InvalidError
from lakefold_table.lance.manifests.features import flags_of
from tests.oracle.manifests import manifest_files, read_sections
from tests.proposals import rows

if TYPE_CHECKING:
    from pathlib import Path


def computed(manifest: Manifest) -> tuple[int, int]:
    """The flags of a manifest's content, without the two flags that nothing else shows."""
    head = Manifest()
    head.CopyFrom(manifest)
    head.reader_feature_flags &= 2 | 256
    head.writer_feature_flags &= 2 | 256
    return flags_of(head, deletions=any(fragment.HasField("deletion_file") for fragment in head.fragments))


@pytest.mark.parametrize("stable", [False, True])
def test_flags_come_and_go_as_in_pylance(tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(10)), uri, data_storage_version="2.1", enable_stable_row_ids=stable)
    lance.dataset(uri).delete("id < 3")
    lance.dataset(uri).update_config({"k": "v"})
    lance.dataset(uri).optimize.compact_files(materialize_deletions_threshold=0.1)
    lance.dataset(uri).update_config({"k": None})
    lance.dataset(uri).add_bases([lance.DatasetBasePath("/x", "n")])
    lance.write_dataset(rows([10]), uri, mode="append", data_storage_version="2.2")
    lance.write_dataset(rows([11]), uri, mode="append", data_storage_version="2.1")
    lance.dataset(uri).delete("id = 10")
    lance.dataset(uri, version=2).restore()
    lance.write_dataset(rows([1]), uri, mode="overwrite")
    lance.dataset(uri).create_branch("b")
    seen: set[int] = set()
    for path in [*manifest_files(tmp_path / "t"), *manifest_files(tmp_path / "t/tree/b")]:
        manifest = Manifest.FromString(read_sections(path).manifest)
        flags = (manifest.reader_feature_flags, manifest.writer_feature_flags)
        assert computed(manifest) == flags, manifest.version
        seen.update(1 << bit for bit in range(64) if flags[1] >> bit & 1)
    assert seen == {1, 8, 16, 256} | ({2} if stable else set())


def test_a_feature_that_we_do_not_know_is_named_when_pylance_made_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows([1]), uri)
    lance.dataset(uri).update_schema_metadata({"lance.blob.managed": "true"})
    assert lakefold.open(uri, 1).count_rows() == 1
    with pytest.raises(InvalidError, match=r"can't be read: .*16384 \(managed blobs\)"):
        lakefold.open(uri)
