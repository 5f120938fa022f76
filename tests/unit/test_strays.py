"""The file of a version that a committer put too late: it is removed if that is certain, and only then.

Promise: late-files (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.rebinding import publish_move
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import StopError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import (
    FORMAT,
    LOG,
    append,
    changed,
    creation,
    entries,
    fold_at,
    opened,
    reserve,
    versions_at,
)
from tests.foreign import commit, wipe
from tests.memory_storage import MemoryStorage
from tests.tagging import set_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer, Put

NAME = "strays"
HERE = f"memory://{NAME}/t"


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def put_late(between: Callable[[], object]) -> TableWriter:
    """A committer at version 1 puts version 2 late: others have committed 2 and 3, and removed 1 and 2."""
    table = opened(HERE)
    fold_at(table, [changed(creation(), lambda e: setattr(e, "table", HERE))], 0)
    prepared = table.prepare(entries([changed(append("late"), lambda e: setattr(e, "table", HERE))], 1))
    publication = prepared.folded.publication
    assert publication is not None
    commit(HERE)
    between()
    for number in (1, 2):
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))
    MemoryStorage(HERE).put_if_absent(publication.path, publication.buffers)
    with pytest.raises(StopError, match="with versions missing between them"):
        table.put(prepared)
    return table


def existing_files() -> list[int]:
    return versions_at(HERE).numbers()


@pytest.mark.parametrize("own", [False, True], ids=["by others", "by another committer"])
def test_it_is_removed_if_the_next_version_was_not_made_from_it(*, own: bool) -> None:
    def next_one() -> None:
        if own:
            entry = changed(append("other", read=2), lambda e: setattr(e, "table", HERE))
            fold_at(opened(HERE), [entry], 1)
        else:
            commit(HERE)

    table = put_late(next_one)
    assert table.late_versions_removed == 1
    assert existing_files() == [3]


def test_it_stays_if_nothing_shows_that_it_is_stray() -> None:
    table = put_late(lambda: commit(HERE, "append", wipe))
    assert table.late_versions_removed == 0
    assert existing_files() == [2, 3]


def test_it_stays_if_a_tag_names_it() -> None:
    def tagged() -> None:
        commit(HERE)
        set_tag(MemoryStorage(HERE), "kept", 2)

    assert put_late(tagged).late_versions_removed == 0
    assert existing_files() == [2, 3]


def test_a_verb_removes_its_own_late_file() -> None:
    """Others commit 2 and 3 and remove 1 and 2 between the look of `detach` and its put."""
    fold_at(opened(HERE), [changed(creation(), lambda e: setattr(e, "table", HERE))], 0)
    versions = Versions(LateStorage(HERE), FORMAT.folder, FORMAT.detect)
    with pytest.raises(StopError, match="with versions missing between them"):
        publish_move(
            StoredTable(FORMAT, versions),
            lambda table: Rebinding(RebindReason.DETACHED, table.marks.position, None),
        )
    assert existing_files() == [3]


class LateStorage(MemoryStorage):
    """The first version that is put here arrives after others have continued."""

    is_late = True

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        if self.is_late and path.startswith(f"{FORMAT.folder}/"):
            self.is_late = False
            for _ in range(2):
                commit(HERE)
            for number in (1, 2):
                MemoryStorage(HERE).delete(versions_at(HERE).path(number))
        return super().put_if_absent(path, buffers)


@pytest.mark.parametrize("foreign", [False, True], ids=["a committer behind", "another client behind"])
def test_what_it_records_answers_nothing(*, foreign: bool) -> None:
    """Another committer refused the entry in the version that was there; the file in its place took it."""
    table = opened(HERE)
    fold_at(table, [changed(creation(), lambda e: setattr(e, "table", HERE))], 0)
    late = entries([changed(append("late"), lambda e: setattr(e, "table", HERE))], 1)
    publication = table.prepare(late).folded.publication
    assert publication is not None
    other = opened(HERE, check_sizes=True)
    (refused,) = other.fold(late).outcomes
    assert isinstance(refused.result, Invalid)
    assert "is missing" in refused.result.message
    if foreign:
        commit(HERE, "append")
    fold_at(other, [changed(reserve(2), lambda e: setattr(e, "table", HERE))], 2)
    for number in (1, 2):
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))
    MemoryStorage(HERE).put_if_absent(publication.path, publication.buffers)

    (again,) = opened(HERE).fold(late).outcomes
    assert isinstance(again.result, Invalid)
    assert "this position was answered before, and no version that is left records" in again.result.message


def test_nothing_is_judged_by_what_it_did() -> None:
    """The version that was there replaced all rows; the file in its place appended some."""
    table = opened(HERE)
    fold_at(table, [changed(creation(), lambda e: setattr(e, "table", HERE))], 0)
    first = changed(append("first", read=1), lambda e: setattr(e, "table", HERE))
    fold_at(table, [first], 1)
    late = entries([changed(append("late", read=2), lambda e: setattr(e, "table", HERE))], 2)
    publication = table.prepare(late).folded.publication
    assert publication is not None
    commit(HERE, "overwrite")
    commit(HERE)
    for number in (1, 2, 3):
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))
    MemoryStorage(HERE).put_if_absent(publication.path, publication.buffers)
    assert existing_files() == [3, 4]

    recovery = RecoveryContext(LOG, lambda: 100, 2)
    after = TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery)
    (outcome,) = after.fold(late).outcomes
    assert isinstance(outcome.result, Rejected)
    assert "what they changed is not known" in outcome.result.conflict.message
