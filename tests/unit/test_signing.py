"""An outcome counts if a committer of the group signed it.

Promise: signed-outcomes (docs/operations/promises.md).
"""

from __future__ import annotations

import hmac

import pytest

from lakefold_log.codec.signing import SIGNATURE, OutcomesKey
from lakefold_log.read.offset_metadata import OffsetMetadata

KEY = OutcomesKey.make(10)
VALUE = b"an outcome"


def test_what_was_signed_counts_at_any_offset() -> None:
    header = KEY.sign(VALUE, 20)
    assert KEY.proves(20, VALUE, [("other", None), header])
    assert KEY.proves(99, VALUE, [header], since=20)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(SIGNATURE, None)],
        [(SIGNATURE, b"")],
        [(SIGNATURE, b"20")],
        [(SIGNATURE, b"-1/" + b"0" * 32)],
        [(SIGNATURE, b"20/" + b"0" * 32)],
        [(SIGNATURE, b"\xff/\xff")],
        [OutcomesKey.make(10).sign(VALUE, 20)],
        [KEY.sign(b"another outcome", 20)],
        [(SIGNATURE, KEY.sign(VALUE, 20)[1].replace(b"20/", b"21/"))],
    ],
)
def test_anything_else_does_not(headers: list[tuple[str, bytes | None]]) -> None:
    assert not KEY.proves(30, VALUE, headers)


def test_a_copy_of_an_older_report_is_none_of_a_later_one() -> None:
    assert not KEY.proves(99, VALUE, [KEY.sign(VALUE, 20)], since=21)
    assert not KEY.proves(19, VALUE, [KEY.sign(VALUE, 20)]), "it can't stand before its report began"


def test_what_stood_there_before_the_key_was_made_counts() -> None:
    assert KEY.proves(9, VALUE, [])
    assert not KEY.proves(10, VALUE, [])
    assert not KEY.not_after(4).proves(4, VALUE, [])
    assert KEY.not_after(99) == KEY


def test_it_travels_in_the_stamp_and_is_never_printed() -> None:
    offset_metadata = OffsetMetadata("cluster", "topic-id", 17, 42, outcomes_key=KEY)
    metadata = OffsetMetadata.of(offset_metadata.metadata(20), 20)
    assert metadata is not None
    assert metadata.outcomes_key == KEY
    assert KEY.secret.hex() not in repr(offset_metadata)
    assert repr(KEY.secret) not in repr(offset_metadata)


@pytest.mark.parametrize("length", [0, 16, 64, 65, 200])
def test_the_signature_is_an_hmac_that_other_languages_know(length: int) -> None:
    key = OutcomesKey(bytes(range(length)), 0)
    for value in (b"", b"outcome", b"x" * 5_000):
        digest = hmac.digest(key.secret, b"7/" + value, "sha256")
        assert key.sign(value, 7) == (SIGNATURE, b"7/" + digest[:16].hex().encode())


def test_a_number_of_any_length_or_script_is_only_wrong() -> None:
    key = OutcomesKey.make(0)
    for number in (b"9" * 5_000, "²".encode(), b"\xff", b"", b"-1", b" 1"):
        assert not key.proves(5, b"outcome", [(SIGNATURE, number + b"/x")])
