"""The files that a checkpoint or a commit lists, as columns: most files of a large table are never looked at.

A table of a million files is opened in the time of reading its columns. A file becomes a value once it is
asked for, together with those that are listed beside it. What can be wrong with a file is checked before.
"""

from __future__ import annotations

from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.fields import (
    FLAG,
    LONG,
    TEXT,
    TEXT_MAP,
    ActionField,
    fields_of,
    shared_texts,
)
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.layered_map import ValueGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

GROUP: Final = 256
"""How many files become values together. It takes about a millisecond."""
_PATH: Final = "path"
_SIZE: Final = "size"
_EXTRA: Final = "extra"


class FileColumns:
    """Actions about files of one kind, each member as a column for all of them."""

    __slots__ = ("_columns", "_kind", "count")

    def __init__(self, kind: type[Any], columns: dict[str, Any], count: int) -> None:
        """`columns`: by attribute, an Arrow array or a list; without those that no action has."""
        self.count = count
        self._kind = kind
        self._columns = columns

    @classmethod
    def of(cls, kind: type[Any], rows: Any, where: str) -> FileColumns | None:  # noqa: ANN401 - an Arrow array
        """Checks the columns of an array of structs.

        Returns None if a member is not of the type that it mostly has, or is missing in a row. Raises
        `DamagedError` if a deletion vector is malformed, and `ValueError` if a text is not UTF-8.
        """
        present = {member.name: rows.field(at) for at, member in enumerate(rows.type)}
        columns = {}
        for field in fields_of(kind):
            column = present.get(field.name)
            if field.required and (column is None or column.null_count):
                return None
            if column is None or column.null_count == len(column):
                continue
            checked = _checked(field, column, f"{where}, {kind.NAME}")
            if checked is None:
                return None
            columns[field.attribute] = checked
        return cls(kind, columns, len(rows))

    def groups(self) -> Iterator[FileGroup]:
        """Yields the files in groups, in their order; for files that are added."""
        paths, sizes = self._columns[_PATH].to_pylist(), self._columns[_SIZE].to_pylist()
        # The paths are the keys of the groups, and take their memory once.
        others = {name: column for name, column in self._columns.items() if name != _PATH}
        columns = FileColumns(self._kind, others, self.count)
        for start in range(0, self.count, GROUP):
            end = start + GROUP
            yield FileGroup(columns, start, paths[start:end], sum(sizes[start:end]))

    def actions(self) -> Iterator[Any]:
        """Returns the actions in their order."""
        return self._actions(0, self.count, None)

    def files(self, start: int, paths: Sequence[str]) -> Iterator[AddFile]:
        """Returns the files from an index on, whose paths were decoded before."""
        return self._actions(start, len(paths), paths)

    def _actions(self, start: int, count: int, paths: Sequence[str] | None) -> Iterator[Any]:
        values: list[Iterable[Any]] = []
        for attribute in self._kind.__match_args__:
            column = self._columns.get(attribute)
            if attribute == _PATH and paths is not None:
                values.append(paths)
            elif attribute != _EXTRA:
                values.append(repeat(None) if column is None else _values(column[start : start + count]))
        return map(self._kind, *values)


class FileGroup(ValueGroup[str, AddFile]):
    """Some files that are added, by path. `size_bytes`: of their data files."""

    __slots__ = ("_columns", "_files", "_keys", "_start", "size_bytes")

    def __init__(self, columns: FileColumns, start: int, paths: list[str], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._columns: FileColumns | None = columns
        self._start = start
        self._keys = paths
        self._files: Mapping[str, AddFile] = {}

    @property
    def keys(self) -> Sequence[str]:
        """The paths. No path may be there twice if a file is asked for by its path."""
        return self._keys

    def value_of(self, key: str) -> AddFile:
        """Returns the file of a path."""
        if self._columns is not None:
            # Another thread may do the same meanwhile: the files are equal.
            self._files = dict(zip(self._keys, self.files(), strict=True))
            self._columns = None
        return self._files[key]

    def files(self) -> Iterable[AddFile]:
        """Returns all files."""
        columns = self._columns
        return self._files.values() if columns is None else columns.files(self._start, self._keys)


def _checked(field: ActionField, column: Any, where: str) -> Any:  # noqa: ANN401 - an Arrow array
    """Returns the column, or its values if they have to be decoded to check them.

    Returns None if the column has another type.
    """
    from pyarrow import types

    kind = column.type
    if field.kind.read is None:
        fits = {TEXT: types.is_string, LONG: types.is_signed_integer, FLAG: types.is_boolean}[field.kind](
            kind
        )
    else:
        fits = types.is_map(kind) and types.is_string(kind.key_type) and types.is_string(kind.item_type)
    if fits:
        column.validate(full=True)
        return column
    if field.kind.read is None or not types.is_struct(kind):
        return None
    if field.kind is TEXT_MAP:
        return _texts_in(column)
    return [
        None if row is None else field.kind.read(members_present(row), where) for row in column.to_pylist()
    ]


def _texts_in(column: Any) -> list[Mapping[str, str | None] | None]:  # noqa: ANN401 - an Arrow array
    """Returns objects of strings that are stored as structs: equal ones are made once."""
    names = [member.name for member in column.type]
    members = [member.to_pylist() for member in column.flatten()]
    rows = list(zip(*members, strict=True)) if names else [()] * len(column)
    objects = {row: shared_texts(members_present(dict(zip(names, row, strict=True)))) for row in set(rows)}
    valid = column.is_valid().to_pylist()
    return [objects[row] if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def members_present(members: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members of an object that are not null."""
    return {name: content for name, content in members.items() if content is not None}


def _values(column: Any) -> Iterable[Any]:  # noqa: ANN401 - an Arrow array, or a list
    """Returns the values of a member."""
    from pyarrow import types

    if isinstance(column, list):
        return column
    return _text_maps(column) if types.is_map(column.type) else column.to_pylist()


def _text_maps(column: Any) -> Iterator[Mapping[str, str | None] | None]:  # noqa: ANN401 - an Arrow array
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    keys, items = (part[first : offsets[-1]].to_pylist() for part in (column.keys, column.items))
    for (start, end), is_valid in zip(pairwise(offsets), column.is_valid().to_pylist(), strict=True):
        members = dict(
            zip(keys[start - first : end - first], items[start - first : end - first], strict=True)
        )
        yield shared_texts(members) if is_valid else None
