"""Mappings that are never changed, of which the next one costs about as much as what it changes.

A table of 100,000 files that copied its list of files for each version would spend more time on that than on
the version. So a version shares the list of an older one, and has beside it what changed since. Values that
were read from a large file stay encoded in groups until one of them is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from math import isqrt
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

K = TypeVar("K")
V = TypeVar("V")
_ABSENT: Final[Any] = object()
FEWEST: Final = 64
"""So many changes are always kept beside the shared list."""


class ValueGroup(Generic[K, V]):
    """The values of many keys, which are decoded once one of them is asked for."""

    # It is not an `ABC`, of which `isinstance` takes ten times as long.

    __slots__ = ()

    @property
    @abstractmethod
    def keys(self) -> Sequence[K]:
        """The keys in their order."""

    @abstractmethod
    def value_of(self, key: K) -> V:
        """Returns the value of one of its keys, the same object each time."""


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """A mapping that is never changed: a large dict that others share, and the changes since it was made.

    No value is None. With n keys there are at most about √2n changes, and they are copied for each next
    mapping. If there are more, everything is copied once. So one change costs about √n steps, and a thousand
    changes together cost not much more.
    """

    __slots__ = ("_changes", "_shared", "_size")

    def __init__(self, content: Mapping[K, V] | None = None) -> None:
        """Begins with a copy of `content`, or with nothing."""
        self._shared: dict[K, V | ValueGroup[K, V]] = dict(content or {})
        self._changes: dict[K, V | ValueGroup[K, V] | None] = {}
        self._size = len(self._shared)

    def __getitem__(self, key: K) -> V:
        """Returns the value of a key. Raises `KeyError`."""
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            value = self._shared[key]
        if value is None:
            raise KeyError(key)
        return cast("V", value.value_of(key) if isinstance(value, ValueGroup) else value)

    def get(self, key: K, default: Any = None) -> Any:  # noqa: ANN401 - as of Mapping
        """Returns the value of a key, the default if it has none."""
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            value = self._shared.get(key, default)
        if isinstance(value, ValueGroup):
            return value.value_of(key)
        return default if value is None else value

    def __contains__(self, key: object) -> bool:
        """Returns whether the key has a value."""
        value = self._changes.get(cast("K", key), _ABSENT)
        return key in self._shared if value is _ABSENT else value is not None

    def __iter__(self) -> Iterator[K]:
        """Yields the keys in the order in which they were added."""
        changes = self._changes
        for key in self._shared:
            if changes.get(key, _ABSENT) is not None:
                yield key
        for key, value in changes.items():
            if value is not None and key not in self._shared:
                yield key

    def __len__(self) -> int:
        """Returns the number of keys."""
        return self._size

    def changed(self, changes: dict[K, Any]) -> LayeredMap[K, V]:
        """Returns the mapping with these values or groups, without the keys whose value is None.

        A key whose value is a group has the value that the group has for it. The dict may be shared, so it
        must never be changed afterwards.
        """
        if not changes:
            return self
        after: LayeredMap[K, V] = LayeredMap()
        if not self._shared and not self._changes:
            after._shared = _present(changes)
            after._size = len(after._shared)
            return after
        after._size = self._size + sum((value is not None) - (key in self) for key, value in changes.items())
        after._shared = self._shared
        after._changes = self._changes | changes
        if len(after._changes) > FEWEST + isqrt(2 * len(self._shared)):
            after._shared = _present(self._shared | after._changes)
            after._changes = {}
        return after


def _present(values: dict[K, Any]) -> dict[K, Any]:
    """Returns the values that are not None."""
    if None not in values.values():
        return values
    return {key: value for key, value in values.items() if value is not None}


class MapChanges(Generic[K, V]):
    """Changes of a mapping, while they are gathered."""

    __slots__ = ("_before", "_changes")

    def __init__(self, before: Mapping[K, V] | None = None) -> None:
        """Begins without changes of `before`."""
        self._before: LayeredMap[K, V] = before if isinstance(before, LayeredMap) else LayeredMap(before)
        self._changes: dict[K, V | ValueGroup[K, V] | None] = {}

    def get(self, key: K) -> V | None:
        """Returns the present value of a key, or None if it has none."""
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            return cast("V | None", self._before.get(key))
        return value.value_of(key) if isinstance(value, ValueGroup) else value

    def set(self, key: K, value: V) -> V | None:
        """Gives a key its value. Returns the one that it had."""
        before = self.get(key)
        self._changes[key] = value
        return before

    def set_all(self, values: Mapping[K, V]) -> list[V]:
        """Gives keys their values. Returns those that they had."""
        replaced = [] if self._lacks(values) else [self.get(key) for key in values]
        self._changes.update(values)
        return [value for value in replaced if value is not None]

    def __bool__(self) -> bool:
        """Returns whether there may be a key with a value."""
        return bool(self._before or self._changes)

    def set_groups(self, groups: Sequence[ValueGroup[K, V]]) -> list[ValueGroup[K, V]]:
        """Gives the keys of groups their values. Returns the groups of which a key has a value already.

        Of those no key gets a value.
        """
        values: dict[K, V | ValueGroup[K, V] | None] = {}
        for group in groups:
            values.update(dict.fromkeys(group.keys, group))
        if len(values) == sum(len(group.keys) for group in groups) and self._lacks(values):
            self._changes.update(values)
            return []
        return [group for group in groups if not self._set_group(group)]

    def _set_group(self, group: ValueGroup[K, V]) -> bool:
        values = dict.fromkeys(group.keys, group)
        if len(values) < len(group.keys) or not self._lacks(values):
            return False
        self._changes.update(values)
        return True

    def _lacks(self, values: Mapping[K, object]) -> bool:
        """Returns whether none of the keys has a value, or was removed."""
        if not self._changes.keys().isdisjoint(values.keys()):
            return False
        return not self._before or not any(key in self._before for key in values)

    def remove(self, key: K) -> V | None:
        """Takes the value from a key. Returns the one that it had, None if it had none."""
        before = self.get(key)
        if before is not None:
            self._changes[key] = None
        return before

    def result(self) -> LayeredMap[K, V]:
        """Returns the mapping with these changes."""
        self._before, self._changes = self._before.changed(self._changes), {}
        return self._before
