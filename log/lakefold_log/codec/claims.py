"""Envelopes too large for a message: they lie beside the table, and the message carries a claim to them.

A broker takes a message of about a megabyte; a transaction of a million fragments has a hundred. So the
envelope is written durably first, under the hash of its bytes, and then a small message goes to the log with
the same table, key and branch. Whoever reads it needs no trust in it: where the envelope lies follows from
its hash and the table alone, and its bytes are held against both.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from lakefold_protos.lakefold.log_pb2 import Claim, Envelope
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage

FOLDER: Final = "_lakefold/claims"
"""Where claimed envelopes lie, below the root of a table's main line."""
MAX_ENVELOPE_BYTES: Final = 256 << 20
"""The largest envelope that is read, wherever it lies."""
SHA256_BYTES: Final = 32


def path_of(claim: Claim) -> str:
    """Where the claimed envelope lies, relative to the table's root. Follows from its hash alone."""
    return f"{FOLDER}/{claim.sha256.hex()}"


def claim_fault(envelope: Envelope) -> tuple[str, str] | None:
    """Why this envelope's claim can't be followed, and what to do; None where it can. Reads nothing."""
    claim = envelope.claim
    if len(claim.sha256) != SHA256_BYTES:
        return f"the claim's hash has {len(claim.sha256)} bytes", f"give the {SHA256_BYTES} of a SHA-256"
    uri = _uri(envelope.table, path_of(claim))
    if claim.uri != uri:
        return "the claim names another place than its hash", f"write the envelope to {uri} and name that"
    if claim.size > MAX_ENVELOPE_BYTES:
        return (
            f"the claim is for {claim.size} bytes, the limit is {MAX_ENVELOPE_BYTES}",
            "propose less at once",
        )
    if envelope.affected_rows or envelope.HasField("create") or envelope.HasField("fragment_reuse_index"):
        return "a part of the proposal stands beside its claim", "put all of it into the claimed envelope"
    return None


def put_claim(storage: Storage, envelope: Envelope, data: bytes, sent_ns: int) -> Envelope:
    """Write the envelope, durably, and return the small one that goes to the log in its place.

    `storage` is that of the table's main line, `data` the envelope's bytes, `sent_ns` the time of now in
    nanoseconds since 1970: each sending has a file of its own, so that what is removed once one was answered
    is never what another one waits for. Raises `InvalidError` where the envelope is larger than any reader
    takes, and as `Storage.put` does.
    """
    stamp = Envelope()
    stamp.proposed_at.FromNanoseconds(sent_ns)
    # Protobuf reads what comes last: so the bytes of a hundred megabytes need not be made a second time.
    buffers = (data, stamp.SerializeToString())
    size = sum(map(len, buffers))
    if size > MAX_ENVELOPE_BYTES:
        message = f"the envelope is {len(data)} bytes, no committer takes more than {MAX_ENVELOPE_BYTES}"
        raise InvalidError(message, where=envelope.table, hint="propose fewer fragments at once")
    digest = hashlib.sha256()
    for buffer in buffers:
        digest.update(buffer)
    claim = Claim(size=size, sha256=digest.digest())
    claim.uri = _uri(envelope.table, path_of(claim))
    storage.put(path_of(claim), buffers)
    return _in_place_of(envelope, claim)


def _in_place_of(envelope: Envelope, claim: Claim) -> Envelope:
    small = Envelope(table=envelope.table, app_id=envelope.app_id, branch=envelope.branch, claim=claim)
    if envelope.HasField("batch_id"):
        small.batch_id = envelope.batch_id
    if envelope.HasField("proposed_at"):
        small.proposed_at.CopyFrom(envelope.proposed_at)
    return small


def is_claims_envelope(small: Envelope, whole: Envelope) -> bool:
    """Whether the claimed envelope is the same proposal as the one with the claim: table, key and branch."""
    return _address(small) == _address(whole)


def _address(envelope: Envelope) -> tuple[str, str, int | None, str]:
    batch_id = envelope.batch_id if envelope.HasField("batch_id") else None
    return envelope.table, envelope.app_id, batch_id, envelope.branch


def _uri(table: str, path: str) -> str:
    """The URI of a file below the table's root, where a query stays at the end."""
    root, mark, query = table.partition("?")
    return f"{root.rstrip('/')}/{path}{mark}{query}"
