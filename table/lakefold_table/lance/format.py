"""Lance as a table format: what the fold calls (see `lakefold_table.format`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Conflict, Entry, Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.format import NO_FILES, FilesAfter, Requirements, VersionHead, VersionSummary
from lakefold_table.lance.combine_transactions import grouping_rule_after
from lakefold_table.lance.conflicts import OLDEST_READ_VERSION, History
from lakefold_table.lance.conflicts.transaction_footprint import PLAIN
from lakefold_table.lance.differences import differences
from lakefold_table.lance.draft import LanceDraft
from lakefold_table.lance.indexing.reuse import needs_of_section
from lakefold_table.lance.kinds import Kind, kind_of
from lakefold_table.lance.manifests.codec import (
    decode_file,
    decode_head,
    head_length,
    head_transaction,
    index_section,
    transaction_of,
)
from lakefold_table.lance.manifests.features import check_writable
from lakefold_table.lance.manifests.memory_cost import memory_to_fold
from lakefold_table.lance.manifests.naming import (
    DETACHED_BIT,
    SUFFIX,
    VERSIONS,
    Scheme,
    detect,
    transaction_path,
    version_of,
)
from lakefold_table.lance.new_files import may_be_known_by_files, read_of
from lakefold_table.lance.old_releases import check_up_to_date
from lakefold_table.lance.operations import carried_rows, read_rows
from lakefold_table.lance.operations.rules import RULES
from lakefold_table.lance.proposal import (
    NAME,
    OPERATIONS,
    LanceProposal,
    parse_large,
    proposal_of,
    unknown_operation,
)
from lakefold_table.lance.proposal_footprint import (
    affected_rows,
    known_version,
    proposed_footprint,
    published_footprint,
)
from lakefold_table.lance.recorded_draft import ReplayInputs
from lakefold_table.lance.refs.files import REFS
from lakefold_table.lance.state import LanceState, state_of
from lakefold_table.lance.version_links import keeps_metadata, restored_by, transaction_uuid
from lakefold_table.marks.marks import digest_of_marks
from lakefold_table.roots import below
from lakefold_table.version_names import ManifestNaming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Fetched, Files, RecordedVersion
    from lakefold_table.lance.conflicts import Footprint
    from lakefold_table.lance.manifests.plain_append import Plain
"""The operations that keep the index section as it is, or drop all of it."""


class LanceFormat:
    """The format's rules. `transaction_files`: as `transaction_file` of each `LanceDraft`."""

    name = NAME
    folder = VERSIONS
    first_version = 1
    operations = OPERATIONS
    is_data_name = None
    manifests = ManifestNaming(VERSIONS, SUFFIX, version_of, DETACHED_BIT)
    refs = REFS
    unknown_kind = staticmethod(unknown_operation)
    parse_large = staticmethod(parse_large)
    memory_to_fold = staticmethod(memory_to_fold)
    head_length = staticmethod(head_length)
    detect = staticmethod(detect)
    grouping_rule = staticmethod(grouping_rule_after)
    differences = staticmethod(differences)

    def __init__(self, *, transaction_files: bool = True) -> None:
        self.transaction_files = transaction_files

    def proposal(self, envelope: Envelope) -> LanceProposal | None:
        """Returns the Lance transaction in an envelope, or None."""
        return LanceProposal.of(envelope) if envelope.HasField("lance") else None

    def head(self, start: bytes) -> VersionHead | None:
        """Returns the uuid and the properties of the transaction that a committer writes first."""
        transaction = head_transaction(start)
        if transaction is None:
            return None
        return VersionHead(transaction.uuid, transaction.transaction_properties)

    def decode(
        self,
        path: str,
        data: bytes,
        uri: str = "",
        files: Files = NO_FILES,
        like: LanceState | None = None,
    ) -> LanceState:
        """Returns the state in the manifest file at `path`.

        Raises `DamagedError` if the bytes are not what the format says or name another version than the path,
        `InvalidError` if the table uses features that a reader must know and this release doesn't. `files`:
        that which `LanceState.missing_files` names. `like`: another version; what is the same in both is
        shared, which makes decoding faster.
        """
        where = below(uri, path)
        file = decode_file(data, where, whole=False, like=None if like is None else like.fragments)
        if file.transaction is None:
            file = replace(file, transaction=_transaction_in(files, file.head))
        return state_of(file, _scheme(path, file.head.version, where), where)

    def summarize(self, path: str, data: bytes, uri: str = "", files: Files = NO_FILES) -> VersionSummary:
        """Returns what the version in the manifest file at `path` did. Raises as `decode` does."""
        where = below(uri, path)
        head, own = decode_head(data, where)
        own = _transaction_in(files, head) if own is None else own
        _scheme(path, head.version, where)
        is_missing = own is None and bool(head.transaction_file)
        missing = (transaction_path(head.transaction_file),) if is_missing else ()
        footprint = published_footprint(own, index_section(data, head, where), head)
        properties = {} if own is None else dict(own.transaction_properties)
        kind = footprint.kind
        return VersionSummary(
            head.version,
            kind.value,
            properties,
            kind is Kind.CLONE,
            footprint,
            missing,
            keeps_metadata(own),
            restored_by(own),
            transaction_uuid(own, head.transaction_file),
            digest_of_marks(head.table_metadata),
        )

    def check_writable(self, state: LanceState, where: str = "") -> None:
        """Raises `InvalidError` if the table uses features that a writer must know and this release doesn't.

        It also raises this if an old release of Lance left something in it that only Lance can complete.
        """
        check_writable(state.head, where)
        check_up_to_date(state, where)

    def requirements(self, state: LanceState | None, entries: Sequence[Entry]) -> Requirements:
        """Returns what the operations of these entries need, and what is needed for old read versions."""
        each = [(entry, proposal_of(entry)) for entry in entries]
        plain = [proposal.plain for _, proposal in each if proposal.plain is not None]
        usual = _needs_of_plain(state, plain)
        if state is not None:
            details = needs_of_section(state.head, state.index_section)
            usual = Requirements.all_of([usual, details]) if details.contents else usual
        if state is not None and state.history.latest.get(Kind.REWRITE):
            usual = Requirements.all_of([usual, _needs_of_repeats(state, entries)])
        if len(plain) == len(entries):
            return usual
        if state is not None:
            state = replace(state, fragments=state.fragments.opened())
        listed = {
            entry.position: proposal.packed.paths() for entry, proposal in each if proposal.packed is not None
        }
        others = [proposal.envelope for _, proposal in each if proposal.plain is None]
        needed = Requirements.all_of(
            RULES[kind].needs(state, envelope)
            for envelope in others
            if (kind := kind_of(envelope.lance)) in RULES
        )
        needs = [usual, replace(needed, listed=listed)]
        if state is not None:
            needs.append(_needs_to_judge(state, others))
            needs += _needs_to_carry(state, others)
            needs += [read_rows.needs(state, envelope) for envelope in others if envelope.reads.rows]
        return Requirements.all_of(needs)

    def with_history(self, state: LanceState, older: Iterable[VersionSummary]) -> LanceState:
        """Returns the state with the history of older versions, the newest first.

        They are the versions right before its history began.

        A clone has no versions before its first version, whatever the number of that is.
        """
        known = takewhile(lambda summary: not summary.begins_clone, older)
        steps = ((summary.version, cast("Footprint", summary.footprint)) for summary in known)
        return replace(state, history=state.history.detailed(steps))

    def follow_foreign(
        self, state: LanceState, foreign: LanceState, between: Sequence[VersionSummary] = ()
    ) -> LanceState:
        """Returns the foreign version that came after `state`, with the history of operations carried on."""
        history, newest = state.history, state.version
        steps = [(summary.version, cast("Footprint", summary.footprint)) for summary in between]
        did = published_footprint(foreign.transaction, foreign.index_section, foreign.head)
        for version, footprint in (
            *steps,
            (foreign.version, did),
        ):
            follows = version == newest + 1
            history = history.extended(version, footprint) if follows else History(version, {}, version)
            newest = version
        files = state.files.followed_by_foreign(state.fragments, foreign.fragments, foreign.head.base_paths)
        return replace(foreign, history=history, files=files)

    def absent_removals(self, state: LanceState, foreign: LanceState) -> tuple[str, ...]:
        """Returns nothing: a version of Lance's names the fragments that it has, so none is there twice."""
        del state, foreign
        return ()

    def files_after(self, state: LanceState, kept: object = None) -> FilesAfter:
        """Returns none: a version's file has the whole table."""
        del state, kept
        return FilesAfter()

    def replaying(self, recorded: RecordedVersion) -> ReplayingLance:
        """Returns the format as it judges the entries of a version that it made before."""
        return ReplayingLance(recorded)

    def draft(self, state: LanceState | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> LanceDraft:
        """Returns the draft of the version after `state`."""
        return LanceDraft(state, fetched, entries, transaction_file=self.transaction_files)


class ReplayingLance(LanceFormat):
    """See `ReplayingFormat`."""

    def __init__(self, recorded: RecordedVersion) -> None:
        super().__init__()
        self._replay = ReplayInputs(recorded, self.decode, self.requirements)
        self.undecided = self._replay.undecided
        self.unlike = self._replay.unlike
        self.accepted = self._replay.accepted

    def draft(self, state: LanceState | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> LanceDraft:
        """Begins the version after `state`."""
        return self._replay.draft(state, fetched, entries)


def _transaction_in(files: Files, head: Manifest) -> Transaction | None:
    """Returns the transaction in the file of its own that a manifest names, if that is among the files."""
    return transaction_of(files.get(transaction_path(head.transaction_file)))


def _scheme(path: str, version: int, where: str) -> Scheme:
    """Returns the scheme in which the file's name is that of this version.

    Raises `DamagedError` if there is none.
    """
    name = path.rpartition("/")[2]
    scheme = Scheme.of(name, version)
    if scheme is None:
        raise DamagedError(f"the manifest says that it is version {version}", where=where)
    return scheme


def _needs_of_plain(state: LanceState | None, plain: Sequence[Plain]) -> Requirements:
    """Returns the files of usual Appends, and what `_needs_to_judge` returns for others."""
    sizes, unknown_sizes = (
        frozenset(append.path for append in plain),
        frozenset(append.path for append in plain if not append.size),
    )
    if state is None:
        return Requirements(sizes, unknown_sizes=unknown_sizes)
    reads = {append.read_version for append in plain}
    history, oldest = state.history, max(1, state.version - OLDEST_READ_VERSION)
    old, ours = [read for read in reads if oldest <= read < state.version], PLAIN[Kind.APPEND]
    since = [
        read for read in old if read < history.since or history.needs_details(ours.kind, read) is not None
    ]
    before = [read for read in old if read < history.schema_since]
    schemas = frozenset(read for read in before if not isinstance(history.verdict(ours, read), Conflict))
    return Requirements(
        sizes, schemas=schemas, operations_since=min(since, default=None), unknown_sizes=unknown_sizes
    )


def _needs_of_repeats(state: LanceState, entries: Sequence[Entry]) -> Requirements:
    """Returns which Rewrites must be known to recognise repeats without app ids by their files."""
    oldest = max(1, state.version - OLDEST_READ_VERSION)
    reads = {read_of(entry) for entry in entries if may_be_known_by_files(entry)}
    since = [read for read in reads if read >= oldest and state.history.needs_rewrites(read)]
    return Requirements(operations_since=min(since, default=None))


def _needs_to_judge(state: LanceState, envelopes: Sequence[Envelope]) -> Requirements:
    """Returns what older versions did, and their schemas, if proposals are so old that these are needed."""
    history, oldest = state.history, max(1, state.version - OLDEST_READ_VERSION)
    schemas: set[int] = set()
    since: list[int] = []
    checked: set[tuple[Kind, int]] = set()
    for envelope in envelopes:
        read = known_version(envelope.lance)
        if not oldest <= read < state.version:
            continue
        kind = kind_of(envelope.lance)
        if (kind, read) not in checked:
            checked.add((kind, read))
            if read < history.since or history.needs_details(kind, read) is not None:
                since.append(read)
        if read < history.schema_since and read not in schemas:
            rows = affected_rows(envelope)
            footprint = proposed_footprint(envelope, None if isinstance(rows, Invalid) else rows, state.head)
            refused = isinstance(history.verdict(footprint, read), Conflict)
            if not refused or history.carried(footprint, read):
                schemas.add(read)
    return Requirements(schemas=frozenset(schemas), operations_since=min(since, default=None))


def _needs_to_carry(state: LanceState, envelopes: Sequence[Envelope]) -> Iterator[Requirements]:
    """Yields what is needed to follow rows that Rewrites moved since a Delete or an Update was built."""
    for envelope in envelopes:
        read, kind = known_version(envelope.lance), kind_of(envelope.lance)
        if kind not in {Kind.DELETE, Kind.UPDATE} or not state.history.rewritten_since(read or state.version):
            continue
        if not envelope.affected_rows:
            continue
        # Which rows they are makes no difference here, and decoding those of a hundred fragments takes time.
        rows = dict.fromkeys(envelope.affected_rows, Bitmap())
        rewrites = state.history.carried(proposed_footprint(envelope, rows, state.head), read)
        if rewrites:
            yield carried_rows.needs(state, envelope, rewrites)
