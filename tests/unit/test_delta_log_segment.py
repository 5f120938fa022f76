"""Which files of `_delta_log` make a version: the names of Delta's specification, and what may be missing."""

from __future__ import annotations

import json

import pytest

from lakefold_table.delta.log_segment.last_checkpoint import canonical_form, checkpoint_hint, checksum_of
from lakefold_table.delta.log_segment.names import LogFileKind, commit_path, log_file
from lakefold_table.delta.log_segment.segment import LogSegment, newest_version, segment_of
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, VersionExpiredError
from tests.delta_logs.actions import UUID


def commit(version: int) -> str:
    return f"{version:020}.json"


def classic(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def part(version: int, number: int, parts: int) -> str:
    return f"{version:020}.checkpoint.{number:010}.{parts:010}.parquet"


def compacted(start: int, end: int) -> str:
    return f"{start:020}.{end:020}.compacted.json"


def shape(segment: LogSegment) -> list[str]:
    return [file.name for file in (*segment.checkpoint, *segment.commits)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (commit(10), LogFileKind.COMMIT),
        (f"{10:020}.crc", LogFileKind.CHECKSUM),
        (classic(10), LogFileKind.CLASSIC),
        (part(10, 1, 3), LogFileKind.PART),
        (f"{10:020}.checkpoint.{UUID}.json", LogFileKind.V2),
        (f"{10:020}.checkpoint.{UUID}.parquet", LogFileKind.V2),
        (compacted(4, 6), LogFileKind.COMPACTED),
    ],
)
def test_names_of_the_specification(name: str, kind: LogFileKind) -> None:
    file = log_file(name)
    assert file is not None
    assert (file.kind, file.name, file.path) == (kind, name, f"_delta_log/{name}")
    assert file.version == (4 if kind is LogFileKind.COMPACTED else 10)


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        "10.json",
        f"{10:020}.json.tmp",
        f".{10:020}.json.crc",
        f"{10:020}.{UUID}.json",
        f"{10:020}.checkpoint.x.parquet",
        part(10, 0, 3),
        part(10, 4, 3),
        compacted(6, 4),
        f"{2**63:020}.json",
    ],
)
def test_other_names_are_not_of_the_log(name: str) -> None:
    assert log_file(name) is None


def test_a_log_without_a_checkpoint_is_read_from_its_beginning() -> None:
    segment = segment_of(map(commit, range(3)))
    assert (segment.version, shape(segment)) == (2, [commit(0), commit(1), commit(2)])
    assert segment.checkpoint == ()
    assert shape(segment_of(map(commit, range(3)), 1)) == [commit(0), commit(1)]


def test_the_newest_checkpoint_that_is_not_after_the_version_is_read() -> None:
    names = [*map(commit, range(8)), classic(2), classic(6), f"{4:020}.crc", "_last_checkpoint"]
    assert shape(segment_of(names)) == [classic(6), commit(7)]
    segment = segment_of(names, 4)
    assert shape(segment) == [classic(2), commit(3), commit(4)]
    assert segment.checksum == log_file(f"{4:020}.crc")
    assert segment_of(names, 5).checksum is None


def test_the_commits_before_a_checkpoint_may_be_gone() -> None:
    assert shape(segment_of([classic(6), commit(6), commit(7)])) == [classic(6), commit(7)]
    assert shape(segment_of([classic(6)])) == [classic(6)]


def test_a_checkpoint_with_missing_parts_is_passed_over() -> None:
    names = [
        *map(commit, range(4)),
        part(2, 1, 3),
        part(2, 3, 3),
        part(2, 1, 2),
        part(2, 2, 2),
        part(3, 1, 2),
    ]
    assert shape(segment_of(names)) == [part(2, 1, 2), part(2, 2, 2), commit(3)]


def test_of_several_checkpoints_of_a_version_each_reader_takes_the_same() -> None:
    v2 = f"{2:020}.checkpoint.{UUID}.json"
    names = [*map(commit, range(4)), part(2, 1, 1), classic(2), v2]
    assert shape(segment_of(names)) == [v2, commit(3)]
    assert shape(segment_of(reversed(names[:-1]))) == [classic(2), commit(3)]


def test_compacted_commits_replace_those_that_they_cover() -> None:
    names = [*map(commit, range(9)), compacted(1, 2), compacted(1, 4), compacted(4, 7), compacted(5, 7)]
    assert shape(segment_of(names)) == [commit(0), compacted(1, 4), compacted(5, 7), commit(8)]
    assert shape(segment_of(names, 6)) == [commit(0), compacted(1, 4), commit(5), commit(6)]


def test_a_gap_is_named() -> None:
    with pytest.raises(DamagedError) as caught:
        segment_of([commit(0), commit(1), commit(3)], where="s3://b/t")
    assert commit_path(2) in caught.value.message
    assert "continues with version 3" in caught.value.message
    assert caught.value.where == "s3://b/t"
    with pytest.raises(DamagedError, match="gap"):
        segment_of([commit(1)])


def test_a_version_before_the_log_has_expired() -> None:
    with pytest.raises(VersionExpiredError) as caught:
        segment_of([classic(6), commit(5), commit(6), commit(7)], 5)
    assert caught.value.oldest == 6


def test_a_version_that_does_not_exist() -> None:
    with pytest.raises(InvalidError, match="version 9 does not exist; the newest is 1"):
        segment_of([commit(0), commit(1)], 9)
    with pytest.raises(NotATableError, match="no version"):
        segment_of(["_last_checkpoint", part(3, 1, 2)])
    assert newest_version([]) is None


SAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", '
    '"k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)


def test_the_checksum_of_the_specification() -> None:
    assert canonical_form(json.loads(SAMPLE)) == (
        '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,'
        '"k1"+"k3"+2+"k4"="v4","k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
    )
    assert checksum_of(json.loads(SAMPLE)) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_the_hint_is_read() -> None:
    document = {"version": 7, "size": 3, "parts": 2}
    hint = checkpoint_hint(json.dumps(document).encode())
    assert hint is not None
    assert (hint.version, hint.size, hint.parts) == (7, 3, 2)
    stored = {**document, "checksum": checksum_of(document)}
    assert checkpoint_hint(json.dumps(stored).encode()) == hint


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"version":7,"size":',
        b"[]",
        b"\xff",
        b'{"version":"7","size":1}',
        b'{"version":-1,"size":1}',
        b'{"version":7,"size":1,"parts":"2"}',
        b'{"version":7,"version":8,"size":1}',
        b'{"version":7,"size":1,"checksum":"0"}',
        b"[" * 100_000,
        b" " * (2 << 20) + b'{"version":7,"size":1}',
    ],
)
def test_a_hint_that_is_not_sound_decides_nothing(data: bytes) -> None:
    assert checkpoint_hint(data) is None
