"""What every store promises, as tests that each kind of store takes over with places of its own (`site`).

`test_storage.py` asks it of local disk and memory; those that need a server are asked in `tests/integration`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError
from lakefold_table.storage.base import Listed, Put, read_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.storage.base import Buffer, Storage
    from tests.contracts.stores import Site

THREADS = 32
BAD_PATHS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/..",
    "a/../b",
    "a/../../b",
    "./a",
    "a/./b",
    "a\0b",
]


@pytest.fixture
def store(site: Site) -> Storage:
    return site.open()


def test_a_store_that_says_when_an_object_was_stored_says_about_now(store: Storage, site: Site) -> None:
    before = time.time_ns() // 1000
    store.put("a/b", [b"x"])
    answer = store.stored_at("a/b")
    assert answer is None or before - site.tick_us <= answer <= time.time_ns() // 1000
    assert store.stored_at("a/c") is None
    assert store.stored_at("a") is None


def test_an_object_comes_back_as_it_was_put(store: Storage) -> None:
    assert store.put_if_absent("a/b/c", [b"one", bytearray(b"two"), memoryview(b"three")]) is Put.STORED
    assert store.get("a/b/c") == b"onetwothree"
    assert type(store.get("a/b/c")) is bytes
    assert store.size("a/b/c") == 11


def test_a_taken_name_stays_as_it_is(store: Storage) -> None:
    assert store.put_if_absent("v/1", [b"first"]) is Put.STORED
    assert store.put_if_absent("v/1", [b"second, longer"]) is Put.EXISTS
    assert store.put_if_absent("v/1", [b"first"]) is Put.EXISTS
    assert store.put_if_absent("v/1", []) is Put.EXISTS
    assert store.get("v/1") == b"first"


def test_put_replaces_an_existing_object(store: Storage) -> None:
    for data in (b"a longer first text", b"short", b"", b"last"):
        store.put("refs/tags/x.json", [data])
        assert store.get("refs/tags/x.json") == data
    assert store.put_if_absent("refs/tags/x.json", [b"no"]) is Put.EXISTS


def test_stores_on_one_place_see_each_other_at_once(site: Site) -> None:
    storage, other = site.open(), site.open()
    assert storage.put_if_absent("v/1", [b"one"]) is Put.STORED
    assert other.get("v/1") == b"one"
    assert other.put_if_absent("v/1", [b"other"]) is Put.EXISTS
    other.delete("v/1")
    assert storage.size("v/1") is None
    assert storage.put_if_absent("v/1", [b"again"]) is Put.STORED


def test_a_root_below_another_sees_its_own_part(site: Site) -> None:
    above, below = site.open(), site.open("/tree/b")
    below.put("v/1", [b"x"])
    assert above.get("tree/b/v/1") == b"x"
    assert list(below.list("v")) == [Listed("v/1", 1)]
    assert below.uri == above.uri + "/tree/b"
    assert not site.open("/tree/bb").anything_at_root()


@pytest.mark.parametrize(
    "buffers",
    [
        [],
        [b""],
        [b"", b"", b""],
        [b"", b"a", b"", b"", b"bc", b""],
        [bytes([i % 256]) * (i % 300) for i in range(5_000)],
        [b"x"] * 5_000,
        [os.urandom(1 << 20), b"", os.urandom(3 << 20), b"tail"],
        [memoryview(b"0123456789")[2:5], memoryview(bytearray(range(64))).cast("I")],
    ],
    ids=["none", "one empty", "all empty", "some empty", "5,000", "5,000 small", "large", "views"],
)
@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_buffers_are_stored_in_order_and_whole(store: Storage, method: str, buffers: list[Buffer]) -> None:
    getattr(store, method)("folder/object", buffers)
    expected = b"".join(bytes(buffer) for buffer in buffers)
    assert store.get("folder/object") == expected
    assert store.size("folder/object") == len(expected)


def test_a_missing_object_is_missing_everywhere(store: Storage) -> None:
    store.put("there/x", [b"x"])
    for path in ("none", "none/none", "there/none", "there"):
        for read in (
            store.get,
            lambda path: store.get_range(path, 0, 1),
            lambda path: store.get_tail(path, 1),
        ):
            with pytest.raises(FileNotFoundError):
                read(path)
        with pytest.raises(FileNotFoundError):
            store.make_durable([path])
        assert store.size(path) is None
        store.delete(path)
    assert store.get("there/x") == b"x"


def test_a_put_that_was_begun_is_there_once_it_was_waited_for(store: Storage) -> None:
    for content in (b"first", b"another"):
        wait = store.begin_put("t/x.txn", [content[:2], content[2:]])
        wait()
        assert store.get("t/x.txn") == content
    assert store.names("t") == ["x.txn"]
    with pytest.raises(InvalidError):
        store.begin_put("../x", [b"x"])()


def test_sizes_answers_for_each_path(store: Storage, site: Site) -> None:
    store.put("data/a", [b"123"])
    store.put("data/b", [])
    assert store.sizes(["data/b", "data/none", "data/a"]) == {"data/b": 0, "data/none": None, "data/a": 3}
    assert store.sizes(iter(["data/a"])) == {"data/a": 3}
    assert store.sizes([]) == {}
    assert store.cheap_size is site.cheap_size


def test_a_range_ends_where_the_object_ends(store: Storage) -> None:
    store.put("o", [b"0123456789"])
    assert store.get_range("o", 0, 4) == b"0123"
    assert store.get_range("o", 8, 100) == b"89"
    assert store.get_range("o", 8, 1 << 60) == b"89"
    assert store.get_range("o", 10, 1) == b""
    assert store.get_range("o", 1 << 40, 1) == b""
    assert store.get_range("o", 3, 0) == b""


def test_an_object_is_held_in_memory_whole_up_to_a_size(
    store: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefold_table.storage.base.MOST_WHOLE", 9)
    store.put("o", [b"0123456789"])
    store.put("p", [b"012345678"])
    assert store.get("p") == b"012345678"
    with pytest.raises(InvalidError, match="10 bytes are to be read, and no more than 9") as refused:
        store.get("o")
    assert refused.value.where.endswith("/o")
    assert store.get_range("o", 8, 2) == b"89"
    files: dict[str, bytes | None] = {}
    read_into(files, store, ["missing", "p"])
    assert files == {"missing": None, "p": b"012345678"}
    with pytest.raises(InvalidError, match="18 bytes are to be read"):
        read_into(files, store, ["p"])


def test_a_tail_comes_with_the_size(store: Storage) -> None:
    store.put("o", [b"0123456789"])
    store.put("empty", [])
    assert store.get_tail("o", 3) == (b"789", 10)
    assert store.get_tail("o", 10) == (b"0123456789", 10)
    assert store.get_tail("o", 1 << 60) == (b"0123456789", 10)
    assert store.get_tail("o", 0) == (b"", 10)
    assert store.get_tail("empty", 16) == (b"", 0)


def test_a_negative_range_is_invalid(store: Storage) -> None:
    store.put("o", [b"0123456789"])
    ranges: list[Callable[[], object]] = [
        lambda: store.get_range("o", -1, 2),
        lambda: store.get_range("o", 0, -1),
        lambda: store.get_tail("o", -1),
    ]
    for read in ranges:
        with pytest.raises(InvalidError):
            read()


def test_a_listing_is_in_order_and_not_recursive(store: Storage) -> None:
    names = ["é", "a", "B", "10", "9", "a.b", "a-b", "a b", "z~", "_", "\U0001f600", "\uffee"]
    for name in names:
        store.put(f"v/{name}", [name.encode()])
    store.put("v/folder/inner", [b"x"])
    store.put("va/other", [b"x"])
    store.put("top", [b"12"])
    expected = [Listed(f"v/{name}", len(name.encode())) for name in sorted(names, key=str.encode)]
    assert list(store.list("v")) == expected
    assert list(store.list("v/")) == expected
    assert list(store.list("v/folder")) == [Listed("v/folder/inner", 1)]
    assert list(store.list("")) == [Listed("top", 2)]
    assert list(store.list("none")) == []
    assert list(store.list("v/none")) == []
    for folder in ("v", "v/", "v/folder", "", "none", "v/none"):
        listed = [file.path.rpartition("/")[2] for file in store.list(folder)]
        assert sorted(store.names(folder)) == sorted(listed)


def test_the_first_names_are_those_that_a_listing_begins_with(store: Storage) -> None:
    for name in ("c", "a", "e", "B", "10", "9"):
        store.put(f"v/{name}", [b"x"])
    store.put("v/b/inner", [b"x"])
    assert store.first_names("v/b", 9) == ["inner"]
    assert store.first_names("none", 9) == []
    names = [listed.path.rpartition("/")[2] for listed in store.list("v")]
    assert store.first_names("v", 2) == names[:2] == ["10", "9"]
    assert store.first_names("v", 100) == names


def test_a_store_that_is_tried_holds_its_condition(store: Storage) -> None:
    store.check_conditions()
    assert store.names("_lakefold/probe") == []


def test_a_listing_goes_on_when_objects_go_away(store: Storage) -> None:
    for i in range(5):
        store.put(f"v/{i}", [b"x"])
    listing = store.list("v")
    assert next(listing).path == "v/0"
    store.delete("v/1")
    assert {listed.path for listed in listing} - {"v/1"} == {"v/2", "v/3", "v/4"}


def test_the_root_is_empty_until_something_exists_below_it(store: Storage) -> None:
    assert not store.anything_at_root()
    assert list(store.list("")) == []
    store.put("a/b/c", [b""])
    assert store.anything_at_root()
    assert store.anything_at_root(besides={"b", "c"})
    assert not store.anything_at_root(besides={"a"})
    store.put("top", [b""])
    assert store.anything_at_root(besides={"a"})


def test_a_store_names_everything_below_its_root(store: Storage, site: Site) -> None:
    assert [*store.everything()] == []
    paths = {"top", "a/b", "a/b2/c/d e", "a/é", "tree/b/v/1"}
    for path in paths:
        store.put(path, [b"x"])
    site.open("x").put("beside", [b"x"])
    names = [*store.everything()]
    assert len(names) == len(paths)
    assert {*names} == paths
    assert {*site.open("/tree/b").everything()} == {"v/1"}


def test_delete_removes_one_object(store: Storage) -> None:
    store.put("v/1", [b"x"])
    store.put("v/2", [b"x"])
    store.delete("v/1")
    store.delete("v/1")
    assert [listed.path for listed in store.list("v")] == ["v/2"]


def test_objects_are_made_durable_whoever_wrote_them(store: Storage, site: Site) -> None:
    site.open().put("v/1", [b"x"])
    store.make_durable(["v/1"])
    store.make_durable([])


@pytest.mark.parametrize("path", BAD_PATHS)
def test_no_path_leaves_the_root(store: Storage, site: Site, path: str) -> None:
    site.open().put("a/b", [b"x"])
    calls: list[Callable[[], object]] = [
        lambda: store.get(path),
        lambda: store.get_range(path, 0, 1),
        lambda: store.get_tail(path, 1),
        lambda: store.size(path),
        lambda: store.sizes([path]),
        lambda: store.put(path, [b"x"]),
        lambda: store.put_if_absent(path, [b"x"]),
        lambda: store.delete(path),
        lambda: store.make_durable([path]),
    ]
    for call in calls:
        with pytest.raises(InvalidError) as refused:
            call()
        assert refused.value.hint
    if path not in {"", "a/"}:
        with pytest.raises(InvalidError):
            store.list(path)
        with pytest.raises(InvalidError):
            store.names(path)


def test_names_of_temporary_files_are_kept_for_them(store: Storage) -> None:
    for path in (".tmp", "v/.tmp-1", "v/.tmpx.manifest"):
        with pytest.raises(InvalidError):
            store.put(path, [b"x"])
        with pytest.raises(InvalidError):
            store.put_if_absent(path, [b"x"])
    assert not store.anything_at_root()


@pytest.mark.parametrize("same", [False, True], ids=["each its own bytes", "all the same bytes"])
def test_of_many_threads_exactly_one_wins(site: Site, *, same: bool) -> None:
    """Also where all of them put the same object: who lost must know."""
    stores = [site.open() for _ in range(4)]
    barrier = threading.Barrier(THREADS, timeout=120)
    padding = b"." * 5_000

    def content(writer: int) -> list[bytes]:
        return [b"writer", b"0" if same else str(writer).encode(), padding]

    def race(writer: int) -> list[Put]:
        store = stores[writer % len(stores)]
        buffers = content(writer)
        answers = []
        for number in range(site.rounds):
            barrier.wait()
            answers.append(store.put_if_absent(f"v/{number}", buffers))
        return answers

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(race, range(THREADS)))
    for number in range(site.rounds):
        column = [answers[writer][number] for writer in range(THREADS)]
        assert Counter(column) == {Put.STORED: 1, Put.EXISTS: THREADS - 1}
        assert stores[0].get(f"v/{number}") == b"".join(content(column.index(Put.STORED)))
    assert len(list(stores[0].list("v"))) == site.rounds


def test_a_replaced_object_is_never_seen_half(site: Site) -> None:
    writer, reader = site.open(), site.open()
    contents = {bytes([65 + i]) * (100_000 * (i + 1)) for i in range(3)}
    writer.put("o", [min(contents)])
    done = threading.Event()

    def replace() -> None:
        try:
            for _ in range(20):
                for data in sorted(contents):
                    writer.put("o", [data[:10], data[10:]])
        finally:
            done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(replace)
        while not done.is_set():
            assert reader.get("o") in contents
        writing.result()
    assert [listed.path for listed in reader.list("")] == ["o"]


def test_an_object_is_replaced_only_while_it_is_the_one_that_was_read(store: Storage) -> None:
    store.put("a/b", [b"one"])
    data, mark = store.get_with_etag("a/b")
    assert (data, store.get_with_etag("a/b")[1]) == (b"one", mark)
    assert store.replace("a/b", mark, [b"two", b"!"])
    assert not store.replace("a/b", mark, [b"three"])
    data, mark = store.get_with_etag("a/b")
    assert data == b"two!"
    store.delete("a/b")
    assert not store.replace("a/b", mark, [b"four"])
    assert not store.replace("nowhere/b", mark, [b"four"])
    assert (store.size("a/b"), store.size("nowhere/b")) == (None, None)
    with pytest.raises(FileNotFoundError):
        store.get_with_etag("a/b")


def test_folders_are_recognised_and_objects_are_not(store: Storage) -> None:
    for path in ("a/b/c", "a/d/e/f", "a/g", "h/i"):
        store.put(path, [b"x"])
    assert sorted(store.folders("a")) == ["b", "d"]
    assert list(store.folders("a/d/e")) == list(store.folders("nowhere")) == []
