"""A store that hands its calls on to another one, for stores of tests that count or change some of them."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from lakefold_table.storage.base import Storage

if TYPE_CHECKING:
    from collections.abc import Callable


class StorageWrapper:
    """Hands on to `storage` every call that a subclass doesn't have.

    A call that `storage` takes from `Storage` consists of other calls, and these are handed on.
    """

    uri: str
    cheap_size: bool
    lists_in_order: bool
    calls_sure_last: bool
    records_versions: bool

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - hands on any call
        value = getattr(self._storage, name)
        if not callable(value):
            return value
        call = getattr(type(self._storage), name, None)
        if call is getattr(Storage, name, None) and call is not None:
            return MethodType(call, self)
        return self._handed_on(name, value)

    def _handed_on(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        """Returns what is called instead of the other store's call of this name."""
        del name
        return call
