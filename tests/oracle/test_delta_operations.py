"""What delta-spark did to a table, proposed for a copy of it, makes the same version: action by action.

The operations and the logs that they made are data (`tests/delta_logs/operations.py`).
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.commit_head import MARKS_DOMAIN, RESERVED
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from lakefold_table.delta.rows.vectors import Vectors
from lakefold_table.delta.table_features.row_tracking import PRESERVED
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import InvalidError
from tests.delta_logs.actions import snapshot_of
from tests.delta_logs.comparing import check_same, facts, proposable
from tests.delta_logs.operations import CHECKPOINTED, HISTORIES, REFUSED
from tests.delta_logs.recording import recording
from tests.unit.test_delta_format import LOG_ID, Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.actions.table_actions import DomainMetadata
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from tests.delta_logs.recording import Recording

WITHOUT_METRICS = ("CLONE", "CONVERT", "VACUUM START", "VACUUM END", "ROW TRACKING BACKFILL")
"""Operations of delta-spark alone, whose metrics are none, or about other things than the commit's files."""
OTHERWISE = {
    ("vectors", "UPDATE"): {"numRemovedFiles": "0"},
    ("change feed", "UPDATE"): {"numRemovedBytes": "778"},
    ("features", "UPDATE"): {"numRemovedBytes": "1184"},
}
"""What delta-spark counts as removed too: files that only get a deletion vector, bytes of change files."""
VERSIONS = [(name, number) for name in HISTORIES for number in range(len(recording(name).versions))]
VECTORS = [
    (name, number)
    for name, number in VERSIONS
    if any("deletionVector" in file for file in recording(name).added(number))
]


def info_of(log: Recording, version: int) -> dict[str, Any]:
    """The commitInfo of delta-spark's commit."""
    return next(action["commitInfo"] for action in log.versions[version].actions if "commitInfo" in action)


MEASURED = [
    (name, number)
    for name, number in VERSIONS
    if number not in REFUSED.get(name, {})
    and info_of(recording(name), number)["operation"] not in WITHOUT_METRICS
]


def ids(case: object) -> str:
    return str(case)


def copied(log: Recording, before: int, folder: Path) -> Table:
    """A table whose newest version is `before`, with the files that the next one may name."""
    table = Table(folder / "t")
    files = log.commits(before)
    if files:
        files |= {path: data for path, data in log.files.items() if FOLDER not in path}
    for path, content in files.items():
        (table.path / path).parent.mkdir(parents=True, exist_ok=True)
        (table.path / path).write_bytes(content)
    for version in range(before + 1):
        stored_ns = log.versions[version].time_ms * 1_000_000
        os.utime(table.path / commit_path(version), ns=(stored_ns, stored_ns))
    for file in log.added(before + 1):
        named = file_path(file["path"])
        if named.absolute:
            continue
        stored = table.path / named.text
        stored.parent.mkdir(parents=True, exist_ok=True)
        with stored.open("wb") as data:
            data.truncate(file["size"])
    return table


def proposed(log: Recording, version: int, table: Table) -> Envelope:
    """The actions of a version as a writer proposes them at the time when it was committed."""
    made = log.versions[version]
    actions = list(filter(None, map(proposable, made.actions)))
    envelope = table.propose(*actions, read=version - 1 if version else None)
    envelope.proposed_at.FromMilliseconds(made.time_ms)
    return envelope


def rows_of(log: Recording, file: AddFile) -> Bitmap:
    """The rows of the deletion vector of a file."""
    return Vectors(log.files).rows(file.deletion_vector, file.path)


def configured(domain: DomainMetadata) -> tuple[bool, dict[str, Any]]:
    """A domain as it counts: delta-spark writes the name of row tracking's into its configuration as well."""
    content = json.loads(domain.configuration)
    content.pop("domainName", None)
    return domain.removed, content


def files_with(table: Table, log: Recording, version: int) -> dict[str, bytes]:
    """The commits before a version, and that of the version if a committer has made it."""
    path = table.path / commit_path(version)
    made = {commit_path(version): path.read_bytes()} if path.exists() else {}
    return log.commits(version - 1) | made


def state(snapshot: DeltaSnapshot) -> dict[str, Any]:
    """The parts of a state, without what a committer records for itself."""
    apps = {name: app for name, app in snapshot.apps.items() if not name.startswith(RESERVED)}
    return {
        "protocol": snapshot.protocol,
        "metadata": snapshot.metadata,
        "files": dict(snapshot.files),
        "tombstones": dict(snapshot.tombstones),
        "apps": {name: app.version for name, app in apps.items()},
        "domains": {
            name: configured(domain) for name, domain in snapshot.domains.items() if name != MARKS_DOMAIN
        },
        "bytes": snapshot.size_bytes,
        "in-commit time": snapshot.in_commit_ms,
    }


def dated(log: Recording, version: int) -> DeltaSnapshot:
    """A version of delta-spark's, whose own removals have the time at which the log has the proposal."""
    made, before = log.snapshot(version), log.snapshot(version - 1).tombstones if version else {}
    at = log.versions[version].time_ms
    tombstones = {
        key: file if before.get(key) == file else replace(file, deleted_ms=max(at, file.deleted_ms or 0))
        for key, file in made.tombstones.items()
    }
    return replace(made, tombstones=tombstones)


def check_folded(table: Table, envelope: Envelope, log: Recording, name: str, version: int) -> None:
    """Folds a proposal, and asserts that the table is as delta-spark's, or unchanged if it is refused."""
    refused = REFUSED.get(name, {}).get(version)
    try:
        (result,) = table.fold(envelope, log=LOG_ID)
    except InvalidError as error:
        # Nothing is folded into a table that has such a feature.
        result = Invalid(error.reason, error.hint)
    if refused is not None:
        assert isinstance(result, Invalid), result
        assert refused.message in result.message
        if version:
            # It was answered by a version that changes nothing but the time.
            states = [snapshot_of(files_with(table, log, version)), log.snapshot(version - 1)]
            before, after = (state(each) | {"in-commit time": None} for each in states)
            assert before == after
        return
    assert isinstance(result, Committed), result
    assert state(snapshot_of(files_with(table, log, version))) == state(dated(log, version))
    made = [json.loads(line) for line in (table.path / commit_path(version)).read_text().splitlines()]
    ours, theirs = (
        next(action["commitInfo"].get("tags", {}) for action in actions if "commitInfo" in action)
        for actions in (made, log.versions[version].actions)
    )
    if PRESERVED in theirs:
        assert ours == {PRESERVED: theirs[PRESERVED]}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_recorded_log_is_read_as_delta_spark_reads_it(name: str) -> None:
    log = recording(name)
    newest = len(log.versions) - 1
    assert {version.statement for version in log.versions} <= {*HISTORIES[name]}
    check_same(log.snapshot(newest), log.state, log.versions[-1].time_ms)


@pytest.mark.parametrize(("name", "version"), VERSIONS, ids=ids)
def test_an_operation_that_is_proposed_makes_the_same_version(
    tmp_path: Path, name: str, version: int
) -> None:
    log = recording(name)
    table = copied(log, version - 1, tmp_path)
    check_folded(table, proposed(log, version, table), log, name, version)


@pytest.mark.parametrize(("name", "version"), MEASURED, ids=ids)
def test_metrics_of_an_operation_are_those_of_delta_spark(tmp_path: Path, name: str, version: int) -> None:
    log = recording(name)
    table = copied(log, version - 1, tmp_path)
    envelope = proposed(log, version, table)
    theirs = info_of(log, version)
    envelope.delta.operation = theirs["operation"]
    (result,) = table.fold(envelope, log=LOG_ID)
    assert isinstance(result, Committed), result
    head, *_ = (table.path / commit_path(version)).read_text().splitlines()
    ours = json.loads(head)["commitInfo"]["operationMetrics"]
    expected = theirs["operationMetrics"] | OTHERWISE.get((name, theirs["operation"]), {})
    assert ours == {metric: expected.get(metric) for metric in ours}
    assert ours or not theirs["operationMetrics"]


@pytest.mark.parametrize(("name", "version"), VECTORS, ids=ids)
def test_rows_that_are_named_make_the_same_deletion_vectors(tmp_path: Path, name: str, version: int) -> None:
    log = recording(name)
    table = copied(log, version - 1, tmp_path)
    envelope = proposed(log, version, table)
    before = log.snapshot(version - 1).files
    for path, after in log.snapshot(version).files.items():
        if path in before and before[path].key != after.key:
            rows = rows_of(log, after) - rows_of(log, before[path])
            envelope.delta.affected_rows[path] = encode_treemap({0: rows})
    check_folded(table, envelope, log, name, version)


@pytest.mark.parametrize("name", CHECKPOINTED)
def test_each_checkpoint_of_delta_spark_has_the_state_of_its_commits(name: str) -> None:
    log = recording(name)
    for version, files in log.checkpoints().items():
        read, expected = snapshot_of(files, version), log.snapshot(version)
        assert {path: facts(members_of(file)) for path, file in read.files.items()} == {
            path: facts(members_of(file)) for path, file in expected.files.items()
        }
        assert read.tombstones.keys() == expected.tombstones.keys()
        assert dict(read.apps) == dict(expected.apps)
        assert dict(read.live_domains) == dict(expected.live_domains)
        assert (read.protocol, read.metadata) == (expected.protocol, expected.metadata)
    assert len(log.checkpoints()) > 1


@pytest.mark.parametrize("name", CHECKPOINTED)
def test_a_proposal_is_folded_on_a_checkpoint_whose_commits_are_gone(tmp_path: Path, name: str) -> None:
    log = recording(name)
    newest = len(log.versions) - 1
    table = copied(log, newest - 1, tmp_path)
    for path, content in log.files.items():
        (table.path / path).parent.mkdir(parents=True, exist_ok=True)
        (table.path / path).write_bytes(content)
    for version in range(newest - 1):
        (table.path / commit_path(version)).unlink()
    check_folded(table, proposed(log, newest, table), log, name, newest)
