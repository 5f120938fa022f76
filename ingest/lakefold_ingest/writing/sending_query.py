"""Which streaming query sent a batch: its id is a header of the message.

A batch that the table has already is a repetition if the same query sent it before. If another query sent it,
or this one before its checkpoint was deleted, the rows of the batch are not in the table. The table's marks
know apps and batches, and no queries. But the version that has the batch records which entries of the log are
in it, and their messages say it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_ingest.formats import seen_source
from lakefold_ingest.writing.recorded_answer import record_of
from lakefold_log.codec.envelope import decode
from lakefold_log.read.lookup import Lookup
from lakefold_table.entry import Entry
from lakefold_table.position import Position

if TYPE_CHECKING:
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.consumer import Headers, Message
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import LogId

QUERY: Final = "lakefold-query"
"""The header of a message with the id of the streaming query that sent it, which its checkpoint keeps."""


@dataclass(frozen=True, slots=True)
class Sender:
    """What is known of whoever sends a batch.

    `in_order`: its app sends batches by ascending ids and repeats only the last one, as a streaming query
    does. `may_repeat`: the batch may have been sent before. `query_id`: that of the streaming query, "" if
    none sends it; `query_name`: its name, "" if it has none.
    """

    in_order: bool = False
    may_repeat: bool = True
    query_id: str = ""
    query_name: str = ""

    @property
    def headers(self) -> Headers:
        """Those of the messages that it sends."""
        return ((QUERY, self.query_id.encode()),) if self.query_id else ()

    def sign(self, envelope: Envelope, message: str) -> None:
        """Has a proposal name the query that sends it and why (`message`), as far as that is known."""
        if message:
            envelope.author.message = message
        if self.query_id:
            envelope.author.query = self.query_name or self.query_id


ANYBODY: Final = Sender()
"""A sender of whom nothing is known."""


def sending_query(settings: WriteSettings, key: Key, version: int) -> str:
    """Returns the id of the streaming query that sent the batch which `version` has.

    Returns "" if that is not known: the version was removed or is 0, the log doesn't have the message any
    more, or no streaming query has sent it. Raises `RetryError` if no broker answers in time,
    `MissingTopicError` if the log does not exist, `InvalidError` if this user may not read it, `DamagedError`
    if the version can't be read.
    """
    source = seen_source(settings.table, settings.storage_options)
    record = record_of(source, version)
    if record is None:
        return ""
    partition = record.log.partition
    lookup = Lookup(settings.kafka, settings.topics, source.uri, partition, timeout_s=settings.timeout_s)
    if lookup.log != record.log:
        return ""
    for message in lookup.messages(record.committed):
        query_id = dict(message.headers).get(QUERY)
        if query_id is not None and _has_batch(message, record.log, key):
            return query_id.decode(errors="replace")
    return ""


def _has_batch(message: Message, log: LogId, key: Key) -> bool:
    entry = decode(message.value, message.key, Position(log, message.offset), message.time_us)
    return isinstance(entry, Entry) and (entry.app_id, entry.batch_id) == (key.app_id, key.batch_id)
