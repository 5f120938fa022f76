"""Reads one partition in order, from an offset that is known, and never skips.

The offset to begin with comes from what is proven, not from Kafka's own memory of a group; where the log
can't give exactly that offset the reader stops. A broker that is away is no error: the reader keeps trying,
says so, and goes on where it was.
"""

from __future__ import annotations

import threading
import time
from enum import Enum
from operator import methodcaller
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakefold_log.client.admin import NO_GROUP, Admin, client_set_up, error_of
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.error_codes import Local
from lakefold_log.client.rights import on_topics
from lakefold_log.client.topic_identity import ANOTHER_LOG, LateProof, TopicGuard
from lakefold_log.client.topics import NOT_YET, describe, watermarks
from lakefold_log.read.holes import count_records
from lakefold_table.errors import GapError, RetryError, StopError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from confluent_kafka import Message as RawMessage

    from lakefold_log.client.admin import KafkaConfig, Option
    from lakefold_log.client.questions import Watermarks
    from lakefold_log.read.holes import Counted
    from lakefold_table.errors import LakefoldError
    from lakefold_table.position import LogId

Headers = tuple[tuple[str, bytes | None], ...]

# librdkafka waits a whole second before it fetches on once its queue was full; the queue is small on purpose.
_TUNED: Final[dict[str, Option]] = {
    "queued.max.messages.kbytes": 16384,
    "fetch.queue.backoff.ms": 5,
    "check.crcs": True,
}
_LOST_PLACE = frozenset({Local.AUTO_OFFSET_RESET, Local.LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE})
_MICROSECONDS = 1000
# Where a name is not UTF-8 the client (2.16) gives a list with a hole in it and leaves an error behind: a
# method call that Python has sped up doesn't look for that, and a second look at the list ends the process.
_headers_of = methodcaller("headers")
LOST_ENTRIES = (
    "bring them back at their old offsets; `lakefold committer --accept-new-log` goes on without them"
)
WITHHELD = (
    "the brokers' logs name a damaged segment: bring it back from a copy or replica, and nothing is lost; "
    "if the log has grown again, `lakefold committer --accept-new-log` goes on with what it holds now"
)


class Verify(Enum):
    """When it is proven that messages came from the proven topic, and not from one made anew meanwhile."""

    NEVER, FIRST, LATER = range(3)


class Message:
    """One message of the log. `time_us`: the topic's timestamp in microseconds since 1970."""

    __slots__ = ("_found", "_raw", "key", "offset", "time_us", "value")

    def __init__(self, raw: RawMessage, offset: int) -> None:
        self._raw = raw
        self._found: Headers | None = None
        self.offset = offset
        self.key = raw.key()
        self.value = raw.value() or b""
        self.time_us = raw.timestamp()[1] * _MICROSECONDS

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that took the message. Returns None if the broker is too old."""
        return self._raw.leader_epoch()

    @property
    def headers(self) -> Headers:
        """The message's headers in order; decoded when they are asked for. None where a name is not UTF-8."""
        if self._found is None:
            self._found = _decoded(self._raw)
        return self._found


def _decoded(raw: RawMessage) -> Headers:
    try:
        found = _headers_of(raw) or ()
    except (SystemError, UnicodeDecodeError):
        return ()
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


class PartitionReader:
    """Reads partition `log.partition` of `topic` from `start_offset` on; for one thread.

    `verify`: for who folds, messages must be known to have come from the proven topic. `FIRST`: none is
    handed out before that; `LATER`: `prove` must be asked before what they say has any effect.
    `on_hole` is told of offsets that hold neither a message nor the marker of a transaction, before any later
    message is handed out; what it raises ends reading there. Without it such holes aren't looked for.
    Raises `GapError` where the topic is not the one that `log` names, or doesn't reach to `start_offset` or
    back to it; `RetryError` where no broker answers; `MissingTopicError` where there is no topic.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        log: LogId,
        start_offset: int,
        *,
        isolation: str = "read_committed",
        verify_every_s: float = 5.0,
        verify: Verify = Verify.NEVER,
        on_hole: Callable[[GapError], None] | None = None,
    ) -> None:
        self.topic = topic
        self.log = log
        self.position = start_offset
        self.last_error = ""
        self._isolation = isolation
        self._admin = Admin(config)
        self._guard = TopicGuard(self._admin, topic, log, every_s=verify_every_s)
        self._in_use = threading.Lock()
        self._known_end = 0
        self._verify = verify
        self._config = config
        self._on_hole = on_hole
        self._whole_below = start_offset
        self._proof = LateProof(self._guard)
        self._lost_place = False
        self._failure: LakefoldError | None = None
        self._prove_topic()
        self._prove_offset(start_offset)
        self._consumer = self._make(config)
        self._assign(start_offset)

    @property
    def connected(self) -> bool:
        """Whether a broker answers, as far as is known. While it is False the reader keeps trying."""
        return self._guard.answering

    def poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        """Up to `max_messages` that follow, in order; waits `timeout_s` seconds for the first one only.

        `position` is then the offset to read next, past what carries no message (markers, aborted ones).
        Raises `GapError` where the topic is another one now or doesn't hold the next offset any more,
        `StopError` where messages can't be unpacked, `InvalidError` where reading is not allowed. A broker
        that is away gives an empty list.
        """
        self._guard.step()
        self._raise_failure()
        with self._in_use:
            messages = self._next(max_messages, timeout_s)
            self._hear_of_the_end()
        return messages

    def _next(self, max_messages: int, timeout_s: float) -> list[Message]:
        messages: list[Message] = []
        deadline = time.monotonic() + timeout_s
        raw = self._consumer.poll(timeout_s)
        while raw is not None:
            self._take(raw, messages)
            if messages:
                if max_messages > 1:
                    for more in self._consumer.consume(max_messages - 1, 0):
                        if not self._take(more, messages):
                            break
                return self._proven(messages)
            self._raise_failure()
            raw = self._consumer.poll(max(0.0, deadline - time.monotonic()))
        return messages

    def _proven(self, messages: list[Message]) -> list[Message]:
        """The messages once the topic they came from is known to be the proven one; none where that waits.

        The client goes on in a topic that was made anew without a word. A topic's id never comes back: if it
        is the proven one after these came, they came from the proven one.
        """
        if self._verify is Verify.LATER:
            self._proof.ask()
        elif self._verify is Verify.FIRST:
            try:
                self._guard.verify()
            except RetryError as error:
                self.last_error = str(error)
                self.position = messages[0].offset
                self._assign(self.position)
                return []
        return messages

    def prove(self) -> None:
        """Wait until all messages handed out so far are known to have come from the proven topic.

        For any thread. Raises `GapError` where it is another one now, `RetryError` where that can't be told.
        """
        self._proof.settle()

    def seek(self, offset: int) -> None:
        """Go on from `offset` instead. Raises as the constructor does where the log doesn't hold it."""
        self._prove_offset(offset)
        self._assign(offset)
        self.position, self._lost_place, self._failure = offset, False, None
        self._whole_below = offset

    def verify_topic(self) -> None:
        """Ask now whether the topic is still the proven one (about a millisecond).

        Raises `GapError` where it is another one, or gone; `RetryError` where that can't be told now.
        """
        self._guard.verify()

    def start_offset(self) -> int:
        """The first offset that the log still holds. Raises `RetryError` where no broker answers."""
        return self._watermarks().start

    def end_offset(self) -> int:
        """Where the log ends for this reader: up to here, and without it, `poll` will come.

        Under `read_committed` that is the first offset of the oldest transaction that is still open.
        Raises `RetryError` where no broker answers.
        """
        return self._watermarks().end

    @property
    def known_end(self) -> int:
        """Where the log ended when the client last heard of it; costs no question. For any thread.

        Entries of transactions that are still open count.
        """
        # The client lets one thread in at a time: others would wait for a poll, and for the next one.
        if self._in_use.acquire(blocking=False):
            try:
                self._hear_of_the_end()
            finally:
                self._in_use.release()
        return max(self._known_end, self.position)

    def _hear_of_the_end(self) -> None:
        try:
            place = TopicPartition(self.topic, self.log.partition)
            found: tuple[int, int] | None = self._consumer.get_watermark_offsets(place, cached=True)
        except (RuntimeError, KafkaException):
            # The reader was closed, or has not been told of the partition yet.
            found = None
        # Before the first fetch the client says -1001.
        self._known_end = 0 if found is None else max(0, found[1])

    def close(self) -> None:
        """Leave the broker. Nothing is committed."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self, config: KafkaConfig) -> Consumer:
        fixed: dict[str, Option] = {
            "group.id": NO_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": self._isolation,
        }
        options = config.client(fixed=fixed, tuned=_TUNED)
        with client_set_up(config.bootstrap_servers):
            return Consumer({**options, "error_cb": self._on_error}, logger=LOGGER)

    def _assign(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self.topic, self.log.partition, offset)])

    def _prove_topic(self) -> None:
        found = describe(self._admin, self.topic)
        if (found.cluster_id, found.topic_id) != (self.log.cluster_id, self.log.topic_id):
            message = f"this is another log: cluster {found.cluster_id}, topic id {found.topic_id}"
            wanted = f"proven is cluster {self.log.cluster_id}, topic id {self.log.topic_id}"
            raise GapError(f"{message}; {wanted}", where=self.topic, hint=ANOTHER_LOG)
        found.log_id(self.log.partition)

    def _prove_offset(self, offset: int) -> None:
        start, end = self._watermarks(read_committed=False)
        if start <= offset <= end:
            return
        raise self._gap(offset, start, end)

    def _gap(self, offset: int, start: int, end: int) -> GapError:
        message = (
            f"offset {offset} is wanted, the log holds {start} up to {end}: entries are lost "
            f"(cluster {self.log.cluster_id}, topic id {self.log.topic_id})"
        )
        return GapError(message, where=str(Position(self.log, offset, self.topic)), hint=LOST_ENTRIES)

    def _watermarks(self, *, read_committed: bool | None = None) -> Watermarks:
        committed = self._isolation == "read_committed" if read_committed is None else read_committed
        return watermarks(self._admin, self.topic, self.log.partition, read_committed=committed)

    def _take(self, raw: RawMessage, messages: list[Message]) -> bool:
        """Take in what the client gave. Returns False if what it gave after that must not be taken in."""
        error = raw.error()
        offset = raw.offset()
        if offset is not None and offset != self.position and not self._may_go_to(offset, error):
            return False
        if error is None and offset is not None:
            messages.append(Message(raw, offset))
            self.position = offset + 1
            self._guard.answering = True
        elif error is not None:
            self._note(error, offset)
        return True

    def _may_go_to(self, offset: int, error: KafkaError | None) -> bool:
        """Whether nothing is missing between the position and `offset`, as far as that is looked for.

        `error`: what the client gave there; None if it is a message.

        If that can't be told now, reading begins again at the position; if something is missing, the next
        poll raises it.
        """
        is_place = error is None or error.code() == Local.PARTITION_EOF
        if self._on_hole is None or not is_place or offset <= max(self.position, self._whole_below):
            return True
        try:
            found = count_records(self._config, self.topic, self.log.partition, self.position, offset)
            if found.missing:
                self._on_hole(self._hole(found))
        except RetryError as unknown:
            self.last_error = str(unknown)
            self._guard.hurry()
            self._assign(self.position)
            return False
        except StopError as gap:
            self._failure = gap
            return False
        self._whole_below = found.end
        return True

    def _hole(self, found: Counted) -> GapError:
        message = (
            f"of the offsets {found.start} up to {found.end} {found.missing} hold neither a message nor the "
            f"marker of a transaction: entries were removed, as compaction does "
            f"(cluster {self.log.cluster_id}, topic id {self.log.topic_id})"
        )
        return GapError(message, where=str(Position(self.log, found.start, self.topic)), hint=LOST_ENTRIES)

    def _withheld(self, start: int, end: int) -> GapError:
        """The brokers refuse to read at an offset that lies between the log's ends."""
        message = (
            f"the log holds {start} up to {end}, but the brokers give nothing from {self.position} on: "
            "a segment of the log is damaged there, or the log lost its end and has grown again "
            f"(cluster {self.log.cluster_id}, topic id {self.log.topic_id})"
        )
        return GapError(message, where=str(Position(self.log, self.position, self.topic)), hint=WITHHELD)

    def _note(self, error: KafkaError, offset: int | None) -> None:
        """An event of the client: the end was reached, the place was lost, or something that may pass."""
        code = error.code()
        if code == Local.PARTITION_EOF:
            self.position = self.position if offset is None else max(offset, self.position)
        elif code in _LOST_PLACE:
            self._lost_place = True
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # This reader is in no group.
            return
        elif code == Local.BAD_COMPRESSION:
            self._failure = StopError(
                f"messages can't be unpacked: {error.str()}",
                where=str(Position(self.log, self.position, self.topic)),
                hint="raise the kafka option receive.message.max.bytes; with the topic's compression.type "
                "uncompressed the broker refuses such messages",
            )
        else:
            self.last_error = error.str()
            self._guard.hurry()
            where = str(Position(self.log, self.position, self.topic))
            known = error_of(error, "read the log", where, rights=on_topics("Read", self.topic))
            if not isinstance(known, RetryError) and code not in NOT_YET:
                self._failure = known

    def _raise_failure(self) -> None:
        if self._lost_place:
            # Even where the log reaches to the offset again: what stands there may be something else by now.
            try:
                self._prove_topic()
                start, end = self._watermarks(read_committed=False)
            except RetryError as unknown:
                # The client gives nothing more at a lost place, so the next poll asks again.
                self.last_error = str(unknown)
                self._guard.hurry()
                return
            if start <= self.position < end:
                raise self._withheld(start, end)
            raise self._gap(self.position, start, end)
        if self._failure is not None:
            raise self._failure

    def _on_error(self, error: KafkaError) -> None:
        """Called by the client, within `poll`, about errors that no message carries."""
        self.last_error = error.str()
        if error.code() == Local.ALL_BROKERS_DOWN:
            self._guard.answering = False
            self._guard.hurry()
