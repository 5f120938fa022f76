"""What the change feed shows of single operations, compared with pylance's values, and what it refuses."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

import lakefold
from lakefold import cli
from lakefold_reader.feed import changes
from lakefold_reader.format.changes import RewrittenError
from lakefold_reader.formats import open_source, source_on
from lakefold_reader.lance.feed.columns import last_of
from lakefold_reader.lance.feed.plan import plan_changes, plan_version
from lakefold_reader.lance.feed.rows import FragmentPartReader, feed_of
from lakefold_reader.lance.scan.scan import Dataset
from lakefold_reader.tail.tail import tail
from lakefold_reader.versions.cursor import Cursor
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.storage import open_storage
from tests.feeds import applied, rows_by_key
from tests.oracle.test_deletes import table_of
from tests.oracle.test_mixed_versions import STABLE, appended, changed, folded
from tests.oracle.test_rebases import delete, merge, update
from tests.proposals import rows
from tests.tables import START_US, Folded, Recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_reader.lance.feed.parts import FragmentPart

INSERT, BEFORE, AFTER, DELETE = "insert", "update_preimage", "update_postimage", "delete"


def foreign(folder: Path, *, stable: bool = False, count: int = 20) -> str:
    """A table of another client's: the ids from 0 on, 10 in each fragment."""
    uri = str(folder / "t")
    lance.write_dataset(rows(range(count)), uri, enable_stable_row_ids=stable, max_rows_per_file=10)
    return uri


def feed_rows(
    uri: str,
    after: int,
    to: int | None = None,
    key: str = "id",
    **more: Any,  # noqa: ANN401 - arguments of `changes`
) -> list[tuple[str, Any]]:
    """What became of each row, in the feed's order."""
    table = lakefold.changes(uri, after, to, **more).read_all()
    return list(zip(table["_change_type"].to_pylist(), table[key].to_pylist(), strict=True))


@STABLE
def test_updates_are_pairs_if_rows_keep_their_ids(tmp_path: Path, *, stable: bool) -> None:
    uri = foreign(tmp_path, stable=stable)
    lance.dataset(uri).update({"text": "'new'"}, where="id in (3, 14)")
    actual = lakefold.changes(uri, 1).read_all().to_pylist()
    gone, come = (BEFORE, AFTER) if stable else (DELETE, INSERT)
    assert [(row["_change_type"], row["id"], row["text"]) for row in actual] == [
        (gone, 3, "row 3"),
        (gone, 14, "row 14"),
        (come, 3, "new"),
        (come, 14, "new"),
    ]
    assert {row["_commit_version"] for row in actual} == {2}
    assert {row["_log_offset"] for row in actual} == {None}
    versions: dict[int, Any] = {
        version["version"]: version["timestamp"] for version in lance.dataset(uri).versions()
    }
    (time,) = {row["_commit_timestamp"] for row in actual}
    # pylance makes a time of a float, and may be wrong by a microsecond.
    assert abs(time.replace(tzinfo=None) - versions[2].replace(tzinfo=None)) <= timedelta(microseconds=1)


@STABLE
def test_the_columns_that_a_feed_adds(tmp_path: Path, *, stable: bool) -> None:
    uri = foreign(tmp_path, stable=stable)
    actual = lakefold.changes(uri, 0)
    table = lance.dataset(uri).schema
    assert actual.schema == pa.schema(
        [
            *[field.with_nullable(True) for field in table],  # noqa: FBT003 - pyarrow's only form
            pa.field("_change_type", pa.string(), nullable=False),
            pa.field("_commit_version", pa.int64(), nullable=False),
            pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("_log_offset", pa.int64()),
        ]
    )
    assert actual.read_all().num_rows == 20
    assert lakefold.changes(uri, 0, columns=["text"]).read_all().column_names[:2] == ["text", "_change_type"]
    assert lakefold.changes(uri, 0, columns=[]).read_all().num_rows == 20
    assert lakefold.changes(uri, 1).read_all().num_rows == 0


@STABLE
def test_entries_that_share_a_version(tmp_path: Path, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    sent = [appended(table, 200, 201), changed(table, merge(2, 100)), appended(table, 300)]
    sent += [changed(table, delete("a in (1, 11)")), changed(table, merge(400, 401))]
    change = folded(table, [*sent, changed(table, update("a in (12, 35)"))], 70)
    actual = change.feed().read_all().to_pylist()
    offsets = {(row["_change_type"], row["a"]): row["_log_offset"] for row in actual}
    expected = {(INSERT, 200): 70, (INSERT, 201): 70, (INSERT, 100): 71, (INSERT, 300): 72}
    expected |= {(INSERT, 400): 74, (INSERT, 401): 74, (DELETE, 1): 75, (DELETE, 11): 75}
    gone, come = (BEFORE, AFTER) if stable else (DELETE, INSERT)
    expected |= {(gone, 2): 75, (gone, 12): 75, (gone, 35): 75, (come, 2): 71, (come, 12): 75, (come, 35): 75}
    assert offsets == expected
    assert lakefold.changes(table, change.version - 1).read_all().to_pylist() == actual


def test_the_only_entry_of_a_version_did_all_of_it(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    change = folded(table, [changed(table, delete("a in (1, 11)"))], 33)
    actual = change.feed(["a"]).read_all().to_pylist()
    assert [(row["a"], row["_change_type"], row["_log_offset"]) for row in actual] == [
        (1, DELETE, 33),
        (11, DELETE, 33),
    ]


def test_appends_of_a_committer_are_recognised_by_their_first_bytes(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"), first=5)
    table.append(rows([1, 2]), rows([3]))
    table.append(rows([4]))
    table.append(rows([5]))
    recording = Recording(open_storage(tmp_path / "t"))
    source = source_on(recording)
    shown = last_of(source, 4)
    parts = plan_changes(source, 1, shown=shown)
    recording.calls.clear()
    planned = list(parts)
    # Versions 2 and 3, the version before the feed, and the version after the last.
    assert recording.calls == ["get_range"] * 4
    assert [(part.version, part.log_offset, part.rows, part.offsets) for part in planned] == [
        (2, 6, 2, None),
        (2, 7, 1, None),
        (3, 8, 1, None),
        (4, 9, 1, None),
    ]
    assert [part.time_us - START_US for part in planned] == [7000, 7000, 8000, 9000]
    actual = feed_of(source, planned, shown.schema).read_all()
    assert actual["id"].to_pylist() == [1, 2, 3, 4, 5]


@STABLE
def test_parts_may_be_read_elsewhere_and_in_any_order(tmp_path: Path, *, stable: bool) -> None:
    uri = foreign(tmp_path, stable=stable)
    lance.dataset(uri).update({"text": "'new'"}, where="id in (3, 14)")
    lance.dataset(uri).delete("id < 12")
    source = open_source(uri)
    schema = last_of(source, 3).schema
    planned: list[FragmentPart] = list(plan_changes(source, 0, 3))
    sent = pickle.dumps(planned)
    assert len(sent) < 8000
    elsewhere = open_source(uri)
    values = [
        pa.Table.from_batches(FragmentPartReader(elsewhere, schema.chosen(["id"])).read(part))
        for part in reversed(pickle.loads(sent))  # noqa: S301 - pickled two lines above
    ]
    assert pa.concat_tables(reversed(values)).equals(changes(uri, 0, 3, columns=["id"]).read_all())
    assert [part.num_rows for part in reversed(values)] == [part.rows for part in planned]


def overwritten(uri: str) -> None:
    lance.write_dataset(rows([1, 7]), uri, mode="overwrite")


def restored(uri: str) -> None:
    lance.dataset(uri).delete("id < 3")
    lance.dataset(uri, version=1).restore()


@STABLE
@pytest.mark.parametrize(
    ("do", "shown"),
    [
        (overwritten, [*((DELETE, number) for number in range(20)), (INSERT, 1), (INSERT, 7)]),
        (restored, [(INSERT, 0), (INSERT, 1), (INSERT, 2)]),
    ],
)
def test_content_that_was_rewritten(
    do: Callable[[str], None], shown: list[tuple[str, int]], tmp_path: Path, *, stable: bool
) -> None:
    uri = foreign(tmp_path, stable=stable)
    do(uri)
    newest = lance.dataset(uri).version
    lance.write_dataset(rows([50]), uri, mode="append")
    assert feed_rows(uri, newest - 1) == [*shown, (INSERT, 50)]
    assert feed_rows(uri, newest - 1, rewritten="skip") == [(INSERT, 50)]
    with pytest.raises(RewrittenError, match=f"version {newest} replaced the") as caught:
        feed_rows(uri, newest - 1, rewritten="fail")
    assert caught.value.version == newest
    assert feed_rows(uri, newest, rewritten="fail") == [(INSERT, 50)]
    assert feed_rows(uri, 0, 1, rewritten="fail") == [(INSERT, number) for number in range(20)]
    with pytest.raises(InvalidError, match="choose one of rows, fail, skip"):
        feed_rows(uri, 0, rewritten="maybe")


def test_a_restore_over_a_compaction_pairs_rows_by_their_ids(tmp_path: Path) -> None:
    uri = foreign(tmp_path, stable=True)
    lance.dataset(uri).update({"text": "'new'"}, where="id = 3")
    lance.dataset(uri).delete("id = 4")
    lance.dataset(uri).optimize.compact_files()
    newest = lance.dataset(uri).version
    assert feed_rows(uri, 3, newest) == []
    lance.dataset(uri, version=1).restore()
    actual = lakefold.changes(uri, newest).read_all().to_pylist()
    assert [row["id"] for row in actual if row["_change_type"] == INSERT] == [4]
    texts = {row["id"]: row["text"] for row in actual if row["_change_type"] == AFTER}
    assert texts == {number: f"row {number}" for number in range(20) if number != 4}


def columns_updated(uri: str, number: int, *, names_rows: bool) -> None:
    """Another text in one row of the first fragment, written into a file of its own."""
    dataset = lance.dataset(uri)
    actual = dataset.get_fragment(0)
    assert actual is not None
    source = pa.table({"id": pa.array([number], pa.int64()), "text": ["in place"]})
    fragment, fields = actual.update_columns(source, left_on="id", right_on="id")
    offsets = {0: BitMap([number]).serialize()} if names_rows else None
    operation = lance.LanceOperation.Update([], [fragment], [], fields, [], "rewrite_columns", offsets)
    lance.LanceDataset.commit(uri, operation, read_version=dataset.version)


@STABLE
def test_values_written_in_place(tmp_path: Path, *, stable: bool) -> None:
    """Updates of the rows that the update lists; without such a list it may be any row of the fragment."""
    uri = foreign(tmp_path, stable=stable)
    columns_updated(uri, 1, names_rows=False)
    columns_updated(uri, 2, names_rows=True)
    all_rows = [*((BEFORE, number) for number in range(10)), *((AFTER, number) for number in range(10))]
    assert feed_rows(uri, 1) == [*all_rows, (BEFORE, 2), (AFTER, 2)]
    lance.dataset(uri, version=1).restore()
    assert feed_rows(uri, 3) == all_rows
    assert applied(lakefold.changes(uri, 0).read_all().to_pylist(), "id") == rows_by_key(uri, None, "id")


@STABLE
def test_a_restore_brings_back_a_column(tmp_path: Path, *, stable: bool) -> None:
    """Its values were in the same files all the time."""
    uri = foreign(tmp_path, stable=stable, count=3)
    lance.dataset(uri).drop_columns(["text"])
    lance.dataset(uri, version=1).restore()
    actual = lakefold.changes(uri, 1).read_all().to_pylist()
    brought_back = [
        *((BEFORE, number, None) for number in range(3)),
        *((AFTER, number, f"row {number}") for number in range(3)),
    ]
    went = [(AFTER if kind == BEFORE else BEFORE, number, text) for kind, number, text in brought_back]
    values = [(row["_commit_version"], row["_change_type"], row["id"], row["text"]) for row in actual]
    assert values == [*((2, *row) for row in [*went[3:], *went[:3]]), *((3, *row) for row in brought_back)]


@STABLE
def test_a_restore_before_an_overwrite_pairs_no_rows(tmp_path: Path, *, stable: bool) -> None:
    """The fragments have the same ids and as many rows, and nothing else in common."""
    uri = foreign(tmp_path, stable=stable, count=3)
    lance.write_dataset(rows([5, 6, 7]), uri, mode="overwrite")
    lance.dataset(uri, version=1).restore()
    expected = [*((DELETE, number) for number in (5, 6, 7)), *((INSERT, number) for number in range(3))]
    assert feed_rows(uri, 2) == expected


@STABLE
def test_the_first_version_of_a_clone_or_a_branch_inserts_all_rows(tmp_path: Path, *, stable: bool) -> None:
    uri = foreign(tmp_path, stable=stable)
    lance.dataset(uri).delete("id < 5")
    lance.dataset(uri).shallow_clone(str(tmp_path / "clone"), 2)
    lance.dataset(uri).create_branch("side", 2)
    lance.dataset(str(tmp_path / "t/tree/side")).delete("id < 7")
    lance.dataset(uri).delete("id = 19")
    expected = [(INSERT, number) for number in range(5, 20)]
    assert feed_rows(str(tmp_path / "clone"), 1) == expected
    assert feed_rows(uri, 1, branch="side") == [*expected, (DELETE, 5), (DELETE, 6)]
    assert feed_rows(uri, 2, branch="side") == [(DELETE, 5), (DELETE, 6)]
    assert feed_rows(uri, 2) == [(DELETE, 19)]
    (whole, *_) = tail(str(tmp_path / "clone"), "earliest")
    assert whole.feed().read_all()["id"].to_pylist() == list(range(5, 20))


def test_versions_that_are_gone_or_not_there_yet(tmp_path: Path) -> None:
    uri = foreign(tmp_path)
    for number in range(3):
        lance.dataset(uri).delete(f"id = {number}")
    lance.write_dataset(rows([50]), uri, mode="append")
    with pytest.raises(VersionExpiredError, match="version 9 does not exist yet, the newest is 5"):
        lakefold.changes(uri, 3, 9)
    with pytest.raises(VersionExpiredError, match="version 7 does not exist yet"):
        lakefold.changes(uri, 7, 7)
    for after, to in ((4, 3), (-1, 3), (6, None)):
        with pytest.raises(InvalidError, match="there is no version after"):
            lakefold.changes(uri, after, to)
    for wrong in (Cursor("", "", 2), "lf1:::2", 2.5):
        with pytest.raises(InvalidError, match="is not the number of a version"):
            lakefold.changes(uri, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="is one text"):
        lakefold.changes(uri, 2, columns="id")
    begun = lakefold.changes(uri, 2, 4)
    source = open_source(uri)
    for number in (1, 2, 3):
        (Path(uri) / source.versions.path(number)).unlink()
    with pytest.raises(VersionExpiredError, match="version 3 is gone") as caught:
        begun.read_all()
    assert caught.value.oldest == 4
    with pytest.raises(
        VersionExpiredError, match=r"version 2 is gone.* one left is 4: read that version whole"
    ):
        lakefold.changes(uri, 1)
    with pytest.raises(VersionExpiredError, match="it is not known what version 4 changed") as caught:
        lakefold.changes(uri, 3).read_all()
    assert caught.value.oldest == 4
    assert feed_rows(uri, 4) == [(INSERT, 50)]


def test_files_that_are_gone(tmp_path: Path) -> None:
    uri = foreign(tmp_path)
    lance.dataset(uri).delete("id < 12")
    planned = list(plan_version(open_source(uri), 2))
    for path in Path(uri, "_deletions").iterdir():
        path.rename(path.with_suffix(".away"))
    with pytest.raises(DamagedError, match="version 2 names a file that is missing"):
        lakefold.changes(uri, 1).read_all()
    for path in Path(uri, "data").iterdir():
        path.unlink()
    source = open_source(uri)
    with pytest.raises(DamagedError, match="version 1 names a file that is missing"):
        list(FragmentPartReader(source, last_of(source, 2).schema).read(planned[0]))


def test_rows_are_read_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from the files that hold them, without opening the table."""
    uri = foreign(tmp_path, count=40)
    lance.dataset(uri).update({"text": "'new'"}, where="id % 9 = 0")
    lance.write_dataset(rows([50]), uri, mode="append")

    def refuse(*_: object) -> None:
        raise AssertionError("the dataset was opened")

    monkeypatch.setattr(Dataset, "reader", refuse)
    monkeypatch.setattr(Dataset, "taken", refuse)
    reader = lakefold.changes(uri, 0)
    assert [reader.read_next_batch().num_rows for _ in range(4)] == [10, 10, 10, 10]
    for path in Path(uri, "data").iterdir():
        path.unlink()
    with pytest.raises(DamagedError):
        reader.read_all()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    table.append(rows([1, 2]))
    lance.dataset(str(tmp_path / "t")).delete("id = 1")
    assert cli.run(["changes", table.uri, "--from", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "version 2  insert            @1  id=1  text=row 1",
        "version 2  insert            @1  id=2  text=row 2",
        "version 3  delete            id=1  text=row 1",
    ]
    assert cli.run(["changes", table.uri, "--from", "1", "--to", "2", "--columns", "id", "--json"]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert documents == [
        {
            "id": number,
            "_change_type": "insert",
            "_commit_version": 2,
            "_commit_timestamp": "2023-11-14T22:13:20.001000Z",
            "_log_offset": 1,
        }
        for number in (1, 2)
    ]
    assert cli.run(["changes", table.uri, "--from", "7"]) == 2
    assert "there is no version after 7" in capsys.readouterr().err


def test_the_change_feed_of_a_tail_s_first_change(tmp_path: Path) -> None:
    uri = foreign(tmp_path)
    lance.dataset(uri).delete("id < 15")
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    (change,) = tail(uri, "earliest")
    assert [(row["_change_type"], row["id"]) for row in change.feed().read_all().to_pylist()] == [
        (INSERT, number) for number in range(15, 20)
    ]
