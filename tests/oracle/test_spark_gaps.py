"""A streaming query whose next versions are gone, in a gap with a tag in it or with the whole table."""

from __future__ import annotations

import datetime as dt
import shutil
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from tests.queries import Query
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    """Versions 2 to 5 append one row each."""
    folded = Folded(open_storage(f"file://{tmp_path}/t"))
    for one in (10, 20, 30, 40):
        folded.append_ids([one])
    return folded


def test_a_table_made_anew_with_fewer_versions_is_noticed_by_a_run_that_ends(
    table: Folded, tmp_path: Path
) -> None:
    query = Query(table.uri)
    query.ids()
    shutil.rmtree(tmp_path / "t")
    Folded(open_storage(table.uri), first=100).append_ids([1])
    query.start()
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(InvalidError, match="version 5 is not there, the newest is 2"):
        query.ids()


def test_a_query_goes_on_over_a_gap_that_a_tag_stands_in(table: Folded) -> None:
    query = Query(table.uri, startingVersion=2, maxVersionsPerTrigger=1, failOnDataLoss="false")
    query.batch()
    table.append_ids([50])
    dataset = lance.dataset(table.uri)
    dataset.tags.create("kept", 4)
    dataset.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    assert [one["version"] for one in dataset.versions()] == [4, 6]
    query.start()
    table.append_ids([60])
    assert query.ids() == [[60]]
