"""A committer reports a version of another client that removes files which were not in the table.

delta-rs makes one: a handle that was opened before a compaction compacts the same files, also if the other
compaction was that of another handle of delta-rs. The rows are in the table twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client import generate_latest
from structlog.testing import capture_logs

import lakefold
from lakefold.setup.status import _show_absent_removals
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.tables.absent_removals import AbsentRemovals
from lakefold_committer.tables.branches import open_branch
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import Members, add, remove, text, vector
from tests.folding import entries
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_committer.tables.table_writer import TableWriter


def answer(writer: TableWriter, offset: int) -> None:
    """Has the committer answer a proposal, for which it takes in what others did."""
    missing = Envelope(table=writer.table.uri)
    missing.delta.actions = text([add("gone.parquet")])
    writer.fold(entries([missing], offset))


def test_a_compaction_by_delta_rs_of_files_that_are_gone_is_reported(tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(str(tmp_path), pa.table({"x": [number]}), mode="append")
    writer = open_branch(TableAddress(tmp_path.as_uri()), "")
    answer(writer, 0)
    first, late = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))
    first.optimize.compact()
    answer(writer, 1)
    assert writer.absent_removals == []
    late.optimize.compact()
    assert lakefold.open(tmp_path).count_rows() == 8, "delta-rs does it no more: say so in clients.md"
    with capture_logs() as logs:
        answer(writer, 2)
    assert writer.absent_removals == [AbsentRemovals(writer.table.uri, 6, 4)]
    (line,) = (line for line in logs if line["event"].startswith("another client removed files"))
    assert (line["log_level"], line["version"], line["files"]) == ("warning", 6, 4)


@pytest.mark.parametrize(
    ("actions", "absent"),
    [
        ([remove("a")], 0),
        ([remove("a"), add("a", vector())], 0),
        ([remove("b")], 1),
        ([remove("a", vector())], 1),
        ([remove("a"), remove("b"), add("c")], 1),
        ([add("c")], 0),
    ],
)
def test_only_what_is_not_in_the_table_is_reported(
    tmp_path: Path, actions: list[Members], absent: int
) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    (table.path / commit_path(1)).write_bytes(text([add("a")]))
    writer = open_branch(TableAddress(table.uri), "")
    (table.path / commit_path(2)).write_bytes(text(actions))
    answer(writer, 0)
    answer(writer, 1)
    assert [each.files for each in writer.absent_removals] == [absent] * bool(absent)


def test_they_are_counted_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics()
    removals = [AbsentRemovals("file:///lake/t", 6, 1000), AbsentRemovals("file:///lake/t", 7, 1)]
    metrics.note_absent_removals(removals)
    assert removals == []
    assert b"lakefold_absent_removals_total 1001.0" in generate_latest(metrics.registry)
    _show_absent_removals(metrics.present_state()["absent_removals"])
    said = capsys.readouterr().out
    assert "file:///lake/t: version 6, of another client, removed 1,000 files that were not in the" in said
    assert "compare it with the version before" in said
