"""A key by which committers distinguish their outcomes from what other clients write into the topic.

Writers need no right to write outcomes, but a grant that is too wide gives it to them. The outcomes that
committers trust decide which entries are passed over, and whether a table was restored to an earlier copy. So
a committer signs each outcome, and the next committers trust only signed outcomes. The key needs no setting:
it is in the metadata of the group's committed offset, which is trusted anyhow, and each report copies it to
the next.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self

from lakefold_table.marks.compact_json import text_of, whole
from lakefold_table.position import offset_of

if TYPE_CHECKING:
    from _hashlib import HASH
    from collections.abc import Sequence

SIGNATURE: Final = "lakefold.signature"
"""The header of an outcome that holds BEGIN/SIGNATURE, in decimal and hexadecimal digits."""
_SECRET_BYTES, _SIGNATURE_BYTES, _BLOCK_BYTES = 16, 16, 64


@dataclass(frozen=True, slots=True)
class OutcomesKey:
    """The key of a partition's outcomes.

    Outcomes below offset `since` count without a signature: they were written before the key was created.
    """

    secret: bytes = field(repr=False)
    since: int

    @classmethod
    def make(cls, since: int) -> Self:
        """Returns a new key."""
        return cls(secrets.token_bytes(_SECRET_BYTES), since)

    def not_after(self, end: int) -> OutcomesKey:
        """Returns the same key for a topic that ends at `end`, as a newly created topic does."""
        return self if self.since <= end else replace(self, since=end)

    def sign(self, value: bytes, begin: int) -> tuple[str, bytes]:
        """Returns the header that signs an outcome, whose report begins at offset `begin` of the topic."""
        return SIGNATURE, b"%d/%s" % (begin, self._signature(value, begin))

    def proves(
        self, offset: int, value: bytes, headers: Sequence[tuple[str, bytes | None]], *, since: int = 0
    ) -> bool:
        """Returns whether a committer wrote the outcome at `offset`.

        Its report must begin at or after `since`. A copy of a signed outcome still has the offset where its
        report began, so an old copy does not count.
        """
        if offset < self.since:
            return True
        header = dict(headers).get(SIGNATURE)
        number, _, signature = (header or b"").partition(b"/")
        begin = offset_of(number.decode(errors="replace"))
        if begin is None or not since <= begin <= offset:
            return False
        return hmac.compare_digest(signature, self._signature(value, begin))

    def encode(self) -> list[str | int]:
        """Returns the key as a list of plain values, for JSON."""
        return [self.secret.hex(), self.since]

    @classmethod
    def decode(cls, value: Any) -> Self:  # noqa: ANN401 - what JSON holds
        """Returns the key that `encode` encoded.

        Raises `TypeError` or `ValueError` if the value is malformed.
        """
        secret, since = value
        return cls(bytes.fromhex(text_of(secret)), whole(since))

    def _signature(self, value: bytes, begin: int) -> bytes:
        """Returns the first bytes of HMAC-SHA256 (RFC 2104), in hexadecimal digits.

        `hmac.digest` returns the same, but releases the interpreter lock: a thread that computes may then
        keep the interpreter for up to 5 ms, once for each outcome.
        """
        inner, outer = _keyed(self.secret)
        inner.update(b"%d/" % begin + value)
        outer.update(inner.digest())
        return outer.digest()[:_SIGNATURE_BYTES].hex().encode()


def _keyed(secret: bytes) -> tuple[HASH, HASH]:
    """Returns copies of the two hashes of HMAC-SHA256 before the message, for the caller to continue."""
    inner, outer = _prepared(secret)
    return inner.copy(), outer.copy()


@lru_cache(maxsize=64)
def _prepared(secret: bytes) -> tuple[HASH, HASH]:
    if len(secret) > _BLOCK_BYTES:
        secret = sha256(secret).digest()
    block = secret.ljust(_BLOCK_BYTES, b"\0")
    return sha256(bytes(byte ^ 0x36 for byte in block)), sha256(bytes(byte ^ 0x5C for byte in block))
