"""A filter on a table: which rows meet it, and which files can have such rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_reader.delta.filters.nodes import CallNode, CastNode, ColumnNode, InNode, LiteralNode, Node
from lakefold_reader.delta.filters.typed_filter import typed
from lakefold_table.columns.conditions import CastTerm, ColumnTerm, LiteralTerm, OperatorTerm, Term
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.predicates.matching import FileFilter
from lakefold_table.delta.predicates.syntax import predicate_of
from lakefold_table.delta.table_features.text_types import KEY
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_reader.delta.schema import DeltaColumn, DeltaSchema
    from lakefold_table.delta.actions.file_actions import AddFile


class Condition:
    """A filter on the rows of a table."""

    def __init__(self, given: str | Mapping[str, pa.Scalar], schema: DeltaSchema) -> None:
        """Takes a filter as text, or the values of columns that rows must have.

        Raises `InvalidError` if the filter can't be read, or doesn't fit the types of the columns.
        """
        self._text = text = str(given)
        self._schema = schema
        self.columns: Sequence[DeltaColumn]
        try:
            self._node, self.columns = (
                _equal(given, schema) if isinstance(given, Mapping) else typed(given, schema.table)
            )
        except UnicodeEncodeError as error:
            message, hint = "the filter has half of a character", "give a text of whole characters"
            raise InvalidError(message, where=repr(text[:200]), hint=hint) from error
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
        """The same filter on files, by physical names, as statistics and partition values have them."""
        fields = [
            {"name": column.physical, "type": column.type_name, "metadata": {KEY: column.kind}}
            for column in self._schema.table
            if column.type_name
        ]
        schema = json.dumps({"type": "struct", "fields": fields})
        metadata = TableMetadata("", schema, partition_columns=self._schema.partitions)
        return FileFilter([predicate_of(_term(self._node))], metadata)


def _equal(values: Mapping[str, pa.Scalar], schema: DeltaSchema) -> tuple[Node, Sequence[DeltaColumn]]:
    columns = tuple(schema.chosen(list(values)).columns)
    pairs = zip(columns, values.values(), strict=True)
    nodes: Iterator[Node] = (
        CallNode("=", (ColumnNode(column), LiteralNode(value))) for column, value in pairs
    )
    return reduce(lambda left, right: CallNode("and", (left, right)), nodes), columns


def _term(node: Node) -> Term:
    """Returns a node as files are decided by: columns by physical names, constants in their types."""
    match node:
        case ColumnNode(column):
            return ColumnTerm(tuple(each.physical for each in (*column.path, column)))
        case LiteralNode():
            return _constant(node)
        case InNode(part, literals):
            return OperatorTerm("in", (_term(part), *map(_constant, literals)))
        case CallNode(name, parts):
            return OperatorTerm(name, tuple(map(_term, parts)))
        case CastNode():
            return CastTerm(_term(node.part), str(node.kind))


def _constant(literal: LiteralNode) -> LiteralTerm:
    if literal.number is not None:
        return LiteralTerm(literal.number)
    kind, content = literal.scalar.type, literal.scalar.as_py()
    if content is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return LiteralTerm(content.isoformat(), "timestamp")
    is_plain = isinstance(content, str | bool | int | None)
    return LiteralTerm(content) if is_plain else LiteralTerm(None, str(kind))
