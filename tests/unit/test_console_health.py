"""The health of a table in the console's list: each thing that may be wrong, and the command that helps."""

from __future__ import annotations

from typing import Any

import pytest

from lakefold import cli
from lakefold.web.health import MOST_QUEUED, MOST_SMALL, health_of

QUIET: dict[str, Any] = {"refused": 0, "refusal": None}
WELL: dict[str, Any] = {
    "table": "file:///lake/a table",
    "loading": False,
    "parked": [],
    "waiting": MOST_QUEUED,
    "partition_lag": 10**6,
    "small_fragments": MOST_SMALL,
    "consumers": [{"name": "reader", "unread_versions": 5}],
    "activity": QUIET,
}
REFUSAL = {"position": "t/0@7", "branch": "audit"}
BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("bad", {"error": "a file is damaged"}, "a file is damaged", "show 'file:///lake/a table'"),
    ("bad", {"parked": [{"branch": "", "reason": "the store is full"}]}, "the store is full", "status"),
    ("warning", {"waiting": MOST_QUEUED + 1}, "1,001 entries are queued", "status"),
    ("warning", {"waiting": None}, "1,000,000 entries are queued", "status"),
    (
        "warning",
        {"activity": {"refused": 2, "refusal": REFUSAL}},
        "2 refused in the last 10 minutes",
        "explain 'file:///lake/a table' t/0@7 --branch audit",
    ),
    (
        "warning",
        {"small_fragments": MOST_SMALL + 1},
        "201 small fragments",
        "maintain 'file:///lake/a table'",
    ),
    (
        "warning",
        {"consumers": [{"name": "gone", "unread_versions": None}]},
        "consumer gone",
        "consumers 'file:///lake/a table' --drop gone",
    ),
]


def test_a_table_without_findings_is_well() -> None:
    assert health_of(WELL) == {"state": "ok", "findings": []}
    assert (
        health_of(WELL | {"waiting": None, "partition_lag": None, "small_fragments": None})["state"] == "ok"
    )
    assert health_of({"loading": True})["state"] == "loading"


@pytest.mark.parametrize(("state", "change", "words", "command"), BAD)
def test_what_is_wrong_is_said_with_the_command_that_helps(
    state: str, change: dict[str, Any], words: str, command: str
) -> None:
    health = health_of(WELL | change)
    [finding] = health["findings"]
    assert (health["state"], finding["severity"]) == (state, state)
    assert words in finding["text"]
    assert finding["command"] == f"lakefold {command}"
    assert cli.run([command.split(maxsplit=1)[0], "--help"]) == 0


def test_the_worst_finding_gives_the_state() -> None:
    everything: dict[str, Any] = {}
    for _, change, _, _ in BAD:
        everything |= change
    health = health_of(WELL | everything)
    assert health["state"] == "bad"
    assert len(health["findings"]) == 6
