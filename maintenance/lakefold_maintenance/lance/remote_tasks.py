"""A task of a compaction for another process, as it is sent, and its result as that process returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_maintenance.lance.rewriter import Rewriter, RewrittenTask
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.formats import open_source
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_maintenance.format import TableSurvey, TaskLimits
    from lakefold_maintenance.planning.plan import RewriteTask

_KINDS: Final = {kind.__name__: kind for kind in (DamagedError, RetryError, InvalidError)}
"""The kinds of error that are returned from a task."""


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """What a task of another process returns, as plain values.

    `new`: the encoded new fragments. `fault`: the kind, message, location and hint of the error with which it
    ended; None if it has a result.
    """

    new: tuple[bytes, ...] = ()
    fault: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """A task with all that another process needs to run it.

    `old`: the encoded fragments. `options`: the storage options; they may hold secrets, so they are not
    printed.
    """

    uri: str
    version: int
    task: RewriteTask
    old: tuple[bytes, ...]
    limits: TaskLimits
    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        survey: TableSurvey,
        task: RewriteTask,
        old: Sequence[DataFragment],
        limits: TaskLimits,
    ) -> RemoteTask:
        """Returns a task on the version of a survey."""
        encoded = tuple(fragment.SerializeToString(deterministic=True) for fragment in old)
        source = survey.source
        return cls(source.uri, survey.version, task, encoded, limits, dict(source.options))

    def run(self) -> RemoteResult:
        """Rewrites the fragments. An error of Lakefold's is returned, so that Spark doesn't try again."""
        try:
            rewriter = Rewriter(open_source(self.uri, self.options), self.version, self.limits)
            result = rewriter.run(self.task, self._fragments())
        except LakefoldError as error:
            kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
            return RemoteResult(fault=(kind, error.message, error.where, error.hint))
        new = tuple(fragment.SerializeToString(deterministic=True) for fragment in result.new)
        return RemoteResult(new)

    def received(self, result: RemoteResult) -> RewrittenTask | LakefoldError:
        """Returns the task's result, or its error, from what the other process has returned."""
        if result.fault is not None:
            kind, message, where, hint = result.fault
            return _KINDS.get(kind, LakefoldError)(message, where=where, hint=hint)
        new = [DataFragment.FromString(fragment) for fragment in result.new]
        return RewrittenTask(self.task, self._fragments(), new)

    def _fragments(self) -> list[DataFragment]:
        return [DataFragment.FromString(fragment) for fragment in self.old]
