"""A file of envelopes is a log: whole or not at all."""

from __future__ import annotations

import io
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from lakefold_log.codec.envelope import encode
from lakefold_log.read.file_log import FileLog, framed, read_file_log
from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import Entry, Undecodable
from lakefold_table.errors import InvalidError
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "s3://lake/flights"


def proposal(batch: int, *, seconds: int = 0, nanos: int = 0) -> log_pb2.Envelope:
    envelope = log_pb2.Envelope(table=TABLE, app_id="app", batch_id=batch)
    envelope.lance.append.fragments.add(physical_rows=batch)
    envelope.proposed_at.seconds, envelope.proposed_at.nanos = seconds, nanos
    return envelope


def test_gives_the_entries_in_order_with_their_positions_and_times() -> None:
    envelopes = [proposal(batch, seconds=batch, nanos=1999) for batch in range(300)]
    log = FileLog(framed(envelopes))
    assert len(log) == 300
    assert list(log) == [
        Entry(
            Position(log.log, batch),
            batch * 1_000_000 + 1,
            envelope,
            len(encode(envelope)),
            BUILT_IN.proposal(envelope),
        )
        for batch, envelope in enumerate(envelopes)
    ]


def test_is_known_by_its_content() -> None:
    data = framed([proposal(1)])
    log = FileLog(data).log
    assert log == FileLog(data).log != FileLog(framed([proposal(2)])).log
    assert (log.cluster_id, log.partition, log.is_file) == (LogId.FILE_CLUSTER, 0, True)
    assert uuid.UUID(log.topic_id).version == 8
    # Written down: a file that was folded once must be known again by every later release.
    assert FileLog(b"").log.topic_id == "e3b0c442-98fc-8c14-9afb-f4c8996fb924"


def test_takes_a_given_id_and_refuses_what_is_none() -> None:
    given = "0D5E0B0F-8A58-4B6B-9F6E-0B8B3F0B1C11"
    assert FileLog(b"", given).log.topic_id == given.lower()
    with pytest.raises(InvalidError, match="not a UUID"):
        FileLog(b"", "mine")


def test_an_empty_file_is_an_empty_log() -> None:
    assert list(FileLog(b"")) == []


def test_what_is_no_entry_keeps_its_place() -> None:
    data = framed([proposal(0)]) + b"\x03\xff\xff\xff" + b"\x00" + framed([proposal(3)])
    kinds = [type(decoded) for decoded in FileLog(data)]
    assert kinds == [Entry, Undecodable, Undecodable, Entry]
    assert [decoded.position.offset for decoded in FileLog(data)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("seconds", "nanos"), [(-1, 0), (2**62, 0), (0, -1), (0, 10**9)])
def test_a_time_out_of_range_is_no_entry(seconds: int, nanos: int) -> None:
    (decoded,) = FileLog(framed([proposal(0, seconds=seconds, nanos=nanos)]))
    assert isinstance(decoded, Undecodable)
    assert "proposed_at" in decoded.message


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\x80", "a length that is cut off"),
        (b"\xff" * 9, "a length that is cut off"),
        (b"\xff" * 10 + b"\x01", "a length of more than ten bytes"),
        (b"\x05abcd", "a length of 5 bytes, but 4 are left"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length of 18446744073709551615 bytes, the limit"),
    ],
)
def test_broken_framing_is_refused_before_anything_is_returned(tail: bytes, reason: str) -> None:
    good = framed([proposal(0)])
    with pytest.raises(InvalidError, match=f"envelope 1 at byte {len(good)} has {reason}") as caught:
        FileLog(good + tail, where="some.bin")
    assert caught.value.where == "some.bin"


def test_every_cut_is_noticed_or_leaves_whole_envelopes() -> None:
    ends = [len(framed([proposal(batch) for batch in range(count)])) for count in range(4)]
    data = framed([proposal(batch) for batch in range(3)])
    for cut in range(len(data) + 1):
        if cut in ends:
            assert len(FileLog(data[:cut])) == ends.index(cut)
        else:
            with pytest.raises(InvalidError):
                FileLog(data[:cut])


def test_an_envelope_above_the_limit_is_refused() -> None:
    data = framed([proposal(0)])
    with pytest.raises(InvalidError, match="the limit is 5"):
        FileLog(data, max_envelope_bytes=5)


def test_reads_a_file_and_standard_input_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = framed([proposal(0), proposal(1)])
    path = tmp_path / "some.bin"
    path.write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert list(read_file_log(path)) == list(read_file_log("-")) == list(FileLog(data))


def test_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="No such file") as caught:
        read_file_log(tmp_path / "none.bin")
    assert caught.value.where.endswith("none.bin")
