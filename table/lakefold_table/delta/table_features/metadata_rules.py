"""What Delta's protocol requires of the metadata of a table: of its properties and of its columns.

A table of another client may break these rules, and is read all the same. A proposal may not begin to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.json_text import is_long, parse_object
from lakefold_table.delta.table_features.checkpoint_protection import (
    FEATURE as CHECKPOINT_PROTECTION,
)
from lakefold_table.delta.table_features.checkpoint_protection import PROTECTED, SET_VERSION, protection_of
from lakefold_table.delta.table_features.columns import (
    MAPPED_ID,
    NESTED,
    PHYSICAL_NAME,
    SchemaColumn,
    all_columns,
)
from lakefold_table.delta.table_features.property_values import SHOWN, number_of, value_faults
from lakefold_table.delta.table_features.row_tracking import ENABLED, MATERIALIZED
from lakefold_table.delta.table_features.simple_types import NO_VALUES, is_simple
from lakefold_table.delta.table_features.type_widening import unrecorded
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import TableMetadata

CONSTRAINTS: Final = "delta.constraints."
INVARIANT: Final = "delta.invariants"
"""The key in the metadata of a column whose values meet a condition."""
DEFAULT: Final = "CURRENT_DEFAULT"
"""The key in the metadata of a column whose values are not null if a writer gives none."""
GENERATED: Final = "delta.generationExpression"
"""The key in the metadata of a column that is generated."""
MAPPING_MODE: Final = "delta.columnMapping.mode"
DELETION_VECTORS: Final = "delta.enableDeletionVectors"
"""The property of a table whose files may get deletion vectors."""
_UNMAPPED: Final = "none"
_MOST_IDS: Final = 1 << 31
HIGHEST_ID: Final = "delta.columnMapping.maxColumnId"
_OTHER_TYPES: Final = NESTED | {*NO_VALUES, "variant"}
_IN_NO_NAME: Final = frozenset(" ,;{}()\n\t=")
"""The characters that names in data files can't have."""
_SHOWN: Final = "".join(sorted(_IN_NO_NAME))
_FOLLOW: Final = "send the metadata that Delta's protocol allows"
_FILES: Final = "remove all files in the same proposal, and have it read the whole table"


@value()
class FeatureUse:
    """A use of a feature that the metadata show. `features`: the names of the feature.

    `uses`: returns what uses it, for people, empty if nothing does.
    """

    features: tuple[str, ...]
    uses: Callable[[TableMetadata, Sequence[SchemaColumn]], str]


def _property(name: str, wanted: str = "true") -> Callable[[TableMetadata, Sequence[SchemaColumn]], str]:
    def uses(metadata: TableMetadata, _columns: Sequence[SchemaColumn]) -> str:
        return f"{name} = {wanted}" if (metadata.configuration.get(name) or "").lower() == wanted else ""

    return uses


def _column_key(key: str) -> Callable[[TableMetadata, Sequence[SchemaColumn]], str]:
    def uses(_metadata: TableMetadata, columns: Sequence[SchemaColumn]) -> str:
        named = next((column.name for column in columns if key in column.keys), None)
        return "" if named is None else f"{key} of the column {named!r}"

    return uses


def _type(kind: str) -> Callable[[TableMetadata, Sequence[SchemaColumn]], str]:
    def uses(_metadata: TableMetadata, columns: Sequence[SchemaColumn]) -> str:
        named = next((column.name for column in columns if kind in column.kinds), None)
        return "" if named is None else f"the type {kind} of the column {named!r}"

    return uses


def _constraint(metadata: TableMetadata, _columns: Sequence[SchemaColumn]) -> str:
    return next((name for name in sorted(metadata.configuration) if name.startswith(CONSTRAINTS)), "")


def _mapping(metadata: TableMetadata, _columns: Sequence[SchemaColumn]) -> str:
    return MAPPING_MODE if metadata.maps_columns else ""


USES: Final = (
    FeatureUse(("appendOnly",), _property("delta.appendOnly")),
    FeatureUse(("invariants",), _column_key(INVARIANT)),
    FeatureUse(("checkConstraints",), _constraint),
    FeatureUse(("generatedColumns",), _column_key(GENERATED)),
    FeatureUse(("allowColumnDefaults",), _column_key(DEFAULT)),
    FeatureUse(("changeDataFeed",), _property("delta.enableChangeDataFeed")),
    FeatureUse(("columnMapping",), _mapping),
    FeatureUse(("identityColumns",), _column_key("delta.identity.start")),
    FeatureUse(("deletionVectors",), _property(DELETION_VECTORS)),
    FeatureUse(("rowTracking",), _property("delta.enableRowTracking")),
    FeatureUse(("inCommitTimestamp", "inCommitTimestamps"), _property("delta.enableInCommitTimestamps")),
    FeatureUse(("timestampNtz",), _type("timestamp_ntz")),
    FeatureUse(("v2Checkpoint",), _property("delta.checkpointPolicy", "v2")),
    FeatureUse(("icebergCompatV1",), _property("delta.enableIcebergCompatV1")),
    FeatureUse(("icebergCompatV2",), _property("delta.enableIcebergCompatV2")),
    FeatureUse(("typeWidening", "typeWidening-preview"), _property("delta.enableTypeWidening")),
    FeatureUse(("variantType", "variantType-preview"), _type("variant")),
)
"""What the metadata may use only if the protocol has the feature."""


def metadata_faults(metadata: TableMetadata, features: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yields which rules the metadata of a table with these features break, each with what to do.

    Raises `DamagedError` if there is no schema.
    """
    columns = all_columns(metadata)
    for use in USES:
        used = use.uses(metadata, columns)
        if used and features.isdisjoint(use.features):
            name = use.features[0]
            yield f"{used} needs the feature {name}", f"send a protocol action that has {name} as well"
    if metadata.file_format.provider != "parquet":
        yield f"the files have the format {metadata.file_format.provider!r}", "name parquet"
    if CHECKPOINT_PROTECTION in features and protection_of(metadata.configuration) is None:
        yield f"{PROTECTED} is {metadata.configuration.get(PROTECTED)!r}, which is not a version", SET_VERSION
    yield from value_faults(metadata.configuration)
    yield from _of_columns(columns)
    yield from _of_partitions(metadata, columns)
    yield from _of_row_ids(metadata, columns)
    yield from _of_mapping(metadata, columns) if metadata.maps_columns else _of_stored_names(columns)


def _of_columns(columns: Sequence[SchemaColumn]) -> Iterator[tuple[str, str]]:
    if not columns:
        yield "the schema has no columns", "give the columns of the table"
    seen: dict[tuple[str, ...], SchemaColumn] = {}
    for column in columns:
        if INVARIANT in column.keys and not _is_invariant(column.keys[INVARIANT]):
            hint = 'write it as {"expression": {"expression": "x > 3"}}, as a text'
            yield f"{INVARIANT} of the column {column.name!r} is not JSON with an expression", hint
        for key in (DEFAULT, GENERATED):
            if not isinstance(column.keys.get(key), str | None):
                yield f"{key} of the column {column.name!r} is not a text", "write the expression as a text"
        if column.lacks:
            hint = "give each column nullable, which is true or false, and metadata, which is an object"
            yield f"the definition of the column {column.name!r} lacks {column.lacks}", hint
        folded = tuple(name.lower() for name in column.path)
        if folded in seen:
            names = f"{seen[folded].name!r} and {column.name!r}"
            yield f"the columns {names} have one name: case does not count", _FOLLOW
        seen[folded] = column
        for kind in column.kinds:
            if kind not in _OTHER_TYPES and not is_simple(kind):
                shown = f"the type {kind[:SHOWN]!r}"
                yield f"the column {column.name!r} has {shown}, which Delta does not have", _FOLLOW


def _is_invariant(text: object) -> bool:
    try:
        outer = parse_object(text.encode(), INVARIANT).get("expression") if isinstance(text, str) else None
    except DamagedError:
        return False
    return isinstance(outer, dict) and isinstance(outer.get("expression"), str)


def _of_stored_names(columns: Sequence[SchemaColumn]) -> Iterator[tuple[str, str]]:
    for column in columns:
        if not _IN_NO_NAME.isdisjoint(column.path[-1]):
            message = f"the name of the column {column.name!r} has one of the characters {_SHOWN!r}"
            yield message, f"rename it, or map the columns by {MAPPING_MODE}"


def _of_partitions(metadata: TableMetadata, columns: Sequence[SchemaColumn]) -> Iterator[tuple[str, str]]:
    kinds = {column.path[0]: column.kinds[0] for column in columns if len(column.path) == 1}
    names = metadata.partition_columns
    for name in names:
        if name not in kinds:
            yield f"the partition column {name!r} is not in the schema", _FOLLOW
        elif not is_simple(kinds[name]):
            shown = f"the type {kinds[name][:SHOWN]}"
            yield f"the partition column {name!r} has {shown}", "partition by simple types"
    if len(set(names)) < len(names):
        yield "a partition column is named twice", _FOLLOW


def _of_row_ids(metadata: TableMetadata, columns: Sequence[SchemaColumn]) -> Iterator[tuple[str, str]]:
    users = {_stored_name(column, metadata).lower(): column.name for column in columns if not column.path[1:]}
    for key in MATERIALIZED:
        name = metadata.configuration.get(key)
        if name:
            other = users.setdefault(name.lower(), key)
            if other != key:
                yield f"{key} is {name!r}, which is the name of {other!r} as well", "choose another name"
        elif metadata.is_on(ENABLED):
            hint = "name the columns in which rewritten rows keep their ids and versions"
            yield f"{ENABLED} needs the property {key}", hint


def _of_mapping(metadata: TableMetadata, columns: Sequence[SchemaColumn]) -> Iterator[tuple[str, str]]:
    mode = metadata.configuration.get(MAPPING_MODE)
    if mode not in ("id", "name"):
        yield f"{MAPPING_MODE} is {mode!r}", "set it to name, id or none"
    users: dict[tuple[str, object], str] = {}
    highest = 0
    for column in columns:
        number, physical = column.keys.get(MAPPED_ID), column.keys.get(PHYSICAL_NAME)
        if not is_long(number) or not isinstance(physical, str) or not physical:
            yield f"the column {column.name!r} lacks {MAPPED_ID} or {PHYSICAL_NAME}", _FOLLOW
            continue
        if not -_MOST_IDS <= number < _MOST_IDS:
            yield f"the {MAPPED_ID} of the column {column.name!r} is {number}, beyond 32 bits", _FOLLOW
        stored = (*column.path[:-1], physical)
        for what, key in ((MAPPED_ID, number), (PHYSICAL_NAME, stored)):
            other = users.setdefault((what, key), column.name)
            if other != column.name:
                yield f"the columns {other!r} and {column.name!r} have one {what}", _FOLLOW
        highest = max(highest, number)
    text = metadata.configuration.get(HIGHEST_ID) or ""
    stated = number_of(text)
    if stated is None or stated < highest:
        shown = f"{HIGHEST_ID} is {text[:SHOWN]!r}"
        yield f"{shown}, but a column has the id {highest}", "set it to the highest id"


def replaced_fault(before: TableMetadata, after: TableMetadata) -> Invalid | None:
    """Returns why metadata can't follow on those of the version before, whatever files the table has."""
    marks = [number_of(each.configuration.get(HIGHEST_ID) or "0") for each in (before, after)]
    if after.maps_columns and None not in marks and (marks[1] or 0) < (marks[0] or 0):
        message = f"{HIGHEST_ID} goes back from {marks[0]} to {marks[1]}"
        return Invalid(message, "keep it, or set it to a higher id")
    protected = [protection_of(each.configuration) or 0 for each in (before, after)]
    if protected[1] < protected[0]:
        return Invalid(f"{PROTECTED} goes back from {protected[0]} to {protected[1]}", "keep it")
    return None


def unfit_for_files(before: TableMetadata, after: TableMetadata) -> str:
    """Returns why data files of a table don't fit to its new metadata, empty if they do (Delta fact 6.14).

    Raises `DamagedError` if there is no schema.
    """
    return next(_unfit(before, after), "")


def _unfit(before: TableMetadata, after: TableMetadata) -> Iterator[str]:
    if before.id != after.id:
        yield f"the table's id changes from {before.id} to {after.id}"
    modes = [each.configuration.get(MAPPING_MODE) or _UNMAPPED for each in (before, after)]
    # By ids no column is in files that were written without them (Delta fact 8.2); by names all are.
    if modes[0] != modes[1] and modes != [_UNMAPPED, "name"]:
        yield f"{MAPPING_MODE} changes from {modes[0]} to {modes[1]}"
    for name in MATERIALIZED:
        names = [each.configuration.get(name) for each in (before, after)]
        if names[0] and names[1] != names[0]:
            yield f"{name} changes from {names[0]!r} to {names[1]!r}"
    if _partitions(before) != _partitions(after):
        yield "the partition columns change"
    yield from _unfit_columns(before, after)


def _unfit_columns(before: TableMetadata, after: TableMetadata) -> Iterator[str]:
    kept = {column.path: now for column, now in columns_of_both(before, after)}
    for column in _by_identity(before, before).values():
        if column.path in kept:
            yield from _unfit_column(column, kept[column.path], before, after)
        elif not before.maps_columns:
            yield f"the column {column.name!r} is gone"
    yield from _unfit_new_columns(before, after)


def _unfit_new_columns(before: TableMetadata, after: TableMetadata) -> Iterator[str]:
    # A column that had no values is null in each row, whatever its new fields require.
    empty = {now.path for column, now in columns_of_both(before, after) if column.kinds[0] in NO_VALUES}
    for column in new_columns(before, after):
        if not column.may_be_null and column.path[:-1] not in empty:
            yield f"the new column {column.name!r} is NOT NULL"
        if before.maps_columns:
            yield from _reused(column, before)


def _reused(column: SchemaColumn, before: TableMetadata) -> Iterator[str]:
    """Yields what a new column shares with one that went: it would have its values in older files."""
    columns = all_columns(before)
    if not all(is_long(each.keys.get(MAPPED_ID)) for each in columns):
        # Another client has written ids that are none, which a proposal may correct.
        return
    number, highest = column.keys.get(MAPPED_ID), number_of(before.configuration.get(HIGHEST_ID) or "0")
    if is_long(number) and highest is not None and number <= highest:
        yield f"the new column {column.name!r} has the {MAPPED_ID} {number}, which is not above {highest}"
    stored = {(*each.path[:-1], each.physical) for each in columns}
    if (*column.path[:-1], column.physical) in stored:
        yield f"the new column {column.name!r} has the {PHYSICAL_NAME} of another one"


def _unfit_column(
    column: SchemaColumn, kept: SchemaColumn, before: TableMetadata, after: TableMetadata
) -> Iterator[str]:
    has_values = column.kinds[0] not in NO_VALUES
    unfit = unrecorded(column, kept, after)
    if unfit and has_values:
        yield unfit
    if _stored_name(column, before) != _stored_name(kept, after):
        yield f"the column {column.name!r} gets another {PHYSICAL_NAME}"
    # The rows of a column without values have no elements either, but each of them is null.
    required = kept.required if has_values else kept.required & {""}
    for part in sorted(required - column.required):
        name = f"{column.name}.{part}" if part else column.name
        yield f"the column {name!r} becomes NOT NULL"


def new_columns(before: TableMetadata, after: TableMetadata) -> Iterator[SchemaColumn]:
    """Yields the columns that a table gets, without the fields in them. Raises as `columns_of_both`."""
    present = {now.path for _, now in columns_of_both(before, after)}
    for column in all_columns(after):
        if column.path not in present and (not column.path[1:] or column.path[:-1] in present):
            yield column


def default_fault(before: TableMetadata, after: TableMetadata) -> tuple[str, str] | None:
    """Returns why a table can't get a column with a default, with what to do, or None.

    The rows that it has would need the value. Raises `DamagedError` if there is no schema.
    """
    for column in new_columns(before, after):
        if DEFAULT in column.keys:
            message = f"the new column {column.name!r} has {DEFAULT}"
            return message, "add the column first, then set its default in another proposal"
    return None


def keeping_files(unfit: str) -> tuple[str, str]:
    """Returns the message and the hint of an outcome for what `unfit_for_files` says."""
    return f"{unfit}, but the table keeps files that were written before", _FILES


def columns_of_both(
    before: TableMetadata, after: TableMetadata
) -> Iterator[tuple[SchemaColumn, SchemaColumn]]:
    """Yields each column that stays, at any depth, as it was and as it is. It may have another name.

    Raises `DamagedError` if there is no schema.
    """
    old, new = (_by_identity(metadata, before) for metadata in (before, after))
    return ((column, new[key]) for key, column in old.items() if key in new)


def _by_identity(metadata: TableMetadata, before: TableMetadata) -> Mapping[object, SchemaColumn]:
    """Returns the columns by what stays the same if they are renamed: their ids in a table that has some."""
    columns: Iterable[SchemaColumn] = all_columns(metadata)
    if before.maps_columns:
        return {key: column for column in columns if is_long(key := column.keys.get(MAPPED_ID))}
    return {column.path: column for column in columns}


def _partitions(metadata: TableMetadata) -> tuple[str, ...]:
    """Returns the names under which files give the values of partition columns: they outlast a renaming."""
    columns = {column.path: column for column in all_columns(metadata)}
    by_name = ((name, columns.get((name,))) for name in metadata.partition_columns)
    return tuple(name if column is None else _stored_name(column, metadata) for name, column in by_name)


def _stored_name(column: SchemaColumn, metadata: TableMetadata) -> str:
    return column.physical if metadata.maps_columns else column.path[-1]
