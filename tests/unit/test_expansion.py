"""Messages made to take far more memory than bytes are refused before they are decoded; others are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from lakefold_committer.claims.claim_check import CLAIM_BYTES
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.expansion import UNSEEN, check_expansion, content_of, most_parts
from lakefold_table.lance.manifests.memory_cost import memory_to_fold
from tests.folding import add_fragment

ROOT = Path(__file__).parents[2]
SIZE = 10_000_000
CHILD = """
# Decodes the bytes of its standard input, as what its argument says, and prints what that took.
import json, sys, time
from lakefold_log.codec.envelope import decode
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.position import LogId, Position
from lakefold_table.errors import DamagedError
from tests.properties.hostile import forget_peak, peak
from lakefold_table.lance.manifests.codec import FOOTER, LENGTH, MAGIC, MAJOR, MINOR, decode_file

name = sys.argv[1]
data = sys.stdin.buffer.read()

def file(head, before=b""):
    body = b"0000" + before
    message = head.SerializeToString()
    return body + LENGTH.pack(len(message)) + message + FOOTER.pack(len(body), MAJOR, MINOR, MAGIC)


section = LENGTH.pack(len(data)) + data
if name in {"files", "fields", "bases"}:
    head = Manifest(version=1)
    body = head.SerializeToString() + data
    whole = b"0000" + LENGTH.pack(len(body)) + body + FOOTER.pack(4, MAJOR, MINOR, MAGIC)
elif name == "transaction":
    whole = file(Manifest(version=1, transaction_section=4), section)
elif name == "indices":
    whole = file(Manifest(version=1, index_section=4), section)
else:
    whole = data
del section
before, started = forget_peak(), time.process_time()
try:
    if name == "envelope":
        kind = type(decode(whole, b"", Position(LogId("c", "t", 0), 0), 0)).__name__
    else:
        decode_file(whole, "here")
        kind = "decoded"
except DamagedError as error:
    kind = "DamagedError"
print(json.dumps({"kind": kind, "took": peak() - before, "seconds": time.process_time() - started}))
"""


def delimited(number: int, body: bytes) -> bytes:
    """A field that holds these bytes."""
    size, length = len(body), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + body


def empties(number: int) -> bytes:
    """Millions of empty messages in a field."""
    return bytes([number << 3 | 2, 0]) * (SIZE // 2)


MESSAGES = {
    "files": delimited(2, empties(2)),
    "fields": empties(1),
    "bases": b"\x92\x01\x00" * (SIZE // 3),
    "transaction": b"\xa2\x06" + delimited(1, empties(1))[1:],
    "indices": empties(1),
    "envelope": delimited(10, b"\xa2\x06" + delimited(1, empties(1))[1:]),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_many_empty_parts_are_refused_before_they_are_decoded(name: str) -> None:
    data = MESSAGES[name]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name], input=data, capture_output=True, cwd=ROOT, check=True
    )
    document = json.loads(done.stdout)
    assert document["kind"] in {"DamagedError", "Undecodable"}
    assert document["took"] <= 2 * len(data) + (64 << 20)
    assert document["seconds"] < 10


def test_what_a_client_writes_is_never_refused() -> None:
    transaction = Transaction()
    for number in range(30_000):
        add_fragment(transaction.append.fragments.add(), f"{number:050}")
    data = transaction.SerializeToString()
    assert len(data) > UNSEEN
    check_expansion(data, Transaction)
    manifest = Manifest(fragments=transaction.append.fragments).SerializeToString()
    check_expansion(manifest, Manifest)


def test_a_million_fragments_of_one_file_are_not_too_many() -> None:
    transaction = Transaction()
    for number in range(1000):
        add_fragment(transaction.append.fragments.add(), f"{number:050}")
    assert most_parts(1000 * transaction.ByteSize()) > 2 * 1_000_000


def test_a_batch_with_a_million_new_keys_is_folded() -> None:
    envelope = Envelope()
    hashes = (number * 0x9E3779B97F4A7C15 % 2**64 for number in range(1_000_000))
    envelope.lance.update.inserted_rows.exact.key_hashes.extend(hashes)
    envelope.reads.keys.CopyFrom(envelope.lance.update.inserted_rows)
    content = content_of(envelope.SerializeToString(), Envelope)
    assert content.values["lance.table.KeyExistenceFilter.ExactKeySet"] == 2_000_000
    assert memory_to_fold(content) < CLAIM_BYTES


def test_small_messages_are_not_counted() -> None:
    check_expansion(empties(1)[:UNSEEN], Manifest)


def test_what_is_cut_off_is_no_message() -> None:
    with pytest.raises(DecodeError):
        check_expansion(delimited(2, bytes(SIZE))[:-1], Manifest)
