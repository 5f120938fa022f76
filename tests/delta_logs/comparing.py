"""Compares our view of a Delta table with that of delta-spark, action by action."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.table_features.row_tracking import DOMAIN, PRESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from tests.delta_logs.actions import Members

BY_COMMITTERS = ("baseRowId", "defaultRowCommitVersion")
"""The members of files that a committer gives them."""


def facts(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a file that two clients must agree on, in one form."""
    shared = {
        name: value for name, value in members.items() if name != "dataChange" and value not in (None, {})
    }
    if "stats" in shared:
        shared["stats"] = json.loads(shared["stats"])
    return shared


def check_same(
    ours: DeltaSnapshot, theirs: Mapping[str, Sequence[Mapping[str, Any]]], now_ms: int | None = None
) -> None:
    """Asserts that two clients see one state. `now_ms`: when delta-spark gave it, now if it is None."""
    assert {path: facts(members_of(file)) for path, file in ours.files.items()} == {
        each["path"]: facts(each) for each in theirs.get("add", ())
    }
    assert {path for path, _ in ours.tombstones_at(now_ms or time.time_ns() // 1_000_000)} == {
        each["path"] for each in theirs.get("remove", ())
    }
    (protocol,), (table,) = theirs["protocol"], theirs["metaData"]
    assert (ours.protocol.reader, ours.protocol.writer) == (
        protocol["minReaderVersion"],
        protocol["minWriterVersion"],
    )
    for name in ("readerFeatures", "writerFeatures"):
        assert sorted(members_of(ours.protocol).get(name, ())) == sorted(protocol.get(name, ()))
    assert (ours.metadata.id, list(ours.metadata.partition_columns)) == (
        table["id"],
        table["partitionColumns"],
    )
    assert json.loads(ours.metadata.schema_text) == json.loads(table["schemaString"])
    assert dict(ours.metadata.configuration) == table["configuration"]
    assert {name: app.version for name, app in ours.apps.items()} == {
        each["appId"]: each["version"] for each in theirs.get("txn", ())
    }
    assert {name: json.loads(each.configuration) for name, each in ours.live_domains.items()} == {
        each["domain"]: json.loads(each["configuration"])
        for each in theirs.get("domainMetadata", ())
        if not each["removed"]
    }


def proposable(action: Members) -> Members | None:
    """The action of a commit as a writer proposes it. None: a committer adds it."""
    ((name, members),) = action.items()
    if name == "commitInfo" and PRESERVED in members.get("tags", ()):
        return {name: {"tags": members["tags"]}}
    if name == "commitInfo" or (name == "domainMetadata" and members["domain"] == DOMAIN):
        return None
    return {name: {key: value for key, value in members.items() if key not in BY_COMMITTERS}}
