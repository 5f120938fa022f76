"""The clauses of a merge as options give them: a condition for each kind of clause, as text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakefold_ingest.merge.clauses import (
    MatchedDelete,
    MatchedUpdate,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
)
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.merge.clauses import Clause

ALWAYS = "true"
"""A clause with this condition holds for every row of its kind, so it needs no evaluation."""


@dataclass(frozen=True, slots=True)
class ClauseTexts:
    """A clause of each kind, with its condition in SQL; None: there is no such clause.

    A deletion is checked before an update of the same kind, since options have no order. `update_columns` are
    those that an update of matched rows changes, empty for all; `when_matched_set` has the values of some
    columns as SQL. `when_not_matched_by_source_set` has the new
    values of rows that the batch doesn't have, as SQL by column.
    """

    when_matched_delete: str | None = None
    when_matched_update: str | None = None
    when_not_matched_insert: str | None = None
    when_not_matched_by_source_delete: str | None = None
    when_not_matched_by_source_update: str | None = None
    update_columns: tuple[str, ...] = ()
    when_matched_set: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    when_not_matched_by_source_set: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def clauses(self) -> tuple[Clause, ...]:
        """Returns the clauses. If no condition is given, they are those of an upsert.

        Raises `InvalidError` if columns or values are given for an update that isn't, or a condition is
        empty.
        """
        update = MatchedUpdate(self.update_columns or None, None, self.when_matched_set or None)
        values = self.when_not_matched_by_source_set
        made: tuple[tuple[str | None, Clause], ...] = (
            (self.when_matched_delete, MatchedDelete()),
            (self.when_matched_update, update),
            (self.when_not_matched_insert, NotMatchedInsert()),
            (self.when_not_matched_by_source_delete, NotMatchedBySourceDelete()),
            (self.when_not_matched_by_source_update, NotMatchedBySourceUpdate(values)),
        )
        if not values and all(text is None for text, _ in made):
            return update, NotMatchedInsert()
        if any(text is not None for text, _ in made) and self.when_matched_update is None:
            for name in ("update_columns", "when_matched_set"):
                if getattr(self, name):
                    raise _without_update(name, "when_matched_update")
        if bool(values) != (self.when_not_matched_by_source_update is not None):
            raise _without_update("when_not_matched_by_source_set", "when_not_matched_by_source_update")
        return tuple(replace(clause, condition=_condition(text)) for text, clause in made if text is not None)


def _condition(text: str) -> str | None:
    """Returns the condition, None if it holds always. Raises `InvalidError` if there is none."""
    if not text.strip():
        hint = '"true" is the condition that holds for all rows of its kind'
        raise InvalidError("the condition of a clause is empty", where=OptionName("clauses"), hint=hint)
    return None if text.strip().lower() == ALWAYS else text


def _without_update(first: str, second: str) -> InvalidError:
    update = OptionName(second)
    return InvalidError(
        "one of them has no meaning without the other",
        where=(OptionName(first), " and ", update),
        hint=(update, '="true" updates all rows of its kind'),
    )
