"""The seam between what a batch does to a table and how it gets into the table exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import BatchColumns, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.turns import Turn
    from lakefold_protos.lakefold.log_pb2 import Envelope


class Operation(Protocol):
    """What one batch does to a table. `batch.put_batch` does the rest, the same for each operation."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema with which the table is created if it does not exist. None: the table must exist."""

    @property
    def attempts(self) -> int:
        """The most times that the envelope is built. After a retryable refusal it is built again."""

    @property
    def batch_columns(self) -> BatchColumns | None:
        """The columns of the rows that it writes: the table is fitted to them if `merge_schema`.

        None: the operation adds no columns to the table.
        """

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Writes the files of the batch and returns its envelope, built on the version of `view`.

        The envelope has `key` (`proposals.envelopes.begin_envelope` sets it). Returns None if there is
        nothing to change: then only the key is sent, or nothing if it has no batch id. Raises `InvalidError`
        if the batch does not fit the table. Files that no sent envelope names stay unused; no version names
        them.
        """


@runtime_checkable
class ChecksColumns(Protocol):
    """An `Operation` that may not fit a table for other reasons than its columns.

    It is asked before the table is created or gets columns for the batch: that stays if the batch fails.
    """

    def check(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> None:
        """Raises `InvalidError` if the batch can't be applied to a table with these columns.

        `where` names the table in errors. `keeps_bad_rows`: rows that can't be applied are no reason.
        """


@runtime_checkable
class KnowsContent(Protocol):
    """An `Operation` that says whether a batch that was folded before has the same rows now.

    Others can't, if what they change depends on the table as it was before the batch was folded.
    """

    def content(self, view: View) -> str:
        """Returns the content that an envelope for the version of `view` would have, without writing files.

        That is what `TableProposal.content` says of it. Returns "" if it is not known.
        """


@runtime_checkable
class SaysContent(Protocol):
    """An `Operation` that says what its batch is, by which another batch with the same key is noticed."""

    def said(self, view: View, rows: int | None = None) -> str:
        """Returns the batch's content, as `reused_key.batch_content`; empty if it is not known.

        `view`: the table. `rows`: how many rows its envelope adds, None if none was built.
        """


@runtime_checkable
class ChangesKeys(Protocol):
    """An `Operation` that is refused if others changed rows of its keys: those that were refused go first."""

    def turn(self, view: View, key: Key) -> Turn:
        """Returns the keys that it changes, as hashes. Raises `InvalidError` if they can't be read."""


@runtime_checkable
class LeavesRowsOut(Protocol):
    """An `Operation` that can leave out rows that can't be written, if the settings have `bad_records`."""

    @property
    def bad_rows(self) -> Sequence[pa.Table]:
        """The rows that the last `build` left out, as `rows.row_faults.BAD_ROWS`."""

    def appending(self, rows: pa.Table) -> Operation:
        """Returns the operation that appends these rows to the table of those left out."""
