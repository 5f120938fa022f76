"""Decides when waiting appends become a batch, and under which key: no clock, no threads, no rows."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lakefold_ingest.proposals.key import APP_ID, MAX_BATCH_ID, Key, check_app_id, new_key
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from lakefold_ingest.view import View


class PendingAppend(Protocol):
    """An append that waits: its number of rows, its size in bytes, and when it came, in seconds."""

    @property
    def rows(self) -> int:
        """The number of its rows."""

    @property
    def size(self) -> int:
        """The size of the append in bytes."""

    @property
    def added_at(self) -> float:
        """The time when the append was added, in seconds of any clock."""

    @property
    def shape(self) -> Hashable:
        """The columns of the append. Only appends with equal columns share a batch."""


P = TypeVar("P", bound=PendingAppend)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is full: by rows, by bytes, or because its oldest append has waited `max_delay_s` seconds.

    Raises `InvalidError` if a limit is not above 0; `max_delay_s` may be 0.
    """

    max_rows: int = 100_000
    max_bytes: int = 64 * 1024 * 1024
    max_delay_s: float = 0.1

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes"):
            if not getattr(self, name) > 0:
                raise InvalidError(f"{getattr(self, name)} is not above 0", where=name)
        if not self.max_delay_s >= 0:
            raise InvalidError(f"{self.max_delay_s:g} is below 0", where="max_delay")


class Batching(Generic[P]):
    """The appends that wait, in their order.

    A batch is a run of consecutive appends with equal columns. It ends before the append that would exceed a
    limit, so only a single append exceeds it. A batch that can't grow any more is due at once.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._waiting: deque[P] = deque()
        self._rows = 0
        self._size = 0
        # How often the columns change from one waiting append to the next.
        self._column_changes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, append: P) -> None:
        """Adds an append after the others."""
        if self._waiting and self._waiting[-1].shape != append.shape:
            self._column_changes += 1
        self._waiting.append(append)
        self._rows += append.rows
        self._size += append.size

    def due_at(self) -> float | None:
        """Returns when the first batch is due at the latest; None if nothing waits.

        The time is that of the oldest append if the batch is full already.
        """
        if not self._waiting:
            return None
        first = self._waiting[0]
        is_full = self._rows >= self._limits.max_rows or self._size >= self._limits.max_bytes
        if is_full or self._column_changes:
            return first.added_at
        return first.added_at + self._limits.max_delay_s

    def take(self) -> list[P]:
        """Removes the appends of the first batch and returns them; an empty list if nothing waits."""
        batch: list[P] = []
        rows = size = 0
        while self._waiting:
            append = self._waiting[0]
            fits = (
                rows + append.rows <= self._limits.max_rows and size + append.size <= self._limits.max_bytes
            )
            if batch and not (fits and append.shape == batch[0].shape):
                break
            batch.append(self._waiting.popleft())
            rows, size = rows + append.rows, size + append.size
        if self._waiting and self._waiting[0].shape != batch[-1].shape:
            self._column_changes -= 1
        self._rows -= rows
        self._size -= size
        return batch


class BatchIds:
    """Numbers the batches of an app after the highest that the table has; without app, new uuids."""

    def __init__(self, app_id: str | None) -> None:
        if app_id is not None:
            check_app_id(app_id)
        self._app_id = app_id
        self._next = 0

    @property
    def is_numbered(self) -> bool:
        """Whether the batches have numbers, which another writer of the app could use as well."""
        return self._app_id is not None

    def continue_after(self, view: View | None) -> None:
        """Continues after the highest batch id that the table has, if that is higher than the last one."""
        highest = None if view is None or self._app_id is None else view.highest_batch(self._app_id)
        if highest is not None:
            self._next = max(self._next, highest + 1)

    @contextmanager
    def next_key(self) -> Iterator[Key]:
        """Yields the key with which the next batch is sent in this block.

        The key is used again only if the block ends with an `InvalidError`: then no table has it. Raises
        `InvalidError` if the table has the highest number that a batch may have.
        """
        if self._app_id is not None and self._next > MAX_BATCH_ID:
            message = f"no number is left for a batch of {self._app_id}: the table has batch {MAX_BATCH_ID}"
            raise InvalidError(message, where=APP_ID, hint="give the writer another one, which begins at 0")
        is_free = False
        try:
            yield new_key() if self._app_id is None else Key(self._app_id, self._next)
        except InvalidError:
            is_free = True
            raise
        finally:
            self._next += not is_free
