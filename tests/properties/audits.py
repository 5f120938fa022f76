"""Checks a version on disk against every invariant. Deletion files are read by their own layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap

from tests.whole_versions import broken_invariants

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
    from lakefold_table.lance.state import LanceState


def audit(root: Path, before: LanceState | None, after: LanceState) -> None:
    """Fails if the step breaks an invariant, whichever client made the version."""
    bases = {base.id: Path(base.path) for base in after.head.base_paths}

    def location(file: DeletionFile) -> Path:
        return bases[file.base_id] if file.HasField("base_id") else root

    deletions = {
        fragment.id: deleted_rows(location(fragment.deletion_file), fragment)
        for fragment in after.fragments
        if fragment.HasField("deletion_file")
    }
    assert broken_invariants(before, after, deletions) == {}


def deleted_rows(root: Path, fragment: DataFragment) -> BitMap:
    """The rows that a fragment's deletion file lists."""
    file = fragment.deletion_file
    name = f"_deletions/{fragment.id}-{file.read_version}-{file.id}"
    if file.file_type == file.BITMAP:
        return BitMap.deserialize((root / f"{name}.bin").read_bytes())
    with pa.ipc.open_file(root / f"{name}.arrow") as reader:
        return BitMap(reader.read_all()["row_id"].to_pylist())
