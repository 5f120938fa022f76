"""Which files of a Delta table a batch replaces or deletes: all, or those of partitions by a condition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.row_rules import UnknownPredicateError, check_predicate, holds
from lakefold_reader.delta.versions import read_state
from lakefold_table.delta.actions.file_actions import removal_of
from lakefold_table.delta.predicates.syntax import Always, parse_predicate
from lakefold_table.delta.validity import APPEND_ONLY
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.delta.writing import DeltaView
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile

_PARTITIONS = "name partition columns, compared with constants: files of other conditions would be rewritten"


def check_replaceable(view: DeltaView, where: str, option: str = "replaceWhere") -> None:
    """Raises `InvalidError` if rows of the table can't be replaced, or not those of this condition.

    `where`: empty for all rows. `option`: which one the condition is, for errors.
    """
    if view.metadata.is_on(APPEND_ONLY):
        message = f"the table is append-only ({APPEND_ONLY}), and its rows can't be replaced"
        raise InvalidError(message, where=view.uri, hint="only add rows to it")
    if view.metadata.maps_columns and where:
        message = f"{option} is not built for Delta tables with column mapping"
        raise InvalidError(message, where=view.uri, hint="replace all rows, or use another client")
    if where:
        try:
            check_predicate(parse_predicate(where), view.partition_columns())
        except UnknownPredicateError as error:
            message = f"rows of a Delta table are replaced and deleted by partitions: {error}"
            raise InvalidError(message, where=option, hint=_PARTITIONS) from error


def replaced_files(
    view: DeltaView, source: Source, where: str, option: str = "replaceWhere"
) -> list[RemoveFile]:
    """Returns the actions that remove the files of the version whose rows are replaced.

    Raises as `check_replaceable` and `read_state`.
    """
    check_replaceable(view, where, option)
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
    columns = {}
    for name in view.partition_columns():
        kind = view.schema.field(name).type
        texts = [file.partition_values.get(name) or None for file in files]
        try:
            columns[name] = pa.array(texts, pa.string()).cast(kind)
        except pa.ArrowException as error:
            message = f"values of the partition column {name} can't be compared: {error}"
            raise InvalidError(
                message, where=view.uri, hint="replace all rows, or use another client"
            ) from error
    return pa.table(columns)
