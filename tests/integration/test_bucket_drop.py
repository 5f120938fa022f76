"""`lakefold drop` in a bucket: nothing is left but the note, and the place is free for another table."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import lance

from lakefold.cli import run
from lakefold_table.storage import open_storage
from lakefold_table.versions.drop_note import read_dropped
from lakefold_table.versions.table_address import TableAddress
from tests.integration.externals import External
from tests.proposals import rows
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    import pytest

    from tests.servers.dynamodb import DynamoServer
    from tests.servers.s3 import S3Server


def drop(uri: str, options: dict[str, str]) -> int:
    flags = [part for name, value in options.items() for part in ("--storage-option", f"{name}={value}")]
    return run(["drop", uri, "--yes", "--json", *flags])


def test_a_table_on_s3_with_a_branch_and_a_tag(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    root, options = f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.options()
    uri = f"{root}/flights and é"
    lance.write_dataset(rows([0]), uri, storage_options=options)
    lance.write_dataset(rows([1]), uri, mode="append", storage_options=options)
    dataset = lance.write_dataset(rows([2]), uri, mode="append", storage_options=options)
    dataset.tags.create("kept", 2)
    branch = dataset.create_branch("b/c", 2)
    lance.write_dataset(rows([9]), branch, mode="append", storage_options=options)
    beside = lance.write_dataset(rows([7]), f"{uri}2", storage_options=options)
    assert drop(uri, options) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document == {"table": uri, "version": 3}
    assert not open_storage(uri, options).anything_at_root()
    assert open_storage(root, options).names(".lakefold-dropped") == ["flights and é"]
    dropped = read_dropped(TableAddress(uri, options))
    assert dropped is not None
    assert [(branch.branch, branch.version) for branch in dropped.branches] == [("b/c", 3), ("", 3)]
    assert not dropped.removing
    assert beside.count_rows() == 1
    again = lance.write_dataset(rows([5]), uri, storage_options=options)
    assert (again.version, again.count_rows()) == (1, 1)


def test_a_table_on_s3_with_others_inside(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    uri, options = f"s3://{BUCKET}/{uuid.uuid4().hex}/flights", s3.options()
    dataset = lance.write_dataset(rows([0]), uri, storage_options=options)
    dataset.create_branch("b")
    others = [f"{uri}/{name}" for name in ("_versions/x", "data/inner", "tree/x")]
    for other in others:
        lance.write_dataset(rows([1]), other, storage_options=options)
    assert drop(uri, options) == 3
    assert (
        "other tables are stored inside its folder: _versions/x, data/inner, tree/x"
        in capsys.readouterr().err
    )
    for other in others:
        assert lance.dataset(other, storage_options=options).count_rows() == 1
        assert drop(other, options) == 0
    assert drop(uri, options) == 0
    assert not open_storage(uri, options).anything_at_root()


def test_a_table_whose_versions_are_in_dynamodb(s3: S3Server, dynamodb: DynamoServer) -> None:
    table = External.new(s3, dynamodb)
    table.grow([1])
    table.grow([2])
    newest = max(table.items())
    assert drop(table.uri, table.options) == 0
    assert table.items() == {}
    assert not open_storage(table.uri, table.options).anything_at_root()
    dropped = read_dropped(TableAddress(table.uri, table.options))
    assert dropped is not None
    assert [branch.version for branch in dropped.branches] == [newest]
    again = lance.write_dataset(rows([5]), table.uri, storage_options=table.options)
    assert (again.version, again.count_rows()) == (1, 1)
    assert {*table.items()} == {1}
