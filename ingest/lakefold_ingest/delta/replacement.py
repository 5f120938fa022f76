"""Whether rows of a Delta table can be replaced, by which columns, and which files are.

No row is read for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.partitions import check_partition_columns
from lakefold_ingest.delta.row_rules import UnknownPredicateError, check_predicate
from lakefold_ingest.delta.schemas import check_names, new_fields, with_known_ids
from lakefold_ingest.delta.table_schema import table_schema, with_fields
from lakefold_reader.delta.columns import partition_value
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.new_files.stored_columns import fields_in
from lakefold_reader.delta.schema import schema_in
from lakefold_reader.delta.versions import read_state
from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile, removal_of
from lakefold_table.delta.predicates.syntax import parse_predicate
from lakefold_table.delta.table_features.clustering import clustering_faults
from lakefold_table.delta.table_features.dependent_expressions import expression_faults
from lakefold_table.delta.table_features.metadata_rules import metadata_faults
from lakefold_table.delta.validity import APPEND_ONLY
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_ingest.delta.view import DeltaView
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.table_actions import TableMetadata


def check_removable(view: DeltaView) -> None:
    """Raises `InvalidError` if rows of the table can't be deleted or replaced: it is append-only."""
    if view.metadata.is_on(APPEND_ONLY):
        message = f"the table is append-only ({APPEND_ONLY}), and its rows can't be replaced"
        raise InvalidError(message, where=view.uri, hint="only add rows to it")


def with_other_columns(view: DeltaView, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaView:
    """Returns the view as if the table had these columns instead of its own; the same if they are its own.

    `partition_by`: the partition columns that it gets; empty: it keeps its own. Its properties stay. Raises
    `InvalidError` if it can't have such columns.
    """
    partitions = tuple(partition_by) or view.partition_columns()
    lacking = [name for name in partitions if name not in columns.names]
    if lacking and not partition_by:
        message = f"the table is partitioned by {', '.join(lacking)}, which the rows don't have"
        hint = ("name other columns by ", OptionName("partition_by"))
        raise InvalidError(message, where=view.uri, hint=hint)
    check_partition_columns(partitions, columns)
    view.check_times(columns)
    check_names(field for field in columns if field.name not in view.schema.names)
    before, fields = view.metadata, new_fields(columns)
    if before.maps_columns:
        fields = with_known_ids(fields, fields_in(before))
    metadata = with_fields(before, fields, f"{before.id} {view.version}")
    metadata = replace(metadata, partition_columns=partitions)
    schema = table_schema(metadata)
    if schema.equals(view.schema, check_metadata=True) and partitions == view.partition_columns():
        return view
    check_metadata(view, metadata)
    return replace(view, metadata=metadata, schema=schema)


def check_metadata(view: DeltaView, metadata: TableMetadata) -> None:
    """Raises `InvalidError` if the committer would refuse this metadata, whatever rows come with it."""
    before = view.metadata

    def faults(each: TableMetadata) -> Iterator[tuple[str, str]]:
        yield from metadata_faults(each, view.features)
        yield from expression_faults(each)
        yield from clustering_faults(view.clustering, each, before)

    faults_before = {message for message, _ in faults(before)}
    for message, hint in faults(metadata):
        if message not in faults_before:
            raise InvalidError(message, where=view.uri, hint=hint)


def is_of_partitions(metadata: TableMetadata, where: str) -> bool:
    """Returns whether a condition is decided by the values of partition columns, so that no row is read."""
    if metadata.maps_columns:
        return False
    try:
        check_predicate(parse_predicate(where), metadata.partition_columns)
    except UnknownPredicateError:
        return False
    return True


def check_replaceable(view: DeltaView, where: str) -> None:
    """Raises `InvalidError` if rows of the table can't be replaced, or `replaceWhere` can't be evaluated.

    `where`: empty for all rows.
    """
    check_removable(view)
    if where:
        try:
            Condition(where, schema_in(view.metadata, view.uri))
        except InvalidError as error:
            message = f"{where!r} can't be evaluated: {error.message}"
            raise InvalidError(message, where="replaceWhere", hint=error.hint) from error


def replaced_files(view: DeltaView, source: Source, where: str) -> list[RemoveFile]:
    """Returns the actions that remove the files of the version whose rows are replaced.

    `where`: empty for all files, or a condition for which `is_of_partitions` holds. Raises `InvalidError` if
    it can't be evaluated, and as `check_removable` and `read_state`.
    """
    check_removable(view)
    files = list(read_state(source, view.version)[1].files.values())
    if where:
        chosen = _holds(view, files, where)
        files = [file for file, is_chosen in zip(files, chosen, strict=True) if is_chosen]
    return [replace(removal_of(file, data_change=True), stats=None) for file in files]


def _holds(view: DeltaView, files: Sequence[AddFile], where: str) -> list[bool]:
    """Returns for each file whether a condition holds for its partition, as a filter on its rows says."""
    try:
        condition = Condition(where, schema_in(view.metadata, view.uri))
        values = {
            column.field.name: pa.array(
                [partition_value(file.partition_values.get(column.physical), column) for file in files],
                column.field.type,
            )
            for column in condition.columns
        }
        # A condition that names no column has as many rows as well.
        values[""] = pa.nulls(len(files))
        chosen: list[bool] = condition.mask(pa.record_batch(values)).tolist()
    except InvalidError as error:
        message = f"the predicate {where!r} can't be evaluated: {error.message}"
        raise InvalidError(message, where=view.uri, hint=error.hint) from error
    except ValueError as error:
        hint = "replace all rows, or use another client"
        raise InvalidError(str(error), where=view.uri, hint=hint) from error
    return chosen
