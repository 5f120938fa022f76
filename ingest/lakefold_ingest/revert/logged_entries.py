"""Reads entries of the log by their positions, for versions that several entries share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from lakefold_log.codec.envelope import decode
from lakefold_log.read.lookup import Lookup
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Entry
from lakefold_table.errors import InvalidError, LakefoldError, OptionName
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import Position
from lakefold_table.roots import folder_and_name
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics


@dataclass(frozen=True, slots=True)
class BrokerEntries:
    """See `LoggedEntries`: those of a table, from the brokers. `timeout_s`: seconds for each search."""

    kafka: KafkaConfig
    topics: Topics
    table: str
    timeout_s: float
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def entries(self, positions: Sequence[Position]) -> Mapping[int, Entry]:
        """See `LoggedEntries.entries`. There are none if the brokers have another log."""
        log = positions[0].log
        if log.is_file:
            return {}
        topics = replace(self.topics, transactions=positions[0].topic or self.topics.transactions)
        lookup = Lookup(self.kafka, topics, self.table, log.partition, timeout_s=self.timeout_s)
        if lookup.log != log:
            return {}
        entries: dict[int, Entry] = {}
        for message in lookup.messages([position.offset for position in positions]):
            position = Position(log, message.offset, positions[0].topic)
            entry = decode(message.value, message.key, position, message.time_us)
            if isinstance(entry, Entry):
                entries[message.offset] = self._whole(entry)
        return entries

    def _whole(self, entry: Entry) -> Entry:
        """Returns the entry with the envelope that is stored beside the table, if its message names one."""
        if not entry.is_claim:
            return entry
        claim = entry.envelope.claim
        folder, name = folder_and_name(claim.uri)
        try:
            data = open_storage(folder, self.storage_options).get(name)
        except (FileNotFoundError, LakefoldError):
            return entry
        if sha256(data).digest() != claim.sha256:
            return entry
        envelope = Envelope.FromString(data)
        return replace(entry, envelope=envelope, proposal=BUILT_IN.proposal(envelope))


@dataclass(frozen=True, slots=True)
class NoEntries:
    """See `LoggedEntries`: there is no log to read, and `reason` says why."""

    reason: str = "no brokers are set"

    def entries(self, positions: Sequence[Position]) -> Mapping[int, Entry]:
        """See `LoggedEntries.entries`."""
        message = f"the log is needed to know which entry did what, and it can't be read: {self.reason}"
        hint = ("set ", OptionName("bootstrap_servers"), ", or name whole versions")
        raise InvalidError(message, where=str(positions[0]), hint=hint)
