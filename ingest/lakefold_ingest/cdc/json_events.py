"""Parses a column of JSON objects into columns, all of them at once.

Each text is wrapped as `{"n": its number, "v": the text}` before they are parsed together. So a text that is
no JSON, or more than one value, can't be taken for another row's.
"""

from __future__ import annotations

import io
import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyarrow import types

from lakefold_ingest.rows.fitting import is_list, plain_field
from lakefold_ingest.rows.json_depth import MOST_DEPTH, TOO_DEEP, depth_of
from lakefold_ingest.rows.row_faults import RowFaults, find_faults
from lakefold_ingest.rows.text_numbers import (
    MAY_BE_TOO_LARGE,
    has_beyond,
    lost_text,
    lost_whole,
    narrowed,
    too_large,
    wide,
)
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

_NUMBER, _TEXT = "n", "v"
_AROUND: Final = (_TEXT, "payload")
"""The structs that only hold an envelope."""
_NO = pa.scalar(False)  # noqa: FBT003 - a value of Arrow's
_QUOTED: Final = '"(NaN|-?Infinity)"'
_MOST_BYTES = 2**28
"""More text is parsed in several parts: the parser takes at most 2 GiB."""
_READ_AS_THEY_ARE = (
    types.is_boolean,
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_string,
    types.is_large_string,
    types.is_timestamp,
    types.is_date32,
)


def json_structs(fields: Sequence[pa.Field]) -> pa.StructType:
    """Returns the struct of those fields that can be read from JSON as they are. Others are inferred."""
    return pa.struct([pa.field(field.name, field.type) for field in fields if _reads(field.type)])


def parsed(
    column: pa.ChunkedArray,
    kind: pa.StructType,
    name: str,
    faults: RowFaults,
    needed: Collection[str] | None = None,
) -> pa.ChunkedArray:
    """Returns the JSON objects of a column as structs. Nulls, and what can't be read, are null.

    `kind` has the types of known fields; the types of others are inferred. Notes rows that can't be read in
    `faults`, under `name`. `needed`: as `concatenated` has it. Raises as that.
    """
    texts = _without_deep(_texts(column, name, faults), name, faults)
    texts = _without_too_large(texts, name, faults)
    rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    lines = _lines(texts.take(pa.array(rows)))
    schema = pa.schema({_NUMBER: pa.int64(), _TEXT: kind})
    pieces: list[tuple[NDArray[np.int64], pa.ChunkedArray]] = []

    def fault(start: int, stop: int) -> str | None:
        if stop - start > 1 and lines.slice(start, stop - start).nbytes > _MOST_BYTES:
            return "it is parsed in two parts"
        try:
            values = _parse(lines.slice(start, stop - start), start, schema)
        except pa.ArrowInvalid as error:
            return f"it can't be read as JSON of the table's types: {error}"
        if values is None:
            return "it is not one JSON object"
        pieces.append((rows[start:stop], values))
        return None

    for index, reason in find_faults(len(lines), fault):
        faults.add(rows[index : index + 1], name, reason)
    values = _joined(pieces, len(column), kind, name, needed)
    return _without_lost(values, texts, kind, name, faults)


def with_bare_floats(column: pa.ChunkedArray, fields: Sequence[pa.Field]) -> pa.ChunkedArray:
    """Returns texts of JSON objects in which NaN and infinity are numbers in these columns, not texts.

    Kafka Connect writes `"NaN"`, and the parser reads `NaN` only. The names of the columns, of the fields of
    structs as well, say where the texts are numbers, unless a column or field of texts has the same name.
    """
    if not pc.any(pc.match_substring_regex(column, _QUOTED)).as_py():
        return column
    names = _leaf_names(fields, types.is_floating) - _leaf_names(
        fields, lambda kind: not types.is_floating(kind)
    )
    if not names:
        return column
    name = rf"[{{,]\s*(?:{'|'.join(name_patterns(names))})\s*:\s*"
    column = pc.replace_substring_regex(column, f"({name}){_QUOTED}", r"\1\2")
    in_list = rf'({name}\[[^"{{}}]*){_QUOTED}(\s*[,\]])'
    while pc.any(pc.match_substring_regex(column, in_list)).as_py():
        column = pc.replace_substring_regex(column, in_list, r"\1\2\3")
    return column


def name_patterns(names: Iterable[str]) -> list[str]:
    """Returns regular expressions for names as JSON has them: texts, with and without escapes."""
    texts = {json.dumps(name, ensure_ascii=ascii_only) for name in names for ascii_only in (True, False)}
    return [re.escape(text) for text in sorted(texts)]


def _leaf_names(fields: Iterable[pa.Field], holds: Callable[[pa.DataType], bool]) -> set[str]:
    """Returns the names of columns, and of fields of structs, whose values or items have such a type."""
    names = set()
    for field in fields:
        kind = field.type
        while is_list(kind):
            kind = kind.value_type
        if types.is_struct(kind):
            names |= _leaf_names(kind, holds)
        elif holds(kind):
            names.add(field.name)
    return names


def with_narrow_floats(rows: pa.Table, table: pa.Schema, faults: RowFaults) -> pa.Table:
    """Returns rows of JSON, whose floats were read as doubles, with the floats of the table.

    Notes numbers that are beyond their range in `faults`.
    """
    for index, name in enumerate(rows.column_names):
        kind = plain_field(table.field(name)).type if name in table.names else None
        if kind is None or kind == wide(kind) or rows.schema.field(name).type != wide(kind):
            continue
        column = rows.column(name).combine_chunks()

        def fault(start: int, stop: int, column: pa.Array = column, to: pa.DataType = kind) -> str | None:
            try:
                narrowed(column.slice(start, stop - start), to, "")
            except InvalidError as error:
                return error.message
            return None

        for row, reason in find_faults(len(column), fault):
            faults.add(np.array([row], np.int64), name, reason)
            column = pc.if_else(pa.array(np.arange(len(column)) != row), column, None)
        rows = rows.set_column(index, name, narrowed(column, kind, name))
    return rows


def _texts(column: pa.ChunkedArray, name: str, faults: RowFaults) -> pa.Array:
    array = column.combine_chunks()

    def fault(start: int, stop: int) -> str | None:
        try:
            array.slice(start, stop - start).cast(pa.large_string())
        except pa.ArrowInvalid:
            return "it is not UTF-8"
        return None

    wrong = find_faults(len(array), fault)
    if wrong:
        indices = np.array([row for row, _ in wrong], np.int64)
        faults.add(indices, name, wrong[0][1])
        keep = np.ones(len(array), np.bool_)
        keep[indices] = False
        array = pc.if_else(pa.array(keep), array, pa.scalar(None, array.type))
    # A line break is white space in JSON: inside of a text it is escaped.
    return pc.replace_substring_regex(array.cast(pa.large_string()), "[\\r\\n]", " ")


def _without_deep(texts: pa.Array, name: str, faults: RowFaults) -> pa.Array:
    """Returns the texts with null for those that are nested too deep for the parser, which are faults."""
    brackets = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    many = np.flatnonzero(pc.fill_null(brackets, 0).to_numpy() > MOST_DEPTH)
    deep = np.array([row for row in many if depth_of(texts[row].as_py().encode()) > MOST_DEPTH], np.int64)
    if not deep.size:
        return texts
    faults.add(deep, name, TOO_DEEP)
    keep = np.ones(len(texts), np.bool_)
    keep[deep] = False
    return pc.if_else(pa.array(keep), texts, pa.scalar(None, texts.type))


def _without_too_large(texts: pa.Array, name: str, faults: RowFaults) -> pa.Array:
    """Returns the texts with null for those that have numbers beyond doubles, which are faults."""
    suspects = np.flatnonzero(pc.match_substring_regex(texts, MAY_BE_TOO_LARGE).fill_null(_NO))
    keep = np.ones(len(texts), np.bool_)
    for row in suspects:
        number = too_large(texts[row].as_py())
        if number is not None:
            faults.add(np.array([row]), name, f"the number {number} is beyond the range of double")
            keep[row] = False
    return texts if keep.all() else pc.if_else(pa.array(keep), texts, pa.scalar(None, texts.type))


def _without_lost(
    values: pa.ChunkedArray, texts: pa.Array, kind: pa.StructType, name: str, faults: RowFaults
) -> pa.ChunkedArray:
    """Returns the values with null for those of texts with a whole number that doubles of `kind` lack."""
    array = values.combine_chunks()

    def has_large(start: int, stop: int) -> str | None:
        return "" if has_beyond(array.slice(start, stop - start)) else None

    keep = np.ones(len(array), np.bool_)
    for row, _ in find_faults(len(array), has_large):
        number = lost_whole(texts[row].as_py(), kind)
        if number is not None:
            faults.add(np.array([row]), name, lost_text(number))
            keep[row] = False
    return values if keep.all() else pa.chunked_array([pc.if_else(keep, array, pa.scalar(None, array.type))])


def _lines(texts: pa.Array) -> pa.Array:
    numbers = pa.array(np.arange(len(texts))).cast(pa.large_string())
    parts = (f'{{"{_NUMBER}":', numbers, f',"{_TEXT}":', texts, "}\n")
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.large_string()))


def _parse(lines: pa.Array, first: int, schema: pa.Schema) -> pa.ChunkedArray | None:
    """Returns the values of these lines, or None if they are not one object a line.

    `first`: the number of the first line. Raises `pa.ArrowInvalid` if they are not JSON of these types.
    """
    _, offsets, texts = lines.buffers()
    begin, end = np.frombuffer(offsets, np.int64)[[lines.offset, lines.offset + len(lines)]].tolist()
    data: pa.Buffer = texts.slice(begin, end - begin)
    table = _read(data, schema)
    try:
        table.validate()
    except pa.ArrowInvalid:
        # Of a list whose type it finds out while it reads, Arrow loses the nulls at the beginning.
        table = _read(data, table.schema)
    if table.column_names != schema.names:
        return None
    if not np.array_equal(table.column(_NUMBER).to_numpy(), np.arange(first, first + len(lines))):
        return None
    values = table.column(_TEXT)
    return values if types.is_struct(values.type) and not values.null_count else None


def _read(data: pa.Buffer, schema: pa.Schema) -> pa.Table:
    return pa.json.read_json(
        io.BytesIO(data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema),
    )


def _reads(kind: pa.DataType) -> bool:
    """Returns whether values of this type are read from JSON as they are. Others are inferred and fitted."""
    if types.is_struct(kind):
        return all(_reads(field.type) for field in kind)
    if types.is_list(kind):
        return _reads(kind.value_type)
    return any(is_kind(kind) for is_kind in _READ_AS_THEY_ARE)


def concatenated(tables: Sequence[pa.Table], where: str, needed: Collection[str] | None) -> pa.Table:
    """Returns the rows of tables whose types were inferred.

    A field whose values have no common type is left out, at any depth: e.g. a number in some messages and a
    text in others, around the rows. What is in the fields `needed` stays whole, also in a `payload`; None: in
    all. Raises `InvalidError` about `where` if its values have no common type.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        cause = error
    try:
        if needed is None:
            raise cause
        kind = _common_struct((pa.struct(list(each.schema)) for each in tables), needed)
        arrays = (_as_struct(table.to_struct_array().combine_chunks(), kind) for table in tables)
        return pa.concat_tables([pa.Table.from_struct_array(array) for array in arrays])
    except pa.ArrowException as error:
        message = f"the JSON objects of the batch have no common type: {error}"
        raise InvalidError(message, where=where, hint="give the envelope as columns instead") from error


def _common_struct(kinds: Iterable[pa.StructType], needed: Collection[str]) -> pa.StructType:
    """Returns the struct of all fields of these, without those whose types don't agree.

    Raises `pa.ArrowException` if those of a field that is `needed` don't.
    """
    named: dict[str, list[pa.DataType]] = {}
    for field in chain.from_iterable(kinds):
        named.setdefault(field.name, []).append(field.type)
    fields = []
    for name, given in named.items():
        inner = [kind for kind in given if not types.is_null(kind)]
        if inner and all(map(types.is_struct, inner)) and name not in needed:
            fields.append(pa.field(name, _common_struct(inner, needed if name in _AROUND else ())))
            continue
        try:
            fields.append(common_field(name, given))
        except pa.ArrowException:
            if name in needed:
                raise
    return pa.struct(fields)


def common_field(name: str, kinds: Iterable[pa.DataType]) -> pa.Field:
    """Returns the field of the type that holds the values of all these, e.g. int64 for int32 and int64.

    Structs get the fields of all. Raises `pa.ArrowException` if no type holds them.
    """
    schemas = [pa.schema([(name, kind)]) for kind in kinds]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0)


def _as_struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """Returns structs with the fields of `kind`: those that they lack are null, others are left out."""
    children = []
    for field in kind:
        index = values.type.get_field_index(field.name)
        child = pa.nulls(len(values), field.type) if index < 0 else pc.struct_field(values, [index])
        is_inner = types.is_struct(field.type) and types.is_struct(child.type)
        children.append(_as_struct(child, field.type) if is_inner else child.cast(field.type))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _joined(
    pieces: list[tuple[NDArray[np.int64], pa.ChunkedArray]],
    count: int,
    kind: pa.StructType,
    name: str,
    needed: Collection[str] | None,
) -> pa.ChunkedArray:
    """Returns the values in their rows; the other rows are null."""
    tables = [pa.table({_TEXT: pa.nulls(0, kind)}), *(pa.table({_TEXT: values}) for _, values in pieces)]
    values = concatenated(tables, name, needed)
    index = np.full(count, -1, np.int64)
    index[np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in pieces)])] = np.arange(values.num_rows)
    taken = pa.array(index, mask=index < 0)
    return pa.chunked_array([values.column(_TEXT).combine_chunks().take(taken)])
