"""Mappings of which the next one costs as much as its changes."""

from __future__ import annotations

import random

import pytest

from lakefold_table.layered_map import FEWEST, LayeredMap, MapChanges


def test_it_is_a_dict_that_never_changes() -> None:
    chance = random.Random(20_261_123)
    expected: dict[str, int] = {}
    layered: LayeredMap[str, int] = LayeredMap()
    versions: list[tuple[LayeredMap[str, int], dict[str, int]]] = []
    for _ in range(400):
        changes: dict[str, int | None] = {}
        for _ in range(chance.choice([1, 1, 2, 90])):
            removed = chance.random() < 0.4
            changes[str(chance.randrange(700))] = None if removed else chance.randrange(9)
        layered = layered.changed(changes)
        expected = {**expected, **{key: value for key, value in changes.items() if value is not None}}
        expected = {key: value for key, value in expected.items() if changes.get(key, 0) is not None}
        versions.append((layered, expected))
    for made, should in versions:
        assert made == should
        assert len(made) == len(should) == len(list(made))
        for key in map(str, range(700)):
            assert made.get(key, -1) == should.get(key, -1)
            assert (key in made) is (key in should)


def test_a_key_without_a_value_raises_key_error() -> None:
    layered = LayeredMap({"a": 1}).changed({"a": None})
    for key in ("a", "b"):
        with pytest.raises(KeyError):
            layered[key]


def test_a_change_copies_the_changes_alone() -> None:
    large = LayeredMap(dict.fromkeys(range(10_000), 0))
    after = large
    for number in range(FEWEST):
        after = after.changed({number: 1})
        assert after._shared is large._shared
    assert sum(after.values()) == FEWEST
    several = after.changed(dict.fromkeys(range(5_000), 2))
    assert several._shared is not large._shared
    assert not several._changes
    assert sum(several.values()) == 10_000
    assert not any(large.values())


def test_gathered_changes_are_seen_before_they_make_a_mapping() -> None:
    before = LayeredMap({"a": 1, "b": 2})
    changes = MapChanges(before)
    assert changes.set("c", 3) is None
    assert changes.set("a", 4) == 1
    assert changes.remove("b") == 2
    assert changes.remove("b") is None
    assert [changes.get(key) for key in "abcd"] == [4, None, 3, None]
    assert changes.result() == {"a": 4, "c": 3}
    assert before == {"a": 1, "b": 2}
    assert MapChanges(before).result() is before
    assert MapChanges({"x": 1}).result() == {"x": 1}
