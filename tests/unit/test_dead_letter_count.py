"""The console counts dead letters within bounds, and what it could not count it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lakefold.web.dead_letter_count import MOST_BYTES, MOST_OFFSETS, MOST_S, RETRY_S, DeadLetterCount
from lakefold_log.client.overview import PartitionView
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Generator

    from lakefold_log.client.admin import Admin

ADMIN: Admin = cast("Any", None)


class Topic:
    """A topic whose every other offset is a letter, the others are markers."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.read: list[tuple[int, int]] = []
        """The partition and offset of each letter that was read."""
        self.refusal: InvalidError | None = None
        self.now = 0.0
        self.seconds_each = 0.0
        self.counting = DeadLetterCount(self._read, lambda: self.now)

    def _read(
        self, _admin: Admin, _topic: str, partition: int, start: int, end: int
    ) -> Generator[tuple[int, int]]:
        if self.refusal is not None:
            raise self.refusal
        for offset in range(start + start % 2, end, 2):
            self.now += self.seconds_each
            self.read.append((partition, offset))
            yield offset, self.size

    def count(self, *reaches: tuple[int, int]) -> tuple[int | None, bool, bool]:
        """Returns how many letters are known, whether that is about, and whether there are more."""
        views = [PartitionView("letters", number, *reach) for number, reach in enumerate(reaches)]
        self.counting.count(ADMIN, "letters", views)
        document = self.counting.document
        return document["dead_letters"], document["about_dead_letters"], document["more_dead_letters"]


def test_what_was_counted_is_not_read_again() -> None:
    topic = Topic()
    assert topic.count((0, 10), (0, 0)) == (5, False, False)
    assert topic.count((0, 10), (0, 4)) == (7, False, False)
    assert topic.count((0, 14), (0, 4)) == (9, False, False)
    assert len(topic.read) == 9


def test_of_many_offsets_the_newest_are_counted() -> None:
    assert Topic().count((0, 3 * MOST_OFFSETS)) == (MOST_OFFSETS // 2, False, True)


def test_of_large_letters_few_are_read_and_the_rest_is_estimated() -> None:
    topic = Topic(size=1_000_000)
    assert topic.count((0, 1000), (0, 1000)) == (1000, True, False)
    assert len(topic.read) == 2 * (MOST_BYTES // 2_000_000 + 2)
    # What follows is counted exactly, and the sum stays an estimate.
    assert topic.count((0, 1004), (0, 1000)) == (1002, True, False)


def test_a_topic_that_lost_its_oldest_messages_is_not_counted_again() -> None:
    topic = Topic()
    topic.count((0, 100))
    assert topic.count((50, 100)) == (25, True, False)
    assert topic.count((60, 104)) == (22, True, False)
    assert len(topic.read) == 52
    # Nothing is left of what was counted, and the topic was made again.
    assert topic.count((200, 204)) == (2, False, False)
    assert topic.count((0, 2)) == (1, False, False)


def test_a_count_that_takes_long_ends_and_the_next_one_continues() -> None:
    topic = Topic()
    topic.seconds_each = MOST_S / 3
    assert topic.count((0, 10), (0, 10)) == (3, False, True)
    assert topic.count((0, 10), (0, 10)) == (6, False, True)
    topic.seconds_each = 0
    assert topic.count((0, 10), (0, 10)) == (10, False, False)
    assert len(set(topic.read)) == len(topic.read) == 10


def test_a_count_that_fails_says_why_and_is_repeated_later() -> None:
    topic = Topic()
    topic.count((0, 10))
    topic.refusal = InvalidError("lacks the right Read")
    assert topic.count((0, 12)) == (None, False, False)
    assert topic.counting.document["dead_letters_problem"] == "lacks the right Read"
    topic.refusal = None
    topic.now += RETRY_S / 2
    assert topic.count((0, 12)) == (None, False, False)
    topic.now += RETRY_S
    assert topic.count((0, 12)) == (6, False, False)
    assert topic.counting.document["dead_letters_problem"] == ""
