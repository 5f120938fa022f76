"""Upserts and deletes without a broker: built by the product, folded by the committer's own fold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import lance
import pyarrow as pa

from lakefold_ingest.formats import format_of, read_view
from lakefold_ingest.merge.lance.rows import LanceRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_table.entry import Committed, Rejected
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pytest

    from lakefold_ingest.view import View
    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Result

NO_BROKER = KafkaConfig("127.0.0.1:1")
Noted = TypeVar("Noted")


def record_scans(
    monkeypatch: pytest.MonkeyPatch,
    noted: Callable[[LanceRows, Mapping[int, DataFragment] | None], Noted],
) -> list[Noted]:
    """Returns a list to which each scan of a read version adds what `noted` returns for its fragments."""
    scans, scan = list[Noted](), LanceRows.scan

    def recorded(
        table: LanceRows,
        columns: Sequence[str],
        where: str | None = None,
        row_bytes: float = 8.0,
        fragments: Mapping[int, DataFragment] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        scans.append(noted(table, fragments))
        return scan(table, columns, where, row_bytes, fragments)

    monkeypatch.setattr(LanceRows, "scan", recorded)
    return scans


@dataclass
class Batches(ABC):
    """A table on a local disk whose proposals are folded here, at growing offsets.

    Each batch has a key of its own unless it is given.
    """

    path: Path
    offset: int = 0
    batches: Iterator[int] = field(default_factory=count)

    @abstractmethod
    def fold(self, *envelopes: Envelope) -> list[Result]:
        """What becomes of envelopes that are folded as a group."""

    def settings(self, **changes: Any) -> WriteSettings:  # noqa: ANN401 - the test names the field
        return WriteSettings(canonical(self.path), NO_BROKER, Topics(), **changes)

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
        **changes: Any,  # noqa: ANN401 - as above
    ) -> Envelope | None:
        """The envelope of a batch on the newest version. `again`: its first proposal was refused."""
        key = key or Key("app", next(self.batches))
        envelope = operation.build(self.view(), key, self.settings(**changes))
        if envelope is not None and again:
            format_of(envelope).built_again(envelope)
        return envelope

    def put(self, operation: Operation, key: Key | None = None, **changes: Any) -> Committed | None:  # noqa: ANN401 - as above
        """Builds a batch and folds it. Returns None if nothing had to change."""
        envelope = self.build(operation, key, **changes)
        if envelope is None:
            return None
        (result,) = self.fold(envelope)
        assert isinstance(result, Committed), result
        return result

    def refused(self, envelope: Envelope | None) -> Rejected:
        """The refusal of an envelope, which may be built again."""
        assert envelope is not None
        (result,) = self.fold(envelope)
        assert isinstance(result, Rejected), result
        assert result.conflict.retryable
        return result


@dataclass
class Folding(Batches):
    """Batches of a Lance table."""

    def fold(self, *envelopes: Envelope) -> list[Result]:
        results = fold(owned(self.path), envelopes, self.offset)
        self.offset += len(envelopes)
        return results

    def rows(self, *columns: str) -> list[dict[str, object]]:
        """The table's rows by pylance, ordered by their text."""
        dataset = lance.dataset(str(self.path))
        dataset.validate()
        rows: list[dict[str, object]] = dataset.to_table(columns=list(columns) or None).to_pylist()
        return sorted(rows, key=repr)


def row_ids(path: Path, key: str = "id") -> dict[object, int]:
    """The row id of each key."""
    rows = lance.dataset(str(path)).to_table(columns=[key], with_row_id=True)
    return dict(zip(rows.column(key).to_pylist(), rows.column("_rowid").to_pylist(), strict=True))


def people(ids: list[int], name: str = "first", **more: list[object]) -> pa.Table:
    """Rows with an id, a name and a number."""
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": [f"{name} {n}" for n in ids],
        "n": pa.array([n * 10 for n in ids], pa.int32()),
    }
    return pa.table(columns | more)
