"""Mappings of which the next one costs as much as its changes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from lakefold_table.layered_map import FEWEST, LayeredMap, MapChanges, ValueGroup

if TYPE_CHECKING:
    from collections.abc import Sequence


class Numbers(ValueGroup[str, int]):
    """Values that are the keys as numbers."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    def value_of(self, key: str) -> int:
        return int(key)


def test_it_is_a_dict_that_never_changes() -> None:
    chance = random.Random(20_261_123)
    expected: dict[str, int] = {}
    layered: LayeredMap[str, int] = LayeredMap()
    first: MapChanges[str, int] = MapChanges()
    for start in range(0, 300, 100):
        keys = list(map(str, range(start, start + 100)))
        assert first.set_groups([Numbers(*keys[:50]), Numbers(*keys[50:])]) == []
        expected |= {key: int(key) for key in keys}
    layered = first.result()
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


def test_a_group_is_refused_if_one_of_its_keys_has_a_value() -> None:
    for before in (MapChanges({"1": 5}), MapChanges(LayeredMap({"1": 5}).changed({"2": 5}))):
        again = Numbers("0", "1")
        assert before.set_groups([again, Numbers("8")]) == [again]
        assert before.get("0") is None
        assert before.get("8") == 8
        assert before.get("1") == 5
        assert not before.set_groups([Numbers("3", "4")])
        for repeated in (Numbers("4"), Numbers("6", "6")):
            assert before.set_groups([repeated]) == [repeated]
        later = Numbers("9", "10")
        assert before.set_groups([Numbers("10"), later]) == [later]
        assert before.get("9") is None
        assert before.remove("4") == 4
        assert before.set("3", 7) == 3
        assert before.result().get("3") == 7
        assert "4" not in before.result()
    removed = MapChanges({"1": 5})
    removed.remove("1")
    hidden = Numbers("1")
    assert removed.set_groups([hidden]) == [hidden], "it would hide that the key was removed"


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
    assert changes.set("d", 5) is None
    assert changes.set("a", 6) == 4
    assert changes.result() == {"a": 6, "c": 3, "d": 5}
    assert before == {"a": 1, "b": 2}
    assert MapChanges(before).result() is before
    assert MapChanges({"x": 1}).result() == {"x": 1}
