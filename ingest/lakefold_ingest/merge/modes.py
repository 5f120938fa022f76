"""The modes of a write that find rows by their keys, and the merge that each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_ingest.merge.clauses import UPSERT, Clause, MatchedDelete, Merge, names_of
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterable

UPSERTS: Final = "upsert"


def merge_of(
    mode: str,
    keys: str | Iterable[str] | None,
    order_by: str | Iterable[str] | None = None,
    clauses: Iterable[Clause] | None = None,
) -> Merge:
    """Returns what is done with the rows of a batch in the mode `upsert` or `delete`.

    If `clauses` is None, an upsert updates and inserts, and a delete deletes. Raises `InvalidError` if there
    is none in it, the clauses of a delete do anything else, or an order is given that no row needs.
    """
    default = UPSERT if mode == UPSERTS else (MatchedDelete(),)
    given = default if clauses is None else tuple(clauses)
    if mode == UPSERTS:
        return Merge(names_of(keys, "keys"), names_of(order_by, "order_by"), given)
    if not all(isinstance(clause, MatchedDelete) for clause in given):
        hint = "give the condition of the rows to delete alone, or merge in the mode upsert"
        raise InvalidError(
            "a delete only deletes rows that are matched", where=OptionName("clauses"), hint=hint
        )
    merge = Merge(names_of(keys, "keys"), names_of(order_by, "order_by"), given)
    if merge.order_by and not merge.needs_one_row:
        raise InvalidError(
            "rows that are deleted need no order", where=OptionName("order_by"), hint="leave it out"
        )
    return merge
