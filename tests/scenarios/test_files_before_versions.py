"""Deletes that meet are joined in files that a version needs: whatever happens between those files and it.

A version never names a file that isn't there, a file without a version is seen by nobody, and whoever folds
the same entries next comes to the same rows (one-commit-point, fold-is-a-function, fence-by-fact).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed, Rejected
from lakefold_table.errors import DamagedError, RetryError
from lakefold_table.lance.rows.deletions import decode_deletions, deletion_path
from lakefold_table.lance.state import LanceState
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.changing import MemoryRows
from tests.folding import FORMAT, entries, opened, versions_at
from tests.foreign import commit
from tests.memory_storage import Hold, LoseAnswer, MemoryStorage, Refuse
from tests.storage_wrapper import StorageWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry, Result
    from lakefold_table.storage.base import Buffer, Put
    from tests.memory_storage import Fault

T = TypeVar("T")
FILE, MANIFEST = ".bin", ".manifest"
DELETES: list[dict[int, Iterable[int]]] = [
    {0: [1], 1: [2]},
    {0: [2], 1: [1], 2: [9]},
    {0: [3], 1: [3]},
]
"""What each of three Deletes deletes, by fragment."""
DELETED = {0: {1, 2, 3}, 1: {1, 2, 3}, 2: {9}}
"""What is deleted in the end, by fragment."""


class Died(BaseException):
    """The process ended here: nothing of it may catch this."""


class Mortal(StorageWrapper):
    """A store whose process ends at the call numbered `dies_at`, before it or right after it was done."""

    def __init__(self, storage: MemoryStorage, dies_at: int, *, after: bool) -> None:
        super().__init__(storage)
        self._dies_at = dies_at
        self._after = after
        self.puts: list[str] = []
        self.calls = 0

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        return self._lived(lambda: self._put(path, buffers))

    def _handed_on(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        del name
        return lambda *given: self._lived(lambda: call(*given))

    def _put(self, path: str, buffers: Sequence[Buffer]) -> Put:
        put = self._storage.put_if_absent(path, buffers)
        self.puts.append(path)
        return put

    def _lived(self, call: Callable[[], T]) -> T:
        self.calls += 1
        if self.calls == self._dies_at and not self._after:
            raise Died
        try:
            return call()
        finally:
            if self.calls == self._dies_at:
                raise Died


class Meeting:
    """Three Deletes, each built on version 2: the later Deletes must be joined with what came before."""

    def __init__(self) -> None:
        self.table = MemoryRows()
        self.group = self.entries(*(self.table.delete(rows) for rows in DELETES))

    @property
    def uri(self) -> str:
        """The table's URI."""
        return self.table.uri

    @property
    def storage(self) -> MemoryStorage:
        """Its root."""
        return self.table.storage

    def entries(self, *envelopes: Envelope) -> list[Entry]:
        """The next entries of the log."""
        self.table.offset += len(envelopes)
        return entries(envelopes, self.table.offset - len(envelopes))

    def fold(self) -> list[Result]:
        """Another committer folds the group."""
        return [outcome.result for outcome in opened(self.uri).fold(self.group).outcomes]

    @contextmanager
    def late_committer(self, held_at: str) -> Iterator[Future[list[Result]]]:
        """One that folds the group, and is held at its first put of such a file until the block ends."""
        hold = Hold(suffix=held_at)
        self.storage.faults.plan(hold)
        with ThreadPoolExecutor(1) as threads:
            late = threads.submit(self.fold)
            try:
                assert hold.reached.wait(120)
                yield late
            finally:
                hold.release.set()

    def joined(self) -> list[str]:
        """The joined files that lie there, named by a version or not."""
        own = {deletion_path(each.id, each.deletion_file) for entry in self.group for each in _updated(entry)}
        return [file.path for file in self.storage.list("_deletions") if file.path not in own]

    def deleted(self) -> dict[int, set[int]]:
        """The deleted rows of the newest version, once every version was found to be whole."""
        versions = versions_at(self.uri)
        return [deleted_in(versions, number) for number in versions.numbers()][-1]

    def check_done(self, version: int = 3) -> None:
        """The group is in the table, once, since this version, and that is what is answered again."""
        assert self.deleted() == DELETED
        answers = [Committed(version, rebased=version > 3, rows_deleted=rows) for rows in (2, 3, 2)]
        assert self.fold() == answers
        assert self.deleted() == DELETED


def _updated(entry: Entry) -> Sequence[Any]:
    return entry.envelope.lance.delete.updated_fragments


def deleted_in(versions: Versions, number: int) -> dict[int, set[int]]:
    state = StoredTable(FORMAT, versions).read_state(number)
    assert isinstance(state, LanceState)
    actual = {}
    for fragment in state.fragments:
        if fragment.HasField("deletion_file"):
            data = versions.storage.get(deletion_path(fragment.id, fragment.deletion_file))
            actual[fragment.id] = set(decode_deletions(fragment.deletion_file, data, fragment.physical_rows))
    return actual


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_committer_may_die_at_any_call_of_the_store(*, after: bool) -> None:
    left = set()
    for step in count(1):
        meeting = Meeting()
        mortal = Mortal(meeting.storage, step, after=after)
        try:
            versions = Versions(mortal, FORMAT.folder, FORMAT.detect)
            TableWriter(StoredTable(FORMAT, versions), check_sizes=False).fold(meeting.group)
        except Died:
            pass
        else:
            break
        left.add(len(mortal.puts))
        assert meeting.deleted() == (DELETED if len(mortal.puts) == 3 else {})
        meeting.fold()
        meeting.check_done()
        assert len(meeting.joined()) == 2
    # Once the version is put, it is looked for the version before.
    assert left == {0, 1, 2, 3}, "no file, one, both, and the version"


LOST = LoseAnswer(stored=False, suffix=FILE)
FOUND = LoseAnswer(stored=True, suffix=FILE)
AWAY = Refuse(suffix=FILE)


@pytest.mark.parametrize("faults", [[FOUND], [FOUND, FOUND]])
def test_a_file_whose_put_got_no_answer_is_read_back(faults: list[Fault]) -> None:
    meeting = Meeting()
    meeting.storage.faults.plan(*faults)
    meeting.fold()
    assert meeting.storage.faults.left == 0
    meeting.check_done()


@pytest.mark.parametrize("faults", [[LOST], [FOUND, LOST], [AWAY], [FOUND, AWAY]])
@pytest.mark.parametrize("same", [True, False], ids=["the same committer", "another one"])
def test_a_file_that_was_not_stored_holds_the_version_back(faults: list[Fault], *, same: bool) -> None:
    meeting = Meeting()
    committer = opened(meeting.uri)
    meeting.storage.faults.plan(*faults)
    with pytest.raises(RetryError):
        committer.fold(meeting.group)
    assert meeting.storage.faults.left == 0
    assert meeting.deleted() == {}
    (committer if same else opened(meeting.uri)).fold(meeting.group)
    meeting.check_done()
    assert len(meeting.joined()) == 2


def test_a_file_of_that_name_with_other_bytes_is_never_named() -> None:
    first = Meeting()
    first.fold()
    for path in first.joined():
        meeting = Meeting()
        meeting.storage.put(path, [first.storage.get(path)[:-1], b"?"])
        committer = opened(meeting.uri)
        for writer in (committer, committer, opened(meeting.uri)):
            with pytest.raises(DamagedError, match="contains other bytes than its name says"):
                writer.fold(meeting.group)
        assert meeting.deleted() == {}
        meeting.storage.delete(path)
        committer.fold(meeting.group)
        meeting.check_done()


def test_a_late_committer_finds_its_files_written_by_another() -> None:
    meeting = Meeting()
    with meeting.late_committer(MANIFEST) as late:
        on_time = meeting.fold()
        assert len(meeting.joined()) == 2
    assert late.result() == on_time
    meeting.check_done()
    assert len(meeting.joined()) == 2


@pytest.mark.parametrize("held", [FILE, MANIFEST])
def test_a_late_committer_of_a_longer_group_overwrites_nothing(held: str) -> None:
    """Both have joined rows of the same fragments on the same version, and not the same rows."""
    meeting = Meeting()
    with meeting.late_committer(held) as late:
        (first, second) = opened(meeting.uri).fold(meeting.group[:2]).outcomes
    answers = [Committed(3, rows_deleted=2), Committed(3, rows_deleted=3)]
    assert [first.result, second.result] == answers
    assert late.result() == [*answers, Committed(4, rebased=True, rows_deleted=2)]
    assert meeting.deleted() == DELETED


@pytest.mark.parametrize("held", [FILE, MANIFEST])
def test_files_for_a_version_that_another_client_published_belong_to_none(held: str) -> None:
    meeting = Meeting()
    with meeting.late_committer(held) as late:
        commit(meeting.uri)
    assert late.result() == [Committed(4, rebased=True, rows_deleted=rows) for rows in (2, 3, 2)]
    meeting.check_done(4)
    assert len(meeting.joined()) == 4, "two of them for nothing"


def test_a_row_that_two_deleted_is_named_to_the_second_whoever_dies() -> None:
    meeting = Meeting()
    clash = meeting.table.delete({0: [1], 2: [5]})
    meeting.group += meeting.entries(clash)
    meeting.storage.faults.plan(AWAY)
    with pytest.raises(RetryError):
        opened(meeting.uri).fold(meeting.group)
    for answers in (meeting.fold(), meeting.fold()):
        assert answers[:3] == [Committed(3, rows_deleted=rows) for rows in (2, 3, 2)]
        assert isinstance(answers[3], Rejected)
        assert answers[3].conflict.row_addresses == (1,)
    assert meeting.deleted() == DELETED


def test_a_committer_that_opens_the_table_again_answers_like_one_that_had_it_open() -> None:
    """Neighbours are held against each other, and not against what nobody needed to look up before them."""
    answers = []
    for anew in (False, True):
        meeting = Meeting()
        meeting.table.fold(meeting.table.append())
        meeting.group = meeting.entries(*(entry.envelope for entry in meeting.group))
        if anew:
            meeting.table.owned = opened(meeting.uri)
        answers.append([outcome.result for outcome in meeting.table.owned.fold(meeting.group).outcomes])
    assert answers[0] == answers[1]
    assert all(isinstance(result, Committed) for result in answers[1])


def test_the_next_group_joins_what_is_not_written_yet() -> None:
    """A version is put while the next is folded on it: its files are known before they are there."""
    meeting = Meeting()
    committer = opened(meeting.uri)
    prepared = [committer.prepare([entry]) for entry in meeting.group]
    for each in prepared:
        assert committer.put(each)
        assert [type(outcome.result) for outcome in committer.confirm(each).outcomes] == [Committed]
    assert meeting.deleted() == DELETED
