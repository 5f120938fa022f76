"""Whatever bytes stand in a log, reading them gives values or one clean refusal, never half a log."""

from __future__ import annotations

import contextlib

from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from lakefold_log.codec.envelope import UnknownKind, decode, encode, json_form
from lakefold_log.read.file_log import FileLog, framed
from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import Entry, Undecodable
from lakefold_table.errors import InvalidError
from lakefold_table.position import LogId, Position

HERE = Position(LogId("cluster", "topic-id", 0), 1)
TABLES = st.sampled_from(["", "s3://lake/flights", "s3://lake/flights/", "file:///lake/é", "x"])


@st.composite
def envelopes(draw: st.DrawFn) -> log_pb2.Envelope:
    envelope = log_pb2.Envelope(table=draw(TABLES), app_id=draw(st.text(max_size=5)))
    if draw(st.booleans()):
        envelope.batch_id = draw(st.integers(0, 2**64 - 1))
    for fragment, rows in draw(st.dictionaries(st.integers(0, 2**64 - 1), st.binary(max_size=5))).items():
        envelope.affected_rows[fragment] = rows
    match draw(st.integers(0, 3)):
        case 1:
            envelope.lance.append.fragments.add(id=draw(st.integers(0, 2**64 - 1)))
        case 2:
            envelope.claim.sha256 = draw(st.binary(max_size=32))
        case 3:
            envelope.lance.delete.predicate = draw(st.text())
    return envelope


@given(st.binary(max_size=60), st.none() | st.binary(max_size=20))
def test_any_bytes_decode_to_a_value(data: bytes, key: bytes | None) -> None:
    decoded = decode(data, key, HERE, 7)
    assert isinstance(decoded, Entry | Undecodable | UnknownKind)
    assert (decoded.position, decoded.time_us, decoded.size) == (HERE, 7, len(data))


@given(envelopes(), st.data())
def test_one_flipped_bit_decodes_to_a_value(envelope: log_pb2.Envelope, data: st.DataObject) -> None:
    whole = bytearray(encode(envelope))
    if whole:
        index = data.draw(st.integers(0, len(whole) * 8 - 1))
        whole[index // 8] ^= 1 << index % 8
    assert isinstance(
        decode(bytes(whole), envelope.table.encode(), HERE, 7), Entry | Undecodable | UnknownKind
    )


@given(envelopes())
def test_an_envelope_comes_back_from_its_bytes_and_its_json(envelope: log_pb2.Envelope) -> None:
    assert log_pb2.Envelope.FromString(encode(envelope)) == envelope
    assert ParseDict(json_form(envelope), log_pb2.Envelope()) == envelope


@given(st.lists(envelopes(), max_size=5), st.data())
def test_one_flipped_bit_in_a_file_is_refused_or_keeps_the_length(
    written: list[log_pb2.Envelope], data: st.DataObject
) -> None:
    whole = bytearray(framed(written))
    if whole:
        index = data.draw(st.integers(0, len(whole) * 8 - 1))
        whole[index // 8] ^= 1 << index % 8
    with contextlib.suppress(InvalidError):
        log = FileLog(bytes(whole))
        decoded = list(log)
        assert [message.position for message in decoded] == [
            Position(log.log, offset) for offset in range(len(log))
        ]
        assert sum(message.size + _length_bytes(message.size) for message in decoded) <= len(whole)


@given(st.binary(max_size=40))
def test_any_file_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidError):
        assert sum(decoded.size for decoded in FileLog(data)) <= len(data)


def _length_bytes(size: int) -> int:
    return max(1, -(-size.bit_length() // 7))
