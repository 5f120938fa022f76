"""Lance as a table format: what the fold calls (see `lakefold_table.format`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from lakefold_table.entry import Conflict, Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements, VersionSummary
from lakefold_table.lance.carrying import keeps_metadata, restored_by, transaction_uuid
from lakefold_table.lance.combine_transactions import grouping_rule_after
from lakefold_table.lance.conflicts import OLDEST_READ_VERSION, History
from lakefold_table.lance.conflicts.reading import PLAIN
from lakefold_table.lance.draft import LanceDraft
from lakefold_table.lance.indexing.reuse import needs_of_section
from lakefold_table.lance.manifests.codec import decode_file, decode_head, index_section, transaction_of
from lakefold_table.lance.manifests.features import check_writable
from lakefold_table.lance.manifests.naming import VERSIONS, Scheme, detect, transaction_path
from lakefold_table.lance.new_files import may_be_known_by_files, read_of
from lakefold_table.lance.old_releases import check_up_to_date
from lakefold_table.lance.operations import Kind, kind_of
from lakefold_table.lance.operations.rules import RULES
from lakefold_table.lance.proposal_footprint import (
    affected_rows,
    known_version,
    proposed_footprint,
    published_footprint,
)
from lakefold_table.lance.state import LanceState, state_of
from lakefold_table.marks.marks import digest_of_marks
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_table.entry import Entry
    from lakefold_table.format import Fetched, GroupingRule
    from lakefold_table.lance.conflicts import Footprint
    from lakefold_table.lance.manifests.plain import Plain

LEAVING_INDICES = frozenset(
    {
        Kind.APPEND,
        Kind.RESERVE_FRAGMENTS,
        Kind.OVERWRITE,
        Kind.RESTORE,
        Kind.CLONE,
        Kind.UPDATE_BASES,
        Kind.UPDATE_CONFIG,
    }
)
"""The operations that take the index section as it is, or drop it whole."""


class LanceFormat:
    """The format's rules. `transaction_files`: as `transaction_file` of each `LanceDraft`."""

    folder = VERSIONS

    def __init__(self, *, transaction_files: bool = True) -> None:
        self.transaction_files = transaction_files

    def detect(self, names: Iterable[str]) -> Scheme | None:
        """The naming that the file names in `folder` follow, None where no version is among them."""
        return detect(names)

    def decode(
        self,
        path: str,
        data: bytes,
        uri: str = "",
        transaction: bytes | None = None,
        like: LanceState | None = None,
    ) -> LanceState:
        """The state that the manifest file at `path` holds.

        Raises `DamagedError` where the bytes are not what the format says or name another version than the
        path, `InvalidError` if the table uses features that a reader must know and this release doesn't.
        `transaction`: the content of the file that `LanceState.transaction_file` names. `like`: another
        version; what is the same in both is shared, which makes decoding faster.
        """
        where = below(uri, path)
        file = decode_file(data, where, whole=False, like=None if like is None else like.fragments)
        if file.transaction is None:
            file = replace(file, transaction=transaction_of(transaction))
        return state_of(file, _scheme(path, file.head.version, where), where)

    def summarize(
        self, path: str, data: bytes, uri: str = "", transaction: bytes | None = None
    ) -> VersionSummary:
        """Returns what the version in the manifest file at `path` did. Raises as `decode` does."""
        where = below(uri, path)
        head, own = decode_head(data, where)
        own = transaction_of(transaction) if own is None else own
        _scheme(path, head.version, where)
        transaction_file = transaction_path(head.transaction_file) if own is None else ""
        footprint = published_footprint(own, index_section(data, head, where))
        properties = {} if own is None else dict(own.transaction_properties)
        kind = footprint.kind
        return VersionSummary(
            head.version,
            kind.value,
            properties,
            kind is Kind.CLONE,
            footprint,
            transaction_file,
            keeps_metadata(own),
            restored_by(own),
            transaction_uuid(own, head.transaction_file),
            digest_of_marks(head.table_metadata),
        )

    def check_writable(self, state: LanceState, where: str = "") -> None:
        """Raises `InvalidError` where the table uses features that a writer must know and we don't.

        Also where an old release of Lance left something in it that only Lance can bring up to date.
        """
        check_writable(state.head, where)
        check_up_to_date(state, where)

    def requirements(self, state: LanceState | None, entries: Sequence[Entry]) -> Requirements:
        """What the operations of these entries ask for, and what is needed to judge old read versions."""
        plain = [entry.plain for entry in entries if entry.plain is not None]
        usual = _needs_of_plain(state, plain)
        if state is not None and state.history.latest.get(Kind.REWRITE):
            usual = Requirements.all_of([usual, _needs_of_repeats(state, entries)])
        if len(plain) == len(entries):
            return usual
        if state is not None:
            state = replace(state, fragments=state.fragments.opened())
        others = [entry for entry in entries if entry.plain is None]
        listed = {entry.position: entry.packed.paths() for entry in others if entry.packed is not None}
        asked = Requirements.all_of(
            RULES[kind].needs(state, entry.envelope)
            for entry in others
            if (kind := kind_of(entry.envelope.lance)) in RULES
        )
        needs = [usual, replace(asked, listed=listed)]
        if state is not None:
            needs += [_needs_to_judge(state, others), _needs_of_indices(state, others)]
        return Requirements.all_of(needs)

    def with_history(self, state: LanceState, older: Iterable[VersionSummary]) -> LanceState:
        """The state with what older versions did: those right before its history began, newest first.

        A clone has no versions before the one that it begins with, whatever that one's number.
        """
        known = takewhile(lambda one: not one.begins_clone, older)
        steps = ((one.version, cast("Footprint", one.footprint)) for one in known)
        return replace(state, history=state.history.detailed(steps))

    def follow_foreign(
        self, state: LanceState, foreign: LanceState, between: Sequence[VersionSummary] = ()
    ) -> LanceState:
        """The foreign version that came after `state`, with the history of operations carried on."""
        history, newest = state.history, state.version
        steps = [(one.version, cast("Footprint", one.footprint)) for one in between]
        did = published_footprint(foreign.transaction, foreign.index_section)
        for version, footprint in (
            *steps,
            (foreign.version, did),
        ):
            follows = version == newest + 1
            history = history.extended(version, footprint) if follows else History(version, {}, version)
            newest = version
        files = state.files.followed_by_foreign(state.fragments, foreign.fragments, foreign.head.base_paths)
        return replace(foreign, history=history, files=files)

    def grouping_rule(self, state: LanceState | None) -> GroupingRule:
        """Returns the rule by which entries may share the version after `state`."""
        return grouping_rule_after(state)

    def draft(self, state: LanceState | None, observed: Fetched, entries: Sequence[Entry] = ()) -> LanceDraft:
        """Begins the version after `state`."""
        return LanceDraft(state, observed, entries, transaction_file=self.transaction_files)


def _scheme(path: str, version: int, where: str) -> Scheme:
    """The scheme by which the file's name stands for this version. Raises `DamagedError` where it doesn't."""
    name = path.rpartition("/")[2]
    scheme = Scheme.of(name, version)
    if scheme is None:
        raise DamagedError(f"the manifest says that it is version {version}", where=where)
    return scheme


def _needs_of_indices(state: LanceState, entries: Sequence[Entry]) -> Requirements:
    """What the table's indices can't be read without, where an operation must read them."""
    kinds = {kind_of(entry.envelope.lance) for entry in entries}
    return needs_of_section(state.head, state.index_section) if kinds - LEAVING_INDICES else Requirements()


def _needs_of_plain(state: LanceState | None, plain: Sequence[Plain]) -> Requirements:
    """The sizes of the files of usual Appends, and what `_needs_to_judge` says of others."""
    sizes, unsaid = frozenset(one.path for one in plain), frozenset(one.path for one in plain if not one.size)
    if state is None:
        return Requirements(sizes, unsaid=unsaid)
    reads = {one.read_version for one in plain}
    history, oldest = state.history, max(1, state.version - OLDEST_READ_VERSION)
    old, ours = [read for read in reads if oldest <= read < state.version], PLAIN[Kind.APPEND]
    since = [
        read for read in old if read < history.since or history.needs_details(ours.kind, read) is not None
    ]
    before = [read for read in old if read < history.schema_since]
    schemas = frozenset(read for read in before if not isinstance(history.verdict(ours, read), Conflict))
    return Requirements(sizes, schemas=schemas, operations_since=min(since, default=None), unsaid=unsaid)


def _needs_of_repeats(state: LanceState, entries: Sequence[Entry]) -> Requirements:
    """Which files Rewrites replaced since entries without app ids were built, by which repeats are known."""
    oldest = max(1, state.version - OLDEST_READ_VERSION)
    reads = {read_of(entry) for entry in entries if may_be_known_by_files(entry)}
    since = [read for read in reads if read >= oldest and state.history.needs_rewrites(read)]
    return Requirements(operations_since=min(since, default=None))


def _needs_to_judge(state: LanceState, entries: Sequence[Entry]) -> Requirements:
    """What older versions did, and their schemas, where proposals are so old that it is asked for."""
    history, oldest = state.history, max(1, state.version - OLDEST_READ_VERSION)
    schemas: set[int] = set()
    since: list[int] = []
    told: set[tuple[Kind, int]] = set()
    for entry in entries:
        read = known_version(entry.envelope.lance)
        if not oldest <= read < state.version:
            continue
        kind = kind_of(entry.envelope.lance)
        if (kind, read) not in told:
            told.add((kind, read))
            if read < history.since or history.needs_details(kind, read) is not None:
                since.append(read)
        if read < history.schema_since and read not in schemas:
            rows = affected_rows(entry.envelope)
            footprint = proposed_footprint(
                entry.envelope, None if isinstance(rows, Invalid) else rows, state.schema
            )
            if not isinstance(history.verdict(footprint, read), Conflict):
                schemas.add(read)
    return Requirements(schemas=frozenset(schemas), operations_since=min(since, default=None))
