"""Delta as a table format: what the fold calls (see `lakefold_table.format`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_table.delta.actions.lines import head_length, parse_actions
from lakefold_table.delta.actions.table_actions import CommitInfo
from lakefold_table.delta.checkpoints.new_checkpoint import NO_RUNS, checkpoint_files, has_checkpoint
from lakefold_table.delta.checkpoints.sidecars import StoredCheckpoint
from lakefold_table.delta.commit_head import head_in, keeps_marks, own_head
from lakefold_table.delta.conflicts.footprint import CommitFootprint, footprint_of
from lakefold_table.delta.draft import DeltaDraft, proposed
from lakefold_table.delta.log_segment.names import FOLDER, checksum_path, commit_path, detect
from lakefold_table.delta.merge_deletions import vectors_to_read
from lakefold_table.delta.proposal import NAME, OPERATIONS, DeltaTableProposal, proposal_in
from lakefold_table.delta.rows.vectors import MOST_FILE, file_of
from lakefold_table.delta.sharing import sharing_of
from lakefold_table.delta.snapshot.checksum import checksum_file
from lakefold_table.delta.state import HISTORY, DeltaState, decode_state, restored_in, time_of, version_at
from lakefold_table.delta.table_features.commit_times import ENABLED as COMMIT_TIMES
from lakefold_table.delta.table_features.protocol_check import check_committable, writer_features
from lakefold_table.delta.table_features.row_tracking import FEATURE as ROW_TRACKING
from lakefold_table.delta.table_features.row_tracking import high_water_mark
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Rejected, Tagged
from lakefold_table.errors import DamagedError
from lakefold_table.format import (
    NO_FILES,
    Accepted,
    Difference,
    Fetched,
    FilesAfter,
    NewFile,
    Requirements,
    VersionHead,
    VersionSummary,
)
from lakefold_table.marks.marks import digest_of_marks
from lakefold_table.nesting import needs_around
from lakefold_table.values import uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.expansion import Content
    from lakefold_table.format import Files, GroupingRule, RecordedVersion
    from lakefold_table.proposal import LargeProposal

_GONE = "create a checkpoint by the client that cleaned the log up, or restore the commits"
_PROPOSAL = "lakefold.log.v1.Envelope.proposal"
"""The full name of the field that holds a proposal of one format."""
TIMES = 30
"""How many times the size of its message a proposal may take in memory: its actions are JSON."""


class DeltaFormat:
    """The format's rules."""

    name = NAME
    folder = FOLDER
    first_version = 0
    operations = OPERATIONS
    manifests = None
    refs = None
    proposal = staticmethod(proposal_in)
    head_length = staticmethod(head_length)
    detect = staticmethod(detect)
    decode = staticmethod(decode_state)

    def is_data_name(self, name: str) -> bool:
        """Returns whether a name at the root is that of a Parquet file, or of a partition's folder."""
        return name.endswith(".parquet") or "=" in name

    def unknown_kind(self, envelope: Envelope) -> str:
        """Returns an empty text: actions that this release doesn't know are refused as Invalid."""
        del envelope
        return ""

    def parse_large(
        self, data: bytes, content: Content, allow: Callable[[int], None]
    ) -> LargeProposal | None:
        """Returns None: every proposal is decoded whole."""
        del data, content, allow
        return None

    def memory_to_fold(self, content: Content) -> int:
        """Returns about how many bytes of memory it takes to fold a proposal, 0 for one of another format."""
        return TIMES * content.size if (_PROPOSAL, NAME) in content.choices else 0

    def head(self, start: bytes) -> VersionHead | None:
        """Returns the head of a commit that a committer wrote, or None."""
        head = head_in(start)
        return None if head is None else VersionHead(head.uuid, head.properties)

    def summarize(self, path: str, data: bytes, uri: str = "", files: Files = NO_FILES) -> VersionSummary:
        """Returns what the version in the commit at `path` did. Raises `DamagedError`."""
        del files
        version = version_at(path, uri)
        actions = list(parse_actions(data, f"{uri}/{path}"))
        own = own_head(actions, version)
        footprint = footprint_of(version, actions)
        return VersionSummary(
            version,
            footprint.operation,
            {} if own is None else own.properties,
            begins_clone=False,
            footprint=footprint,
            keeps_metadata=keeps_marks(actions, own),
            restored=restored_in(actions),
            uuid=uuid_of(data) if own is None else own.uuid,
            marks="" if own is None else digest_of_marks(own.metadata),
            time_us=time_of(actions, own),
        )

    def requirements(self, state: DeltaState | None, entries: Sequence[Entry]) -> Requirements:
        """Returns the files that the entries add, and since which version the history is needed."""
        sizes = set[str]()
        since: int | None = None
        around = Requirements()
        contents, restored = dict[str, int](), dict[str, int]()
        for entry in entries:
            proposal = proposed(entry)
            if proposal.fault is not None:
                continue
            if state is None and proposal.begins_table:
                around = needs_around(entry.envelope.table)
            sizes.update(proposal.files)
            if proposal.restores:
                restored.update(dict.fromkeys(proposal.files, proposal.restored or 0))
            own = (file_of(file.deletion_vector) for file in proposal.adds)
            contents.update({path: MOST_FILE for path in own if path is not None})
            based_on = proposal.based_on
            if state is not None and based_on is not None and 0 <= based_on < state.history_start:
                since = based_on if since is None else min(since, based_on)
            elif state is not None and proposal.names_rows:
                contents.update(dict.fromkeys(_vectors(state, proposal), MOST_FILE))
        return Requirements(
            sizes=frozenset(sizes),
            contents=contents,
            operations_since=since,
            neighbours=around.neighbours,
            times=_times(state, entries),
            restored=restored,
        )

    def with_history(self, state: DeltaState, older: Iterable[VersionSummary]) -> DeltaState:
        """Returns the state with what older versions did, as far as they are known without a gap."""
        history = list(state.history)
        for summary in older:
            footprint = summary.footprint
            if not isinstance(footprint, CommitFootprint) or footprint.version != history[0].version - 1:
                break
            history.insert(0, footprint)
        return replace(state, history=tuple(history))

    def follow_foreign(
        self, state: DeltaState, foreign: DeltaState, between: Sequence[VersionSummary] = ()
    ) -> DeltaState:
        """Returns `foreign` with what is known of the versions before it."""
        history = [*state.history]
        footprints = [each.footprint for each in between]
        for footprint in (*footprints, *foreign.history[-1:]):
            if not isinstance(footprint, CommitFootprint) or footprint.version != history[-1].version + 1:
                return foreign
            history.append(footprint)
        return replace(foreign, history=tuple(history[-HISTORY:]))

    def absent_removals(self, state: DeltaState, foreign: DeltaState) -> tuple[str, ...]:
        """Returns the paths of such files: they are not in the table, or have another deletion vector."""
        if state.snapshot is None or not foreign.history or foreign.history[-1].version != state.version + 1:
            return ()
        present = ((each, state.snapshot.files.get(each.path)) for each in foreign.history[-1].removals)
        return tuple(each.path for each, file in present if file is None or file.key != each.key)

    def files_after(self, state: DeltaState, kept: object = None) -> FilesAfter:
        """Returns the checkpoint of the version, if it should have one, its checksum file, and the hint."""
        snapshot = state.snapshot
        if snapshot is None or not has_checkpoint(snapshot):
            return FilesAfter()
        before = kept if isinstance(kept, StoredCheckpoint) else None
        runs_before = NO_RUNS if before is None else before.runs
        checkpoint, hint, runs = checkpoint_files(snapshot, state.time_us // 1000, runs_before)
        checksum = NewFile(checksum_path(state.version), checksum_file(snapshot, state.uuid))
        stored = StoredCheckpoint(checkpoint[-1].path, runs) if runs else None
        relies_on = "" if before is None or not runs else before.path
        return FilesAfter((*checkpoint, checksum, hint), stored, relies_on, checkpoint[-1].path)

    def check_writable(self, state: DeltaState, where: str = "") -> None:
        """Raises `InvalidError` if the table has features that this release can't write.

        Raises `DamagedError` if files of its log are gone.
        """
        if state.snapshot is None:
            message = f"commits that version {state.version} needs are gone, and no checkpoint has them"
            raise DamagedError(message, where=where, hint=_GONE)
        check_committable(state.snapshot.protocol, state.snapshot.metadata, where)
        if ROW_TRACKING in writer_features(state.snapshot.protocol):
            high_water_mark(state.snapshot)

    def grouping_rule(self, state: DeltaState | None) -> GroupingRule:
        """Returns the rule: proposals share a version that only add and remove files, and replace nothing."""
        del state
        return lambda entry: sharing_of(proposed(entry))

    def replaying(self, recorded: RecordedVersion) -> ReplayingDelta:
        """Returns the format as it judges the entries of a version again."""
        return ReplayingDelta(recorded)

    def differences(self, stored: bytes, folded: bytes, where: str = "") -> list[Difference]:
        """Returns how two commits of a version differ, line by line."""
        del where
        ours, theirs = stored.splitlines(), folded.splitlines()
        differences = [
            Difference(f"line {number}", str(left), str(right))
            for number, (left, right) in enumerate(zip(ours, theirs, strict=False), 1)
            if left != right
        ]
        if len(ours) != len(theirs):
            differences.append(Difference("lines", str(len(ours)), str(len(theirs))))
        return differences

    def draft(self, state: DeltaState | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> DeltaDraft:
        """Begins the version after `state`."""
        del entries
        return DeltaDraft(state, fetched)


def _times(state: DeltaState | None, entries: Sequence[Entry]) -> frozenset[str]:
    """Returns the commit before the first one that has to say its time: it must not be earlier."""
    if state is None or state.snapshot is None or state.snapshot.in_commit_ms is not None:
        return frozenset()
    proposed_metadata = (proposed(entry).metadata for entry in entries)
    metadata = (state.snapshot.metadata, *(each for each in proposed_metadata if each is not None))
    begins = any(each.is_on(COMMIT_TIMES) for each in metadata)
    return frozenset({commit_path(state.version)} if begins else ())


def _vectors(state: DeltaState, proposal: DeltaTableProposal) -> Iterable[str]:
    """Returns the files of deletion vectors that it takes to fold a proposal which changes rows of files."""
    files = {} if state.snapshot is None else state.snapshot.files
    return vectors_to_read(proposal, files.get, state.since(proposal.read_version))


def _latest(recorded: bytes) -> int:
    """Returns when the commit before a recorded one was stored at the latest, by the time that this one says.

    It is in microseconds since 1970, 0 if the commit says no time.
    """
    info = next(parse_actions(recorded[: head_length(recorded)]), None)
    at = info.in_commit_ms if isinstance(info, CommitInfo) else None
    return 0 if at is None else (at - 1) * 1000


class ReplayingDelta(DeltaFormat):
    """The format as it judges the entries of a version again, whose answers are known; see `ReplayingFormat`.

    A version does not record which sizes of files it saw. An entry that is in the table passed, so its files
    are not checked again: they may have been cleaned up since. For one that was refused the store is asked as
    it is now. If that does not give the same refusal, and the refusal names one of the files, the cause may
    be gone.
    """

    def __init__(self, recorded: RecordedVersion) -> None:
        self.recorded = recorded
        self.undecided: set[int] = set()
        self.unlike: set[int] = set()
        self.accepted: set[int] = set()

    def draft(self, state: DeltaState | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> DeltaDraft:
        """Begins the version after `state`, with the answers that were given then."""
        del entries
        return ReplayedDraft(state, self, fetched.contents)


class ReplayedDraft(DeltaDraft):
    """The version in the making, with the answers that were given when it was made first."""

    def __init__(
        self,
        state: DeltaState | None,
        replaying: ReplayingDelta,
        contents: Mapping[str, bytes | None],
    ) -> None:
        times = {} if state is None else {commit_path(state.version): _latest(replaying.recorded.data)}
        super().__init__(state, Fetched(contents=contents, times=times))
        self._replaying = replaying
        self._contents = contents

    def add(self, entry: Entry) -> Accepted | Duplicate | Rejected | Invalid | None:
        """Judges the entry on what the fold saw then, as far as that is known."""
        offset = entry.position.offset
        answer = self._replaying.recorded.answers.get(offset)
        if answer is None or isinstance(answer, Committed | Tagged | Duplicate):
            self._fetched = Fetched(contents=self._contents)
            return super().add(entry)
        if offset in self._replaying.recorded.given:
            return answer
        paths = frozenset(proposed(entry).files)
        verdict: Accepted | Duplicate | Rejected | Invalid | None = None
        around = sorted(needs_around(entry.envelope.table).neighbours) if self._state is None else ()
        for fetched in (
            *(Fetched(neighbours={neighbour}) for neighbour in around),
            Fetched(sizes=dict.fromkeys(paths)),
            Fetched(sizes=self._replaying.recorded.sizes(paths)),
            Fetched(),
        ):
            self._fetched = replace(fetched, contents=self._contents)
            verdict = super().add(entry)
            if (verdict.shortened() if isinstance(verdict, Invalid) else verdict) == answer:
                return verdict
            if isinstance(verdict, Accepted):
                self._replaying.accepted.add(offset)
                break
        names_a_file = isinstance(answer, Invalid) and any(path in answer.message for path in paths)
        (self._replaying.undecided if names_a_file else self._replaying.unlike).add(offset)
        return verdict
