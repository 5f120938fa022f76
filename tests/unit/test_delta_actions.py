"""The lines of a Delta commit become values and back; what is malformed is named with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakefold_table.delta.actions import file_lines
from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.file_lines import files_in
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


MEMBERS = '"partitionValues":{"p":"1"},"size":1,"modificationTime":1,"dataChange":true'
ADD = f'{{"add":{{"path":"a",{MEMBERS},"stats":"{{}}"}}}}'
REMOVE = '{"remove":{"path":"a","dataChange":true,"deletionTimestamp":1}}'
VECTOR = (
    '"deletionVector":{"storageType":"u","pathOrInlineDv":"v","offset":1,"sizeInBytes":2,"cardinality":3}'
)
STRANGE = {
    "": "",
    "without members": ADD.replace(MEMBERS, ""),
    "null": '{"add":null}',
    "a list": '{"add":[]}',
    "another name": ADD.replace("add", "added"),
    "two objects": ADD + ADD,
    "two objects at two lines' ends": f"{ADD}\r{ADD}",
    "another action": ADD[:-1] + ',"txn":{"appId":"a","version":1}}',
    "the end of a file": ADD[:-1],
    "something behind": ADD + " x",
    "an unknown member": ADD.replace(MEMBERS, f'{MEMBERS},"later":{{"x":[1]}}'),
    "a member twice": ADD.replace(MEMBERS, f'{MEMBERS},"size":2'),
    "a required member that is null": ADD.replace('"a"', "null"),
    "a member that is null": ADD.replace('"{}"', "null"),
    "a fraction": ADD.replace('"size":1', '"size":1.0'),
    "a power": ADD.replace('"size":1', '"size":1e3'),
    "an infinite number": ADD.replace('"size":1', '"size":NaN'),
    "a text for a number": ADD.replace('"size":1', '"size":"1"'),
    "a number for a boolean": ADD.replace("true", "1"),
    "a number that is too large": ADD.replace('"size":1', f'"size":{2**63}'),
    "the largest number": ADD.replace('"size":1', f'"size":{2**63 - 1}'),
    "a minus": ADD.replace('"size":1', '"size":-0'),
    "no values of partitions": ADD.replace('{"p":"1"}', "{}"),
    "a value that is null": ADD.replace('{"p":"1"}', '{"p":null}'),
    "values that are null": ADD.replace('{"p":"1"}', "null"),
    "a number as a value": ADD.replace('{"p":"1"}', '{"p":1}'),
    "another value": ADD.replace('{"p":"1"}', '{"p":"2026-01-01"}'),
    "more values": ADD.replace('{"p":"1"}', '{"p":"1","q":"2"}'),
    "tags": ADD.replace(MEMBERS, f'{MEMBERS},"tags":{{"t":"u"}}'),
    "empty tags": ADD.replace(MEMBERS, f'{MEMBERS},"tags":{{}}'),
    "a deletion vector": ADD.replace(MEMBERS, f"{MEMBERS},{VECTOR}"),
    "a deletion vector without offset": ADD.replace(MEMBERS, f"{MEMBERS},{VECTOR}").replace(
        '"offset":1,', ""
    ),
    "a malformed deletion vector": ADD.replace(MEMBERS, f"{MEMBERS},{VECTOR}").replace(
        '"sizeInBytes":2,', ""
    ),
    "half of a pair": ADD.replace('"a"', '"\\ud800"'),
    "a pair": ADD.replace('"a"', '"\\ud83d\\ude00"'),
    "a control character": ADD.replace('"a"', '"\x01"'),
    "a zero byte": ADD.replace('"a"', '"\0"'),
    "an escaped zero": ADD.replace('"a"', '"\\u0000"'),
    "an unknown escape": ADD.replace('"a"', '"\\q"'),
    "an escaped name": ADD.replace('"path"', '"p\\u0061th"'),
    "a mark of the byte order": "\ufeff" + ADD,
    "spaces": f" {ADD.replace(':', ' : ')}\t\r",
    "a long text": ADD.replace('"a"', f'"{"x" * 300_000}"'),
}


@pytest.mark.parametrize("index", [200, 0], ids=["behind others", "before others"])
@pytest.mark.parametrize("line", [*(line.encode() for line in STRANGE.values()), b'{"add":{"path":"\xff"}}'])
def test_many_lines_are_decoded_as_each_of_them_is(
    line: bytes, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [ADD.encode(), REMOVE.encode()] * 200
    lines.insert(index, line)
    data = b"\n".join(lines)
    together = read_of(data)
    monkeypatch.setattr(file_lines, "FEWEST", len(data))
    assert together == read_of(data)


def test_lines_that_clients_write_are_decoded_together() -> None:
    lines = [ADD.encode(), REMOVE.encode(), ADD.replace(MEMBERS, f"{MEMBERS},{VECTOR}").encode()] * 100
    assert files_in(lines) == {index: next(parse_actions(line)) for index, line in enumerate(lines)}


def read_of(data: bytes) -> list[Any]:
    """The actions with their lines, and what is wrong with the first that is malformed."""
    read: list[Any] = []
    try:
        read.extend((action, line_of(action)) for action in parse_actions(data, "x"))
    except DamagedError as error:
        read.append((error.message, error.where))
    return read


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
