"""Batches that another client has recorded in a Delta table, as delta-spark does by txnAppId and txnVersion.

delta-rs is the other client here. It, delta-spark and committers all pass over such a batch, and older ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from lakefold.console.outcomes import result_text
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located
from lakefold_ingest.formats import read_view
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writer.batching import BatchIds
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.sending_query import Sender
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.topic_names import Topics
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.batches import AppMark
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import add
from tests.merging import NO_BROKER
from tests.unit.test_delta_format import LOG_ID, OTHER_ID, THIRD_ID, Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.view import View
    from lakefold_protos.lakefold.log_pb2 import Envelope

LAST = 5
"""The last batch that the other client has recorded."""
ROWS = pa.table({"x": pa.array([1], pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table to which the other client has written, with version 1."""
    table = Table(tmp_path / "t")
    table.begin()
    record(table, LAST)
    return table


def record(table: Table, batch: int) -> None:
    recorded = CommitProperties(app_transactions=[Transaction("job", batch)])
    write_deltalake(str(table.path), ROWS, mode="append", commit_properties=recorded)


def view_of(table: Table, *, afresh: bool) -> View:
    view = read_view(table.uri, {}, afresh=afresh)
    assert view is not None
    return view


def put(table: Table, batch: int) -> str:
    """Writes a batch without a broker, which writes no file; returns what is reported."""

    def write(_: Target) -> list[WrittenFile]:
        raise AssertionError("a file is written")

    settings = WriteSettings(table.uri, NO_BROKER, Topics(), format="delta")
    operation = AppendRows(ROWS.schema, write, count=lambda: 2)
    report = put_batch(settings, Key("job", batch), operation, Sender(in_order=True))
    assert (report.kind, report.version, report.is_sent) == ("duplicate", None, False)
    assert not report.is_doubtful
    return str(report)


def test_a_batch_of_theirs_is_a_duplicate_and_a_greater_number_is_folded(table: Table) -> None:
    proposals = [
        # Whatever is wrong with it: it is passed over.
        table.propose(add("gone.parquet"), app="job", batch=LAST),
        table.propose(table.file("b.parquet", 2), app="job", batch=LAST - 1),
        table.propose(table.file("c.parquet", 3), app="other", batch=LAST),
        table.propose(table.file("d.parquet", 4), app="job", batch=LAST + 1),
        table.propose(table.file("e.parquet", 5), app="job", batch=LAST + 1),
    ]
    outcomes = table.outcomes(*proposals)
    assert [outcome.result for outcome in outcomes] == [
        Duplicate(0),
        Duplicate(0),
        Committed(2, rows_added=1),
        Committed(2, rows_added=1),
        Duplicate(2),
    ]
    assert "another client recorded" in result_text(outcomes[0])
    assert table.rows() == [1, 3, 4]
    stored = located(TableAddress(table.uri), "")
    entries = FileEntries([FileLog(framed(proposals), LOG_ID, formats=BUILT_IN)])
    *_, again = replay(stored, entries)
    assert (again.version, again.verdict, again.differences) == (2, Verdict.SAME, ())
    # They have written their next batch, and one of ours comes late, which they would pass over as well.
    record(table, LAST + 3)
    late = table.propose(table.file("f.parquet", 6), app="job", batch=LAST + 2)
    next_one = table.propose(table.file("g.parquet", 7), app="job", batch=LAST + 6)
    more = [next_one, late, late, table.propose(table.file("h.parquet", 8), app="job", batch=LAST + 5)]
    # One of ours that comes late is folded, as its number is above theirs.
    duplicate, committed = Duplicate(0), Committed(4, rows_added=1)
    assert table.fold(late, *more, log=OTHER_ID) == [duplicate, committed, duplicate, duplicate, committed]
    # So it is after the table has our number.
    theirs = table.propose(table.file("i.parquet", 9), app="job", batch=LAST + 3)
    ours = table.propose(table.file("j.parquet", 10), app="job", batch=LAST + 4)
    later = [theirs, late, ours]
    assert table.fold(*later, log=THIRD_ID) == [duplicate, duplicate, Committed(5, rows_added=1)]
    assert table.rows() == [1, 1, 3, 4, 7, 8, 10]
    log = FileEntries([FileLog(framed(later), THIRD_ID, formats=BUILT_IN)])
    *_, last = replay(stored, log)
    assert (last.version, last.verdict, last.differences) == (5, Verdict.SAME, ())


def test_the_marks_of_an_app_are_not_decoded_for_each_new_batch(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batch(number: int) -> Envelope:
        return table.propose(table.file(f"{number}.parquet", number), app="job", batch=number)

    assert table.fold(batch(LAST + 1)) == [Committed(2, rows_added=1)]
    decoded: list[str] = []
    decode = AppMark.decode

    def recorded(text: str) -> AppMark:
        decoded.append(text)
        return decode(text)

    monkeypatch.setattr(AppMark, "decode", recorded)
    count = 20
    answers = table.fold(*(batch(LAST + 2 + number) for number in range(count)), log=OTHER_ID)
    assert answers == [Committed(3, rows_added=1)] * count
    # The table is opened, and its version is made.
    assert 0 < len(decoded) < count


def test_a_writer_sees_before_it_writes_that_the_table_has_a_batch_of_theirs(table: Table) -> None:
    unknown = "in a version no longer known, or by another client"
    for batch in (LAST, LAST - 1):
        assert put(table, batch) == f"duplicate, folded before {unknown}: nothing was added"
    with pytest.raises(AssertionError, match="a file is written"):
        put(table, LAST + 1)
    before = view_of(table, afresh=False)
    record(table, LAST + 1)
    # First the view of the version before is followed, then the version is read whole.
    for afresh in (False, True):
        view = view_of(table, afresh=afresh)
        assert view.version == before.version + 1
        assert view.folded(Key("job", LAST + 1)) == Duplicate(0)
        assert view.folded(Key("job", LAST + 2)) is None
        assert view.folded(Key("other", 0)) is None
    ids = BatchIds("job")
    ids.continue_after(view_of(table, afresh=False))
    with ids.next_key() as key:
        assert key.batch_id == LAST + 2
