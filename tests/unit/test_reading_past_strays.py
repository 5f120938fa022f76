"""A late version, written too late under a name that others had freed: no reader returns its rows.

The tables here are real ones on a local disk. A committer's version is published once its name is free again.

Promise: late-files-unread (docs/operations/promises.md).
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_reader.formats import open_source, source_on
from lakefold_reader.tail.tail import tail_of
from lakefold_reader.tail.wakeup import Pace
from lakefold_reader.versions.late_versions import without_late
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.times import time_of
from lakefold_table.errors import RetryError, VersionExpiredError
from lakefold_table.storage import open_storage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries
from tests.proposals import append, creation, rows
from tests.tables import Recording

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.format import Publication

PACE = replace(Pace(), clock=count().__next__)
"""A second passes between any two reads."""
GONE = "the file of that number is a late version, written too late"


class Late:
    """A table whose versions 1 and 2 a committer made; the file of version 3 was written too late."""

    def __init__(self, path: Path, *, own_behind: bool = False, tagged: int = 0) -> None:
        self.path = str(path)
        self.uri = path.as_uri()
        self._offset = 0
        table = self.opened()
        self._fold(table, creation(self.uri))
        self._fold(table, append(self.uri, rows([1]), 1, "app", 0))
        late = self._publication(append(self.uri, rows([-1, -2, -3]), 2, "app", 1))
        lance.write_dataset(rows([101]), self.path, mode="append")
        if own_behind:
            self._fold(self.opened(), append(self.uri, rows([102]), 3, "app", 2))
        else:
            lance.write_dataset(rows([102]), self.path, mode="append")
        dataset = lance.dataset(self.path)
        if tagged:
            dataset.tags.create("kept", tagged)
        self.cursor = lakefold.tail(self.uri, 2).cursor
        dataset.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
        storage = open_storage(self.uri)
        storage.put_if_absent(late.path, late.buffers)
        self.numbers = numbers_of(open_source(self.uri))

    def opened(self) -> TableWriter:
        storage = open_storage(self.uri)
        return TableWriter(StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)))

    def _fold(self, table: TableWriter, envelope: Envelope) -> None:
        table.fold(entries([envelope], self._offset))
        self._offset += 1

    def _publication(self, envelope: Envelope) -> Publication:
        publication = self.opened().prepare(entries([envelope], self._offset)).folded.publication
        assert publication is not None
        return publication

    def tailed(self, start: str | int) -> list[int]:
        """The rows that a tail returns."""
        with lakefold.tail(self.uri, start, pace=PACE) as tail:
            return [value for change in tail for value in change.inserted()["id"].to_pylist()]


@pytest.fixture(params=[False, True], ids=["others behind", "committer behind"])
def late(tmp_path: Path, request: pytest.FixtureRequest) -> Late:
    return Late(tmp_path / "t", own_behind=request.param)


def test_the_file_exists(late: Late) -> None:
    assert late.numbers == [3, 4]


def test_a_tail_from_the_earliest_begins_after_it(late: Late) -> None:
    assert late.tailed("earliest") == [1, 101, 102]


def test_a_tail_before_it_gets_an_error_that_the_next_version_is_gone(late: Late) -> None:
    with pytest.raises(VersionExpiredError, match=GONE) as caught:
        late.tailed(2)
    assert caught.value.oldest == 4


def test_it_can_not_be_opened(late: Late) -> None:
    with pytest.raises(VersionExpiredError, match=GONE):
        lakefold.open(late.uri, 3)
    assert sorted(lakefold.open(late.uri).to_arrow()["id"].to_pylist()) == [1, 101, 102]


def test_the_history_goes_over_it(late: Late) -> None:
    assert [row.version for row in lakefold.open(late.uri).history()] == [4]


def test_a_change_feed_does_not_begin_with_it(late: Late) -> None:
    for after in (2, 3):
        with pytest.raises(VersionExpiredError, match=re.escape(GONE)):
            lakefold.changes(late.uri, after).read_all()


def test_it_is_skipped_after_a_version_that_a_tag_keeps(tmp_path: Path) -> None:
    late = Late(tmp_path / "t", tagged=2)
    assert late.numbers == [2, 3, 4]
    assert without_late(open_source(late.uri), late.numbers) == [2, 4]
    assert late.tailed("earliest") == [1, 101, 102]
    with pytest.raises(VersionExpiredError, match=GONE):
        late.tailed(2)


@pytest.mark.parametrize("tagged", [0, 2])
def test_it_is_not_returned_while_the_version_after_it_can_not_be_read(tmp_path: Path, tagged: int) -> None:
    late = Late(tmp_path / "t", tagged=tagged)

    class Away(Recording):
        """A store that fails once to read version 4."""

        failed = False

        def get_range(self, path: str, start: int, length: int) -> bytes:
            if path == source.versions.path(4) and not self.failed:
                self.failed = True
                raise RetryError("the store is away")
            return source.storage.get_range(path, start, length)

    source = open_source(late.uri)
    with tail_of(source_on(Away(source.storage)), 2, pace=PACE) as tail:
        with pytest.raises(RetryError):
            next(tail)
        with pytest.raises(VersionExpiredError, match=GONE):
            next(tail)


def test_a_time_or_a_position_names_the_next_true_version(tmp_path: Path) -> None:
    """The committer folds the late version's entry again, at the same position."""
    late = Late(tmp_path / "t", own_behind=True, tagged=2)
    made = open_source(late.uri)
    step = made.summary(3)
    assert step is not None
    moment = time_of(step.time_us)
    assert lakefold.open(late.uri, as_of=moment).version == 2
    assert lakefold.open(late.uri, as_of=moment).to_arrow()["id"].to_pylist() == [1]
    assert lakefold.open(late.uri, at_position=2).version == 4


def test_a_time_before_the_oldest_true_version_is_refused(tmp_path: Path) -> None:
    late = Late(tmp_path / "t")
    step = open_source(late.uri).summary(3)
    assert step is not None
    with pytest.raises(VersionExpiredError, match="the oldest one, 4, was made at") as caught:
        lakefold.open(late.uri, as_of=time_of(step.time_us))
    assert caught.value.oldest == 4
