"""Every feature of Delta's protocol as data: what reads a table with it, and what may be committed to it.

docs/reference/delta-features.md is written from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.columns import all_columns, column_keys
from lakefold_table.delta.table_features.type_widening import unknown_change
from lakefold_table.values import value

if TYPE_CHECKING:
    from lakefold_table.delta.actions.table_actions import TableMetadata

Condition = Callable[["TableMetadata"], bool]


@value()
class TableFeature:
    """A feature. `names`: as lists of features have it; the first is the one in use today (Delta fact 6.4).

    `readers`: readers must know it as well. `reader`, `writer`: the protocol versions from which on a table
    has it without a list, 0 if it is always listed. `read`: what becomes of it in a snapshot; `read_refused`:
    why such a table is not read, empty if it is. `write`: what becomes of it in a commit, or why nothing is
    committed, which is so if `refused_if` holds for the table.
    """

    names: tuple[str, ...]
    readers: bool
    read: str
    write: str
    reader: int = 0
    writer: int = 0
    read_refused: bool = False
    refused_if: Condition | None = None

    @property
    def name(self) -> str:
        """The name in use today."""
        return self.names[0]


def always(_metadata: TableMetadata) -> bool:
    """The condition of features that are refused as soon as a table lists them."""
    return True


def enabled(name: str) -> Condition:
    """Returns the condition that a property of the table is `true`."""
    return lambda metadata: metadata.is_on(name)


def column_has(key: str) -> Condition:
    """Returns the condition that a column has a key in its metadata."""
    return lambda metadata: key in column_keys(metadata)


def has_variant(metadata: TableMetadata) -> bool:
    """Returns whether a column is a variant, or contains one."""
    return any("variant" in column.kinds for column in all_columns(metadata))


def has_unknown_change(metadata: TableMetadata) -> bool:
    """Returns whether the type of a column was changed in a way that is not known."""
    return bool(unknown_change(metadata))


_UNTOUCHED: Final = "the log doesn't depend on it"
_BY_WRITER: Final = "whoever writes the data files applies it: a committer sees no rows"
FEATURES: Final = (
    TableFeature(
        ("appendOnly",),
        readers=False,
        read=_UNTOUCHED,
        write="with `delta.appendOnly` = true a proposal that changes or removes rows is refused",
        writer=2,
    ),
    TableFeature(("invariants",), readers=False, read=_UNTOUCHED, write=_BY_WRITER, writer=2),
    TableFeature(("checkConstraints",), readers=False, read=_UNTOUCHED, write=_BY_WRITER, writer=3),
    TableFeature(("generatedColumns",), readers=False, read=_UNTOUCHED, write=_BY_WRITER, writer=4),
    TableFeature(("allowColumnDefaults",), readers=False, read=_UNTOUCHED, write=_BY_WRITER),
    TableFeature(
        ("changeDataFeed",),
        readers=False,
        read="`cdc` actions belong to their commit, not to a snapshot",
        write="`cdc` actions are committed as they were proposed; a proposal that writes rows again needs "
        "some, and one for a table without the feed may have none",
        writer=4,
    ),
    TableFeature(
        ("columnMapping",),
        readers=True,
        read="partition values and statistics are kept under physical names",
        write="names and ids are those of the proposal",
        reader=2,
        writer=5,
    ),
    TableFeature(
        ("identityColumns",),
        readers=False,
        read=_UNTOUCHED,
        write="refused if a column is one: proposals made at the same time would generate the same values",
        writer=6,
        refused_if=column_has("delta.identity.start"),
    ),
    TableFeature(
        ("deletionVectors",),
        readers=True,
        read="inline, and in files of the table, also by absolute paths; both serialisations; one in a file "
        "elsewhere is refused when the data file is read",
        write="committed as they were proposed, or merged with those of other proposals; one that no client "
        "could read, or with an absolute path, is refused, and a new one if `delta.enableDeletionVectors` is "
        "not true",
    ),
    TableFeature(
        ("rowTracking",),
        readers=False,
        read="row ids and commit versions are kept",
        write="the committer gives files their base row ids and default commit versions, and keeps the "
        "high-water mark; their statistics need numRecords; a writer that rewrites rows keeps their ids in "
        "the columns that the table has for that, and says so by the tag `delta.rowTracking.preserved` of a "
        "commitInfo action; the names of these columns stay, and no other column may have them",
    ),
    TableFeature(
        ("inCommitTimestamp", "inCommitTimestamps"),
        readers=False,
        read="a snapshot has the time of its commit",
        write="a commit has the log's time, and at least one millisecond more than the commit before",
    ),
    TableFeature(
        ("timestampNtz",), readers=True, read=_UNTOUCHED, write="partition values are kept as they are"
    ),
    TableFeature(
        ("typeWidening", "typeWidening-preview"),
        readers=True,
        read="values of older files are converted; refused if `delta.typeChanges` lists a change that is "
        "unknown to this release",
        write="with `delta.enableTypeWidening` = true a column may get a wider type, if its metadata list "
        "the change, and no CHECK constraint or generated column uses it; what they list stays. Refused if "
        "they list a change that is unknown to this release",
        refused_if=has_unknown_change,
    ),
    TableFeature(
        ("domainMetadata",),
        readers=False,
        read="all domains are in the snapshot, also unknown ones",
        write="all domains are kept; a proposal may set those that don't begin with `delta.` or `lakefold.`; "
        "the committer's marks are in `lakefold.marks`",
    ),
    TableFeature(
        ("v2Checkpoint",),
        readers=True,
        read="checkpoints as JSON or Parquet, with or without sidecars",
        write="a commit doesn't depend on it; with `delta.checkpointPolicy` = `v2` checkpoints have sidecars,"
        " of which those that changed are written, else they are classic",
    ),
    TableFeature(
        ("icebergCompatV1",),
        readers=False,
        read=_UNTOUCHED,
        write="refused if it is enabled: what it requires of files is not checked yet",
        refused_if=enabled("delta.enableIcebergCompatV1"),
    ),
    TableFeature(
        ("icebergCompatV2",),
        readers=False,
        read=_UNTOUCHED,
        write="refused if it is enabled: what it requires of files is not checked yet",
        refused_if=enabled("delta.enableIcebergCompatV2"),
    ),
    TableFeature(
        ("clustering",),
        readers=False,
        read="the clustering columns are domain metadata",
        write="a new file needs `nullCount` of the clustering columns; a proposal may set the domain "
        "`delta.clustering` on a table without partition columns if all files have it. Nothing here clusters "
        "rows: a compaction leaves files with a `clusteringProvider` as they are",
    ),
    TableFeature(
        ("vacuumProtocolCheck",),
        readers=True,
        read="concerns vacuum alone",
        write="concerns vacuum alone",
    ),
    TableFeature(
        ("checkpointProtection",),
        readers=False,
        read=_UNTOUCHED,
        write="a proposal may not lower `delta.requireCheckpointProtectionBeforeVersion`; a clean-up makes "
        "no checkpoint, removes one only with all versions before it, and removes nothing if versions that "
        "stay have features that are unknown to this release",
    ),
    TableFeature(
        ("variantType", "variantType-preview"),
        readers=True,
        read=_UNTOUCHED,
        write="refused if a column has the type: it is not supported by what writes and reads rows. delta-rs "
        "adds the feature to tables without such a column",
        refused_if=has_variant,
    ),
    TableFeature(
        ("catalogManaged", "catalogOwned", "catalogOwned-preview"),
        readers=True,
        read="refused: a catalog decides which commits count, and `_delta_log` may lack the newest",
        write="refused, as it can't be read",
        read_refused=True,
        refused_if=always,
    ),
)
BY_NAME: Final = {name: feature for feature in FEATURES for name in feature.names}
"""The features by each of their names."""
