"""The partition of a key is that which Kafka's own clients compute."""

from __future__ import annotations

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_log.codec.partitioner import home_of, murmur2, partition_of

# From the tests of Kafka's Java client (Utils.murmur2, signed there) and of librdkafka.
PUBLISHED = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (b"kafka", 0xD067CF64),
    (b"giberish123456789", 0x8F552B0C),
    (b"1234", 0x9FC97B14),
    (b"234", 0xE7C009CA),
    (b"34", 0x873930DA),
    (b"4", 0x5A4B5CA1),
    (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x78424F1C),
    (b"", 0x106E08D9),
]


@pytest.mark.parametrize(("key", "published"), PUBLISHED)
def test_gives_the_published_hashes(key: bytes, published: int) -> None:
    assert murmur2(key) == published % 2**32


@given(st.text(max_size=200), st.integers(1, 1000))
def test_agrees_with_librdkafka_on_every_key(table: str, partitions: int) -> None:
    assert confluent_kafka.murmur2(table.encode(), partitions) == partition_of(table, partitions)


def test_a_table_stays_where_it_is_bound_unless_there_is_no_such_partition() -> None:
    hashed = partition_of("s3://lake/flights", 4)
    assert home_of("s3://lake/flights", None, 4) == hashed
    assert [home_of("s3://lake/flights", bound, 4) for bound in (0, 3, 4, 99)] == [0, 3, hashed, hashed]
