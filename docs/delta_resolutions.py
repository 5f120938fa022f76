"""What of the changes of others a proposal is fitted to, instead of being turned back, as data.

These are the steps of Delta's own check that resolve, in its order, and those that only a committer has;
docs/reference/delta-conflicts.md is written from them. A check of this repository requires that the tests
exist.
"""

from __future__ import annotations

from typing import Final

from lakefold_table.values import value


@value()
class DeltaResolution:
    """Something that others changed meanwhile. `step`: what. `how`: what becomes of the proposal.

    `test`: what holds it, after `tests/`.
    """

    step: str
    how: str
    test: str


_METADATA: Final = "unit/test_delta_metadata_changes.py::"
_COMMITS: Final = "unit/test_delta_commit_features.py::"
_ROWS: Final = "unit/test_delta_rows.py::"
RESOLUTIONS: Final = (
    DeltaResolution(
        "metadata: row tracking is enabled",
        "committed as it is, unless it writes rows of other files again",
        f"{_METADATA}test_enabling_row_tracking_turns_back_only_what_writes_rows_again",
    ),
    DeltaResolution(
        "metadata: independent properties, the name or the description",
        "committed as it is; its own changes are merged with them",
        f"{_METADATA}test_writers_that_add_a_column_and_set_a_property_all_pass",
    ),
    DeltaResolution(
        "metadata: added columns",
        "committed as it is: they are null in its files; its own columns are added after them",
        f"{_METADATA}test_a_compatible_change_by_a_committer_turns_back_no_files",
    ),
    DeltaResolution(
        "metadata: wider types",
        "committed as it is: values of its files are converted by readers",
        f"{_METADATA}test_files_with_the_types_before_are_committed_after_a_column_became_wider",
    ),
    DeltaResolution(
        "domain metadata: the high-water mark of row ids",
        "the committer sets it, from that of the version before",
        f"{_COMMITS}test_the_high_water_mark_of_another_client_counts",
    ),
    DeltaResolution(
        "row ids",
        "its new files get their base row ids when the version is made, from the high-water mark on",
        f"{_COMMITS}test_ids_and_versions_are_those_of_the_version_that_is_made",
    ),
    DeltaResolution(
        "commit versions",
        "its new files get the number of the version that is made as their default commit version",
        f"{_COMMITS}test_ids_and_versions_are_those_of_the_version_that_is_made",
    ),
    DeltaResolution(
        "versions of wider types",
        "the `tableVersion` of its own entries in `delta.typeChanges` becomes the number of its version",
        f"{_METADATA}test_a_wider_type_names_the_version_that_is_made",
    ),
    DeltaResolution(
        "timestamps",
        "its version gets the log's time, and with in-commit timestamps at least one millisecond more than "
        "the version before",
        f"{_COMMITS}test_times_in_commits_grow_whatever_the_log_says",
    ),
    DeltaResolution(
        "rows of one file",
        "the deletion vectors of both are merged, if no row is in both",
        f"{_ROWS}test_deletes_of_different_rows_of_a_file_are_merged",
    ),
    DeltaResolution(
        "rows that a compaction moved",
        "they are deleted from its new files, if its tags say where they are",
        f"{_ROWS}test_rows_that_a_compaction_moved_are_deleted_where_they_are",
    ),
    DeltaResolution(
        "rows that were deleted while a compaction ran",
        "they are deleted from its new files",
        f"{_ROWS}test_a_compaction_takes_over_rows_that_were_deleted_meanwhile",
    ),
)
