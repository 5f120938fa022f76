"""What the actions of a log add up to: reconciliation as Delta's specification describes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakefold_table.delta.log_segment.names import FOLDER
from lakefold_table.delta.snapshot.snapshot import APPS, TOMBSTONES
from lakefold_table.errors import DamagedError, InvalidError
from tests.delta_logs.actions import (
    LISTED,
    PROTOCOL,
    Members,
    add,
    commits,
    domain,
    metadata,
    remove,
    snapshot_of,
    text,
    txn,
    vector,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

BEGIN = [PROTOCOL, metadata()]
WEEK_MS = 7 * 86_400_000


def paths(snapshot: DeltaSnapshot) -> list[str]:
    return sorted(snapshot.files)


def test_the_latest_of_each_action_counts() -> None:
    snapshot = snapshot_of(
        commits(
            [*BEGIN, add("a"), add("b"), txn("app", 5), domain("d", "1"), domain("e", "1")],
            [remove("a"), add("c"), txn("app", 3), txn("other", 1), domain("d", "2")],
            [metadata(later="yes"), LISTED, domain("e", "1", removed=True)],
        )
    )
    assert paths(snapshot) == ["b", "c"]
    assert list(snapshot.tombstones) == [("a", "")]
    assert {app.app_id: app.version for app in snapshot.apps.values()} == {"app": 3, "other": 1}
    assert {name: each.configuration for name, each in snapshot.live_domains.items()} == {"d": "2"}
    assert snapshot.metadata.configuration == {"later": "yes"}
    assert snapshot.protocol.writer == 7
    assert snapshot.size_bytes == 20


def test_a_file_with_another_deletion_vector_is_another_logical_file() -> None:
    first, second = vector("first"), vector("second")
    snapshot = snapshot_of(
        commits(
            [*BEGIN, add("a")],
            [remove("a"), add("a", first)],
            [add("a", second), remove("a", first)],
        )
    )
    assert snapshot.files["a"].key == ("a", "isecond")
    assert sorted(snapshot.tombstones) == [("a", ""), ("a", "ifirst")]


@pytest.mark.parametrize("other", ["p%3D1/a", "./p=1/a", "p%3d1/a", "{}/p=1/a"])
def test_a_path_counts_as_it_is_written(tmp_path: Path, other: str) -> None:
    """So does delta-rs; delta-spark takes the second for the same file, and each escape in either case."""
    other = other.format(tmp_path.as_uri())
    files = commits([*BEGIN, add("p=1/a"), add(other)], [remove("p=1/a")], [remove("a"), remove(other)])
    for version, left in enumerate([["p=1/a", other], [other], []]):
        until = {path: files[path] for path in sorted(files)[: version + 1]}
        assert paths(snapshot_of(until)) == sorted(left)
        for path, content in until.items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(content)
        assert DeltaTable(str(tmp_path)).get_add_actions().num_rows == len(left)


def test_a_removed_file_that_is_added_again_is_no_tombstone() -> None:
    snapshot = snapshot_of(commits([*BEGIN, add("a")], [remove("a")], [add("a", size=11)]))
    assert (paths(snapshot), dict(snapshot.tombstones)) == (["a"], {})
    assert snapshot.files["a"].size == 11


def test_a_file_that_is_added_again_has_new_information() -> None:
    snapshot = snapshot_of(commits([*BEGIN, add("a")], [add("a", dataChange=False, stats="{}")]))
    assert snapshot.files["a"].stats == "{}"


def test_a_remove_of_another_logical_file_removes_nothing() -> None:
    snapshot = snapshot_of(commits([*BEGIN, add("a")], [remove("a", vector())]))
    assert paths(snapshot) == ["a"]


def test_actions_that_are_not_of_the_table_change_nothing() -> None:
    others: list[Members] = [
        {"commitInfo": {"inCommitTimestamp": 9}},
        {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}},
        {"checkpointMetadata": {"version": 1}},
        {"sidecar": {"path": "s", "sizeInBytes": 1, "modificationTime": 1}},
        {"future": {}},
    ]
    snapshot = snapshot_of(commits([*BEGIN, add("a")], others))
    assert paths(snapshot) == ["a"]
    assert snapshot.in_commit_ms == 9


def test_a_time_is_that_of_the_versions_own_commit() -> None:
    assert snapshot_of(commits([*BEGIN, {"commitInfo": {"inCommitTimestamp": 9}}], [])).in_commit_ms is None


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ([add("a"), add("a", size=11)], "two add actions contradict each other: 'a'"),
        ([add("a"), add("a", vector())], "two add actions"),
        ([remove("a"), remove("a", vector())], "two remove actions"),
        ([add("a"), remove("a")], "'a' is both added and removed"),
        ([remove("a"), add("a")], "'a' is both added and removed"),
        ([txn("a", 1), txn("a", 2)], "two txn actions"),
        ([domain("a"), domain("a", "1")], "two domainMetadata actions"),
        ([metadata(), metadata(a="1")], "two metaData actions"),
        ([PROTOCOL, LISTED], "two protocol actions"),
    ],
)
def test_a_commit_that_contradicts_itself_is_damaged(actions: list[Members], says: str) -> None:
    with pytest.raises(DamagedError) as caught:
        snapshot_of(commits(BEGIN, actions))
    assert says in caught.value.message
    assert caught.value.where == f"mem:/{FOLDER}/{1:020}.json"


def test_the_same_action_twice_says_nothing_new() -> None:
    assert paths(snapshot_of(commits(BEGIN, [add("a"), add("a")]))) == ["a"]


@pytest.mark.parametrize(("actions", "lacks"), [([metadata()], "protocol"), ([PROTOCOL], "metaData")])
def test_a_log_without_a_schema_is_no_table(actions: list[Members], lacks: str) -> None:
    with pytest.raises(DamagedError, match=f"has no {lacks} action"):
        snapshot_of(commits(actions))


def test_metadata_without_a_schema_count_for_nothing_once_they_are_replaced() -> None:
    without = metadata()
    del without["metaData"]["schemaString"]
    files = commits([PROTOCOL, without], [metadata(), add("a")])
    assert snapshot_of(files).metadata.schema_text == metadata()["metaData"]["schemaString"]
    with pytest.raises(
        InvalidError, match="version 0 of the table has no schema: its metaData has no schemaString"
    ):
        snapshot_of(files, 0)


def test_compacted_commits_of_the_specification() -> None:
    files = commits(
        [*BEGIN, add("f1")],
        [add("f2"), remove("f1")],
        [add("f3"), add("f4"), txn("app", 4389)],
        [remove("f3"), txn("app", 4390)],
    )
    alone = snapshot_of(files)
    name = f"{FOLDER}/{1:020}.{3:020}.compacted.json"
    files[name] = text([add("f2"), add("f4"), remove("f1"), remove("f3"), txn("app", 4390)])
    for path in list(files)[1:4]:
        del files[path]
    assert snapshot_of(files) == alone


def test_compacted_commits_may_remove_a_file_with_several_deletion_vectors() -> None:
    files = commits([*BEGIN, add("a")])
    lines = [remove("a"), remove("a", vector("first")), add("a", vector("second"))]
    files[f"{FOLDER}/{1:020}.{2:020}.compacted.json"] = text(lines)
    assert snapshot_of(files).files["a"].key == ("a", "isecond")


def test_tombstones_expire() -> None:
    lines = [metadata(**{"delta.deletedFileRetentionDuration": "interval 2 days 3 hours"})]
    snapshot = snapshot_of(commits([PROTOCOL, *lines], [remove("a", at=1000), remove("b", at=5000)]))
    retained = 51 * 3_600_000
    assert list(snapshot.tombstones_at(1000 + retained)) == [("b", "")]
    assert len(snapshot.tombstones_at(999 + retained)) == 2
    unknown = text([{"remove": {"path": "c", "dataChange": True}}])
    files = {**commits([*BEGIN]), f"{FOLDER}/{1:020}.json": unknown}
    assert snapshot_of(files).tombstones_at(8 * 86_400_000) == {}


def test_expired_tombstones_are_forgotten_on_request() -> None:
    files = commits([PROTOCOL, metadata(), add("a")], [remove("b", at=1000), remove("c", at=5000)])
    snapshot = snapshot_of(files)
    after = snapshot.without_expired(1000 + WEEK_MS)
    assert list(after.tombstones) == [("c", "")]
    assert (after.files, after.size_bytes) == (snapshot.files, 10)
    assert snapshot.without_expired(999 + WEEK_MS) is snapshot
    endless = snapshot_of(commits([PROTOCOL, metadata(**{TOMBSTONES.name: "ever"})], [remove("b", at=1)]))
    assert endless.without_expired(WEEK_MS * 100) is endless


@pytest.mark.parametrize("duration", ["", "interval", "1 month", "a week", "interval 1 week and 2 days"])
def test_a_retention_that_is_no_duration_is_named(duration: str) -> None:
    lines = [PROTOCOL, metadata(**{"delta.deletedFileRetentionDuration": duration})]
    with pytest.raises(DamagedError, match="deletedFileRetentionDuration"):
        snapshot_of(commits(lines)).tombstones_at(0)


def checksum(**members: object) -> bytes:
    document = {
        "tableSizeBytes": 20,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [txn("app", 5)["txn"]],
        "domainMetadata": [domain("d")["domainMetadata"]],
        **metadata_and_protocol(),
        **members,
    }
    return json.dumps(document).encode()


def metadata_and_protocol() -> Members:
    return {"metadata": metadata()["metaData"], "protocol": PROTOCOL["protocol"]}


def checked(data: bytes) -> dict[str, bytes]:
    lines = [*BEGIN, add("a"), add("b"), txn("app", 5), domain("d"), domain("e", removed=True)]
    return {**commits(lines), f"{FOLDER}/{0:020}.crc": data}


def test_a_checksum_file_may_lack_applications_that_have_expired() -> None:
    configured = metadata(**{APPS: "interval 1 day"})
    lines = [PROTOCOL, configured, add("a"), add("b"), txn("app", 5), txn("old", 1), domain("d")]

    def with_apps(*apps: Members) -> dict[str, bytes]:
        recorded = checksum(metadata=configured["metaData"], setTransactions=[each["txn"] for each in apps])
        return {**commits(lines), f"{FOLDER}/{0:020}.crc": recorded}

    for apps in ([txn("app", 5)], [txn("older", 1), txn("app", 5)], []):
        assert paths(snapshot_of(with_apps(*apps))) == ["a", "b"]
    with pytest.raises(DamagedError, match="other versions of applications"):
        snapshot_of(with_apps(txn("app", 4)))


def test_a_version_is_compared_with_its_checksum_file() -> None:
    assert paths(snapshot_of(checked(checksum(allFiles=[], fileSizeHistogram={})))) == ["a", "b"]


OLD_CHECKSUM = b'{"tableSizeBytes":9,"numFiles":9,"numMetadata":1,"numProtocol":1,"numTransactions":0}'
"""As Databricks wrote them before the protocol had them."""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        checksum(numFiles=9)[:-9],
        b"[1]",
        b"\xff",
        OLD_CHECKSUM,
        checksum(numFiles=None),
        checksum(numFiles="9"),
        checksum(numFiles=9, setTransactions=[1]),
    ],
)
def test_a_checksum_file_that_is_not_what_the_protocol_says_counts_as_missing(data: bytes) -> None:
    assert paths(snapshot_of(checked(data))) == ["a", "b"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"numFiles": 3}, "2 files instead of 3"),
        ({"tableSizeBytes": 21}, "20 bytes instead of 21"),
        ({"numMetadata": 2}, "1 metaData actions instead of 2"),
        ({"setTransactions": []}, "other versions of applications"),
        ({"domainMetadata": []}, "other domain metadata"),
        ({"metadata": metadata(other="1")["metaData"]}, "another metaData action"),
        ({"protocol": LISTED["protocol"]}, "another protocol action"),
    ],
)
def test_a_version_that_differs_from_its_checksum_file_is_damaged(members: Members, says: str) -> None:
    with pytest.raises(DamagedError) as caught:
        snapshot_of(checked(checksum(**members)))
    assert says in caught.value.message
    assert caught.value.where.startswith(f"mem:/{FOLDER}/{0:020}.crc")
    assert "remove it" in caught.value.hint
