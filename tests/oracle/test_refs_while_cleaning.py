"""Tags, branches, restores and consumers that are made while old versions are removed, at each store call.

Afterwards the version can be read whole and is named, or the one who asked was told no and nothing names it.

Promises: named-versions-stay (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold_committer.tables.branches import open_branch
from lakefold_ingest.delta.proposals import metadata_proposal
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.proposals.key import new_key
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.consumers.expire_versions import clean_up, plan
from lakefold_reader.delta.versions import read_state
from lakefold_reader.formats import open_source
from lakefold_reader.tail.tail import tail, tail_of
from lakefold_table.entry import Committed, Entry, Invalid, Tagged
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import Position
from lakefold_table.storage import open_storage
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.version_removals import FOLDER, HOLD
from tests.tables import LOG, START_US, TOPIC, Folded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_reader.format.source import Source

CALLS: Final = (
    *("get", "get_range", "get_tail", "size", "sizes", "put_if_absent", "put_once_sure", "put"),
    *("get_with_etag", "replace", "list", "names", "folders", "delete"),
)
VERSION: Final = 3
"""An old version, which a clean-up removes unless something names it."""
NEWEST: Final = 8
VALUES: Final = {"lance": [0, 1], "delta": [0, 1, 2, 3]}
"""The rows of that version."""
NAME: Final = "wanted"


class Died(BaseException):
    """The process died."""


class At:
    """Acts once before the store call of a number, counted from 1, in the thread that made this.

    If it dies, no later call is made.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
        self._thread, self._inside, self.left, self._act = threading.get_ident(), False, number, act
        self._is_dead = False
        for name in CALLS:
            monkeypatch.setattr(LocalStorage, name, self._counting(getattr(LocalStorage, name)))

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(storage: LocalStorage, *given: object, **named: object) -> object:
            if self._inside or threading.get_ident() != self._thread:
                return call(storage, *given, **named)
            if self._is_dead:
                raise Died
            self._inside = True
            try:
                self.left -= 1
                if not self.left:
                    self._act()
                return call(storage, *given, **named)
            except Died:
                self._is_dead = True
                raise
            finally:
                self._inside = False

        return counted


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of each format whose old versions have files that no later version needs."""
    folder = tmp_path_factory.mktemp("tables")
    table = Folded(open_storage(folder / "lance"))
    for number in range(4):
        table.append_ids([number])
    lance.dataset(str(folder / "lance")).optimize.compact_files()
    # The marks of a version of another client are verified by older ones.
    table.append_ids([4])
    path, expired = folder / "delta", {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    for number in range(4):
        write_deltalake(path, pa.table({"id": [number]}), mode="append", configuration=expired)
    DeltaTable(path).optimize.compact()
    write_deltalake(path, pa.table({"id": [4]}), mode="append")
    DeltaTable(path).create_checkpoint()
    return folder


def opened(table: Path) -> Source:
    return open_source(canonical(table), format_name="lance" if (table / "_versions").exists() else "delta")


def cleaned(table: Path, older_than: timedelta = timedelta(0)) -> None:
    source = opened(table)
    clean_up(source, plan(source, older_than))


def proposal(table: Path, **fields: Any) -> Envelope:  # noqa: ANN401 - fields of a message
    return Envelope(table=canonical(table), **fields)


def folded(table: Path, envelope: Envelope, offset: int = 100) -> bool:
    """Has a committer fold a proposal. Returns whether it is committed."""
    writer = open_branch(TableAddress(canonical(table)), envelope.branch)
    position = Position(LOG, offset, TOPIC)
    entry = Entry(position, START_US, envelope, envelope.ByteSize(), BUILT_IN.proposal(envelope))
    (outcome,) = writer.fold([entry]).outcomes
    assert isinstance(outcome.result, Committed | Tagged | Invalid), outcome
    return not isinstance(outcome.result, Invalid)


class Case:
    """Something that names a version. `make` returns whether it was made."""

    format = "lance"

    def __init__(self) -> None:
        self.uuid = str(uuid4())

    def prepare(self, table: Path) -> None:
        """Makes what exists beforehand."""

    def make(self, table: Path) -> bool:
        raise NotImplementedError

    def is_made(self, table: Path) -> bool:
        raise NotImplementedError

    def read(self, table: Path) -> list[int]:
        """The rows of the version."""
        return sorted(lakefold.open(table, VERSION).to_arrow()["id"].to_pylist())


class NewTag(Case):
    def make(self, table: Path) -> bool:
        return folded(table, proposal(table, tag=Tag(name=NAME, version=VERSION, uuid="u", move=True)))

    def is_made(self, table: Path) -> bool:
        tag = Refs(LocalStorage(table)).tags().get(NAME)
        return tag is not None and tag.version == VERSION

    def read(self, table: Path) -> list[int]:
        dataset = lance.dataset(str(table), version=NAME)
        dataset.validate()
        assert sorted(dataset.to_table()["id"].to_pylist()) == super().read(table)
        return super().read(table)


class MovedTag(NewTag):
    """A tag that names another old version first: if it is not moved, that one can still be read."""

    def prepare(self, table: Path) -> None:
        lance.dataset(str(table)).tags.create(NAME, VERSION - 1)

    def is_made(self, table: Path) -> bool:
        version = Refs(LocalStorage(table)).tags()[NAME].version
        if version != VERSION:
            assert lance.dataset(str(table), version=NAME).to_table()["id"].to_pylist() == [0]
        return version == VERSION


class NewBranch(Case):
    def make(self, table: Path) -> bool:
        envelope = proposal(table, branch=NAME)
        envelope.lance.uuid, envelope.lance.read_version = self.uuid, VERSION
        clone = envelope.lance.clone
        clone.is_shallow, clone.ref_version, clone.branch_name = True, VERSION, NAME
        clone.ref_path = str(table)
        return folded(table, envelope)

    def is_made(self, table: Path) -> bool:
        return NAME in Refs(LocalStorage(table)).branches()

    def read(self, table: Path) -> list[int]:
        dataset = lance.dataset(str(table)).checkout_version((NAME, None))
        dataset.validate()
        return sorted(dataset.to_table()["id"].to_pylist())


class Restored(Case):
    def make(self, table: Path) -> bool:
        envelope = proposal(table)
        envelope.lance.uuid, envelope.lance.read_version = self.uuid, NEWEST
        envelope.lance.restore.version = VERSION
        return folded(table, envelope)

    def is_made(self, table: Path) -> bool:
        return lance.dataset(str(table)).count_rows() == len(VALUES["lance"])

    def read(self, table: Path) -> list[int]:
        dataset = lance.dataset(str(table))
        dataset.validate()
        return sorted(dataset.to_table()["id"].to_pylist())


class DeltaRestored(Case):
    """Its proposal is built beforehand: it names files that old versions alone have."""

    format = "delta"

    def prepare(self, table: Path) -> None:
        source = opened(table)
        newest = source.versions.latest()
        metadata = replace(read_state(source, newest)[1].metadata, description="it has marks")
        assert folded(table, metadata_proposal(source.uri, new_key(), newest, metadata), 99)
        self.envelope = proposal(table)
        FORMATS["delta"].restore(self.envelope, source, VERSION, source.versions.latest())

    def make(self, table: Path) -> bool:
        return folded(table, self.envelope)

    def is_made(self, table: Path) -> bool:
        return len(DeltaTable(table).file_uris()) == len(VALUES["delta"])

    def read(self, table: Path) -> list[int]:
        return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


class NewConsumer(Case):
    def make(self, table: Path) -> bool:
        try:
            tail(str(table), VERSION, consumer=NAME).close()
        except VersionExpiredError:
            return False
        return True

    def is_made(self, table: Path) -> bool:
        consumer = Consumers(opened(table)).find(NAME)
        return consumer is not None and consumer.version == VERSION

    def read(self, table: Path) -> list[int]:
        newest = opened(table).versions.latest()
        with tail(str(table), consumer=NAME) as following:
            assert [change.version for change in following] == [*range(VERSION + 1, newest + 1)]
        return super().read(table)


class ConsumerSetBack(NewConsumer):
    def prepare(self, table: Path) -> None:
        tail(str(table), "latest", consumer=NAME).close()

    def make(self, table: Path) -> bool:
        source = opened(table)
        try:
            Consumers(source).set(NAME, tail_of(source, VERSION).cursor)
        except VersionExpiredError:
            return False
        return True


class DeltaConsumer(NewConsumer):
    format = "delta"


class DeltaConsumerSetBack(ConsumerSetBack):
    format = "delta"


CASES = [
    NewTag,
    MovedTag,
    NewBranch,
    Restored,
    DeltaRestored,
    NewConsumer,
    ConsumerSetBack,
    DeltaConsumer,
    DeltaConsumerSetBack,
]
COMMITTED = [NewTag, MovedTag, NewBranch, Restored, DeltaRestored]
"""Those that a committer makes."""
MOST: Final = 1000


def copied(tables: Path, folder: Path, case: Case) -> Path:
    shutil.copytree(tables / case.format, folder / "t", dirs_exist_ok=True)
    case.prepare(folder / "t")
    return folder / "t"


def check(case: Case, table: Path, *, is_made: bool) -> None:
    assert case.is_made(table) == is_made
    if is_made:
        assert case.read(table) == VALUES[case.format]
    newest = lakefold.open(table).to_arrow()["id"].to_pylist()
    assert sorted(newest) == (
        VALUES[case.format] if is_made and isinstance(case, Restored | DeltaRestored) else [0, 1, 2, 3, 4]
    )
    assert held(table) == []


def held(table: Path) -> list[str]:
    """The files by which committers keep versions."""
    return [name for name in LocalStorage(table).names(FOLDER) if name.endswith(HOLD)]


@pytest.mark.parametrize("kind", CASES)
def test_what_is_made_at_each_call_of_a_clean_up_is_whole_or_refused(
    tables: Path, tmp_path: Path, kind: type[Case]
) -> None:
    case, results = kind(), list[bool]()
    for number in range(1, MOST):
        table = copied(tables, tmp_path / str(number), case)
        with pytest.MonkeyPatch.context() as patched:
            at = At(patched, number, lambda table=table: results.append(case.make(table)))  # type: ignore[misc]
            cleaned(table)
        if at.left > 0:
            break
        check(case, table, is_made=results[-1])
        assert LocalStorage(table).names(FOLDER) == []
        shutil.rmtree(table)
    assert results[0]
    assert {*results} == {True, False}


@pytest.mark.parametrize("kind", CASES)
def test_a_clean_up_at_each_call_of_who_names_a_version_leaves_it_whole_or_has_it_refused(
    tables: Path, tmp_path: Path, kind: type[Case]
) -> None:
    case, results = kind(), list[bool]()
    for number in range(1, MOST):
        table = copied(tables, tmp_path / str(number), case)
        with pytest.MonkeyPatch.context() as patched:
            at = At(patched, number, lambda table=table: cleaned(table))  # type: ignore[misc]
            is_made = case.make(table)
        if at.left > 0:
            break
        results.append(is_made)
        check(case, table, is_made=is_made)
        assert LocalStorage(table).names(FOLDER) == []
        shutil.rmtree(table)
    assert {*results} == {True, False}


@pytest.mark.parametrize("kind", CASES)
def test_a_clean_up_that_is_killed_refuses_only_what_it_may_have_removed(
    tables: Path, tmp_path: Path, kind: type[Case]
) -> None:
    """The next clean-up removes what the one before had begun to remove, and its announcement."""
    case, results = kind(), list[bool]()
    for number in range(1, MOST):
        table = copied(tables, tmp_path / str(number), case)
        if not is_killed_at(table, number):
            break
        results.append(case.make(table))
        check(case, table, is_made=results[-1])
        was_announced = bool(LocalStorage(table).names(FOLDER))
        cleaned(table, timedelta(days=36_500))
        check(case, table, is_made=results[-1])
        if was_announced and not results[-1]:
            assert VERSION not in opened(table).versions.numbers()
        cleaned(table)
        check(case, table, is_made=results[-1])
        shutil.rmtree(table)
    assert {*results} == {True, False}


def die() -> None:
    raise Died


def is_killed_at(table: Path, number: int) -> bool:
    """Kills a clean-up at a store call. Returns False if it makes fewer, so that it has ended."""
    with pytest.MonkeyPatch.context() as patched:
        At(patched, number, die)
        try:
            cleaned(table)
        except Died:
            return True
    return False


@pytest.mark.parametrize("kind", VALUES)
def test_a_reader_of_all_that_exists_begins_behind_what_a_killed_clean_up_began_to_remove(
    tables: Path, tmp_path: Path, kind: str
) -> None:
    """It began at a version without its files, or at a commit without the checkpoint before it."""
    starts = set[int]()
    for number in range(1, MOST):
        table = tmp_path / str(number)
        shutil.copytree(tables / kind, table)
        if not is_killed_at(table, number):
            break
        first, *later = lakefold.tail(table, start="earliest")
        starts.add(first.version)
        assert sorted(first.inserted()["id"].to_pylist()) == sorted(
            lakefold.open(table, version=first.version).to_arrow()["id"].to_pylist()
        )
        named = [change.version for change in tail(table, start="earliest", consumer="new")]
        assert named == [first.version, *(change.version for change in later)]
        shutil.rmtree(table)
    assert min(starts) <= VERSION < max(starts)


@pytest.mark.parametrize("is_cleaned", [False, True], ids=("alone", "cleaned"))
@pytest.mark.parametrize("kind", COMMITTED)
def test_what_a_killed_committer_kept_is_kept_only_until_the_next_one_has_done_it(
    tables: Path, tmp_path: Path, kind: type[Case], *, is_cleaned: bool
) -> None:
    """A clean-up in between keeps what the next committer may need, and nothing once that is published."""
    were_held, results = set[bool](), list[bool]()
    for number in range(1, MOST):
        case = kind()
        table = copied(tables, tmp_path / str(number), case)
        with pytest.MonkeyPatch.context() as patched:
            At(patched, number, die)
            try:
                case.make(table)
            except Died:
                pass
            else:
                break
        were_held.add(bool(held(table)))
        was_published = opened(table).versions.latest() > NEWEST
        if is_cleaned:
            cleaned(table)
            if was_published and isinstance(case, Restored):
                assert VERSION not in opened(table).versions.numbers()
        results.append(case.make(table))
        check(case, table, is_made=results[-1])
        cleaned(table)
        check(case, table, is_made=results[-1])
        shutil.rmtree(table)
    assert were_held == {False, True}
    assert {*results} == ({False, True} if is_cleaned else {True})


def test_a_store_that_allows_no_removal_has_nothing_announced(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = copied(tables, tmp_path, NewTag())

    def refused(_: LocalStorage, path: str) -> None:
        raise InvalidError("deleting is not allowed", where=path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "delete", refused)
        with pytest.raises(InvalidError, match="deleting is not allowed"):
            cleaned(table)
    assert LocalStorage(table).names(FOLDER) == []
    assert NewTag().make(table)
