"""What is remembered of past versions takes only so much memory; what is forgotten is asked for."""

from __future__ import annotations

import tracemalloc

import pytest

from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts import COMPATIBLE, Footprint, History
from lakefold_table.lance.conflicts import history as module
from lakefold_table.lance.conflicts.history import MOST_BYTES
from lakefold_table.lance.kinds import Kind
from tests.unit.test_conflicts_history import after, config, delete

FEW_BYTES = 100_000


@pytest.fixture
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", FEW_BYTES)


def kept(history: History) -> list[tuple[int, Footprint]]:
    return [step for chain in history.chains.values() for block in chain.blocks for step in block]


def grown(versions: int) -> History:
    """Deletes of ten fragments each, a change of the configuration after every tenth."""
    steps: list[Footprint] = []
    for number in range(versions):
        steps.append(delete(*range(10 * number, 10 * number + 10)))
        steps += [config(a=str(number))] * (number % 10 == 9)
    return after(*steps)


def test_a_footprint_says_what_it_takes() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        footprints = [delete(*range(10_000 * n, 10_000 * n + 500)) for n in range(50)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert (
        sum(footprint.size for footprint in footprints) * 0.5
        < taken
        < sum(footprint.size for footprint in footprints) * 1.3
    )


@pytest.mark.usefixtures("_forgetful")
@pytest.mark.parametrize("versions", [30, 200, 1000])
def test_no_more_is_kept_than_may_be(versions: int) -> None:
    history = grown(versions)
    for kind, chain in history.chains.items():
        steps = [step for block in chain.blocks for step in block]
        assert chain.size == sum(footprint.size for _, footprint in steps), kind
        assert [version for version, _ in steps] == sorted(version for version, _ in steps)
    assert FEW_BYTES * 0.3 < sum(chain.size for chain in history.chains.values()) <= FEW_BYTES


@pytest.mark.usefixtures("_forgetful")
def test_what_is_forgotten_is_asked_for_and_judged_the_same_once_it_is_brought() -> None:
    whole = grown(60)
    module.MOST_BYTES = MOST_BYTES
    remembered = grown(60)
    assert whole.latest == remembered.latest
    since = whole.detailed_since
    assert since
    assert remembered.detailed_since == 0
    assert 20 < since < 60
    versions = dict(kept(remembered))
    for read in range(66):
        asks = whole.needs_details(Kind.DELETE, read)
        assert (asks == read) == (read < since), read
        history = whole
        if asks is not None:
            history = whole.detailed((number, versions[number]) for number in range(since, read, -1))
        for number in (0, 155, 299, 300, 450, 599, 600):
            ours = delete(number)
            assert history.verdict(ours, read) == remembered.verdict(ours, read)
            if asks is not None:
                assert isinstance(whole.verdict(ours, read), Conflict)


@pytest.mark.usefixtures("_forgetful")
def test_the_newest_of_each_kind_is_kept_however_large() -> None:
    history = after(delete(1), delete(*range(10_000)), config(a="b"), delete(5))
    assert history.verdict(delete(5), 4) == COMPATIBLE
    assert history.needs_details(Kind.DELETE, 3) is None
    assert isinstance(history.verdict(delete(5), 3), Conflict)
    history = after(delete(1), delete(*range(10_000)))
    assert history.needs_details(Kind.DELETE, 1) is None
    assert history.verdict(delete(10_001), 1) == COMPATIBLE
    assert isinstance(history.verdict(delete(9_999), 1), Conflict)
