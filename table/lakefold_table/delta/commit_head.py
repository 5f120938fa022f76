"""What a committer writes into the commitInfo of a Delta commit: its marks, and what the version did.

commitInfo is the first line of a commit, and may hold anything. Ours begins with the number of bytes of the
line, so that a reader knows how much of the file it needs. Other clients ignore what is in it and don't carry
it on; so a version of theirs has the marks of the last version of a committer before it. That version is
named by a `txn` action, which every client keeps (Delta fact 7.1).

If the table has the feature domainMetadata, the marks are the configuration of a domain instead, which every
client carries on (decision 0097).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from lakefold_table.delta.actions.lines import DIGITS, LENGTH, PREFIX, head_length
from lakefold_table.delta.actions.table_actions import (
    MOST_BATCH,
    Action,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
)
from lakefold_table.delta.json_text import is_whole, parse_object, to_json
from lakefold_table.errors import DamagedError
from lakefold_table.format import CommitMetadata
from lakefold_table.marks.record import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.proposal import DeltaTableProposal
    from lakefold_table.entry import Entry
    from lakefold_table.marks.batches import AppMark
    from lakefold_table.position import LogId

MEMBER: Final = "lakefold"
RESERVED: Final = "lakefold:"
"""App ids in `txn` actions that begin with this are the committer's own."""
MARKS_APP: Final = f"{RESERVED}marks"
"""The app id whose version is the last version that a committer made."""
RESERVED_DOMAINS: Final = "lakefold."
"""Domains whose names begin with this are the committer's own."""
MARKS_DOMAIN: Final = f"{RESERVED_DOMAINS}marks"
"""The domain whose configuration is the marks."""
NO_BATCH: Final = -1
"""The number in the `txn` action of an app that was forgotten: none of its batches counts as written."""
DOMAINS: Final = "domainMetadata"
"""The feature of tables that have domains."""


def log_app(log: LogId) -> str:
    """Returns the app id under which the table's last folded offset of a log is recorded."""
    return f"{RESERVED}log:{log.cluster_id}:{log.topic_id}:{log.partition}"


def batch_of_others(app: AppTransaction, mark: AppMark | None) -> int | None:
    """Returns the last batch of an app that another client recorded, None if the action is a committer's own.

    `mark`: which batches of the app committers have folded. Its clients pass over all batches up to that one.
    """
    is_own = mark is not None and bool(mark.folded) and mark.folded[-1][1] >= app.version
    return None if is_own else app.version


def batch_actions(
    accepted: Iterable[tuple[Entry, DeltaTableProposal]], stored: Mapping[str, AppTransaction], time_ms: int
) -> dict[str, AppTransaction]:
    """Returns the `txn` action of each app of the proposals that share a version.

    Its number is not below what the table has `stored`: batches may come late.
    """
    apps: dict[str, AppTransaction] = {}
    for entry, proposal in accepted:
        apps.update({app.app_id: app for app in proposal.apps})
        app, batch = entry.app_id, entry.batch_id
        if app and batch is not None and batch <= MOST_BATCH:
            highest = batch if app not in apps else max(batch, apps[app].version)
            apps[app] = AppTransaction(app, highest, time_ms)
    return {
        app: replace(action, version=max(stored[app].version, action.version)) if app in stored else action
        for app, action in apps.items()
    }


def marks_domain(marks: Mapping[str, str]) -> DomainMetadata:
    """Returns the action that records the marks of a version."""
    return DomainMetadata(MARKS_DOMAIN, to_json(dict(marks)))


def marks_in(domain: DomainMetadata | None) -> Mapping[str, str]:
    """Returns the marks that a domain records; none if it was removed, or records anything else."""
    if domain is None or domain.removed:
        return {}
    try:
        marks = parse_object(domain.configuration.encode(), MARKS_DOMAIN)
    except DamagedError:
        return {}
    return marks if _are_texts(marks) else {}


def head_line(commit: CommitMetadata, info: Mapping[str, Any], *, has_marks: bool = True) -> bytes:
    """Returns the first line of a commit, with its end. `info`: what other clients read in it.

    `has_marks`: whether the marks are in this line, and not in a domain.
    """
    own = {
        "uuid": commit.uuid,
        "timeUs": commit.time_us,
        "metadata": dict(commit.metadata) if has_marks else {},
        "properties": dict(commit.properties),
    }
    line = to_json({CommitInfo.NAME: {LENGTH: "0" * DIGITS, **info, MEMBER: own}}).encode() + b"\n"
    return PREFIX + f"{len(line):0{DIGITS}}".encode() + line[len(PREFIX) + DIGITS :]


def head_in(start: bytes) -> CommitMetadata | None:
    """Returns the head in the first bytes of a commit, None if they contain no whole head."""
    length = head_length(start)
    if not length or len(start) < length:
        return None
    try:
        members = parse_object(start[:length], "", length).get(CommitInfo.NAME)
    except DamagedError:
        return None
    return head_of(CommitInfo(members)) if isinstance(members, dict) else None


def head_of(info: CommitInfo | None) -> CommitMetadata | None:
    """Returns what a committer wrote into a commitInfo, None if it is another client's."""
    own = None if info is None else info.extra.get(MEMBER)
    if not isinstance(own, dict):
        return None
    uuid, time_us, metadata, properties = (
        own.get(name) for name in ("uuid", "timeUs", "metadata", "properties")
    )
    # Committers have continued times of other clients that were too late to be a long.
    if not isinstance(uuid, str) or not is_whole(time_us):
        return None
    if not _are_texts(metadata) or not _are_texts(properties):
        return None
    return CommitMetadata(metadata, properties, uuid, time_us)


def own_head(actions: Iterable[Action], version: int) -> CommitMetadata | None:
    """Returns the head in the actions of a version, with its marks; None if no committer made it."""
    each = iter(actions)
    head = head_of(next((action for action in each if isinstance(action, CommitInfo)), None))
    if head is None or not is_own(head.properties, version):
        return None
    # A committer writes the domain behind commitInfo.
    return head if head.metadata else replace(head, metadata=marks_in(domain_of_marks(each)))


def domain_of_marks(actions: Iterable[Action]) -> DomainMetadata | None:
    """Returns the action that records the marks, None if there is none among these actions."""
    domains = (action for action in actions if isinstance(action, DomainMetadata))
    return next((domain for domain in domains if domain.domain == MARKS_DOMAIN), None)


def keeps_marks(actions: Iterable[Action], own: CommitMetadata | None) -> bool:
    """Returns whether a version has the marks of the version before: another client made it.

    `own`: its head, if a committer made it.
    """
    return own is None and domain_of_marks(actions) is None


def _are_texts(content: object) -> TypeGuard[Mapping[str, str]]:
    return isinstance(content, dict) and all(isinstance(each, str) for each in content.values())
