"""Batches whose files are written before their proposal is built, as Spark's data sources write them.

Spark runs the tasks first, and then hands what they wrote to the driver. So these operations can't write the
rows again for another schema: if the schema changes in between so that the files don't fit it, the batch
fails and is run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from lakefold_table.errors import InvalidError, RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(slots=True)
class WrittenBefore(ABC):
    """An `Operation` whose files are written before. It is planned without `files`, and can be pickled then.

    `table_id`: the table's `Marks.full_id` when its files were planned, empty if it had none. `built` is true
    after an envelope was built, which may be in the log from then on.
    """

    files: Sequence[WrittenFile]
    table_id: str = field(default="", kw_only=True)

    schema: None = field(default=None, init=False)
    batch_columns: None = field(default=None, init=False)
    attempts: int = field(default=3, init=False)
    built: bool = field(default=False, init=False)

    @abstractmethod
    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """See `Operation.build`. Raises `RetryError` if the files don't fit the table as it is now."""

    def with_files(self, files: Sequence[WrittenFile], bad_rows: pa.Table) -> Self:
        """Returns the operation with what the tasks wrote. `bad_rows`: those that they left out."""
        del bad_rows
        return replace(self, files=files)

    def check_table(self, view: View) -> None:
        """Raises `RetryError` if the table is not the one for which the files were written.

        `lakefold drop` may have removed some of them with the old table, and on an object store the committer
        doesn't look for each file of a proposal.
        """
        if self.table_id and view.carried.full_id != self.table_id:
            message = "the table was dropped and made anew, or restored, while the rows were written"
            hint = "run the batch again: it is written for the new table"
            raise RetryError(message, where=view.uri, hint=hint)


def check_target(view: View, target: Target, settings: WriteSettings) -> None:
    """Raises `RetryError` if files that were written for `target` don't fit the table as it is in `view`."""
    try:
        now = view.target(target.fitting.schema, settings)
    except InvalidError as error:
        raise changed_columns(view.uri) from error
    if not now.writes_like(target):
        raise changed_columns(view.uri)


def changed_columns(where: str) -> RetryError:
    """Returns the error for files that don't fit the table any more. `where` names it."""
    message = "the table's columns or rules were changed while the rows were written"
    return RetryError(message, where=where, hint="run the batch again: it is written for the table as it is")
