"""Each version's transaction is also in a file of its own, before any client can see the version.

Promise: older-clients (docs/operations/promises.md).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lakefold.console.settings import read_settings
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_table.entry import Committed
from lakefold_table.errors import RetryError
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.codec import decode_head
from lakefold_table.lance.manifests.naming import TRANSACTIONS, VERSIONS, detect
from lakefold_table.storage.concurrently import begun
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import append, creation, entries, opened, versions_at
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, Listed, here
from tests.tables import Folded, fragments_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakefold_table.storage.base import Buffer, Put


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def check_files(storage: MemoryStorage | LocalStorage, numbers: Sequence[int]) -> None:
    """Each version names a file that holds its transaction, byte for byte as its own file does."""
    versions = Versions(storage, VERSIONS, detect)
    for number in numbers:
        data = versions.read(number)
        head, inline = decode_head(data)
        assert inline is not None
        stored = storage.get(f"{TRANSACTIONS}/{head.transaction_file}")
        assert stored == inline.SerializeToString(deterministic=True)
        assert head.transaction_file.startswith(f"{inline.read_version}-")
        assert head.transaction_file.endswith(".txn")


def test_each_version_names_a_file_with_its_transaction(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "t")
    table = Folded(storage)
    table.append_ids([1])
    table.append_ids([2])
    check_files(storage, [1, 2, 3])
    assert len(storage.names(TRANSACTIONS)) == 3


def test_two_committers_write_the_same_file() -> None:
    names = []
    for _ in range(2):
        MemoryStorage.forget(NAME)
        table = opened(HERE)
        table.fold(entries([here(creation())], 0))
        table.fold(entries([here(append("f"))], 1))
        names.append(MemoryStorage(HERE).names(TRANSACTIONS))
    assert names[0] == names[1]
    assert len(names[0]) == 2


def test_without_it_a_version_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.tables.LanceFormat", lambda: LanceFormat(transaction_files=False))
    storage = LocalStorage(tmp_path / "t")
    table = Folded(storage)
    table.append_ids([1])
    assert storage.names(TRANSACTIONS) == []
    assert decode_head(table.versions.read(2))[0].transaction_file == ""


def test_it_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings({}).transaction_files
    monkeypatch.setenv("LAKEFOLD_TRANSACTION_FILES", "false")
    assert not read_settings({}).transaction_files


@pytest.mark.parametrize("files", [True, False])
def test_versions_are_replayed_as_they_were_made(files: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a case of a test
    monkeypatch.setattr("tests.folding.FORMAT", LanceFormat(transaction_files=files))
    table = opened(HERE)
    table.fold(entries([here(creation())], 0))
    table.fold(entries([here(append("f"))], 1))
    replays = list(replay(StoredTable(BUILT_IN.first, versions_at(HERE)), listed_of()))
    assert [each.verdict for each in replays] == [Verdict.SAME, Verdict.SAME]


def listed_of() -> Listed:
    """The log of the two entries."""
    return Listed(entries([here(creation()), here(append("f"))], 0))


class Failing(MemoryStorage):
    """Fails at the n-th call that writes, before or after it was done."""

    left = 10**9
    done = False

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        self._meet(lambda: super(Failing, self).put(path, buffers))

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        return self._meet(lambda: super(Failing, self).put_if_absent(path, buffers))

    def _meet(self, act: Callable[[], Put | None]) -> Put:
        self.left -= 1
        if self.left == 0:
            if self.done:
                act()
            raise RetryError("the store went away")
        return act()  # type: ignore[return-value]


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", [1, 2])
def test_no_version_exists_without_its_file(call: int, done: bool) -> None:  # noqa: FBT001 - a case of a test
    storage = Failing(HERE)
    table = Folded(storage)
    storage.left, storage.done = call, done
    group = [table.entry(fragments_only(HERE, 1))]
    with pytest.raises(RetryError):
        table.owned.fold(group)
    numbers = table.versions.numbers()
    assert numbers == ([1, 2] if (call, done) == (2, True) else [1])
    check_files(storage, numbers)
    assert isinstance(table.owned.fold(group).outcomes[0].result, Committed)
    check_files(storage, [1, 2])
    assert len(storage.names(TRANSACTIONS)) == 2


def test_what_a_power_cut_left_of_it_is_written_again(tmp_path: Path) -> None:
    """The file isn't synced: its name may survive without its bytes, and the same version is put again."""
    storage = LocalStorage(tmp_path / "t")
    table = Folded(storage)
    group = [table.entry(fragments_only(storage.uri, 1))]
    publication = table.owned.prepare(group).folded.publication
    assert publication is not None
    assert publication.copy is not None
    storage.put(publication.copy.path, [b""])
    table.owned.fall_back()
    table.owned.fold(group)
    check_files(storage, [1, 2])


class Far(MemoryStorage):
    """A store whose calls wait for a network: a put is done by a thread, once the version before is seen."""

    cheap_size = False

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.looked = threading.Event()
        self.order: list[str] = []

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `Storage.begin_put`."""

        def act() -> None:
            # Ends only because the check continues while this waits.
            assert self.looked.wait(120)
            self.put(path, buffers)
            self.order.append("copy")

        self.looked.clear()
        return begun(act)

    def size(self, path: str) -> int | None:
        """See `Storage.size`."""
        self.looked.set()
        return super().size(path)

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        self.order.append("version")
        return super().put_if_absent(path, buffers)


def test_on_a_remote_store_it_is_put_while_the_version_before_is_checked() -> None:
    Folded(MemoryStorage(HERE))
    storage = Far(HERE)
    table = opened_on(storage)
    table.fold(fragments_only(HERE, 1))
    assert storage.order == ["copy", "version"]
    check_files(storage, [2])


def test_a_put_that_fails_beside_is_raised_before_the_version_is_put() -> None:
    class Refusing(Far):
        """Puts no copy."""

        def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
            del path, buffers

            def act() -> None:
                raise RetryError("no copy was put")

            return begun(act)

    Folded(MemoryStorage(HERE))
    storage = Refusing(HERE)
    table = opened_on(storage)
    with pytest.raises(RetryError, match="no copy was put"):
        table.owned.fold([table.entry(fragments_only(HERE, 1))])
    assert table.versions.numbers() == [1]


def opened_on(storage: MemoryStorage) -> Folded:
    """The table that is there, opened through this store."""
    table = Folded.__new__(Folded)
    table.uri, table.offset = storage.uri, 1
    table.versions = Versions(storage, VERSIONS, detect)
    table.take_over()
    return table
