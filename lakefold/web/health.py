"""What an operator looks at first: whether a table is well, what is wrong, and the command that helps.

A finding is made of what the list of tables shows of a table in any case, so it costs no request.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from lakefold.web.activity import REFUSED_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST_QUEUED: Final = 1_000
"""If more entries than these are queued for a table, its committer is behind."""
MOST_SMALL: Final = 200
"""If a table has more small fragments, no maintainer compacts it, or one does too seldom."""


class Severity(StrEnum):
    """How urgent a finding is; the first is the worst."""

    BAD = "bad"
    WARNING = "warning"


Finding = dict[str, str]
"""The `severity`, what is wrong (`text`), and the `command` that helps."""


def health_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the health of a table of the list: its `state` (ok, warning or bad), and the findings.

    The state of a table that isn't read yet is "loading".
    """
    if row.get("loading"):
        return {"state": "loading", "findings": []}
    findings = [finding for find in _FINDERS for finding in find(row)]
    worst = [each for each in Severity if any(finding["severity"] == each for finding in findings)]
    return {"state": worst[0] if worst else "ok", "findings": findings}


def _finding(severity: Severity, text: str, *command: str) -> Finding:
    return {"severity": severity, "text": text, "command": shlex.join(["lakefold", *command])}


def _unreadable(row: Mapping[str, Any]) -> Iterator[Finding]:
    if row.get("error"):
        yield _finding(Severity.BAD, f"it can't be read: {row['error']}", "show", row["table"])


def _parked(row: Mapping[str, Any]) -> Iterator[Finding]:
    for each in row["parked"]:
        branch = f" (branch {each['branch']})" if each["branch"] else ""
        yield _finding(Severity.BAD, f"parked{branch}: {each['reason']}", "status")


def _behind(row: Mapping[str, Any]) -> Iterator[Finding]:
    queued = row["partition_lag"] if row["waiting"] is None else row["waiting"]
    if queued is not None and queued > MOST_QUEUED:
        yield _finding(Severity.WARNING, f"behind: {queued:,} entries are queued", "status")


def _refused(row: Mapping[str, Any]) -> Iterator[Finding]:
    refused, refusal = row["activity"]["refused"], row["activity"]["refusal"]
    if refused:
        branch = ("--branch", refusal["branch"]) if refusal["branch"] else ()
        text = f"{refused:,} refused in the last {REFUSED_S // 60} minutes"
        yield _finding(Severity.WARNING, text, "explain", row["table"], refusal["position"], *branch)


def _small_fragments(row: Mapping[str, Any]) -> Iterator[Finding]:
    small = row.get("small_fragments")
    if small is not None and small > MOST_SMALL:
        text = f"{small:,} small fragments: no maintainer compacts it"
        yield _finding(Severity.WARNING, text, "maintain", row["table"])


def _lost_branches(row: Mapping[str, Any]) -> Iterator[Finding]:
    for each in row.get("consumers", ()):
        if each["unread_versions"] is None:
            text = f"the branch of consumer {each['name']} is gone"
            yield _finding(Severity.WARNING, text, "consumers", row["table"], "--drop", each["name"])


_FINDERS: Final[tuple[Callable[[Mapping[str, Any]], Iterator[Finding]], ...]] = (
    _unreadable,
    _parked,
    _behind,
    _refused,
    _small_fragments,
    _lost_branches,
)
"""What is looked for, the worst first."""
