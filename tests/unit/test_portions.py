"""What one poll brought is decoded in portions of bounded size, in order, and nothing is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hypothesis import given
from hypothesis import strategies as st

from lakefold_committer.portions import portions_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.consumer import Message


@dataclass(frozen=True)
class Sized:
    """As much of a message as portions look at."""

    offset: int
    value: bytes


def of(sizes: Sequence[int]) -> list[Message]:
    return cast("list[Message]", [Sized(offset, b"x" * size) for offset, size in enumerate(sizes)])


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40))
def test_portions_are_the_messages_in_order_and_bounded(sizes: list[int], limit: int) -> None:
    portions = portions_of(of(sizes), limit)
    assert [message.offset for portion, _ in portions for message in portion] == list(range(len(sizes)))
    for portion, _ in portions:
        assert len(portion) == 1 or sum(len(message.value) for message in portion) <= limit
    assert [last for _, last in portions] == [False] * (len(portions) - 1) + [True] * bool(portions)


def test_small_messages_stay_together() -> None:
    assert [len(portion) for portion, _ in portions_of(of([1] * 100), 100)] == [100]
