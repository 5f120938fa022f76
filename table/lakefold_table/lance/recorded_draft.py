"""A draft that knows the answers of a version, to fold again what was folded long ago.

The fold checks the sizes of new files, and no version records these. An accepted entry has passed the check,
so its files are not checked again: they may have been cleaned up since. Facts that the entry left out and the
version took from the store (sizes, the files and the kind of an index) are taken from the version. For a
refused entry several assumptions are tried: that the file doesn't exist, is as it is now, or isn't checked;
that a base which the refusal names is outside of the roots, which no version records either; or, if the entry
begins a table, that another table exists at the path that the refusal names. If no assumption gives the same
refusal, the refusal is taken from the record, and its offset is in `undecided`, or in `unlike` if no file can
have been the cause.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Rejected, Tagged
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.format import Accepted, Fetched, RecordedVersion, Requirements
from lakefold_table.lance.draft import LanceDraft
from lakefold_table.lance.manifests.codec import decode_head
from lakefold_table.lance.proposal import LanceProposal, proposal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_table.lance.state import LanceState
    from lakefold_table.position import Position


class ReplayInputs:
    """What is known of a version that is folded again; see `RecordedVersion` and `ReplayingFormat`.

    `decode`: the state that a version's file holds; `requirements`: as of the format.
    """

    def __init__(
        self,
        recorded: RecordedVersion,
        decode: Callable[[str, bytes, str], LanceState],
        requirements: Callable[[LanceState | None, Sequence[Entry]], Requirements],
    ) -> None:
        self.answers, self.given, self.sizes_now = recorded.answers, recorded.given, recorded.sizes
        self.requirements = requirements
        self._recorded = recorded
        self._decode = decode
        self.undecided: set[int] = set()
        self.unlike: set[int] = set()
        self.accepted: set[int] = set()

    @cached_property
    def names_transaction_file(self) -> bool:
        """Whether the version has its transaction in a file of its own too, which a setting decides.

        True if the version's file can't be read: then it differs, whatever it named.
        """
        try:
            return bool(decode_head(self._recorded.data)[0].transaction_file)
        except DamagedError:
            return True

    @cached_property
    def sizes_in_version(self) -> Mapping[str, int]:
        """The sizes of data files that the version records, by path."""
        return {} if self._stored is None else self._stored.file_sizes()

    @cached_property
    def indices_in_version(self) -> Mapping[bytes, IndexMetadata]:
        """The indices as the version has them, by uuid."""
        stored = self._stored
        indices = () if stored is None else IndexSection.FromString(stored.index_section).indices
        return {index.uuid.uuid: index for index in indices}

    @cached_property
    def _stored(self) -> LanceState | None:
        """The version as it is stored, None if it can't be decoded."""
        recorded = self._recorded
        try:
            return self._decode(recorded.path, recorded.data, recorded.uri)
        except (DamagedError, InvalidError):
            return None

    def draft(self, state: LanceState | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> LanceDraft:
        """Begins the version after `state`."""
        del entries
        sizes: dict[str, int | None] = {}
        outside: set[str] = set()
        neighbours: set[str] = set()
        listed: dict[Position, array[int]] = {}
        seen = Fetched(
            sizes,
            fetched.contents,
            fetched.schemas,
            fetched.states,
            listed,
            outside,
            neighbours=neighbours,
        )
        return _Draft(self, state, seen, _Seen(sizes, listed, outside, neighbours))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The facts from the store that may differ from entry to entry."""

    sizes: dict[str, int | None]
    listed: dict[Position, array[int]]
    outside: set[str]
    neighbours: set[str]


class _Draft(LanceDraft):
    """The draft of one version that is folded again. `seen`: the facts in `fetched`."""

    def __init__(
        self,
        replaying: ReplayInputs,
        state: LanceState | None,
        fetched: Fetched,
        seen: _Seen,
    ) -> None:
        super().__init__(state, fetched, transaction_file=replaying.names_transaction_file)
        self._replaying, self._before, self._seen = replaying, state, seen

    def _may_join(self, entry: Entry) -> bool:
        """Returns whether an entry shares the version: those recorded in one version were folded together."""
        del entry
        return True

    def add(self, entry: Entry) -> Accepted | Rejected | Invalid | None:
        """Judges the entry as the fold does, by what is known of the files that the fold has seen."""
        offset = entry.position.offset
        answer = self._replaying.answers.get(offset)
        if answer is None or isinstance(answer, Committed | Tagged | Duplicate):
            self._see(self._stored_sizes(entry))
            return super().add(self._with_stored_indices(entry))
        if offset in self._replaying.given:
            return answer
        whole = proposal_of(entry).whole()
        return self._refused(replace(entry, envelope=whole.envelope, proposal=whole), answer)

    def _refused(self, entry: Entry, answer: Rejected | Invalid) -> Accepted | Rejected | Invalid | None:
        needs = self._replaying.requirements(self._before, [entry])
        variants: list[Mapping[str, int | None]] = [{}]
        if needs.sizes:
            variants = [dict.fromkeys(needs.sizes), self._replaying.sizes_now(needs.sizes), {}]
        paths = (*needs.bases, *needs.neighbours)
        named = [path for path in paths if isinstance(answer, Invalid) and path in answer.message]
        verdict: Accepted | Rejected | Invalid | None = answer
        for sizes, at in [*(({}, [path]) for path in named), *((sizes, ()) for sizes in variants)]:
            self._see(sizes, at)
            verdict = super().add(entry)
            if (verdict.shortened() if isinstance(verdict, Invalid) else verdict) == answer:
                return verdict
            if isinstance(verdict, Accepted):
                self._replaying.accepted.add(entry.position.offset)
                break
        names_a_file = isinstance(answer, Invalid) and any(
            path in answer.message or path.rpartition("/")[2] in answer.message for path in needs.sizes
        )
        reads_more = bool(needs.contents or needs.states or paths) and isinstance(answer, Invalid)
        differing = self._replaying.undecided if names_a_file or reads_more else self._replaying.unlike
        differing.add(entry.position.offset)
        return verdict

    def _stored_sizes(self, entry: Entry) -> Mapping[str, int | None]:
        """Returns the sizes that an entry of the version left out and the version records."""
        proposal = proposal_of(entry)
        if proposal.plain is not None and proposal.plain.size:
            return {}
        packed = proposal.packed
        if packed is not None and 0 in packed.sizes:
            stored, paths = self._replaying.sizes_in_version, chain.from_iterable(packed.paths())
            sizes = [size or stored.get(path, 0) for size, path in zip(packed.sizes, paths, strict=True)]
            self._seen.listed[entry.position] = array("q", sizes)
        unknown_sizes = self._replaying.requirements(self._before, [entry]).unknown_sizes
        if not unknown_sizes:
            return {}
        stored = self._replaying.sizes_in_version
        return {path: size for path in unknown_sizes if (size := stored.get(path))}

    def _with_stored_indices(self, entry: Entry) -> Entry:
        """Returns the entry with what its new indices left out and the version records."""
        if proposal_of(entry).operation != "create_index":
            return entry
        envelope = type(entry.envelope)()
        proposal = proposal_of(entry)
        envelope.CopyFrom(proposal.envelope)
        for index in envelope.lance.create_index.new_indices:
            stored = self._replaying.indices_in_version.get(index.uuid.uuid)
            if stored is None:
                continue
            if not index.files:
                index.files.extend(stored.files)
            if not index.index_details.value and stored.HasField("index_details"):
                index.index_details.CopyFrom(stored.index_details)
        return replace(entry, envelope=envelope, proposal=LanceProposal(envelope, as_sent=proposal.as_sent))

    def _see(self, sizes: Mapping[str, int | None], at: Collection[str] = ()) -> None:
        """Notes what the store held, for the next entry.

        `at`: paths outside of the roots, or of other tables.
        """
        self._seen.sizes.clear()
        self._seen.sizes.update(sizes)
        for paths in (self._seen.outside, self._seen.neighbours):
            paths.clear()
            paths.update(at)
