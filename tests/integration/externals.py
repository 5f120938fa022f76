"""A table whose versions are in DynamoDB, and versions as a killed process left them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lance

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed, Entry
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.naming import SUFFIX, VERSIONS, Scheme
from lakefold_table.position import LogId, Position
from lakefold_table.storage import open_storage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.proposals import SCHEMA, append, creation, rows
from tests.servers.dynamodb import TABLE
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.storage.base import Storage
    from tests.servers.dynamodb import DynamoServer
    from tests.servers.s3 import S3Server

START_US = 1_700_000_000_000_000
LOG = LogId("cluster", "00000000-0000-0000-0000-00000000002a", 0)


class Committer:
    """A writer that folds proposals into a branch of the table, one version for each call."""

    def __init__(self, storage: Storage, first: int, options: Mapping[str, str]) -> None:
        lance_format = LanceFormat()
        self.versions = Versions(storage, lance_format.folder, lance_format.detect)
        self._owned = TableWriter(StoredTable(lance_format, self.versions, options))
        self._offset = first

    def fold(self, *envelopes: Envelope) -> int:
        """Fold these as a group; the version that they are in."""
        group = [self._entry(number, envelope) for number, envelope in enumerate(envelopes)]
        outcomes: Sequence[Outcome] = self._owned.fold(group).outcomes
        self._offset += len(group)
        assert all(isinstance(outcome.result, Committed) for outcome in outcomes), outcomes
        return self._owned.table.version

    def _entry(self, number: int, envelope: Envelope) -> Entry:
        position = Position(LOG, self._offset + number, "lakefold.transactions")
        time_us = START_US + position.offset * 1000
        return Entry(position, time_us, envelope, envelope.ByteSize(), BUILT_IN.proposal(envelope))


@dataclass
class External:
    """A table under a name that no other test uses; each of its committers begins at a higher offset."""

    s3: S3Server
    dynamodb: DynamoServer
    base: str
    scheme: Scheme = Scheme.V2
    committers: int = 0
    through: dict[str, str] = field(default_factory=dict)
    """Storage options in place of the servers' own: proxies between."""

    @classmethod
    def new(cls, s3: S3Server, dynamodb: DynamoServer, scheme: Scheme = Scheme.V2) -> External:
        """An empty place."""
        return cls(s3, dynamodb, f"{uuid.uuid4().hex}/flights.lance", scheme)

    @property
    def uri(self) -> str:
        """The table's canonical URI."""
        return f"s3+ddb://{BUCKET}/{self.base}?ddbTableName={TABLE}"

    @property
    def plain(self) -> str:
        """The same objects as a client sees them that knows nothing of DynamoDB."""
        return f"s3://{BUCKET}/{self.base}"

    @property
    def options(self) -> dict[str, str]:
        """The storage options that pylance and we are given."""
        return {**self.dynamodb.options(**self.s3.options()), **self.through}

    def storage(self) -> Storage:
        """A client of ours."""
        return open_storage(self.uri, self.options)

    def objects(self) -> Storage:
        """The objects alone, and no proxy between."""
        return open_storage(self.plain, self.s3.options())

    def numbers(self) -> list[int]:
        """The versions that we see."""
        return Versions(self.storage(), VERSIONS, LanceFormat().detect).numbers()

    def items(self, folder: str = "") -> dict[int, dict[str, Any]]:
        """The items of the main line, or of the table in a folder below it, by version."""
        return self.dynamodb.items(f"{self.base}/{folder}".rstrip("/"))

    def files(self) -> set[str]:
        """The names in the folder of versions."""
        return set(self.objects().names(VERSIONS))

    def committer(self, storage: Storage | None = None) -> Committer:
        """Another committer of ours, on the main line unless another store is given."""
        self.committers += 1
        return Committer(storage or self.storage(), self.committers * 1000, self.options)

    def create(self) -> None:
        """Create the table by a fold."""
        self.committer().fold(creation(self.uri))

    def create_by_pylance(self, ids: Sequence[int] = (0,)) -> None:
        """Create the table as pylance does."""
        is_v2 = self.scheme is Scheme.V2
        lance.write_dataset(rows(ids), self.uri, storage_options=self.options, enable_v2_manifest_paths=is_v2)

    def fold(self, ids: Sequence[int]) -> int:
        """Append rows by a committer of ours that has just begun."""
        return self.committer().fold(self.proposal(ids))

    def grow(self, ids: Sequence[int]) -> int:
        """Append rows by a pylance that opens the table first; the version."""
        grown = lance.write_dataset(rows(ids), self.uri, storage_options=self.options, mode="append")
        return int(grown.version)

    def proposal(self, ids: Sequence[int], read: int = 1) -> Envelope:
        """An Append of rows with these ids, their files written."""
        return append(self.uri, rows(ids), read, storage_options=self.options)

    def dataset(self, version: int | None = None) -> Any:  # noqa: ANN401 - pylance is published without types
        """The table as pylance opens it."""
        return lance.dataset(self.uri, version=version, storage_options=self.options)

    def ids(self, version: int | None = None) -> list[int]:
        """The ids of all rows of a version, as pylance reads them after it has validated the table."""
        opened = self.dataset(version)
        opened.validate()
        return sorted(opened.to_table(columns=["id"])["id"].to_pylist())

    def leave_at(self, version: int, step: int, *, without_staged: bool = False) -> None:
        """Take a whole version back to what there was after any of the five steps of its put.

        `without_staged`: the first object is gone already, as old Lance clients leave it after step 3.
        """
        path = self.scheme.path(version)
        staged = f"{path}-{uuid.uuid4()}"
        objects, item = self.objects(), self.items()[version]
        if not without_staged:
            objects.put(staged, [objects.get(path)])
        if step < 3:
            objects.delete(path)
        client = self.dynamodb.client()
        if step < 2:
            client.delete_item(
                TableName=TABLE, Key={"base_uri": item["base_uri"], "version": item["version"]}
            )
        elif step < 4:
            client.put_item(TableName=TABLE, Item={**item, "path": {"S": f"{self.base}/{staged}"}})


def check_whole(table: External, newest: int, *, litter: int = 0) -> None:
    """All versions are in their places and recorded there as pylance records them; nothing else is left."""
    names = [table.scheme.path(number) for number in range(1, newest + 1)]
    assert table.numbers() == list(range(1, newest + 1))
    files = table.files()
    assert {name.rpartition("/")[2] for name in names} <= files
    assert len(files) == newest + litter, files
    sizes = table.objects().sizes(names)
    assert table.items() == {
        number: {
            "base_uri": {"S": table.base},
            "version": {"N": str(number)},
            "path": {"S": f"{table.base}/{name}"},
            "committer": {"S": "lancedb"},
            "size": {"N": str(sizes[name])},
        }
        for number, name in enumerate(names, 1)
    }
    assert all(name.endswith(SUFFIX) for name in files) or litter


__all__ = ["SCHEMA", "Committer", "External", "check_whole"]
