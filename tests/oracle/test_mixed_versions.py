"""Versions that Appends, Deletes and Updates share: what readers get of them, and their replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakefold import cli
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_reader.format.changes import UnknownChangeError
from lakefold_reader.formats import open_source
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.spark.changes import ChangedRowsError
from lakefold_reader.spark.data_source import LakefoldSource
from lakefold_reader.tail.tail import tail
from lakefold_table.entry import Committed
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.record import decode_record
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries
from tests.oracle.committing import owned, proposal, state, written
from tests.oracle.rebasing import built, send
from tests.oracle.test_deletes import rows_of, table_of, values
from tests.oracle.test_rebases import delete, merge, update
from tests.replaying import Listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.tail.change import Change
    from tests.oracle.operations import Act

STABLE = pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])


def appended(table: Path, *ids: int) -> Envelope:
    """The proposal of a writer that adds these rows."""
    made = written(table, rows_of(ids))
    return proposal(table, made, lance.dataset(str(table)).version, f"append {ids}")


def changed(table: Path, act: Act) -> Envelope:
    """The proposal of a writer that does this."""
    name = f"built-{len(list(table.parent.glob(f'{table.name}-built-*')))}"
    (envelope,) = send(table, built(table, act, name))
    return envelope


def folded(table: Path, envelopes: Sequence[Envelope], first: int = 0) -> Change:
    """The version that these proposals share, as a tail sees it."""
    outcomes = owned(table).fold(entries(envelopes, first)).outcomes
    assert len({outcome.result.version for outcome in outcomes if isinstance(outcome.result, Committed)}) == 1
    assert all(isinstance(outcome.result, Committed) for outcome in outcomes)
    before = lance.dataset(str(table)).version - 1
    (change,) = tail(str(table), before)
    return change


def ids(rows: pa.Table) -> list[int]:
    return list(rows["a"].to_pylist())


@STABLE
def test_appends_beside_deletes_are_returned(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    sent = [appended(table, 200, 201), changed(table, delete("a in (1, 11)")), appended(table, 300)]
    change = folded(table, [*sent, changed(table, delete("a >= 20 and a < 30"))])
    assert (change.operation, change.operations) == ("update", {"append": 2, "delete": 2})
    assert ids(change.inserted()) == ids(change.appended()) == [200, 201, 300]
    assert ids(change.inserted(["a"])) == [200, 201, 300]
    assert (change.rows, change.only_inserts) == (3, False)


@STABLE
def test_appends_beside_updates_are_returned(tmp_path: Path, *, stable: bool) -> None:
    """The new rows of an update are known if rows have ids for life, and only then."""
    table = table_of(tmp_path / "t", stable=stable)
    sent = [appended(table, 200, 201), changed(table, merge(2, 100)), appended(table, 300)]
    sent += [changed(table, delete("a in (1, 11)")), changed(table, merge(400, 401))]
    change = folded(table, [*sent, changed(table, update("a in (12, 35)"))])
    assert change.operations == {"append": 2, "update": 2, "delete": 1, "insert": 1}
    assert ids(change.appended()) == [200, 201, 300, 400, 401]
    assert (change.rows, change.only_inserts) == (None, False)
    if stable:
        assert sorted(ids(change.inserted())) == [100, 200, 201, 300, 400, 401]
    else:
        with pytest.raises(UnknownChangeError, match="appended"):
            change.inserted()


@STABLE
def test_appends_and_merges_that_meet_no_row_only_insert(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    change = folded(table, [appended(table, 200), changed(table, merge(400, 401)), appended(table, 300)])
    assert change.operations == {"append": 2, "insert": 1}
    assert ids(change.inserted()) == ids(change.appended()) == [200, 400, 401, 300]
    assert (change.rows, change.only_inserts) == (4, True)


def test_entries_of_one_kind_are_described_as_that_kind(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    change = folded(table, [appended(table, 200), appended(table, 300)])
    assert (change.operation, change.operations) == ("append", {"append": 2})
    assert (change.rows, change.only_inserts) == (2, True)
    record = decode_record(state(table).properties)
    assert record is not None
    assert record.operation_of == {}
    change = folded(table, [changed(table, delete("a = 1")), changed(table, delete("a = 2"))], 2)
    assert (change.operation, change.operations) == ("delete", {"delete": 2})
    assert ids(change.appended()) == []


def test_what_a_foreign_client_did_is_one_operation_without_an_entry(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    update("a = 3")(lance.dataset(str(table)))
    (change,) = tail(str(table), 1)
    assert (change.operation, change.operations) == ("update", {})
    assert ids(change.appended()) == []
    with pytest.raises(UnknownChangeError):
        change.inserted()


@STABLE
def test_the_history_shows_the_operations_within(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, stable: bool
) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    sent = [appended(table, 200, 201), changed(table, delete("a in (1, 11)")), appended(table, 300)]
    folded(table, [*sent, changed(table, update("a = 2"))])
    row = next(history_of(open_source(str(table))))
    assert (row.operation, row.entries) == ("update", 4)
    assert row.operations == {"append": 2, "delete": 1, "update": 1}
    assert (row.rows_in, row.rows_out) == (4, 3)
    assert cli.run(["log", str(table), "--from", "2"]) == 0
    assert "append x2, delete x1, update x1" in capsys.readouterr().out
    assert cli.run(["tail", str(table), "--from", "1"]) == 0
    assert "append x2, delete x1, update x1" in capsys.readouterr().out
    assert cli.run(["explain", str(table), "1"]) == 0
    assert "append x2, delete x1, update x1 of" in capsys.readouterr().out


@STABLE
def test_a_tail_prints_the_appended_rows_of_a_version_that_updates_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, stable: bool
) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    folded(table, [appended(table, 200), changed(table, update("a = 2"))])
    assert cli.run(["tail", str(table), "--from", "1", "--rows"]) == 0
    captured = capsys.readouterr()
    assert "a=200" in captured.out
    assert "a=2 " not in captured.out
    assert ("does not record which rows" in captured.err) is not stable


@STABLE
def test_mixed_versions_fold_to_the_same_bytes_again(tmp_path: Path, *, stable: bool) -> None:
    """Joined rows, a refused entry in between, and a second version on top."""
    table = table_of(tmp_path / "t", stable=stable, indices=True)
    sent = [
        appended(table, 200),
        changed(table, delete("a in (1, 11)")),
        changed(table, update("a in (1, 2)")),
    ]
    sent += [changed(table, update("a in (3, 12)")), appended(table, 201), changed(table, delete("a = 4"))]
    group = entries(sent, 0)
    results = [outcome.result for outcome in owned(table).fold(group).outcomes]
    assert [isinstance(result, Committed) for result in results] == [True, True, False, True, True, True]
    more = entries([appended(table, 300), changed(table, delete("a in (200, 13)"))], 6)
    owned(table).fold(more)
    versions = Versions(LocalStorage(table), FORMAT.folder, FORMAT.detect)
    replays = list(replay(StoredTable(BUILT_IN.first, versions), Listed([*group, *more]), 4))
    assert [each.verdict for each in replays] == [Verdict.SAME] * 2
    assert [each.committed for each in replays] == [5, 2]
    assert values(table, "a < 20") == [0, 2, 3, *range(5, 11), 12, *range(14, 20)]


@STABLE
def test_a_query_of_spark_takes_what_was_appended_beside_other_deeds(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    folded(table, [appended(table, 200, 201), changed(table, delete("a in (1, 11)")), appended(table, 300)])
    assert streamed(table, "ignoreDeletes") == [200, 201, 300]
    assert streamed(table, "skipChangeCommits") == [200, 201, 300]
    folded(table, [appended(table, 400), changed(table, merge(2, 100)), changed(table, delete("a = 3"))], 3)
    assert streamed(table, "skipChangeCommits") == [200, 201, 300, 400]
    assert streamed(table, "ignoreChanges") == [2, 100, 200, 201, 300, 400]
    with pytest.raises(ChangedRowsError, match="version 3"):
        streamed(table, "ignoreDeletes")


def streamed(table: Path, answer: str) -> list[int]:
    """The rows of a query that begins with version 2 and has these options."""
    source = LakefoldSource({"path": str(table), "startingVersion": "2", answer: "true"})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    batches: list[Any] = [batch for task in tasks for batch in reader.read(task)]
    return sorted(value for batch in batches for value in batch["a"].to_pylist())
