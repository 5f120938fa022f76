"""Whether rows of a Delta table can be replaced, and which files are if no row has to be read for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.row_rules import UnknownPredicateError, check_predicate, holds
from lakefold_ingest.rows.text_lengths import padded
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.schema import schema_in
from lakefold_reader.delta.versions import read_state
from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile, removal_of
from lakefold_table.delta.predicates.syntax import Always, parse_predicate
from lakefold_table.delta.validity import APPEND_ONLY
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.delta.writing import DeltaView
    from lakefold_reader.format.source import Source


def check_removable(view: DeltaView) -> None:
    """Raises `InvalidError` if rows of the table can't be deleted or replaced: it is append-only."""
    if view.metadata.is_on(APPEND_ONLY):
        message = f"the table is append-only ({APPEND_ONLY}), and its rows can't be replaced"
        raise InvalidError(message, where=view.uri, hint="only add rows to it")


def is_of_partitions(view: DeltaView, where: str) -> bool:
    """Returns whether a condition is decided by the values of partition columns, so that no row is read."""
    if view.metadata.maps_columns:
        return False
    try:
        check_predicate(parse_predicate(where), view.partition_columns())
    except UnknownPredicateError:
        return False
    return True


def check_replaceable(view: DeltaView, where: str) -> None:
    """Raises `InvalidError` if rows of the table can't be replaced, or the condition can't be evaluated.

    `where`: empty for all rows.
    """
    check_removable(view)
    if where and not is_of_partitions(view, where):
        Condition(where, schema_in(view.metadata, view.uri))


def replaced_files(view: DeltaView, source: Source, where: str) -> list[RemoveFile]:
    """Returns the actions that remove the files of the version whose rows are replaced.

    `where`: empty for all files, or a condition for which `is_of_partitions` holds. Raises as
    `check_removable` and `read_state`.
    """
    check_removable(view)
    files = list(read_state(source, view.version)[1].files.values())
    predicate = parse_predicate(where)
    if isinstance(predicate, Always):
        files = files if predicate.met else []
    elif where and files:
        values = _partition_values(view, files)
        chosen = holds(predicate, values, values.schema).to_pylist()
        files = [file for file, is_chosen in zip(files, chosen, strict=True) if is_chosen]
    return [replace(removal_of(file, data_change=True), stats=None) for file in files]


def _partition_values(view: DeltaView, files: Sequence[AddFile]) -> pa.Table:
    """Returns a row for each file, with the values of its partition."""
    arrays, fields = [], [view.schema.field(name) for name in view.partition_columns()]
    for field in fields:
        name, kind = field.name, field.type
        texts = [file.partition_values.get(name) or None for file in files]
        try:
            arrays.append(padded(pa.array(texts, pa.string()).cast(kind), field))
        except pa.ArrowException as error:
            message = f"values of the partition column {name} can't be compared: {error}"
            raise InvalidError(
                message, where=view.uri, hint="replace all rows, or use another client"
            ) from error
    return pa.table(arrays, schema=pa.schema([field.with_nullable(nullable=True) for field in fields]))
