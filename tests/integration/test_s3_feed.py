"""The change feed of a table on S3: our own versions, another client's, a branch's with files elsewhere."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import lakefold
from lakefold import cli
from lakefold_reader.feed import changes_of
from lakefold_reader.formats import source_on
from lakefold_table.storage import open_storage
from tests.feeds import applied
from tests.integration.test_s3_reading import VERSIONS, OnS3
from tests.servers.s3 import BUCKET
from tests.tables import Recording

if TYPE_CHECKING:
    import pytest

    from tests.servers.s3 import S3Server


def feed_rows(table: OnS3, after: int, branch: str | None = None) -> list[dict[str, Any]]:
    reader = lakefold.changes(table.uri, after, branch=branch, storage_options=table.options)
    rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows


def test_the_change_feed(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    table = OnS3(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.options())
    table.fold()
    storage = Recording(open_storage(table.uri, table.options))
    reader = changes_of(source_on(storage, table.options), 1, columns=[])
    assert reader.read_all().num_rows == 2 * (VERSIONS - 1)
    # A listing, the last version whole, of each other version its head; that which the feed begins behind,
    # and a look behind the last version.
    calls = [call for call in storage.calls if call not in ("uri", "size")]
    assert (calls.count("list"), len(calls)) == (1, VERSIONS + 2)

    table.theirs().delete("id = 3")
    table.theirs().update({"text": "'new'"}, where="id in (4, 9)")
    table.theirs().create_branch("side")
    side = table.theirs().checkout_version(("side", None))
    side.delete("id in (2, 4, 6)")
    documents = feed_rows(table, VERSIONS)
    assert [(row["_change_type"], row["id"], row["text"]) for row in documents] == [
        ("delete", 3, "row 3"),
        ("update_preimage", 4, "row 4"),
        ("update_preimage", 9, "row 9"),
        ("update_postimage", 4, "new"),
        ("update_postimage", 9, "new"),
    ]
    rows = {row["id"]: row for row in table.theirs().to_table().to_pylist()}
    assert applied(feed_rows(table, 0), "id") == rows
    beside = feed_rows(table, VERSIONS + 2, "side")
    assert sorted((row["_change_type"], row["id"], row["text"]) for row in beside) == [
        ("delete", 2, "row 2"),
        ("delete", 4, "new"),
        ("delete", 6, "row 6"),
    ]
    store = [part for item in table.options.items() for part in ("--storage-option", "=".join(item))]
    assert cli.run(["changes", table.uri, "--from", str(VERSIONS), *store, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["_change_type"], row["id"]) for row in lines] == [
        (row["_change_type"], row["id"]) for row in documents
    ]
