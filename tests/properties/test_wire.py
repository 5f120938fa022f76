"""A message walked through in place: it parts as protobuf would part it, or is refused as there."""

from __future__ import annotations

from itertools import pairwise

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefold_protos.lance.views_pb2 import FragmentsView
from lakefold_table.wire import runs

NUMBER = FragmentsView.FRAGMENTS_FIELD_NUMBER
LONGEST = 300


def varint(number: int, spare: int = 0) -> bytes:
    """A number as protobuf writes it; `spare` bytes longer than it need be."""
    out = []
    while number > 0x7F or spare:
        spare -= number <= 0x7F
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@st.composite
def fields(draw: st.DrawFn, depth: int = 2) -> bytes:
    number = draw(st.sampled_from([1, NUMBER, NUMBER, NUMBER, 3, 15, 16, 2_000]))
    kind = draw(st.sampled_from([0, 1, 2, 2, 2, 2, 3, 5] if depth else [0, 1, 2, 5]))
    tag = varint(number << 3 | kind, draw(st.sampled_from([0, 0, 0, 1])))
    if kind == 0:
        return tag + varint(draw(st.integers(0, 2**64 - 1)))
    if kind == 3:
        inner = b"".join(draw(st.lists(fields(depth=depth - 1), max_size=3)))
        return tag + inner + varint(number << 3 | 4)
    if kind == 2:
        value = b"z" * draw(st.sampled_from([0, 1, 100, 127, 128, 290, 301, 16_383, 16_384, 20_000]))
        return tag + varint(len(value), draw(st.sampled_from([0, 0, 0, 1]))) + value
    return tag + bytes(8 if kind == 1 else 4)


messages = st.lists(fields(), max_size=12).map(b"".join)


def parted(data: bytes, span: range | None = None) -> tuple[list[bytes], bytes]:
    """The wanted fields' values and all other fields, after checking that the runs tile the message."""
    values = list(runs(data, NUMBER, LONGEST, span))
    at = range(len(data)) if span is None else span
    ends = [at.start, *(run.end for run in values)]
    assert [run.start for run in values] == ends[:-1]
    assert ends[-1] == at.stop
    for run in values:
        count = len(FragmentsView.FromString(data[run.start : run.end]).fragments)
        assert (count > 0) is run.wanted
        assert run.end - run.start <= LONGEST or not run.wanted or count == 1
    wanted = b"".join(data[run.start : run.end] for run in values if run.wanted)
    rest = b"".join(data[run.start : run.end] for run in values if not run.wanted)
    return list(FragmentsView.FromString(wanted).fragments), rest


@given(messages)
@settings(deadline=None)
def test_a_message_parts_as_protobuf_parts_it(data: bytes) -> None:
    values, rest = parted(data)
    view = FragmentsView.FromString(data)
    assert values == list(view.fragments)
    view.ClearField("fragments")
    assert FragmentsView.FromString(rest).SerializeToString() == view.SerializeToString()


@given(messages, messages, messages)
@settings(deadline=None)
def test_a_message_inside_other_bytes_is_parted_alone(before: bytes, data: bytes, after: bytes) -> None:
    span = range(len(before), len(before) + len(data))
    assert parted(before + data + after, span) == parted(data)


@given(messages, st.data())
@settings(max_examples=300, deadline=None)
@example(b"\x13\x0b\x14", None)
def test_broken_bytes_are_refused_if_protobuf_refuses_them(
    message: bytes, data: st.DataObject | None
) -> None:
    """Nothing is taken that protobuf takes otherwise, and nothing is refused that it takes."""
    broken = bytearray(message)
    if data is not None and broken:
        broken = broken[: data.draw(st.integers(1, len(broken)))]
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        view = FragmentsView.FromString(bytes(broken))
    except DecodeError:
        with pytest.raises(DecodeError):
            parted(bytes(broken))
    else:
        assert parted(bytes(broken))[0] == list(view.fragments)


@pytest.mark.parametrize(
    "data",
    [
        b"\x12",
        b"\x12\x05abc",
        b"\x12\x85",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x12" + b"\x80" * 11,
        b"\x02\x00",
        b"\x14",
        b"\x0b\x12\x00",
        b"\x0b\x1c",
        b"\x09abc",
        b"\x0e\x00",
        b"\xff" * 10 + b"\x01",
    ],
    ids=bytes.hex,
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        list(runs(data, NUMBER, LONGEST))


def test_deep_groups_are_walked_without_recursion() -> None:
    deep = b"\x0b" * 100_000 + b"\x0c" * 100_000
    assert [run.wanted for run in runs(deep, NUMBER, LONGEST)] == [False]


def test_short_runs_end_only_if_the_next_field_would_make_them_long() -> None:
    data = (b"\x12\x64" + b"z" * 100) * 10
    values = list(runs(data, NUMBER, LONGEST))
    assert [run.end - run.start for run in values] == [204] * 5
    assert all(run.end == other.start for run, other in pairwise(values))
