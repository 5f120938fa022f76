"""`lakefold explain` shows each conflict of Delta tables, from the table alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakefold import cli
from lakefold_table.delta.conflicts.rules import RULES
from lakefold_table.entry import Committed, Rejected
from tests.delta_logs.actions import LISTED, Members, domain, metadata, protocol_with, remove, txn
from tests.unit.test_delta_format import FIRST_ID, SECOND_ID, Table

if TYPE_CHECKING:
    from pathlib import Path

MORE = protocol_with(*LISTED["protocol"]["writerFeatures"], "vacuumProtocolCheck")
GONE = remove("b.parquet")
CASES: dict[str, tuple[list[Members], list[Members], dict[str, Any], list[str]]] = {
    "protocol changed": ([MORE], [], {}, []),
    "metadata changed": ([metadata(**{"delta.isolationLevel": "Serializable"})], [], {}, []),
    "domain metadata": ([domain("d")], [domain("d", "1")], {}, ["d"]),
    "concurrent transaction": ([txn("x", 1)], [], {"read_app_ids": ["x"]}, ["x"]),
    "concurrent append": ([], [], {"read_whole_table": True}, ["first.parquet"]),
    "concurrent delete, read": ([GONE], [], {"read_files": ["b.parquet"]}, ["b.parquet"]),
    "concurrent delete, delete": ([GONE], [GONE], {}, ["b.parquet"]),
}
"""By the rule: what a MERGE does and what a proposal does then, beside the file that each adds; what that has
read, and what its outcome names."""


def test_each_rule_has_a_case() -> None:
    assert list(CASES) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", CASES)
def test_a_conflict_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    before, then, reads, keys = CASES[name]
    (when,) = (rule.when for rule in RULES if rule.name == name)
    table = Table(tmp_path / "t")
    files = {each: table.file(f"{each}.parquet", 1) for each in ("b", "first", "second", "last")}
    table.fold(table.propose(LISTED, metadata()), log=FIRST_ID)
    table.fold(table.propose(files["b"]), log=SECOND_ID)
    results = table.fold(
        table.propose(files["first"], *before, read=1, operation="MERGE"),
        table.propose(files["second"], *then, read=1, app="job", batch=7, **reads),
        table.propose(files["last"]),
    )
    assert [type(each) for each in results] == [Committed, Rejected, Committed]
    for sought in ("1", "job:7"):
        assert cli.run(["explain", table.uri, sought, "--json"]) == 0
        explained = json.loads(capsys.readouterr().out)
        assert (explained["format"], explained["state"]) == ("delta", "rejected")
        rejected = explained["outcome"]["rejected"]
        assert (rejected["retryable"], rejected["other_version"]) == (True, "2")
        assert (rejected["other_operation"], rejected.get("keys", [])) == ("MERGE", keys)
        assert when in rejected["message"]
    assert cli.run(["explain", table.uri, "1"]) == 0
    words = capsys.readouterr().out
    assert "conflicts with  version 2 (MERGE)" in words
    assert "build it again on the newest version" in words
    assert all(key in words for key in keys)
