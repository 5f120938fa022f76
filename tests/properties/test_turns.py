"""Turns of refused proposals: who waits for whom, and how often writers are refused.

Promises: refused-first (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakefold_log.read.turns import MOST_HASHES, MOST_REFUSED, WHOLE, Turn, Turns, header_of, smallest
from lakefold_log.read.turns import TURN as HEADER
from lakefold_table.entry import Committed, Conflict, Outcome, Rejected
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

HERE = Position(LogId("cluster", "topic", 0), 0, "transactions")
CONFLICT = Rejected(Conflict(retryable=True, message="rows of a key"))
WRITERS, KEYS = 6, 8
LIKE_ITSELF = 3
"""The most tries of a writer whose others are as fast as it is."""
KEY_SETS = st.frozensets(st.integers(0, KEYS - 1), min_size=1, max_size=4)
TURNS = st.builds(
    lambda number, keys, seconds: Turn(name(number), keys, build_s=seconds),
    st.integers(0, 9),
    KEY_SETS,
    st.floats(0, 20),
)


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def outcome(result: Committed | Rejected = CONFLICT, branch: str = "") -> Outcome:
    return Outcome(HERE, "file:///t", result, branch=branch)


def hear(turns: Turns, turn: Turn, now: float, result: Committed | Rejected = CONFLICT) -> None:
    turns.hear(outcome(result), turn.encode(), now)


@given(
    st.builds(
        Turn,
        st.binary(min_size=16, max_size=16),
        st.frozensets(st.integers(0, 2**32 - 1)),
        st.frozensets(st.integers(0, 2**32 - 1)),
        st.integers(0, 10**6),
    )
)
def test_a_header_is_read_as_it_was_written(turn: Turn) -> None:
    header = turn.encode()
    assert Turn.decode(header) == turn
    message = ((HEADER, header),)
    assert header_of(message, is_refused=True) == header
    assert Turn.decode(header_of(message, is_refused=False)) == Turn(
        turn.batch, frozenset(), build_s=turn.build_s
    )


def test_a_header_that_is_too_long_is_not_repeated() -> None:
    longest = Turn(name(1), frozenset(range(MOST_HASHES)), frozenset(range(MOST_HASHES))).encode()
    assert header_of(((HEADER, longest),), is_refused=True) == longest
    assert header_of(((HEADER, longest + bytes(4)),), is_refused=True) == b""


@given(st.binary(max_size=100))
def test_other_bytes_are_no_turn_or_any_turn(data: bytes) -> None:
    Turns().hear(outcome(), data, 0.0)


@given(st.lists(st.tuples(TURNS, st.booleans(), st.floats(0, 5))), TURNS, st.data())
def test_no_batch_waits_for_other_keys_for_ever_or_behind_itself(
    events: list[tuple[Turn, bool, float]], fresh: Turn, data: st.DataObject
) -> None:
    turns, now, refused = Turns(), 0.0, dict[bytes, Turn]()
    for turn, is_refused, seconds in events:
        now += seconds
        hear(turns, turn, now, CONFLICT if is_refused else Committed(1))
        refused.pop(turn.batch, None)
        if is_refused:
            refused[turn.batch] = turn
    if refused:
        # Of the batches that were refused, the first waits for none.
        assert any(turns.wait_until(turn, now) is None for turn in refused.values())
    for turn in [*refused.values(), fresh]:
        others = [each for each in refused.values() if each.batch != turn.batch]
        if not any(each.meets(turn) for each in others):
            assert turns.wait_until(turn, now) is None
    # If no batch comes again, as all writers have died, each wait ends.
    waiting = data.draw(st.sampled_from([*refused.values(), fresh]))
    ends = 0
    while (until := turns.wait_until(waiting, now)) is not None:
        assert until > now
        now, ends = until, ends + 1
        assert ends <= len(events) + 1
    assert now <= sum(seconds for *_, seconds in events) + sum(turn.patience_s for turn, *_ in events)


def test_a_batch_that_waits_itself_is_waited_for_until_its_turn_has_ended() -> None:
    turns = Turns()
    hear(turns, Turn(name(2), frozenset({0}), build_s=1.0), 0.0)
    hear(turns, Turn(name(0), frozenset({0, 1})), 0.0)
    waiting = Turn(name(1), frozenset({1}))
    assert turns.wait_until(waiting, 0.0) == 6.0
    assert turns.wait_until(waiting, 6.0) == 8.0
    assert turns.wait_until(waiting, 8.0) is None


def test_those_who_meet_go_by_the_order_of_their_first_refusals() -> None:
    turns, (first, second, third) = Turns(), (Turn(name(n), frozenset({n, n + 1})) for n in range(3))
    hear(turns, first, 0.0)
    hear(turns, second, 0.0)
    hear(turns, first, 1.0)
    assert turns.wait_until(first, 1.0) is None
    assert turns.wait_until(second, 1.0) == 1.0 + first.patience_s
    assert turns.wait_until(third, 1.0) is not None
    hear(turns, first, 1.5, Committed(1))
    assert turns.wait_until(second, 1.5) is None
    # The turn of the second begins now, however long it has waited.
    assert turns.wait_until(third, 1.5) == 1.5 + second.patience_s
    hear(turns, second, 2.0, Rejected(Conflict(retryable=False, message="for good")))
    assert turns.wait_until(third, 2.0) is None
    assert turns.is_empty


def test_changes_of_other_keys_wait_only_for_what_may_meet_them() -> None:
    part = frozenset({7})
    refused, fresh = Turn(name(1), frozenset({1}), part), Turn(name(2), frozenset({2}), part)
    turns = Turns()
    hear(turns, refused, 0.0)
    assert turns.wait_until(fresh, 0.0) is not None
    rows = Rejected(Conflict(retryable=True, message="a row", row_addresses=(3,)))
    hear(turns, refused, 0.0, rows)
    assert turns.wait_until(fresh, 0.0) is None
    turns.hear(outcome(branch="other"), Turn(name(3), frozenset({2})).encode(), 0.0)
    assert turns.wait_until(fresh, 0.0) is None


def test_the_whole_table_meets_each_of_its_parts_and_no_key_alone() -> None:
    whole, part = Turn(name(1), frozenset(), frozenset({WHOLE})), Turn(name(2), frozenset(), frozenset({7}))
    keys = Turn(name(3), frozenset({1}))
    assert whole.meets(part)
    assert part.meets(whole)
    assert whole.meets(whole)
    assert not whole.meets(keys)
    assert not keys.meets(whole)


def test_memory_is_bounded() -> None:
    turns = Turns()
    for number in range(MOST_REFUSED + 5):
        hear(turns, Turn(name(number), frozenset({number})), 0.0)
    asked = Turn(name(10**6), frozenset(range(MOST_REFUSED, MOST_REFUSED + 5)))
    assert turns.wait_until(asked, 0.0) is None
    assert len(smallest(np.arange(MOST_HASHES + 5, dtype=np.uint64))) == MOST_HASHES


@dataclass
class Writer:
    """A writer that sends one batch after another: it waits for its turn, builds, and sends what it built."""

    number: int
    keys: Callable[[], frozenset[int]]
    batch: int = 0
    tries: int = 0
    changed: frozenset[int] = frozenset()
    built_on: int | None = None
    all_tries: list[int] = field(default_factory=list)

    def step(self, turns: Turns, versions: dict[int, int], version: int) -> int:
        """Does what is next, if it need not wait. Returns the newest version."""
        if not self.tries and self.built_on is None:
            self.batch, self.changed = self.batch + 1, self.keys()
        turn = Turn(name(self.number * 10**6 + self.batch), self.changed)
        if self.built_on is None:
            if turns.wait_until(turn, 0.0) is None:
                self.built_on = version
            return version
        self.tries, built_on, self.built_on = self.tries + 1, self.built_on, None
        if any(versions.get(key, 0) > built_on for key in self.changed):
            hear(turns, turn, 0.0)
            return version
        versions.update(dict.fromkeys(self.changed, version + 1))
        hear(turns, turn, 0.0, Committed(version + 1))
        self.all_tries.append(self.tries)
        self.tries = 0
        return version + 1


@given(st.randoms(use_true_random=False), st.sampled_from([LIKE_ITSELF, WRITERS + 1]))
def test_tries_are_few(random: Random, allowed: int) -> None:
    """However slow some writers are, each may overtake a refused one once, by what it had begun before."""

    def keys() -> frozenset[int]:
        return frozenset(random.sample(range(KEYS), random.randint(1, KEYS)))

    writers = [Writer(number, keys) for number in range(WRITERS)]
    turns, versions, version = Turns(), dict[int, int](), 0
    for count in range(150):
        writer = writers[count % WRITERS] if allowed == LIKE_ITSELF else random.choice(writers)
        version = writer.step(turns, versions, version)
    assert version > WRITERS
    most = max(tries for writer in writers for tries in [*writer.all_tries, writer.tries])
    assert most <= allowed
