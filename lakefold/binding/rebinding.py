"""Changes the binding of a table to a log: the common part of adopt, rebind and detach.

The table continues in the new partition after the last offset that the committers' group has answered there.
The new binding is recorded in a version of the table.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.branch_end import after_end
from lakefold_committer.recovery.open_table import marked_properties
from lakefold_committer.recovery.outcome_index import OutcomeIndex
from lakefold_committer.recovery.recovery_context import RecoveryContext, ReportedVersions
from lakefold_committer.recovery.restore_check import check_reported
from lakefold_committer.tables.branches import branch_names, located
from lakefold_committer.tables.rebinding import Moved, publish_move
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read import offset_metadata
from lakefold_log.read.accepted_signers import AcceptedSigners
from lakefold_log.read.lookup import Lookup
from lakefold_table.branch_names import root_of
from lakefold_table.errors import NotATableError, PreconditionError, StopError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_log.client.topic_names import Topics
    from lakefold_table.versions.stored_table import StoredTable
    from lakefold_table.versions.table_address import TableAddress

QUESTION_S = 30.0


@dataclass(frozen=True, slots=True)
class RebindTarget:
    """The new binding: `position` counts as folded last, `outcomes` is as in `record.OUTCOMES`."""

    position: Position
    outcomes: str


@dataclass(frozen=True, slots=True)
class Override:
    """What an operator has accepted: marks that can't be verified, binding a table while it is dropped."""

    unproven: bool = False
    dropped: bool = False


NO_OVERRIDE = Override()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers, the topics, and the consumer group of the committers."""

    kafka: KafkaConfig
    topics: Topics
    group: str

    def target(self, uri: str, partition: int | None) -> RebindTarget:
        """Returns the binding to this partition. None: the partition that the table's URI hashes to.

        The table continues after the last entry that the group has answered there, or at the first entry of
        the log if the group has answered none. Raises `RetryError` if no broker answers, `InvalidError` if
        the partition does not exist.
        """
        admin = Admin(self.kafka)
        topic = self.topics.transactions
        described = describe(admin, topic)
        log = described.log_id(partition_of(uri, described.partitions) if partition is None else partition)
        start = watermarks(admin, topic, log.partition).start
        committed = offset_metadata.read(admin, self.group, topic, log.partition)
        if committed is not None:
            offset, metadata = committed
            if (metadata.cluster_id, metadata.topic_id) == (log.cluster_id, log.topic_id):
                start = max(start, offset)
        end = watermarks(admin, self.topics.outcomes, log.partition, read_committed=False).end
        return RebindTarget(Position(log, start - 1, topic), f"{log.partition}@{end}")

    def reported_versions(self, partition: int) -> OutcomeIndex:
        """Returns a reader of the outcomes that the group's committers reported of tables of a partition."""
        admin = Admin(self.kafka)
        committed = offset_metadata.read(admin, self.group, self.topics.transactions, partition)
        signers = AcceptedSigners(None if committed is None else committed[1].outcomes_key)
        return OutcomeIndex(admin, self.topics, partition, signers)

    def check_none_waits(self, table: FoldedTable, uri: str, branch: str) -> None:
        """Raises `PreconditionError` if an entry of this branch waits in the log that the table is bound to.

        Raises it also if the brokers no longer have that log.
        """
        bound = table.marks.position
        if bound is None:
            return
        topics = replace(self.topics, transactions=bound.topic or self.topics.transactions)
        lookup = Lookup(self.kafka, topics, uri, bound.log.partition, branch=branch, timeout_s=QUESTION_S)
        if lookup.log != bound.log:
            raise PreconditionError(
                f"the table is bound to {bound.log}, but the brokers have {lookup.log}, so it is unknown "
                "whether entries wait for the table",
                where=table.uri,
                hint="name the brokers that have the old log, or give up its entries by --unanswered",
            )
        first = max(lookup.status(self.group).next_offset, bound.offset + 1)
        waiting = lookup.newest_entry(
            lambda entry: root_of(entry.envelope.table, entry.envelope.branch) == table.uri, from_offset=first
        )
        if waiting is not None:
            raise PreconditionError(
                f"the entry {waiting.position} waits for this table, and perhaps others before it",
                where=table.uri,
                hint="stop its writers and let a committer fold the entries; or give them up by "
                "--unanswered: they will be answered Invalid, and `lakefold redrive` can send them again",
            )


def rebind_branches(
    address: TableAddress,
    why: RebindReason,
    target: RebindTarget | None,
    cluster: Cluster | None,
    *,
    reported: ReportedVersions | None = None,
    keeps_position: bool = False,
    override: Override = NO_OVERRIDE,
) -> Iterator[tuple[str, Moved]]:
    """Changes the binding of each branch, the main branch last. Yields its name (main: "") and binding.

    `target` None ends the binding. If `cluster` is given, a branch is refused while entries wait for it in
    its old log. If `reported` is given, only branches are changed that are older than the versions it
    reports. If `keeps_position`, the last folded position stays the same. A branch that can't be changed is
    skipped. Raises what `publish_move` raises, and `PreconditionError` if no branch can be changed.
    """
    moved_any = False
    for branch in branch_names(address):
        stored = located(address, branch)

        def decide(table: FoldedTable, branch: str = branch, stored: StoredTable = stored) -> Rebinding:
            _check(table, why, target, override)
            if reported is not None:
                _check_restored(stored, table, reported)
            if cluster is not None:
                cluster.check_none_waits(table, address.uri, branch)
            before = table.marks.position
            after = None if target is None else before if keeps_position else target.position
            return Rebinding(why, before, after, time.time_ns() // 1000)

        outcomes = "" if target is None else target.outcomes
        try:
            moved = publish_move(stored, decide, outcomes=outcomes, unproven=override.unproven)
        except (_UnchangedError, NotATableError):
            if not branch and not moved_any:
                raise
            continue
        moved_any = True
        yield branch, moved


class _UnchangedError(PreconditionError):
    """The binding of this branch can't be changed for this reason, so the branch is skipped."""


def _check(table: FoldedTable, why: RebindReason, target: RebindTarget | None, override: Override) -> None:
    """Raises `_UnchangedError` if the binding of this branch can't be changed for the reason `why`."""
    bound = table.marks.position
    by = table.marks.deleted_by
    if by is not None and not (why is RebindReason.ADOPTED and override.dropped):
        deleted = after_end(by)
        raise _UnchangedError(deleted.message, where=table.uri, hint=deleted.hint)
    if table.marks.dropped and not (why is RebindReason.ADOPTED and override.dropped):
        raise _UnchangedError(
            "the table is being dropped",
            where=table.uri,
            hint="finish that by `lakefold drop`, or keep the table by `lakefold adopt --keep`",
        )
    if why is RebindReason.ADOPTED:
        if bound is not None:
            raise _UnchangedError(
                f"the table is bound to {bound} already", where=table.uri, hint="use `lakefold rebind`"
            )
        return
    if bound is None:
        hint = "nothing has to be done" if why is RebindReason.DETACHED else "use `lakefold adopt`"
        raise _UnchangedError("the table is bound to no log", where=table.uri, hint=hint)
    if why is RebindReason.REBOUND and target is not None and bound.log == target.position.log:
        raise _UnchangedError(
            f"the table is bound to {bound} already",
            where=table.uri,
            hint="name another partition, other brokers or another topic",
        )
    if why is RebindReason.RESTORED and target is not None and bound.log != target.position.log:
        raise _UnchangedError(
            f"the table is bound to {bound}, which isn't in {target.position.log}",
            where=table.uri,
            hint="bind it to that log first, by `lakefold rebind` without --restored",
        )


def _check_restored(stored: StoredTable, table: FoldedTable, reported: ReportedVersions) -> None:
    """Raises `_UnchangedError` if no later version was reported, so the table is not an earlier copy."""
    bound = table.marks.position
    if table.state is None or bound is None:
        return
    properties = marked_properties(stored, table.state, table.marks)
    try:
        check_reported(
            table, properties, RecoveryContext(bound.log, lambda: bound.offset, outcome_index=reported)
        )
    except StopError:
        return
    raise _UnchangedError(
        f"the table is at version {table.version}, and no later version was reported: it was not restored to "
        "an earlier copy",
        where=table.uri,
        hint="nothing has to be done: committers fold into it as it is",
    )
