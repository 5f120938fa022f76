"""Delta tables of delta-rs, opened by `lakefold.open` and the verbs; rows and figures are equal."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold import cli
from lakefold_reader.delta.versions import NotBuiltError
from lakefold_reader.versions.listing import OtherFormatError
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from tests.delta_logs.actions import LISTED, add, data_file, metadata, remove, text

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "part": pa.array(["a", "b c", None]),
        "day": pa.array([dt.date(2026, 1, 2), None, dt.date(2026, 1, 3)]),
        "at": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), None, None], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(9, 2)),
        "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
        "place": pa.array([{"x": 1.5}, None, {"x": None}], pa.struct([("x", pa.float64())])),
    }
)


def rows_of(table: object) -> list[dict[str, Any]]:
    return sorted(pa.table(table).to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("partitions", [[], ["part"], ["day", "part"]])
def test_rows_are_those_that_delta_rs_reads(tmp_path: Path, partitions: list[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS, partition_by=partitions)
    write_deltalake(path, ROWS.slice(1), mode="append")
    theirs = DeltaTable(path)
    theirs.delete("id = 2")
    theirs.create_checkpoint()
    for version in range(theirs.version() + 1):
        ours = lakefold.open(path, version)
        of_theirs = DeltaTable(path, version=version)
        assert rows_of(ours.to_arrow()) == rows_of(of_theirs.to_pyarrow_table())
        assert (ours.format, ours.version, ours.fragment_count) == (
            "delta",
            version,
            len(of_theirs.file_uris()),
        )
        assert ours.count_rows() == len(rows_of(ours.to_arrow()))
    assert lakefold.open(path).to_arrow(["id"], limit=1, offset=1).num_rows == 1
    assert lakefold.open(path).schema.names == ROWS.schema.names


def test_rows_of_deletion_vectors_are_left_out(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a.parquet", 1, 2, 3)
    vector = inline_vector({0: Bitmap([1])})
    described = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline,
        "sizeInBytes": vector.size,
        "cardinality": vector.cardinality,
    }
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(text([LISTED, metadata(), file]))
    stats = file["add"]["stats"]
    changed = add("a.parquet", described, size=file["add"]["size"], stats=stats)
    (log / f"{1:020}.json").write_bytes(text([remove("a.parquet"), changed]))
    table = lakefold.open(tmp_path)
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 3]
    assert (table.count_rows(), table.deleted_rows) == (2, 1)


def test_the_verbs_show_a_delta_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    write_deltalake(path, ROWS.slice(2), mode="append")
    assert cli.run(["show", path]) == 0
    shown = capsys.readouterr().out
    assert "format        delta" in shown
    assert "data files    Parquet" in shown
    assert cli.run(["show", path, "--version", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"], document["rows"]) == ("delta", 0, 3)
    assert cli.run(["log", path, "--json"]) == 0
    versions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["version"], row["format"], row["rows_in"], row["files_in"]) for row in versions] == [
        (1, "delta", 1, 1),
        (0, "delta", 3, 1),
    ]


def test_what_is_not_built_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    table = lakefold.open(path)
    with pytest.raises(NotBuiltError, match="a filter is not built for Delta tables"):
        table.to_arrow(filter="id > 1")
    with pytest.raises(NotBuiltError, match="by their ids"):
        table.take([0])
    with pytest.raises(OtherFormatError, match="format delta"):
        lakefold.tail(path, "earliest")
    with pytest.raises(lakefold.InvalidError, match="there is no column 'nothing'"):
        table.to_arrow(["nothing"])


def test_version_0_is_no_version_of_a_lance_table(tmp_path: Path) -> None:
    lakefold_table = tmp_path / "l"
    import lance

    lance.write_dataset(ROWS.select(["id"]), lakefold_table)
    with pytest.raises(lakefold.InvalidError, match="0 is not the number of a version"):
        lakefold.open(lakefold_table, 0)
