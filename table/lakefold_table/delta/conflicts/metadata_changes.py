"""Changes of a table's metadata after which proposals that were built before still fit.

What a commit changed is not in its metaData action, which has everything. So a committer, which knows the
version before, says it in commitInfo (`lakefoldChange`), together with what was there before: a proposal that
changes the metadata as well is merged with it. Changes by other clients always count as conflicts.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.fields import no_members
from lakefold_table.delta.json_text import parse_object, to_json
from lakefold_table.delta.snapshot.snapshot import APPS
from lakefold_table.delta.table_features.columns import PARTS, all_columns
from lakefold_table.delta.table_features.row_tracking import ENABLED, MATERIALIZED
from lakefold_table.delta.table_features.type_widening import CHANGES, unrecorded
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import TableMetadata

CHANGE: Final = "lakefoldChange"
"""The member of commitInfo that says what a commit changed, if proposals built before may fit."""
INDEPENDENT: Final = frozenset(
    {
        "delta.checkpointInterval",
        "delta.checkpointRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.logRetentionDuration",
        "delta.parquet.compression.codec",
        APPS,
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)
"""Properties on which no file depends that is added or removed meanwhile."""
INDEPENDENT_BELOW: Final = ("delta.autoOptimize.", "delta.checkpoint.", "delta.dataSkipping")
"""The beginnings of more of them."""
ROW_TRACKING: Final = frozenset({ENABLED, *MATERIALIZED})
"""Properties on which only files depend that have rows of others: these rows keep their ids from then on."""
_DESCRIPTION: Final = ("name", "description")


@value()
class MetadataChange:
    """What a commit changed in the metadata, all else as before.

    `before`: the values before of the properties that changed, null for one that was not set; in the same
    way of the name and the description of the table. `columns`: the names of added columns; `widened`: those
    of columns with a wider type.
    """

    before: Mapping[str, str | None] = field(default_factory=no_members)
    described: Mapping[str, str | None] = field(default_factory=no_members)
    columns: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def fits_files(self) -> bool:
        """Whether any files that were made before fit."""
        return self.before.keys().isdisjoint(ROW_TRACKING)

    def members(self) -> dict[str, Any]:
        """Returns the change as commitInfo has it."""
        parts = {
            "configuration": dict(self.before),
            "table": dict(self.described),
            "columns": [*self.columns],
            "widened": [*self.widened],
        }
        return {name: part for name, part in parts.items() if part}


def stored_change(members: object) -> MetadataChange | None:
    """Returns the change that a member of commitInfo says, None if it says none."""
    if not isinstance(members, dict):
        return None
    before, described = members.get("configuration", {}), members.get("table", {})
    columns, widened = members.get("columns", []), members.get("widened", [])
    if not isinstance(before, dict) or not isinstance(described, dict):
        return None
    for names in (columns, widened):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return None
    if not all(isinstance(text, str | None) for text in (*before.values(), *described.values())):
        return None
    return MetadataChange(before, described, tuple(columns), tuple(widened))


def change_between(before: TableMetadata, after: TableMetadata) -> MetadataChange | None:
    """Returns what changed, None if proposals that were built before may not fit.

    They fit if only the name, the description, independent properties and those of row tracking differ, if
    columns were added that may be null and have no metadata: their values in older files are null; and if
    columns at the top, or what is in their arrays and maps, got wider types, as values in older files are
    converted.
    """
    if _rest(before) != _rest(after):
        return None
    changed = _changed(before.configuration, after.configuration)
    if not all(map(_is_independent, changed)):
        return None
    try:
        widened = tuple(_widened(before, after))
    except DamagedError:
        return None
    columns = _added(before.schema_text, _with_types(before, after, widened))
    if columns is None:
        return None
    return MetadataChange(
        {name: before.configuration.get(name) for name in sorted(changed)},
        {
            name: getattr(before, name)
            for name in _DESCRIPTION
            if getattr(before, name) != getattr(after, name)
        },
        tuple(each["name"] for each in columns),
        widened,
    )


def _widened(before: TableMetadata, after: TableMetadata) -> Iterator[str]:
    """Yields the names of the columns at the top that got a wider type, or have one in arrays and maps."""
    old = {column.path: column for column in all_columns(before)}
    for column in all_columns(after):
        former = old.get(column.path)
        if former is None or len(column.path) > 1 or former.kinds == column.kinds:
            continue
        if not unrecorded(former, column, after):
            yield column.name


def _with_types(before: TableMetadata, after: TableMetadata, names: Collection[str]) -> str:
    """Returns the schema after, with the types before of these columns."""
    if not names:
        return after.schema_text
    old, new = (parse_object(each.schema_text.encode(), "schemaString") for each in (before, after))
    former = {each["name"]: each for each in old["fields"] if each["name"] in names}
    fields = [
        _with_type(each, former[each["name"]]) if each["name"] in former else each for each in new["fields"]
    ]
    return to_json({**new, "fields": fields})


def _with_type(field: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    keys = {key: content for key, content in field["metadata"].items() if key != CHANGES}
    if CHANGES in (before.get("metadata") or {}):
        keys[CHANGES] = before["metadata"][CHANGES]
    return {**field, "type": _narrowed(field["type"], before["type"]), "metadata": keys}


def _narrowed(kind: Any, before: Any) -> Any:  # noqa: ANN401 - JSON values
    """Returns a type with the simple types of the one before, all else as it is."""
    if not isinstance(kind, dict):
        return before
    return {**kind, **{name: _narrowed(kind[name], before[name]) for name in PARTS if name in kind}}


def merged(
    proposed: TableMetadata, present: TableMetadata, changes: Sequence[MetadataChange]
) -> TableMetadata | frozenset[str]:
    """Returns the metadata that a proposal sets on a table that was changed since it was built.

    `present`: those of the table. `changes`: what changed them since, the oldest first. Returns the names of
    properties and columns that both changed in different ways, if there are any.
    """
    read = _undone(present, changes)
    both = set[str]()
    configuration = dict(present.configuration)
    theirs = _changed(read.configuration, present.configuration)
    for name in _changed(read.configuration, proposed.configuration):
        text = proposed.configuration.get(name)
        if name in theirs and text != present.configuration.get(name):
            both.add(name)
        elif name in proposed.configuration:
            configuration[name] = text
        else:
            configuration.pop(name, None)
    described = {name: getattr(present, name) for name in _DESCRIPTION}
    for name in _DESCRIPTION:
        ours, base = getattr(proposed, name), getattr(read, name)
        if ours != base and described[name] not in (base, ours):
            both.add(name)
        described[name] = described[name] if ours == base else ours
    schema = _merged_schemas(read.schema_text, proposed.schema_text, present.schema_text)
    if isinstance(schema, frozenset):
        both |= schema
        schema = present.schema_text
    made = replace(proposed, schema_text=schema, configuration=configuration, **described)
    return frozenset(both) or made


def _undone(present: TableMetadata, changes: Sequence[MetadataChange]) -> TableMetadata:
    """Returns the metadata before some changes."""
    configuration, described = dict(present.configuration), dict[str, str | None]()
    added = set[str]()
    for change in reversed(changes):
        for name, text in change.before.items():
            configuration.pop(name, None)
            if text is not None:
                configuration[name] = text
        described.update(change.described)
        added.update(change.columns)
    schema = parse_object(present.schema_text.encode(), "schemaString")
    fields = [each for each in schema["fields"] if each["name"] not in added]
    text = present.schema_text if not added else to_json({**schema, "fields": fields})
    description = {name: described.get(name, getattr(present, name)) for name in _DESCRIPTION}
    return replace(present, configuration=configuration, schema_text=text, **description)


def _merged_schemas(read: str, proposed: str, present: str) -> str | frozenset[str]:
    """Returns a schema with the columns that both added, or the names of columns that both added."""
    if _same(read, proposed):
        return present
    if _same(read, present):
        return proposed
    ours, theirs = _added(read, proposed), _added(read, present)
    if ours is None or theirs is None:
        return frozenset({"the schema"})
    added_by_others = {each["name"].lower(): each for each in theirs}
    both = {each["name"] for each in ours if added_by_others.get(each["name"].lower(), each) != each}
    if both:
        return frozenset(both)
    schema = parse_object(present.encode(), "schemaString")
    more = [each for each in ours if each["name"].lower() not in added_by_others]
    return to_json({**schema, "fields": [*schema["fields"], *more]})


def _same(text: str, other: str) -> bool:
    where = "schemaString"
    return text == other or parse_object(text.encode(), where) == parse_object(other.encode(), where)


def _rest(metadata: TableMetadata) -> TableMetadata:
    """Returns the metadata without what is compared by itself, or may change."""
    return replace(metadata, name=None, description=None, created_ms=None, configuration={}, schema_text="")


def _changed(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> set[str]:
    """Returns the properties that differ."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _is_independent(name: str) -> bool:
    if name in INDEPENDENT or name in ROW_TRACKING:
        return True
    return name.startswith(INDEPENDENT_BELOW) or not name.startswith("delta.")


def _added(before: str, after: str) -> list[dict[str, Any]] | None:
    """Returns the plain columns that a schema has in addition to all columns of another one, in their order.

    Returns None if more differs than that.
    """
    if before == after:
        return []
    try:
        old, new = (parse_object(text.encode(), "schemaString").get("fields") for text in (before, after))
    except DamagedError:
        return None
    if not isinstance(old, list) or not isinstance(new, list):
        return None
    remaining: list[Any] = list(old)
    added: list[dict[str, Any]] = []
    for each in new:
        if remaining and each == remaining[0]:
            remaining.pop(0)
        elif (
            not isinstance(each, dict)
            or each.get("nullable") is not True
            or each.get("metadata")
            or not isinstance(each.get("name"), str)
        ):
            return None
        else:
            added.append(each)
    return None if remaining else added
