"""The version that a tail has read last, and whether the next one belongs to the same table."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from lakefold_reader.versions.branches import fork_of
from lakefold_reader.versions.cursor import Cursor
from lakefold_reader.versions.start import check_same, id_at, made_anew, other_table
from lakefold_table.errors import DamagedError
from lakefold_table.marks.marks import decode_marks
from lakefold_table.version_mark import mark_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_reader.format.source import Schema, Source
    from lakefold_table.format import VersionSummary

AT_ONCE_S: Final = 0.25
AT_ONCE_HERE_S: Final = 0.005
"""Two versions that are requested within these seconds are of one table, on this machine and on others: in
that time nobody removes a table and publishes as many versions of another."""


@dataclass(frozen=True, slots=True)
class LastRead:
    """The version that was read last. It is replaced as a whole, so a Ctrl-C leaves nothing half done.

    `cursor` names it. `table_id`: the last that a version named. `schema`: that of the version, None before
    any was read. `fork`: what distinguishes its branch from another one of the name, None if it was not
    looked up. `whole`: the next change is the whole content. `partition`: that of the log that the first
    version is bound to, as far as it says. `requested_at`: when it was requested.
    """

    cursor: Cursor
    table_id: str = ""
    schema: Schema | None = None
    fork: str | None = None
    whole: bool = False
    partition: int | None = None
    requested_at: float = -math.inf

    @classmethod
    def begin(cls, source: Source, seen: int, at: Cursor | None, *, whole: bool) -> Self:
        """Returns where a tail begins: after version `seen`, which the cursor `at` names if there is one.

        `whole`: with all content of the next version. Raises `MadeAnewError` if the branch is another one.
        """
        if at is None:
            return cls(Cursor("", "", seen), whole=whole)
        begun = cls(at, at.table_id, fork=fork_of(source, at.branch), whole=whole)
        begun._check_fork(source, at, begun.fork or "")
        return begun

    def after(self, source: Source, step: VersionSummary) -> Self:
        """Returns the version `step` as the last one, after checking that it belongs to the same table."""
        self._check_follows(source, step)
        schema = source.format.schema(step) or self.schema
        if schema is None:
            raise AssertionError("the first version that a tail takes is read whole")
        branch = self.cursor.branch if step.branch is None else step.branch
        fork = fork_of(source, branch or "") if self.fork is None else self.fork
        is_first = self.schema is None and step.metadata is not None
        return replace(
            self,
            cursor=Cursor(step.table_id, branch, step.version, mark_of(step), fork),
            table_id=step.table_id or self.table_id,
            schema=self.schema if self.schema == schema else schema,
            fork=fork,
            partition=_partition(step.metadata or {}) if is_first else self.partition,
            requested_at=step.requested_at,
        )

    def _check_follows(self, source: Source, step: VersionSummary) -> None:
        """Raises `MadeAnewError` if a version belongs to another table than the last one.

        A version that names the table's id does not, except on a branch, which has the id of the main branch.
        For any other the last version is read once more: it must still exist unchanged. That isn't needed if
        both were read at nearly the same time.
        """
        seen = self.cursor
        if self.table_id and step.table_id and self.table_id != step.table_id:
            raise other_table(source, seen, step.table_id, step.branch)
        is_named = bool(step.table_id) and step.table_id == seen.table_id and not seen.branch
        if is_named or not seen.mark or step.version <= seen.version:
            return
        at_once_s = AT_ONCE_HERE_S if source.storage.cheap_size else AT_ONCE_S
        if step.requested_at - self.requested_at <= at_once_s:
            return
        current = source.summary(seen.version)
        if current is not None:
            check_same(source, seen, current)
        elif seen.table_id and (step.table_id or id_at(source, step.version)) != seen.table_id:
            # It was cleaned up, and the table's id with it.
            raise made_anew(source, seen)
        else:
            self._check_fork(source, seen, fork_of(source, seen.branch))

    @staticmethod
    def _check_fork(source: Source, at: Cursor, now: str) -> None:
        """Raises `MadeAnewError` if the branch's file has another identifier, `now`, than the cursor."""
        if at.fork and now and at.fork != now:
            raise made_anew(source, at)


def _partition(metadata: Mapping[str, str]) -> int | None:
    """Returns the partition of the log that a version is bound to, None if it has no marks that say so."""
    with suppress(DamagedError):
        marks = decode_marks(metadata)
        if marks is not None and marks.position is not None:
            return marks.position.log.partition
    return None
