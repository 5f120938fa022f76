"""Reads a partition in order, from a known offset, and never skips an entry.

The start offset comes from verified records, not from Kafka's own memory of a group; if the log doesn't have
exactly that offset the reader stops. An unreachable broker is not an error: the reader keeps trying, reports
it, and continues at the same offset.
"""

from __future__ import annotations

import threading
import time
from enum import Enum
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

from confluent_kafka import Consumer, KafkaError, TopicPartition

from lakefold_log.client.admin import NO_GROUP, Admin, KafkaConfig, Option, client_set_up
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.error_codes import Local
from lakefold_log.client.failures import error_of
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.own_client import own_client
from lakefold_log.client.rights import on_topics
from lakefold_log.client.topic_identity import ANOTHER_LOG, CONNECT_AGAIN, DeferredTopicCheck, TopicGuard
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.known_end import KnownEnd
from lakefold_log.read.record_count import RecordCount, count_records
from lakefold_table.closing import Closing
from lakefold_table.errors import GapError, LakefoldError, NoThreadsError, RetryError, StopError
from lakefold_table.new_threads import start_thread
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import Message as RawMessage

    from lakefold_log.client.requests import Watermarks

Headers = tuple[tuple[str, bytes | None], ...]

# After its queue was full, librdkafka waits a second before the next fetch; the queue is small by design.
_TUNED: Final[dict[str, Option]] = {
    "queued.max.messages.kbytes": 16384,
    "fetch.queue.backoff.ms": 5,
    "check.crcs": True,
}
HURRIED: Final[Mapping[str, Option]] = {"fetch.wait.max.ms": 5}
"""For readers that seek, or read messages that all exist: the broker need not wait half a second for more."""
_BATCH = 1000
# After the last message a poll waits for its full time, even if only a marker was left to read.
_POLL_S = 0.02
# Messages may be damaged on their way as well, so they are fetched again before they count as damaged.
_ATTEMPTS: Final = 3
_MICROSECONDS = 1000
# The client's value for an epoch that is not known.
_NO_EPOCH = -1
# If a name is not UTF-8 the client (2.16) returns a list with a null element and leaves an error set. A
# method call that Python has specialized doesn't check for that, and reading the list again ends the process.
_headers_of = methodcaller("headers")
LOST_ENTRIES = (
    "restore them at their old offsets; `lakefold committer --accept-new-log` continues without them"
)
WITHHELD = (
    "the brokers' logs name a damaged segment: restore it from a copy or replica, and nothing is lost; "
    "if the log has grown again, `lakefold committer --accept-new-log` continues with what it holds now"
)
DAMAGED_ENTRIES = (
    "restore the segment from a copy or replica, and nothing is lost; "
    "`lakefold committer --accept-new-log` continues without the damaged entries"
)
SILENT_S: Final = 20.0
"""After so many seconds of polls without any event the reader asks whether the log has more."""
QUIET_S: Final = 2.0
"""A client without an event for so many seconds of polls may be one whose threads wait for each other."""
_END_S: Final = 10.0


class Verify(Enum):
    """When to verify that messages are from the expected topic, and not from a new one."""

    NEVER, FIRST, LATER = range(3)


class Message:
    """A message of the log. `time_us`: the topic's timestamp in microseconds since 1970."""

    __slots__ = ("_headers", "_raw", "key", "offset", "time_us", "value")

    def __init__(self, raw: RawMessage, offset: int) -> None:
        self._raw = raw
        self._headers: Headers | None = None
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
        """The message's headers in order, decoded at the first access; empty if a name is not UTF-8."""
        if self._headers is None:
            self._headers = _decoded(self._raw)
        return self._headers


def _decoded(raw: RawMessage) -> Headers:
    try:
        headers = _headers_of(raw)
    except (SystemError, UnicodeDecodeError):
        return ()
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def _end_of(admin: Admin, topic: str, partition: int) -> int:
    return watermarks(admin, topic, partition, read_committed=False).end


def _end(consumer: Consumer) -> None:
    """Closes a client; leaves it to a thread of its own if that doesn't end.

    Closing waits for librdkafka's threads, which may wait for each other (its issue 5476). The thread keeps
    the client, since freeing it would wait as well.
    """
    close = consumer.close
    thread = threading.Thread(target=close, name="lakefold-closing", daemon=True)
    try:
        start_thread(thread)
    except (NoThreadsError, RuntimeError):
        # Python starts no thread while it ends.
        close()
        return
    thread.join(_END_S)
    if thread.is_alive():
        LOGGER.warning("a client of the log doesn't end within %g s, so it is left", _END_S)


class PartitionReader(Closing):
    """Reads partition `log.partition` of `topic` from `start_offset` on; for one thread.

    `admin` is asked about the topic; it may serve others as well. `tuned`: options of the consumer, which the
    user's own override. `verify` is for readers that fold, whose messages must be verified to come from the
    expected topic. With `FIRST` none is returned before that; with `LATER` call `confirm_messages` before the
    messages have any effect.
    `on_gap` is called with offsets that contain neither a message nor the marker of a transaction, and with
    those of damaged messages, before any later message is returned; what it raises ends reading. Without it
    such gaps aren't searched for, and damaged messages are passed over.
    `last_read` is the offset of the last entry that is known to be in the log, and the epoch of the leader
    that took it: no entry follows it before `start_offset`, unless it is at or above that.
    Raises `GapError` if the topic is not that of `log`, or `start_offset` is not within its
    offsets, `RetryError` if no broker answers, `MissingTopicError` if the topic does not exist.
    """

    def __init__(  # noqa: PLR0913 - what is known of the log is passed in
        self,
        admin: Admin,
        topic: str,
        log: LogId,
        start_offset: int,
        *,
        tuned: Mapping[str, Option] | None = None,
        isolation: str = "read_committed",
        verify_every_s: float = 5.0,
        verify: Verify = Verify.NEVER,
        on_gap: Callable[[GapError], None] | None = None,
        last_read: tuple[int, int] | None = None,
    ) -> None:
        self.topic = topic
        self.log = log
        self.position = start_offset
        self.last_error = ""
        self._isolation = isolation
        self._admin = admin
        self._tuned = {**_TUNED, **(tuned or {})}
        # A reader that verifies nothing folds nothing either.
        self._another = CONNECT_AGAIN if verify is Verify.NEVER else ANOTHER_LOG
        self._guard = TopicGuard(self._admin, topic, log, every_s=verify_every_s, hint=self._another)
        self._events = 0
        # It must not reference the reader: see `_make`.
        self._known_end = KnownEnd(partial(_end_of, admin, topic, log.partition))
        self._silent_s = 0.0
        self._verify = verify
        self._on_gap = on_gap
        self._whole_below = start_offset
        self._deferred_check = DeferredTopicCheck(self._guard)
        self._offset_lost = False
        self._failure: LakefoldError | None = None
        self._last_read = last_read
        self._assigned = start_offset
        self._damaged_from = self._damaged_to = -1
        self._attempts = 0
        self._check_topic()
        self._check_offset(start_offset)
        self._consumer = self._make(admin.config)
        self._assign(start_offset)

    @property
    def connected(self) -> bool:
        """Whether a broker answers, as far as is known. While it is False the reader keeps trying."""
        return self._guard.answering

    def poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        """Returns the next messages in order, `max_messages` at most; waits `timeout_s` for the first only.

        Afterwards `position` is the offset to read next, after what is not a message (markers, aborted
        messages). Returns an empty list if the broker is unreachable. Raises `GapError` if the topic was
        created again or doesn't contain the next offset any more, `StopError` if messages can't be unpacked,
        `InvalidError` if reading is not allowed.
        """
        self._guard.step()
        self._raise_failure()
        begun, before = time.monotonic(), self._events
        messages = self._next(max_messages, timeout_s)
        self._silent_s = self._silent_s + time.monotonic() - begun if self._events == before else 0.0
        if self._silent_s >= SILENT_S:
            self._wake()
        return messages

    def up_to(self, end: int, timeout_s: float) -> Iterator[Message]:
        """Yields the messages from the position on to offset `end`, without it. Raises as `poll` does.

        Raises `RetryError` if the brokers send nothing for `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while self.position < end:
            before = self.position
            yield from (message for message in self.poll(_BATCH, _POLL_S) if message.offset < end)
            if self.position > before:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() >= deadline:
                text = f"no message came for {timeout_s:g} s {self.last_error}".rstrip()
                raise RetryError(text, where=f"{self.topic}/{self.log.partition}@{before}")

    def _wake(self) -> None:
        """Gets a new client if this one returns nothing although the log has more.

        Threads of librdkafka may wait for each other for ever after a broker has gone (its issue 5476).
        """
        self._silent_s = 0.0
        if not self._guard.answering:
            return
        try:
            end = self.end_offset()
        except RetryError as unknown:
            self.last_error = str(unknown)
            return
        if end > self.position:
            LOGGER.warning(
                "%s/%s: the client returned nothing for %g s although the log holds offsets %d up to %d: "
                "a new client reads on",
                *(self.topic, self.log.partition, SILENT_S, self.position, end),
            )
            self._renew(self.position)

    def _renew(self, offset: int) -> None:
        """Continues at `offset` with a new client."""
        old, self._consumer = self._consumer, self._make(self._admin.config)
        _end(old)
        self._assign(offset)

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
                return self._verified(messages)
            self._raise_failure()
            raw = self._consumer.poll(max(0.0, deadline - time.monotonic()))
        return messages

    def _verified(self, messages: list[Message]) -> list[Message]:
        """Returns the messages if their topic is the expected topic, and none if that must be checked again.

        The client continues without notice in a topic that was created again. A topic's id never comes back:
        if it is the expected id after these came, they came from that topic.
        """
        if self._verify is Verify.LATER:
            self._deferred_check.ask()
        elif self._verify is Verify.FIRST:
            try:
                self._guard.verify()
            except RetryError as error:
                self.last_error = str(error)
                self.position = messages[0].offset
                self._assign(self.position)
                return []
        return messages

    def confirm_messages(self) -> None:
        """Waits until all messages returned before this call are verified to be from the expected topic.

        For any thread. Raises `GapError` if it is another topic now, `RetryError` if that is not known.
        """
        self._deferred_check.settle()

    def seek(self, offset: int) -> None:
        """Continues at `offset`. Raises the errors of the constructor if the log doesn't contain it."""
        self._check_offset(offset)
        self._last_read = None
        if self._silent_s >= QUIET_S:
            # `assign` would wait for a client whose threads wait for each other, and hold the interpreter.
            self._renew(offset)
        else:
            self._assign(offset)
        self.position, self._offset_lost, self._failure = offset, False, None
        self._whole_below = offset

    def start_offset(self) -> int:
        """Returns the first offset that the log still has. Raises `RetryError` if no broker answers."""
        return self._watermarks().start

    def end_offset(self) -> int:
        """Returns the end of the log for this reader: `poll` returns the messages below it.

        Under `read_committed` that is the first offset of the oldest open transaction. Raises `RetryError` if
        no broker answers.
        """
        return self._watermarks().end

    @property
    def known_end(self) -> int:
        """The end of the log as the brokers said it last, at least the position. For any thread.

        Entries of open transactions count. See `KnownEnd.read` for how long this may wait.
        """
        return max(self._known_end.read(), self.position)

    def close(self) -> None:
        """Disconnects from the broker. Nothing is committed."""
        _end(self._consumer)

    def _make(self, config: KafkaConfig) -> Consumer:
        fixed: dict[str, Option] = {
            "group.id": NO_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": self._isolation,
        }
        options = config.client(fixed=fixed, tuned=self._tuned)
        note = WeakMethod(self._on_error)

        def on_error(error: KafkaError) -> None:
            if (noted := note()) is not None:
                noted(error)

        # The client must not reference the reader: the cycle would keep the reader, with the connections and
        # threads of its admin client, until the garbage collector runs, which a committer seldom has done.
        with client_set_up(config.bootstrap_servers):
            made = Consumer({**options, "error_cb": on_error}, logger=LOGGER)
        return own_client(made, "this reader of the log", config.bootstrap_servers)

    def _assign(self, offset: int) -> None:
        """Begins to read at `offset`, or before it, after the last entry that was read.

        With the epoch of that entry's leader the client notices if the log loses the entry, even if it has
        grown beyond the offset by then. Without an epoch the client would continue in the new entries. The
        epoch need not be that of the markers between the entry and the offset, so it begins before them.
        """
        self._assigned, epoch = offset, _NO_EPOCH
        if self._last_read is not None:
            last, epoch = self._last_read
            self._assigned = min(offset, last + 1)
        begin = TopicPartition(self.topic, self.log.partition, self._assigned, leader_epoch=epoch)
        self._consumer.assign([begin])

    def _check_topic(self) -> None:
        topic = describe(self._admin, self.topic)
        if (topic.cluster_id, topic.topic_id) != (self.log.cluster_id, self.log.topic_id):
            message = f"this is another log: cluster {topic.cluster_id}, topic id {topic.topic_id}"
            expected = f"expected is cluster {self.log.cluster_id}, topic id {self.log.topic_id}"
            raise GapError(f"{message}; {expected}", where=self.topic, hint=self._another)
        topic.log_id(self.log.partition)

    def _check_offset(self, offset: int) -> None:
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
        """Accepts what the client returned. Returns False if what it returned after that must be dropped."""
        self._events += 1
        error = raw.error()
        offset = raw.offset()
        if offset is not None and offset != self.position and not self._may_go_to(offset, error):
            return False
        if error is None and offset is not None:
            message = Message(raw, offset)
            messages.append(message)
            epoch = message.leader_epoch
            self._last_read = None if epoch is None else (offset, epoch)
            self.position = offset + 1
            self._guard.answering = True
        elif error is not None and meaning_of(error, Request.READ) is Meaning.DAMAGED:
            self._pass_damaged(error)
            return False
        elif error is not None and self._is_misread(error, offset):
            self._assign(self.position)
            return False
        elif error is not None:
            self._note(error, offset)
        return True

    def _is_misread(self, error: KafkaError, offset: int | None) -> bool:
        """Returns whether the client reports as lost an offset that it has misread after damaged messages.

        The client skips too few or too many bytes of them (2.16), and takes what follows for the next offset.
        """
        is_damaged = self.position in {self._damaged_from, self._damaged_to}
        is_lost = meaning_of(error, Request.READ) is Meaning.LOST
        return is_damaged and is_lost and offset not in {None, self.position}

    def _pass_damaged(self, error: KafkaError) -> None:
        """Fetches messages again that the client could not read, and skips them if that doesn't help.

        The client itself would continue after them, as if they were not in the log. How many they are is
        not known, as their batch can't be read: so they are passed over one by one, `on_gap` is called once.
        """
        self.last_error = error.str()
        self._attempts = self._attempts + 1 if self.position == self._damaged_from else 1
        self._damaged_from = self.position
        if self._attempts < _ATTEMPTS:
            self._assign(self.position)
            return
        if self._on_gap is None:
            LOGGER.warning("%s/%s: passed over: %s", self.topic, self.log.partition, self.last_error)
        elif self.position != self._damaged_to:
            try:
                self._on_gap(self._damage(error))
            except StopError as gap:
                self._failure = gap
                return
        self.position = self._damaged_to = self.position + 1
        self._last_read = None
        self._assign(self.position)

    def _damage(self, error: KafkaError) -> GapError:
        message = (
            f"messages are damaged in the brokers' files: {error.str()} "
            f"(cluster {self.log.cluster_id}, topic id {self.log.topic_id})"
        )
        where = str(Position(self.log, self.position, self.topic))
        return GapError(message, where=where, hint=DAMAGED_ENTRIES)

    def _may_go_to(self, offset: int, error: KafkaError | None) -> bool:
        """Returns whether nothing is missing between the position and `offset`, if gaps are searched for.

        `error` is what the client returned at `offset`; None if it is a message. If the answer is not known
        now, reading begins again at the position; if something is missing, the next poll raises that.
        """
        is_position = error is None or error.code() == Local.PARTITION_EOF
        if self._on_gap is None or not is_position or offset <= max(self.position, self._whole_below):
            return True
        try:
            counted = count_records(self._admin.config, self.topic, self.log.partition, self.position, offset)
            if counted.missing:
                self._on_gap(self._missing_records(counted))
        except RetryError as unknown:
            self.last_error = str(unknown)
            self._guard.check_soon()
            self._assign(self.position)
            return False
        except StopError as gap:
            self._failure = gap
            return False
        self._whole_below = counted.end
        return True

    def _missing_records(self, counted: RecordCount) -> GapError:
        message = (
            f"of the offsets {counted.start} up to {counted.end} {counted.missing} hold neither a message "
            f"nor the marker of a transaction: entries were removed, for example by compaction "
            f"(cluster {self.log.cluster_id}, topic id {self.log.topic_id})"
        )
        return GapError(message, where=str(Position(self.log, counted.start, self.topic)), hint=LOST_ENTRIES)

    def _withheld(self, start: int, end: int) -> GapError:
        """Returns the error if the brokers refuse to read at an offset between the log's start and end."""
        message = (
            f"the log holds {start} up to {end}, but the brokers return nothing from {self.position} on: "
            "a segment of the log is damaged there, or the log lost its end and has grown again "
            f"(cluster {self.log.cluster_id}, topic id {self.log.topic_id})"
        )
        return GapError(message, where=str(Position(self.log, self.position, self.topic)), hint=WITHHELD)

    def _note(self, error: KafkaError, offset: int | None) -> None:
        """Handles an event of the client: the end was reached, the offset was lost, or a passing error."""
        meaning = meaning_of(error, Request.READ)
        if error.code() == Local.PARTITION_EOF:
            self.position = self.position if offset is None else max(offset, self.position)
        elif meaning is Meaning.DONE:
            return
        elif meaning is Meaning.LOST:
            self._offset_lost = True
        elif meaning is Meaning.COMPRESSION:
            self._failure = StopError(
                f"messages can't be unpacked: {error.str()}",
                where=str(Position(self.log, self.position, self.topic)),
                hint="raise the kafka option receive.message.max.bytes; with the topic's compression.type "
                "uncompressed the broker refuses such messages",
            )
        else:
            self.last_error = error.str()
            self._guard.check_soon()
            where = str(Position(self.log, self.position, self.topic))
            rights = on_topics("Read", self.topic)
            fault = error_of(error, Request.READ, "read the log", where, rights=rights)
            if not isinstance(fault, RetryError):
                self._failure = fault

    def _raise_failure(self) -> None:
        if self._offset_lost:
            # Even if the log has the offset again: its entry may be another entry now.
            try:
                self._check_topic()
                start, end = self._watermarks(read_committed=False)
            except RetryError as unknown:
                # The client returns nothing more at a lost offset, so the next poll checks again.
                self.last_error = str(unknown)
                self._guard.check_soon()
                return
            if self._assigned < start <= self.position:
                # Retention has removed markers that were read already, and no entry.
                self._last_read, self._offset_lost = None, False
                self._assign(self.position)
                return
            if start <= self.position <= end:
                raise self._withheld(start, end)
            raise self._gap(self.position, start, end)
        if self._failure is not None:
            raise self._failure

    def _on_error(self, error: KafkaError) -> None:
        """Handles errors that no message contains. The client calls it within `poll`."""
        self.last_error = error.str()
        if error.code() == Local.ALL_BROKERS_DOWN:
            self._guard.answering = False
            self._guard.check_soon()
