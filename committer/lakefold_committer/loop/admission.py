"""Admits messages for names under which no table is open: reads them again, checks their names.

The reader of old messages is shared with the tables that are open, so it is released before the names are
checked. If a name is not a table its messages are refused here, hundreds at a time. The others are added to
queues of tables, of which only some may be new at a time. The rest stays as offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.name_check import CheckedNames
from lakefold_committer.loop.reread_entries import Reread, reread
from lakefold_committer.loop.unopened_tables import UnopenedTables, bucket_of, location_of
from lakefold_log.codec.envelope import Decoded, address_of
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.loop.ports import LogReader, LoopLimits, Runtime, Tables
    from lakefold_committer.loop.table_scheduler import TableScheduler
    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Outcome
    from lakefold_table.uri import Location

LOG = structlog.get_logger("lakefold.committer")
NAMES_AT_ONCE: Final = 32
"""How many names under which no table is open are opened at once. Messages for others wait as offsets."""
MOST_NEW: Final = 256
"""The same, for names under which something is stored."""
LOOKED_AT: Final = 512
"""How many messages are read at once, so that their names are checked together."""


@dataclass(frozen=True, slots=True)
class PartitionIntake:
    """What the partition does with messages whose names were checked, and what it knows of its queues.

    `judge` adds a message to the queue of its name, which it creates if it doesn't exist. `refuse` takes the
    outcome of a message whose name is not a table. `has_queue`: whether a name has a queue. `new_queues`: how
    many queues have entries whose table isn't known to exist.
    """

    judge: Callable[[Message, Decoded], None]
    refuse: Callable[[Message, Decoded, Outcome], None]
    has_queue: Callable[[Location], bool]
    new_queues: Callable[[], int]


class Admission:
    """The entries of unopened tables in a partition. The loop calls `begin` in each round."""

    def __init__(
        self,
        reader: LogReader,
        tables: Tables,
        pace: LoopLimits,
        runtime: Runtime,
        scheduler: TableScheduler,
        intake: PartitionIntake,
    ) -> None:
        self.unopened = UnopenedTables()
        self.again_at = 0.0
        self._reader = reader
        self._tables = tables
        self._pace = pace
        self._runtime = runtime
        self._scheduler = scheduler
        self._intake = intake
        self._most_read = LOOKED_AT
        self._is_at_work = False
        self._backoff = Backoff()

    def begin(self) -> None:
        """Asks for the turn to read some of these entries again, if there is room for more names."""
        if self._may_begin():
            self._scheduler.ask_to_read(self, self._begin_reading)

    def _may_begin(self) -> bool:
        return bool(self.unopened) and not self._is_at_work and not self._scheduler.is_ending

    def _begin_reading(self) -> bool:
        if (
            not self._may_begin()
            or self._runtime.now() < self.again_at
            or self._intake.new_queues() >= NAMES_AT_ONCE
        ):
            return False
        self._is_at_work = True
        offsets = self.unopened.leading(self._most_read)
        self._runtime.start(
            partial(reread, self._reader, offsets, self._pace.limits.max_bytes), self._were_read
        )
        return True

    def _were_read(self, result: Sequence[Reread] | BaseException) -> None:
        self._is_at_work = False
        self._scheduler.reading_ended()
        if isinstance(result, RetryError):
            self.again_at = self._runtime.now() + self._backoff.pause()
            LOG.warning("entries could not be read again, trying again", error=str(result))
        elif isinstance(result, BaseException):
            self._scheduler.fail(result)
        else:
            self._backoff = Backoff()
            name_check = self._tables.name_check
            if name_check is None:
                self._admit(result, CheckedNames())
                return
            self._is_at_work = True
            reads = [decoded for _, decoded, _ in result]
            self._runtime.start(partial(name_check.check, reads), partial(self._were_checked, result))

    def _were_checked(self, reads: Sequence[Reread], result: CheckedNames | BaseException) -> None:
        self._is_at_work = False
        if isinstance(result, BaseException):
            self._scheduler.fail(result)
        else:
            self._admit(reads, result)

    def _admit(self, reads: Sequence[Reread], checked: CheckedNames) -> None:
        """Refuses or judges the messages that were read, as far as there is room for new queues."""
        locations = [location_of(address_of(message.value)) for message, _, _ in reads]
        new, kept_offsets = self._intake.new_queues(), set[int]()
        begun: set[Location] = set()
        judged: list[tuple[Message, Decoded]] = []
        for (message, read, _), location in zip(reads, locations, strict=True):
            outcome = checked.refused.get(message.offset)
            if location is None or location in begun or self._intake.has_queue(location):
                judged.append((message, read))
            elif outcome is not None:
                self._intake.refuse(message, read, outcome)
            elif new < (MOST_NEW if bucket_of(location) in checked.existing else NAMES_AT_ONCE):
                new += 1
                begun.add(location)
                judged.append((message, read))
            else:
                kept_offsets.add(message.offset)
        self._most_read = NAMES_AT_ONCE if kept_offsets else LOOKED_AT
        self.unopened.drop(locations, kept_offsets)
        self.unopened.put_first(checked.existing)
        for message, read in judged:
            self._intake.judge(message, read)
