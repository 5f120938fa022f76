"""Delta tables behind the seam: proposals are folded into commits that delta-rs opens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lance import write_dataset as lance_dataset

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.replay.file_fold import fold_file
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located, open_branch
from lakefold_log.codec.envelope import UnknownKind, decode, encode
from lakefold_log.read.file_log import FileLog, framed
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.commit_head import MARKS_APP
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.state import DeltaState
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome, Rejected, Result
from lakefold_table.errors import NotATableError
from lakefold_table.expansion import content_of
from lakefold_table.formats import BUILT_IN, Formats, lance
from lakefold_table.position import LogId, Position
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import (
    PROTOCOL,
    Members,
    add,
    data_file,
    domain,
    metadata,
    remove,
    snapshot_in,
    text,
    txn,
)
from tests.folding import creation

if TYPE_CHECKING:
    from pathlib import Path

DELTA = DeltaFormat()
FORMATS = BUILT_IN
LIMITS = Limits(100, 1 << 20)
LOG_ID, OTHER_ID = "6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e", "0d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"
FIRST_ID, SECOND_ID = "2d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e", "3d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"
THIRD_ID = "1d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


class Table:
    """A Delta table on disk, and what is proposed for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uri = canonical(path)

    def propose(
        self,
        *actions: Members,
        read: int | None = None,
        app: str = "",
        batch: int | None = None,
        **more: object,
    ) -> Envelope:
        envelope = Envelope(table=self.uri, app_id=app, batch_id=batch)
        envelope.delta.actions = text(actions)
        if read is not None:
            envelope.delta.read_version = read
        for name, value in more.items():
            field = getattr(envelope.delta, name)
            if isinstance(value, list):
                field.extend(value)
            else:
                setattr(envelope.delta, name, value)
        return envelope

    def create(self, *actions: Members, **configuration: str) -> Envelope:
        return self.propose(PROTOCOL, metadata(**configuration), *actions)

    def file(self, name: str, *rows: int) -> Members:
        """Writes a data file, and returns the add action."""
        return data_file(self.path, name, *rows)

    def begin(self, *files: Members, **configuration: str) -> None:
        """Creates the table, and adds files to it."""
        outcomes = self.fold(self.create(**configuration), log=FIRST_ID)
        assert outcomes == [Committed(0)]
        if files:
            assert len(self.fold(self.propose(*files), log=SECOND_ID)) == 1

    def fold(self, *envelopes: Envelope, log: str = LOG_ID) -> list[Result]:
        return [outcome.result for outcome in self.outcomes(*envelopes, log=log)]

    def outcomes(self, *envelopes: Envelope, log: str = LOG_ID) -> list[Outcome]:
        entries = FileLog(framed(envelopes), log, formats=FORMATS)

        def opened(branch: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as fold_file takes it
            return open_branch(TableAddress(self.uri), branch, formats=FORMATS)

        claims = Claims(formats=FORMATS)
        return list(fold_file(opened, self.uri, FORMATS, entries, LIMITS, dry_run=False, claims=claims))

    def rows(self, version: int | None = None) -> list[int]:
        """The rows as delta-rs reads them."""
        table = DeltaTable(str(self.path), version=version)
        return sorted(pa.table(table.to_pyarrow_table())["x"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "t")


def test_a_creation_and_appends_are_versions_that_delta_rs_opens(table: Table) -> None:
    assert table.fold(table.create()) == [Committed(0)]
    first, second = table.file("a.parquet", 1, 2), table.file("b.parquet", 3)
    assert table.fold(table.propose(first), table.propose(second), log=OTHER_ID) == [
        Committed(1, rows_added=2),
        Committed(1, rows_added=1),
    ]
    assert table.rows(0) == []
    assert table.rows() == [1, 2, 3]
    theirs = DeltaTable(str(table.path))
    assert theirs.version() == 1
    (commit, *_) = theirs.history(1)
    assert (commit["operation"], commit["isBlindAppend"]) == ("WRITE", True)


def test_a_proposal_that_is_sent_again_counts_once(table: Table) -> None:
    table.fold(table.create())
    first = table.propose(table.file("a.parquet", 1), app="job", batch=7)
    second = table.propose(table.file("b.parquet", 2))
    kinds = [type(each) for each in table.fold(first, second, first, second, log=OTHER_ID)]
    assert kinds == [Committed, Committed, Duplicate, Duplicate]
    assert DeltaTable(str(table.path)).transaction_version("job") == 7
    (again,) = table.fold(table.propose(table.file("c.parquet", 3), app="job", batch=7), log=THIRD_ID)
    assert again == Duplicate(1, different_content=False) or isinstance(again, Duplicate)
    assert table.rows() == [1, 2]


def test_the_same_log_is_folded_once(table: Table) -> None:
    table.begin()
    proposals = [table.propose(table.file("a.parquet", 1)), table.propose(txn("x", 3))]
    assert [type(each) for each in table.fold(*proposals)] == [Committed] * 2
    newest = DeltaTable(str(table.path)).version()
    assert [type(each) for each in table.fold(*proposals)] == [Duplicate] * 2
    assert DeltaTable(str(table.path)).version() == newest
    assert DeltaTable(str(table.path)).transaction_version("x") == 3


def test_without_a_table_only_a_creation_is_taken(table: Table) -> None:
    missing, made, twice = table.fold(
        table.propose(add("a", size=1)), table.create(), table.create(owner="another")
    )
    assert isinstance(missing, Invalid)
    assert made == Committed(0)
    assert isinstance(twice, Rejected)
    assert twice.conflict.retryable


def test_foreign_commits_are_followed_and_marks_survive_them(table: Table) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1), app="job", batch=1))
    write_deltalake(str(table.path), pa.table({"x": [10]}), mode="append")
    write_deltalake(str(table.path), pa.table({"x": [11]}), mode="append")
    again = table.propose(table.file("a2.parquet", 1), app="job", batch=1)
    more = table.propose(table.file("b.parquet", 2), app="job", batch=2)
    kinds = [type(each) for each in table.fold(again, more, log=OTHER_ID)]
    assert kinds == [Duplicate, Committed]
    assert table.rows() == [1, 2, 10, 11]
    DeltaTable(str(table.path)).create_checkpoint()
    write_deltalake(str(table.path), pa.table({"x": [12]}), mode="append")
    assert [type(each) for each in table.fold(again, log=THIRD_ID)] == [Duplicate]
    assert table.rows() == [1, 2, 10, 11, 12]


def test_marks_are_found_through_a_checkpoint(table: Table) -> None:
    table.begin()
    sent = table.propose(table.file("a.parquet", 1), app="job", batch=1)
    table.fold(sent)
    for number in range(3):
        write_deltalake(str(table.path), pa.table({"x": [number + 10]}), mode="append")
    DeltaTable(str(table.path)).create_checkpoint()
    ours = snapshot_in(table.path).apps[MARKS_APP].version
    for version in range(ours):
        (table.path / "_delta_log" / f"{version:020}.json").unlink()
    assert [type(each) for each in table.fold(sent, log=OTHER_ID)] == [Duplicate]


def test_a_table_that_delta_rs_made_is_folded_into(table: Table) -> None:
    write_deltalake(str(table.path), pa.table({"x": [1]}))
    assert table.fold(table.propose(table.file("b.parquet", 2))) == [Committed(1, rows_added=1)]
    assert table.rows() == [1, 2]


def test_removes_conflict_with_removes(table: Table) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1), table.file("b.parquet", 2)), log=SECOND_ID)
    first_update = table.propose(
        remove("a.parquet"), table.file("a1.parquet", 10), read=1, operation="UPDATE"
    )
    two = table.propose(remove("a.parquet"), read=1, operation="DELETE")
    other = table.propose(remove("b.parquet"), read=1, operation="DELETE")
    first, second, third = table.fold(first_update, two, other, log=OTHER_ID)
    assert first == Committed(2, rows_added=1, rows_deleted=1)
    assert isinstance(second, Rejected)
    assert (second.conflict.other_version, second.conflict.other_operation) == (2, "UPDATE")
    assert second.conflict.keys == ("a.parquet",)
    assert isinstance(third, Committed)
    assert table.rows() == [10]


def test_a_file_that_a_proposal_before_adds_is_removed_in_the_next_version(table: Table) -> None:
    table.fold(table.create())
    gone = table.propose(remove("a.parquet"), read=0, operation="DELETE")
    assert table.fold(table.propose(table.file("a.parquet", 1)), gone, log=OTHER_ID) == [
        Committed(1, rows_added=1),
        Committed(2, rebased=True, rows_deleted=1),
    ]
    assert table.rows() == []


def test_a_file_that_a_proposal_before_removes_is_added_in_the_next_version(table: Table) -> None:
    """In one commit the two actions would contradict each other."""
    file = table.file("a.parquet", 1)
    table.begin(file)
    there_and_back = [
        table.propose(remove("a.parquet"), read=1),
        table.propose(file, operation="RESTORE"),
    ]
    outcomes = table.fold(*there_and_back, table.propose(remove("a.parquet"), read=0), log=OTHER_ID)
    assert outcomes[:2] == [Committed(2, rows_deleted=1), Committed(3, rows_added=1)]
    assert isinstance(outcomes[2], Rejected)
    assert table.rows() == [1]


def test_proposals_with_changed_rows_share_no_version_with_others(table: Table) -> None:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    table.fold(table.propose(protocol, metadata(**{"delta.enableChangeDataFeed": "true"})), log=FIRST_ID)
    table.fold(table.propose(table.file("a.parquet", 1)), log=SECOND_ID)
    changed = table.file("_change_data/c.parquet", 1)["add"]
    cdc: Members = {"cdc": {**changed, "dataChange": False}}
    del cdc["cdc"]["modificationTime"], cdc["cdc"]["stats"]
    delete = table.propose(remove("a.parquet"), cdc, read=1, operation="DELETE")
    plain = table.propose(table.file("b.parquet", 2))
    results = table.fold(plain, delete, table.propose(table.file("c.parquet", 3)), log=OTHER_ID)
    assert [result.version for result in results if isinstance(result, Committed)] == [2, 3, 4]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "predicate"])
@pytest.mark.parametrize(
    ("isolation", "taken"), [("serializable", False), ("write-serializable", True), ("", False)]
)
def test_what_was_read_conflicts_with_appends(
    table: Table, whole: object, isolation: str, taken: object
) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1)), log=SECOND_ID)
    table.fold(table.propose(table.file("b.parquet", 2)), log=OTHER_ID)
    merge = table.propose(remove("a.parquet"), table.file("c.parquet", 3), read=1, operation="MERGE")
    merge.delta.isolation = isolation
    merge.delta.read_whole_table = bool(whole)
    merge.delta.read_predicates.extend([] if whole else ["x = 1"])
    (result,) = table.fold(merge, log=THIRD_ID)
    assert isinstance(result, Committed) is taken
    if isinstance(result, Rejected):
        assert result.conflict.retryable
        assert result.conflict.keys == ("b.parquet",)


def test_a_compaction_passes_beside_appends(table: Table) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1), table.file("b.parquet", 2)), log=SECOND_ID)
    whole = table.file("ab.parquet", 1, 2)
    whole["add"]["dataChange"] = False
    parts = [remove(name, dataChange=False) for name in ("a.parquet", "b.parquet")]
    compaction = table.propose(*parts, whole, read=1, operation="OPTIMIZE", read_whole_table=True)
    (_, done) = table.fold(table.propose(table.file("c.parquet", 3)), compaction, log=OTHER_ID)
    assert isinstance(done, Committed)
    assert (done.rows_added, done.rows_deleted) == (0, 0)
    assert table.rows() == [1, 2, 3]


def test_a_new_schema_conflicts_with_everything_built_before(table: Table) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1)), log=SECOND_ID)
    wider = json.loads(metadata()["metaData"]["schemaString"])
    # What the metadata of a column mean is not known.
    wider["fields"].append({"name": "y", "type": "string", "nullable": True, "metadata": {"new": 1}})
    change = table.propose(metadata(json.dumps(wider)), read=1, operation="ADD COLUMNS")
    late = table.propose(table.file("b.parquet", 2), read=1)
    changed, refused, blind = table.fold(
        change, late, table.propose(table.file("c.parquet", 3)), log=OTHER_ID
    )
    assert changed == Committed(2)
    assert isinstance(refused, Rejected)
    assert refused.conflict.other_operation == "ADD COLUMNS"
    assert blind == Committed(3, rows_added=1)
    assert DeltaTable(str(table.path)).schema().fields[1].name == "y"


def test_a_batch_that_another_client_recorded_is_not_added_again(table: Table) -> None:
    table.fold(table.create())
    theirs = table.propose(txn("job", 5), table.file("a.parquet", 1))
    table.fold(theirs, log=OTHER_ID)
    again = table.propose(table.file("b.parquet", 1), app="job", batch=5)
    assert table.fold(again, log=THIRD_ID) == [Duplicate(0)]
    assert table.rows() == [1]


def changed(path: str, **more: object) -> Members:
    """A cdc action."""
    return {"cdc": {"path": path, "partitionValues": {}, "size": 1, "dataChange": False, **more}}


FAULTS: dict[str, tuple[list[Members | str], str]] = {
    "no JSON": (["{"], "cut off"),
    "nothing": ([], "has no actions"),
    "a checkpoint's action": ([{"checkpointMetadata": {"version": 1}}], "can't be proposed"),
    "an unknown action": ([{"future": {}}], "can't be proposed"),
    "a file twice": ([add("a"), add("a")], "two add actions"),
    "a change file twice": ([add("a"), *[changed("_change_data/c")] * 2], "two cdc actions"),
    "added and removed": ([add("a"), remove("a")], "both added and removed"),
    "outside": ([add("s3://b/a.parquet")], "not below the table's root"),
    "leaving": ([add("../a.parquet")], "leads out"),
    "hidden": ([add("_delta_log/a.parquet")], "begins with"),
    "negative": ([add("a.parquet", size=-1)], "negative"),
    "statistics": ([add("a.parquet", stats="{")], "statistics"),
    "partitions": ([add("a.parquet", partitionValues={"p": "1"})], "partition columns (p)"),
    "a deletion vector": (
        [add("a.parquet", {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 1})],
        "numRecords",
    ),
    "a domain": ([domain("d")], "lacks the feature domainMetadata"),
    "a system domain": ([domain("delta.clustering")], "controlled by the protocol"),
    "a reserved app": ([txn("lakefold:marks", 1)], "is reserved"),
    "a domain twice": ([domain("d"), domain("d", "1")], "two domainMetadata actions"),
    "metadata twice": ([metadata(), metadata(note="1")], "there are several metaData actions"),
    "an app twice": ([txn("a", 1), txn("a", 2)], "two txn actions"),
    "not there": ([add("gone.parquet")], "does not exist"),
    "not in the table": ([remove("gone.parquet")], "is not in the table"),
    "no change, not there": ([add("a.parquet", dataChange=False)], "dataChange false"),
    "a protocol that shrinks": (
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 1}}],
        "takes the feature appendOnly",
    ),
    "a feature that is refused": (
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["catalogManaged"]}}],
        "catalogManaged",
    ),
    "cdc alone": ([changed("_change_data/c")], "cdc"),
    "cdc outside": ([add("a.parquet"), changed("s3://b/c")], "not below the table's root"),
    "cdc that changes data": ([add("a.parquet"), changed("c", dataChange=True)], "dataChange false"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_proposal_is_invalid_and_the_log_goes_on(table: Table, name: str) -> None:
    actions, says = FAULTS[name]
    table.fold(table.create())
    faulty = table.propose(read=0)
    faulty.delta.actions = "".join(
        f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in actions
    ).encode()
    refused, taken = table.fold(faulty, table.propose(table.file("z.parquet", 1)), log=OTHER_ID)
    assert isinstance(refused, Invalid)
    assert says in refused.message
    assert refused.hint
    assert isinstance(taken, Committed)
    assert table.rows() == [1]


def test_more_faults(table: Table) -> None:
    table.begin(**{"delta.appendOnly": "true"})
    table.fold(table.propose(table.file("a.parquet", 1)), log=SECOND_ID)
    branch, create = table.propose(add("b")), table.propose(add("b"))
    branch.branch = "side"
    create.create.SetInParent()
    short = table.file("s.parquet", 1)
    short["add"]["size"] += 1
    cases = {
        "has no branches": branch,
        "not created by": create,
        "append-only": table.propose(remove("a.parquet"), read=1),
        "append-only (": table.propose(remove("a.parquet"), metadata(), read=1),
        "no isolation level": table.propose(add("b"), isolation="snapshot"),
        "version 9 does not exist": table.propose(add("b"), read=9),
        "version -1 does not exist": table.propose(add("b"), read=-1),
        "bytes, its action says": table.propose(short),
        "in the table already": table.propose(table.file("a.parquet", 1, 2)),
        "names no read version": table.propose(remove("a.parquet")),
    }
    outcomes = table.fold(*(case for name, case in cases.items() if name != "has no branches"), log=OTHER_ID)
    for result, says in zip(outcomes, [name for name in cases if name != "has no branches"], strict=True):
        assert isinstance(result, Invalid), (says, result)
        assert says in result.message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("p%3D1/a.parquet", "p=1/a.parquet"),
        ("a+b.parquet", "a%2Bb.parquet"),
        ("\u00e9%20a.parquet", "%C3%A9%20a.parquet"),
        ("p=x:y%25/a.parquet", "p%3Dx%3Ay%25/a.parquet"),
    ],
)
def test_a_file_is_not_added_under_another_spelling_of_its_path(
    table: Table, first: str, second: str
) -> None:
    named = unquote(first)
    before, after = ({"add": {**table.file(named, 1)["add"], "path": path}} for path in (first, second))
    table.begin(before)
    again = [table.propose(after), table.propose({"add": {**after["add"], "dataChange": False}}, read=1)]
    for result in table.fold(*again, log=OTHER_ID):
        assert isinstance(result, Invalid)
        assert result.hint
    moved = table.propose(remove(first), after, read=1)
    assert isinstance(table.fold(moved, log=THIRD_ID)[0], Committed)
    # In one version, and in one proposal.
    new = f"n{named}"
    before, after = ({"add": {**table.file(new, 2)["add"], "path": f"n{path}"}} for path in (first, second))
    both, taken, late = table.fold(
        table.propose(before, after), table.propose(after), table.propose(before), log=LOG_ID
    )
    assert isinstance(both, Invalid)
    assert "names one file twice" in both.message
    assert isinstance(taken, Committed)
    assert isinstance(late, Invalid)
    assert f"is in the table already, as {after['add']['path']!r}" in late.message
    assert table.rows() == [1, 2]


def test_a_replay_makes_the_same_commits_again(table: Table) -> None:
    table.begin()
    proposals = [
        table.propose(table.file("a.parquet", 1), app="x", batch=1),
        table.propose(add("gone.parquet")),
        table.propose(remove("a.parquet"), read=0, operation="DELETE"),
        table.propose(remove("a.parquet"), read=0, operation="DELETE"),
        table.propose(table.file("b.parquet", 2), app="x", batch=2),
    ]
    table.fold(*proposals)
    (table.path / "a.parquet").unlink()
    stored = located(TableAddress(table.uri), "", formats=FORMATS)
    assert stored.format.name == "delta"
    entries = FileEntries([FileLog(framed(proposals), LOG_ID, formats=FORMATS)])
    replays = list(replay(stored, entries))
    made, *others = replays
    assert made.version == 0
    assert [(each.version, each.verdict, each.differences) for each in others] == [
        (version, Verdict.SAME, ()) for version in range(1, len(replays))
    ]
    assert len(replays) > 2


def test_a_state_that_was_folded_is_that_which_is_read(table: Table) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1), app="x", batch=1), log=SECOND_ID)
    writer = open_branch(TableAddress(table.uri), "", formats=FORMATS)
    read = writer.table.state
    assert isinstance(read, DeltaState)
    table.fold(table.propose(remove("a.parquet"), read=1), log=OTHER_ID)
    again = open_branch(TableAddress(table.uri), "", formats=FORMATS).table.state
    assert isinstance(again, DeltaState)
    assert again.snapshot == snapshot_in(table.path)
    assert (read.version, again.version) == (1, 2)


def test_the_head_of_a_commit_is_its_first_line(table: Table) -> None:
    table.begin()
    data = (table.path / "_delta_log" / f"{0:020}.json").read_bytes()
    length = DELTA.head_length(data[:100])
    assert data[:length].count(b"\n") == 1
    head = DELTA.head(data[:length])
    assert head is not None
    assert head.properties["lakefold.version"] == "0"
    assert DELTA.head(data[: length - 1]) is None
    write_deltalake(str(table.path), pa.table({"x": [10]}), mode="append")
    theirs = (table.path / "_delta_log" / f"{1:020}.json").read_bytes()
    assert DELTA.head_length(theirs) == 0
    assert DELTA.head(theirs) is None


def test_a_committer_without_the_format_lets_a_proposal_wait(table: Table) -> None:
    position = Position(LogId("file", LOG_ID, 0), 0)
    decoded = decode(encode(table.create()), None, position, 0, Formats(lance()))
    assert isinstance(decoded, UnknownKind)
    assert "delta" in decoded.message


def test_a_folder_of_commits_that_a_crash_left_empty_becomes_the_table(table: Table) -> None:
    (table.path / "_delta_log").mkdir(parents=True)
    table.begin(table.file("data/a.parquet", 1))
    assert table.rows() == [1]


def test_files_of_something_else_keep_a_table_from_being_created(table: Table) -> None:
    table.path.mkdir()
    (table.path / "notes.txt").write_text("mine")
    with pytest.raises(NotATableError, match="this folder contains files"):
        table.fold(table.create())


def test_no_table_begins_inside_a_table_of_another_format(tmp_path: Path) -> None:
    outer = Table(tmp_path / "outer")
    outer.begin()
    inner = creation()
    inner.table = (tmp_path / "outer" / "inner").as_uri()
    log = FileLog(framed([inner]), OTHER_ID, formats=FORMATS)
    writer = open_branch(TableAddress(inner.table), "", formats=FORMATS)
    (outcome,) = fold_file(lambda _: writer, inner.table, FORMATS, log, LIMITS, dry_run=False)
    assert isinstance(outcome.result, Invalid)
    assert "is inside the table" in outcome.result.message
    lance_dataset(pa.table({"x": [1]}), tmp_path / "lance")
    below = Table(tmp_path / "lance" / "below")
    (refused,) = below.fold(below.create())
    assert isinstance(refused, Invalid)
    assert "is inside the table" in refused.message


def test_no_lance_table_begins_among_the_files_of_another_format(table: Table) -> None:
    table.file("a.parquet", 1)
    other = creation()
    other.table = table.uri
    with pytest.raises(NotATableError, match="this folder contains files"):
        table.fold(other)


def test_proposals_of_two_formats_share_no_version(table: Table) -> None:
    other = creation()
    other.table = table.uri
    created, refused, added = table.fold(table.create(), other, table.propose(table.file("a.parquet", 1)))
    assert (created, added) == (Committed(0), Committed(2, rows_added=1))
    assert isinstance(refused, Invalid)
    assert "has the format delta" in refused.message


def test_a_delta_proposal_for_a_lance_table_is_invalid(table: Table) -> None:
    lance_dataset(pa.table({"x": [1]}), table.path)
    (refused,) = table.fold(table.propose(add("a")))
    assert isinstance(refused, Invalid)
    assert "has the format lance" in refused.message


def test_only_a_delta_proposal_counts_as_json_in_memory() -> None:
    large = Envelope(table="memory://t/x")
    large.lance.delete.deleted_fragment_ids.extend(range(1000))
    content = content_of(encode(large), Envelope)
    assert BUILT_IN.memory_to_fold(content) == BUILT_IN.first.memory_to_fold(content)
