"""Moves a table from one log to another by a person's hand: what adopt, rebind and detach have in common.

The log says where the table goes on: at the offset up to which the committers' group has answered. The table
says the rest, in a version of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakefold_committer.recovery.open_table import marked_properties
from lakefold_committer.recovery.outcome_index import OutcomesWitness
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.recovery.restore_check import check_reported
from lakefold_committer.tables.branches import located
from lakefold_committer.tables.rebinding import publish_move
from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read import offset_metadata as stamps
from lakefold_log.read.lookup import Lookup
from lakefold_log.read.trust import Trust
from lakefold_table.branch_names import root_of
from lakefold_table.errors import NotATableError, PreconditionError, StopError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.position import Position
from lakefold_table.storage import open_storage
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_committer.fold.fold import Table
    from lakefold_committer.recovery.recovery_context import ReportedVersions
    from lakefold_committer.tables.rebinding import Moved
    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_table.format import AnyFormat
    from lakefold_table.versions.versions import Versions

QUESTION_S = 30.0


@dataclass(frozen=True, slots=True)
class There:
    """Where a table goes on: `position` counts as its last one, `outcomes` is as `record.OUTCOMES`."""

    position: Position
    outcomes: str


@dataclass(frozen=True, slots=True)
class Consent:
    """What an operator has said: take marks that can't be proven, bind a table that is being dropped."""

    unproven: bool = False
    dropped: bool = False


NO_CONSENT = Consent()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers, the topics, and the committers' group."""

    kafka: KafkaConfig
    topics: Topics
    group: str

    def there(self, uri: str, partition: int | None) -> There:
        """Where a table goes on in this partition (None: where its name is hashed to).

        Behind all that the group has answered there, or from the log's first entry on where it has answered
        none. Raises `RetryError` where no broker answers, `InvalidError` where there is no such partition.
        """
        admin = Admin(self.kafka)
        topic = self.topics.transactions
        described = describe(admin, topic)
        log = described.log_id(partition_of(uri, described.partitions) if partition is None else partition)
        start = watermarks(admin, topic, log.partition).start
        found = stamps.read(admin, self.group, topic, log.partition)
        if found is not None and (found[1].cluster_id, found[1].topic_id) == (log.cluster_id, log.topic_id):
            start = max(start, found[0])
        end = watermarks(admin, self.topics.outcomes, log.partition, read_committed=False).end
        return There(Position(log, start - 1, topic), f"{log.partition}@{end}")

    def witness(self, partition: int) -> OutcomesWitness:
        """What committers of the group reported of the tables of a partition."""
        admin = Admin(self.kafka)
        found = stamps.read(admin, self.group, self.topics.transactions, partition)
        trust = Trust(None if found is None else found[1].outcomes_key)
        return OutcomesWitness(self.kafka, admin, self.topics, partition, trust)

    def check_none_waits(self, table: Table, uri: str, branch: str) -> None:
        """Raises `PreconditionError` if an entry of this line waits in the log that the table is bound to.

        It also does if that log isn't there to be asked.
        """
        bound = table.marks.position
        if bound is None:
            return
        topics = replace(self.topics, transactions=bound.topic or self.topics.transactions)
        lookup = Lookup(self.kafka, topics, uri, bound.log.partition, timeout_s=QUESTION_S)
        if lookup.log != bound.log:
            raise PreconditionError(
                f"the table is bound to {bound.log}, the brokers hold {lookup.log}: what waits in the first "
                "can't be told",
                where=table.uri,
                hint="--unanswered gives up whatever waits there",
            )
        first = max(lookup.standing(self.group).next_offset, bound.offset + 1)
        waiting = lookup.newest_entry(lambda one: one.envelope.branch == branch, from_offset=first)
        if waiting is not None:
            raise PreconditionError(
                f"{waiting.position} waits for this table, and perhaps others before it",
                where=table.uri,
                hint="stop its writers and let a committer fold them; or give them up by --unanswered: they "
                "will be Invalid, and `lakefold redrive` can send them again",
            )


def move_lines(
    uri: str,
    storage_options: Mapping[str, str],
    why: RebindReason,
    there: There | None,
    cluster: Cluster | None,
    *,
    witness: ReportedVersions | None = None,
    keeps_place: bool = False,
    consent: Consent = NO_CONSENT,
) -> Iterator[tuple[str, Moved]]:
    """Moves the branches of a table, then its main line; yields each branch's name (empty: none) and move.

    `cluster`: refuse while entries wait in the log that a line leaves; None: leave them. `witness`: move only
    lines of which it tells later versions than there are. `keeps_place`: the last position folded stays what
    it was. A line that can't be moved so is left as it is, as long as another one can. Raises as
    `publish_move` does, and `InvalidError` where no line can be moved so.
    """
    moved_any = False
    for branch in (*_branches(uri, storage_options), ""):
        table_format, versions = located(uri, branch, storage_options)

        def decide(
            table: Table,
            branch: str = branch,
            versions: Versions = versions,
            table_format: AnyFormat = table_format,
        ) -> Rebinding:
            _check(table, why, there, consent)
            if witness is not None:
                _check_set_back(table_format, table, versions, witness)
            if cluster is not None:
                cluster.check_none_waits(table, uri, branch)
            before = table.marks.position
            after = None if there is None else before if keeps_place else there.position
            return Rebinding(why, before, after, time.time_ns() // 1000)

        root = root_of(uri, branch)
        outcomes = "" if there is None else there.outcomes
        try:
            moved = publish_move(
                table_format,
                versions,
                root,
                decide,
                outcomes=outcomes,
                unproven=consent.unproven,
                storage_options=storage_options,
            )
        except (_LeftAsItIsError, NotATableError):
            if not branch and not moved_any:
                raise
            continue
        moved_any = True
        yield branch, moved


class _LeftAsItIsError(PreconditionError):
    """The line can't be moved so: a branch is passed over then."""


def _check(table: Table, why: RebindReason, there: There | None, consent: Consent) -> None:
    """Raises where this line isn't one that can be moved so."""
    bound = table.marks.position
    if table.marks.dropped and not (why is RebindReason.ADOPTED and consent.dropped):
        raise _LeftAsItIsError(
            "the table is being dropped",
            where=table.uri,
            hint="`lakefold drop` finishes that, `lakefold adopt --keep` keeps the table",
        )
    if why is RebindReason.ADOPTED:
        if bound is not None:
            raise _LeftAsItIsError(
                f"the table is bound to {bound} already", where=table.uri, hint="use `lakefold rebind`"
            )
        return
    if bound is None:
        hint = "it follows none already" if why is RebindReason.DETACHED else "use `lakefold adopt`"
        raise _LeftAsItIsError("the table is bound to no log", where=table.uri, hint=hint)
    if why is RebindReason.REBOUND and there is not None and bound.log == there.position.log:
        raise _LeftAsItIsError(
            f"the table is bound to {bound} already",
            where=table.uri,
            hint="name another partition, other brokers or another topic",
        )
    if why is RebindReason.RESTORED and there is not None and bound.log != there.position.log:
        raise _LeftAsItIsError(
            f"the table is bound to {bound}, which isn't in {there.position.log}",
            where=table.uri,
            hint="rebind it first",
        )


def _check_set_back(
    table_format: AnyFormat, table: Table, versions: Versions, witness: ReportedVersions
) -> None:
    """Raises where nothing later than the table's newest version was reported: then it was not set back."""
    bound = table.marks.position
    if table.state is None or bound is None:
        return
    properties = marked_properties(table_format, versions, table.state, table.marks)
    try:
        check_reported(table, properties, RecoveryContext(bound.log, lambda: bound.offset, witness=witness))
    except StopError:
        return
    raise _LeftAsItIsError(
        f"it stands at version {table.version}, and nothing later was reported of it: it was not set back, "
        "and there is nothing to accept",
        where=table.uri,
        hint="nothing has to be done: a committer folds it as it is",
    )


def _branches(uri: str, storage_options: Mapping[str, str]) -> list[str]:
    return sorted(Refs(open_storage(uri, storage_options)).branches())
