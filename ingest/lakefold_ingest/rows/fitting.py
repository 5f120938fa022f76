"""Decides whether a batch's columns fit the table's, and turns its rows into the table's types.

A batch that doesn't fit fails before a file is written or a message is sent, with an error that names every
wrong column. Columns are matched by name, case-sensitively, in any order, and so are the fields of structs. A
column that the batch lacks is null, if the table allows that.

Types must be equal, or every value of the batch must keep its meaning in the table's type: a wider type of
the same kind, or a type that Spark doesn't have (unsigned integers, milliseconds, fixed sizes, dictionaries).
For the latter each value is checked while it is written. Any other conversion has to be a cast before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.rows.json_values import check_depth
from lakefold_ingest.rows.log_values import as_in_log
from lakefold_ingest.rows.text_lengths import limited
from lakefold_table.columns.extension_names import BLOB_V2, EXTENSION_NAME
from lakefold_table.columns.extension_types import complete_metadata, storage_of
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DECIMAL_BYTES = 16
_HINT = "rename, cast or drop these columns before; names are case-sensitive"
_ABSENT = "is not in the table"
_UNTYPED = "the table's column has no type yet, only nulls"
_NEW_HINT = (
    "rename, cast or drop these columns before, or have new ones added, and those of nulls get a type, by ",
    OptionName("merge_schema"),
    "; names are case-sensitive",
)
_TYPE_HINT = (
    "give them types or values in the first rows, or leave them out and have them added later by ",
    OptionName("merge_schema"),
)


@dataclass(frozen=True, slots=True)
class Fitting:
    """How batches of the same schema become rows of a table.

    `schema` has the columns that are written, in the table's order, with the table's metadata and without
    extension types; `indices` has the index of each of them in the batch.
    """

    schema: pa.Schema
    indices: tuple[int, ...]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch as rows of the table; columns of equal type are not copied.

        Raises `InvalidError` naming the column if a value doesn't fit the table's type, or is null although
        the table's column is not nullable.
        """
        arrays = [
            _converted(batch.column(index), field)
            for index, field in zip(self.indices, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def fit(batch: pa.Schema, table: pa.Schema, where: str = "") -> Fitting:
    """Returns how batches with the schema `batch` are written into a table with the schema `table`.

    Raises `InvalidError`, which lists every column that doesn't fit; `where` names the table in it.
    """
    wanted = [plain_field(field) for field in table]
    faults = list(_struct_faults(list(batch), wanted, ""))
    written = [field for field in wanted if batch.get_all_field_indices(field.name)]
    if not written and not faults:
        faults = ["it has no columns"]
    if faults:
        can_merge = any(text in fault for fault in faults for text in (_ABSENT, _UNTYPED))
        hint = _NEW_HINT if can_merge else _HINT
        raise InvalidError(f"the batch doesn't fit the table: {'; '.join(faults)}", where=where, hint=hint)
    indices = tuple(batch.get_field_index(field.name) for field in written)
    return Fitting(pa.schema(written, metadata=table.metadata), indices)


def check_known(columns: pa.Schema, where: str) -> None:
    """Raises `InvalidError`, which lists them, if columns of a new table have no type, at any depth."""
    unknown = [field.name for field in columns if is_unknown(field.type)]
    if unknown:
        message = f"a table can't be created whose columns have no type yet, only nulls: {', '.join(unknown)}"
        raise InvalidError(message, where=where, hint=_TYPE_HINT)


def is_unknown(kind: pa.DataType) -> bool:
    """Returns whether a type is that of nulls, at any depth, so that no value fits it."""
    return _holds(storage_of(kind), types.is_null)


def with_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows in the types of a schema with the same columns.

    Raises `InvalidError` naming the column if a value doesn't fit, as an array in a column of vectors.
    """
    columns = []
    for column, field in zip(rows.columns, schema, strict=True):
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise _misfit(field, error) from error
    return pa.table(columns, schema=schema)


def plain_field(field: pa.Field) -> pa.Field:
    """Returns the field with storage types; extension types, at any depth, remain in its metadata alone.

    Data files are written from storage types, which don't compare equal with pyarrow's extension types.
    """
    return pa.field(field.name, _plain_type(field.type), field.nullable, complete_metadata(field) or None)


def has_blob_v2(field: pa.Field) -> bool:
    """Returns whether a field in storage types is or has a blob v2, which only pylance writes."""
    inner = (field.type.field(index) for index in range(field.type.num_fields))
    return _is_blob_v2(field) or any(map(has_blob_v2, inner))


def _is_blob_v2(field: pa.Field) -> bool:
    return (field.metadata or {}).get(EXTENSION_NAME.encode()) == BLOB_V2.encode()


def _plain_type(kind: pa.DataType) -> pa.DataType:
    kind = storage_of(kind)
    if types.is_struct(kind):
        return pa.struct([plain_field(child) for child in kind])
    if types.is_map(kind):
        return pa.map_(plain_field(kind.key_field), plain_field(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(plain_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(plain_field(kind.value_field))
    return pa.list_(plain_field(kind.value_field)) if types.is_list(kind) else kind


def _struct_faults(have: list[pa.Field], want: list[pa.Field], path: str) -> Iterator[str]:
    """Yields the faults between the fields of two structs, or of two schemas if `path` is empty."""
    wanted = {field.name: field for field in want}
    names = Counter(field.name for field in have)
    for name in sorted(name for name, count in names.items() if count > 1):
        yield f"{path}{name} is in the batch {names[name]} times"
    in_lower_case: dict[str, list[str]] = {}
    for name in wanted:
        in_lower_case.setdefault(name.lower(), []).append(name)
    for field in have:
        if field.name not in wanted:
            near = _near(in_lower_case.get(field.name.lower(), ()))
            yield f"{path}{field.name} ({field.type}) {_ABSENT}{near}"
        else:
            yield from _faults(field.type, wanted[field.name], path + field.name)
    for name, field in wanted.items():
        if name not in names and not field.nullable:
            yield f"{path}{name} ({field.type}) is missing, and the table's column is not nullable"


def _near(names: Iterable[str]) -> str:
    """Returns a remark about columns whose names differ in case only, or an empty text."""
    return "".join(f" (which has {other})" for other in names)


def _faults(have: pa.DataType, field: pa.Field, path: str) -> Iterator[str]:
    """Yields the faults of a column of type `have` for the table's field."""
    want, have = field.type, storage_of(have)
    if _is_blob_v2(field):
        yield (
            f"{path} is a blob of the type {BLOB_V2}, which only pylance writes; a new table with "
            "the data storage version 2.1 has blobs that can be written"
        )
    elif types.is_null(have):
        if not field.nullable:
            yield f"{path} has only nulls, and the table's column is not nullable"
    elif types.is_struct(have) and types.is_struct(want):
        yield from _struct_faults(list(have), list(want), f"{path}.")
    elif types.is_map(have) and types.is_map(want):
        yield from _faults(have.key_type, want.key_field, f"{path}.{want.key_field.name}")
        yield from _faults(have.item_type, want.item_field, f"{path}.{want.item_field.name}")
    elif is_list(have) and is_list(want):
        yield from _faults(have.value_type, want.value_field, f"{path}.{want.value_field.name}")
    elif types.is_null(want):
        yield f"{path} is {have} in the batch, and {_UNTYPED}"
    elif not leaf_fits(have, want):
        yield f"{path} is {have} in the batch, {want} in the table"


def is_list(kind: pa.DataType) -> bool:
    """Returns whether values of the type are lists, of any of Arrow's kinds that a batch may have."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def leaf_fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Returns whether values keep their meaning; each value is checked if some can't (see the module)."""
    if have == want:
        return True
    if types.is_dictionary(have):
        return leaf_fits(have.value_type, want)
    if types.is_dictionary(want):
        return _is_text(have) and _is_text(want.value_type)
    if types.is_integer(have) and types.is_integer(want):
        signed = types.is_signed_integer(want)
        wider = want.bit_width > have.bit_width
        same_kind = types.is_signed_integer(have) and want.bit_width == have.bit_width
        return bool(not signed or wider or same_kind)
    if types.is_floating(have) and types.is_floating(want):
        return bool(want.bit_width >= have.bit_width)
    if types.is_decimal(have) and types.is_decimal(want):
        whole = want.precision - want.scale >= have.precision - have.scale
        return bool(want.scale >= have.scale and whole)
    if types.is_timestamp(have) and types.is_timestamp(want):
        return (have.tz is None) == (want.tz is None)
    if types.is_date(have) and types.is_timestamp(want):
        return want.tz is None
    families = (_is_text, _is_binary, types.is_date, types.is_time, types.is_duration)
    return any(family(have) and family(want) for family in families)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


_UNCHECKED = (
    (_is_text, "a text is not UTF-8", ": no Lance client could read the column"),
    (types.is_time, "a time is not within a day", "; durations need a column of another type"),
    (types.is_decimal, "a decimal has more digits than its column", ""),
)
"""Types whose values Arrow may not have checked, with what is then said of them and added to the hint."""


def _is_binary(kind: pa.DataType) -> bool:
    flexible = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(flexible or types.is_fixed_size_binary(kind))


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    """Returns the array in the field's type.

    Raises `InvalidError` naming the field if a value doesn't fit.
    """
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    try:
        if array.type != field.type and isinstance(array, pa.DictionaryArray):
            array = _decoded(array, field.type)
        converted = array if array.type == field.type else array.cast(field.type, safe=True)
    except pa.ArrowException as error:
        raise _misfit(field, error) from error
    _check_values(converted, field.name)
    check_depth(converted, field)
    converted = as_in_log(limited(_aligned(converted), field, field.name), field)
    path = _null_at(converted, field, field.name)
    if path:
        hint = "leave out such rows, or give them a value"
        raise InvalidError("the batch has a null, and the column is not nullable", where=path, hint=hint)
    return converted


def _decoded(array: pa.DictionaryArray, kind: pa.DataType) -> pa.Array:
    """Returns the values of a dictionary's array in another type, or in the values' type of a dictionary.

    Returns them in their own type if one of the dictionary, which perhaps no row has, does not fit.
    """
    try:
        values = array.dictionary.cast(kind.value_type if types.is_dictionary(kind) else kind, safe=True)
    except pa.ArrowInvalid:
        return array.dictionary_decode()
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def _misfit(field: pa.Field, error: pa.ArrowException) -> InvalidError:
    reason = f"a value doesn't fit the table's {field.type}: {error}"
    return InvalidError(reason, where=field.name, hint="correct or leave out such rows")


def _holds(kind: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Returns whether values of the type are, or have at any depth, values for which `is_kind` holds."""
    if types.is_dictionary(kind):
        return _holds(kind.value_type, is_kind)
    return is_kind(kind) or any(_holds(kind.field(index).type, is_kind) for index in range(kind.num_fields))


def _check_values(array: pa.Array, name: str) -> None:
    """Raises `InvalidError` naming the column if it has values that its type can't have, at any depth.

    Arrow doesn't check them when it reads a file of Parquet, nor all decimals when it reads JSON or CSV, nor
    Spark when it casts bytes to a text.
    """
    reasons = [each for each in _UNCHECKED if _holds(array.type, each[0])]
    if reasons and not (_is_valid(array) or _is_valid(_copied(array))):
        _, messages, hints = zip(*reasons, strict=True)
        hint = f"correct or leave out such rows{''.join(hints)}"
        raise InvalidError(", or ".join(messages), where=name, hint=hint)


def _is_valid(array: pa.Array) -> bool:
    """Returns whether each value is one of its type.

    Those inside of lists are checked also beyond the slice that the array is.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _copied(array: pa.Array) -> pa.Array:
    return array.take(pa.array(range(len(array)), pa.int64()))


def _aligned(array: pa.Array) -> pa.Array:
    """Returns the array with buffers that start where pylance can read decimals, copied if they don't.

    Spark aligns its buffers to 8 bytes. A decimal has 16, and pylance panics if its buffer starts between.
    """
    if not _holds_decimals(array.type):
        return array
    if all(buffer is None or buffer.address % _DECIMAL_BYTES == 0 for buffer in array.buffers()):
        return array
    return _copied(array)


def _holds_decimals(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return _holds_decimals(kind.key_type) or _holds_decimals(kind.item_type)
    if types.is_nested(kind) and not types.is_dictionary(kind):
        return any(_holds_decimals(kind.field(index).type) for index in range(kind.num_fields))
    return bool(types.is_decimal(kind))


def _null_at(array: pa.Array, field: pa.Field, path: str) -> str:
    """Returns the path of a null that the field's type forbids, or an empty text.

    Arrow's own casts check structs only, and only if the type changes.
    """
    if array.null_count and not field.nullable:
        return path
    kind = field.type
    if not _forbids_nulls_inside(kind):
        return ""
    if types.is_struct(kind):
        valid = array.filter(array.is_valid()) if array.null_count else array
        inner = [(valid.field(index), kind.field(index)) for index in range(kind.num_fields)]
    elif types.is_map(kind):
        # The keys of a map in Arrow are never null.
        entries = array.cast(pa.list_(kind.field(0))).flatten()
        inner = [(entries.field(1), kind.item_field)]
    else:
        # The items of null lists don't count; `flatten` leaves them out.
        inner = [(array.flatten(), kind.value_field)]
    return next(
        filter(None, (_null_at(values, child, f"{path}.{child.name}") for values, child in inner)), ""
    )


def _forbids_nulls_inside(kind: pa.DataType) -> bool:
    if not types.is_nested(kind) or types.is_dictionary(kind):
        return False
    children = [kind.item_field] if types.is_map(kind) else map(kind.field, range(kind.num_fields))
    return any(not child.nullable or _forbids_nulls_inside(child.type) for child in children)
