"""The lines of a Delta commit become values and back; what is malformed is named with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.lines import line_of, lines_of, parse_actions
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.actions.table_actions import AppTransaction, CommitInfo, UnknownAction
from lakefold_table.delta.json_text import MOST_BYTES
from lakefold_table.errors import DamagedError
from tests.delta_logs.actions import LISTED, add, domain, metadata, remove, sidecar, text, txn, vector

EACH: list[dict[str, Any]] = [
    add("a", vector(), stats='{"numRecords":1}', tags={"t": None}, baseRowId=4, clusteringProvider="liquid"),
    remove("a", extendedFileMetadata=True, size=1, partitionValues={"p": None}),
    {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}},
    metadata(name="value"),
    LISTED,
    txn("app", -1),
    domain("com.example"),
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "nested": {"any": [1, None, 2.5]}}},
    {"checkpointMetadata": {"version": 3, "tags": {}}},
    sidecar("s.parquet", b""),
    {"futureAction": ["anything", {"at": "all"}]},
]


@pytest.mark.parametrize("document", EACH, ids=lambda each: next(iter(each)))
def test_each_action_becomes_a_value_and_the_same_line(document: dict[str, Any]) -> None:
    (action,) = parse_actions(text([document]))
    assert json.loads(line_of(action)) == document
    assert list(parse_actions(lines_of([action]))) == [action]


def test_members_that_are_not_known_are_carried() -> None:
    (action,) = parse_actions(text([add("a", later={"x": 1})]))
    assert isinstance(action, AddFile)
    assert action.extra == {"later": {"x": 1}}
    assert json.loads(line_of(action))["add"]["later"] == {"x": 1}


def test_null_counts_as_absent() -> None:
    (action,) = parse_actions(b'{"remove":{"path":"a","dataChange":true,"size":null},"add":null}\n\n')
    assert action == RemoveFile("a", data_change=True)


def test_an_action_beside_an_unknown_one_is_known() -> None:
    actions = list(parse_actions(text([{**txn("a", 1), "future": {}}])))
    assert [type(action).__name__ for action in actions] == ["AppTransaction", "UnknownAction"]
    assert actions[1] == UnknownAction("future", {})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"add":{"path":"a"', "cut off or is not JSON"),
        (b'{"txn":{"appId":"\xff","version":1}}', "not UTF-8"),
        (b'{"txn":{"appId":"\\ud800","version":1}}', "not UTF-8"),
        (b"[1]", "object is expected, not an array"),
        (b"{}", "holds no action"),
        (b'{"add":{},"remove":{}}', "several actions: add, remove"),
        (b'{"add":7}', "add must be an object, not a number"),
        (b'{"txn":{"appId":"a"}}', "version is missing"),
        (b'{"txn":{"appId":"a","version":1.5}}', "version must be a 64-bit integer, not a number (1.5)"),
        (b'{"txn":{"appId":"a","version":true}}', "version must be a 64-bit integer, not a boolean"),
        (b'{"txn":{"appId":"a","version":9223372036854775808}}', "must be a 64-bit integer"),
        (b'{"txn":{"appId":1,"version":1}}', "appId must be a string"),
        (b'{"commitInfo":{"x":NaN}}', "NaN is not a JSON number"),
        (b'{"commitInfo":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "nested too deeply"),
        (text([metadata()])[:-1].replace(b'ation": {}', b'ation": {"a": 1}'), "an object of"),
        (text([add("a", {"storageType": "i"})])[:-1], "pathOrInlineDv is missing"),
        (b'{"commitInfo":"' + b"x" * MOST_BYTES + b'"}', "more than the"),
    ],
)
def test_a_malformed_line_is_named(line: bytes, says: str) -> None:
    data = text([txn("app", 1)]) + b"\n" + line + b"\n"
    with pytest.raises(DamagedError) as caught:
        list(parse_actions(data, "table/commit.json"))
    assert says in caught.value.message
    assert caught.value.where.startswith("table/commit.json line 3")
    assert caught.value.hint


def test_what_came_before_a_malformed_line_is_yielded() -> None:
    actions = parse_actions(text([txn("app", 1)]) + b"{")
    assert next(actions) == AppTransaction("app", 1)
    with pytest.raises(DamagedError):
        next(actions)


def test_a_commit_says_its_operation_and_time() -> None:
    assert CommitInfo({"operation": "MERGE", "inCommitTimestamp": 7}).operation == "MERGE"
    assert CommitInfo({"operation": "MERGE", "inCommitTimestamp": 7}).in_commit_ms == 7
    assert CommitInfo({"operation": 1, "inCommitTimestamp": "7"}).operation == ""
    assert CommitInfo({"operation": 1, "inCommitTimestamp": "7"}).in_commit_ms is None


@pytest.mark.parametrize(
    ("encoded", "decoded", "absolute"),
    [
        ("part-0.parquet", "part-0.parquet", False),
        ("p=b%2520c/f%C3%A9.parquet", "p=b%20c/fé.parquet", False),
        ("p=a%3Ab/f", "p=a:b/f", False),
        ("s3://bucket/f.parquet", "s3://bucket/f.parquet", True),
        ("/data/f", "/data/f", True),
        ("a..b/f", "a..b/f", False),
    ],
)
def test_paths_are_decoded(encoded: str, decoded: str, absolute: object) -> None:
    path = file_path(encoded)
    assert (path.text, path.absolute) == (decoded, absolute)


@pytest.mark.parametrize("encoded", ["", "../f", "a/%2e%2e/f", "s3://b/../f", "a%", "a%zz", "%ff", "a%00b"])
def test_paths_that_name_no_file_of_the_table_are_refused(encoded: str) -> None:
    with pytest.raises(DamagedError):
        file_path(encoded)
