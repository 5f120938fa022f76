"""Every reader on tables whose files are missing, cut off, changed or removed while they are read.

Each gives what it gave before, or an error of ours that names the place and says what to do: never an error
of pylance or Arrow, never some of the rows as if they were all. Lance keeps no checksums, so a changed byte
in the middle of a page may be another value; then the number of rows must still be right.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lakefold
from lakefold import cli
from lakefold_table.errors import DamagedError, LakefoldError, NotATableError, VersionExpiredError
from lakefold_table.storage.local import LocalStorage
from tests.proposals import rows
from tests.tables import Folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

NEWEST = 5

READERS: dict[str, Callable[[str], Any]] = {
    "open": lambda uri: lakefold.open(uri).version,
    "schema": lambda uri: lakefold.open(uri).schema,
    "rows": lambda uri: ids(lakefold.open(uri).to_arrow()),
    "a filter": lambda uri: ids(lakefold.open(uri).to_arrow(["id"], filter="text > 'row 3'")),
    "batches": lambda uri: sum(batch.num_rows for batch in lakefold.open(uri).to_reader()),
    "count": lambda uri: lakefold.open(uri).count_rows(),
    "count by a filter": lambda uri: lakefold.open(uri).count_rows("text > 'row 3'"),
    "an older version": lambda uri: ids(lakefold.open(uri, version=3).to_arrow()),
    "take": lambda uri: ids(lakefold.open(uri).take([0, 7])),
    "history": lambda uri: [(row.version, row.operation) for row in lakefold.open(uri).history()],
    "tail": lambda uri: [
        (change.version, change.operation) for change in lakefold.tail(uri, start="earliest")
    ],
    "tail with rows": lambda uri: [
        ids(change.inserted()) for change in lakefold.tail(uri, start="earliest") if change.only_inserts
    ],
    "changes": lambda uri: ids(lakefold.changes(uri, 1, NEWEST).read_all()),
    "changes of a delete": lambda uri: ids(lakefold.changes(uri, 3, 4).read_all()),
}
VERBS = {
    "show": ["show", "{}"],
    "log": ["log", "{}"],
    "tail": ["tail", "{}", "--from", "1"],
    "tail with rows": ["tail", "{}", "--from", "1", "--rows"],
    "changes": ["changes", "{}", "--from", "1"],
}
OK, USAGE, DAMAGED = 0, 2, 4


def ids(actual: Any) -> list[int]:  # noqa: ANN401 - a table or a batch
    """The ids among rows."""
    return sorted(actual["id"].to_pylist())


def made(path: Path, *, stable: bool) -> Path:
    """A table of 5 versions, ours and one of pylance, with deletion files and files of several fragments."""
    table = Folded(LocalStorage(path), stable_row_ids=stable)
    table.append_ids(range(300))
    table.append_ids(range(300, 400))
    lance.dataset(str(path)).delete("id in (5, 6, 350)")
    table.take_over()
    assert table.append_ids(range(400, 450)) == NEWEST
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Path, dict[str, Any]]]:
    """Both tables, undamaged, and what each reader gives."""
    actual = {}
    for stable in (False, True):
        path = made(tmp_path_factory.mktemp("whole") / "t", stable=stable)
        actual[stable] = path, {name: read(str(path)) for name, read in READERS.items()}
    return actual


def cut_offs(size: int) -> list[int]:
    """Lengths at which there is nothing, or a part of each section of a Lance file, up to the last byte."""
    return sorted({0, 4, size // 2, *(max(0, size - end) for end in (41, 16, 8, 1))})


def damages(data: bytes) -> dict[str, bytes | None]:
    """What may have become of a file; None: it is gone."""
    zeros, last = bytes(len(data)), bytes(min(64, len(data)))
    return {
        "gone": None,
        **{f"cut to {length} of {len(data)}": data[:length] for length in cut_offs(len(data))},
        "zeros": zeros,
        "ones": b"\xff" * len(data),
        "end lost": data[: -len(last)] + last,
        "longer": data + b"more than was written",
    }


def flips(data: bytes) -> dict[str, bytes]:
    """A byte changed, in some places."""
    step = max(1, len(data) // 5)
    return {
        f"byte {number} of {len(data)}": data[:number] + bytes([data[number] ^ 0x5A]) + data[number + 1 :]
        for number in range(0, len(data), step)
    }


@dataclass(frozen=True)
class Case:
    """A copy of a table with a single file damaged."""

    what: str
    table: Path
    file: Path
    expected: dict[str, Any]

    @property
    def uri(self) -> str:
        """The copy."""
        return str(self.table)


def given(read: Callable[[str], Any], uri: str) -> Any:  # noqa: ANN401 - what the reader gives
    """What a reader gives, or how it says that it can't."""
    try:
        return read(uri)
    except LakefoldError as error:
        return error


def cases(
    whole: dict[bool, tuple[Path, dict[str, Any]]],
    folder: Path,
    kind: str,
    harm: Callable[[bytes], dict[str, Any]],
) -> Iterator[Case]:
    """Each file of a kind, damaged in each way, one after another."""
    for source, expected in list(whole.values())[: 1 if kind == "_versions" else 2]:
        for file in sorted(source.joinpath(kind).iterdir()):
            for what, data in harm(file.read_bytes()).items():
                table = folder / "t"
                shutil.rmtree(table, ignore_errors=True)
                shutil.copytree(source, table)
                damaged = table / kind / file.name
                damaged.unlink() if data is None else damaged.write_bytes(data)
                yield Case(f"{kind}/{file.name}: {what}", table, damaged, expected)


def check_told(error: LakefoldError, case: Case) -> None:
    """It names the table and says what to do, in one line that a person can read."""
    assert str(case.table) in error.where, case.what
    assert error.hint, case.what
    assert "\n" not in str(error), case.what
    assert "rust/" not in str(error), case.what


@pytest.mark.parametrize("kind", ["data", "_deletions"])
def test_a_data_or_deletion_file_that_is_damaged(
    tmp_path: Path, whole: dict[bool, tuple[Path, dict[str, Any]]], kind: str
) -> None:
    harmed = set()
    for case in cases(whole, tmp_path, kind, damages):
        for name, read in READERS.items():
            error = given(read, case.uri)
            if isinstance(error, DamagedError):
                check_told(error, case)
                assert case.file.name in str(error) or "cut" not in case.what, (case.what, name, str(error))
                harmed.add(name)
            else:
                assert error == case.expected[name], (case.what, name)
    without_data = {"open", "schema", "count", "history", "tail"}
    assert harmed >= READERS.keys() - without_data - {"an older version", "tail with rows"}
    assert not harmed & without_data


@pytest.mark.parametrize("kind", ["data", "_deletions", "_versions"])
def test_a_byte_that_is_changed(
    tmp_path: Path, whole: dict[bool, tuple[Path, dict[str, Any]]], kind: str
) -> None:
    for case in cases(whole, tmp_path, kind, flips):
        for name, read in READERS.items():
            values = given(read, case.uri)
            if kind == "data" and isinstance(values, list) and name != "a filter":
                assert len(values) == len(case.expected[name]), (case.what, name)


def test_a_manifest_that_is_damaged(tmp_path: Path, whole: dict[bool, tuple[Path, dict[str, Any]]]) -> None:
    """A version that is gone was cleaned up, for all that a reader can know."""
    harmed = set()
    for case in cases(whole, tmp_path, "_versions", lambda data: {**damages(data), "gone": data}):
        for name, read in READERS.items():
            error = given(read, case.uri)
            if isinstance(error, DamagedError):
                check_told(error, case)
                assert case.file.name in str(error), (case.what, name, str(error))
                harmed.add(name)
            else:
                assert error == case.expected[name], (case.what, name)
    assert harmed == READERS.keys()


@pytest.mark.parametrize("kind", ["data", "_deletions", "_versions"])
def test_the_verbs_end_with_the_exit_code_of_damage(
    tmp_path: Path,
    whole: dict[bool, tuple[Path, dict[str, Any]]],
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = set()
    for case in cases(whole, tmp_path, kind, lambda data: {"half": data[: len(data) // 2]}):
        for name, verb in VERBS.items():
            code = cli.run([word.format(case.uri) for word in verb])
            err = capsys.readouterr().err
            seen.add((name, code))
            assert code in {OK, DAMAGED}, (case.what, name, err)
            assert "Traceback" not in err
            assert code == OK or case.file.name in err, (case.what, name, err)
    assert ("changes", DAMAGED) in seen
    assert (("show", DAMAGED) in seen) is (kind == "_versions")


def removed(table: Path) -> None:
    """By pylance, which cleans up all versions but the newest."""
    lance.dataset(str(table)).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


@pytest.fixture
def replaced(tmp_path: Path) -> Path:
    """A table whose version 2 has 40 fragments that version 3 has no more."""
    path = tmp_path / "t"
    lance.write_dataset(rows([]), str(path))
    lance.write_dataset(rows(range(4_000)), str(path), mode="append", max_rows_per_file=100)
    lance.write_dataset(rows([1]), str(path), mode="overwrite")
    return path


def test_a_version_that_is_removed_between_open_and_read(replaced: Path) -> None:
    table = lakefold.open(replaced, version=2)
    other = lakefold.open(replaced, version=2)
    (_, change, *_) = lakefold.tail(replaced, start="earliest")
    feed = lakefold.changes(replaced, 1, 2)
    assert other.to_arrow(limit=1).num_rows == 1
    removed(replaced)
    reads: list[Callable[[], object]] = [
        table.to_arrow,
        lambda: table.to_arrow(filter="id > 10"),
        lambda: table.count_rows("id > 10"),
        lambda: table.take([3]),
        other.to_arrow,
        lambda: list(table.to_reader()),
        change.inserted,
        feed.read_all,
        lambda: lakefold.open(replaced, version=2),
        lambda: list(lakefold.tail(replaced, start=1)),
        lambda: lakefold.changes(replaced, 1, 2).read_all(),
    ]
    for number, read in enumerate(reads):
        with pytest.raises(VersionExpiredError) as expired:
            read()
        assert expired.value.oldest == 3, number
        assert expired.value.hint


@pytest.mark.parametrize(
    "read",
    [
        lambda uri: lakefold.open(uri, version=2).to_reader(),
        lambda uri: list(lakefold.tail(uri, start="earliest"))[1].batches(),
        lambda uri: lakefold.changes(uri, 1, 2),
    ],
    ids=["open", "tail", "changes"],
)
def test_a_version_that_is_removed_between_two_batches(
    replaced: Path, read: Callable[[Path], Iterable[Any]]
) -> None:
    """What was read ahead may still come; the end must not come early."""
    batches = iter(read(replaced))
    seen = next(batches).num_rows
    removed(replaced)
    with contextlib.suppress(VersionExpiredError):
        for batch in batches:
            seen += batch.num_rows
        assert seen == 4_000


@pytest.mark.parametrize("change", [lambda data: data[:-100], lambda data: data * 2, lambda _: b""])
def test_a_file_that_changes_its_size_under_a_reader(
    replaced: Path, change: Callable[[bytes], bytes]
) -> None:
    table = lakefold.open(replaced, version=2)
    (_, tailed, *_) = lakefold.tail(replaced, start="earliest")
    batches = iter(table.to_reader())
    seen = next(batches).num_rows
    for file in (replaced / "data").iterdir():
        file.write_bytes(change(file.read_bytes()))
    with contextlib.suppress(DamagedError):
        seen += sum(batch.num_rows for batch in batches)
        assert seen == 4_000
    for read in (tailed.inserted, lakefold.open(replaced, version=2).to_arrow):
        with contextlib.suppress(DamagedError):
            assert read().num_rows == 4_000
    with pytest.raises(DamagedError, match="its version says"):
        tailed.inserted()


def test_a_place_without_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made(tmp_path / "t", stable=False)
    shutil.rmtree(table / "_versions")
    for name, read in READERS.items():
        with pytest.raises(NotATableError) as raised:
            read(str(table))
        assert str(table) in raised.value.where, name
        assert raised.value.hint, name
    for verb in VERBS.values():
        assert cli.run([word.format(table) for word in verb]) == USAGE
        assert str(table) in capsys.readouterr().err
