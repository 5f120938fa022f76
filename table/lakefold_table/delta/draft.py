"""The next version of a Delta table, while proposals are added to it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.table_actions import AppTransaction, CommitInfo
from lakefold_table.delta.commit_files import CommitFiles
from lakefold_table.delta.commit_head import (
    DOMAINS,
    MARKS_APP,
    NO_BATCH,
    RESERVED,
    batch_actions,
    batch_of_others,
    head_line,
    log_app,
    marks_domain,
)
from lakefold_table.delta.conflicts.footprint import footprint_of
from lakefold_table.delta.conflicts.metadata_changes import CHANGE, MetadataChange, change_between, merged
from lakefold_table.delta.conflicts.rules import ISOLATION, SERIALIZABLE, conflict_of, isolation_level
from lakefold_table.delta.conflicts.shared_version import SharedVersion
from lakefold_table.delta.invariants import CommitStep, check
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.merge_deletions import RebasedFiles, rebased, stale_reads
from lakefold_table.delta.proposal import WRITE, DeltaTableProposal, with_files
from lakefold_table.delta.proposed_files import (
    TableFiles,
    files_fault,
    length_fault,
    reads_fault,
    stored_fault,
    vectors_fault,
)
from lakefold_table.delta.sharing import sharing_of
from lakefold_table.delta.snapshot.reconciliation import Reconciliation
from lakefold_table.delta.state import HISTORY, DeltaState
from lakefold_table.delta.table_features.clustering import DOMAIN as CLUSTERING
from lakefold_table.delta.table_features.commit_times import (
    begins_too_late,
    has_commit_times,
    keeping_since,
    since,
    time_after,
)
from lakefold_table.delta.table_features.dependent_expressions import adds_check, dependent_fault
from lakefold_table.delta.table_features.metadata_rules import (
    default_fault,
    keeping_files,
    replaced_fault,
    unfit_for_files,
)
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.delta.table_features.row_tracking import ENABLED, PRESERVED, RowIds
from lakefold_table.delta.table_features.row_tracking import FEATURE as ROW_TRACKING
from lakefold_table.delta.table_features.type_widening import with_version
from lakefold_table.delta.validity import (
    append_only_fault,
    clustering_fault,
    enables_row_tracking,
    metadata_fault,
    new_protocol_fault,
    proposal_fault,
    protocol_fault,
    row_tracking_fault,
    table_rules,
)
from lakefold_table.entry import BUILD_AGAIN, Conflict, Duplicate, Entry, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import ALONE, Accepted, CommitMetadata, Fetched, NewFile, Publication
from lakefold_table.marks.marks import app_mark_in, decode_marks
from lakefold_table.nesting import neighbour_fault
from lakefold_table.values import uuid_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.actions.table_actions import (
        Action,
        DomainMetadata,
        TableMetadata,
        TableProtocol,
    )
    from lakefold_table.delta.validity import TableRules
    from lakefold_table.marks.marks import Marks

FORGETTING: Final = 1000
"""After how many versions removed files are forgotten that have expired."""
GROUPED: Final = "LAKEFOLD GROUP"
"""The operation of a commit whose proposals have different ones."""


def proposed(entry: Entry) -> DeltaTableProposal:
    """Returns an entry's proposal; an empty one if its claim was not fetched."""
    proposal = entry.proposal
    return proposal if isinstance(proposal, DeltaTableProposal) else DeltaTableProposal(None)


class DeltaDraft:
    """The next version. `fetched`: the sizes of the files that the proposals add."""

    def __init__(self, state: DeltaState | None, fetched: Fetched) -> None:
        self._state = state
        self._snapshot = None if state is None else state.snapshot
        self._fetched = fetched
        self._stored_us = 0 if state is None else fetched.times.get(commit_path(state.version), 0)
        self._accepted: list[tuple[Entry, DeltaTableProposal]] = []
        self._shared = SharedVersion(0 if state is None else state.version + 1)
        self._rules: TableRules | None = None
        self._sharing = ""
        self._files = CommitFiles(self._snapshot)
        self._vectors: dict[str, NewFile] = {}
        self._forgotten: str | None = None
        self._theirs: dict[str, int | None] = {}
        self.version = 0 if state is None else state.version + 1
        self.restored: int | None = None
        self.first_ids = (0, 0)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The marks of the version before."""
        return {} if self._state is None else self._state.marks

    @property
    def operations(self) -> tuple[int, Mapping[str, int]]:
        """The operation of this version. It is not recorded for older ones: their commits say it."""
        return self.version - 1 if self.version else 0, {self._operation: self.version}

    @property
    def _operation(self) -> str:
        names = {proposal.operation for _, proposal in self._accepted}
        return names.pop() if len(names) == 1 else GROUPED if names else WRITE

    def add(self, entry: Entry) -> Accepted | Duplicate | Rejected | Invalid | None:
        """See `lakefold_table.format.Draft.add`."""
        if self._is_recorded(entry):
            return Duplicate(0)
        proposal = self._with_changes(proposed(entry))
        refused = self._refusal(entry, proposal)
        if refused is not None:
            return refused
        sharing = sharing_of(proposal)
        if self._accepted and (sharing == ALONE or self._sharing != sharing):
            return None
        is_twice = any(self._files.is_new(file.path, proposal) for file in proposal.removes)
        if is_twice or self._files.readds(proposal.adds):
            # A commit can't add and remove the same logical file.
            return None
        fitted = self._fitted(proposal)
        if not isinstance(fitted, RebasedFiles):
            return fitted
        changed = fitted.adds is not proposal.adds or fitted.removes is not proposal.removes
        committed = with_files(proposal, fitted.adds, fitted.removes) if changed else proposal
        files = TableFiles(entry.envelope.table, self._files.file, self._rules_after(proposal))
        tombstones = {} if self._snapshot is None else self._snapshot.tombstones
        refused = (
            length_fault(committed)
            or files_fault(committed, files)
            or vectors_fault(proposal, files, tombstones)
            or stored_fault(proposal, self._fetched)
            or self._without_ids(committed)
        )
        if refused is not None:
            return refused
        self._sharing = sharing
        self._accepted.append((entry, committed))
        self.restored = proposal.restored
        self._vectors.update(fitted.vectors)
        rows = self._files.take(committed)
        self._shared.add(committed)
        if proposal.protocol is not None or proposal.metadata is not None or proposal.domains:
            self._rules = None
        before = -1 if self._state is None else self._state.version
        rebased = proposal.based_on is not None and proposal.based_on < before
        app = None if self._snapshot is None else self._snapshot.apps.get(entry.app_id)
        return Accepted(rebased, *rows, 0, 0, proposal.operation, None if app is None else app.version)

    def forget(self, app_id: str) -> bool:
        """See `lakefold_table.format.Draft.forget`.

        A `txn` action can't be removed. One with a number below all batches means the same to all clients.
        """
        stored = None if self._snapshot is None else self._snapshot.apps.get(app_id)
        is_recorded = stored is not None and stored.version > NO_BATCH and not app_id.startswith(RESERVED)
        self._forgotten = app_id if is_recorded else None
        return is_recorded

    def finish(self, commit: CommitMetadata) -> tuple[DeltaState, Publication]:
        """See `lakefold_table.format.Draft.finish`."""
        time_ms = commit.time_us // 1000
        in_commit_ms = self._in_commit_ms(time_ms)
        marks = decode_marks(commit.metadata)
        domain = self._marks_domain(commit)
        actions = self._merged(marks, domain, time_ms, in_commit_ms)
        info = self._info(commit, time_ms)
        change = self._metadata_change()
        if change is not None:
            info[CHANGE] = change.members()
        if in_commit_ms is not None:
            info = {CommitInfo.IN_COMMIT: in_commit_ms, **info}
        head = head_line(commit, info, has_marks=domain is None)
        body = lines_of(actions)
        before = self._state
        reconciliation = Reconciliation(self._snapshot)
        reconciliation.add_commit([CommitInfo(info), *actions])
        snapshot = reconciliation.snapshot(self.version)
        if self.version % FORGETTING == 0:
            snapshot = snapshot.without_expired(time_ms)
        restores = any(proposal.restores for _, proposal in self._accepted)
        check(CommitStep(self._snapshot, snapshot, actions, restores))
        is_blind = bool(self._accepted) and all(proposal.is_blind for _, proposal in self._accepted)
        footprint = replace(
            footprint_of(self.version, actions, None if self._snapshot is None else self._snapshot.protocol),
            operation=self._operation,
            is_blind=is_blind,
            change=change,
        )
        history = () if before is None else before.history
        state = DeltaState(
            self.version,
            snapshot,
            commit.metadata,
            commit,
            uuid_of(head + body),
            commit.time_us,
            (*history, footprint)[-HISTORY:],
        )
        path = commit_path(self.version)
        return state, Publication(self.version, path, [head, body], before=tuple(self._vectors.values()))

    def _refusal(self, entry: Entry, proposal: DeltaTableProposal) -> Rejected | Invalid | None:
        """Returns why the entry is refused whatever its files are, None if it is not."""
        if entry.envelope.branch:
            return Invalid("a Delta table has no branches", "name no branch")
        if entry.envelope.HasField("create"):
            hint = "leave out `create`: the actions protocol and metaData create the table"
            return Invalid("a Delta table is not created by `create`", hint)
        if entry.envelope.affected_rows:
            return Invalid("affected_rows of the envelope are for Lance", "use those of the Delta proposal")
        if proposal.fault is not None:
            return proposal.fault
        if self._state is None and not self._accepted:
            return self._creation_fault(entry, proposal)
        rules = self._present()
        if proposal.begins_table:
            message = f"the table exists, its newest version is {max(self.version - 1, 0)}"
            return Rejected(Conflict(retryable=True, message=message, other_version=max(self.version - 1, 0)))
        then = self._rules_after(proposal)
        fault = proposal_fault(proposal, then) or self._change_fault(proposal, rules, then)
        if fault is not None and not self._has_other_rules(proposal):
            return fault
        conflict = self._conflict(proposal, rules.metadata, fault)
        if conflict is None and fault is not None and self._is_clustered_since(proposal):
            conflict = Rejected(Conflict(retryable=True, message=f"{fault.message}; {BUILD_AGAIN}"))
        fault = fault or self._reads_fault(proposal)
        return conflict or fault or self._unfit_metadata(proposal, rules.metadata)

    def _has_other_rules(self, proposal: DeltaTableProposal) -> bool:
        """Returns whether others changed the protocol or the metadata after the version that it was built on.

        Then what is wrong with it now may have been right; also its own protocol, but not its own metadata.
        """
        if self._state is None or proposal.based_on is None:
            return False
        later = self._state.since(proposal.based_on)
        if any(each.protocol for each in later):
            return True
        if proposal.metadata or proposal.protocol:
            return False
        return any(each.metadata for each in later) or self._is_clustered_since(proposal)

    def _is_clustered_since(self, proposal: DeltaTableProposal) -> bool:
        """Returns whether others changed the clustering columns after the version that it was built on."""
        if self._state is None or proposal.based_on is None:
            return False
        return any(CLUSTERING in each.domains for each in self._state.since(proposal.based_on))

    def _change_fault(
        self, proposal: DeltaTableProposal, before: TableRules, after: TableRules
    ) -> Invalid | None:
        """Returns why the protocol or the metadata of the table can't be changed so, or None."""
        fault = append_only_fault(proposal, before)
        if fault is None and proposal.protocol is not None:
            fault = protocol_fault(before.protocol, proposal.protocol)
        if fault is None and after is not before:
            fault = metadata_fault(before, after)
        if fault is None and proposal.metadata is not None:
            fault = self._untracked(proposal, before, after)
        begins = has_commit_times(after.protocol, after.metadata)
        if fault is None and begins and not has_commit_times(before.protocol, before.metadata):
            fault = begins_too_late(self._before_ms())
        if fault is None and before.clustering != after.clustering:
            # Files that come are judged with the proposal. Those that stay may get another deletion vector.
            judged = {file.path for file in proposal.removes} ^ {file.path for file in proposal.adds}
            fault = clustering_fault(before, after, self._stored_files(besides=judged))
        return fault

    def _unfit_metadata(
        self, proposal: DeltaTableProposal, before: TableMetadata
    ) -> Rejected | Invalid | None:
        """Returns why the metadata of a proposal don't fit to files that the table keeps, or None."""
        if proposal.metadata is None:
            return None
        replaced = replaced_fault(before, proposal.metadata)
        if replaced is not None or proposal.restores:
            return replaced
        after, fault, keeps = proposal.metadata, None, self._keeps_files(proposal)
        if keeps:
            unfit = unfit_for_files(before, after)
            fault = keeping_files(unfit) if unfit else dependent_fault(before, after)
        if fault is None and before.id == after.id and (keeps or not proposal.removes):
            fault = default_fault(before, after)
        if fault is None:
            return None
        message, hint = fault
        if proposal.read_version < self.version - 1:
            return Rejected(Conflict(retryable=True, message=f"{message}; {BUILD_AGAIN}"))
        return Invalid(message, hint)

    def _keeps_files(self, proposal: DeltaTableProposal) -> bool:
        """Returns whether files stay that the table has before a proposal."""
        removed = {file.path for file in proposal.removes} | self._files.removed.keys()
        return bool(self._files.added.keys() - removed) or any(self._stored_files(besides=removed))

    def _stored_files(self, besides: Collection[str] = ()) -> Iterator[AddFile]:
        """Yields the files of the version before, without those at the paths `besides`."""
        files = {} if self._snapshot is None else self._snapshot.files
        return (files[path] for path in files if path not in besides)

    def _untracked(
        self, proposal: DeltaTableProposal, before: TableRules, after: TableRules
    ) -> Invalid | None:
        """Returns why row tracking can't be enabled, or None if it can, or is not to be."""
        is_enabled = enables_row_tracking(before.metadata, after.metadata)
        # Files that are added again get row ids, those that go need none.
        named = {file.path for file in proposal.adds} | {file.path for file in proposal.removes}
        return row_tracking_fault(after, self._stored_files(besides=named)) if is_enabled else None

    def _reads_fault(self, proposal: DeltaTableProposal) -> Invalid | None:
        """Returns which file a proposal can't have read, or None."""
        if proposal.based_on is None or self._state is None:
            return None
        return reads_fault(proposal, self._files, self._state.since(proposal.based_on))

    def _fitted(self, proposal: DeltaTableProposal) -> RebasedFiles | Rejected | Invalid | None:
        """Returns the files of a proposal as they fit to rows that were deleted or moved meanwhile."""
        if not proposal.names_rows:
            return RebasedFiles(proposal.adds, proposal.removes)
        later = () if self._state is None else self._state.since(proposal.read_version)
        reads = stale_reads(proposal, later, self._files.removed.keys())
        merged = {file.path: file.data for file in self._vectors.values()}
        contents = {**self._fetched.contents, **merged}
        try:
            files = rebased(proposal, self._files.file, [*later, *self._shared.moving()], contents, reads)
        except DamagedError as error:
            return Invalid(error.reason, error.hint or BUILD_AGAIN)
        if files is None and not self._accepted:
            message = f"a deletion vector that was made meanwhile could not be read; {BUILD_AGAIN}"
            return Rejected(Conflict(retryable=True, message=message))
        if isinstance(files, RebasedFiles) and any(self._files.is_new(file.path) for file in files.removes):
            # Its rows are in a file of this version.
            return None
        return files

    def _present(self) -> TableRules:
        """Returns the rules of the table for the next proposal."""
        if self._rules is None:
            self._rules = table_rules(*self._protocol_and_metadata(), self._domains())
        return self._rules

    def _rules_after(self, proposal: DeltaTableProposal) -> TableRules:
        """Returns the rules of the table after a proposal, which may be the one that creates it."""
        protocol, metadata = proposal.protocol, proposal.metadata
        if protocol is None and metadata is None and not proposal.domains:
            return self._present()
        if protocol is None or metadata is None:
            before = self._present()
            protocol, metadata = protocol or before.protocol, metadata or before.metadata
        return table_rules(protocol, metadata, [*self._domains(), *proposal.domains])

    def _domains(self) -> list[DomainMetadata]:
        """Returns the domains of the table for the next proposal; of one domain the last counts."""
        stored = () if self._snapshot is None else self._snapshot.domains.values()
        return [*stored, *(domain for _, proposal in self._accepted for domain in proposal.domains)]

    def _protocol_and_metadata(self) -> tuple[TableProtocol, TableMetadata]:
        protocol = None if self._snapshot is None else self._snapshot.protocol
        metadata = None if self._snapshot is None else self._snapshot.metadata
        for _, proposal in self._accepted:
            protocol, metadata = proposal.protocol or protocol, proposal.metadata or metadata
        if protocol is None or metadata is None:
            raise DamagedError("the table has no snapshot")
        return protocol, metadata

    def _creation_fault(self, entry: Entry, proposal: DeltaTableProposal) -> Invalid | None:
        if proposal.protocol is None or proposal.metadata is None or proposal.based_on is not None:
            hint = "create it first, by a proposal with protocol and metaData and no read version"
            return Invalid(f"there is no table at {entry.envelope.table}", hint)
        rules = table_rules(proposal.protocol, proposal.metadata, proposal.domains)
        fault = proposal_fault(proposal, rules) or new_protocol_fault(proposal.protocol)
        fault = fault or metadata_fault(None, rules)
        return fault or neighbour_fault(entry.envelope.table, self._fetched.neighbours)

    def _conflict(
        self, proposal: DeltaTableProposal, metadata: TableMetadata, fault: Invalid | None
    ) -> Rejected | Invalid | None:
        """Returns a conflict with the versions after its read version, or with what shares this version.

        `fault`: why it is Invalid if there is no conflict. Then its own metadata may be malformed.
        """
        based_on = proposal.based_on
        if based_on is None or self._state is None:
            return None
        if based_on > self._state.version or based_on < 0:
            newest = self._state.version
            return Invalid(
                f"version {based_on} does not exist, the newest is {newest}", "read the table again"
            )
        if based_on < self._state.history_start:
            unknown = self._state.history_start
            message = f"what version {unknown} did is no longer known, and the proposal read {based_on}"
            return Rejected(
                Conflict(retryable=True, message=f"{message}; {BUILD_AGAIN}", other_version=unknown)
            )
        later = self._state.since(based_on)
        level = isolation_level(proposal.isolation, metadata.configuration.get(ISOLATION))
        others = [*later, *self._shared.concerning(proposal)]
        after = proposal.metadata if fault is None else None
        checks_rows = after is not None and adds_check(metadata, after) and self._keeps_files(proposal)
        conflict = conflict_of(proposal, others, level, metadata, checks_rows=checks_rows)
        return None if conflict is None else Rejected(conflict)

    def _is_recorded(self, entry: Entry) -> bool:
        """Returns whether another client has recorded this batch of the app, or a later one."""
        app, batch = entry.app_id, entry.batch_id
        action = None if self._snapshot is None or not app else self._snapshot.apps.get(app)
        if action is None or batch is None or batch > action.version:
            return False  # Most batches are new, and need no mark decoded.
        if app not in self._theirs:
            self._theirs[app] = batch_of_others(action, app_mark_in(self.metadata, app))
        theirs = self._theirs[app]
        return theirs is not None and batch <= theirs

    @cached_property
    def _ids(self) -> RowIds:
        """Gives row ids to the files of the version. Raises `DamagedError`."""
        return RowIds(self._snapshot, self.version)

    def _without_ids(self, proposal: DeltaTableProposal) -> Invalid | None:
        """Returns why the files of a proposal can't get row ids, None if they can or need none."""
        if ROW_TRACKING not in writer_features(proposal.protocol or self._present().protocol):
            return None
        try:
            files = zip(proposal.adds, proposal.statistics, strict=True)
            self._ids.reserve(files, is_restored=proposal.restores)
        except DamagedError as error:
            return Invalid(error.reason, error.hint)
        return None

    def _with_changes(self, proposal: DeltaTableProposal) -> DeltaTableProposal:
        """Returns a proposal whose metadata have what versions changed that it did not read.

        What can't be merged is left to the conflict rules.
        """
        before, based_on = self._snapshot, proposal.based_on
        if self._state is None or before is None or proposal.metadata is None or based_on is None:
            return proposal
        metadata = keeping_since(before, proposal.protocol or before.protocol, proposal.metadata)
        proposal = replace(proposal, metadata=metadata)
        if proposal.fault is not None or not self._state.history_start <= based_on < self._state.version:
            return proposal
        if metadata.id != before.metadata.id or proposal.restores:
            # It replaces the table, and nothing of the table before.
            return proposal
        later = [each for each in self._state.since(based_on) if each.metadata]
        changes = [each.change for each in later if each.change is not None]
        if not later or len(changes) < len(later) or any(each.widened for each in changes):
            return proposal
        try:
            made = merged(metadata, before.metadata, changes)
        except DamagedError:
            # What is wrong with its schema is said by the rules for schemas.
            return proposal
        if isinstance(made, frozenset):
            return replace(proposal, unmerged=made)
        return replace(proposal, metadata=made, is_merged=True)

    def _metadata_change(self) -> MetadataChange | None:
        """Returns what the version changes in the metadata, None if proposals built before don't fit."""
        before, proposals = self._snapshot, [proposal for _, proposal in self._accepted]
        if before is None or any(each.protocol is not None or each.domains for each in proposals):
            return None
        metadata = next((each.metadata for each in proposals if each.metadata is not None), None)
        return None if metadata is None else change_between(before.metadata, metadata)

    def _in_commit_ms(self, time_ms: int) -> int | None:
        """Returns the time that the commit says of itself, None if it says none."""
        rules = self._present()
        if not has_commit_times(rules.protocol, rules.metadata):
            return None
        return time_ms if self._state is None else time_after(self._before_ms(), time_ms, self._state.version)

    def _before_ms(self) -> int:
        """Returns the time of the version before, after which that of a commit must be; 0 without one."""
        commit_ms = None if self._snapshot is None else self._snapshot.in_commit_ms
        stored_ms = 0 if self._state is None else max(self._state.time_us, self._stored_us) // 1000
        return stored_ms if commit_ms is None else commit_ms

    def _metadata_after(self, in_commit_ms: int | None) -> TableMetadata | None:
        """Returns the metadata that the commit sets, None if it sets none."""
        metadata = next((each.metadata for _, each in self._accepted if each.metadata is not None), None)
        read = next((proposal.based_on for _, proposal in self._accepted), None)
        if metadata is not None and read is not None:
            metadata = with_version(metadata, read + 1, self.version)
        before = self._snapshot
        if in_commit_ms is None or before is None or has_commit_times(before.protocol, before.metadata):
            return metadata
        return since(self._present().metadata, self.version, in_commit_ms)

    def _merged(
        self, marks: Marks | None, domain: DomainMetadata | None, time_ms: int, in_commit_ms: int | None
    ) -> list[Action]:
        """Returns the actions of all proposals as those of one commit, without commitInfo.

        `domain`: that of the marks, None if they are in commitInfo.
        """
        proposals = [proposal for _, proposal in self._accepted]
        metadata = self._metadata_after(in_commit_ms)
        once: list[Action] = [] if domain is None else [domain]
        once += [] if metadata is None else [metadata]
        for proposal in proposals:
            once += [] if proposal.protocol is None else [proposal.protocol]
            once += proposal.domains
        is_dated = all(entry.time_us > 0 for entry, _ in self._accepted)
        removes = self._files.removed_at(time_ms, is_dated=is_dated)
        adds = list(self._files.added.values())
        changes = [file for proposal in proposals for file in proposal.changes]
        if self._accepted and self._present().tracks_rows:
            ids = self._ids
            removes = [ids.removed(file) for file in removes]
            restored = {file.path for each in proposals if each.restores for file in each.adds}
            adds = [ids.added(file, is_restored=file.path in restored) for file in adds]
            high_water = ids.high_water()
            once += [] if high_water is None else [high_water]
        return [*once, *self._apps(marks, time_ms), *removes, *adds, *changes]

    def _marks_domain(self, commit: CommitMetadata) -> DomainMetadata | None:
        """Returns the domain that records the marks, None if commitInfo does: the table has no domains."""
        has_domains = DOMAINS in writer_features(self._present().protocol)
        return marks_domain(commit.metadata) if has_domains else None

    def _apps(self, marks: Marks | None, time_ms: int) -> list[AppTransaction]:
        """Returns one `txn` action for each app of the proposals, one for the log, one for the marks."""
        stored = {} if self._snapshot is None else self._snapshot.apps
        apps = batch_actions(self._accepted, stored, time_ms)
        if self._forgotten is not None:
            apps[self._forgotten] = AppTransaction(self._forgotten, NO_BATCH, time_ms)
        position = None if marks is None else marks.position
        if position is not None:
            name = log_app(position.log)
            apps[name] = AppTransaction(name, position.offset, time_ms)
        apps[MARKS_APP] = AppTransaction(MARKS_APP, self.version, time_ms)
        return list(apps.values())

    def _info(self, commit: CommitMetadata, time_ms: int) -> dict[str, Any]:
        """Returns what other clients read in commitInfo."""
        proposals = [proposal for _, proposal in self._accepted]
        configuration = self._present().metadata.configuration
        levels = {isolation_level(each.isolation, configuration.get(ISOLATION)) for each in proposals}
        strict = not levels or SERIALIZABLE in levels
        info: dict[str, Any] = {
            "timestamp": time_ms,
            "operation": self._operation,
            "operationParameters": dict(proposals[0].parameters) if len(proposals) == 1 else {},
            "isolationLevel": "Serializable" if strict else "WriteSerializable",
            "isBlindAppend": bool(proposals) and all(each.is_blind for each in proposals),
            "operationMetrics": self._files.metrics(self._operation),
            "engineInfo": "Lakefold",
            "txnId": commit.uuid,
        }
        if self._present().tracks_rows and self._present().metadata.is_on(ENABLED):
            preserved = all(each.preserves_row_ids for each in proposals)
            info["tags"] = {PRESERVED: "true" if preserved else "false"}
        if self._state is not None:
            info["readVersion"] = self._state.version
        if commit.author:
            info["userName"] = commit.author
        # A proposal with a text is alone in its version.
        text = proposals[0].user_metadata if proposals else None
        return info if text is None else {**info, CommitInfo.USER_METADATA: text}
