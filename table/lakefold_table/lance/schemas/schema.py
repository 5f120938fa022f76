"""Views of a Lance schema, which is a flat list of fields that name their parents by id.

The committer compares schemas and never converts them, so this module doesn't use Arrow. Source: Lance facts
3.2, 4.1 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field

TOP = -1
"""The parent id of a column at the top level."""
LISTS = frozenset({"list", "large_list"})
LISTS_OF_STRUCTS = frozenset({"list.struct", "large_list.struct"})
LEAVES = frozenset(
    {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"null", "bool", "halffloat", "float", "double", "decimal", "fixed_size_list", "dict", "json"}
    | {"string", "large_string", "binary", "large_binary", "fixed_size_binary"}
    | {"date32", "date64", "time32", "time64", "timestamp", "duration"}
)
"""The first words of the logical types without children."""
NESTED = frozenset({"struct", "map"} | LISTS | LISTS_OF_STRUCTS)
FIXED_SIZE_LIST_OF_STRUCTS = "fixed_size_list:struct:"
CHILDREN_OF_MAP_ENTRIES = 2
RESERVED_NAMES = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
"""Names that pylance reserves for columns of its own (Lance fact 4.10)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a field id refers to: the field's name, its logical type, and names and types of its parents.

    An id has the same meaning in two schemas if these are equal. The parents are listed from the top. Their
    types matter too: data files list the ids of leaves only, and a leaf below a list is another column than
    the same leaf below a struct.
    """

    name: str
    logical_type: str
    parents: tuple[tuple[str, str], ...]

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the field's parents, from the top, and its own."""
        return (*(name for name, _ in self.parents), self.name)


def field_ids(fields: Iterable[Field]) -> list[int]:
    """Returns the ids of all fields, including parents, in the order of the schema."""
    return [field.id for field in fields]


def by_id(fields: Iterable[Field]) -> dict[int, Field]:
    """Returns the fields by their ids."""
    return {field.id: field for field in fields}


def children(fields: Iterable[Field]) -> dict[int, list[Field]]:
    """Returns the children by parent id, in the order of the schema; those of `TOP` are the columns."""
    by_parent: dict[int, list[Field]] = {}
    for field in fields:
        by_parent.setdefault(field.parent_id, []).append(field)
    return by_parent


def paths(fields: Iterable[Field]) -> dict[int, str]:
    """Returns the dotted names of the fields by id; a name with a dot or a backtick is put in backticks.

    Parents must come before their children, as `check_structure` requires.
    """
    names: dict[int, str] = {}
    for field in fields:
        parent = names.get(field.parent_id)
        name = _quoted(field.name)
        names[field.id] = name if parent is None else f"{parent}.{name}"
    return names


def identities(fields: Iterable[Field]) -> dict[int, Identity]:
    """Returns the meaning of each field id. Parents must come before their children."""
    by_field_id: dict[int, Identity] = {}
    for field in fields:
        parent = by_field_id.get(field.parent_id)
        above = () if parent is None else (*parent.parents, (parent.name, parent.logical_type))
        by_field_id[field.id] = Identity(field.name, field.logical_type, above)
    return by_field_id


def changed_ids(old: Mapping[int, Identity], new: Mapping[int, Identity], ids: Iterable[int]) -> list[int]:
    """Returns those of `ids` that don't refer to the same field in both schemas, in ascending order.

    An id that is in neither schema counts as unchanged.
    """
    return sorted({number for number in ids if old.get(number) != new.get(number)})


def related(fields: Sequence[Field], ids: Collection[int]) -> frozenset[int]:
    """Returns these fields with all their parents and children: the fields whose values change together.

    A list's file names only its item, an index on the list only the list. Parents must come before children.
    """
    parents = {field.id: field.parent_id for field in fields}
    result = set(ids)
    for field in fields:
        if field.parent_id in result:
            result.add(field.id)
    for number in ids:
        above = parents.get(number, TOP)
        while above != TOP:
            result.add(above)
            above = parents.get(above, TOP)
    return frozenset(result)


def is_altered(before: Field, after: Field, *, nullable: bool = True) -> bool:
    """Returns whether values written for a field might be unreadable as the other (Lance fact 6.8).

    The names and metadata may differ. So may the nullability, unless `nullable` is set.
    """
    names = ("logical_type", "parent_id", "encoding", "dictionary", *(("nullable",) if nullable else ()))
    return any(getattr(before, name) != getattr(after, name) for name in names)


def forbids_nulls(before: Iterable[Field], after: Iterable[Field]) -> list[str]:
    """Returns the names of the fields that were nullable before and no longer are."""
    earlier = by_id(before)
    return [
        field.name
        for field in after
        if field.id in earlier and earlier[field.id].nullable and not field.nullable
    ]


def is_nested(logical_type: str) -> bool:
    """Returns whether a field of this type has child fields."""
    return logical_type in NESTED or logical_type.startswith(FIXED_SIZE_LIST_OF_STRUCTS)


def depth(fields: Iterable[Field]) -> int:
    """Returns the number of levels. A field whose parent doesn't come before it counts as a column."""
    depths: dict[int, int] = {}
    for field in fields:
        depths[field.id] = depths.get(field.parent_id, 0) + 1
    return max(depths.values(), default=0)


def check_structure(fields: Sequence[Field]) -> None:
    """Checks that the flat list is a forest and that nested types have the children that they need.

    Raises `DamagedError` naming the field if an id is negative or occurs twice, if a parent is missing or
    comes after its child (which includes cycles), or if a list, map or leaf has the wrong children. Unknown
    types are not checked.
    """
    ids: set[int] = set()
    for field in fields:
        if field.id < 0 or field.id in ids:
            reason = "is negative" if field.id < 0 else "is in the schema twice"
            raise DamagedError(f"field id {field.id} {reason}", where=field.name)
        if field.parent_id != TOP and field.parent_id not in ids:
            raise DamagedError(_parent_fault(field, fields), where=field.name)
        ids.add(field.id)
    below = children(fields)
    for field in fields:
        fault = _children_fault(field, below.get(field.id, []), below)
        if fault:
            raise DamagedError(f"{field.logical_type} {fault}", where=_path(field, by_id(fields)))


def _path(field: Field, fields_by_id: Mapping[int, Field]) -> str:
    """Returns the dotted name of a single field: the names of all fields together may be very long."""
    names = [_quoted(field.name)]
    while field.parent_id in fields_by_id:
        field = fields_by_id[field.parent_id]
        names.append(_quoted(field.name))
    return ".".join(reversed(names))


def _parent_fault(field: Field, fields: Iterable[Field]) -> str:
    if field.parent_id not in field_ids(fields):
        return f"field {field.id} has the parent {field.parent_id}, which is not in the schema"
    return f"field {field.id} comes before its parent {field.parent_id}, or the two form a cycle"


def _children_fault(field: Field, below: list[Field], all_children: Mapping[int, list[Field]]) -> str:
    kind = field.logical_type
    types = [child.logical_type for child in below]
    if kind in LISTS:
        return "" if len(below) == 1 else f"has {len(below)} children instead of one"
    if kind in LISTS_OF_STRUCTS or kind.startswith(FIXED_SIZE_LIST_OF_STRUCTS):
        return "" if types == ["struct"] else f"has the children {types} instead of one struct"
    if kind == "map":
        if types != ["struct"]:
            return f"has the children {types} instead of one struct"
        entries = all_children.get(below[0].id, [])
        return "" if len(entries) == CHILDREN_OF_MAP_ENTRIES else f"has entries of {len(entries)} fields"
    if below and kind.partition(":")[0] in LEAVES:
        return f"has {len(below)} children, but is not a nested type"
    return ""


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if "." in name or "`" in name else name
