"""Batches of both formats that are undone without a broker, and what the tables have to be then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from deltalake import DeltaTable

import lakefold
from lakefold_ingest.formats import FORMATS, seen_source
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.revert.batch_revert import RevertBatches, RevertRequest
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.view import BatchColumns
from lakefold_maintenance.rewriting.compact import Compaction
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Entry, Outcome
from lakefold_table.position import Position
from tests.delta_merging import FEATURES, FEED, TRACKED, VECTORS, DeltaFolding
from tests.folding import LOG, entry
from tests.merging import Batches, Folding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lakefold_ingest.proposals.key import Key
    from lakefold_table.entry import Result

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
KINDS = ("lance", "lance-ids", "delta", "delta-vectors", "delta-tracked", "delta-feed")


def words(*ids: int, word: str = "first") -> pa.Table:
    """Rows with these ids, and a word that names each."""
    return pa.table({"id": list(ids), "word": [f"{word} {n}" for n in ids]}, schema=SCHEMA)


@dataclass
class Recorded:
    """The entries that tests have folded, by the id of their topic and their offset."""

    by_position: dict[tuple[str, int], Entry] = field(default_factory=dict)

    def entries(self, positions: Sequence[Position]) -> Mapping[int, Entry]:
        """See `LoggedEntries.entries`."""
        names = [(position.log.topic_id, position.offset) for position in positions]
        return {name[1]: self.by_position[name] for name in names if name in self.by_position}

    def record(self, log: str, first: int, envelopes: Sequence[Envelope]) -> None:
        """Records what was folded from an offset on."""
        for number, envelope in enumerate(envelopes):
            self.by_position[log, first + number] = entry(envelope, first + number)


@dataclass
class LanceBatches(Folding):
    """Batches of a Lance table whose entries are recorded."""

    log: Recorded = field(default_factory=Recorded)

    def fold(self, *envelopes: Envelope) -> list[Result]:
        self.log.record(LOG.topic_id, self.offset, envelopes)
        return super().fold(*envelopes)


@dataclass
class DeltaBatches(DeltaFolding):
    """Batches of a Delta table whose entries are recorded."""

    log: Recorded = field(default_factory=Recorded)

    def fold(self, *envelopes: Envelope) -> list[Result]:
        results = super().fold(*envelopes)
        self.log.record(f"{self.offset:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e", 0, envelopes)
        return results


@dataclass
class _CompactionLog:
    """The log of a compaction, folded at once."""

    batches: Batches

    def ask(self, envelope: Envelope) -> Outcome:
        (result,) = self.batches.fold(envelope)
        return Outcome(Position(LOG, self.batches.offset, "t"), envelope.table, result)

    def close(self) -> None:
        """Closes nothing."""


@dataclass
class Tables:
    """A table of one of `KINDS`, with the operations of a test."""

    batches: Batches
    kind: str
    log: Recorded = field(default_factory=Recorded)

    @classmethod
    def made(cls, kind: str, path: Path, schema: pa.Schema = SCHEMA) -> Tables:
        """Creates the table."""
        if kind.startswith("lance"):
            lance.write_dataset(schema.empty_table(), str(path), enable_stable_row_ids=kind == "lance-ids")
            batches = LanceBatches(path)
            return cls(batches, kind, batches.log)
        delta = DeltaBatches(path)
        plain = ("appendOnly", "invariants")
        properties, features = {
            "delta": ({}, plain),
            "delta-vectors": (VECTORS, (*plain, "deletionVectors")),
            "delta-tracked": ({**VECTORS, **TRACKED}, FEATURES),
            "delta-feed": (FEED, (*plain, "changeDataFeed")),
        }[kind]
        delta.create(schema, properties, features=features)
        return cls(delta, kind, delta.log)

    def append(self, rows: pa.Table, key: Key | None = None) -> int:
        """Appends rows; returns the version."""
        return self.put(append_source(RowSource(rows)), key)

    def upsert(self, rows: pa.Table, key: Key | None = None) -> int:
        """Merges rows by their ids."""
        return self.put(UpsertRows(rows, Merge(("id",))), key)

    def delete(self, where: str, key: Key | None = None) -> int:
        """Deletes rows."""
        return self.put(DeleteWhere(where), key)

    def put(self, operation: Any, key: Key | None = None) -> int:  # noqa: ANN401 - any operation
        """Builds a batch and folds it; returns the version."""
        result = self.batches.put(operation, key)
        assert isinstance(result, Committed)
        return result.version

    def compact(self) -> int:
        """Rewrites all fragments or files as one, by Lakefold; returns the version."""
        log = _CompactionLog(self.batches)
        surveyor = Surveyor(open_source(str(self.batches.path), format_name=self.kind.partition("-")[0]))
        report = Compaction(surveyor, lambda _: log).run(full=True)
        assert not report.failed, report.failed
        return self.version

    def compact_by_others(self) -> int:
        """The same by pylance or delta-rs."""
        path = str(self.batches.path)
        if isinstance(self.batches, DeltaFolding):
            DeltaTable(path).optimize.compact()
        else:
            lance.dataset(path).optimize.compact_files()
        return self.version

    def evolve(self) -> int:
        """Adds a column, if the table lacks it; returns the version."""
        if "more" not in self.columns:
            columns = BatchColumns(SCHEMA.append(pa.field("more", pa.string())))
            settings = self.batches.settings()
            source = seen_source(settings.table, {})
            evolution = FORMATS[source.format.name].evolution(settings)
            (result,) = self.batches.fold(evolution.change(self.batches.view(), columns, source).envelope)
            assert isinstance(result, Committed), result
        return self.version

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = lakefold.open(self.batches.path).schema.names
        return names

    def restore(self, version: int) -> int:
        """Restores a version; returns the new one."""
        source = open_source(str(self.batches.path), format_name=self.kind.partition("-")[0])
        envelope = Envelope(table=source.uri)
        FORMATS[source.format.name].restore(envelope, source, version, self.version)
        (result,) = self.batches.fold(envelope)
        assert isinstance(result, Committed), result
        return result.version

    def revert(self, **request: Any) -> int:  # noqa: ANN401 - the test names the field
        """Undoes what the request names; returns the version."""
        return self.put(self.operation(**request))

    def operation(self, **request: Any) -> RevertBatches:  # noqa: ANN401 - as above
        """The operation that undoes what the request names."""
        return RevertBatches(RevertRequest(**request), self.log)

    def rows(self, version: int | None = None) -> list[tuple[Any, ...]]:
        """The rows by Lakefold and by the format's own client, which are the same, in order."""
        ours = lakefold.open(self.batches.path, version).to_arrow().to_pylist()
        if isinstance(self.batches, DeltaFolding):
            self.batches.rows(version)
        else:
            dataset = lance.dataset(str(self.batches.path), version=version)
            dataset.validate()
            theirs = dataset.to_table().to_pylist()
            assert sorted(ours, key=repr) == sorted(theirs, key=repr)
        return sorted((tuple(row.values()) for row in ours), key=repr)

    @property
    def version(self) -> int:
        """The newest version."""
        return lakefold.open(self.batches.path).version
