"""A version that is made from the one before and a commit is the version that the whole log makes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_table.delta import state as state_module
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.commit_head import MARKS_APP, MARKS_DOMAIN
from lakefold_table.delta.log_segment.names import LISTING, checksum_path, commit_path
from lakefold_table.delta.state import HISTORY, MOST_FOLLOWED, DeltaState, decode_state
from lakefold_table.errors import DamagedError
from tests.delta_logs.actions import LISTED, PROTOCOL, Members, add, domain, metadata, remove, text, txn
from tests.delta_logs.recording import RECORDED, recording
from tests.unit.test_delta_format import FIRST_ID, SECOND_ID, THIRD_ID, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lakefold_table.delta.actions.table_actions import Action

HISTORIES = sorted(path.stem.replace("_", " ") for path in RECORDED.glob("*.jsonl"))
ADDED = [PROTOCOL, metadata(), add("a"), add("b")]


def decoded(
    files: Mapping[str, bytes], version: int, like: DeltaState | None = None, read: list[str] | None = None
) -> DeltaState:
    """A version of a log in memory. `read`: gets the paths that were asked for."""
    path = commit_path(version)
    contents: dict[str, bytes | None] = {}
    while True:
        state = decode_state(path, files[path], "", contents, like)
        missing = [each for each in state.missing_files if each not in contents]
        if not missing:
            return state
        names = "\n".join(each.removeprefix(LISTING) for each in files).encode()
        contents |= {each: names if each == LISTING else files.get(each) for each in missing}
        if read is not None:
            read += missing


def plain(state: DeltaState) -> DeltaState:
    """The state in a form that compares by content."""
    snapshot = state.snapshot
    assert snapshot is not None
    snapshot = replace(
        snapshot,
        files=dict(snapshot.files),
        tombstones=dict(snapshot.tombstones),
        apps=dict(snapshot.apps),
        domains=dict(snapshot.domains),
    )
    return replace(state, snapshot=snapshot, marks=dict(state.marks))


def check_followed(files: Mapping[str, bytes], newest: int, step: int = 1) -> None:
    """Compares each version from the one before with the same version from the whole log."""
    before: DeltaState | None = None
    for version in range(0, newest + 1, step):
        read: list[str] = []
        followed = decoded(files, version, before, read)
        whole = decoded(files, version)
        assert plain(followed) == plain(whole)
        if before is not None:
            since = [commit_path(number) for number in range(before.version, version)]
            assert read[: len(since) + 1] == [*since, checksum_path(version)]
        before = followed


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("step", [1, 3])
def test_it_is_the_same_for_what_delta_spark_did(history: str, step: int) -> None:
    recorded = recording(history)
    newest = len(recorded.versions) - 1
    check_followed(recorded.commits(newest), newest, step)


@pytest.mark.parametrize("protocol", [PROTOCOL, LISTED], ids=["marks in commitInfo", "marks in a domain"])
def test_it_is_the_same_for_committers_beside_other_clients(tmp_path: Path, protocol: Members) -> None:
    table = Table(tmp_path / "t")
    log = table.path / "_delta_log"
    table.fold(table.propose(protocol, metadata()), log=FIRST_ID)
    for number, id_ in ((1, SECOND_ID), (3, THIRD_ID)):
        theirs = [add(f"{number}"), *([remove("1")] if number > 1 else [])]
        (table.path / commit_path(number)).write_bytes(text([{"commitInfo": {"timestamp": number}}, *theirs]))
        table.fold(table.propose(table.file(f"{number}.parquet", number)), log=id_)
    (table.path / commit_path(5)).write_bytes(text([metadata(a="b"), remove("3.parquet")]))
    files = {f"_delta_log/{each.name}": each.read_bytes() for each in log.iterdir()}
    check_followed(files, 5)
    check_followed(files, 5, 2)
    assert decoded(files, 5).marks


def files_of(*versions: Sequence[Members]) -> dict[str, bytes]:
    return {commit_path(number): text(actions) for number, actions in enumerate(versions)}


def test_it_is_not_made_from_a_version_of_a_table_that_was_made_anew() -> None:
    before = decoded(files_of(ADDED), 0)
    anew = files_of([PROTOCOL, metadata(), add("other")], [add("c")])
    followed = decoded(anew, 1, before)
    assert followed.snapshot is not None
    assert set(followed.snapshot.files) == {"other", "c"}
    same = decoded(files_of([PROTOCOL, metadata(), add("other")]), 0, before)
    assert same.snapshot is not None
    assert set(same.snapshot.files) == {"other"}


def test_it_is_not_made_from_a_version_whose_commit_is_gone() -> None:
    files = files_of(ADDED, [add("c")], [add("d")])
    before = decoded(files, 1)
    listed = {path: data for path, data in files.items() if path != commit_path(1)}
    assert decoded(listed, 2, before).snapshot is None


@pytest.mark.parametrize(
    "action",
    [txn(MARKS_APP, 0), domain(MARKS_DOMAIN, '{"a":"b"}'), domain(MARKS_DOMAIN, removed=True), LISTED],
)
def test_the_whole_log_is_read_if_others_may_have_changed_the_marks(action: Members) -> None:
    files = files_of([LISTED, metadata(), domain(MARKS_DOMAIN, '{"c":"d"}')], [action, remove("a")])
    read: list[str] = []
    before = decoded(files, 0)
    assert plain(decoded(files, 1, before, read)) == plain(decoded(files, 1))
    assert "_delta_log/_last_checkpoint" in read


def test_a_checksum_file_that_says_otherwise_is_noticed() -> None:
    files = files_of(ADDED, [add("c")])
    wrong = {"tableSizeBytes": 30, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    said = {**wrong, "metadata": metadata()["metaData"], "protocol": PROTOCOL["protocol"]}
    files[checksum_path(1)] = json.dumps(said).encode()
    with pytest.raises(DamagedError, match="3 files instead of 2"):
        decoded(files, 1, decoded(files, 0))


def test_versions_far_apart_are_not_made_from_each_other() -> None:
    """A checkpoint may be nearer. Of a long history only the last versions are kept."""
    files = files_of(ADDED, *([add(f"f{number}")] for number in range(HISTORY + 10)))
    newest = HISTORY + 10
    read: list[str] = []
    first = decoded(files, newest - MOST_FOLLOWED)
    assert plain(decoded(files, newest, first, read)) == plain(decoded(files, newest))
    assert len(read) == MOST_FOLLOWED + 1
    assert len(decoded(files, newest, first).history) == HISTORY
    decoded(files, newest, decoded(files, newest - MOST_FOLLOWED - 1), read)
    assert "_delta_log/_last_checkpoint" in read


def test_the_commit_of_a_version_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may add hundreds of thousands of files."""
    files = files_of(ADDED, [add("c")])
    parsed: list[str] = []

    def parse(data: bytes, where: str = "") -> Iterator[Action]:
        parsed.append(where)
        return parse_actions(data, where)

    monkeypatch.setattr(state_module, "parse_actions", parse)
    for version in (0, 1):
        parsed.clear()
        decoded(files, version)
        assert parsed.count(f"/{commit_path(version)}") == 1
