"""What Delta's protocol requires of writers, rule by rule as data, and what holds each rule.

docs/reference/delta-features.md is written from this table. A check of this repository requires that the
tests named here exist, and that they expect the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping


@value()
class WriterRule:
    """A requirement. `section`: of the specification. `requires`: what is so in each version.

    `says`: a part of the message with which a proposal is Invalid that breaks it; empty if none can, since a
    committer, or what writes the rows, sees to it. `tests`: the module of tests that expects the message, or
    the test of what is done, after `tests/`.
    """

    section: str
    requires: str
    says: str
    tests: str


_FORMAT: Final = "unit/test_delta_format.py"
_METADATA: Final = "unit/test_delta_requirements.py"
_RULES: Final = "unit/test_delta_writer_rules.py"
_MOVED: Final = "unit/test_delta_data_change.py"
_ROWS: Final = "unit/test_delta_rows.py"
_COMMITS: Final = "unit/test_delta_commit_features.py"
_HOSTILE: Final = "unit/test_delta_hostile.py"
_STATISTICS: Final = "unit/test_delta_statistics_types.py"
_MALFORMED: Final = "unit/test_delta_malformed.py"
_CLUSTERED: Final = "unit/test_delta_clustering.py"
_FILES: Final = "unit/test_delta_proposed_files.py"
_SHARED: Final = "unit/test_delta_sharing.py::test_proposals_share_a_commit_only_if_nothing_in_it_contradicts"
_CHECKED: Final = (
    "unit/test_delta_dependent_expressions.py::"
    "test_a_check_is_not_added_over_rows_that_its_writer_has_not_seen"
)
_WRITTEN: Final = "oracle/test_delta_writing.py::test_constraints_hold_for_each_row"
_GENERATED: Final = "oracle/test_delta_writing.py::test_what_can_not_be_written_is_named_before_a_file_is"
_IDENTITY: Final = "unit/test_delta_features.py::test_identity_columns_are_refused_if_there_is_one"
_DATED: Final = f"{_COMMITS}::test_files_are_removed_when_the_log_says_or_at_most_a_day_later"
_GROWING: Final = f"{_COMMITS}::test_times_in_commits_grow_whatever_the_log_says"
_DESCRIBED: Final = f"{_RULES}::test_a_removed_file_is_described_as_the_table_does"
_SINCE: Final = f"{_COMMITS}::test_since_when_commits_say_their_times_stays"
_CHECKPOINT: Final = f"{_COMMITS}::test_a_checkpoint_comes_with_a_checksum_file"
_BY_SECTION: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "Creation of New Log Entries": (
        ("no version is overwritten", "", "contracts/behaviour.py::test_a_taken_name_stays_as_it_is"),
    ),
    "Consistency Between Table Metadata and Data Files": (
        ("the schema has columns", "the schema has no columns", _RULES),
        ("columns of files are in it, by their statistics", "which is not in the table's schema", _METADATA),
        ("also if columns are mapped, by stored names", "which is not in the table's schema", _RULES),
        ("a file has a value of each partition column", "partition columns (", _FORMAT),
        ("these values fit the types", "as the value of the partition column", _METADATA),
        ("partition columns are in the schema", "is not in the schema", _METADATA),
        ("partition columns have simple types", "the partition column 'p' has the type", _METADATA),
        ("names differ in more than their case", "have one name", _METADATA),
        ("types are Delta's", "which Delta does not have", _METADATA),
        ("columns have `nullable` and `metadata`", "the definition of the column 'x' lacks", _METADATA),
        ("NOT NULL columns get no nulls, by statistics and partitions", "has nulls in the column", _METADATA),
        ("files are Parquet", "have the format", _METADATA),
        ("columns of files that stay don't go, unless they are mapped", "is gone", _METADATA),
        ("their types stay or become wider", "gets the type integer instead of long", _METADATA),
        ("their partition columns stay", "the partition columns change", _METADATA),
        ("their columns don't become NOT NULL", "becomes NOT NULL", _RULES),
        ("new columns are not NOT NULL", "is NOT NULL", _RULES),
        ("the table's id changes only with all files", "the table's id changes from", _METADATA),
        ("values of Delta's properties can be read", "which can't be read", _RULES),
    ),
    "Delta Log Entries": (
        ("a path is added once", "two add actions", _FORMAT),
        ("no logical file is both added and removed", "both added and removed", _FORMAT),
        ("there is one metaData and one protocol action", "there are several", _FORMAT),
        ("there is one txn action of an app id", "two txn actions", _FORMAT),
        ("there is one domainMetadata action of a domain", "two domainMetadata actions", _FORMAT),
        ("other actions are not those of checkpoints", "can't be proposed", _FORMAT),
        ("proposals that share a version don't contradict", "", _SHARED),
    ),
    "Add File and Remove File": (
        ("added files exist", "does not exist", _FORMAT),
        ("they have the size that is given", "bytes, its action says", _FORMAT),
        ("sizes and times are not negative", "negative", _FORMAT),
        ("statistics are JSON", "statistics", _FORMAT),
        ("of the types of the columns", "and the type of the column is", _STATISTICS),
        ("they count no more nulls than rows", "as many nulls in the column", _HOSTILE),
        ("no more rows are deleted than there are", "numRecords is", _HOSTILE),
        ("files are below the table", "not below the table's root", _FORMAT),
        ("paths are percent-encoded", "which is no character of a URI", _HOSTILE),
        (
            "no new file is hidden, but change data files in `_change_data`",
            "a part that begins with",
            _HOSTILE,
        ),
        ("removed files are in the table", "is not in the table", _FORMAT),
        ("their actions have their size and values of partitions: a committer sees to that", "", _DESCRIBED),
        ("their actions have a time that passes: a committer sees to that", "", _DATED),
        (
            "files that stay keep their values of partitions",
            "gets other values of the partition columns",
            _FILES,
        ),
        ("and the number of their rows", "by its statistics, and gets", _FILES),
        ("their statistics stay as right as they were", "and the type of the column is", _FILES),
        ("files with dataChange false are in the table", "dataChange false", _FORMAT),
        ("or have rows of removed ones", "rows are added with dataChange false", _MOVED),
        ("all rows of which are kept", "rows are removed with dataChange false", _MOVED),
    ),
    "Data Files": (
        ("names are unique, however they are escaped", "in the table already", _FORMAT),
        ("also beside absolute paths", "is in the table already, as", _FILES),
    ),
    "Protocol Evolution": (
        ("no feature and no version is taken away", "takes the feature", _FORMAT),
        ("features are in both lists, if readers must know them", "must know the feature", _METADATA),
        ("what properties and columns use is listed", "needs the feature", _METADATA),
    ),
    "Append-only Tables": (
        ("rows are neither changed nor removed", "append-only", _FORMAT),
        ("also not together with the end of the property", "append-only (", _FORMAT),
    ),
    "Column Invariants": (
        ("they are JSON with an expression", "is not JSON with an expression", _RULES),
        ("each row meets them: what writes it sees to that", "", _WRITTEN),
    ),
    "CHECK Constraints": (
        ("they are SQL, as far as quotes, brackets and signs show it", "is no expression of SQL", _MALFORMED),
        ("columns that they name are in the schema", "which is not a column", _RULES),
        ("these columns stay", "can't go or be renamed", _RULES),
        ("rows that came meanwhile are checked: the proposal is Rejected", "", _CHECKED),
        ("each row meets them: what writes it sees to that", "", _WRITTEN),
    ),
    "Generated Columns": (
        ("their expressions are texts", "delta.generationExpression of the column", _RULES),
        ("columns that they name are in the schema", "the generated column y names z", _RULES),
        ("values are those of the expression: nothing here writes any", "", _GENERATED),
    ),
    "Default Columns": (
        ("defaults come after their columns", "'y' has CURRENT_DEFAULT", _RULES),
        ("they are texts", "CURRENT_DEFAULT of the column", _RULES),
    ),
    "Identity Columns": (("no value is given twice: nothing is committed to such a table", "", _IDENTITY),),
    "Change Data Files": (
        ("rows that are written again come with `cdc` actions", "without cdc actions", _RULES),
        ("there are none without the feed", "delta.enableChangeDataFeed is not true", _RULES),
        ("they have values of the partition columns, as other files", "partition columns (", _RULES),
        ("they have dataChange false", "dataChange false", _FORMAT),
        ("they come with other files", "cdc", _FORMAT),
        ("each is named once", "two cdc actions", _FORMAT),
    ),
    "Column Mapping": (
        ("without it names have no special characters", "has one of the characters", _RULES),
        ("each column has an id and a name in files", "lacks delta.columnMapping.id", _METADATA),
        ("ids and names are unique", "have one delta.columnMapping.id", _METADATA),
        ("ids have 32 bits", "beyond 32 bits", _METADATA),
        ("`maxColumnId` is no lower than any id", "but a column has the id", _METADATA),
        ("`maxColumnId` never goes back", "goes back from 2 to 1", _METADATA),
        ("ids of new columns are above it", "which is not above", _RULES),
        ("names of new columns in files are new", "of another one", _RULES),
        ("names in files that stay stay", "gets another delta.columnMapping", _METADATA),
        ("with such files `none` becomes `name` at most", "delta.columnMapping.mode changes from", _METADATA),
    ),
    "Deletion Vectors": (
        ("the property allows new ones", "delta.enableDeletionVectors is not true", _METADATA),
        ("the file has `numRecords`", "numRecords", _FORMAT),
        ("those in their actions have no offset", "is in its action, and has an offset", _ROWS),
        ("they have as many rows as they say", "its action says", _ROWS),
        ("these rows are in the file", "the file has fewer", _ROWS),
    ),
    "Row Tracking": (
        ("files have `numRecords`", "needs row ids", _COMMITS),
        ("no statistics use up the row ids", "more than a file can have", _HOSTILE),
        ("without it new files have none", "but the table lacks the feature rowTracking", _COMMITS),
        ("no row id is above 2^63 - 1", "no row ids are left after", _HOSTILE),
        ("a committer gives row ids", "", f"{_COMMITS}::test_files_get_row_ids_in_their_order"),
        ("all files have ids and commit versions when it is enabled", "has no row ids", _COMMITS),
        ("then columns of ids have names", "needs the property", _COMMITS),
        ("columns of ids keep their names", "changes from", _COMMITS),
    ),
    "In-Commit Timestamps": (
        ("a committer has them grow", "", _GROWING),
        ("the properties keep since when commits have them", "", _SINCE),
        ("they begin after no time that is too late to grow", "a commit with the time", _HOSTILE),
    ),
    "Domain Metadata": (
        ("the table has the feature", "lacks the feature domainMetadata", _FORMAT),
        ("domains of the protocol are not set", "controlled by the protocol", _FORMAT),
    ),
    "Clustered Table": (
        ("files have statistics of clustering columns", "has no statistics of the clustering", _CLUSTERED),
        ("there are no partition columns", "has partition columns", _CLUSTERED),
    ),
    "Checkpoints": (("a committer makes them of what their version has", "", _CHECKPOINT),),
}
WRITER_RULES: Final = tuple(
    WriterRule(section, *row) for section, rows in _BY_SECTION.items() for row in rows
)
"""All rules, by the sections of the specification."""
