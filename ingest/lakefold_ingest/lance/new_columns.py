"""Which columns of a batch a table lacks, and the table's schema with them.

New columns are nullable, because the rows that the table has already have no values for them. They are added
after the table's columns, and new fields of a struct after its fields. All fields of the table stay as they
are, with their ids, metadata and nullability, so nothing that was written has to be written again. Types that
are too narrow are another matter: `wider_types`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.lance.file_types import each_type, needs_values, type_faults
from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.columns.extension_types import storage_of
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from lakefold_table.lance.schemas.data_files import V2_0, FileVersion, is_one_column
from lakefold_table.lance.schemas.schema import TOP, children

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class NewColumns:
    """The columns that a table lacks.

    `fields`: the schema with them, parents before children. `names`: the names of the new columns, dotted if
    they are in a struct.
    """

    fields: tuple[Field, ...]
    names: tuple[str, ...]


def new_columns(
    batch: pa.Schema, table: Sequence[Field], highest_id: int, version: FileVersion, where: str = ""
) -> NewColumns | None:
    """Returns the table's schema with the columns that only the batch has; None if the table has them all.

    `highest_id`: the highest field id that the table has used; new columns come after it (Lance fact 4.2).
    `version`: that of the table's data files. Columns that both have are not compared: `fitting.fit` does
    that. Raises `InvalidError` naming the column (`where` names the table) if a new one has no type, a name
    that differs from a column of the table in case only, or is one that Lance can't store or add.
    """
    adding = _Adding(children(table), version, where, highest_id + 1)
    fields = list(adding.fields_of(TOP, list(batch), ""))
    return NewColumns(tuple(fields), tuple(adding.names)) if adding.names else None


class _Adding:
    """Walks the schemas of a batch and a table together, and numbers the new fields."""

    def __init__(
        self, below: Mapping[int, Sequence[Field]], version: FileVersion, where: str, next_id: int
    ) -> None:
        self._below = below
        self._version = version
        self._where = where
        self._next_id = next_id
        self.names: list[str] = []

    def fields_of(self, parent: int, batch: Sequence[pa.Field], path: str) -> Iterator[Field]:
        """Yields the fields below `parent`, depth first, and then what only the batch has there."""
        given = {field.name: field for field in batch}
        known = {field.name for field in self._below.get(parent, ())}
        in_lower_case = {name.lower(): name for name in known}
        for present in self._below.get(parent, ()):
            yield from self._grown(present, given.get(present.name), path)
        for name, field in given.items():
            if name not in known:
                self._check_name(path, name, in_lower_case)
                yield from self._added(field, parent, path)

    def _grown(self, field: Field, given: pa.Field | None, path: str) -> Iterator[Field]:
        """Yields a field of the table and those below it, with what only the batch has in its structs.

        Structs in maps, large lists and fixed-size lists get no new fields: pylance can't read the older
        files then.
        """
        yield field
        kind = None if given is None else storage_of(given.type)
        name = f"{path}{field.name}."
        if kind is not None and types.is_struct(kind) and self._may_grow(field):
            yield from self.fields_of(field.id, list(kind), name)
        elif kind is not None and types.is_list(kind) and field.logical_type == "list.struct":
            yield from self._grown(self._below[field.id][0], kind.value_field, name)
        else:
            yield from self._all_below(field.id)

    def _may_grow(self, field: Field) -> bool:
        """Returns whether each child of the struct has a column of its own, so that one may be missing."""
        return field.logical_type == "struct" and not is_one_column(field, self._version)

    def _all_below(self, parent: int) -> Iterator[Field]:
        for field in self._below.get(parent, ()):
            yield field
            yield from self._all_below(field.id)

    def _check_name(self, path: str, name: str, known: Mapping[str, str]) -> None:
        """`known`: the names that the table has, by these in lower case."""
        near = known.get(name.lower())
        if near is not None:
            raise self._error(
                f"{path}{name} can't be added, because the table has {path}{near}",
                "rename the column of the batch; SQL can't distinguish names that differ in case only",
            )

    def _added(self, column: pa.Field, parent: int, path: str) -> Iterator[Field]:
        """Yields the fields of a new column, which is nullable."""
        name = path + column.name
        self._check_type(column, path)
        try:
            made = schema_from_arrow(pa.schema([column.with_nullable(nullable=True)]), self._version).fields
        except InvalidError as error:
            raise self._error(f"{path}{error.where} can't be added: {error.message}", error.hint) from error
        first = self._next_id
        self._next_id += len(made)
        self.names.append(name)
        for field in made:
            numbered = Field()
            numbered.CopyFrom(field)
            numbered.id += first
            numbered.parent_id = parent if field.parent_id == TOP else field.parent_id + first
            yield numbered

    def _check_type(self, column: pa.Field, path: str) -> None:
        """Raises `InvalidError` for a type, at any depth, that can't be added to this table."""
        for name, kind in each_type([column], path):
            if types.is_null(kind):
                hint = "cast it to the type that it should have, or leave it out"
                raise self._error(f"{name} can't be added, because it has no type, only nulls", hint)
        if self._version < V2_0:
            shown = ".".join(map(str, self._version))
            what = f"{path}{column.name} ({column.type})"
            hint = "copy the table into a new one, whose files have version 2.0 or later"
            raise self._error(f"{what} can't be added to data files of version {shown}", hint)
        if needs_values(column, self._version):
            message = (
                f"{path}{column.name} can't be added, because it is a struct, which is null in the rows "
                "that the table has, and data files of version 2.0 can't hold null structs"
            )
            raise self._error(message, "add its fields as columns, or copy the table into a new one")
        for fault in type_faults([column], self._version, path):
            raise self._error(f"{fault.path} can't be added, because {fault.reason}", fault.hint)

    def _error(self, message: str, hint: str) -> InvalidError:
        return InvalidError(message, where=self._where, hint=hint)
