"""Lines about files, decoded many at a time: a large commit takes a third of the time so.

Arrow decodes them as columns, and refuses what isn't exactly as expected. What it refuses, and objects that
columns can't distinguish, are decoded line by line, which also finds out what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.fields import FLAG, LONG, TEXT, TEXT_MAP, fields_of
from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile
from lakefold_table.delta.actions.file_columns import FileColumns
from lakefold_table.delta.json_text import parse_object
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import Action

FEWEST: Final = 64
"""How many actions of a kind are decoded together at least: fewer are decoded faster one by one."""
_STARTS: Final[Mapping[type[AddFile | RemoveFile], bytes]] = {
    kind: f'{{"{kind.NAME}":'.encode() for kind in (AddFile, RemoveFile)
}
STARTS: Final = tuple(_STARTS.values())
"""How lines about files begin, as clients write them."""


def files_in(lines: Sequence[bytes]) -> dict[int, Action]:
    """Returns actions by the index of their line, without those whose line has to be decoded alone."""
    actions: dict[int, Action] = {}
    for kind, start in _STARTS.items():
        indices = [index for index, line in enumerate(lines) if line.startswith(start)]
        if len(indices) >= FEWEST:
            actions.update(_actions(kind, [lines[index] for index in indices], indices))
    return actions


def _actions(
    kind: type[AddFile | RemoveFile], lines: Sequence[bytes], indices: Sequence[int]
) -> Iterable[tuple[int, Action]]:
    """Returns what the lines of one kind hold; nothing if one is malformed, or has unexpected members."""
    from pyarrow import BufferReader, json, schema

    data = b"\n".join(lines)
    try:
        expected = schema([(kind.NAME, _type_like(kind, parse_object(lines[0], "")[kind.NAME]))])
        rows = json.read_json(
            BufferReader(data),
            json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            json.ParseOptions(expected, unexpected_field_behavior="error"),
        )[kind.NAME].combine_chunks()
        # Two objects in a line would be two rows.
        is_whole = len(rows) == len(lines) and not rows.null_count
        columns = FileColumns.of(kind, rows, "") if is_whole else None
    except (AttributeError, DamagedError, TypeError, ValueError):
        return ()
    if columns is None:
        return ()
    actions = list(columns.actions())
    ambiguous = {
        index
        for field in fields_of(kind)
        if field.kind is TEXT_MAP and any(each.null_count for each in rows.field(field.name).flatten())
        for index, action in enumerate(actions)
        if len(getattr(action, field.attribute) or ()) < rows.field(field.name).type.num_fields
    }
    each = zip(indices, actions, strict=True)
    return (pair for at, pair in enumerate(each) if at not in ambiguous) if ambiguous else each


def _type_like(kind: type[Any], members: Any) -> Any:  # noqa: ANN401 - JSON, and a type of Arrow's
    """Returns the type of an action's object, whose objects of strings have the members that these have."""
    import pyarrow as pa

    types = {TEXT: pa.string(), LONG: pa.int64(), FLAG: pa.bool_()}

    def of(field: Any) -> Any:  # noqa: ANN401 - as above
        if field.kind is TEXT_MAP:
            return pa.struct([(name, pa.string()) for name in members.get(field.name) or {}])
        return types.get(field.kind) or _type_like(DeletionVector, {})

    return pa.struct([(field.name, of(field)) for field in fields_of(kind)])
