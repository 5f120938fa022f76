"""A filter on a table: which rows meet it, and which files can have such rows."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_reader.delta.filters.nodes import COMPARISONS, CallNode, ColumnNode, InNode, LiteralNode
from lakefold_reader.delta.filters.parser import parsed
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.predicates.matching import FileFilter
from lakefold_table.delta.predicates.syntax import (
    Always,
    Anything,
    Both,
    Comparison,
    Either,
    NullCheck,
    Time,
    opposite,
)
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_reader.delta.filters.nodes import Node
    from lakefold_reader.delta.schema import DeltaColumn, DeltaSchema
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.predicates.syntax import Constant, Predicate

_TURNED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


class Condition:
    """A filter on the rows of a table."""

    def __init__(self, text: str, schema: DeltaSchema) -> None:
        """Raises `InvalidError` if the filter can't be read, or doesn't fit the types of the columns."""
        self._text = text
        self._schema = schema
        self._node, self.columns = parsed(text, schema.table)
        names = pa.schema([column.field for column in self.columns])
        met = self._evaluated(pa.RecordBatch.from_pylist([], names))
        if not pa.types.is_boolean(met.type) and not pa.types.is_null(met.type):
            raise InvalidError(f"the filter gives {met.type}, not true or false", where=text[:200])

    def mask(self, rows: pa.RecordBatch) -> np.ndarray:
        """Returns for each row whether it meets the filter. `rows` has the columns that it needs."""
        met = self._evaluated(rows)
        if isinstance(met, pa.Scalar):
            return np.full(rows.num_rows, met.as_py() is True)
        if pa.types.is_null(met.type):
            return np.zeros(rows.num_rows, dtype=bool)
        filled = pc.fill_null(met, fill_value=False)
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)

    def may_match(self, file: AddFile) -> bool:
        """Returns whether rows of a file can meet the filter, by its partition values and its statistics."""
        return self._files.may_match(file)

    def _evaluated(self, rows: pa.RecordBatch) -> pa.Array | pa.Scalar:
        try:
            return self._node.evaluate(rows)
        except (pa.ArrowException, TypeError, AttributeError) as error:
            message = f"the filter can't be evaluated: {error}"
            hint = "compare a column with a constant of its own type"
            raise InvalidError(message, where=self._text[:200], hint=hint) from error

    @cached_property
    def _files(self) -> FileFilter:
        """Decides by physical names, as statistics and partition values have them."""
        fields = [
            {"name": column.physical, "type": column.type_name}
            for column in self._schema.table
            if column.type_name
        ]
        schema = json.dumps({"type": "struct", "fields": fields})
        metadata = TableMetadata("", schema, partition_columns=self._schema.partitions)
        return FileFilter([_predicate(self._node)], metadata)


def _predicate(node: Node) -> Predicate:
    """Returns a condition that each row meets for which a node is true; as narrow as it can be said."""
    match node:
        case LiteralNode():
            return Always(node.scalar.as_py() is True)
        case CallNode("and", parts):
            return Both(tuple(map(_predicate, parts)))
        case CallNode("or", parts):
            return Either(tuple(map(_predicate, parts)))
        case CallNode("not", (LiteralNode() as literal,)):
            return Always(literal.scalar.as_py() is False)
        case CallNode("not", (part,)):
            return _opposite(part)
        case CallNode("is null" | "is not null" as name, (ColumnNode() as column,)):
            return NullCheck(_path(column.column), is_null=name == "is null")
        case CallNode(operator, (ColumnNode() as column, LiteralNode() as literal)) if operator in _TURNED:
            return _compared(column, operator, literal)
        case CallNode(operator, (LiteralNode() as literal, ColumnNode() as column)) if operator in _TURNED:
            return _compared(column, _TURNED[operator], literal)
        case InNode(ColumnNode() as column):
            items = (LiteralNode(scalar) for scalar in node.constants)
            return Either(tuple(_compared(column, "=", item) for item in items))
        case _:
            return Anything()


def _opposite(node: Node) -> Predicate:
    """Returns a condition that each row meets for which a node is false."""
    match node:
        case CallNode("and", parts):
            return Either(tuple(map(_opposite, parts)))
        case CallNode("or", parts):
            return Both(tuple(map(_opposite, parts)))
        case CallNode("not", (part,)):
            return _predicate(part)
        case CallNode(operator, _) if operator in COMPARISONS or operator in ("is null", "is not null"):
            return opposite(_predicate(node))
        case InNode(ColumnNode()) if not node.has_null:
            return opposite(_predicate(node))
        case _:
            return Anything()


def _path(column: DeltaColumn) -> tuple[str, ...]:
    return tuple(each.physical for each in (*column.path, column))


def _compared(column: ColumnNode, operator: str, literal: LiteralNode) -> Predicate:
    if not literal.scalar.is_valid:
        # A comparison with NULL is never true.
        return Always(met=False) if operator in _TURNED else Anything()
    constant = _constant(literal)
    return Anything() if constant is None else Comparison(_path(column.column), operator, constant)


def _constant(literal: LiteralNode) -> Constant | None:
    if literal.number is not None:
        return literal.number
    kind, content = literal.scalar.type, literal.scalar.as_py()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Time(content.isoformat())
    return content if isinstance(content, str | bool | int) else None
