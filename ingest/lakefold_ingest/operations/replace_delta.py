"""Replaces rows of a Delta table by files that were written before: all rows, or those of some partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_ingest.delta.proposals import write_proposal
from lakefold_ingest.delta.replacing import replaced_files
from lakefold_ingest.delta.writing import delta_view
from lakefold_ingest.formats import seen_source
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import WrittenFile
    from lakefold_ingest.view import BatchColumns, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(slots=True)
class ReplaceDelta:
    """An `Operation` that replaces rows by files, which were written for the schema `schema_text`.

    `where`: a condition on partition columns, empty for all rows. The version is read as a whole, so the
    proposal conflicts with files that are added meanwhile as Delta's isolation level says. `built` is true
    after an envelope was built.
    """

    files: Sequence[WrittenFile]
    schema_text: str
    where: str = ""
    schema: pa.Schema | None = None
    batch_columns: BatchColumns | None = None
    attempts: int = 3
    built: bool = field(default=False, init=False)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the proposal; None if there is nothing to remove and nothing to add.

        Raises `RetryError` if the table's columns were changed after the files were written, and as
        `replaced_files`.
        """
        view = delta_view(view, "replacing rows of files")
        if view.metadata.schema_text != self.schema_text:
            message = "the table's columns were changed while the rows were written"
            hint = "run the batch again: it is written for the new columns"
            raise RetryError(message, where=view.uri, hint=hint)
        removed = replaced_files(view, seen_source(view.uri, settings.storage_options), self.where)
        if not removed and not self.files:
            return None
        self.built = True
        actions = [*removed, *self.files]
        envelope = write_proposal(view.uri, key, view.version, actions, view.partition_columns(), "Overwrite")
        if self.where:
            envelope.delta.read_predicates.append(self.where)
            envelope.delta.operation_parameters["predicate"] = self.where
        else:
            envelope.delta.read_whole_table = True
        return envelope
