"""Upserts and deletes of Delta tables without a broker: built by the product, folded as committers do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold_ingest.delta.schemas import new_fields, schema_text
from lakefold_ingest.formats import format_of, read_view
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.topic_names import Topics
from lakefold_table.entry import Committed, Rejected
from lakefold_table.uri import canonical
from tests.delta_logs.actions import metadata, protocol_with
from tests.merging import NO_BROKER
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lakefold_ingest.view import View
    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row_id_kept",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row_version_kept",
}
FEATURES = (
    "deletionVectors",
    "changeDataFeed",
    "appendOnly",
    "invariants",
    "checkConstraints",
    "rowTracking",
    "domainMetadata",
    "timestampNtz",
)


@dataclass
class DeltaFolding:
    """A Delta table on a local disk whose proposals are folded here. Each batch has a key of its own."""

    path: Path
    offset: int = 0
    batches: Iterator[int] = field(default_factory=count)

    def create(
        self,
        schema: pa.Schema,
        configuration: Mapping[str, str],
        partition_by: Sequence[str] = (),
        features: Sequence[str] = FEATURES,
        fields: list[dict[str, Any]] | None = None,
    ) -> None:
        """Creates the table with these properties and features."""
        table = Table(self.path)
        action = metadata(schema_text(fields or new_fields(schema)), **configuration)
        action["metaData"]["partitionColumns"] = list(partition_by)
        (created,) = self.fold(table.propose(protocol_with(*features), action))
        assert isinstance(created, Committed), created

    def settings(self, **changes: Any) -> WriteSettings:  # noqa: ANN401 - the test names the field
        return WriteSettings(canonical(self.path), NO_BROKER, Topics(), format="delta", **changes)

    def view(self) -> View:
        view = read_view(canonical(self.path), {}, afresh=True)
        assert view is not None
        return view

    def build(
        self,
        operation: Operation,
        key: Key | None = None,
        *,
        again: bool = False,
        **changes: Any,  # noqa: ANN401 - the test names the field
    ) -> Envelope | None:
        """The envelope of a batch on the newest version. `again`: its first proposal was refused."""
        key = key or Key("app", next(self.batches))
        envelope = operation.build(self.view(), key, self.settings(**changes))
        if envelope is not None and again:
            format_of(envelope).built_again(envelope)
        return envelope

    def fold(self, *envelopes: Envelope) -> list[Result]:
        """What becomes of envelopes that are folded as a group."""
        self.offset += 1
        return Table(self.path).fold(*envelopes, log=f"{self.offset:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e")

    def put(self, operation: Operation, **changes: Any) -> Committed | None:  # noqa: ANN401 - as above
        """Builds a batch and folds it. Returns None if nothing had to change."""
        envelope = self.build(operation, **changes)
        if envelope is None:
            return None
        (result,) = self.fold(envelope)
        assert isinstance(result, Committed), result
        return result

    def append(self, rows: pa.Table, **changes: Any) -> None:  # noqa: ANN401 - as above
        assert self.put(append_source(RowSource(rows)), **changes) is not None

    def refused(self, envelope: Envelope | None) -> Rejected:
        """The refusal of an envelope, which may be built again."""
        assert envelope is not None
        (result,) = self.fold(envelope)
        assert isinstance(result, Rejected), result
        assert result.conflict.retryable
        return result

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return lakefold.open(self.path).config

    def rows(self, version: int | None = None) -> list[dict[str, Any]]:
        """The rows by Lakefold and by delta-rs, which are the same, ordered by their text."""
        ours = lakefold.open(self.path, version).to_arrow().to_pylist()
        theirs = delta_rs_rows(self.path, version)
        assert sorted(ours, key=repr) == theirs
        return theirs

    def actions(self, version: int | None = None) -> list[dict[str, Any]]:
        """The actions of the newest version, or of another one."""
        number = DeltaTable(str(self.path)).version() if version is None else version
        lines = (self.path / f"_delta_log/{number:020d}.json").read_text().splitlines()
        return [json.loads(line) for line in lines]


def delta_rs_rows(path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a version by delta-rs, ordered by their text."""
    table = DeltaTable(str(path), version=version)
    selected = QueryBuilder().register("t", table).execute("select * from t").read_all()
    names = [each.name for each in table.schema().fields]
    rows = pa.table(selected).select(names).to_pylist()
    return sorted(rows, key=repr)
