"""Alters the columns and properties of a Delta table: what a metaData action and the protocol become.

Everything that the committer would refuse, whatever others do meanwhile, is refused before it is sent, except
for row tracking of a table whose files have no row ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.delta.new_table import protocol_with, used_features, with_row_id_columns
from lakefold_ingest.delta.proposals import begin_proposal
from lakefold_ingest.delta.replacement import check_metadata
from lakefold_ingest.delta.schemas import check_names, merged_fields, widened
from lakefold_ingest.delta.table_schema import table_schema, with_fields
from lakefold_reader.delta.new_files.stored_columns import check_levels, fields_in
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.table_features.columns import PHYSICAL_NAME
from lakefold_table.delta.table_features.dependent_expressions import (
    adds_check,
    dependent_fault,
    expressions_of,
)
from lakefold_table.delta.table_features.metadata_rules import (
    GENERATED,
    INVARIANT,
    MAPPING_MODE,
    replaced_fault,
    unfit_for_files,
)
from lakefold_table.delta.table_features.protocol_check import check_committable
from lakefold_table.delta.table_features.table_properties import (
    FEATURE_PREFIX,
    added_features,
    checked_properties,
)
from lakefold_table.delta.table_features.type_widening import ENABLED as TYPE_WIDENING
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_ingest.alteration import Alteration
    from lakefold_ingest.delta.view import DeltaView
    from lakefold_ingest.proposals.key import Key
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol

_OPERATIONS: Final = {
    "add": "ADD COLUMNS",
    "rename": "RENAME COLUMN",
    "drop": "DROP COLUMNS",
    "widen": "CHANGE COLUMN",
    "properties": "SET TBLPROPERTIES",
}
"""How Delta's clients name a change of one kind."""
_COUNTED: Final = "delta.dataSkippingStatsColumns"
_SET_IT: Final = (" by ", OptionName("properties"), " in a call before")


def altered(view: DeltaView, key: Key, alteration: Alteration) -> Envelope | None:
    """Returns the proposal that alters the table, None if it is so already. Raises `InvalidError`."""
    alteration.check(view.schema.names, dict(_held(view)), view.uri)
    given = {name: text for name, text in alteration.properties.items() if text is not None}
    properties = checked_properties(given)
    try:
        metadata = _metadata(view, alteration, properties)
    except InvalidError as error:
        message, where, hint = error.texts
        raise InvalidError(message, where=where or view.uri, hint=hint) from error
    new = (used_features(metadata, view.features) | added_features(properties)) - view.features
    protocol = protocol_with(view.features | new, view.protocol) if new else None
    if protocol is None and metadata == view.metadata:
        return None
    _check(view, protocol or view.protocol, metadata)
    names = [_OPERATIONS[part] for part in alteration.parts]
    operation = names[0] if len(names) == 1 else "ALTER TABLE"
    envelope = begin_proposal(view.uri, key, view.version, operation)
    envelope.delta.actions = lines_of([*([] if protocol is None else [protocol]), metadata])
    return envelope


def _metadata(view: DeltaView, alteration: Alteration, properties: Mapping[str, str]) -> TableMetadata:
    """Returns the table's metadata as they are to be."""
    before, after = view.metadata, _with_properties(view.metadata, alteration, properties)
    if (alteration.rename or alteration.drop) and not before.maps_columns:
        message = f"columns can't be dropped or renamed: {MAPPING_MODE} is not set"
        raise InvalidError(message, hint=(f"set {MAPPING_MODE} = name", *_SET_IT))
    if alteration.widen and not after.is_on(TYPE_WIDENING):
        message = f"columns can't get wider types: {TYPE_WIDENING} is not set"
        raise InvalidError(message, hint=(f"set {TYPE_WIDENING} = true", *_SET_IT[:2]))
    fields = []
    for field in fields_in(before):
        name = field["name"]
        kept = widened(field, alteration.widen[name]) if name in alteration.widen else field
        if name not in alteration.drop:
            fields.append({**kept, "name": alteration.rename.get(name, name)})
    check_names(pa.field(name, pa.null()) for name in alteration.rename.values())
    fields, _ = merged_fields(fields, alteration.add)
    if fields == fields_in(before) and before.maps_columns == after.maps_columns:
        return with_row_id_columns(after)
    # The files of a table that was not mapped have its columns by their own names.
    whose = f"{before.id} {view.version}" if before.maps_columns else ""
    return with_row_id_columns(with_fields(after, fields, whose))


def _with_properties(
    before: TableMetadata, alteration: Alteration, properties: Mapping[str, str]
) -> TableMetadata:
    configuration = dict(before.configuration)
    stored = {name.lower(): name for name in configuration}
    for name, text in alteration.properties.items():
        if text is None and configuration.pop(stored.get(name.lower(), ""), None) is None:
            hint = f"it has {', '.join(sorted(configuration)) or 'none'}"
            raise InvalidError("the table has no such property", where=name, hint=hint)
    configuration |= {name: text for name, text in properties.items() if not name.startswith(FEATURE_PREFIX)}
    after = replace(before, configuration=configuration)
    if adds_check(before, after):
        hint = "add it by ALTER TABLE … ADD CONSTRAINT of Spark, which reads all rows"
        raise InvalidError("the rows of the table would have to meet a new constraint", hint=hint)
    return after


def _held(view: DeltaView) -> Iterator[tuple[str, str]]:
    """Yields columns that can't be dropped or renamed, with the reason."""
    yield from ((name, "the table is partitioned by it") for name in view.partition_columns())
    counted = (view.metadata.configuration.get(_COUNTED) or "").split(",")
    yield from ((name.strip(" `").split(".")[0], f"the property {_COUNTED} names it") for name in counted)
    clustered = {path[0] for path in view.clustering}
    expressions = expressions_of(view.metadata)
    for field in fields_in(view.metadata):
        name, keys = field["name"], field.get("metadata") or {}
        if keys.get(PHYSICAL_NAME, name) in clustered:
            yield name, "the table is clustered by it"
        if GENERATED in keys or INVARIANT in keys:
            yield name, "it is generated, or has an invariant"
        yield from ((name, f"{each.name} uses it") for each in expressions if each.uses((name,)))


def _check(view: DeltaView, protocol: TableProtocol, metadata: TableMetadata) -> None:
    """Raises `InvalidError` if the committer would refuse this, or no rows could be written any more."""
    check_committable(protocol, metadata, view.uri)
    check_levels(table_schema(metadata), view.uri)
    check_metadata(replace(view, protocol=protocol), metadata)
    replaced = replaced_fault(view.metadata, metadata)
    fault = None if replaced is None else (replaced.message, replaced.hint)
    unfit = unfit_for_files(view.metadata, metadata)
    if unfit:
        fault = f"the files of the table don't fit then: {unfit}", "leave that as it is"
    fault = fault or dependent_fault(view.metadata, metadata)
    if fault is not None:
        raise InvalidError(fault[0], where=view.uri, hint=fault[1])
