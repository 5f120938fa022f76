"""A writer's batches hold every append once, in order, within the limits, and none waits too long."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_ingest.writer.batching import Batching, BatchLimits
from lakefold_table.errors import InvalidError


@dataclass(frozen=True)
class Sent:
    """An append as plain values."""

    rows: int
    size: int
    added_at: float
    shape: str = "a"


@st.composite
def appends(draw: st.DrawFn) -> list[Sent]:
    """Appends in the order of their times."""
    times = sorted(draw(st.lists(st.integers(0, 100), max_size=40)))
    sizes = st.integers(1, 12)
    shapes = st.sampled_from("aaab")
    return [Sent(draw(sizes), draw(sizes), time, draw(shapes)) for time in times]


LIMITS = st.builds(BatchLimits, st.integers(1, 30), st.integers(1, 30), st.integers(0, 20).map(float))


@given(appends(), LIMITS)
def test_batches_partition_the_appends_in_order_within_the_limits(
    sent: list[Sent], limits: BatchLimits
) -> None:
    batching: Batching[Sent] = Batching(limits)
    for append in sent:
        batching.add(append)
    batches = []
    while batch := batching.take():
        batches.append(batch)
    assert list(chain(*batches)) == sent
    assert len(batching) == 0
    assert batching.due_at() is None
    for batch in batches:
        assert len({append.shape for append in batch}) == 1
        fits = (
            sum(append.rows for append in batch) <= limits.max_rows
            and sum(append.size for append in batch) <= limits.max_bytes
        )
        assert fits or len(batch) == 1
    for batch, following in pairwise(batches):
        rows = sum(append.rows for append in batch) + following[0].rows
        size = sum(append.size for append in batch) + following[0].size
        ends = rows > limits.max_rows or size > limits.max_bytes or following[0].shape != batch[0].shape
        assert ends, "a batch ended although the next append fits"


@given(appends(), LIMITS)
def test_no_append_waits_longer_than_the_delay(sent: list[Sent], limits: BatchLimits) -> None:
    """A sender that takes each batch when it is due, on a clock of plain numbers."""
    batching: Batching[Sent] = Batching(limits)

    def take_due(now: float) -> None:
        while (due_at := batching.due_at()) is not None and due_at <= now:
            for append in batching.take():
                assert due_at - append.added_at <= limits.max_delay_s

    for append in sent:
        take_due(append.added_at)
        batching.add(append)
        due_at = batching.due_at()
        assert due_at is not None
        assert due_at <= append.added_at + limits.max_delay_s
    take_due(1000.0)
    assert len(batching) == 0


def test_a_batch_is_due_when_it_is_full_or_other_columns_come() -> None:
    limits = BatchLimits(max_rows=10, max_bytes=100, max_delay_s=5)
    batching: Batching[Sent] = Batching(limits)
    for last in (Sent(8, 1, 2), Sent(1, 99, 2), Sent(1, 1, 2, "b")):
        batching = Batching(limits)
        batching.add(Sent(2, 1, 1))
        assert batching.due_at() == 6
        batching.add(last)
        assert batching.due_at() == 1
    batching.add(Sent(1, 1, 3))
    assert batching.due_at() == 1
    assert batching.take() == [Sent(2, 1, 1)]
    assert batching.due_at() == 2
    batching.take()
    assert batching.due_at() == 8


@pytest.mark.parametrize(
    ("limits", "name"),
    [((0, 1, 1.0), "max_rows"), ((1, 0, 1.0), "max_bytes"), ((1, 1, -0.1), "max_delay")],
)
def test_a_limit_that_makes_no_batch_is_refused(limits: tuple[int, int, float], name: str) -> None:
    with pytest.raises(InvalidError) as caught:
        BatchLimits(*limits)
    assert caught.value.where == name
