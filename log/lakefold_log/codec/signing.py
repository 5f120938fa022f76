"""A key by which committers tell their outcomes from what others write into the topic.

Writers need no right to write outcomes, but a grant that is too wide gives it to them. What committers
believe of outcomes decides which entries are passed over, and whether a table was set back. So a committer
signs each outcome, and its successors believe only signed ones. The key needs no setting: it lies in the
metadata of the group's stamped offset, which is trusted anyhow, and goes from each report to the next.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.marks.compact_json import text_of, whole
from lakefold_table.position import offset_of

if TYPE_CHECKING:
    from _hashlib import HASH
    from collections.abc import Sequence
    from typing import Self

SIGNATURE: Final = "lakefold.signature"
"""The header of an outcome that holds BEGIN/SIGNATURE, in decimal and hexadecimal digits."""
_SECRET_BYTES, _SIGNATURE_BYTES, _BLOCK_BYTES = 16, 16, 64


@dataclass(frozen=True, slots=True)
class OutcomesKey:
    """The key of one partition's outcomes.

    Outcomes below offset `since` count without a signature: they stood there before the key was made.
    """

    secret: bytes = field(repr=False)
    since: int

    @classmethod
    def make(cls, since: int) -> Self:
        """A new key."""
        return cls(secrets.token_bytes(_SECRET_BYTES), since)

    def not_after(self, end: int) -> OutcomesKey:
        """The same key where the topic ends at offset `end`: a topic that was made anew is shorter."""
        return self if self.since <= end else replace(self, since=end)

    def sign(self, value: bytes, begin: int) -> tuple[str, bytes]:
        """The header that signs an outcome; its report begins at offset `begin` of the outcomes topic."""
        return SIGNATURE, b"%d/%s" % (begin, self._signature(value, begin))

    def proves(
        self, offset: int, value: bytes, headers: Sequence[tuple[str, bytes | None]], *, since: int = 0
    ) -> bool:
        """Whether the outcome at `offset` is a committer's, of a report that begins at or behind `since`.

        A copy of a signed outcome keeps the place where its report began.
        """
        if offset < self.since:
            return True
        told = dict(headers).get(SIGNATURE)
        number, _, signature = (told or b"").partition(b"/")
        begin = offset_of(number.decode(errors="replace"))
        if begin is None or not since <= begin <= offset:
            return False
        return hmac.compare_digest(signature, self._signature(value, begin))

    def encode(self) -> list[str | int]:
        """As a list of plain values, for JSON."""
        return [self.secret.hex(), self.since]

    @classmethod
    def decode(cls, value: Any) -> Self:  # noqa: ANN401 - what JSON holds
        """The key whose `encode` gave this. Raises `TypeError` or `ValueError` if none did."""
        secret, since = value
        return cls(bytes.fromhex(text_of(secret)), whole(since))

    def _signature(self, value: bytes, begin: int) -> bytes:
        """The first bytes of HMAC-SHA256 (RFC 2104), in hexadecimal digits.

        `hmac.digest` gives the same, but lets other threads run meanwhile: a thread that computes then keeps
        the interpreter for up to 5 ms, once for each outcome.
        """
        inner, outer = _keyed(self.secret)
        inner.update(b"%d/" % begin + value)
        outer.update(inner.digest())
        return outer.digest()[:_SIGNATURE_BYTES].hex().encode()


def _keyed(secret: bytes) -> tuple[HASH, HASH]:
    """The two hashes of HMAC-SHA256 as they are before the message: copies, to be gone on with."""
    inner, outer = _prepared(secret)
    return inner.copy(), outer.copy()


@lru_cache(maxsize=64)
def _prepared(secret: bytes) -> tuple[HASH, HASH]:
    if len(secret) > _BLOCK_BYTES:
        secret = sha256(secret).digest()
    block = secret.ljust(_BLOCK_BYTES, b"\0")
    return sha256(bytes(byte ^ 0x36 for byte in block)), sha256(bytes(byte ^ 0x5C for byte in block))
