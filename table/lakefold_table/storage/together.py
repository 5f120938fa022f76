"""Several requests at one time, for stores whose every call waits for a network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Result = TypeVar("Result")
Item = TypeVar("Item")


def together(ask: Callable[[Item], Result], items: Sequence[Item], at_one_time: int) -> list[Result]:
    """`ask` for each item, so many at one time, in order; the first error is raised after all ended."""
    if len(items) < 2:  # noqa: PLR2004 - one alone needs no threads
        return [ask(item) for item in items]
    with ThreadPoolExecutor(min(len(items), at_one_time)) as pool:
        return list(pool.map(ask, items))
