"""Damaged bytes end in an error that says so: never in another exception, a hang, or memory without bound.

And the fold has an answer to any message of the log.
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.fold import FoldedTable, FoldInputs, fold, of_format
from lakefold_protos.lakefold.log_pb2 import DeltaProposal, Envelope
from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.format import Fetched
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.manifests.codec import decode_file, decode_head, head_transaction
from lakefold_table.marks.marks import MARK, decode_marks
from lakefold_table.marks.record import RECORD, decode_record
from tests.encoding import encode_file, fragments_of
from tests.folding import FORMAT, URI, MemoryTable, append, changed, created, creation, entries, reserve

if TYPE_CHECKING:
    from lakefold_table.lance.state import LanceState

FEW = settings(max_examples=150, deadline=None)
MEMORY = 64 * 1024 * 1024


def grown() -> MemoryTable:
    """A table with all that a manifest of ours may hold."""
    table = created(stable_row_ids=True)
    bad = changed(append("bad"), lambda e: setattr(e.lance, "read_version", 99))
    table.fold(append("f", fragments=3), append("g", app="a", batch=1), bad)
    table.fold(reserve(5))
    table.fold(append("h", app="a", batch=3), append("i"), bad)
    return table


def with_index_and_deletions(state: LanceState) -> bytes:
    fragments = list(state.fragments)
    fragments[0].deletion_file.num_deleted_rows = 1
    section = IndexSection()
    section.indices.add(name="a_idx", fields=[0], fragment_bitmap=b"\x3a\x30\0\0")
    listed = fragments_of([fragment.SerializeToString() for fragment in fragments])
    assert state.transaction is not None
    return b"".join(encode_file(state.head, listed, section.SerializeToString(), state.transaction))


TABLE = grown()
PATH = TABLE.state.scheme.path(TABLE.state.version)
FILE = with_index_and_deletions(TABLE.state)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with some of them flipped, cut out, doubled or replaced."""
    spoilt = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, max(0, len(spoilt) - 1)))
        match draw(st.sampled_from(["flip", "cut", "insert", "repeat", "end"])):
            case "flip" if spoilt:
                spoilt[index] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del spoilt[index : index + draw(st.integers(1, 40))]
            case "insert":
                spoilt[index:index] = draw(st.binary(min_size=1, max_size=12))
            case "repeat":
                spoilt[index:index] = spoilt[index : index + draw(st.integers(1, 200))]
            case _:
                del spoilt[index:]
    return bytes(spoilt)


def check_file(data: bytes) -> None:
    """Read in every way, and continued if that is possible."""
    head_transaction(data)
    tracemalloc.start()
    try:
        for read in (FORMAT.summarize, FORMAT.decode):
            with suppress(DamagedError, InvalidError):
                read(PATH, data, "memory://t")
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@FEW
@given(damaged(FILE))
def test_a_damaged_manifest_file(data: bytes) -> None:
    check_file(data)


@FEW
@given(st.binary(max_size=300))
def test_any_bytes_as_a_manifest_file(data: bytes) -> None:
    check_file(data)
    check_file(data + FILE[-16:])


def test_every_cut_of_a_manifest_file_is_damage() -> None:
    for length in range(len(FILE)):
        with pytest.raises(DamagedError):
            FORMAT.decode(PATH, FILE[:length])


def test_every_flipped_bit_is_damage_or_another_table_that_can_be_written_on() -> None:
    """A flip that still decodes must not end the committer that folds on it."""
    for number in range(0, len(FILE), 3):
        spoilt = bytearray(FILE)
        spoilt[number] ^= 1 << (number % 8)
        try:
            state = FORMAT.decode(PATH, bytes(spoilt))
            FORMAT.check_writable(state)
        except (DamagedError, InvalidError):
            continue
        table = FoldedTable("memory://t", state, TABLE.table.marks)
        folded = fold(
            FORMAT, table, entries([append("new")], 100), Fetched(), FoldInputs(1, must_publish=True)
        )
        assert len(folded.outcomes) == 1


@FEW
@given(damaged(TABLE.state.properties[RECORD].encode()))
def test_a_damaged_record(text: bytes) -> None:
    properties = dict(TABLE.state.properties) | {RECORD: text.decode(errors="replace")}
    with suppress(DamagedError):
        decode_record(properties)


@FEW
@given(damaged(TABLE.state.metadata[MARK].encode()))
@example(b'{"version":1e400}')
def test_damaged_marks(text: bytes) -> None:
    metadata = dict(TABLE.state.metadata) | {MARK: text.decode(errors="replace")}
    with suppress(DamagedError):
        decode_marks(metadata)


PROPOSALS = [
    append("new", fragments=2),
    append("new", app="a", batch=9),
    creation(uuid="new", stable_row_ids=True),
    reserve(3),
    changed(append("new"), lambda e: setattr(e.lance.append.fragments[0], "id", 20)),
]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(PROPOSALS).flatmap(lambda envelope: damaged(envelope.SerializeToString())), st.booleans()
)
@example(Envelope(table=URI, delta=DeltaProposal(actions=b"{")).SerializeToString(), True)  # noqa: FBT003 - as drawn
@example(Envelope(table=URI, delta=DeltaProposal(actions=b"{")).SerializeToString(), False)  # noqa: FBT003 - as drawn
def test_whatever_is_sent_is_answered(data: bytes, exists: bool) -> None:  # noqa: FBT001 - drawn
    try:
        envelope = Envelope.FromString(data)
    except DecodeError:
        return
    table = TABLE.table if exists else MemoryTable().table
    group = entries([envelope], 100)
    BUILT_IN.grouping_rule(TABLE.state if exists else None)(group[0])
    needs = FORMAT.requirements(TABLE.state if exists else None, of_format(FORMAT, group))
    fetched = Fetched(schemas=dict.fromkeys(needs.schemas, TABLE.state.schema))
    folded = fold(FORMAT, table, group, fetched, FoldInputs(1, must_publish=True))
    (outcome,) = folded.outcomes
    if folded.publication is None:
        assert not isinstance(outcome.result, Committed)
        return
    made = b"".join(folded.publication.buffers)
    state = FORMAT.decode(folded.publication.path, made)
    head, transaction = decode_head(made)
    assert state.head == folded.table.state.head  # type: ignore[union-attr]
    assert (head.version, transaction) == (state.version, decode_file(made).transaction)
    assert list(state.fragments) == list(folded.table.state.fragments)  # type: ignore[union-attr]
    assert decode_record(state.properties) is not None
