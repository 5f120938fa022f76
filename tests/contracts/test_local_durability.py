"""Holds the local store against races of processes, SIGKILL and power cuts, with both ways to write.

Promises: failed-sync-is-no-sync, proposed-files-synced (docs/operations/promises.md).
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from lakefold_table.errors import InvalidError, LakefoldError, RetryError, StopError
from lakefold_table.storage import files_of_others
from lakefold_table.storage.base import Buffer, Put
from lakefold_table.storage.durable import DurableFiles, platform_has_unnamed
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.syncs import FAILURES, WrittenOutCalls, can_write_out, sync_file_system
from tests.contracts.power_cut import ForgetfulDisk
from tests.contracts.racing_writer import content_of
from tests.contracts.stores import os_with

if TYPE_CHECKING:
    from lakefold_table.storage.syncs import Calls

PROGRAM = Path(__file__).parent / "racing_writer.py"
PROCESSES = 16
ROUNDS = 150
KILLS = 60
CONTENT: list[Buffer] = [b"one", b"", b"two" * 1_000, b"three"]
WHOLE = b"".join(CONTENT)

both_modes = pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])


def program(*args: object) -> subprocess.Popen[str]:
    """Start the program beside this test, with the same modules to import."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), *map(str, args)]
    return subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def file_system_has_unnamed(folder: Path) -> bool:
    """Whether files can be made without a name here; else a store falls back to named files."""
    files = DurableFiles(os, unnamed=platform_has_unnamed())
    at = os.open(folder, os.O_RDONLY)
    try:
        files.create(at, "probe", [], lambda: None)
    finally:
        os.close(at)
    (folder / "probe").unlink()
    return files.unnamed


def test_of_many_processes_exactly_one_wins(tmp_path: Path) -> None:
    root = tmp_path / "t"
    with ExitStack() as stack:
        writers = [stack.enter_context(program("race", root, number, ROUNDS)) for number in range(PROCESSES)]
        for writer in writers:
            stack.callback(writer.kill)
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin
            writer.stdin.write("go\n")
            writer.stdin.flush()
        won = [json.loads(writer.communicate(timeout=120)[0]) for writer in writers]
    assert Counter(number for numbers in won for number in numbers) == dict.fromkeys(range(ROUNDS), 1)
    for writer_number, numbers in enumerate(won):
        name = str(writer_number).encode()
        for number in numbers:
            assert (root / "v" / str(number)).read_bytes() == name + b"." * 10_000 + name
    assert len(list((root / "v").iterdir())) == ROUNDS


@both_modes
def test_whoever_is_killed_leaves_whole_objects_only(tmp_path: Path, *, unnamed: bool) -> None:
    root = tmp_path / "t"
    with program("die", root, "unnamed" if unnamed else "named", KILLS, 1) as killer:
        reported = set(json.loads(killer.communicate(timeout=120)[0]))
    assert killer.returncode == 0
    assert len(reported) >= KILLS // 2
    store = LocalStorage(root)
    names = [listed.path for listed in store.list("v")]
    assert reported <= set(names)
    for path in names:
        assert store.get(path) == b"".join(content_of(path))
    leftovers = {f"v/{entry.name}" for entry in (root / "v").iterdir()} - set(names)
    assert all(path.startswith("v/.tmp") for path in leftovers)
    if unnamed and file_system_has_unnamed(tmp_path):
        assert not leftovers
    else:
        assert leftovers, "no child was killed while it wrote: the test proves nothing"


@both_modes
def test_a_power_cut_at_any_moment_leaves_the_whole_object_or_none(tmp_path: Path, *, unnamed: bool) -> None:
    disk = ForgetfulDisk()
    store = LocalStorage(tmp_path / "lake" / "t", unnamed=unnamed, calls=cast("Calls", disk))
    assert store.put_if_absent("_versions/1.manifest", CONTENT) is Put.STORED
    assert {cut.may_survive("1.manifest") for cut in disk.cuts} == {None, WHOLE}
    assert disk.cuts[-1].must_survive(tmp_path / "lake/t/_versions/1.manifest", tmp_path) == WHOLE

    assert store.put_if_absent("_versions/2.manifest", CONTENT) is Put.STORED
    assert {cut.may_survive("2.manifest") for cut in disk.cuts} == {None, WHOLE}
    assert disk.cuts[-1].must_survive(tmp_path / "lake/t/_versions/2.manifest", tmp_path) == WHOLE


@both_modes
def test_a_power_cut_leaves_each_of_several_objects_whole_or_not_at_all(
    tmp_path: Path, *, unnamed: bool
) -> None:
    """What another client left unsynced survives too, once all files are reported as stored."""
    (tmp_path / "t" / "_deletions").mkdir(parents=True)
    (tmp_path / "t" / "_deletions" / "0").write_bytes(b"by another client")
    disk = ForgetfulDisk()
    store = LocalStorage(tmp_path / "t", unnamed=unnamed, calls=cast("Calls", disk))
    names = [f"_deletions/{number}" for number in range(20)] + ["_versions/x"]
    puts = store.put_together([(name, CONTENT) for name in names])
    assert puts == [Put.EXISTS] + [Put.STORED] * 20
    for name in names[1:]:
        assert {cut.may_survive(name.rpartition("/")[2]) for cut in disk.cuts} == {None, WHOLE}
        assert disk.cuts[-1].must_survive(tmp_path / "t" / name, tmp_path) == WHOLE
    assert disk.cuts[-1].must_survive(tmp_path / "t" / names[0], tmp_path) == b"by another client"
    assert store.put_together([(name, [b"other"]) for name in names]) == [Put.EXISTS] * 21
    assert store.get(names[1]) == WHOLE
    assert store.put_together([]) == []


def test_one_of_several_objects_that_can_t_be_stored_is_reported(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path / "t")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").write_bytes(b"no folder")
    with pytest.raises(LakefoldError):
        store.put_together([("b", CONTENT), ("a/c", CONTENT)])
    with pytest.raises(InvalidError):
        store.put_together([("b", CONTENT), ("../c", CONTENT)])


@both_modes
def test_a_power_cut_at_any_moment_leaves_the_old_or_the_new_object(tmp_path: Path, *, unnamed: bool) -> None:
    disk = ForgetfulDisk()
    store = LocalStorage(tmp_path / "t", unnamed=unnamed, calls=cast("Calls", disk))
    store.put("tag.json", [b"old"])
    assert disk.cuts[-1].must_survive(tmp_path / "t/tag.json", tmp_path) == b"old"
    before = len(disk.cuts)
    store.put("tag.json", CONTENT)
    assert {cut.may_survive("tag.json") for cut in disk.cuts[before:]} == {b"old", WHOLE}
    assert disk.cuts[-1].must_survive(tmp_path / "t/tag.json", tmp_path) == WHOLE


def test_what_another_left_unsynced_is_made_durable(tmp_path: Path) -> None:
    (tmp_path / "t" / "data").mkdir(parents=True)
    path = tmp_path / "t" / "data" / "x.lance"
    path.write_bytes(b"by another client")
    disk = ForgetfulDisk()
    LocalStorage(tmp_path / "t", calls=cast("Calls", disk)).make_durable(["data/x.lance"])
    assert disk.cuts[-1].must_survive(path, tmp_path) == b"by another client"


class Synced:
    """The module `os` that notes which files and folders are synced, and may not open some of them."""

    def __init__(self, *unreadable: str) -> None:
        self.names: list[str] = []
        self._unreadable = unreadable

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path in self._unreadable:
            raise PermissionError(errno.EACCES, "Permission denied")
        return os.open(path, flags, mode, dir_fd=dir_fd)

    def fsync(self, fd: int) -> None:
        self.names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        os.fsync(fd)


def test_files_of_others_are_synced_once_and_so_are_their_folders(tmp_path: Path) -> None:
    data = tmp_path / "t" / "data"
    data.mkdir(parents=True)
    names = [f"{number}.lance" for number in range(40)]
    for name in names:
        (data / name).write_bytes(b"rows")
    synced = Synced()
    store = LocalStorage(tmp_path / "t", calls=cast("Calls", synced))
    paths = [f"data/{name}" for name in names]
    store.sync_others([*paths, "data/gone", "none/x"])
    assert sorted(synced.names[:40]) == sorted(names)
    assert synced.names[40:] == [tmp_path.name, "t", "data"]
    synced.names.clear()
    store.sync_others(paths)
    assert synced.names == []
    (data / names[7]).write_bytes(b"other rows")
    store.sync_others(paths)
    assert synced.names == [names[7], "data"]


def test_a_file_of_others_behind_a_link_is_synced_and_what_is_no_file_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "t" / "data").mkdir(parents=True)
    (tmp_path / "t" / "more").mkdir()
    (tmp_path / "t" / "more" / "x").write_bytes(b"rows")
    (tmp_path / "outside").write_bytes(b"not ours")
    (tmp_path / "t" / "data" / "x").symlink_to("../more/x")
    (tmp_path / "t" / "data" / "out").symlink_to("../../outside")
    (tmp_path / "t" / "alias").symlink_to("more")
    os.mkfifo(tmp_path / "t" / "data" / "pipe")
    synced = Synced()
    store = LocalStorage(tmp_path / "t", calls=cast("Calls", synced))
    store.sync_others(["data/x", "data/out", "data/pipe", "data"])
    assert synced.names[0] == "x"
    assert {"more", "data"} <= set(synced.names)
    assert "outside" not in synced.names
    synced.names.clear()
    store.sync_others(["alias/x"])
    assert synced.names == ["x", "more"]


def many(folder: Path) -> list[str]:
    """So many new files in data/ that their file system is written out first; the names of the objects."""
    (folder / "data").mkdir(parents=True)
    for number in range(100):
        (folder / "data" / f"{number}").write_bytes(b"rows")
    return [f"data/{number}" for number in range(100)]


def test_many_files_of_others_are_synced_each_after_their_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = many(tmp_path / "t")
    (tmp_path / "t" / "more").mkdir()
    (tmp_path / "t" / "more" / "x").write_bytes(b"rows")
    (tmp_path / "t" / "data" / "link").symlink_to("../more/x")
    synced = Synced()
    monkeypatch.setattr(files_of_others, "sync_file_system", lambda _: synced.names.append("all"))
    store = LocalStorage(tmp_path / "t", calls=cast("Calls", synced))
    store.sync_others([*paths, "data/gone", "data/link"])
    assert synced.names[:101] == ["all", *(path.removeprefix("data/") for path in paths)]
    assert synced.names[101] == "x"
    assert {"more", "data"} <= set(synced.names[102:])


def test_many_files_of_others_are_synced_by_themselves_if_their_file_system_promises_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = many(tmp_path)
    synced = Synced()
    monkeypatch.setattr(files_of_others, "can_write_out", lambda _: False)
    monkeypatch.setattr(files_of_others, "sync_file_system", lambda _: synced.names.append("all"))
    LocalStorage(tmp_path, calls=cast("Calls", synced)).sync_others(paths)
    assert "all" not in synced.names
    assert {path.removeprefix("data/") for path in paths} <= set(synced.names)
    assert "data" in synced.names


def test_which_file_systems_are_written_out_whole(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    process = os.open("/proc/self", os.O_RDONLY)
    kind = subprocess.run(["stat", "-f", "-c", "%t", tmp_path], check=True, capture_output=True, text=True)
    assert can_write_out(folder) == (
        kind.stdout.strip() in {"ef53", "58465342", "9123683e", "f2f52010", "1021994"}
    )
    assert not can_write_out(process)
    os.close(folder)
    os.close(process)


def test_a_file_among_many_of_others_whose_sync_fails_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the sync of the file system fails, or reports nothing because another process has seen it."""
    paths = many(tmp_path)
    numbers = {(tmp_path / path).stat().st_ino for path in paths}
    first = (tmp_path / "data" / "50").stat().st_ino

    def fsync(fd: int) -> None:
        if os.fstat(fd).st_ino == first:
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(fd)

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files_of_others, "sync_file_system", failing)
    LocalStorage(tmp_path, calls=os_with(fsync=fsync)).sync_others(paths)
    assert numbers - {(tmp_path / path).stat().st_ino for path in paths} == {first}
    assert (tmp_path / "data" / "50").read_bytes() == b"rows"


def test_the_calls_that_sync_many_files_raise_as_those_of_the_system_do(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"rows")
    (tmp_path / "link").symlink_to("x")
    calls, flags = WrittenOutCalls(), os.O_RDONLY | os.O_NOFOLLOW
    at = os.open(tmp_path, os.O_RDONLY)
    file = calls.open("x", flags, dir_fd=at)
    assert os.fstat(file).st_ino == (tmp_path / "x").stat().st_ino
    assert not os.get_inheritable(file)
    calls.fsync(file)
    calls.close(file)
    for act in (calls.fsync, calls.close):
        with pytest.raises(OSError, match="Bad file descriptor"):
            act(file)
    with pytest.raises(FileNotFoundError, match="gone"):
        calls.open("gone", flags, dir_fd=at)
    with pytest.raises(OSError, match="symbolic") as caught:
        calls.open("link", flags, dir_fd=at)
    assert caught.value.errno == errno.ELOOP
    os.close(at)


def test_a_file_of_others_that_may_not_be_read_is_synced_with_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(b"rows")
    whole: list[str] = []

    def synced_whole(fd: int) -> None:
        whole.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        sync_file_system(fd)

    monkeypatch.setattr(files_of_others, "sync_file_system", synced_whole)
    LocalStorage(tmp_path, calls=cast("Calls", Synced("x"))).sync_others(["data/x"])
    assert whole == ["data"]


def test_a_file_of_others_whose_sync_fails_is_written_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(b"rows")
    first = (tmp_path / "data" / "x").stat().st_ino

    def fsync(fd: int) -> None:
        if os.fstat(fd).st_ino == first:
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(fd)

    LocalStorage(tmp_path, calls=os_with(fsync=fsync)).sync_others(["data/x"])
    assert (tmp_path / "data" / "x").stat().st_ino != first
    assert (tmp_path / "data" / "x").read_bytes() == b"rows"


@both_modes
def test_a_put_that_lost_may_act_on_what_it_reads(tmp_path: Path, *, unnamed: bool) -> None:
    """The winner may not have synced its folder yet, or never will: the loser does before it is informed."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1").write_bytes(b"by another client")
    disk = ForgetfulDisk()
    store = LocalStorage(tmp_path / "t", unnamed=unnamed, calls=cast("Calls", disk))
    assert store.put_if_absent("1", CONTENT) is Put.EXISTS
    assert disk.cuts[-1].must_survive(tmp_path / "t" / "1", tmp_path) == b"by another client"


@both_modes
def test_an_own_link_is_known_when_the_server_says_exists(tmp_path: Path, *, unnamed: bool) -> None:
    """A file server that links, loses the answer and gets the request again, says that the name is taken."""

    def link(source: str, name: str, *, src_dir_fd: int | None, dst_dir_fd: int | None) -> None:
        for _ in range(2):
            os.link(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    store = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(link=link))
    assert store.put_if_absent("1", CONTENT) is Put.STORED
    assert store.get("1") == WHOLE
    assert store.put_if_absent("1", [b"other"]) is Put.EXISTS
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@both_modes
def test_a_race_lost_at_the_link_leaves_nothing(tmp_path: Path, *, unnamed: bool) -> None:
    def link(source: str, name: str, *, src_dir_fd: int | None, dst_dir_fd: int | None) -> None:
        (tmp_path / name).write_bytes(b"first")
        os.link(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    store = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(link=link))
    assert store.put_if_absent("1", CONTENT) is Put.EXISTS
    assert store.get("1") == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@both_modes
def test_a_final_check_is_made_between_the_bytes_and_the_name(tmp_path: Path, *, unnamed: bool) -> None:
    done: list[str] = []

    def fsync(file: int) -> None:
        done.append("fsync")
        os.fsync(file)

    def link(source: str, name: str, *, src_dir_fd: int | None, dst_dir_fd: int | None) -> None:
        done.append("link")
        os.link(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def refuse() -> None:
        done.append("refused")
        raise StopError("not the log any more")

    store = LocalStorage(tmp_path / "t", unnamed=unnamed, calls=os_with(fsync=fsync, link=link))
    store.put_if_absent("0", CONTENT)
    done.clear()
    with pytest.raises(StopError):
        store.put_once_sure("1", CONTENT, refuse)
    assert done == ["fsync", "refused"]
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["0"]
    done.clear()
    assert store.put_once_sure("1", CONTENT, lambda: done.append("sure")) is Put.STORED
    assert done == ["fsync", "sure", "link", "fsync"]
    assert store.get("1") == WHOLE


@both_modes
def test_short_writes_go_on_where_they_stopped(tmp_path: Path, *, unnamed: bool) -> None:
    def writev(fd: int, buffers: list[memoryview]) -> int:
        return os.writev(fd, [*buffers[:2], buffers[2][:1]] if len(buffers) > 2 else [buffers[0][:7]])

    store = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(writev=writev))
    buffers = [bytes([number]) * (number % 11) for number in range(200)]
    store.put_if_absent("1", buffers)
    assert store.get("1") == b"".join(buffers)


@both_modes
def test_a_disk_that_takes_no_bytes_ends_the_put(tmp_path: Path, *, unnamed: bool) -> None:
    store = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(writev=lambda _fd, _buffers: 0))
    with pytest.raises(RetryError, match="accepted no bytes"):
        store.put_if_absent("1", CONTENT)


@both_modes
def test_a_name_that_could_not_be_synced_is_given_to_a_new_file_until_that_is_durable(
    tmp_path: Path, *, unnamed: bool
) -> None:
    """A second sync of the same name succeeds, whatever the result of the first was."""
    broken = True
    synced: list[int] = []

    def fsync(fd: int) -> None:
        if broken and (tmp_path / "1").exists():
            raise OSError(errno.EIO, "Input/output error")
        synced.append(os.fstat(fd).st_ino)
        os.fsync(fd)

    store = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(fsync=fsync))
    failed = FAILURES.count
    for _ in range(2):
        with pytest.raises(RetryError, match="Input/output error"):
            store.put_if_absent("1", CONTENT)
        assert FAILURES.count > failed
        failed = FAILURES.count
    doubtful = (tmp_path / "1").stat().st_ino
    broken = False
    synced.clear()
    assert store.put_if_absent("1", CONTENT) is Put.EXISTS
    new = (tmp_path / "1").stat().st_ino
    assert new != doubtful
    assert synced[:2] == [new, tmp_path.stat().st_ino]
    assert doubtful not in synced
    assert store.get("1") == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@both_modes
def test_a_name_that_could_not_be_synced_once_is_stored_by_a_new_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, unnamed: bool
) -> None:
    broken = True

    def fsync(fd: int) -> None:
        nonlocal broken
        if broken and (tmp_path / "1").exists():
            broken = False
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(fd)

    store = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(fsync=fsync))
    assert store.put_if_absent("1", CONTENT) is Put.STORED
    assert not broken
    assert caplog.messages == [f"fsync of {tmp_path} failed: Input/output error; it counts as not written"]
    assert store.get("1") == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_bytes_of_others_that_could_not_be_synced_are_written_again(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(WHOLE)
    (tmp_path / "1").chmod(0o640)
    first = (tmp_path / "1").stat().st_ino
    failing = {first}

    def fsync(fd: int) -> None:
        if os.fstat(fd).st_ino in failing:
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(fd)

    store = LocalStorage(tmp_path, calls=os_with(fsync=fsync))
    store.make_durable(["1"])
    assert (tmp_path / "1").stat().st_ino != first
    assert (tmp_path / "1").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "1").read_bytes() == WHOLE


@both_modes
def test_a_large_object_lets_the_cache_forget_the_one_before_it_and_no_other(
    tmp_path: Path, *, unnamed: bool
) -> None:
    forgotten: list[str] = []

    def advised(fd: int, _start: int, _length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        forgotten.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    storage = LocalStorage(tmp_path, unnamed=unnamed, calls=os_with(posix_fadvise=advised))
    large: list[Buffer] = [b"x" * 700_000] * 2
    for name, content in (("1", large), ("2", CONTENT), ("3", large), ("4", large)):
        storage.put_if_absent(f"_versions/{name}", content)
    storage.put_if_absent("elsewhere/5", large)
    assert forgotten == ["1", "3"]


def test_advice_that_the_system_refuses_changes_nothing(tmp_path: Path) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "no advice is taken here")

    storage = LocalStorage(tmp_path, calls=os_with(posix_fadvise=refused))
    for name in ("1", "2"):
        assert storage.put_if_absent(name, [b"x" * 2_000_000]) is Put.STORED
