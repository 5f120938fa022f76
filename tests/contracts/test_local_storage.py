"""What is particular to the store on a local disk: links, folders, and what failed system calls become.

Promise: no-link-followed (docs/operations/promises.md).
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError, LakefoldError, LocationError, RetryError
from lakefold_table.storage.base import Listed, Put, etag_of
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.os_errors import failure
from tests.contracts.stores import os_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.storage.syncs import Calls

both_modes = pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])


def failing(call: str, number: int, time: int) -> Calls:
    """The module `os`, of which a call fails, at its n-th time."""
    times = iter(range(1, 1_000))

    def fail(*args: int, **named: int) -> object:
        if next(times) == time:
            raise OSError(number, os.strerror(number))
        return getattr(os, call)(*args, **named)

    return os_with(**{call: fail})


@both_modes
@pytest.mark.parametrize("method", ["put", "put_if_absent"])
@pytest.mark.parametrize(
    ("call", "number", "kind", "hint"),
    [
        ("writev", errno.ENOSPC, RetryError, "free some space"),
        ("writev", errno.EDQUOT, RetryError, "quota"),
        ("fsync", errno.EIO, RetryError, "disk"),
        ("open", errno.EMFILE, RetryError, "ulimit -n"),
        ("open", errno.ENFILE, RetryError, "file-max"),
        ("open", errno.EACCES, InvalidError, "permission"),
        ("open", errno.EROFS, InvalidError, "read-only"),
        ("mkdir", errno.EROFS, InvalidError, "read-only"),
        ("writev", errno.EFBIG, InvalidError, "ulimit -f"),
        ("writev", 9999, RetryError, "try again"),
    ],
)
def test_a_failed_put_stores_nothing_and_says_what_to_do(
    tmp_path: Path,
    method: str,
    call: str,
    number: int,
    kind: type[LakefoldError],
    hint: str,
    *,
    unnamed: bool,
) -> None:
    root = tmp_path / "t"
    if call != "mkdir":
        LocalStorage(root).put("v/0", [b"x"])
    # The folders' own calls come first; 4 is the first that concerns the file.
    time = {"open": 4, "fsync": 3}.get(call, 1)
    store = LocalStorage(root, unnamed=unnamed, calls=failing(call, number, time))
    with pytest.raises(kind) as failed:
        getattr(store, method)("v/1", [b"content"])
    assert failed.value.where == f"{root}/v/1"
    assert hint in failed.value.hint
    assert store.size("v/1") is None
    assert list(root.rglob("*1*")) == []
    assert list(root.rglob(".tmp*")) == []
    assert getattr(store, method)("v/1", [b"content"]) in {Put.STORED, None}
    assert store.get("v/1") == b"content"


def test_too_many_open_files_is_said_by_every_call(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path)
    store.put("v/1", [b"x"])
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    calls: list[Callable[[], object]] = [
        lambda: store.get("v/1"),
        lambda: store.get_tail("v/1", 1),
        lambda: store.put("v/2", [b"x"]),
        lambda: store.put_if_absent("v/2", [b"x"]),
        lambda: store.list("v"),
        store.anything_at_root,
    ]
    try:
        for call in calls:
            with pytest.raises(RetryError, match="ulimit -n"):
                call()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert store.get("v/1") == b"x"


def test_no_call_leaves_a_file_open(tmp_path: Path) -> None:
    def next_descriptor() -> int:
        descriptor = os.open("/dev/null", os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    before = next_descriptor()
    for unnamed in (True, False):
        store = LocalStorage(tmp_path / str(unnamed), unnamed=unnamed)
        store.put("v/1", [b"x"])
        for _ in range(2):
            store.put_if_absent("v/2", [b"x"])
        store.make_durable(["v/1", "v/2"])
        assert store.get("v/1") == store.get_tail("v/1", 1)[0] == store.get_range("v/1", 0, 1) == b"x"
        assert len(list(store.list("v"))) == 2
        with pytest.raises(FileNotFoundError):
            store.get("v/none")
    assert next_descriptor() == before


def test_a_taken_name_costs_no_writing(tmp_path: Path) -> None:
    LocalStorage(tmp_path).put("v/1", [b"x"])
    store = LocalStorage(tmp_path, calls=failing("writev", errno.ENOSPC, 1))
    assert store.put_if_absent("v/1", [b"y"]) is Put.EXISTS


def test_a_file_in_place_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for store, path in ((LocalStorage(tmp_path), "file/x"), (LocalStorage(tmp_path / "file"), "x")):
        calls: list[Callable[[], object]] = [
            lambda store=store, path=path: store.get(path),  # type: ignore[misc] # binds the loop's values
            lambda store=store, path=path: store.size(path),  # type: ignore[misc] # as above
            lambda store=store, path=path: store.put(path, [b"x"]),  # type: ignore[misc] # as above
            lambda store=store, path=path: store.put_if_absent(path, [b"x"]),  # type: ignore[misc] # as above
            lambda store=store, path=path: store.delete(path),  # type: ignore[misc] # as above
        ]
        for call in calls:
            with pytest.raises(InvalidError, match="part of this path is a file"):
                call()
    with pytest.raises(InvalidError, match="part of this path is a file"):
        LocalStorage(tmp_path / "file").anything_at_root()
    with pytest.raises(InvalidError, match="part of this path is a file"):
        LocalStorage(tmp_path).list("file")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path)
    store.put("v/folder/x", [b"x"])
    with pytest.raises(InvalidError, match="this is a folder"):
        store.put("v/folder", [b"x"])
    assert store.put_if_absent("v/folder", [b"x"]) is Put.EXISTS
    store.delete("v/folder")
    assert store.get("v/folder/x") == b"x"
    assert list(store.list("v")) == []


def test_a_pipe_is_no_object_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    store = LocalStorage(tmp_path)
    with pytest.raises(FileNotFoundError):
        store.get("pipe")
    assert store.size("pipe") is None
    assert store.put_if_absent("pipe", [b"x"]) is Put.EXISTS
    assert list(store.list("")) == []


def test_too_long_a_name_is_invalid(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path)
    for call in (store.get, store.size, lambda path: store.put(path, [b"x"])):
        with pytest.raises(InvalidError, match="shorter"):
            call("x" * 300)


def test_no_symbolic_link_leads_out_of_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "t", tmp_path / "tt"
    (root / "v").mkdir(parents=True)
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    (root / "v" / "link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "up").symlink_to("..")
    store = LocalStorage(root)
    for path in (
        "v/link",
        "folder/secret",
        "folder/none",
        "folder/new/none",
        "folder/deep/none",
        "up/tt/secret",
    ):
        calls: list[Callable[[], object]] = [
            lambda path=path: store.get(path),  # type: ignore[misc] # binds the loop's value
            lambda path=path: store.size(path),  # type: ignore[misc] # as above
            lambda path=path: store.make_durable([path]),  # type: ignore[misc] # as above
        ]
        for call in calls:
            with pytest.raises(InvalidError, match="leads out of the root"):
                call()
    for path in ("folder/new", "folder/new/deeper", "up/new"):
        with pytest.raises(InvalidError, match="leads out of the root"):
            store.put(path, [b"x"])
        with pytest.raises(InvalidError, match="leads out of the root"):
            store.put_if_absent(path, [b"x"])
        with pytest.raises(InvalidError, match="leads out of the root"):
            store.delete(path)
    with pytest.raises(InvalidError, match="leads out of the root"):
        store.list("folder")
    for folder in ("folder", "v"):
        with pytest.raises(InvalidError, match="leads out of the root"):
            store.names(folder)
    assert sorted(path.name for path in outside.rglob("*")) == ["deep", "secret"]


def test_a_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(b"123")
    (tmp_path / "alias").symlink_to("data")
    (tmp_path / "data" / "y").symlink_to("x")
    store = LocalStorage(tmp_path)
    assert store.get("alias/x") == store.get("data/y") == b"123"
    assert store.size("data/y") == 3
    assert list(store.list("alias")) == [Listed("alias/x", 3), Listed("alias/y", 3)]
    assert sorted(store.names("alias")) == ["x", "y"]


def test_objects_are_read_together_as_one_by_one(tmp_path: Path) -> None:
    for path, content in {"data/x": b"123", "data/large": b"12345678", "y": b"y", "empty/none": b""}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    (tmp_path / "alias").symlink_to("data")
    (tmp_path / "data" / "link").symlink_to("x")
    store = LocalStorage(tmp_path)
    paths = [
        "data/x",
        "y",
        "data/large",
        "alias/x",
        "data/link",
        "data/gone",
        "nowhere/x",
        "empty",
        "empty/none",
    ]
    contents = store.get_together(dict.fromkeys(paths, 7))
    assert contents == {
        "data/x": b"123",
        "y": b"y",
        "data/large": None,
        "alias/x": b"123",
        "data/link": b"123",
        "data/gone": None,
        "nowhere/x": None,
        "empty": None,
        "empty/none": b"",
    }
    assert store.get_together({}) == {}


def test_a_link_out_of_the_root_is_not_read_together_with_others(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    (tmp_path / "secret").write_bytes(b"1")
    (root / "out").symlink_to("../secret")
    (root / "x").write_bytes(b"2")
    for path in ("out", "../secret"):
        with pytest.raises(LocationError):
            LocalStorage(root).get_together({"x": 9, path: 9})


def test_nothing_is_written_through_a_link_that_stays_inside(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(b"123")
    (tmp_path / "alias").symlink_to("data")
    store = LocalStorage(tmp_path)
    calls: list[Callable[[], object]] = [
        lambda: store.put("alias/z", [b"z"]),
        lambda: store.put_if_absent("alias/z", [b"z"]),
        lambda: store.put_together([("alias/z", [b"z"]), ("alias/y", [b"y"])]),
        lambda: store.replace("alias/x", etag_of(b"123"), [b"z"]),
        lambda: store.delete("alias/x"),
    ]
    for call in calls:
        with pytest.raises(LocationError, match="nothing is written through links"):
            call()
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "data").iterdir()] == [("x", b"123")]


def test_a_link_to_nothing_takes_a_name_but_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("none")
    (tmp_path / "circle").symlink_to("circle")
    store = LocalStorage(tmp_path)
    assert store.put_if_absent("x", [b"x"]) is Put.EXISTS
    assert not (tmp_path / "none").exists()
    assert store.size("x") is None
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "x").symlink_to("none")
    assert store.names("v") == []
    with pytest.raises(FileNotFoundError):
        store.get("x")
    with pytest.raises(InvalidError, match="circle"):
        store.get("circle")


def test_a_root_may_be_a_link_and_a_uri(tmp_path: Path) -> None:
    (tmp_path / "real 100%").mkdir()
    (tmp_path / "link").symlink_to("real 100%")
    store = LocalStorage(f"file://{tmp_path}/link")
    store.put("x", [b"x"])
    assert (tmp_path / "real 100%" / "x").read_bytes() == b"x"
    assert store.uri == f"file://{tmp_path}/real 100%25"


@both_modes
def test_a_table_that_is_removed_under_its_writer_is_made_again(tmp_path: Path, *, unnamed: bool) -> None:
    root = tmp_path / "lake" / "t"
    store = LocalStorage(root, unnamed=unnamed)
    store.put_if_absent("v/1", [b"x"])
    shutil.rmtree(tmp_path / "lake")
    assert store.size("v/1") is None
    assert store.put_if_absent("v/1", [b"y"]) is Put.STORED
    shutil.rmtree(tmp_path / "lake")
    store.put("v/1", [b"z"])
    assert store.get("v/1") == b"z"


def test_temporary_files_of_the_dead_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / ".tmp-1-2").write_bytes(b"half")
    (tmp_path / "v" / ".tmp-1-2").write_bytes(b"half")
    store = LocalStorage(tmp_path)
    store.put("v/1", [b"x"])
    assert list(store.list("v")) == [Listed("v/1", 1)]
    assert list(store.list("")) == []
    assert not LocalStorage(tmp_path / "v" / "none").anything_at_root()


def test_only_temporary_files_at_the_root_are_nothing(tmp_path: Path) -> None:
    (tmp_path / ".tmp-1-2").write_bytes(b"half")
    assert not LocalStorage(tmp_path).anything_at_root()


def test_new_files_and_folders_take_the_umask_as_any_other(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path / "t")
    before = os.umask(0o027)
    try:
        store.put_if_absent("v/new", [b"x"])
        store.put("v/replaced", [b"x"])
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "t").rglob("*")}
    assert modes == {"v": 0o750, "new": 0o640, "replaced": 0o640}


def test_the_store_falls_back_if_files_need_a_name(tmp_path: Path) -> None:
    """As on file systems that know no O_TMPFILE."""
    flag = getattr(os, "O_TMPFILE", os.O_DIRECTORY)
    refused = []

    def without_unnamed(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & flag == flag and flags & os.O_WRONLY:
            refused.append(path)
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return os.open(path, flags, mode, dir_fd=dir_fd)

    store = LocalStorage(tmp_path, unnamed=True, calls=os_with(open=without_unnamed))
    assert store.put_if_absent("v/1", [b"x"]) is Put.STORED
    assert store.put_if_absent("v/2", [b"x"]) is Put.STORED
    assert len(refused) == 1


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_errno_becomes_a_typed_error_with_a_hint(number: int) -> None:
    error = failure(OSError(number, os.strerror(number)), "lake/t")
    assert isinstance(error, RetryError | InvalidError)
    assert error.where == "lake/t"
    assert error.hint
    assert os.strerror(number) in str(error)
