"""An index whose proposal lists no files and doesn't say of what kind it is, completed as by pylance.

Writers that build an index in parts and commit it by hand give its uuid, name, fields and fragments only.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from lakefold_table.formats import BUILT_IN
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries
from tests.oracle.committing import fold, owned
from tests.oracle.operations import version_of
from tests.replaying import Listed

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lance.table_pb2 import IndexMetadata

Index = sys.modules["lance.dataset"].Index
COUNT, WIDTH = 600, 8
SCALAR = {"BTREE": "a", "BITMAP": "a", "ZONEMAP": "a", "BLOOMFILTER": "a", "NGRAM": "s"}
VECTOR = [
    ("IVF_FLAT", "L2"),
    ("IVF_FLAT", "cosine"),
    ("IVF_FLAT", "hamming"),
    ("IVF_PQ", "dot"),
    ("IVF_SQ", "L2"),
    ("IVF_RQ", "L2"),
    ("IVF_HNSW_FLAT", "L2"),
    ("IVF_HNSW_PQ", "cosine"),
    ("IVF_HNSW_SQ", "dot"),
]


def rows(metric: str = "L2") -> pa.Table:
    random = np.random.default_rng(7)
    values = (
        pa.array(random.integers(0, 256, COUNT * WIDTH), pa.uint8())
        if metric == "hamming"
        else pa.array(random.random(COUNT * WIDTH), pa.float32())
    )
    return pa.table(
        {
            "a": pa.array(range(COUNT), pa.int64()),
            "s": [f"row {number}" for number in range(COUNT)],
            "v": pa.FixedSizeListArray.from_arrays(values, WIDTH),
        }
    )


def built(folder: Path, kind: str, column: str, metric: str = "L2") -> tuple[Path, Path, IndexMetadata]:
    """Two copies of a table with the files of an index that no version has, and the index as it was."""
    theirs, ours, workshop = folder / "theirs", folder / "ours", folder / "workshop"
    lance.write_dataset(rows(metric), str(theirs), max_rows_per_file=COUNT // 2)
    shutil.copytree(theirs, workshop)
    dataset = lance.dataset(str(workshop))
    if column == "v":
        vectors = 2 if kind.endswith("PQ") else None
        dataset.create_index("v", kind, metric=metric, num_partitions=2, num_sub_vectors=vectors)
    else:
        dataset.create_scalar_index(column, kind)  # type: ignore[arg-type]  # its hint is of a literal
    (index,) = version_of(workshop).indices.indices
    shutil.copytree(workshop / "_indices", theirs / "_indices")
    shutil.copytree(theirs, ours)
    return theirs, ours, index


def name_of(index: IndexMetadata) -> str:
    return str(uuid.UUID(bytes=index.uuid.uuid))


def commit(table: Path, index: IndexMetadata) -> IndexMetadata:
    """The index in pylance's version, which got as little as it accepts."""
    bare = Index(
        uuid=name_of(index),
        name=index.name,
        fields=list(index.fields),
        dataset_version=1,
        fragment_ids={0, 1},
        index_version=index.index_version,
    )
    operation = lance.LanceOperation.CreateIndex([bare], [])
    lance.LanceDataset.commit(str(table), operation, read_version=1)
    (made,) = version_of(table).indices.indices
    return made


def proposal(table: Path, theirs: Path) -> Envelope:
    """What pylance wrote of it into its transaction, for our table."""
    transaction = version_of(theirs).transaction
    assert transaction is not None
    (index,) = transaction.create_index.new_indices
    assert not index.files
    assert not index.index_details.value
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.CopyFrom(transaction)
    return envelope


def plain(index: IndexMetadata) -> IndexMetadata:
    """With its files in order: pylance lists them as the file system does."""
    files = sorted(index.files, key=lambda file: file.path)
    del index.files[:]
    index.files.extend(files)
    return index


def check_completed(folder: Path, kind: str, column: str, metric: str = "L2") -> Path:
    theirs, ours, index = built(folder, kind, column, metric)
    made = commit(theirs, index)
    (result,) = fold(owned(ours), [proposal(ours, theirs)], 0)
    assert isinstance(result, Committed), result
    (completed,) = version_of(ours).indices.indices
    assert completed.files
    assert plain(completed) == plain(made)
    lance.dataset(str(ours)).validate()
    return ours


@pytest.mark.parametrize(("kind", "column"), SCALAR.items())
def test_files_are_listed(kind: str, column: str, tmp_path: Path) -> None:
    check_completed(tmp_path, kind, column)


def test_it_is_searched_by(tmp_path: Path) -> None:
    """As pylance takes each scalar index of no kind for a BTREE."""
    ours = check_completed(tmp_path, "BTREE", "a")
    scanner = lance.dataset(str(ours)).scanner(filter="a = 7")
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert scanner.to_table()["a"].to_pylist() == [7]


@pytest.mark.parametrize(("kind", "metric"), VECTOR)
def test_how_vectors_are_stored_is_found_out(kind: str, metric: str, tmp_path: Path) -> None:
    ours = check_completed(tmp_path, kind, "v", metric)
    (index,) = version_of(ours).indices.indices
    assert index.index_details.value
    nearest = {"column": "v", "q": rows(metric)["v"][0].as_py(), "k": 3, "metric": metric}
    assert lance.dataset(str(ours)).to_table(nearest=nearest).num_rows == 3


def test_an_index_without_any_file_is_invalid(tmp_path: Path) -> None:
    """Pylance commits it, and every search by it fails."""
    theirs, ours, index = built(tmp_path, "BTREE", "a")
    commit(theirs, index)
    envelope = proposal(ours, theirs)
    shutil.rmtree(ours / "_indices" / name_of(index))
    (result,) = fold(owned(ours), [envelope], 0)
    assert isinstance(result, Invalid)
    assert "is missing" in result.message


def test_files_that_say_nothing_leave_it_open(tmp_path: Path) -> None:
    """As with pylance, which warns, and passes such an index over from then on."""
    theirs, ours, index = built(tmp_path, "IVF_FLAT", "v")
    for table in (theirs, ours):
        file = table / "_indices" / name_of(index) / "index.idx"
        file.write_bytes(b"no index at all, but of some length" * 9)
    made = commit(theirs, index)
    (result,) = fold(owned(ours), [proposal(ours, theirs)], 0)
    assert isinstance(result, Committed)
    (completed,) = version_of(ours).indices.indices
    assert not completed.HasField("index_details")
    assert not made.HasField("index_details")


def test_folded_again_it_is_the_same_when_the_files_are_gone(tmp_path: Path) -> None:
    theirs, ours, index = built(tmp_path, "IVF_PQ", "v")
    commit(theirs, index)
    (entry,) = entries([proposal(ours, theirs)], 0)
    storage = LocalStorage(ours)
    versions = Versions(storage, FORMAT.folder, FORMAT.detect)
    (outcome,) = TableWriter(StoredTable(FORMAT, versions), check_sizes=False).fold([entry]).outcomes
    assert isinstance(outcome.result, Committed)
    (completed,) = version_of(ours).indices.indices
    assert completed.files
    assert completed.index_details.value
    shutil.rmtree(ours / "_indices")
    replays = list(replay(StoredTable(BUILT_IN.first, versions), Listed([entry]), outcome.result.version))
    assert [each.verdict for each in replays] == [Verdict.SAME]
    assert not replays[0].notes
