"""Reads Debezium's envelopes: `op`, and the row `before` and `after`, as columns or as JSON of a Kafka topic.

An event is a row with the columns `op`, `before` and `after`, or with one column `payload` of these, or with
a column `value` that has them, as a struct or as the JSON that Kafka delivers. A tombstone (a message without
a value) follows a deletion and deletes the row of its key. It has an effect if the batch has a column `key`.

Columns that Debezium sends in another type, such as dates as numbers, are converted (`debezium_types`).

JSON is parsed with the types of the table, and the parser would make each column of them that a message lacks
null. So columns that the first row lacks are left out, and if a later row has one, all is parsed again.

Kafka Connect puts a schema before each JSON message, `{"schema": …, "payload": …}`. Nearly all messages have
the same, often longer than the payload, so each schema is parsed once and the messages without it.

`m` (a message in the log of the database) is about no row and ignored. `t` (truncate) is refused.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.cdc.change_format import DEBEZIUM_OPERATIONS, ChangeFormat
from lakefold_ingest.cdc.connect_schemas import type_at, without_schemas
from lakefold_ingest.cdc.debezium_forms import BY_NAME
from lakefold_ingest.cdc.debezium_types import (
    DebeziumType,
    common_type,
    common_types,
    converted,
    types_in_schema,
)
from lakefold_ingest.cdc.events import Events, column_at, effects, is_text, mask, order_of
from lakefold_ingest.cdc.json_events import (
    concatenated,
    json_structs,
    name_patterns,
    parsed,
    with_bare_floats,
    with_narrow_floats,
)
from lakefold_ingest.cdc.moves import moved_rows, with_moves
from lakefold_ingest.rows.divided_rows import without_old_rows
from lakefold_ingest.rows.fitting import plain_field
from lakefold_ingest.rows.text_numbers import wide
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.rows.row_faults import RowFaults

    Mask = NDArray[np.bool_]

OP, BEFORE, AFTER, PAYLOAD, VALUE, KEY = "op", "before", "after", "payload", "value", "key"
NEEDED: Final = (OP, BEFORE, AFTER)
"""What of an envelope is never left out."""
UPDATE, TRUNCATE, MESSAGE = "u", "t", "m"
_ROW_BEGIN: Final = r'"after"\s*:\s*\{'
_ESCAPED_NAME: Final = r'\\.(?:[^"\\]|\\.)*"\s*:'


def needs_types(rows: pa.Schema) -> bool:
    """Returns whether the events are JSON, which is read with the types of the table's columns."""
    has_messages = VALUE in rows.names and OP not in rows.names and PAYLOAD not in rows.names
    return has_messages and not types.is_struct(rows.field(VALUE).type)


def read_debezium(
    rows: pa.Table, format_: ChangeFormat, table: pa.Schema | None, faults: RowFaults
) -> Events:
    """Returns the events. `table` is the table's schema, which JSON needs; None: it does not exist.

    Notes in `faults` rows whose JSON or operation can't be read. Raises `InvalidError` if a column is
    missing, or an event truncates the source.
    """
    rows, old_rows = without_old_rows(rows)
    is_message = OP not in rows.column_names and PAYLOAD not in rows.column_names
    tombstones = np.zeros(rows.num_rows, np.bool_)
    if is_message and VALUE in rows.column_names:
        tombstones = mask(pc.is_null(rows.column(VALUE)))
    envelopes, kinds = _envelopes(rows, format_, table, faults)
    op = column_at(envelopes, OP)
    if op is None:
        hint = "the rows have the columns op, before and after, or payload, or value as JSON"
        raise InvalidError("no column op is in the batch", where=OptionName("envelope"), hint=hint)
    op = pc.utf8_lower(pc.utf8_trim_whitespace(op.cast(pa.string()))).combine_chunks()
    _refuse_truncates(op)
    ignored = mask(pc.equal(op, MESSAGE))
    # Rows that have a fault already need no second one for their missing operation.
    silent = ignored | tombstones
    silent[faults.rows] = True
    is_delete = effects(
        pa.chunked_array([pc.if_else(pa.array(silent), "d", op)]), OP, DEBEZIUM_OPERATIONS, faults
    )
    has_before = _has_row_before(envelopes)
    needed = tombstones | (is_delete & _lack_key(envelopes, has_before, format_.keys))
    keys = _keys(rows, format_.keys, kinds, needed, table, faults)
    if keys is None:
        ignored, tombstones = ignored | tombstones, np.zeros_like(tombstones)
    around = _with_rows(envelopes, rows)
    before, after = (converted(_side(envelopes, name), kinds, table, faults) for name in (BEFORE, AFTER))
    if table is not None and needs_types(rows.schema):
        before, after = (with_narrow_floats(side, table, faults) for side in (before, after))
        _refuse_maps(after, table)
    images = _without_order(_images(before, after, is_delete, keys), around, format_.order_by)
    order = order_of(around, images, format_.order_by, may_lack=bool(silent.all()))
    events = Events(images, is_delete, ignored, tombstones, order)
    updated = np.flatnonzero(mask(pc.equal(op, UPDATE)) & has_before)
    moved = moved_rows(before, images, updated, format_.keys, old_rows, faults)
    chosen = pa.array(moved)
    old = _images(before.take(chosen), after.take(chosen), np.ones(moved.size, np.bool_), None)
    return with_moves(events, old, moved, old_rows, faults)


def new_columns(rows: pa.Table, format_: ChangeFormat) -> pa.Schema | None:
    """Returns the columns of a table that is created for messages of JSON; None if none has a schema.

    A column has the type that holds the values of all schemas, e.g. int64 if they say int32 and int64. It
    keeps the columns that order the events. Raises `InvalidError` naming a column that is refused, or about
    which two schemas disagree.
    """
    _, schemas = without_schemas(rows.column(VALUE))
    kinds = [types_in_schema(schema) for schema in schemas]
    if not common_types(kinds):
        return None
    fields: dict[str, pa.DataType] = {}
    for each in kinds:
        for name, debezium_type in {**each, **format_.debezium_types}.items():
            new = _new_type(debezium_type, name)
            fields[name] = common_type(name, fields.get(name, new), new)
    for path, name in zip(format_.order_by, format_.order_names, strict=True):
        kind = type_at(schemas, path.split("."))
        if kind is not None:
            fields.setdefault(name, _new_type(kind, path))
        elif path in rows.column_names:
            fields.setdefault(name, rows.schema.field(path).type)
    return pa.schema(list(fields.items()))


def _new_type(kind: DebeziumType, name: str) -> pa.DataType:
    try:
        return kind.new_type
    except InvalidError as error:
        raise InvalidError(error.message, where=name, hint=error.hint) from error


def _refuse_maps(after: pa.Table, table: pa.Schema) -> None:
    """Raises `InvalidError` if rows of JSON have a map, which is an object there, or a list of pairs."""
    for each in after.schema:
        is_map = each.name in table.names and types.is_map(table.field(each.name).type)
        if is_map and not (types.is_map(each.type) or types.is_null(each.type)):
            raise InvalidError("a map is not read from JSON", where=each.name, hint=BY_NAME["map"].instead)


def _refuse_truncates(op: pa.Array) -> None:
    truncates = np.flatnonzero(mask(pc.equal(op, TRUNCATE)))
    if truncates.size:
        hint = (
            "delete the rows (lakefold.delete) and continue after the event, or leave such events out: "
            "Debezium's skipped.operations has t by default"
        )
        message = f"event {truncates[0]} of the batch truncates its source, which is not applied to the table"
        raise InvalidError(message, where=OptionName("envelope"), hint=hint)


def _with_rows(envelopes: pa.Table, rows: pa.Table) -> pa.Table:
    """Returns the columns of the envelopes, and of the rows around them, such as Kafka's offset."""
    known = set(envelopes.column_names)
    for name in rows.column_names:
        if name not in known:
            envelopes = envelopes.append_column(name, rows.column(name))
    return envelopes


def _without_order(images: pa.Table, envelopes: pa.Table, order_by: Collection[str]) -> pa.Table:
    """Returns the rows without columns that the table keeps for the order, and that only the envelopes have.

    JSON is read with the table's columns, so the rows have such a column without values.
    """
    for path in order_by:
        name = path.rpartition(".")[2]
        if name in images.column_names and column_at(envelopes, path) is not None:
            column = images.column(name)
            images = images.drop_columns([name]) if column.null_count == len(column) else images
    return images


def _envelopes(
    rows: pa.Table, format_: ChangeFormat, table: pa.Schema | None, faults: RowFaults
) -> tuple[pa.Table, Mapping[str, DebeziumType]]:
    """Returns the envelopes, and the columns of their rows that have to be converted."""
    names, kinds = rows.column_names, format_.debezium_types
    if OP in names or PAYLOAD in names:
        return (rows if OP in names else _fields_of(rows.column(PAYLOAD), PAYLOAD)), kinds
    if VALUE not in names:
        return rows, kinds
    if not needs_types(rows.schema):
        return _without_payload(_fields_of(rows.column(VALUE), VALUE)), kinds
    if table is None:
        raise InvalidError(
            "JSON is read with the types of a table", where=VALUE, hint="append a frame without rows first"
        )
    messages, in_schema = _without_schemas(rows.column(VALUE))
    kinds = {**in_schema, **kinds}
    names = _written_columns(messages, table.names)
    fields = [plain_field(field) for field in table if field.name in names]
    return _parsed_envelopes(messages, fields, format_, table, kinds, faults), kinds


def _parsed_envelopes(
    messages: pa.ChunkedArray,
    fields: Sequence[pa.Field],
    format_: ChangeFormat,
    table: pa.Schema,
    kinds: Mapping[str, DebeziumType],
    faults: RowFaults,
) -> pa.Table:
    """Returns the envelopes of messages of JSON. `fields` are the columns that each of their rows gets."""
    for each in fields:
        if each.name in kinds:
            kinds[each.name].check(each.type, each.name)

    def envelope(numbers: Collection[str]) -> pa.StructType:
        image = _image(fields, kinds, numbers)
        kind = pa.struct([(OP, pa.string()), (BEFORE, image), (AFTER, image)])
        for path in format_.order_by:
            name, in_struct, last = path.partition(".")
            if in_struct and "." not in last and last in table.names:
                kind = _with_field(kind, name, json_structs([plain_field(table.field(last))]))
        return kind

    return _parsed(with_bare_floats(messages, fields), VALUE, envelope, kinds, faults)


def _parsed(
    messages: pa.ChunkedArray,
    name: str,
    kind_of: Callable[[Collection[str]], pa.StructType],
    kinds: Mapping[str, DebeziumType],
    faults: RowFaults,
) -> pa.Table:
    """Returns the JSON of a column `name` as structs of a kind, or what is in their `payload`.

    `kind_of` returns the kind if these columns have decimals as numbers (Connect's `decimal.format`). The
    schema doesn't say it, so decimals are read as they come first, and again, exactly, if they are numbers.
    """

    def read(numbers: Collection[str]) -> pa.Table:
        kind = kind_of(numbers)
        needed = NEEDED if name == VALUE else None
        column = parsed(messages, _with_field(kind, PAYLOAD, kind), name, faults, needed)
        return _without_payload(_fields_of(column, name), needed)

    envelopes = read(())
    sides = [_side(envelopes, side) for side in (BEFORE, AFTER)] if name == VALUE else [envelopes]
    numbers = {
        each.name
        for side in sides
        for each in side.schema
        if each.name in kinds and kinds[each.name].has_numbers(each.type)
    }
    if not numbers:
        return envelopes
    keep = np.ones(len(messages), np.bool_)
    keep[faults.rows] = False
    messages = pc.if_else(pa.array(keep), messages, pa.scalar(None, messages.type))
    return read(numbers)


def _written_columns(messages: pa.ChunkedArray, columns: Collection[str]) -> set[str]:
    """Returns those of `columns` that a row after a change has; all if the messages have no such row.

    A message is read with Python's parser only if its text has the name of a column that no earlier row has.
    """
    texts = messages.cast(pa.large_binary())
    texts = texts.filter(pa.array(mask(pc.match_substring_regex(texts, _ROW_BEGIN)))).combine_chunks()
    missing, pattern, any_row, position = {*columns}, "", False, 0
    while missing and position < len(texts):
        names_one = mask(pc.match_substring_regex(texts.slice(position), pattern))
        for index in (np.flatnonzero(names_one) + position).tolist():
            row = _row_after(texts[index].as_py())
            if row is not None and (not any_row or missing & row.keys()):
                break
        else:
            break
        any_row, missing, position = True, missing - row.keys(), index + 1
        pattern = _any_name(missing)
    return {*columns} - missing if any_row else {*columns}


def _any_name(names: Collection[str]) -> str:
    """Returns a regular expression that matches a JSON text in which one of `names` may be written."""
    return "|".join([*name_patterns(names), _ESCAPED_NAME])


def _row_after(message: bytes) -> dict[str, object] | None:
    """Returns the row after the change of an event; None if it has none, or is no JSON."""
    try:
        event = json.loads(message)
    except (ValueError, RecursionError):
        return None
    envelope = event.get(PAYLOAD) or event if isinstance(event, dict) else None
    row = envelope.get(AFTER) if isinstance(envelope, dict) else None
    return row if isinstance(row, dict) else None


def _image(
    fields: Sequence[pa.Field], kinds: Mapping[str, DebeziumType], numbers: Collection[str]
) -> pa.StructType:
    """Returns the struct as which a row of JSON is read: columns that are converted have JSON's types.

    `numbers`: the columns that have decimals as numbers.
    """
    read = (
        (name, kinds[name].json_type(kind, numbers=name in numbers) if name in kinds else wide(kind))
        for name, kind in ((field.name, field.type) for field in fields)
    )
    return json_structs([pa.field(name, kind) for name, kind in read if kind is not None])


def _with_field(struct: pa.StructType, name: str, inner: pa.StructType) -> pa.StructType:
    """Returns the struct with the fields `inner` in its field `name`."""
    types_by_name = {field.name: field.type for field in struct}
    types_by_name[name] = pa.struct([*types_by_name.get(name, ()), *inner])
    return pa.struct(list(types_by_name.items()))


def _keys(
    rows: pa.Table,
    names: Collection[str],
    kinds: Mapping[str, DebeziumType],
    needed: Mask,
    table: pa.Schema | None,
    faults: RowFaults,
) -> pa.Table | None:
    """Returns the keys of those messages that need them, None if the batch has no column for them.

    `kinds`: of columns in the rows, which keys without a schema have too.
    """
    if KEY not in rows.column_names or KEY in names:
        return None
    column = rows.column(KEY).combine_chunks()
    column = pa.chunked_array([pc.if_else(pa.array(needed), column, pa.scalar(None, column.type))])
    if types.is_struct(column.type):
        return converted(_without_payload(_fields_of(column, KEY), None), kinds, table, faults)
    if table is None or not is_text(column.type):
        return None
    messages, in_schema = _without_schemas(column)
    kinds = {**in_schema, **kinds}
    fields = [plain_field(field) for field in table if field.name in names]
    keys = _parsed(messages, KEY, partial(_image, fields, kinds), kinds, faults)
    return converted(keys, kinds, table, faults)


def _images(before: pa.Table, after: pa.Table, is_delete: Mask, keys: pa.Table | None) -> pa.Table:
    """Returns the row after each event; the row before it if it is deleted, or at least its key."""
    deletes = pa.array(is_delete)
    columns: dict[str, pa.Array] = {}
    sides = [(side, set(side.column_names)) for side in (before, after)]
    key_names = set() if keys is None else set(keys.column_names)
    for name in dict.fromkeys([*after.column_names, *before.column_names]):
        old, new = (
            side.column(name).combine_chunks() if name in names else pa.nulls(len(deletes))
            for side, names in sides
        )
        kind = old.type if types.is_null(new.type) else new.type
        columns[name] = pc.if_else(deletes, _cast(old, kind, name), _cast(new, kind, name))
        if keys is not None and name in key_names:
            key = _cast(keys.column(name).combine_chunks(), kind, name)
            columns[name] = pc.coalesce(columns[name], key)
    if not columns:
        raise InvalidError("before and after have no columns", where=OptionName("envelope"))
    return pa.table(columns)


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        message = f"the types of {name} before and after a change, and in the message's key, don't agree"
        raise InvalidError(message, where=name, hint=f"make it {kind} in each of them") from error


def _has_row_before(envelopes: pa.Table) -> Mask:
    column = column_at(envelopes, BEFORE)
    return np.zeros(envelopes.num_rows, np.bool_) if column is None else mask(pc.is_valid(column))


def _lack_key(envelopes: pa.Table, has_before: Mask, names: Collection[str]) -> Mask:
    """Returns which events have no row before the change, or one without a value of a key."""
    before = _side(envelopes, BEFORE)
    lacking, known = ~has_before, set(before.column_names)
    for name in names:
        lacking |= mask(pc.is_null(before.column(name))) if name in known else np.ones_like(lacking)
    return lacking


def _side(envelopes: pa.Table, name: str) -> pa.Table:
    column = column_at(envelopes, name)
    return pa.table({}) if column is None or types.is_null(column.type) else _fields_of(column, name)


def _fields_of(column: pa.ChunkedArray, name: str) -> pa.Table:
    """Returns the fields of a struct as columns; those of a null are null. Raises `InvalidError`."""
    if not types.is_struct(column.type):
        hint = "parse it, or give the whole message as the column value"
        raise InvalidError(f"{name} is {column.type}, not a struct", where=OptionName("envelope"), hint=hint)
    array = column.combine_chunks()
    return pa.table({field.name: pc.struct_field(array, [index]) for index, field in enumerate(array.type)})


def _without_schemas(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[str, DebeziumType]]:
    """Returns the messages without their schemas, and the types that these name by column."""
    messages, schemas = without_schemas(column)
    return messages, common_types(map(types_in_schema, schemas))


def _without_payload(envelopes: pa.Table, needed: Collection[str] | None = NEEDED) -> pa.Table:
    """Returns what is in `payload` of the messages that have their schema beside it, and the others.

    A topic has messages of both kinds if its converter was changed. `needed`: as of `concatenated`.
    """
    if PAYLOAD not in envelopes.column_names:
        return envelopes
    payload = envelopes.column(PAYLOAD)
    if not types.is_struct(payload.type):
        return envelopes.drop_columns([PAYLOAD])
    inside, others = _fields_of(payload, PAYLOAD), envelopes.drop_columns([PAYLOAD])
    if not payload.null_count or not others.num_columns:
        return inside
    is_inside = mask(payload.is_valid())
    if not is_inside.any():
        return others
    rows = [np.flatnonzero(is_inside), np.flatnonzero(~is_inside)]
    tables = [table.take(pa.array(each)) for table, each in zip((inside, others), rows, strict=True)]
    joined = concatenated(tables, PAYLOAD, needed)
    return joined.take(pa.array(np.argsort(np.concatenate(rows))))
