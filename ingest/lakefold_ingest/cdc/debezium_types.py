"""The types of the columns of change events: which form each has, and the conversion of its values.

The form says the schema of a message, or the option `debeziumTypes`. A value is converted before it is fitted
to the table's column, and so are the items of lists and the fields of structs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.cdc.debezium_forms import BY_SHORT_NAME, DECIMAL, Form, column_of, form_of
from lakefold_ingest.cdc.debezium_values import DIGITS, decimal_type
from lakefold_ingest.cdc.json_events import common_field
from lakefold_ingest.rows.fitting import is_list
from lakefold_ingest.rows.row_faults import RowFaults, find_faults
from lakefold_ingest.rows.text_numbers import wide
from lakefold_table.columns.extension_types import storage_of
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME: Final = re.compile(r"\s*([\w.]+)\s*(?:\(\s*(-?\d+)\s*\))?\s*")


@dataclass(frozen=True, slots=True)
class DebeziumType:
    """The type of a column: its form, and the scale and precision of a `Decimal`.

    `items` is the type of the items of a list, `fields` has those of the fields of a struct. A user names the
    form of a list's items only.
    """

    form: Form
    scale: int = 0
    precision: int = field(default=DIGITS, compare=False)
    items: DebeziumType | None = None
    fields: Mapping[str, DebeziumType] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether JSON has the values, at any depth, as the column has them."""
        inner = [*self.fields.values(), *([] if self.items is None else [self.items])]
        return bool(self.form.into) and self.form.read is None and all(each.is_plain for each in inner)

    @property
    def new_type(self) -> pa.DataType:
        """The type of its column in a table that is created. Raises `InvalidError` if it is refused."""
        if not self.form.into:
            raise self._refusal("")
        if self.form is DECIMAL:
            return decimal_type(self.scale, self.precision)
        if self.items is not None:
            return pa.list_(self.items.new_type)
        if self.fields:
            return pa.struct([(name, kind.new_type) for name, kind in self.fields.items()])
        if self.form.new is None:
            raise InvalidError(
                f"the schema of the messages doesn't say what is inside of {self}",
                where=OptionName("envelope"),
                hint="create the table first: append a frame without rows that has its columns",
            )
        return self.form.new

    def json_type(self, wanted: pa.DataType, *, numbers: bool = False) -> pa.DataType | None:
        """Returns the type in which JSON has its values for a column of type `wanted`; None: as they come.

        `numbers`: decimals are numbers there, not base64.
        """
        if is_list(wanted):
            inner = self.items or (None if self.is_plain else self)
            item = (
                wide(wanted.value_type)
                if inner is None
                else inner.json_type(wanted.value_type, numbers=numbers)
            )
            return None if item is None else pa.list_(item)
        if self.form is DECIMAL:
            return decimal_type(self.scale) if numbers else None
        if self.form.read is not None:
            return self.form.raw
        if not types.is_struct(wanted):
            return wide(wanted)
        named = ((each, self.fields.get(each.name)) for each in wanted)
        read = (
            (each.name, wide(each.type) if kind is None else kind.json_type(each.type, numbers=numbers))
            for each, kind in named
        )
        return pa.struct([(name, kind) for name, kind in read if kind is not None])

    def has_numbers(self, column: pa.DataType) -> bool:
        """Returns whether JSON has decimals as numbers, in values of which it has this type."""
        if is_list(column):
            return (self.items or self).has_numbers(column.value_type)
        if types.is_struct(column):
            return any(
                kind.has_numbers(column.field(name).type)
                for name, kind in self.fields.items()
                if column.get_field_index(name) >= 0
            )
        return self.form is DECIMAL and (types.is_integer(column) or types.is_floating(column))

    def check(self, wanted: pa.DataType, path: str) -> None:
        """Raises `InvalidError`, which names form and column, if it is not read into such a column."""
        wanted, column = storage_of(wanted), column_of(wanted)
        if column == "list" and self.items is None and self.form.into and "list" not in self.form.into:
            self.check(wanted.value_type, f"{path}.item")
        elif column not in self.form.into:
            raise self._refusal(path, column)
        elif column == "list" and self.items is not None:
            self.items.check(wanted.value_type, f"{path}.item")
        elif column == "struct":
            for each in wanted:
                if each.name in self.fields:
                    self.fields[each.name].check(each.type, f"{path}.{each.name}")

    def _refusal(self, path: str, column: str = "") -> InvalidError:
        form = self.form
        if not form.into:
            return InvalidError(f"{form.name} of Kafka Connect is not read", where=path, hint=form.instead)
        message = f"{form.name} is read into columns of {' or '.join(form.into)}, and this one is {column}"
        hint = ("make the column one of these, or name another form in ", OptionName("debezium_types"))
        return InvalidError(message, where=path, hint=hint)

    def __str__(self) -> str:
        if self.items is not None:
            return f"array of {self.items}"
        name = self.form.short
        return f"{name}({self.scale})" if self.form is DECIMAL else name


def named_types(given: Mapping[str, str] | None) -> dict[str, DebeziumType]:
    """Returns the types that a user has named by column, such as `Date` or `Decimal(2)`.

    Raises `InvalidError` naming one that is unknown.
    """
    result = {}
    for column, text in (given or {}).items():
        match = _NAME.fullmatch(text)
        form = None if match is None else BY_SHORT_NAME.get(match[1].rpartition(".")[2])
        if match is None or form is None or (form is DECIMAL) != _is_scale(match[2]):
            hint = f"give one of {', '.join(BY_SHORT_NAME)}; a Decimal with its scale, as Decimal(2)"
            raise InvalidError(
                f"there is no type {text!r} (column {column})", where=OptionName("debezium_types"), hint=hint
            )
        result[column] = DebeziumType(form, int(match[2] or 0))
    return result


def types_in_schema(schema: object) -> dict[str, DebeziumType]:
    """Returns the types of the columns of a row, or of the rows in an envelope, by a message's schema."""
    fields = fields_of(schema)
    images = [each for each in fields if each.get("field") in {"before", "after"}]
    rows = [each for image in images for each in fields_of(image)] if images else fields
    return {str(each.get("field")): type_of(each) for each in rows}


def fields_of(schema: object) -> list[dict[str, Any]]:
    """Returns the fields of a schema of Kafka Connect; none if it is no struct."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [each for each in fields or () if isinstance(each, dict)]


def type_of(schema: object) -> DebeziumType:
    """Returns the type that a schema of Kafka Connect describes."""
    given = schema if isinstance(schema, dict) else {}
    form = form_of(str(given.get("name") or ""), str(given.get("type") or ""))
    parameters = given.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    scale, precision = (str(parameters.get(name)) for name in ("scale", "connect.decimal.precision"))
    if form is DECIMAL and not _is_scale(scale):
        form = Form(form.name, form.sent, (), instead=f"give it a scale of up to {DIGITS} digits")
    return DebeziumType(
        form,
        int(scale) if form is DECIMAL else 0,
        int(precision) if precision.isdecimal() else DIGITS,
        type_of(given.get("items")) if "list" in form.into else None,
        {str(each.get("field")): type_of(each) for each in fields_of(given)} if form.read is None else {},
    )


def _is_scale(text: str | None) -> bool:
    return text is not None and text.removeprefix("-").isdecimal() and abs(int(text)) <= DIGITS


def converted(
    rows: pa.Table, kinds: Mapping[str, DebeziumType], table: pa.Schema | None, faults: RowFaults
) -> pa.Table:
    """Returns the rows with the columns of these types converted. Notes values that can't be in `faults`.

    `table` is the table's schema; None: it does not exist. Raises `InvalidError` naming a column of a type
    that such values never have, or that they are not read into.
    """
    columns, fields = rows.columns, list(rows.schema)
    wanted = {} if table is None else dict(zip(table.names, map(storage_of, table.types), strict=True))
    for index, each in enumerate(fields):
        if each.name in kinds:
            column = columns[index].combine_chunks()
            columns[index] = _converted(column, kinds[each.name], wanted.get(each.name), each.name, faults)
            fields[index] = pa.field(each.name, columns[index].type)
    return pa.table(columns, schema=pa.schema(fields, rows.schema.metadata)) if fields else rows


def _converted(
    column: pa.Array, kind: DebeziumType, wanted: pa.DataType | None, name: str, faults: RowFaults
) -> pa.Array:
    if types.is_null(column.type):
        return column
    if wanted is not None:
        kind.check(wanted, name)
    if kind.is_plain:
        return column
    _check_raw(column.type, kind, name)

    def fault(start: int, stop: int) -> str | None:
        try:
            _read(column.slice(start, stop - start), kind, wanted)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            return f"it is not a {kind} of Debezium: {error}"
        return None

    wrong = find_faults(len(column), fault)
    for index, reason in wrong:
        faults.add(np.array([index], np.int64), name, reason)
    if wrong:
        keep = np.ones(len(column), np.bool_)
        keep[[index for index, _ in wrong]] = False
        column = pc.if_else(pa.array(keep), column, pa.scalar(None, column.type))
    return _read(column, kind, wanted)


def _check_raw(column: pa.DataType, kind: DebeziumType, name: str) -> None:
    """Raises `InvalidError` if a column of the batch has a type that values of this form never have."""
    if is_list(column):
        _check_raw(column.value_type, kind.items or kind, name)
    elif (
        kind.form.read is not None
        and not _is_raw(column, kind.form)
        and column_of(column) not in kind.form.into
    ):
        hint = ("name its type in ", OptionName("debezium_types"), ", or leave it out there")
        raise InvalidError(f"it is {column}, which a {kind} of Debezium never is", where=name, hint=hint)


def _is_raw(column: pa.DataType, form: Form) -> bool:
    sent = "integer" if form.sent.startswith("int") else "text" if form.sent == "string" else form.sent
    return column_of(column) in (("text", "binary") if sent == "bytes" else (sent,)) or types.is_null(column)


def _read(values: pa.Array, kind: DebeziumType, wanted: pa.DataType | None) -> pa.Array:
    """Returns the values as a column of type `wanted` is fitted with; None: as a new table has them.

    Values that were converted when the columns were made stay.
    """
    if is_list(values.type):
        item = wanted.value_type if wanted is not None and is_list(wanted) else None
        return _list_of(values, _read(values.flatten(), kind.items or kind, item))
    if kind.form.read is not None:
        keeps_text = wanted is not None and column_of(wanted) == "text" and column_of(values.type) == "text"
        if keeps_text or types.is_null(values.type):
            return values
        wanted = kind.new_type if wanted is None else wanted
        is_read = _is_raw(values.type, kind.form) or kind.form is DECIMAL
        return kind.form.read(values, wanted, kind.scale) if is_read else values
    if not types.is_struct(values.type) or not kind.fields:
        return values
    inner = {} if wanted is None else {each.name: each.type for each in wanted}
    children = [
        _read(child, kind.fields[each.name], inner.get(each.name)) if each.name in kind.fields else child
        for each, child in zip(values.type, values.flatten(), strict=True)
    ]
    names = [each.name for each in values.type]
    return pa.StructArray.from_arrays(children, names, mask=values.is_null())


def _list_of(values: pa.Array, items: pa.Array) -> pa.Array:
    """Returns lists of these items, which are as long as the lists `values`."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=values.is_null())


def common_types(groups: Iterable[Mapping[str, DebeziumType]]) -> dict[str, DebeziumType]:
    """Returns the types of all columns. Raises `InvalidError` naming a column that has two."""
    result: dict[str, DebeziumType] = {}
    for group in groups:
        for name, kind in group.items():
            other = result.setdefault(name, kind)
            if other != kind and not (other.is_plain and kind.is_plain):
                raise _disagreement(name, other, kind)
            result[name] = kind
    return result


def common_type(name: str, first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Returns the type of the `common_field` of both.

    Raises `InvalidError` naming the column if there is none.
    """
    try:
        return common_field(name, (first, second)).type
    except pa.ArrowTypeError as error:
        raise _disagreement(name, first, second) from error


def _disagreement(name: str, first: object, second: object) -> InvalidError:
    hint = "read fewer messages at a time, so that a batch ends where the source was changed"
    return InvalidError(
        f"the messages of the batch have it as {first} and as {second}", where=name, hint=hint
    )
