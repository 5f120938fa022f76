"""What a table's schema demands of the data files of a fragment (format facts, section 4.4).

A table sees few kinds of fragment (the same columns in the same file version again and again), so the verdict
on each kind is remembered and a fragment costs one look-up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFragment

Shape = tuple[tuple[int, int, tuple[int, ...], tuple[int, ...]], ...]
MAX_REMEMBERED = 1024
LEGACY = ((0, 0), (0, 1), (0, 2))
KNOWN_VERSIONS = ("2.0", "2.1", "2.2", "2.3")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one schema, and the kinds of fragment already judged against it.

    `legacy`: the table's files have a version before 2. `names`: the dotted name of each field id.
    `required`: for each column that may not be null its name and the field ids of which one must be in a
    file.
    """

    names: dict[int, str]
    required: tuple[tuple[str, frozenset[int]], ...]
    legacy: bool
    judged: dict[Shape, Invalid | None] = field(default_factory=dict, compare=False)

    def fault(self, fragment: DataFragment) -> Invalid | None:
        """Why the fragment's files don't fit the schema; None where they do."""
        shape = tuple(
            (f.file_major_version, f.file_minor_version, tuple(f.fields), tuple(f.column_indices))
            for f in fragment.files
        )
        if shape not in self.judged:
            if len(self.judged) >= MAX_REMEMBERED:
                self.judged.clear()
            self.judged[shape] = self._judge(shape)
        return self.judged[shape]

    def _judge(self, shape: Shape) -> Invalid | None:
        if not shape:
            return Invalid("a fragment has no data file", "each fragment names at least one file")
        ids: list[int] = []
        for major, minor, fields, indices in shape:
            fault = self._file_fault(major, minor, fields, indices)
            if fault:
                return fault
            ids += fields
        if len(set(ids)) != len(ids):
            twice = sorted({number for number in ids if ids.count(number) > 1})
            return Invalid(
                f"field ids {twice} lie in the fragment twice", "a field has one file per fragment"
            )
        return self._missing(frozenset(ids))

    def _file_fault(
        self, major: int, minor: int, fields: tuple[int, ...], indices: tuple[int, ...]
    ) -> Invalid | None:
        legacy = (major, minor) in LEGACY
        if not legacy and f"{major}.{minor}" not in KNOWN_VERSIONS:
            return Invalid(
                f"data file version {major}.{minor} is not known", f"known: {', '.join(KNOWN_VERSIONS)}"
            )
        if legacy != self.legacy:
            return Invalid(
                "files of version 2 and older ones can't be mixed in one table", "rewrite the files"
            )
        unknown = sorted(number for number in fields if number not in self.names)
        if unknown:
            return Invalid(
                f"field ids {unknown} are not the table's: it has {sorted(self.names)}",
                "open the table, take its schema and field ids, and write the files again",
            )
        if not legacy and len(indices) != len(fields):
            return Invalid(
                f"{len(fields)} field ids have {len(indices)} column indices", "give one for each field"
            )
        return None

    def _missing(self, ids: frozenset[int]) -> Invalid | None:
        missing = [name for name, either in self.required if ids.isdisjoint(either)]
        if not missing:
            return None
        return Invalid(
            f"columns {missing} may not be null and are in no file", "write every column that isn't nullable"
        )


def columns_of(fields: Sequence[Field], storage_version: str) -> Columns:
    """The columns of a schema whose parents stand before their children."""
    names: dict[int, str] = {}
    top: dict[int, int] = {}
    for one in fields:
        parent = names.get(one.parent_id)
        names[one.id] = one.name if parent is None else f"{parent}.{one.name}"
        top[one.id] = one.id if parent is None else top[one.parent_id]
    required = tuple(
        (one.name, frozenset(number for number, root in top.items() if root == one.id))
        for one in fields
        if top[one.id] == one.id and not one.nullable
    )
    return Columns(names, required, storage_version.startswith("0.") or storage_version == "legacy")
