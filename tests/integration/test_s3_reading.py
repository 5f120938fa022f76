"""A table on S3 is opened, travelled in and read as one on a local disk, and as pylance reads it there."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lakefold
from lakefold import cli
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_reader.formats import source_on
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_reader.versions.at_position import version_at_position
from lakefold_table.entry import Committed
from lakefold_table.lance.format import LanceFormat
from lakefold_table.position import Position
from lakefold_table.storage import open_storage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import entry
from tests.proposals import append, creation, rows
from tests.servers.fault_proxy import FaultProxy
from tests.servers.s3 import BUCKET
from tests.tables import LOG, Recording

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.servers.s3 import S3Server

VERSIONS = 7


@dataclass
class OnS3:
    """A table that our own committer writes to S3: version n holds offset n - 1, which added two rows."""

    uri: str
    options: dict[str, str]

    def fold(self) -> None:
        """Make all versions."""
        lance_format = LanceFormat()
        versions = Versions(open_storage(self.uri, self.options), lance_format.folder, lance_format.detect)
        table = TableWriter(StoredTable(lance_format, versions))
        for offset in range(VERSIONS):
            envelope = self.append(2 * offset) if offset else creation(self.uri, stable_row_ids=True)
            (outcome,) = table.fold([entry(envelope, offset, LOG)]).outcomes
            assert isinstance(outcome.result, Committed), outcome

    def append(self, first: int) -> Envelope:
        """Two rows, their file written by pylance."""
        return append(self.uri, rows([first, first + 1]), 1, storage_options=self.options)

    def theirs(self, version: int | str | None = None) -> Any:  # noqa: ANN401 - pylance is published without types
        """The same table as pylance opens it."""
        return lance.dataset(self.uri, version=version, storage_options=self.options)


@pytest.fixture(scope="module")
def table(s3: S3Server) -> OnS3:
    made = OnS3(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.options())
    made.fold()
    made.theirs().tags.create("third", 3)
    made.theirs().create_branch("side", 4)
    return made


def test_each_version_by_every_name(table: OnS3) -> None:
    for version in range(1, VERSIONS + 1, 2):
        opened = lakefold.open(table.uri, version, storage_options=table.options)
        expected = table.theirs(version).to_table()
        assert opened.to_arrow().equals(expected, check_metadata=True)
        assert opened.count_rows() == expected.num_rows == 2 * (version - 1)
        for values in (
            {"as_of": opened.timestamp},
            {"at_position": version - 1},
            {"at_position": Position(LOG, version - 1)},
        ):
            actual = lakefold.open(table.uri, storage_options=table.options, **values)
            assert actual.version == version
    assert lakefold.open(table.uri, tag="third", storage_options=table.options).version == 3
    side = lakefold.open(table.uri, branch="side", storage_options=table.options)
    assert (side.version, side.count_rows(), side.to_arrow().num_rows) == (4, 6, 6)


def test_rows_by_their_ids(table: OnS3) -> None:
    opened = lakefold.open(table.uri, storage_options=table.options)
    ids = [11, 0, 5, 5]
    assert opened.take(ids, ["id", "text"]).equals(table.theirs()._take_rows(ids))
    with pytest.raises(lakefold.RowsNotFoundError):
        opened.take([12])


def test_opening_is_a_listing_and_a_get(table: OnS3) -> None:
    storage = Recording(open_storage(table.uri, table.options))
    opened = table_of(source_on(storage, table.options))
    assert (opened.version, opened.count_rows()) == (VERSIONS, 12)
    assert [call for call in storage.calls if call not in ("uri", "size")] == ["list", "get"]
    storage = Recording(open_storage(table.uri, table.options))
    assert version_at_position(source_on(storage, table.options), 2) == 3
    # The newest version's head and marks, then three or four heads.
    assert len([call for call in storage.calls if call.startswith("get")]) <= 6


def test_a_take_reads_what_it_needs(table: OnS3, s3: S3Server) -> None:
    """Of six fragments with deletions it is about two: their deletion files, checked first, and data."""
    uri = f"{table.uri}-deleted"
    for first in range(0, 60, 10):
        mode = "append" if first else "create"
        new = rows(range(first, first + 10))
        lance.write_dataset(new, uri, mode=mode, storage_options=table.options, enable_stable_row_ids=True)
    lance.dataset(uri, storage_options=table.options).delete("id % 5 = 0")
    with FaultProxy(s3.port) as proxy:
        opened = lakefold.open(uri, storage_options=proxy.options())
        assert opened.take([33, 17, 31], ["id"])["id"].to_pylist() == [33, 17, 31]
        folders = [(*request.path.split("/"), "", "")[3] for request in proxy.requests]
        read = [folder for folder in folders if folder in ("data", "_deletions")]
        assert sorted(read) == 4 * ["_deletions"] + 2 * ["data"]
        proxy.requests.clear()
        assert opened.take([18], ["id"])["id"].to_pylist() == [18]
        assert len(proxy.requests) == 1


def test_a_version_of_the_past_is_found_by_one_listing(table: OnS3, s3: S3Server) -> None:
    with FaultProxy(s3.port) as proxy:
        for values in (
            {"at_position": 3},
            {"as_of": lakefold.open(table.uri, 4, storage_options=table.options).timestamp},
        ):
            proxy.requests.clear()
            assert lakefold.open(table.uri, storage_options=proxy.options(), **values).version == 4
            assert [request.method for request in proxy.requests].count("LIST") == 1
            # Two requests for the last version, and for each one that the search between looks at.
            assert len(proxy.requests) <= 9


def test_the_verbs(table: OnS3, capsys: pytest.CaptureFixture[str]) -> None:
    store = [part for item in table.options.items() for part in ("--storage-option", "=".join(item))]

    def reported(*args: str) -> list[dict[str, Any]]:
        assert cli.run([*args, *store, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    (third,) = reported("show", table.uri, "--version", "3")
    for method in (
        ("--tag", "third"),
        ("--as-of", third["timestamp"]),
        ("--at-position", "transactions/0@2"),
        ("--at-position", json.dumps(third["marks"]["position"])),
    ):
        assert reported("show", table.uri, *method) == [third]
    assert [row["version"] for row in reported("log", table.uri, "--at-position", "2")] == [3, 2, 1]
    assert [row["version"] for row in reported("tail", table.uri, "--at-position", "4")] == [6, 7]
    assert [row["version"] for row in reported("log", table.uri, "--branch", "side")] == [4]
