"""Finds the files that refused proposals name, by the dead letters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_log.read.dead_letters import DeadLetter, read_dead_letters
from lakefold_maintenance.formats import files_named_by_chance
from lakefold_table.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_table.position import LogId

TIMEOUT_S: Final = 30.0
MOST_FILES: Final = 200_000
"""The most files that are remembered, of all tables. Each takes about 250 bytes of memory."""
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Refusals:
    """The paths of the files of refused proposals, each with the time of the last refusal that names it.

    `conflicts`: refusals because of a version. Sent unchanged, such a proposal would be refused again.
    `others`: all others; their cause may be removed, and then `redrive` sends them again. `forgotten`: no
    refusal after this time is left out. The times are in seconds since 1970.
    """

    others: Mapping[str, float] = field(default_factory=dict)
    conflicts: Mapping[str, float] = field(default_factory=dict)
    forgotten: float = -math.inf

    @property
    def paths(self) -> set[str]:
        """All paths."""
        return {*self.others, *self.conflicts}


@dataclass(slots=True)
class _TableRefusals:
    others: dict[str, float] = field(default_factory=dict)
    conflicts: dict[str, float] = field(default_factory=dict)


class RefusedFiles:
    """The files of refused proposals, of all tables. Each dead letter is read once.

    If there are more than `most` files, those of the earliest refusals are forgotten.
    """

    def __init__(self, kafka: KafkaConfig, topic: str, most: int = MOST_FILES) -> None:
        self._kafka = kafka
        self._topic = topic
        self._most = most
        self._count = 0
        self._forgotten = -math.inf
        self._read_to: dict[LogId, int] = {}
        self._tables: dict[tuple[str, str], _TableRefusals] = {}

    def of(self, table: str, branch: str) -> Refusals:
        """Returns the refusals of a branch of a table.

        Proposals that are stored beside the table or were too large for a dead letter are left out. Raises
        `MissingTopicError`, and `RetryError` if the brokers send nothing for half a minute.
        """
        for letter in read_dead_letters(self._kafka, self._topic, timeout_s=TIMEOUT_S, read_to=self._read_to):
            self.add(letter)
        refusals = self._tables.get((table, branch), _TableRefusals())
        return Refusals(refusals.others, refusals.conflicts, self._forgotten)

    def add(self, letter: DeadLetter) -> None:
        """Notes the files that a dead letter names."""
        if not isinstance(letter.proposal, Entry):
            return
        envelope = letter.proposal.envelope
        paths = files_named_by_chance(envelope)
        if not paths:
            return
        table = self._tables.setdefault((envelope.table, envelope.branch), _TableRefusals())
        times = table.conflicts if letter.conflicts_with else table.others
        refused_at, before = letter.time_us / _MICROSECONDS, len(times)
        for path in paths:
            times[path] = max(refused_at, times.get(path, 0.0))
        self._count += len(times) - before
        if self._count > self._most:
            self._forget()

    def _forget(self) -> None:
        """Forgets the earlier half of the refusals, so that this is rarely needed."""
        parts = [part for table in self._tables.values() for part in (table.others, table.conflicts)]
        times = sorted(refused_at for part in parts for refused_at in part.values())
        self._forgotten = max(self._forgotten, times[len(times) // 2])
        for table in self._tables.values():
            table.others, table.conflicts = (
                {path: refused_at for path, refused_at in part.items() if refused_at > self._forgotten}
                for part in (table.others, table.conflicts)
            )
        self._tables = {
            name: table for name, table in self._tables.items() if table.others or table.conflicts
        }
        self._count = sum(len(table.others) + len(table.conflicts) for table in self._tables.values())
