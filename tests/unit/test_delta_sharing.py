"""Which proposals may share a commit of a Delta table: no two of its actions may be about the same thing."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold
from lakefold_reader.format.changes import RewrittenError
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed, Duplicate
from tests.delta_logs.actions import VECTORS, Members, data_file, domain, metadata, protocol_with, remove, txn
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import Rows, log_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

    Proposal = Callable[[Rows], Envelope]
IDENTITIES = {
    "add": ("path", "deletionVector"),
    "remove": ("path", "deletionVector"),
    "cdc": ("path",),
    "txn": ("appId",),
    "domainMetadata": ("domain",),
}
"""The members that say what an action is about; protocol, metaData and commitInfo are about the table."""


def append(name: str, *more: Members) -> Proposal:
    return lambda rows: rows.table.propose(rows.file(f"{name}.parquet", [1]), *more)


def removal(number: int) -> Proposal:
    return lambda rows: rows.table.propose(remove(f"{number}.parquet"), read=1)


def again(number: int) -> Proposal:
    """Adds a file that was removed before."""
    return lambda rows: rows.table.propose(rows.added(f"{number}.parquet", []), operation="RESTORE")


def deletion(number: int, *deleted: int) -> Proposal:
    return lambda rows: rows.delete(number, list(deleted), read=1)


def with_changes(name: str) -> Proposal:
    def proposal(rows: Rows) -> Envelope:
        change = data_file(rows.table.path, f"_change_data/{name}.parquet", 1)["add"]
        members = {"path": change["path"], "partitionValues": {}, "size": change["size"], "dataChange": False}
        return rows.table.propose(rows.file(f"{name}.parquet", [1]), {"cdc": members})

    return proposal


def setting(*actions: Members) -> Proposal:
    return lambda rows: rows.table.propose(*actions, read=1)


def replacement(operation: str, **parameters: str) -> Proposal:
    """Replaces file 0 by another one, as an operation of the whole table."""

    def proposal(rows: Rows) -> Envelope:
        actions = (remove("0.parquet"), rows.file("replaced.parquet", [7]))
        envelope = rows.table.propose(*actions, read=1, operation=operation)
        envelope.delta.operation_parameters.update(parameters)
        return envelope

    return proposal


def listed(*features: str) -> Members:
    both = ("v2Checkpoint", "deletionVectors")
    return protocol_with(*both, "domainMetadata", "changeDataFeed", *features)


PROTOCOL = listed("appendOnly")
FEED = {"delta.enableChangeDataFeed": "true"}
TEXT: Members = {"commitInfo": {"userMetadata": "x"}}
NOTE, OTHER = metadata(note="1", **VECTORS, **FEED), metadata(other="1", **VECTORS, **FEED)
SHARED: dict[str, tuple[Proposal, Proposal]] = {
    "two appends": (append("a"), append("b")),
    "an append and a removal": (append("a"), removal(0)),
    "two removals": (removal(0), removal(1)),
    "two applications": (append("a", txn("x", 1)), append("b", txn("y", 1))),
    "one application twice": (append("a", txn("x", 1)), append("b", txn("x", 2))),
    "rows of one file": (deletion(0, 1), deletion(0, 2)),
    "rows of one file and another file": (deletion(0, 1), removal(1)),
    "changed rows of two": (with_changes("a"), with_changes("b")),
    "rows that are replaced": (append("a"), replacement("WRITE", mode="Overwrite", predicate="x = 1")),
}
REPLACING: dict[str, Proposal] = {
    "overwrite": replacement("WRITE", mode="Overwrite"),
    "overwrite in small letters": replacement("CREATE TABLE AS SELECT", mode="overwrite", predicate=""),
    "restore": replacement("RESTORE", version="1"),
    "restore to a time": replacement("RESTORE", timestamp="2026-01-01"),
    **{
        name: replacement(name)
        for name in (
            "REPLACE TABLE",
            "REPLACE TABLE AS SELECT",
            "CREATE OR REPLACE TABLE",
            "CREATE OR REPLACE TABLE AS SELECT",
        )
    },
}
APART: dict[str, tuple[Proposal, Proposal]] = {
    "metadata after an append": (
        append("a"),
        setting(NOTE),
    ),
    "an append after metadata": (
        setting(NOTE),
        append("a"),
    ),
    "two metadata": (
        setting(NOTE),
        setting(OTHER),
    ),
    "a protocol after an append": (append("a"), setting(PROTOCOL)),
    "an append after a protocol": (setting(PROTOCOL), append("a")),
    "a domain after an append": (append("a"), setting(domain("d"))),
    "a user's text after an append": (append("a"), append("b", TEXT)),
    "an append after a user's text": (append("a", TEXT), append("b")),
    "two domains": (setting(domain("d")), setting(domain("e"))),
    "changed rows after an append": (append("a"), with_changes("b")),
    "an append after changed rows": (with_changes("a"), append("b")),
    "a file that comes back": (removal(0), again(0)),
    **{f"{name} after an append": (append("a"), each) for name, each in REPLACING.items()},
    **{f"an append after {name}": (each, append("a")) for name, each in REPLACING.items()},
}


def check_commits(rows: Rows) -> None:
    """Asserts that no two actions of a commit are about one thing, or add and remove one logical file."""
    for version in range(len(list(rows.table.path.glob("_delta_log/*.json")))):
        lines = (rows.table.path / commit_path(version)).read_text().splitlines()
        actions = [item for line in lines for item in json.loads(line).items()]
        about = Counter(
            (name, json.dumps([members.get(member) for member in IDENTITIES.get(name, ())]))
            for name, members in actions
        )
        assert [key for key, number in about.items() if number > 1] == []
        added, removed = ({key for name, key in about if name == kind} for kind in ("add", "remove"))
        assert not added & removed


@pytest.mark.parametrize("name", [*SHARED, *APART])
def test_proposals_share_a_commit_only_if_nothing_in_it_contradicts(tmp_path: Path, name: str) -> None:
    rows = Rows(tmp_path / "t", 0, 1, protocol=listed(), more=FEED)
    first, second = (proposal(rows) for proposal in (SHARED | APART)[name])
    outcomes = rows.table.fold(first, second, log=log_id(50))
    assert all(isinstance(each, Committed) for each in outcomes), outcomes
    versions = [each.version for each in outcomes if isinstance(each, Committed)]
    assert versions == ([2, 2] if name in SHARED else [2, 3])
    check_commits(rows)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", REPLACING)
def test_readers_see_what_was_replaced_beside_an_append(tmp_path: Path, name: str, *, is_first: bool) -> None:
    rows = Rows(tmp_path / "t", 0, 1, protocol=listed(), more=FEED)
    pair = [REPLACING[name](rows), append("a")(rows)]
    outcomes = rows.table.fold(*(pair if is_first else reversed(pair)), log=log_id(50))
    assert all(isinstance(each, Committed) for each in outcomes), outcomes
    with pytest.raises(RewrittenError) as raised:
        lakefold.changes(rows.table.path, 1, 3, rewritten="fail").read_all()
    assert raised.value.version == (2 if is_first else 3)
    feed = pa.table(lakefold.changes(rows.table.path, 1, 3, rewritten="skip").read_all())
    assert list(zip(feed["x"].to_pylist(), feed["_change_type"].to_pylist(), strict=True)) == [(1, "insert")]


@pytest.mark.parametrize("restore_is_first", [True, False])
def test_a_restore_beside_an_append_says_which_batches_it_took_back(
    tmp_path: Path, *, restore_is_first: bool
) -> None:
    table = Table(tmp_path / "t")
    table.begin(**{"delta.isolationLevel": "WriteSerializable"})
    sent = table.propose(table.file("1.parquet", 1), app="job", batch=1)
    table.fold(sent, log=log_id(1))
    restore = table.propose(remove("1.parquet"), read=1, operation="RESTORE", read_whole_table=True)
    restore.delta.operation_parameters["version"] = "0"
    pair = [restore, table.propose(table.file("2.parquet", 2), app="job", batch=2)]
    table.fold(*(pair if restore_is_first else reversed(pair)), log=log_id(2))
    by = 2 if restore_is_first else 3
    assert table.fold(sent, log=log_id(3)) == [Duplicate(1, rolled_back_by=by)]
    assert table.rows() == [2]
