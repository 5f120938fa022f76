"""Envelopes that are too large for a message: they are stored beside the table, and the message is a claim.

A broker takes a message of about a megabyte; the transaction for a million fragments has a hundred. So the
envelope is first written durably under the hash of its bytes, and then a small message with the same table,
key and branch is sent to the log. A reader need not trust that message: the path of the envelope follows from
its hash and the table alone, and its bytes are checked against both.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from lakefold_protos.lakefold.log_pb2 import Claim, Envelope
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage

FOLDER: Final = "_lakefold/claims"
"""The folder of claimed envelopes, relative to the root of a table's main branch."""
MAX_ENVELOPE_BYTES: Final = 256 << 20
"""The largest envelope that is read, from a message or a file."""
SHA256_BYTES: Final = 32


def path_of(claim: Claim) -> str:
    """Returns the path of the claimed envelope, relative to the table's root. It depends only on the hash."""
    return f"{FOLDER}/{claim.sha256.hex()}"


def claim_fault(envelope: Envelope) -> tuple[str, str] | None:
    """Returns why this envelope's claim can't be followed, and a hint, or None if it can. Reads nothing."""
    claim = envelope.claim
    if len(claim.sha256) != SHA256_BYTES:
        return f"the claim's hash has {len(claim.sha256)} bytes", f"give the {SHA256_BYTES} of a SHA-256"
    uri = _uri(envelope.table, path_of(claim))
    if claim.uri != uri:
        return (
            "the claim's uri differs from the path that its hash gives",
            f"write the envelope to {uri} and set uri to that",
        )
    if claim.size > MAX_ENVELOPE_BYTES:
        return (
            f"the claim is for {claim.size} bytes, the limit is {MAX_ENVELOPE_BYTES}",
            "propose less at once",
        )
    if envelope.affected_rows or envelope.HasField("create") or envelope.HasField("fragment_reuse_index"):
        return (
            "a part of the proposal is in the message beside its claim",
            "put all of it into the claimed envelope",
        )
    return None


def put_claim(storage: Storage, envelope: Envelope, data: bytes, sent_ns: int) -> Envelope:
    """Writes the envelope durably. Returns the small envelope to send to the log instead.

    `storage` is that of the table's main branch, `data` the envelope's bytes, `sent_ns` the current time in
    nanoseconds since 1970. The time gives each sending a file of its own: if the file of an answered sending
    is removed, no other sending waits for it. Raises `InvalidError` if the envelope is larger than any reader
    accepts, and as `Storage.put` does.
    """
    time_field = Envelope()
    time_field.proposed_at.FromNanoseconds(sent_ns)
    # In protobuf the last value of a field counts, so a hundred megabytes need not be encoded again.
    buffers = (data, time_field.SerializeToString())
    size = sum(map(len, buffers))
    if size > MAX_ENVELOPE_BYTES:
        message = f"the envelope is {len(data)} bytes, the limit of every committer is {MAX_ENVELOPE_BYTES}"
        raise InvalidError(message, where=envelope.table, hint="propose fewer fragments at once")
    digest = hashlib.sha256()
    for buffer in buffers:
        digest.update(buffer)
    claim = Claim(size=size, sha256=digest.digest())
    claim.uri = _uri(envelope.table, path_of(claim))
    storage.put(path_of(claim), buffers)
    return _small_envelope(envelope, claim)


def _small_envelope(envelope: Envelope, claim: Claim) -> Envelope:
    small = Envelope(table=envelope.table, app_id=envelope.app_id, branch=envelope.branch, claim=claim)
    if envelope.HasField("batch_id"):
        small.batch_id = envelope.batch_id
    if envelope.HasField("proposed_at"):
        small.proposed_at.CopyFrom(envelope.proposed_at)
    return small


def is_claims_envelope(small: Envelope, whole: Envelope) -> bool:
    """Returns whether the claimed envelope has the table, key and branch of the message with the claim."""
    return _address(small) == _address(whole)


def _address(envelope: Envelope) -> tuple[str, str, int | None, str]:
    batch_id = envelope.batch_id if envelope.HasField("batch_id") else None
    return envelope.table, envelope.app_id, batch_id, envelope.branch


def _uri(table: str, path: str) -> str:
    """Returns the URI of a file below the table's root; a query stays at the end."""
    root, mark, query = table.partition("?")
    return f"{root.rstrip('/')}/{path}{mark}{query}"
