"""Rows of one file that several writers delete, and compactions that move rows meanwhile."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector, vector_file, vector_path
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.rows.row_moves import ROWS_OF
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import LISTED, VECTORS, Members, data_file, metadata, remove, snapshot_in
from tests.unit.test_delta_format import FORMATS, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

STORED = 10


def log_id(number: int) -> str:
    return f"{number:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


class Rows:
    """A table of files of ten rows each, and changes of their rows. The rows of file n are 10n to 10n + 9."""

    def __init__(
        self,
        path: Path,
        *files: int,
        stored: int = STORED,
        protocol: Members = LISTED,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.table = Table(path)
        self.logs = 0
        self.sizes: dict[str, int] = {}
        (created,) = self.fold(self.table.propose(protocol, metadata(**VECTORS, **more)))
        assert isinstance(created, Committed)
        self.stored = stored
        starts = {f"{number}.parquet": 10 * number for number in files}
        adds = [self.file(name, range(start, start + stored)) for name, start in starts.items()]
        (added,) = self.fold(self.table.propose(*adds))
        assert isinstance(added, Committed)

    def file(self, name: str, rows: Iterable[int]) -> Members:
        action = data_file(self.table.path, name, *rows)
        self.sizes[name] = action["add"]["size"]
        return action

    def fold(self, *envelopes: Envelope) -> list[Result]:
        self.logs += 1
        return self.table.fold(*envelopes, log=log_id(self.logs))

    def vector(self, rows: Iterable[int], *, stored: bool = False) -> Members | None:
        """A deletion vector with these rows, in its action or in a file."""
        bitmap = {0: Bitmap(list(rows))}
        if not bitmap[0]:
            return None
        if not stored:
            return members_of(inline_vector(bitmap))
        content, (vector,) = vector_file([bitmap], UUID(int=self.logs + 1))
        (self.table.path / str(vector_path(vector))).write_bytes(content)
        return members_of(vector)

    def added(self, name: str, rows: Iterable[int], *, stored: bool = False, **more: object) -> Members:
        members = {
            "path": name,
            "partitionValues": {},
            "size": self.sizes[name],
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": self.stored}),
            **more,
        }
        vector = self.vector(rows, stored=stored)
        return {"add": members if vector is None else {**members, "deletionVector": vector}}

    def delete(
        self,
        file: int,
        rows: Iterable[int],
        read: int,
        before: Iterable[int] = (),
        *,
        more: Iterable[Members] = (),
        stored: bool = False,
        read_predicates: Iterable[str] = (),
        read_whole_table: bool = False,
    ) -> Envelope:
        """Deletes rows of a file, of which the rows `before` were deleted at the version that was read."""
        name, rows, before = f"{file}.parquet", list(rows), list(before)
        envelope = self.table.propose(
            remove(name, self.vector(before, stored=stored)),
            self.added(name, [*before, *rows], stored=stored),
            *more,
            read=read,
            operation="DELETE",
            read_files=[name],
            read_predicates=list(read_predicates),
            read_whole_table=read_whole_table,
        )
        envelope.delta.affected_rows[name] = encode_treemap({0: Bitmap(rows)})
        return envelope

    def compact(
        self, target: int, *files: int, read: int, before: Iterable[int] = (), tagged: bool = True
    ) -> Envelope:
        """Moves the rows of files into a new one, of which all lack the rows `before`."""
        before = list(before)
        live = [row for row in range(STORED) if row not in before]
        name = f"{target}.parquet"
        action = self.file(name, [10 * file + row for file in files for row in live])
        action["add"]["dataChange"] = False
        if tagged:
            parts = [[f"{file}.parquet", STORED, 0, len(live)] for file in files]
            action["add"]["tags"] = {ROWS_OF: json.dumps(parts)}
        removes = [remove(f"{file}.parquet", self.vector(before), dataChange=False) for file in files]
        return self.table.propose(*removes, action, read=read, operation="OPTIMIZE")

    def rows(self) -> list[int]:
        """The rows as Lakefold reads them, and delta-rs as well."""
        table = pa.table(lakefold.open(str(self.table.path)).to_arrow())
        ours = sorted(table["x"].to_pylist())
        theirs = QueryBuilder().register("t", DeltaTable(str(self.table.path)))
        assert pa.table(theirs.execute("select x from t order by x").read_all())["x"].to_pylist() == ours
        return ours


def test_metrics_of_deletions_that_share_a_version_count_each_file_once(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0, 1)
    rows.fold(rows.delete(0, [9], read=1))
    deletions = [
        rows.delete(1, [2], read=1),
        rows.delete(1, [3, 4], read=1),
        rows.delete(0, [5], read=2, before=[9]),
    ]
    assert rows.fold(*deletions) == [
        Committed(3, rebased=rebased, rows_deleted=deleted)
        for rebased, deleted in ((True, 1), (True, 2), (False, 1))
    ]
    head, *_ = (tmp_path / "t" / commit_path(3)).read_text().splitlines()
    zero = dict.fromkeys(("numAddedFiles", "numAddedBytes", "numRemovedFiles", "numRemovedBytes"), "0")
    assert json.loads(head)["commitInfo"]["operationMetrics"] == zero | {
        "numDeletionVectorsAdded": "2",
        "numDeletionVectorsRemoved": "1",
        "numDeletionVectorsUpdated": "1",
        "numAddedChangeFiles": "0",
        "numCopiedRows": "0",
        "numDeletedRows": "4",
    }


def test_metrics_leave_out_what_statistics_do_not_say(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0)
    file = rows.file("1.parquet", [1])
    del file["add"]["stats"]
    rows.fold(rows.table.propose(file))
    rows.fold(rows.table.propose(remove("1.parquet"), read=2, operation="DELETE"))
    shown = []
    for version in (2, 3):
        head, *_ = (tmp_path / "t" / commit_path(version)).read_text().splitlines()
        shown.append(json.loads(head)["commitInfo"]["operationMetrics"])
    assert shown[0] == {"numFiles": "1", "numOutputBytes": str(file["add"]["size"])}
    assert shown[1]["numRemovedBytes"] == str(file["add"]["size"])
    assert "numDeletedRows" not in shown[1]


def without(*rows: int, files: int = 1) -> list[int]:
    return [row for row in range(10 * files) if row not in rows]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_deletes_of_different_rows_of_a_file_are_merged(path: Path, *, stored: bool, together: bool) -> None:
    rows = Rows(path, 0)
    first = rows.delete(0, [1, 2], read=1, stored=stored)
    rows.logs += 1
    second = rows.delete(0, [5], read=1, stored=stored)
    results = rows.fold(first, second) if together else [*rows.fold(first), *rows.fold(second)]
    assert results == [
        Committed(2, rebased=False, rows_deleted=2),
        Committed(2 if together else 3, rebased=not together, rows_deleted=1),
    ]
    assert rows.rows() == without(1, 2, 5)
    vector = snapshot_in(path).files["0.parquet"].deletion_vector
    assert vector is not None
    assert vector.cardinality == 3
    third = rows.delete(0, [0], read=2, before=[1, 2, 5] if together else [1, 2])
    (result,) = rows.fold(third)
    assert result == Committed(3 if together else 4, rebased=not together, rows_deleted=1)
    assert rows.rows() == without(0, 1, 2, 5)


def test_a_row_that_both_delete_is_a_conflict(path: Path) -> None:
    rows = Rows(path, 0)
    assert rows.fold(rows.delete(0, [1, 2], read=1)) == [Committed(2, rows_deleted=2)]
    (result,) = rows.fold(rows.delete(0, [2, 3], read=1))
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert "rows of '0.parquet' were changed by another commit, such as 2" in result.conflict.message
    assert (result.conflict.other_version, result.conflict.other_operation) == (2, "DELETE")
    assert rows.rows() == without(1, 2)


def test_a_large_merged_vector_gets_a_file(path: Path) -> None:
    count = 20_000
    rows = Rows(path, 0, stored=count)
    assert rows.fold(rows.delete(0, range(0, count, 4), read=1)) == [Committed(2, rows_deleted=5_000)]
    assert rows.fold(rows.delete(0, range(1, count, 4), read=1)) == [
        Committed(3, rebased=True, rows_deleted=5_000)
    ]
    assert rows.rows() == [number for number in range(count) if number % 4 > 1]
    vector = snapshot_in(path).files["0.parquet"].deletion_vector
    assert vector is not None
    assert vector.storage_type == "u"
    assert (path / str(vector_path(vector))).exists()


def test_an_update_is_merged_with_a_delete_of_other_rows(path: Path) -> None:
    rows = Rows(path, 0)
    assert rows.fold(rows.delete(0, [1], read=1)) == [Committed(2, rows_deleted=1)]
    new = rows.file("9.parquet", [104])
    update = rows.delete(0, [4], read=1, more=[new], read_predicates=["x > 3"])
    assert rows.fold(update) == [Committed(3, rebased=True, rows_added=1, rows_deleted=1)]
    assert rows.rows() == [*without(1, 4), 104]


def test_a_proposal_that_read_the_whole_table_is_not_merged(path: Path) -> None:
    rows = Rows(path, 0)
    assert rows.fold(rows.delete(0, [1], read=1)) == [Committed(2, rows_deleted=1)]
    (result,) = rows.fold(rows.delete(0, [4], read=1, read_whole_table=True))
    assert isinstance(result, Rejected)
    assert "it removed files that the proposal has read" in result.conflict.message


def test_rows_that_came_back_are_a_conflict(path: Path) -> None:
    rows = Rows(path, 0)
    assert rows.fold(rows.delete(0, [1, 2], read=1)) == [Committed(2, rows_deleted=2)]
    restored = rows.table.propose(
        remove("0.parquet", rows.vector([1, 2])),
        rows.added("0.parquet", [3, 4, 5]),
        read=2,
        operation="RESTORE",
    )
    assert rows.fold(restored) == [Committed(3, rows_deleted=1)]
    (result,) = rows.fold(rows.delete(0, [7], read=2, before=[1, 2]))
    assert isinstance(result, Rejected)
    assert "such as 1, 2" in result.conflict.message


@pytest.mark.parametrize("before", [[], [0, 3]])
def test_rows_that_a_compaction_moved_are_deleted_where_they_are(path: Path, before: list[int]) -> None:
    rows = Rows(path, 0, 1)
    for file in (0, 1):
        if before:
            assert len(rows.fold(rows.delete(file, before, read=1))) == 1
    read = 3 if before else 1
    compacted = rows.compact(5, 0, 1, read=read, before=before)
    assert rows.fold(compacted) == [Committed(read + 1)]
    late = rows.delete(1, [2, 9], read=read, before=before)
    assert rows.fold(late) == [Committed(read + 2, rebased=True, rows_deleted=2)]
    gone = [*before, *(10 + row for row in before), 12, 19]
    assert rows.rows() == without(*gone, files=2)
    assert sorted(snapshot_in(path).files) == ["5.parquet"]
    again = rows.delete(0, [7], read=read, before=before)
    assert rows.fold(again) == [Committed(read + 3, rebased=True, rows_deleted=1)]
    assert rows.rows() == without(*gone, 7, files=2)
    (result,) = rows.fold(rows.delete(1, [9], read=read, before=before))
    assert isinstance(result, Rejected)


def test_a_compaction_takes_over_rows_that_were_deleted_meanwhile(path: Path) -> None:
    rows = Rows(path, 0, 1)
    assert len(rows.fold(rows.delete(0, [3], read=1))) == 1
    assert len(rows.fold(rows.delete(1, [3], read=1))) == 1
    compacted = rows.compact(5, 0, 1, read=3, before=[3])
    assert rows.fold(rows.delete(0, [5, 6], read=3, before=[3])) == [Committed(4, rows_deleted=2)]
    assert rows.fold(compacted) == [Committed(5, rebased=True)]
    assert rows.rows() == without(3, 13, 5, 6, files=2)
    # A proposal that read the table before the compaction did, and one before the last rows were deleted.
    assert rows.fold(rows.delete(0, [8], read=3, before=[3])) == [Committed(6, rebased=True, rows_deleted=1)]
    assert rows.fold(rows.delete(0, [9], read=4, before=[3, 5, 6])) == [
        Committed(7, rebased=True, rows_deleted=1)
    ]
    (result,) = rows.fold(rows.delete(0, [5], read=3, before=[3]))
    assert isinstance(result, Rejected)
    assert rows.rows() == without(3, 13, 5, 6, 8, 9, files=2)


def test_rows_are_followed_through_two_compactions(path: Path) -> None:
    rows = Rows(path, 0, 1)
    assert rows.fold(rows.compact(5, 1, 0, read=1)) == [Committed(2)]
    tag = json.dumps([["5.parquet", 20, 0, 20]])
    whole = rows.file("6.parquet", [*range(10, 20), *range(10)])
    whole["add"] |= {"dataChange": False, "tags": {ROWS_OF: tag}}
    second = rows.table.propose(remove("5.parquet", dataChange=False), whole, read=2, operation="OPTIMIZE")
    assert rows.fold(second) == [Committed(3)]
    assert rows.fold(rows.delete(0, [4], read=1)) == [Committed(4, rebased=True, rows_deleted=1)]
    assert rows.rows() == without(4, files=2)


def test_a_compaction_that_does_not_say_where_rows_are_is_a_conflict(path: Path) -> None:
    rows = Rows(path, 0, 1)
    late = rows.compact(6, 0, 1, read=1, tagged=False)
    assert rows.fold(rows.compact(5, 0, 1, read=1, tagged=False)) == [Committed(2)]
    (result,) = rows.fold(rows.delete(1, [2], read=1))
    assert isinstance(result, Rejected)
    assert result.conflict.keys == ("1.parquet",)
    (result,) = rows.fold(late)
    assert isinstance(result, Rejected)


def test_a_replay_makes_the_same_commits(path: Path) -> None:
    rows = Rows(path, 0, 1)
    envelopes = [
        rows.delete(0, [1], read=1),
        rows.delete(0, [2], read=1),
        rows.compact(5, 0, 1, read=1),
        rows.delete(1, [4], read=1),
    ]
    assert [type(result) for result in rows.fold(*envelopes)] == [Committed] * 4
    assert rows.rows() == without(1, 2, 14, files=2)
    stored = located(TableAddress(rows.table.uri), "", formats=FORMATS)
    entries = FileEntries([FileLog(framed(envelopes), log_id(rows.logs), formats=FORMATS)])
    replays = list(replay(stored, entries))
    verdicts = {each.version: (each.verdict, each.differences) for each in replays}
    assert [verdicts[version] for version in range(2, 5)] == [(Verdict.SAME, ())] * 3


def refused(rows: Rows, envelope: Envelope) -> str:
    """The reason why a proposal is invalid. Nothing of it may be in the table."""
    before = rows.rows()
    (result,) = rows.fold(envelope)
    assert isinstance(result, Invalid)
    assert result.hint
    assert rows.rows() == before
    return result.message


def test_rows_that_the_vector_does_not_have_are_invalid(path: Path) -> None:
    rows = Rows(path, 0)
    few = rows.delete(0, [1, 2], read=1)
    few.delta.affected_rows["0.parquet"] = encode_treemap({0: Bitmap([1])})
    assert "deletion vector grows from 0 to 2" in refused(rows, few)
    other = rows.delete(0, [1], read=1)
    other.delta.affected_rows["b.parquet"] = other.delta.affected_rows["0.parquet"]
    assert "'b.parquet', which the proposal does not remove" in refused(rows, other)
    malformed = rows.delete(0, [1], read=1)
    malformed.delta.affected_rows["0.parquet"] = b"no bitmap"
    assert "the affected rows of '0.parquet'" in refused(rows, malformed)
    large = rows.delete(0, [1], read=1)
    large.delta.affected_rows["0.parquet"] = encode_treemap({1: Bitmap([1])})
    assert "2^32" in refused(rows, large)


def test_vectors_with_false_claims_are_invalid(path: Path) -> None:
    rows = Rows(path, 0)
    beyond = rows.table.propose(remove("0.parquet"), rows.added("0.parquet", [10]), read=1)
    assert "has row 10, the file has fewer" in refused(rows, beyond)
    inline = rows.vector([1])
    assert inline is not None
    more = rows.added("0.parquet", []) | {}
    more["add"]["deletionVector"] = {**inline, "cardinality": 2}
    envelope = rows.table.propose(remove("0.parquet"), more, read=1)
    assert "has 1 rows, its action says 2" in refused(rows, envelope)
    more["add"]["deletionVector"] = {**inline, "offset": 1}
    envelope = rows.table.propose(remove("0.parquet"), more, read=1)
    assert "is in its action, and has an offset" in refused(rows, envelope)
    stored = rows.delete(0, [1], read=1, stored=True)
    (file,) = path.glob("deletion_vector_*.bin")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "checksum" in refused(rows, stored)
    file.unlink()
    assert "does not exist" in refused(rows, stored)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("{}", "malformed"),
        ('["0.parquet"]', "malformed"),
        ('[["0.parquet", 10, 0]]', "malformed"),
        ('[["0.parquet", 10, -1, 3]]', "malformed"),
        ("[[7, 10, 0, 3]]", "malformed"),
        ('[["0.parquet", 10, 0, 10, 7]]', "malformed"),
        ('[["0.parquet", 10, 0, 11]]', "'0.parquet' has fewer rows"),
        ('[["1.parquet", 10, 0, 10]]', "'1.parquet' is not removed"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_tag_that_does_not_fit_is_invalid(path: Path, tag: str, message: str) -> None:
    rows = Rows(path, 0, 1)
    action = rows.file("5.parquet", range(10))
    action["add"] |= {"dataChange": False, "tags": {ROWS_OF: tag}}
    envelope = rows.table.propose(remove("0.parquet", dataChange=False), action, read=1)
    assert message in refused(rows, envelope)
