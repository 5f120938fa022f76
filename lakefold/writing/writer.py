"""`lakefold.Writer`: small appends of a service, batched, with a future for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakefold.writing.options import WriteOptions, write_settings
from lakefold_ingest.writer.batch_writer import BatchWriter
from lakefold_ingest.writer.batching import BatchLimits

if TYPE_CHECKING:
    import os

_QUEUED = 256 * 1024 * 1024


class Writer(BatchWriter):
    """Writes small appends of a service to a table for hours, in batches, each row once.

        with lakefold.Writer("s3://lake/flights", app_id="svc", max_rows=10_000, max_delay=0.1) as writer:
            future = writer.append(rows)     # a concurrent.futures.Future
            future.result().version
            await writer.append_async(rows)  # in asyncio

    A batch is sent when it has `max_rows` rows or `max_bytes` bytes, or its oldest append has waited
    `max_delay` seconds. Several batches are on their way at once, in the order of the appends. `append` waits
    while `max_queued_bytes` have no outcome yet. An append whose rows don't fit the table fails alone; if a
    batch is refused, the appends in it fail and later ones continue. Leaving the block waits for all outcomes
    and raises the first error. For any number of threads.

    `app_id` names this writer in the table's history and must not be used by two writers at once: the second
    one gets a `StopError`, and none of its rows is dropped without an error. A writer that is started again
    under its `app_id` continues after the highest batch number in the table. If a process dies, each append
    whose future had no result is in the table completely or not at all; which of them are is shown by the
    table alone. A source that is read again should use `lakefold.append` with batch ids of its own. Without
    `app_id` each batch has a random key.

    `options` are those of `lakefold.append`, except `wait`. Raises `InvalidError` if one is wrong.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        app_id: str | None = None,
        max_rows: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_delay: float = 0.1,
        max_queued_bytes: int = _QUEUED,
        **options: Unpack[WriteOptions],
    ) -> None:
        limits = BatchLimits(max_rows, max_bytes, max_delay)
        super().__init__(write_settings(table, options, Writer), app_id, limits, max_queued_bytes)
