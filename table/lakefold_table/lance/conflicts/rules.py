"""Which operations conflict: the rules as data (Lance facts 5.1 to 5.7).

Each operation that can be proposed has a row: the operations that may have been committed in between, with
the rules that then apply. Kinds that a row doesn't name are compatible. `docs/conflicts.md` is generated from
this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lakefold_table.lance.conflicts import fragment_conditions as on
from lakefold_table.lance.conflicts import index_conditions as on_index
from lakefold_table.lance.conflicts import key_conditions as on_keys
from lakefold_table.lance.conflicts.rule import Rule, RuleEffect, always
from lakefold_table.lance.isolation import READING
from lakefold_table.lance.kinds import Kind

Row = Mapping[Kind, tuple[Rule, ...]]

REBASE, CARRIED, RETRYABLE, INCOMPATIBLE = RuleEffect


def _of_kind(effect: RuleEffect, when: str) -> tuple[Rule, ...]:
    return (Rule(effect, when, always, reads_theirs=False),)


# Rules that depend on nothing but the kind of the other operation.
NO_TRANSACTION = _of_kind(RETRYABLE, "it has no readable transaction, so what it changed is not known")
"""pylance fails over such a version (Lance fact 5.6)."""
REPLACED = _of_kind(INCOMPATIBLE, "it replaced the table's contents")
RESTORED = (
    Rule(
        RETRYABLE,
        "it put back the contents of an earlier version",
        always,
        reads_theirs=False,
        advice="build it again on the newest version; a batch that Lakefold sends is built again by itself",
    ),
)
"""pylance calls this incompatible, but what was put back is a state of the same table (decision 0009)."""
REPLACED_BY_BOTH = _of_kind(RETRYABLE, "both replace the table's contents")
MERGED_LOG = _of_kind(INCOMPATIBLE, "it merged the table's write-ahead log")
NULLABILITY = _of_kind(RETRYABLE, "it may have forbidden nulls that the values hold")
VALUES = _of_kind(RETRYABLE, "it added values that may hold nulls, which the proposal may forbid")
FRAGMENT_LIST = _of_kind(RETRYABLE, "it replaced the table's list of fragments")
OWN_FRAGMENT_LIST = _of_kind(RETRYABLE, "a merge lists all fragments, and it changed them")
OWN_SCHEMA = _of_kind(RETRYABLE, "both replace the schema")
DROPPED_UNDER_MERGE = _of_kind(INCOMPATIBLE, "it dropped columns of the schema that the merge replaces")
NO_LOG_STATE = _of_kind(INCOMPATIBLE, "it changed the table without its write-ahead log")

# Rules that compare what both operations touch.
FRAGMENT = Rule(RETRYABLE, "both change the same fragment", on.shared_fragments)
UNMERGEABLE = Rule(
    RETRYABLE,
    "both change the same fragment, and their deleted rows can't be merged",
    on.shared_but_unmergeable,
    advice="build it again on the newest version; deleted rows can be merged if the envelope names them",
)
MERGEABLE = Rule(
    REBASE,
    "both delete rows of the same fragment, not the same rows, and the proposal names its own",
    on.shared_and_mergeable,
)
ROWS = (UNMERGEABLE, MERGEABLE)
REWRITTEN = Rule(RETRYABLE, "it moved the rows of a fragment to another", on.shared_fragments)
FOLLOWED = Rule(
    CARRIED,
    "it moved rows of a fragment to another in their order, and the proposal names its own rows",
    on.rows_carried,
    carries="each row that the proposal deletes or moves is found in its new fragment",
)
MOVED_UNNAMED = Rule(
    RETRYABLE,
    "it moved the rows of a fragment to another, and the proposal doesn't name its rows",
    on.rows_unnamed,
    advice="build it again on the newest version; a proposal whose envelope names its rows is carried over",
)
MOVED_UNORDERED = Rule(
    RETRYABLE,
    "it moved the rows of a fragment to another, and doesn't say that it kept their order",
    on.rows_unordered,
)
MOVED_COLUMNS = Rule(
    RETRYABLE,
    "it moved the rows of a fragment to another, and the proposal writes columns of it again",
    on.columns_of_rewritten,
)
MOVED = (MOVED_UNNAMED, MOVED_UNORDERED, FOLLOWED)
LOST_ROWS = Rule(
    CARRIED,
    "it deleted or moved rows of a fragment that the proposal rewrites in their order",
    on.rows_lost,
    carries="these rows are marked as deleted in the proposal's new fragments",
)
LOST_UNORDERED = Rule(
    RETRYABLE,
    "it deleted or moved rows of a fragment that the proposal rewrites without saying that it keeps their "
    "order",
    on.rewritten_unordered,
    advice="build it again on the newest version; a Rewrite with the property `lakefold.row-order` is "
    "carried over",
)
CHANGED_VALUES = Rule(
    RETRYABLE, "it changed values in a fragment that the proposal rewrites", on.rewritten_values
)
LOST = (LOST_UNORDERED, CHANGED_VALUES, LOST_ROWS)
REMOVED = Rule(RETRYABLE, "it removed a fragment that the proposal changes", on.removed_fragments)
TARGET_REMOVED = Rule(
    INCOMPATIBLE, "it removed a fragment in which the proposal replaces a column", on.removed_fragments
)
MOVED_UNDER = Rule(
    RETRYABLE, "it moved rows out of a fragment in which the proposal replaces a column", on.rows_moved_away
)
OVERLAID = Rule(RETRYABLE, "it changed values of rows that the proposal moves", on.moved_rows_covered)
OVERLAID_VALUES = Rule(RETRYABLE, "both change values of the same field in the same fragment", on.same_values)
MOVED_OVERLAID = Rule(
    REBASE, "it moved rows out of a fragment whose values the proposal changes", on.overlaid_rows_moved
)
SAME_VALUES = Rule(RETRYABLE, "both change values of the same field in the same fragment", on.same_values)
DROPPED = Rule(RETRYABLE, "it dropped a field whose values the proposal changes", on.dropped_fields)
REPLACED_DROPPED = Rule(
    INCOMPATIBLE, "it dropped a field whose values the proposal replaces", on.dropped_fields
)
ANY_KEYS = Rule(
    RETRYABLE,
    "the proposal inserts rows only if their keys are new, and the appended rows may have the same keys",
    on_keys.inserts_keys,
    reads_theirs=False,
)
SAME_KEYS = Rule(
    RETRYABLE,
    "the proposal inserts rows only if their keys are new, and it may have inserted the same keys",
    on_keys.same_inserted_keys,
)

# What was read, if that is judged (decision 0120).
READ_ADDED = Rule(
    RETRYABLE,
    "what the proposal has read is judged, and the appended rows may be among those that it looked for",
    on_keys.looked_for_rows,
    reads_theirs=False,
)
READ_WRITTEN = Rule(
    RETRYABLE,
    "what the proposal has read is judged, and the rows that it wrote may be among those that it looked for",
    on_keys.looked_for_inserted,
)
READ_UNNAMED = Rule(
    RETRYABLE,
    "what was read of the table is judged, the proposal doesn't name it, and rows were deleted or changed",
    on_keys.read_without_names,
    reads_theirs=False,
)
READ_COLUMNS = Rule(
    RETRYABLE,
    "what the proposal has read is judged, and it wrote columns again",
    on_keys.read_rewritten_columns,
)
READ_CHANGED = Rule(
    RETRYABLE,
    "what the proposal has read is judged, and it changed values or columns",
    on_keys.read_anything,
    reads_theirs=False,
)

# Indices.
INDEX_NAME = Rule(
    RETRYABLE,
    "both add an index of the same name, or one removes what the other adds or replaces",
    on_index.same_index_name,
)
LOG_INDEX_MERGED = Rule(
    RETRYABLE,
    "it merged columns, and the index is that of the write-ahead log",
    on_index.ours_is_log_index,
    reads_theirs=False,
)
MERGED_LOG_INDEX = Rule(RETRYABLE, "it added the index of the write-ahead log", on_index.theirs_is_log_index)
INDEXED_VALUES = Rule(
    RETRYABLE, "one indexes a field whose values the other replaces", on_index.indexed_values
)
STALE_INDEX = Rule(
    REBASE,
    "it changed indexed values: the new index no longer covers those fragments",
    on_index.index_of_updated,
)
INDEX_REWRITTEN = Rule(RETRYABLE, "it moved rows that the new index covers", on_index.index_of_rewritten)
NGRAM_REWRITTEN = Rule(RETRYABLE, "it moved rows that a new n-gram index covers", on_index.ngram_of_rewritten)
REWRITE_INDEXED = Rule(RETRYABLE, "it indexed rows that the proposal moves", on_index.rewrite_of_indexed)
HALF_INDEXED = Rule(
    RETRYABLE,
    "it indexed some of the fragments that the proposal makes into one",
    on_index.group_half_indexed,
)
REUSE_MIXED = Rule(
    INCOMPATIBLE,
    "the fragment-reuse index is replaced together with other indices",
    on_index.reuse_replaced_with_others,
)
REUSE_TRIMMED = Rule(
    REBASE, "one adds to the fragment-reuse index, the other trims it", on_index.reuse_trimmed
)
REUSE_DROPPED = Rule(RETRYABLE, "it dropped the fragment-reuse index", on_index.reuse_dropped)
REUSE_TWICE = Rule(REBASE, "both add to the fragment-reuse index", on_index.both_carry_reuse)
LOG_INDEX = Rule(
    REBASE,
    "it merged generations of the write-ahead log that the index must name",
    on_index.indexes_mem_wal,
    reads_theirs=True,
)
NO_LOG_INDEX = Rule(
    INCOMPATIBLE,
    "it merged the table's write-ahead log",
    on_index.indexes_no_mem_wal,
    reads_theirs=False,
)

# Rules on keys, metadata, shards and base paths.
CONFIG = Rule(
    INCOMPATIBLE,
    "one sets a key of the configuration that the other sets or deletes",
    on_keys.same_config_keys,
)
TABLE_METADATA = Rule(
    INCOMPATIBLE,
    "both change the same key of the table's metadata, or one replaces all keys",
    on_keys.same_table_metadata,
)
SCHEMA_METADATA = Rule(INCOMPATIBLE, "both change the schema's metadata", on_keys.both_schema_metadata)
FIELD_METADATA = Rule(INCOMPATIBLE, "both change the metadata of the same field", on_keys.same_field_metadata)
SCHEMA_REPLACED = Rule(
    INCOMPATIBLE,
    "it replaced the schema that the metadata belongs to",
    on_keys.names_schema,
    reads_theirs=False,
)
SCHEMA_RESTORED = Rule(
    INCOMPATIBLE,
    "it replaced the schema that the metadata belongs to",
    on_keys.describes_schema,
    reads_theirs=False,
)
SCHEMA_MERGED = Rule(
    RETRYABLE,
    "it replaced the schema that the metadata belongs to",
    on_keys.describes_schema,
    reads_theirs=False,
)
DESCRIBED = Rule(
    RETRYABLE, "it changed metadata of the schema that the proposal replaces", on_keys.schema_described
)
DESCRIBED_RESTORED = Rule(
    INCOMPATIBLE, "it changed metadata of the schema that the restore replaces", on_keys.schema_described
)
OLDER_GENERATION = Rule(
    RETRYABLE, "it merged an older generation of the same shard", on_keys.older_generation
)
SAME_GENERATION = Rule(
    INCOMPATIBLE, "it merged the same or a newer generation of the same shard", on_keys.same_generation
)
GENERATIONS = (SAME_GENERATION, OLDER_GENERATION)
BASES = Rule(INCOMPATIBLE, "both add a base path with the same id, name or path", on_keys.same_bases)


WHOLE = {Kind.OVERWRITE: REPLACED, Kind.RESTORE: REPLACED}
"""The operations after which no operation is accepted that depends on the table's contents."""
CHANGES = {**WHOLE, Kind.UPDATE_MEM_WAL_STATE: MERGED_LOG}
"""The operations after which none is accepted that changes the contents without the write-ahead log."""
MERGES = {Kind.MERGE: FRAGMENT_LIST, Kind.MERGE_KEEPING_NULLABILITY: FRAGMENT_LIST}
MERGE_ROW = {
    **CHANGES,
    **dict.fromkeys((Kind.PROJECT, Kind.PROJECT_KEEPING_NULLABILITY), DROPPED_UNDER_MERGE),
    **MERGES,
    **dict.fromkeys(
        (Kind.APPEND, Kind.DELETE, Kind.UPDATE, Kind.REWRITE, Kind.DATA_REPLACEMENT, Kind.DATA_OVERLAY),
        OWN_FRAGMENT_LIST,
    ),
    Kind.UPDATE_CONFIG: (DESCRIBED,),
    Kind.CREATE_INDEX: (MERGED_LOG_INDEX,),
}
SCHEMAS = dict.fromkeys(
    (Kind.MERGE, Kind.MERGE_KEEPING_NULLABILITY, Kind.PROJECT, Kind.PROJECT_KEEPING_NULLABILITY), OWN_SCHEMA
)

READS: Row = {
    Kind.APPEND: (READ_ADDED,),
    Kind.DELETE: (READ_UNNAMED,),
    Kind.UPDATE: (READ_UNNAMED, READ_WRITTEN, READ_COLUMNS),
    **dict.fromkeys(
        (Kind.DATA_REPLACEMENT, Kind.DATA_OVERLAY, Kind.PROJECT, Kind.PROJECT_KEEPING_NULLABILITY),
        (READ_CHANGED,),
    ),
}
"""The rules of operations that depend on rows of the table, beside those on what they change."""

_ROWS: Mapping[Kind, Mapping[Kind, tuple[Rule, ...]]] = {
    Kind.APPEND: {**CHANGES, Kind.RESTORE: RESTORED, Kind.MERGE: NULLABILITY, Kind.PROJECT: NULLABILITY},
    Kind.DELETE: {
        **CHANGES,
        Kind.RESTORE: RESTORED,
        **MERGES,
        Kind.DELETE: ROWS,
        Kind.UPDATE: ROWS,
        Kind.REWRITE: MOVED,
        Kind.DATA_REPLACEMENT: (FRAGMENT,),
    },
    Kind.UPDATE: {
        **WHOLE,
        Kind.RESTORE: RESTORED,
        **MERGES,
        Kind.APPEND: (ANY_KEYS,),
        Kind.DELETE: ROWS,
        Kind.UPDATE: (SAME_KEYS, *ROWS),
        Kind.REWRITE: (*MOVED, MOVED_COLUMNS),
        Kind.PROJECT: NULLABILITY,
        Kind.PROJECT_KEEPING_NULLABILITY: (DROPPED,),
        Kind.DATA_REPLACEMENT: (FRAGMENT,),
        Kind.DATA_OVERLAY: (OVERLAID, OVERLAID_VALUES),
        Kind.UPDATE_MEM_WAL_STATE: GENERATIONS,
    },
    Kind.OVERWRITE: {
        Kind.OVERWRITE: (*REPLACED_BY_BOTH, CONFIG),
        Kind.UPDATE_CONFIG: (CONFIG,),
        Kind.UPDATE_MEM_WAL_STATE: MERGED_LOG,
    },
    Kind.CREATE_INDEX: {
        **WHOLE,
        Kind.CREATE_INDEX: (INDEX_NAME,),
        Kind.MERGE: (LOG_INDEX_MERGED,),
        Kind.MERGE_KEEPING_NULLABILITY: (LOG_INDEX_MERGED,),
        Kind.UPDATE: (STALE_INDEX,),
        Kind.REWRITE: (INDEX_REWRITTEN, NGRAM_REWRITTEN, REUSE_MIXED, REUSE_TRIMMED),
        Kind.DATA_REPLACEMENT: (INDEXED_VALUES,),
        Kind.UPDATE_MEM_WAL_STATE: (NO_LOG_INDEX, LOG_INDEX),
    },
    Kind.REWRITE: {
        **WHOLE,
        **MERGES,
        Kind.DELETE: LOST,
        Kind.UPDATE: LOST,
        Kind.REWRITE: (FRAGMENT, REUSE_TWICE),
        Kind.CREATE_INDEX: (REWRITE_INDEXED, HALF_INDEXED, REUSE_DROPPED, REUSE_MIXED, REUSE_TRIMMED),
        Kind.DATA_REPLACEMENT: (FRAGMENT,),
        Kind.DATA_OVERLAY: (FRAGMENT,),
    },
    Kind.MERGE: MERGE_ROW,
    Kind.MERGE_KEEPING_NULLABILITY: MERGE_ROW,
    Kind.PROJECT: {
        **CHANGES,
        **SCHEMAS,
        **dict.fromkeys((Kind.APPEND, Kind.UPDATE, Kind.DATA_REPLACEMENT, Kind.DATA_OVERLAY), VALUES),
    },
    Kind.PROJECT_KEEPING_NULLABILITY: {**CHANGES, **SCHEMAS},
    Kind.RESTORE: {Kind.UPDATE_CONFIG: (DESCRIBED_RESTORED,), Kind.UPDATE_MEM_WAL_STATE: MERGED_LOG},
    Kind.RESERVE_FRAGMENTS: WHOLE,
    Kind.UPDATE_CONFIG: {
        Kind.OVERWRITE: (SCHEMA_REPLACED, CONFIG),
        Kind.RESTORE: (SCHEMA_RESTORED,),
        Kind.MERGE: (SCHEMA_MERGED,),
        Kind.MERGE_KEEPING_NULLABILITY: (SCHEMA_MERGED,),
        Kind.UPDATE_CONFIG: (CONFIG, TABLE_METADATA, SCHEMA_METADATA, FIELD_METADATA),
    },
    Kind.DATA_REPLACEMENT: {
        **CHANGES,
        **MERGES,
        Kind.DELETE: (TARGET_REMOVED,),
        Kind.UPDATE: (TARGET_REMOVED, MOVED_UNDER, SAME_VALUES),
        Kind.REWRITE: (REWRITTEN,),
        Kind.CREATE_INDEX: (INDEXED_VALUES,),
        Kind.PROJECT: NULLABILITY,
        Kind.PROJECT_KEEPING_NULLABILITY: (REPLACED_DROPPED,),
        Kind.DATA_REPLACEMENT: (SAME_VALUES,),
    },
    Kind.DATA_OVERLAY: {
        **CHANGES,
        **MERGES,
        Kind.DELETE: (REMOVED,),
        Kind.UPDATE: (REMOVED, MOVED_OVERLAID),
        Kind.REWRITE: (REWRITTEN,),
        Kind.PROJECT: NULLABILITY,
    },
    Kind.UPDATE_MEM_WAL_STATE: {
        **dict.fromkeys(
            (
                Kind.APPEND,
                Kind.DELETE,
                Kind.OVERWRITE,
                Kind.MERGE,
                Kind.MERGE_KEEPING_NULLABILITY,
                Kind.RESTORE,
                Kind.PROJECT,
                Kind.PROJECT_KEEPING_NULLABILITY,
                Kind.DATA_REPLACEMENT,
                Kind.DATA_OVERLAY,
                Kind.CLONE,
            ),
            NO_LOG_STATE,
        ),
        Kind.UPDATE: GENERATIONS,
        Kind.CREATE_INDEX: GENERATIONS,
        Kind.UPDATE_MEM_WAL_STATE: GENERATIONS,
    },
    Kind.CLONE: {},
    Kind.UPDATE_BASES: {Kind.UPDATE_BASES: (BASES,)},
    Kind.UNKNOWN: {},
}


def _whole_row(kind: Kind) -> Row:
    """Returns the rules of a kind. That for versions without a transaction holds for every kind."""
    own = _ROWS[kind]
    reads = {other: (*own.get(other, ()), *more) for other, more in READS.items()} if kind in READING else {}
    return MappingProxyType({**own, **reads, Kind.UNKNOWN: NO_TRANSACTION})


RULES: Mapping[Kind, Row] = MappingProxyType({kind: _whole_row(kind) for kind in _ROWS})
"""The rules that apply, by the proposed kind and the kind that was committed in between."""

DETAILED = frozenset(
    other
    for row in RULES.values()
    for other, rules in row.items()
    if any(rule.reads_theirs for rule in rules)
)
"""The kinds of which some rule needs more than the number of the newest version."""
