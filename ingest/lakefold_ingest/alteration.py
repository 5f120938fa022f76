"""What a user changes of a table's columns and properties, whatever its format is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of a table that one version makes together.

    `add`: new columns, after the others. `rename`: new names by the present ones. `widen`: the wider types of
    columns. `properties`: their values, None for one that is removed. Raises `InvalidError` if nothing is
    changed, a column is named twice, or a new one may not be null.
    """

    add: tuple[pa.Field, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    widen: Mapping[str, pa.DataType] = field(default_factory=dict)
    properties: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.parts:
            hint = "name what is changed: add, rename, drop, widen or properties"
            raise InvalidError("nothing is to be changed", hint=hint)
        for names in ([*self.rename, *self.drop, *self.widen], [each.name for each in self.add]):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                hint = "change a column in one way at a time"
                raise InvalidError("the column is named twice", where=twice[0], hint=hint)
        again = [each.name for each in self.add if each.name in self.drop]
        if again:
            message = (
                "the column is dropped and added: who follows the table would not see that its values went"
            )
            raise InvalidError(message, where=again[0], hint="drop it first, and add it by another call")
        required = [each.name for each in self.add if not each.nullable]
        if required:
            message = "the new column is NOT NULL, and the rows of the table have no value for it"
            raise InvalidError(message, where=required[0], hint="add it as one that may be null")

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that change something."""
        return tuple(name for name in self.__slots__ if getattr(self, name))

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.parts)

    def check(self, columns: Collection[str], held: Mapping[str, str], where: str) -> None:
        """Raises `InvalidError` that names a column of which a change makes no sense.

        `columns`: those of the table. `held`: why some can't be dropped or renamed.
        """
        for name in (*self.rename, *self.drop, *self.widen):
            if name not in columns:
                hint = f"the columns are {', '.join(columns)}"
                raise InvalidError(f"the table has no column {name!r} at the top", where=where, hint=hint)
        for name in (*self.rename, *self.drop):
            if name in held:
                message = f"the column {name!r} can't be dropped or renamed: {held[name]}"
                raise InvalidError(message, where=where, hint="leave it, or copy the table into a new one")
        stay = [self.rename.get(name, name) for name in columns if name not in self.drop]
        if not stay and not self.add:
            raise InvalidError("all columns would be dropped", where=where, hint="`lakefold drop` does that")
        after = Counter(name.lower() for name in (*stay, *(each.name for each in self.add)))
        for name in (*self.rename.values(), *(each.name for each in self.add)):
            if after[name.lower()] > 1:
                hint = "choose another name: case doesn't count"
                raise InvalidError(f"the table would have two columns {name!r}", where=where, hint=hint)
