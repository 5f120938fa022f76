"""Versions: found, read, and published once whatever the store answers (one-commit-point)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lakefold_table.errors import (
    DamagedError,
    NotATableError,
    NotPublishedYetError,
    RetryError,
    VersionExpiredError,
)
from lakefold_table.format import Publication
from lakefold_table.lance.manifests.naming import Scheme, detect
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.lost_answers import Published
from lakefold_table.versions.versions import Versions
from tests.memory_storage import LoseAnswer, MemoryStorage, Refuse

NAME = "versions"
URI = f"memory://{NAME}/t"


@pytest.fixture
def store() -> Iterator[MemoryStorage]:
    yield MemoryStorage(URI)
    MemoryStorage.forget(NAME)


def versions(store: MemoryStorage) -> Versions:
    return Versions(store, "_versions", detect)


def publication(version: int, first: bytes = b"first", rest: bytes = b"rest") -> Publication:
    return Publication(version, Scheme.V2.path(version), [first, rest])


@pytest.mark.parametrize("scheme", Scheme)
def test_versions_are_found_and_read(store: MemoryStorage, scheme: Scheme) -> None:
    for number in (1, 2, 12):
        store.put(scheme.path(number), [b"%d" % number])
    store.put("_versions/d9223372036854775809.manifest", [b"detached"])
    store.put("_versions/latest_version_hint.json", [b"{}"])
    line = versions(store)
    assert line.numbers() == [1, 2, 12]
    assert line.latest() == 12
    assert versions(store).read(2) == b"2"
    assert [versions(store).exists(number) for number in (1, 3, 12, 13)] == [True, False, True, False]


def test_an_empty_place_has_no_version(store: MemoryStorage) -> None:
    assert versions(store).latest() == 0
    assert versions(store).numbers() == []


@pytest.mark.parametrize(
    "path", ["data/x.lance", "_versions/1.manifest#1", "_transactions/0-u.txn", "_lakefold/c/1"]
)
def test_files_written_ahead_of_a_table_are_no_hindrance(store: MemoryStorage, path: str) -> None:
    """A table may be created with its first rows; and a crash may leave a folder without a version."""
    store.put(path, [b"x"])
    assert versions(store).latest() == 0


@pytest.mark.parametrize("path", ["readme", "_delta_log/0.json", "metadata/v1.json", "part-0.parquet"])
def test_a_folder_of_something_else_is_no_table(store: MemoryStorage, path: str) -> None:
    store.put("data/x.parquet", [b"x"])
    store.put(path, [b"x"])
    with pytest.raises(NotATableError, match="no version of a table") as caught:
        versions(store).latest()
    assert caught.value.where == URI
    assert caught.value.hint


def test_a_table_that_another_begins_while_it_is_looked_for_is_one(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = store.names

    def names(prefix: str) -> Sequence[str]:
        before = listed(prefix)
        if not before:
            versions(MemoryStorage(URI)).publish(publication(1))
            store.put("tree/side/_versions/1.manifest", [b"a branch of it"])
        return before

    monkeypatch.setattr(store, "names", names)
    assert versions(store).latest() == 1


def test_two_schemes_are_damage(store: MemoryStorage) -> None:
    store.put(Scheme.V1.path(1), [b""])
    store.put(Scheme.V2.path(2), [b""])
    with pytest.raises(DamagedError):
        versions(store).latest()


def test_a_version_that_does_not_exist(store: MemoryStorage) -> None:
    for missing in (versions(store).read, versions(store).path, versions(store).exists):
        with pytest.raises(NotATableError):
            missing(1)
    for number in (4, 6):
        store.put(Scheme.V2.path(number), [b""])
    with pytest.raises(VersionExpiredError, match="version 5 is gone") as gone:
        versions(store).read(5)
    assert gone.value.oldest == 4
    with pytest.raises(NotPublishedYetError, match="version 7 does not exist yet, the newest is 6"):
        versions(store).read(7)
    line = versions(store)
    assert line.latest() == 6
    for number in (4, 6):
        store.delete(Scheme.V2.path(number))
    with pytest.raises(NotATableError):
        line.read(6)


def test_a_version_is_published_once(store: MemoryStorage) -> None:
    line = versions(store)
    assert line.publish(publication(1)) is Published.OURS
    assert line.publish(publication(1)) is Published.OURS
    assert line.publish(publication(1, b"other")) is Published.THEIRS
    assert line.read(1) == b"firstrest"
    assert line.exists(1)


@pytest.mark.parametrize(
    ("stored", "existing", "expected"),
    [
        (True, b"", Published.OURS),
        (False, b"", Published.UNKNOWN),
        (True, b"theirs", Published.THEIRS),
        (False, b"theirs", Published.THEIRS),
        (False, b"firstrest", Published.OURS),
    ],
)
def test_a_lost_answer_is_settled_by_reading_back(
    store: MemoryStorage, *, stored: bool, existing: bytes, expected: Published
) -> None:
    if existing:
        store.put(Scheme.V2.path(1), [existing])
    store.faults.plan(LoseAnswer(stored=stored))
    assert versions(store).publish(publication(1)) is expected


@pytest.mark.parametrize("local", [True, False], ids=["local", "memory"])
def test_nothing_is_published_before_it_is_sure(store: MemoryStorage, tmp_path: Path, *, local: bool) -> None:
    line = Versions(LocalStorage(tmp_path / "t"), "_versions", detect) if local else versions(store)

    def doubt() -> None:
        assert not line.latest()
        raise RetryError("that is not known now")

    def sure() -> None:
        assert not line.latest()

    with pytest.raises(RetryError):
        line.publish(publication(1), doubt)
    assert not line.latest()
    assert line.publish(publication(1), sure) is Published.OURS
    assert line.read(1) == b"firstrest"


def test_an_unreachable_store_is_no_answer(store: MemoryStorage) -> None:
    store.faults.plan(Refuse())
    with pytest.raises(RetryError):
        versions(store).publish(publication(1))
    assert versions(store).latest() == 0
