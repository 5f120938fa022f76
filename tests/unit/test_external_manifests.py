"""A version is committed where the manifest store says so, and finished by the next client."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import DamagedError, InvalidError, LocationError
from lakefold_table.lance.manifests.naming import VERSIONS, Scheme
from lakefold_table.manifest_stores.external import ExternalManifests
from lakefold_table.storage.base import Listed, Put
from lakefold_table.versions.lost_answers import Published
from tests.contracts.manifest_stores import BASE, Kept, MemoryManifests, check_whole, publication, versions
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer, Storage

THREADS = 32
ROUNDS = 100


@pytest.fixture(params=Scheme)
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    table = Kept(uuid.uuid4().hex, request.param)
    yield table
    table.close()


def test_a_version_is_put_by_five_steps_and_leaves_nothing_behind(kept: Kept) -> None:
    storage = kept.open()
    assert storage.put_if_absent(kept.scheme.path(1), [b"on", bytearray(b"e")]) is Put.STORED
    assert storage.put_if_absent(kept.scheme.path(1), [b"other"]) is Put.EXISTS
    assert kept.open().put_if_absent(kept.scheme.path(1), [b"one"]) is Put.EXISTS
    assert storage.put_if_absent(kept.scheme.path(2), [memoryview(b"2")]) is Put.STORED
    check_whole(kept, b"one", b"2")


def first_names(storage: Storage) -> Sequence[str]:
    assert not storage.lists_in_order
    assert storage.first_names(VERSIONS, 1) == storage.first_names(VERSIONS, 9)[:1]
    return storage.first_names(VERSIONS, 9)


READS: list[Callable[[Storage, str], object]] = [
    lambda storage, path: storage.get(path),
    lambda storage, path: storage.get_range(path, 0, 5),
    lambda storage, path: storage.get_tail(path, 5),
    lambda storage, path: storage.size(path),
    lambda storage, path: storage.sizes([path, "data/none"]),
    lambda storage, path: storage.make_durable([path]),
    lambda storage, path: storage.names(VERSIONS).index(path.rpartition("/")[2]),
    lambda storage, path: next(file for file in storage.list(f"{VERSIONS}/") if file.path == path),
    lambda storage, path: first_names(storage).index(path.rpartition("/")[2]),
    lambda storage, _: versions(storage).latest(),
    lambda storage, path: storage.put_if_absent(path, [b"other"]),
]
ANSWERS: list[object] = [
    b"three",
    b"three",
    (b"three", 5),
    5,
    {"data/none": None},
    None,
    None,
    None,
    None,
    3,
    Put.EXISTS,
]


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize(("read", "answer"), list(zip(READS, ANSWERS, strict=True)), ids=range(len(READS)))
def test_a_version_exists_from_its_commit_point_on(
    kept: Kept, step: int, read: Callable[[Storage, str], object], answer: object
) -> None:
    for number, data in ((1, b"one"), (2, b"two")):
        kept.left_at(5, number, data)
    path = kept.left_at(step, 3, b"three")
    actual = read(kept.open(), path)
    if isinstance(answer, dict):
        answer = {path: 5, **answer}
    assert actual == answer or (answer is None and actual in {None, Listed(path, 5), *range(4)})
    if step == 2 and read is not READS[-1]:
        check_whole(kept, b"one", b"two", b"three")
    assert kept.open().get(path) == b"three"
    assert kept.open().put_if_absent(kept.scheme.path(4), [b"four"]) is Put.STORED
    litter = [f"{path}-dead"] if step == 4 else []
    assert sorted(kept.paths()) == sorted([*map(kept.scheme.path, range(1, 5)), *litter])
    assert kept.recorded()[3] == path


def test_what_was_only_staged_is_no_version(kept: Kept) -> None:
    kept.left_at(5, 1, b"one")
    path = kept.left_at(1, 2, b"lost")
    storage = kept.open()
    assert versions(storage).numbers() == [1]
    assert storage.size(path) is None
    assert storage.put_if_absent(path, [b"two"]) is Put.STORED
    assert storage.get(path) == b"two"


def test_a_version_whose_staged_object_went_first_is_finished(kept: Kept) -> None:
    """Old Lance clients remove it before they record the final path."""
    path = kept.left_at(3, 1, b"one")
    kept.objects.delete(f"{path}-dead")
    assert versions(kept.open()).latest() == 1
    check_whole(kept, b"one")


def test_a_staged_object_that_vanishes_while_it_is_finished_was_finished_by_another(kept: Kept) -> None:
    path = kept.left_at(2, 1, b"one")

    class Racing(MemoryStorage):
        def get(self, wanted: str) -> bytes:
            if wanted != path and kept.paths() == [wanted]:
                assert kept.open().get(path) == b"one"
            return super().get(wanted)

    assert kept.open(objects=Racing(kept.uri)).get(path) == b"one"
    check_whole(kept, b"one")


def test_a_version_cleaned_up_while_it_is_finished_is_gone(kept: Kept) -> None:
    path = kept.left_at(2, 1, b"one")

    class Racing(MemoryStorage):
        def get(self, wanted: str) -> bytes:
            if wanted != path and kept.paths() == [wanted]:
                kept.open().delete(path)
            return super().get(wanted)

    with pytest.raises(FileNotFoundError):
        kept.open(objects=Racing(kept.uri)).get(path)
    assert kept.paths() == []


def test_versions_without_items_are_plain_objects(kept: Kept) -> None:
    for number in (1, 2):
        kept.objects.put(kept.scheme.path(number), [b"plain"])
    storage = kept.open()
    line = versions(storage)
    assert line.numbers() == [1, 2]
    assert line.read(2) == b"plain"
    assert storage.put_if_absent(kept.scheme.path(2), [b"over"]) is Put.EXISTS
    assert line.publish(publication(kept, 3)) is Published.OURS
    assert line.numbers() == [1, 2, 3]
    assert list(kept.recorded()) == [3]


def test_items_whose_objects_were_cleaned_up_are_no_versions(kept: Kept) -> None:
    for number in (1, 2, 3):
        kept.left_at(5, number, b"x")
    for number in (1, 2):
        kept.objects.delete(kept.scheme.path(number))
    storage = kept.open()
    assert versions(storage).numbers() == [3]
    assert storage.size(kept.scheme.path(1)) is None
    with pytest.raises(FileNotFoundError):
        storage.get(kept.scheme.path(2))
    assert storage.put_if_absent(kept.scheme.path(2), [b"again"]) is Put.EXISTS
    assert storage.size(kept.scheme.path(2)) is None


def test_a_branch_has_items_of_its_own(kept: Kept) -> None:
    path = kept.scheme.path(2)
    assert kept.open("/tree/b").put_if_absent(path, [b"on b"]) is Put.STORED
    assert kept.open().put_if_absent(path, [b"on main"]) is Put.STORED
    assert set(kept.manifests.items) == {(BASE, 2), (f"{BASE}/tree/b", 2)}
    assert kept.manifests.items[f"{BASE}/tree/b", 2].path == f"{BASE}/tree/b/{path}"
    assert kept.open().get(f"tree/b/{path}") == b"on b"
    item = kept.manifests.items[f"{BASE}/tree/b", 2]
    kept.objects.put(f"tree/b/{path}-x", [b"on b"])
    kept.objects.delete(f"tree/b/{path}")
    kept.manifests.items[f"{BASE}/tree/b", 2] = replace(item, path=f"{item.path}-x")
    assert kept.open().names(f"tree/b/{VERSIONS}") == [path.rpartition("/")[2]]
    assert kept.open("/tree/b").get(path) == b"on b"


def test_a_detached_version_is_never_the_newest(kept: Kept) -> None:
    kept.left_at(5, 1, b"one")
    detached = Scheme.V2.path((1 << 63) + 5)
    storage = kept.open()
    assert storage.put_if_absent(detached, [b"apart"]) is Put.STORED
    assert storage.get(detached) == b"apart"
    kept.left_at(2, 2, b"two")
    assert versions(kept.open()).numbers() == [1, 2]
    assert kept.recorded()[2] == kept.scheme.path(2)


def test_a_version_is_put_once_and_may_be_removed(kept: Kept) -> None:
    path = kept.left_at(2, 1, b"one")
    storage = kept.open()
    with pytest.raises(InvalidError, match="put once"):
        storage.put(path, [b"x"])
    storage.delete(path)
    assert kept.paths() == []
    assert storage.size(path) is None


def test_other_objects_go_straight_to_their_store(kept: Kept) -> None:
    storage = kept.open()
    assert storage.put_together([("data/a", [b"1"]), ("data/b", [b"2"])]) == [Put.STORED] * 2
    assert storage.put_together([("data/a", [b"1"]), (kept.scheme.path(1), [b"v"])]) == [
        Put.EXISTS,
        Put.STORED,
    ]
    storage.put(f"{VERSIONS}/latest_version_hint.json", [b"{}"])
    assert list(kept.recorded()) == [1]


def test_the_root_of_a_bucket_has_no_name_in_a_manifest_store() -> None:
    with pytest.raises(LocationError, match="root of a bucket"):
        ExternalManifests("memory://x", MemoryStorage("memory://x"), MemoryManifests())


@pytest.mark.parametrize(
    "path",
    [
        "../_versions/1.manifest",
        "a//_versions/1.manifest",
        "/_versions/1.manifest",
        ".tmp/../_versions/1.manifest",
    ],
)
def test_no_version_is_outside_of_the_root(kept: Kept, path: str) -> None:
    storage = kept.open()
    calls: list[Callable[[], object]] = [
        lambda: storage.get(path),
        lambda: storage.size(path),
        lambda: storage.put_if_absent(path, [b"x"]),
        lambda: storage.put(path, [b"x"]),
        lambda: storage.delete(path),
        lambda: storage.names(path.rpartition("/")[0]),
    ]
    for call in calls:
        with pytest.raises(InvalidError):
            call()
    assert not kept.manifests.items


@pytest.mark.parametrize("step", [2, 3])
def test_a_manifest_of_another_size_than_recorded_is_damage(kept: Kept, step: int) -> None:
    path = kept.left_at(step, 1, b"one")
    kept.objects.put(f"{path}-dead", [b"other"])
    with pytest.raises(DamagedError, match="has 5 bytes, but 3 were recorded"):
        kept.open().names(VERSIONS)
    kept.objects.delete(f"{path}-dead")
    if step == 3:
        kept.objects.put(path, [b"longer"])
        with pytest.raises(DamagedError, match="has 6 bytes, but 3 were recorded"):
            kept.open().names(VERSIONS)
    else:
        with pytest.raises(DamagedError, match="its manifest is gone") as caught:
            kept.open().get(path)
        assert caught.value.where == f"{kept.uri}/{path}-dead"
        assert caught.value.hint


def test_an_item_without_a_size_takes_that_of_the_object(kept: Kept) -> None:
    kept.left_at(2, 1, b"one")
    kept.manifests.items[BASE, 1] = replace(kept.manifests.items[BASE, 1], size=None)
    assert kept.open().get(kept.scheme.path(1)) == b"one"
    check_whole(kept, b"one")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "elsewhere/_versions/1.manifest-x",
        f"{BASE}/_versions/2.manifest-x",
        f"{BASE}/_versions/1.manifest-",
        f"{BASE}/_versions/1.manifest-x/y",
        f"{BASE}/_versions/../1.manifest-x",
        f"{BASE}/tree/b/_versions/1.manifest-x",
        f"{BASE}/data/1.manifest-x",
        f"{BASE}/_versions/1.lance",
        f"{BASE}2/_versions/1.manifest-x",
    ],
)
def test_an_item_that_names_something_else_is_damage(kept: Kept, path: str) -> None:
    kept.left_at(2, 1, b"one")
    kept.manifests.items[BASE, 1] = replace(kept.manifests.items[BASE, 1], path=path)
    with pytest.raises(DamagedError, match="can't have its manifest at") as caught:
        kept.open().get(kept.scheme.path(1))
    assert caught.value.hint
    assert not kept.objects.size(kept.scheme.path(1))


def test_a_table_dropped_while_it_is_finished_leaves_plain_objects(kept: Kept) -> None:
    path = kept.left_at(2, 1, b"one")

    class Dropping(MemoryStorage):
        def put(self, wanted: str, buffers: Sequence[Buffer]) -> None:
            super().put(wanted, buffers)
            kept.manifests.items.clear()

    assert kept.open(objects=Dropping(kept.uri)).get(path) == b"one"
    assert kept.paths() == [path]
    assert kept.open().get(path) == b"one"


@pytest.mark.parametrize("same", [False, True], ids=["each its own bytes", "all the same bytes"])
def test_of_many_threads_exactly_one_puts_a_version(kept: Kept, *, same: bool) -> None:
    stores = [kept.open() for _ in range(4)]
    barrier = threading.Barrier(THREADS, timeout=120)

    def content(writer: int) -> bytes:
        return b"writer %d" % (0 if same else writer)

    def race(writer: int) -> list[Put]:
        answers = []
        for number in range(1, ROUNDS + 1):
            barrier.wait()
            answers.append(
                stores[writer % len(stores)].put_if_absent(kept.scheme.path(number), [content(writer)])
            )
        return answers

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(race, range(THREADS)))
    winners = []
    for column in zip(*answers, strict=True):
        assert Counter(column) == {Put.STORED: 1, Put.EXISTS: THREADS - 1}
        winners.append(content(column.index(Put.STORED)))
    check_whole(kept, *winners)
