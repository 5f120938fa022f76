"""`format("lakefold-killed")`: writes as `format("lakefold")`, until its process is killed at a step, once.

The option `killAt` names the step, and the file `killFile` exists as long as the kill is still to come. Spark
runs the steps in Python processes of its own, so a kill has the effect of a driver that died there: nothing
that comes after it happens, and the batch is not in the query's checkpoint.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from lakefold.spark_format import LakefoldFormat
from lakefold_log.write.producer import Proposer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

STEPS = ("before the write", "after the write", "after the send", "after the commit")


class KilledFormat(LakefoldFormat):
    """Tables as Spark writes them, with a kill."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._kill = Kill(self.options.pop("killAt"), self.options.pop("killFile"))

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "lakefold-killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's name and signature
        """Returns a writer that is killed."""
        return KilledWriter(super().streamWriter(schema, overwrite), self._kill)


class Kill:
    """Where the process is killed."""

    def __init__(self, step: str, file: str) -> None:
        self._step = step
        self._file = file

    def at(self, step: str) -> None:
        """Kills the process if this is the step, and it was not killed yet."""
        if step == self._step and Path(self._file).exists():
            Path(self._file).unlink()
            os.kill(os.getpid(), signal.SIGKILL)


class KilledWriter(DataSourceStreamArrowWriter):
    """A writer of a table, killed at any of the steps."""

    def __init__(self, writer: DataSourceStreamWriter, kill: Kill) -> None:
        self._writer = writer
        self._kill = kill

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task."""
        self._kill.at("before the write")
        message = self._writer.write(iterator)
        self._kill.at("after the write")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commits the batch."""
        position_of = Proposer.unverified_position_of

        def position_and_die(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as `unverified_position_of`
            position = position_of(*arguments, **options)
            self._kill.at("after the send")
            return position

        Proposer.unverified_position_of = position_and_die  # type: ignore[method-assign]
        try:
            self._writer.commit(messages, batchId)
        finally:
            Proposer.unverified_position_of = position_of  # type: ignore[method-assign]
        self._kill.at("after the commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Aborts the batch."""
        self._writer.abort(messages, batchId)
