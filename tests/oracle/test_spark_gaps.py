"""A streaming query whose next versions are gone, in a gap with a tag in it or with the whole table."""

from __future__ import annotations

import datetime as dt
import shutil
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.storage import open_storage
from tests.oracle.readable import altered
from tests.queries import Query
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    """Versions 2 to 5 append one row each."""
    folded = Folded(open_storage(f"file://{tmp_path}/t"))
    for each in (10, 20, 30, 40):
        folded.append_ids([each])
    return folded


def test_a_table_created_again_with_fewer_versions_is_noticed_by_a_run_that_ends(
    table: Folded, tmp_path: Path
) -> None:
    query = Query(table.uri)
    query.ids()
    shutil.rmtree(tmp_path / "t")
    Folded(open_storage(table.uri), first=100).append_ids([1])
    query.start()
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(InvalidError, match="the table has no version 5; its newest version is 2"):
        query.ids()


def test_a_query_continues_over_a_gap_in_which_a_tag_keeps_a_version(table: Folded) -> None:
    query = Query(table.uri, startingVersion=2, maxVersionsPerTrigger=1, failOnDataLoss="false")
    query.batch()
    table.append_ids([50])
    dataset = lance.dataset(table.uri)
    dataset.tags.create("kept", 4)
    dataset.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    assert [version["version"] for version in dataset.versions()] == [4, 6]
    query.start()
    table.append_ids([60])
    assert query.ids() == [[60]]


def without(table: Folded, kept: int) -> list[int]:
    """Removes old versions except a version that a tag keeps. Returns the versions that are left."""
    dataset = lance.dataset(table.uri)
    dataset.tags.create("kept", kept)
    dataset.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    return [version["version"] for version in dataset.versions()]


def read_up_to(table: Folded, version: int, **options: str) -> Query:
    """A query that has read the versions up to this version, a version a batch."""
    query = Query(table.uri, startingVersion=2, failOnDataLoss="false", **options)
    for _ in range(version - 1):
        query.batch()
    return query


@pytest.mark.parametrize("again", [True, False], ids=["in another process", "in the same"])
def test_a_query_reads_what_a_tag_kept_and_continues_over_the_gap_after_it(
    table: Folded, *, again: bool
) -> None:
    query = read_up_to(table, 2, maxVersionsPerTrigger="1")
    table.append_ids([50])
    assert without(table, 3) == [3, 6]
    if again:
        query.start()
    assert query.ids() == [[20], []]
    table.append_ids([60])
    assert query.ids() == [[60]]


def test_a_query_at_a_version_that_a_tag_kept_continues_over_the_gap_after_it(table: Folded) -> None:
    query = read_up_to(table, 3, maxVersionsPerTrigger="1")
    assert without(table, 3) == [3, 5]
    query.start()
    table.append_ids([50])
    table.append_ids([60])
    assert query.ids() == [[50], [60]]
    assert sorted(row["id"] for row in query.last()) == [60]


def test_one_batch_over_a_gap(table: Folded) -> None:
    """It was planned before the versions in its middle were removed, and is run again after that."""
    query = read_up_to(table, 2, maxVersionsPerTrigger="1")
    query.options["maxVersionsPerTrigger"] = "9"
    query.start()
    table.append_ids([50])
    assert query.ids() == [[20, 30, 40, 50]]
    assert without(table, 3) == [3, 6]
    table.append_ids([60])
    query.start()
    assert sorted(row["id"] for row in query.last()) == [20]
    assert query.ids() == [[60]]


def test_a_run_that_ends_ends_after_a_gap_where_it_should(table: Folded) -> None:
    query = read_up_to(table, 3, maxVersionsPerTrigger="1")
    assert without(table, 3) == [3, 5]
    query.options["maxVersionsPerTrigger"] = "9"
    query.start()
    table.append_ids([50])
    query.reader.prepareForTriggerAvailableNow()
    table.append_ids([60])
    assert query.ids() == [[50]]


def test_a_version_whose_changes_are_not_known_any_more_is_skipped(table: Folded) -> None:
    """What version 6 deleted version 5 is gone, so it is not known."""
    query = read_up_to(table, 5, readChangeFeed="true", maxVersionsPerTrigger="1")
    query.options["maxVersionsPerTrigger"] = "9"
    lance.dataset(table.uri).delete("id = 10")
    table.take_over()
    table.append_ids([60])
    assert without(table, 6) == [6, 7]
    query.start()
    assert query.ids() == [[60]]
    query.options["failOnDataLoss"] = "true"
    query.start()
    with pytest.raises(VersionExpiredError, match="version 5 is gone, so it is not known"):
        query.last()


def test_columns_are_followed_over_a_gap(table: Folded) -> None:
    """The rows of the version before it are shown as the newest version has them."""
    query = read_up_to(table, 2, maxVersionsPerTrigger="1")
    dataset = lance.dataset(table.uri)
    for name in ("other", "last"):
        dataset.alter_columns(altered(dataset.schema.names[1], name=name))
    expected = (
        dataset.checkout_version(3).to_table(filter="id = 20").rename_columns(["id", "last"]).to_pylist()
    )
    assert without(table, 3) == [3, 7]
    query.start()
    assert query.batch() == expected


def test_one_batch_with_rows_on_both_sides_of_a_gap(table: Folded) -> None:
    query = read_up_to(table, 2, maxVersionsPerTrigger="1")
    query.options["maxVersionsPerTrigger"] = "9"
    query.start()
    for each in (50, 60):
        table.append_ids([each])
    assert query.ids() == [[20, 30, 40, 50, 60]]
    lance.dataset(table.uri).tags.create("too", 6)
    assert without(table, 3) == [3, 6, 7]
    query.start()
    assert [row["id"] for row in query.last()] == [20, 60]


def test_over_a_gap_a_column_is_known_by_its_name(tmp_path: Path) -> None:
    """An Overwrite in it gave the ids to other columns of the same type."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1], "other": [2]}), uri)
    lance.write_dataset(pa.table({"id": [3], "other": [4]}), uri, mode="append")
    query = Query(uri, startingVersion=1, maxVersionsPerTrigger=1, failOnDataLoss="false")
    query.batch()
    lance.write_dataset(pa.table({"other": [6], "id": [5]}), uri, mode="overwrite")
    lance.write_dataset(pa.table({"other": [8], "id": [7]}), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.tags.create("kept", 2)
    dataset.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    assert [version["version"] for version in dataset.versions()] == [2, 4]
    query.start()
    assert query.batch() == [{"other": 4, "id": 3}]
