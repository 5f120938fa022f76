"""Which files the refused proposals name, by the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_log.read.dead_letters import read_dead_letters
from lakefold_maintenance.files.names import files_of, is_unique
from lakefold_table.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.read.dead_letters import DeadLetter
    from lakefold_table.position import LogId

TIMEOUT_S: Final = 30.0
_MICROSECONDS: Final = 1_000_000


class RefusedFiles:
    """The files of refused proposals, of all tables. Each dead letter is read once."""

    def __init__(self, kafka: KafkaConfig, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._read_to: dict[LogId, int] = {}
        self._files: dict[tuple[str, str], dict[str, float]] = {}

    def of(self, table: str, branch: str) -> Mapping[str, float]:
        """Returns the path of each file with the time of the last refusal that names it, in seconds.

        Proposals that are stored beside the table or were too large for a dead letter are left out. Raises
        `MissingTopicError`, and `RetryError` if the brokers send nothing for half a minute.
        """
        for letter in read_dead_letters(self._kafka, self._topic, timeout_s=TIMEOUT_S, read_to=self._read_to):
            self._add(letter)
        return self._files.get((table, branch), {})

    def _add(self, letter: DeadLetter) -> None:
        if not isinstance(letter.proposal, Entry):
            return
        envelope = letter.proposal.envelope
        known = self._files.setdefault((envelope.table, envelope.branch), {})
        refused_at = letter.time_us / _MICROSECONDS
        for path in filter(is_unique, files_of(envelope)):
            known[path] = max(refused_at, known.get(path, 0.0))
