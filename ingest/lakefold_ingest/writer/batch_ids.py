"""The keys of a writer's batches, in their order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefold_ingest.proposals.key import Key, check_app_id, new_key
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_ingest.writing.view import View


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
        """Continues after the highest batch id in the table's marks, if that is higher than the last one."""
        mark = None if view is None or self._app_id is None else view.carried.apps.get(self._app_id)
        if mark is not None and mark.folded:
            self._next = max(self._next, mark.folded[-1][1] + 1)

    @contextmanager
    def next_key(self) -> Iterator[Key]:
        """Yields the key with which the next batch is sent in this block.

        The key is used again only if the block ends with an `InvalidError`: then no table has it.
        """
        is_free = False
        try:
            yield new_key() if self._app_id is None else Key(self._app_id, self._next)
        except InvalidError:
            is_free = True
            raise
        finally:
            self._next += not is_free
