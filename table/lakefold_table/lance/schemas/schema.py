"""A Lance schema is a flat list of fields that name their parents by id; this module gives the views on it.

The committer compares schemas and never converts them, so nothing here knows Arrow. Source: Lance facts 3.2,
4.1 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

# The parent id of a column at the top level.
TOP = -1
EXTENSION_NAME = "ARROW:extension:name"
BLOB_V2 = "lance.blob.v2"

LISTS = frozenset({"list", "large_list"})
LISTS_OF_STRUCTS = frozenset({"list.struct", "large_list.struct"})
# The first words of the logical types that have no children.
LEAVES = frozenset(
    {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"null", "bool", "halffloat", "float", "double", "decimal", "fixed_size_list", "dict", "json"}
    | {"string", "large_string", "binary", "large_binary", "fixed_size_binary"}
    | {"date32", "date64", "time32", "time64", "timestamp", "duration"}
)
NESTED = frozenset({"struct", "map"} | LISTS | LISTS_OF_STRUCTS)
FIXED_SIZE_LIST_OF_STRUCTS = "fixed_size_list:struct:"
CHILDREN_OF_MAP_ENTRIES = 2
# Names that pylance keeps for columns of its own.
RESERVED_NAMES = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a field id means: its name, its logical type, and the name and type of each parent from the top.

    Two schemas mean the same by an id where these are equal. The parents' types belong to it: data files list
    the ids of leaves only, and the same leaf below a list is another column than below a struct.
    """

    name: str
    logical_type: str
    parents: tuple[tuple[str, str], ...]


def field_ids(fields: Iterable[Field]) -> list[int]:
    """The ids of all fields, parents included, in the order of the schema."""
    return [field.id for field in fields]


def by_id(fields: Iterable[Field]) -> dict[int, Field]:
    """Each field by its id."""
    return {field.id: field for field in fields}


def children(fields: Iterable[Field]) -> dict[int, list[Field]]:
    """The children of each parent id, in the order of the schema; `TOP` holds the columns."""
    found: dict[int, list[Field]] = {}
    for field in fields:
        found.setdefault(field.parent_id, []).append(field)
    return found


def leaf_ids(fields: Sequence[Field]) -> list[int]:
    """The ids of the fields without children, in the order of the schema."""
    parents = {field.parent_id for field in fields}
    return [field.id for field in fields if field.id not in parents]


def paths(fields: Iterable[Field]) -> dict[int, str]:
    """The dotted name of each field by its id; a name with a dot or a backtick stands in backticks.

    Parents must stand before their children, as `check_structure` proves.
    """
    found: dict[int, str] = {}
    for field in fields:
        parent = found.get(field.parent_id)
        name = _quoted(field.name)
        found[field.id] = name if parent is None else f"{parent}.{name}"
    return found


def identities(fields: Iterable[Field]) -> dict[int, Identity]:
    """What each field id means. Parents must stand before their children, as `check_structure` proves."""
    found: dict[int, Identity] = {}
    for field in fields:
        parent = found.get(field.parent_id)
        above = () if parent is None else (*parent.parents, (parent.name, parent.logical_type))
        found[field.id] = Identity(field.name, field.logical_type, above)
    return found


def changed_ids(old: Mapping[int, Identity], new: Mapping[int, Identity], ids: Iterable[int]) -> list[int]:
    """Those of `ids` that don't mean the same field in both schemas, ascending. In neither: not changed."""
    return sorted({number for number in ids if old.get(number) != new.get(number)})


def assign_ids(fields: Iterable[Field], start: int = 0) -> list[Field]:
    """Copies of the fields with ids from `start` in their order; parents follow, the top level stays `TOP`.

    Lance numbers a schema depth first, which is the order of its fields (Lance fact 4.2).
    """
    found: list[Field] = []
    numbers = {TOP: TOP}
    for number, field in enumerate(fields, start):
        numbers[field.id] = number
        copy = Field()
        copy.CopyFrom(field)
        copy.id = number
        copy.parent_id = numbers[field.parent_id]
        found.append(copy)
    return found


def related(fields: Sequence[Field], ids: Collection[int]) -> frozenset[int]:
    """These fields with all above and below them: whose values change where theirs do.

    A list's file names only its item, an index on the list only the list. Parents stand before children.
    """
    parents = {one.id: one.parent_id for one in fields}
    found = set(ids)
    for one in fields:
        if one.parent_id in found:
            found.add(one.id)
    for number in ids:
        above = parents.get(number, TOP)
        while above != TOP:
            found.add(above)
            above = parents.get(above, TOP)
    return frozenset(found)


def is_altered(before: Field, after: Field, *, nullable: bool = True) -> bool:
    """Whether values written for one field might not be read as the other (Lance fact 6.8).

    A name or metadata may differ; where `nullable` is not asked for, so may whether it can be null.
    """
    names = ("logical_type", "parent_id", "encoding", "dictionary", *(("nullable",) if nullable else ()))
    return any(getattr(before, name) != getattr(after, name) for name in names)


def forbids_nulls(before: Iterable[Field], after: Iterable[Field]) -> list[str]:
    """The names of the fields that could be null before and can't be any more."""
    known = by_id(before)
    return [one.name for one in after if one.id in known and known[one.id].nullable and not one.nullable]


def is_nested(logical_type: str) -> bool:
    """Whether a field of this type has other fields below it."""
    return logical_type in NESTED or logical_type.startswith(FIXED_SIZE_LIST_OF_STRUCTS)


def depth(fields: Iterable[Field]) -> int:
    """The number of levels; a field whose parent doesn't stand before it counts as a column."""
    depths: dict[int, int] = {}
    for field in fields:
        depths[field.id] = depths.get(field.parent_id, 0) + 1
    return max(depths.values(), default=0)


def check_structure(fields: Sequence[Field]) -> None:
    """Prove that the flat list is a forest and that nested types have the children they need.

    Raises `DamagedError` naming the field for an id that is negative or stands twice, for a parent that is
    missing or stands after its child (which is also how a cycle shows), and for a list, map or leaf with the
    wrong children. A type that isn't known is not judged.
    """
    seen: set[int] = set()
    for field in fields:
        if field.id < 0 or field.id in seen:
            reason = "is negative" if field.id < 0 else "stands twice in the schema"
            raise DamagedError(f"field id {field.id} {reason}", where=field.name)
        if field.parent_id != TOP and field.parent_id not in seen:
            raise DamagedError(_parent_fault(field, fields), where=field.name)
        seen.add(field.id)
    below = children(fields)
    for field in fields:
        fault = _children_fault(field, below.get(field.id, []), below)
        if fault:
            raise DamagedError(f"{field.logical_type} {fault}", where=_path(field, by_id(fields)))


def _path(field: Field, known: Mapping[int, Field]) -> str:
    """The dotted name of one field: those of all together may be long beyond measure."""
    names = [_quoted(field.name)]
    while field.parent_id in known:
        field = known[field.parent_id]
        names.append(_quoted(field.name))
    return ".".join(reversed(names))


def _parent_fault(field: Field, fields: Iterable[Field]) -> str:
    if field.parent_id not in field_ids(fields):
        return f"field {field.id} has the parent {field.parent_id}, which is not in the schema"
    return f"field {field.id} stands before its parent {field.parent_id}, or they are each other's parents"


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
        return f"has {len(below)} children, but is no nested type"
    return ""


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if "." in name or "`" in name else name
