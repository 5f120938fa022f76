"""Upserts and deletes of Delta tables without a broker: built by the product, folded as committers do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold_ingest.delta.schemas import new_fields, schema_text
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.entry import Committed
from tests.delta_logs.actions import metadata, protocol_with
from tests.merging import Batches
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lakefold_ingest.writing.settings import WriteSettings
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
class DeltaFolding(Batches):
    """Batches of a Delta table."""

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
        return super().settings(format="delta", **changes)

    def fold(self, *envelopes: Envelope) -> list[Result]:
        """What becomes of envelopes that are folded as a group."""
        self.offset += 1
        return Table(self.path).fold(*envelopes, log=f"{self.offset:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e")

    def append(self, rows: pa.Table, **changes: Any) -> None:  # noqa: ANN401 - as above
        assert self.put(append_source(RowSource(rows)), **changes) is not None

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
