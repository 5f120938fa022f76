"""What a merge does to which rows, as data: clauses, of which the first that holds for a row is applied.

The clauses are those of Delta's MERGE. A row of the table whose key is in the batch is *matched*, any other
row of the table is *not matched by the source*, and a row of the batch whose key is not in the table is *not
matched*. Each of the three kinds has its own list of clauses, in the order in which they are given. A row for
which no clause holds stays as it is; a row of the batch for which none holds is not inserted.

A condition is SQL as pylance understands it. `source.x` is column `x` of the batch, which the table need not
have, `target.x` column `x` of the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

NONE_HOLDS = -1
_NAME: Final = re.compile(r"[\w-]+")
"""Names that can't be taken for conditions."""


@dataclass(frozen=True, slots=True)
class MatchedUpdate:
    """Gives matched rows the batch's values of `columns` (None: of all columns that the batch has).

        lakefold.MatchedUpdate(["country"], "source.version > target.version")

    `assignments`: for each of some columns the SQL expression of its new value instead, in which `source.x`
    is column `x` of the batch and `target.x` the old value of column `x`.
    """

    columns: Sequence[str] | None = None
    condition: str | None = None
    assignments: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", names_of(self.columns, "columns"))


@dataclass(frozen=True, slots=True)
class MatchedDelete:
    """Deletes matched rows.

    lakefold.MatchedDelete("source.deleted")
    """

    condition: str | None = None


@dataclass(frozen=True, slots=True)
class NotMatchedInsert:
    """Inserts rows of the batch whose key the table does not have. Columns that the batch lacks are null.

    lakefold.NotMatchedInsert("not source.deleted")
    """

    condition: str | None = None


@dataclass(frozen=True, slots=True)
class NotMatchedBySourceDelete:
    """Deletes rows of the table whose key the batch does not have.

    lakefold.NotMatchedBySourceDelete("target.country = 'XX'")
    """

    condition: str | None = None


@dataclass(frozen=True, slots=True)
class NotMatchedBySourceUpdate:
    """Changes rows of the table whose key the batch does not have.

        lakefold.NotMatchedBySourceUpdate({"version": "target.version + 1"})

    `assignments`: for each column the SQL expression of its new value, in which `target.x` is the old value
    of column `x`.
    """

    assignments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    condition: str | None = None


Matched = MatchedUpdate | MatchedDelete
BySource = NotMatchedBySourceDelete | NotMatchedBySourceUpdate
Clause = Matched | NotMatchedInsert | BySource

UPSERT: tuple[Clause, ...] = (MatchedUpdate(), NotMatchedInsert())
"""The clauses of an upsert that names none."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The keys by which rows are matched, the columns that order rows of the same key, and the clauses.

    Raises `InvalidError` if no key is named, a key is named twice, or a clause can never be reached.
    """

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    clauses: tuple[Clause, ...] = UPSERT

    def __post_init__(self) -> None:
        check_names(self.keys, self.order_by)
        if not self.clauses:
            raise InvalidError(
                "no clause is given", where=OptionName("clauses"), hint="leave it out for an upsert"
            )
        for clause in self.clauses:
            _check_clause(clause)
        for kind in (self.matched, self.inserts, self.by_source):
            for number, clause in enumerate(kind[:-1]):
                if clause.condition is None:
                    raise InvalidError(
                        f"{kind[number + 1]} can never be reached, because {clause} has no condition",
                        where=OptionName("clauses"),
                        hint="only the last clause of its kind may leave out the condition",
                    )

    @property
    def matched(self) -> tuple[Matched, ...]:
        """The clauses for rows of the table whose key is in the batch."""
        return tuple(clause for clause in self.clauses if isinstance(clause, Matched))

    @property
    def inserts(self) -> tuple[NotMatchedInsert, ...]:
        """The clauses for rows of the batch whose key is not in the table."""
        return tuple(clause for clause in self.clauses if isinstance(clause, NotMatchedInsert))

    @property
    def by_source(self) -> tuple[BySource, ...]:
        """The clauses for rows of the table whose key is not in the batch."""
        return tuple(clause for clause in self.clauses if isinstance(clause, BySource))

    @property
    def assigned(self) -> frozenset[str]:
        """The columns of matched rows that get values of expressions."""
        return frozenset(name for clause in self.matched for name in assignments_of(clause))

    @property
    def needs_one_row(self) -> bool:
        """Whether the values of a row of the batch matter, so that each key must have one row."""
        return bool(self.inserts) or any(
            isinstance(clause, MatchedUpdate) or clause.condition is not None for clause in self.matched
        )

    def left_out(self, batch: Iterable[str], table: Collection[str]) -> list[str]:
        """Returns the columns of the batch that only order its rows or are in conditions, as `source.x`.

        The table lacks them. `batch` and `table` are the columns of each.
        """
        conditions = [clause.condition or "" for clause in (*self.matched, *self.inserts)]
        conditions += [text for clause in self.matched for text in assignments_of(clause).values()]
        known = frozenset(table)
        return [
            name
            for name in batch
            if name not in known and (name in self.order_by or _is_named(name, conditions))
        ]

    def check_columns(self, batch: Collection[str], table: Collection[str], where: str = "") -> None:
        """Raises `InvalidError` if the keys, the order or a clause name a column that is missing.

        `batch` and `table` are the columns of each; `where` names the table.
        """
        check_not_nested(self.keys, [*batch, *table])
        columns = {"batch": batch, "table": table}
        faults = [
            f"{what.format(name)} is not in the {side}"
            for what, names, sides in self._named()
            for name in names
            for side in sides
            if name not in columns[side]
        ]
        faults += [
            f"the update names {name}, which is a key, and keys keep their values"
            for name in sorted(self.assigned & {*self.keys})
        ]
        if faults:
            raise InvalidError("; ".join(faults), where=where, hint=self._hint_for_columns(table))

    def _named(self) -> Iterator[tuple[str, Iterable[str], tuple[str, ...]]]:
        """Yields a text that says what names columns, their names, and where each must be."""
        yield "key {}", self.keys, ("batch", "table")
        yield "the order names {}, which", self.order_by, ("batch",)
        yield "the update names {}, which", sorted(self.assigned), ("table",)
        for clause in self.clauses:
            if isinstance(clause, MatchedUpdate):
                yield "the update names {}, which", clause.columns or (), ("batch", "table")
            elif isinstance(clause, NotMatchedBySourceUpdate):
                what = "the update of rows not matched by the source names {}, which"
                yield what, clause.assignments, ("table",)

    def _hint_for_columns(self, table: Collection[str]) -> str:
        """Returns what to do about missing columns, of which a clause may name one that is a condition."""
        for clause in self.clauses:
            for name in (clause.columns or ()) if isinstance(clause, MatchedUpdate) else ():
                if name not in table and not _NAME.fullmatch(name):
                    return f'if it is a condition, give it by name: MatchedUpdate(condition="{name}")'
        return "names are case-sensitive"


def assignments_of(clause: Clause) -> Mapping[str, str]:
    """Returns the expressions that a clause assigns, by column."""
    if isinstance(clause, MatchedUpdate | NotMatchedBySourceUpdate):
        return clause.assignments or {}
    return {}


def _is_named(column: str, conditions: Iterable[str]) -> bool:
    """Returns whether a condition names a column of the batch."""
    pattern = re.compile(rf"""\bsource["`]?\s*\.\s*["`]?{re.escape(column)}(?!\w)""")
    return any(map(pattern.search, conditions))


def _check_clause(clause: object) -> None:
    if not isinstance(clause, Clause):
        hint = "give lakefold.MatchedUpdate(), for example"
        raise InvalidError(f"{clause!r} is not a clause", where=OptionName("clauses"), hint=hint)
    if isinstance(clause, MatchedUpdate) and clause.columns == () and not clause.assignments:
        raise InvalidError(
            "an update names no column", where=OptionName("clauses"), hint="leave out columns for all of them"
        )
    assignments: object = getattr(clause, "assignments", None)
    may_lack = not isinstance(clause, NotMatchedBySourceUpdate) and assignments is None
    if not may_lack and not (isinstance(assignments, Mapping) and assignments):
        raise InvalidError(
            f"{type(clause).__name__} assigns nothing",
            where=OptionName("clauses"),
            hint='give assignments={"active": "false"}, for example',
        )
    for name, text in assignments_of(clause).items():
        if not isinstance(text, str):
            message = f"{text!r}, the value of {name}, is no text"  # type: ignore[unreachable] # by callers that check types
            raise InvalidError(message, where=OptionName("clauses"), hint="give the value as SQL, as a text")
    if clause.condition is not None and not isinstance(clause.condition, str):
        message = f"{clause.condition!r} is not a condition"  # type: ignore[unreachable] # by callers that check types
        raise InvalidError(message, where=OptionName("clauses"), hint="give a text of SQL")
    if clause.condition is not None and not clause.condition.strip():
        raise InvalidError(
            f"the condition of {clause} is empty", where=OptionName("clauses"), hint="leave it out"
        )


def check_names(keys: Sequence[str], order_by: Sequence[str]) -> None:
    """Raises `InvalidError` if no key column is named, or a key or an ordering column is named twice."""
    if not keys:
        raise InvalidError(
            "no key column is named", where=OptionName("keys"), hint="name those that identify a row"
        )
    for name, columns in (("keys", keys), ("order_by", order_by)):
        twice = [column for column, count in Counter(columns).items() if count > 1]
        if twice:
            raise InvalidError(f"{', '.join(twice)} is named twice", where=OptionName(name))


def check_not_nested(keys: Iterable[str], columns: Collection[str]) -> None:
    """Raises `InvalidError` if a key is a field of a struct, as `p.a` of the column `p`."""
    for key in keys:
        parent, dot, _ = key.partition(".")
        if dot and key not in columns and parent in columns:
            raise InvalidError(
                f"{key} is a field of the column {parent}: keys are whole columns, and can't be in structs",
                where=OptionName("keys"),
                hint=f"give the batch and the table a column with the values of {key}, and name that one",
            )


def names_of(columns: str | Iterable[str] | None, option: str) -> tuple[str, ...]:
    """Returns columns that were given as a single name, as several, or as None. Raises `InvalidError`."""
    if columns is None:
        return ()
    given: tuple[object, ...] = (columns,) if isinstance(columns, str) else _several(columns, option)
    names = tuple(name for name in given if isinstance(name, str) and name)
    if len(names) < len(given):
        message = f"{given!r} are not names of columns"
        raise InvalidError(message, where=OptionName(option), hint="give a name or several")
    return names


def _several(columns: object, option: str) -> tuple[object, ...]:
    if not isinstance(columns, Iterable):
        raise InvalidError(
            f"{columns!r} is not a name of a column", where=OptionName(option), hint="give a name or several"
        )
    return tuple(columns)


def first_that_holds(holds: Sequence[NDArray[np.bool_] | None], rows: int) -> NDArray[np.int64]:
    """Returns for each of `rows` rows the index of the first clause that holds, `NONE_HOLDS` if none does.

    `holds` has for each clause whether it holds for each row; None: it holds for all.
    """
    chosen = np.full(rows, NONE_HOLDS, np.int64)
    for index, mask in enumerate(holds):
        free = chosen == NONE_HOLDS
        chosen[free if mask is None else free & mask] = index
    return chosen
