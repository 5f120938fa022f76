"""Dead letters and their headers: the committer's own count, whatever a writer sends beside its proposal."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from lakefold_log.read.consumer import Message
from lakefold_log.read.dead_letters import RefusedMessage, dead_letter_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

    from lakefold_log.read.consumer import Headers

LOG = LogId("c", "t", 0)
TABLE = b"file:///lake/t"
ENVELOPE = Envelope(table=TABLE.decode(), app_id="a", batch_id=1)
ENVELOPE.lance.append.SetInParent()


class Raw:
    """A message as the client library hands it over."""

    def __init__(self, key: bytes | None, value: bytes, headers: Headers) -> None:
        self._key, self._value, self._headers = key, value, headers

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return self._value

    def headers(self) -> Headers:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def leader_epoch(self) -> int:
        return 0


def read_back(key: bytes | None, value: bytes, headers: Headers) -> Message:
    return Message(cast("KafkaMessage", Raw(key, value, headers)), 3)


@pytest.mark.parametrize("number", [b"7", b"9" * 5_000])
def test_a_writer_says_nothing_in_the_committers_name(number: bytes) -> None:
    sent = (("lakefold.left-out", number), ("traceparent", b"00-1"))
    letter = RefusedMessage(Position(LOG, 5), TABLE, ENVELOPE.SerializeToString(), "refused", headers=sent)
    read = dead_letter_of(read_back(*letter.fitting(900_000)), Position(LOG, 3))
    assert (read.left_out, read.obstacle, read.reason) == (0, "", "refused")
    assert read.position == Position(LOG, 5)
    assert read.headers == (("traceparent", b"00-1"),)


@pytest.mark.parametrize("version", [0, 17])
def test_a_letter_names_the_version_that_it_conflicts_with(version: int) -> None:
    sent = (("lakefold.conflicts-with", b"3"),)
    message = RefusedMessage(
        Position(LOG, 5), TABLE, ENVELOPE.SerializeToString(), "refused", headers=sent, conflicts_with=version
    )
    read = dead_letter_of(read_back(*message.fitting(900_000)), Position(LOG, 3))
    assert read.conflicts_with == version


def test_a_letter_that_no_committer_wrote_may_hold_any_numbers() -> None:
    endless = b"9" * 5_000
    names = ("lakefold.left-out", "lakefold.partition", "lakefold.offset")
    headers = tuple((name, endless) for name in names)
    read = dead_letter_of(read_back(TABLE, ENVELOPE.SerializeToString(), headers), Position(LOG, 3))
    assert (read.left_out, read.position) == (0, Position(LOG, 3))


def test_what_is_too_large_is_left_out_with_its_size() -> None:
    letter = RefusedMessage(Position(LOG, 5), b"k", b"x" * 5_000, "refused")
    key, value, headers = letter.fitting(2_000)
    assert (key, value) == (b"k", b"")
    assert dead_letter_of(read_back(key, value, headers), Position(LOG, 3)).left_out == 5_000
