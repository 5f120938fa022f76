"""Rows that can't be written go to a table of their own, once, also if the writer ends in between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import LogClient
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.writing.log_client import Proposed
    from lakefold_protos.lakefold.log_pb2 import Envelope

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int8())])


def ids(table: Path) -> list[int]:
    return sorted(lance.dataset(table).to_table()["id"].to_pylist())


def bad(table: Path) -> list[tuple[str, int, str, dict[str, int | None]]]:
    stored = lance.dataset(table).to_table().to_pylist()
    return [(row["app_id"], row["batch_id"], row["column"], json.loads(row["row"])) for row in stored]


@pytest.fixture
def table(tmp_path: Path, options: lakefold.WriteOptions) -> Path:
    lakefold.append(tmp_path / "t", SCHEMA.empty_table(), **options)
    return tmp_path / "t"


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
def test_bad_rows_are_in_their_table_once_wherever_the_writer_ends(
    options: lakefold.WriteOptions,
    tmp_path: Path,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_sent: bool,
) -> None:
    """It ends between the two proposals, before or after the second one is in the log."""
    given: lakefold.WriteOptions = {**options, "bad_records": tmp_path / "bad"}
    propose = LogClient.propose

    def ends(client: LogClient, envelope: Envelope, *args: object, **more: object) -> Proposed:
        if envelope.table == canonical(table) and not is_sent:
            raise KeyboardInterrupt
        proposed = propose(client, envelope, *args, **more)  # type: ignore[arg-type] # as they were given
        if envelope.table == canonical(table):
            proposed.answer(120)
            raise KeyboardInterrupt
        return proposed

    batch = pa.table({"id": pa.array([1, None, 2], pa.int64()), "n": pa.array([1, 2, 3], pa.int8())})
    monkeypatch.setattr(LogClient, "propose", ends)
    with pytest.raises(KeyboardInterrupt):
        lakefold.upsert(table, batch, keys="id", app_id="a", batch_id=4, **given)
    assert [len(bad(tmp_path / "bad")), ids(table)] == [1, [1, 2] if is_sent else []]
    monkeypatch.undo()
    report = lakefold.upsert(table, batch, keys="id", app_id="a", batch_id=4, **given)
    assert report.kind == ("duplicate" if is_sent else "committed")
    assert bad(tmp_path / "bad") == [("a", 4, "id", {"id": None, "n": 2})]
    assert ids(table) == [1, 2]


def test_each_way_to_write_leaves_bad_rows_out(
    options: lakefold.WriteOptions, tmp_path: Path, table: Path
) -> None:
    given: lakefold.WriteOptions = {**options, "bad_records": str(tmp_path / "bad")}
    batch = pa.table({"id": pa.array([1, None], pa.int64()), "n": pa.array([1, 2], pa.int8())})
    with pytest.raises(
        lakefold.BadRowsError, match="1 rows of the batch can't be written: id in 1"
    ) as raised:
        lakefold.append(table, batch, **options)
    assert raised.value.examples == ({"id": None, "n": 2},)
    for _ in range(2):
        lakefold.append(table, batch, app_id="a", batch_id=0, **given)
    assert ids(table) == [1]
    lakefold.upsert(table, batch.slice(1), keys="id", app_id="a", batch_id=1, **given)
    events = batch.append_column("op", [["d", "what"]])
    lakefold.apply_changes(table, events, keys="id", operation_column="op", app_id="a", batch_id=2, **given)
    assert ids(table) == []
    assert [(key, number, column) for key, number, column, _ in bad(tmp_path / "bad")] == [
        ("a", 0, "id"),
        ("a", 1, "id"),
        ("a", 2, "op"),
    ]
    others = tmp_path / "others"
    lakefold.append(others, pa.table({"reason": ["a complaint"]}), **options)
    given |= {"bad_records": others, "bad_records_columns": ["n"]}
    for number, rows in enumerate((batch, batch.slice(0, 1))):
        with pytest.raises(lakefold.InvalidError, match=r"a table of other rows: .*row .string. is not in"):
            lakefold.append(table, rows, app_id="b", batch_id=number, **given)
    assert ids(table) == []
    assert lance.dataset(others).schema.names == ["reason"]


def test_rows_that_turn_bad_before_the_batch_is_sent_again_are_not_lost(
    options: lakefold.WriteOptions, tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column gets another type between two runs of a batch, so that more rows are bad the second time."""
    given: lakefold.WriteOptions = {**options, "bad_records": tmp_path / "bad"}

    def ends(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    numbers = pa.table({"id": pa.array([1, 2, None], pa.int64()), "n": pa.array([1, None, 3], pa.int8())})
    propose = LogClient.propose
    monkeypatch.setattr(
        LogClient,
        "propose",
        lambda client, envelope, *args, **more: (
            ends() if envelope.table == canonical(table) else propose(client, envelope, *args, **more)
        ),
    )
    with pytest.raises(KeyboardInterrupt):
        lakefold.append(table, numbers, app_id="a", batch_id=0, **given)
    monkeypatch.undo()
    changed: Any = {"path": "n", "nullable": False}
    lance.dataset(table).alter_columns(changed)
    lakefold.append(table, numbers, app_id="a", batch_id=0, **given)
    assert ids(table) == [1]
    stored = sorted((column, row["id"] or 0) for _, _, column, row in bad(tmp_path / "bad"))
    assert stored == [("id", 0), ("id", 0), ("n", 2)]


def test_settings_of_the_table_that_a_batch_creates_are_not_those_of_the_table_of_its_bad_rows(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    """The first batch creates both tables; for the second one both exist."""
    given: lakefold.WriteOptions = {**options, "format": "delta", "stable_row_ids": True}
    given |= {"table_properties": {"delta.enableDeletionVectors": "true"}, "bad_records": tmp_path / "bad"}
    lakefold.append(tmp_path / "t", SCHEMA.empty_table(), **given)
    batch = pa.table({"id": pa.array([1, None], pa.int64()), "n": pa.array([1, 2], pa.int8())})
    for number in range(2):
        report = lakefold.append(tmp_path / "t", batch, app_id="a", batch_id=number, **given)
        assert report.kind == "committed"
    assert [number for _, number, _, _ in bad(tmp_path / "bad")] == [0, 1]
    assert not lance.dataset(tmp_path / "bad").has_stable_row_ids
