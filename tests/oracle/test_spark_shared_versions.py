"""Which rows a stream of Spark takes of a version that entries of several kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.rows.row_source import RowSource
from lakefold_reader.format.changes import ChangeType, Misfits, Rewritten, UnknownChangeError
from lakefold_reader.spark.changes import parts_taken
from lakefold_reader.spark.options import read_options
from tests.delta_merging import DeltaFolding
from tests.merging import Folding

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_reader.tail.change import Change
    from tests.merging import Batches

VECTORS = {"delta.enableDeletionVectors": "true"}
TABLES = ["lance", "delta", "delta with vectors"]


def table(path: Path, name: str) -> Batches:
    """A table of the rows 1, 2 and 3."""
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    if name == "lance":
        lance.write_dataset(rows, str(path), data_storage_version="2.2")
        return Folding(path)
    made = DeltaFolding(path)
    made.create(rows.schema, VECTORS if "vectors" in name else {}, (), features=("deletionVectors",))
    made.append(rows)
    return made


def appending(*ids: int) -> object:
    return append_source(RowSource(pa.table({"id": pa.array(ids, pa.int64())})))


def taken(change: Change, option: str) -> list[int]:
    """The ids of the rows that a stream takes of a version."""
    path, source = "t", change._source
    takes = parts_taken(change, read_options({"path": path, option: "true"}), path)
    feed, mode = source.format.feed, Rewritten.SKIP if option == "skipChangeCommits" else Rewritten.ROWS
    end = feed.end_of([change.summary], change.columns)
    reader = feed.reader(source, change.columns, Misfits.FAIL)
    parts = [part for part in feed.plan_summaries(source, [change.summary], end, mode) if takes(part)]
    assert {part.change_type for part in parts} <= {ChangeType.INSERT}
    return sorted(row for part in parts for batch in reader.read(part) for row in batch.column(0).to_pylist())


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("option", ["skipChangeCommits", "ignoreDeletes", "ignoreChanges"])
def test_what_is_appended_beside_a_delete_is_read(tmp_path: Path, name: str, option: str) -> None:
    batches = table(tmp_path / "t", name)
    version = lakefold.open(tmp_path / "t").version
    entries = [appending(10, 11), DeleteWhere("id = 2"), appending(12)]
    results = batches.fold(*(batches.build(each) for each in entries))  # type: ignore[arg-type] # none is empty
    assert len({result.version for result in results}) == 1  # type: ignore[union-attr] # all are Committed
    (change,) = lakefold.tail(tmp_path / "t", version)
    if (name, option) == ("delta", "skipChangeCommits"):
        # The delete has written a file again, and nothing says which of the new files that is.
        with pytest.raises(UnknownChangeError):
            taken(change, option)
    else:
        assert taken(change, option) == [10, 11, 12]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("condition", ["id = 2", "id > 0"])
def test_a_delete_alone_is_ignored(tmp_path: Path, name: str, condition: str) -> None:
    batches = table(tmp_path / "t", name)
    version = lakefold.open(tmp_path / "t").version
    batches.put(DeleteWhere(condition))
    (change,) = lakefold.tail(tmp_path / "t", version)
    assert taken(change, "ignoreDeletes") == taken(change, "skipChangeCommits") == []
