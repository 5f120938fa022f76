"""The hashes of inserted keys are the same in every release: the vectors here must never change."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_ingest.merge.key_hashes import key_hashes

MASK = 2**64 - 1


def mixed(word: int) -> int:
    """A step of SplitMix64, number by number."""
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def of_words(words: list[int]) -> int:
    return mixed(sum(mixed((word + mixed(at + 1)) & MASK) for at, word in enumerate(words)) & MASK)


def of_text(text: bytes) -> int:
    words = [int.from_bytes(text[at : at + 8], "little") for at in range(0, len(text), 8)]
    total = sum(mixed((word + mixed(at + 1)) & MASK) for at, word in enumerate(words)) + mixed(len(text))
    return mixed(total & MASK)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40)), max_size=20),
    st.integers(0, 3),
)
def test_the_hashes_are_those_of_the_description(rows: list[tuple[int, bytes]], skipped: int) -> None:
    columns = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.binary()),
    ]
    hashes = key_hashes([column.slice(skipped) for column in columns])
    assert hashes.tolist() == [of_words([n & MASK, of_text(text)]) for n, text in rows[skipped:]]


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        (pa.int8(), -1, MASK),
        (pa.uint64(), MASK, MASK),
        (pa.bool_(), True, 1),
        (pa.date32(), date(1970, 1, 3), 2),
        (pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 1), 1_000_000),  # noqa: DTZ001 - a column without zone
        (pa.float32(), 1.5, 0x3FF8000000000000),
        (pa.float64(), 1.5, 0x3FF8000000000000),
        (pa.decimal128(10, 2), Decimal("-0.01"), of_words([MASK, MASK])),
        (pa.decimal256(40, 0), Decimal(3), of_words([3, 0, 0, 0])),
        (pa.string(), "ä", of_text("ä".encode())),
        (pa.large_string(), "x" * 9, of_text(b"x" * 9)),
        (pa.binary(3), b"abc", of_text(b"abc")),
    ],
)
def test_each_type_is_hashed_by_its_value(kind: pa.DataType, value: object, word: int) -> None:
    column = pa.array([value, value, value], kind)
    assert key_hashes([column.slice(1)]).tolist() == [of_words([word])] * 2


def test_hashes_that_were_written_before() -> None:
    numbers, texts = pa.array([0, 1, 2**40]), pa.array(["", "a", "a longer key than eight bytes"])
    assert [f"{number:016x}" for number in key_hashes([numbers, texts]).tolist()] == VECTORS


def test_many_keys_have_different_hashes() -> None:
    numbers = pa.array(np.arange(200_000))
    assert np.unique(key_hashes([numbers])).size == len(numbers)
    texts = pa.array([f"customer-{number}" for number in range(200_000)])
    assert np.unique(key_hashes([texts])).size == len(texts)


VECTORS = ["e539ee37c94020d5", "4608d0580a54685b", "82c5cebce6f5cab9"]
