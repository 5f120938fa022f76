"""An app that a table forgets, in each format: its batches are new then, and nothing else changes.

Promises: forgotten-app (docs/operations/promises.md).
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import lakefold
from lakefold import cli
from lakefold.console.settings import Settings
from lakefold.setup.status import _apps_text, _looked_up
from lakefold_committer.fold.keys import Keys
from lakefold_committer.observability.metrics import operation_of
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located
from lakefold_ingest.formats import read_view
from lakefold_ingest.proposals.key import Key
from lakefold_log.codec.envelope import decode
from lakefold_log.read.file_log import FileLog, framed
from lakefold_maintenance.scheduling.waiting_proposals import waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope, ForgetApp
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Rejected, Result
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.marks import OLDER_APPS, AppCounts, Marks
from lakefold_table.position import LogId, Position
from lakefold_table.versions.table_address import TableAddress
from tests import proposals
from tests.folding import START_US
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("lance", "delta")


@dataclass
class Forgetful:
    """A table of a format, into which groups of proposals are folded, each as a file of its own."""

    kind: str
    table: Table
    logs: list[FileLog] = field(default_factory=list)

    def begin(self) -> None:
        uri = self.table.uri
        self.fold(self.table.create() if self.kind == "delta" else proposals.creation(uri))

    def batch(self, app: str, number: int) -> Envelope:
        """An append of one row, in a file of its own."""
        if self.kind == "delta":
            file = self.table.file(f"{app}-{number}-{len(self.logs)}.parquet", number)
            return self.table.propose(file, app=app, batch=number)
        return proposals.append(self.table.uri, proposals.rows([number]), 1, app, number)

    def fold(self, *envelopes: Envelope) -> list[Result]:
        name = f"{len(self.logs):08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e"
        self.logs.append(FileLog(framed(envelopes), name, formats=BUILT_IN))
        return self.table.fold(*envelopes, log=name)

    def rows(self) -> list[int]:
        column = "x" if self.kind == "delta" else "id"
        return sorted(lakefold.open(self.table.uri).to_arrow()[column].to_pylist())

    @property
    def marks(self) -> Marks:
        marks = lakefold.open(self.table.uri).marks
        assert marks is not None
        return marks

    def verdicts(self) -> list[Verdict]:
        """What replay says of all versions but the first, which has none before it."""
        stored = located(TableAddress(self.table.uri), "")
        replayed = replay(stored, FileEntries(self.logs))
        return [each.verdict for each in replayed]


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Forgetful:
    made = Forgetful(request.param, Table(tmp_path / "t"))
    made.begin()
    return made


def forget(table: Forgetful, app: str, uuid: str = "u-1") -> Envelope:
    return Envelope(table=table.table.uri, forget_app=ForgetApp(app_id=app, uuid=uuid))


def test_a_batch_of_a_forgotten_app_is_added_again_and_others_are_known(table: Forgetful) -> None:
    assert all(isinstance(each, Committed) for each in table.fold(table.batch("a", 3), table.batch("b", 4)))
    first = table.marks.version
    assert table.fold(table.batch("a", 3)) == [Duplicate(first)]
    version = table.marks.version
    later, again, other = table.batch("a", 9), table.batch("a", 3), table.batch("b", 4)
    results = table.fold(later, forget(table, "a"), again, other, table.batch("a", 3))
    assert results == [
        Committed(version + 1, rebased=table.kind == "lance", rows_added=1, **ids(table, 2)),
        Committed(version + 2),
        Committed(version + 3, rebased=table.kind == "lance", rows_added=1, **ids(table, 3)),
        Duplicate(first),
        Duplicate(version + 3),
    ]
    assert table.rows() == [3, 3, 4, 9]
    assert table.marks.apps["a"].folded == ((3, 3),)
    assert set(table.verdicts()) == {Verdict.SAME}
    row = next(row for row in lakefold.open(table.table.uri).history() if row.version == version + 2)
    assert (row.operations, row.entries) == ({"forget_app": 1}, 1)


def ids(table: Forgetful, first: int) -> dict[str, int]:
    return {} if table.kind == "delta" else {"first_fragment_id": first, "num_fragment_ids": 1}


def test_a_writer_sees_that_the_app_is_forgotten(table: Forgetful) -> None:
    table.fold(table.batch("a", 3))
    before = read_view(table.table.uri, {}, afresh=True)
    table.fold(forget(table, "a"))
    after = read_view(table.table.uri, {}, afresh=True)
    assert before is not None
    assert after is not None
    assert isinstance(before.folded(Key("a", 3)), Duplicate)
    assert after.folded(Key("a", 3)) is None
    assert after.folded(Key("a", 0)) is None
    assert before.highest_batch("a") == 3
    assert after.highest_batch("a") in {None, -1}
    table.fold(table.batch("a", 0))
    assert table.rows() == [0, 3]


def test_it_is_folded_once_and_an_unknown_app_is_refused(table: Forgetful) -> None:
    table.fold(table.batch("a", 3))
    first, repeated = table.fold(forget(table, "a"), forget(table, "a"))
    assert isinstance(first, Committed)
    assert repeated == Duplicate(first.version)
    (unknown, empty, reserved) = table.fold(
        forget(table, "a", "u-2"), forget(table, "", "u-3"), forget(table, "lakefold:marks", "u-4")
    )
    for refused in (unknown, empty, reserved):
        assert isinstance(refused, Invalid)
        assert "knows no batch of the app" in refused.message
        assert "lakefold show TABLE" in refused.hint
    keyed = forget(table, "a", "u-5")
    keyed.app_id, keyed.batch_id = "a", 3
    other = forget(table, "a", "u-6")
    other.table_id = "another"
    refused, rejected = table.fold(keyed, other)
    assert isinstance(refused, Invalid)
    assert "no batch id" in refused.message
    assert isinstance(rejected, Rejected)
    assert table.marks.apps == {}
    (missing,) = Forgetful(table.kind, Table(table.table.path.parent / "none")).fold(forget(table, "a"))
    assert isinstance(missing, Invalid)


def test_a_shortened_app_is_forgotten_as_well() -> None:
    """The table keeps the last interval only of those that are silent."""
    mark = AppMark(((0, 4), (7, 9)), recent=((9, 3),), time_us=START_US)
    marks = Marks(apps={"whole": mark, "silent": mark.shortened()})
    encoded = marks.encode()
    length = len("lakefold.app.whole") + len(encoded["lakefold.app.whole"]) + len(encoded[OLDER_APPS])
    assert marks.app_counts == AppCounts(1, 1, length - 1, 1)
    keys = Keys(marks)
    assert keys.forget("silent")
    assert not keys.forget("silent")
    assert set(keys.marks().apps) == {"whole"}


def test_delta_rs_sees_a_number_below_all_batches(tmp_path: Path) -> None:
    table = Forgetful("delta", Table(tmp_path / "t"))
    table.begin()
    table.fold(table.batch("a", 3), table.batch("b", 4))
    table.fold(forget(table, "a"))
    theirs = DeltaTable(str(table.table.path))
    assert (theirs.transaction_version("a"), theirs.transaction_version("b")) == (-1, 4)
    theirs.create_checkpoint()
    assert isinstance(table.fold(table.batch("a", 3))[0], Committed)
    assert DeltaTable(str(table.table.path)).transaction_version("a") == 3


def test_it_is_read_from_the_log_and_waits_as_one_that_needs_nothing(table: Forgetful) -> None:
    data = forget(table, "a").SerializeToString()
    position = Position(LogId("cluster", "topic", 0), 4, "transactions")
    read = decode(data, table.table.uri.encode(), position, START_US)
    assert isinstance(read, Entry)
    assert (operation_of(read), read.begins_table, read.uuid) == ("forget_app", False, "u-1")
    waiting = waiting_of([forget(table, "a")], "")
    assert (waiting.count, waiting.unknown) == (1, False)


def test_the_verb_says_what_would_be_forgotten(
    table: Forgetful, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table.fold(table.batch("a", 3), table.batch("a", 4), table.batch("a", 8))
    uri, version = table.table.uri, table.marks.version
    assert cli.run(["forget", uri, "a", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"table": uri, "app_id": "a", "batches": [[3, 4], [8, 8]], "dry_run": True}
    assert cli.run(["forget", uri, "a", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{uri}: batches 3-4, 8-8 of a (dry run: nothing was sent)\n"
    assert cli.run(["forget", uri, "b", "--dry-run"]) == 0
    assert "no batch of b is known" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert cli.run(["forget", uri, "a", "--bootstrap-servers", "localhost:1"]) != 0
    assert "is added again" in capsys.readouterr().err
    assert table.marks.version == version


def test_status_shows_how_many_apps_a_table_knows(table: Forgetful) -> None:
    table.fold(table.batch("a", 3), table.batch("b", 4))
    row = _looked_up(table.table.uri, Settings())
    counts = table.marks.app_counts
    assert row["apps"] == {"whole": 2, "shortened": 0, "bytes": counts.bytes, "forgetful": 0}
    assert row["error"] is None
    assert counts.bytes > 100
    assert _apps_text(row["apps"]) == "2"
    many = {"whole": 1000, "shortened": 2500, "bytes": 2**17, "forgetful": 0}
    assert _apps_text(many) == "3,500 (128 KiB)"
    forgetful = {"whole": 2, "shortened": 0, "bytes": 2**18, "forgetful": 1}
    assert _apps_text(forgetful) == "2 (256 KiB, lower batch ids of 1 forgotten)"
    assert _apps_text(None) is None


def test_counts_of_several_tables_follow_each_of_them() -> None:
    together = AppCounts(3, 1, 500, 2).changed(AppCounts(1, 1, 200, 1), AppCounts(5, 0, 100, 3))
    assert together == AppCounts(7, 0, 400, 4)
