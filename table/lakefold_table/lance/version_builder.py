"""A table on its way to its next version: operations read it, and their changes are applied in order.

Many entries share a version, so nothing is encoded before all are in. An operation sees what the entries
before it have changed.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, IndexSection, Manifest
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.combine_transactions import DELETE
from lakefold_table.lance.indexing.indices import SIFTING, coverage, without_idle
from lakefold_table.lance.indexing.reuse import (
    is_outdated,
    remapped,
    reuse_of_section,
    versions_of,
    without_reuse,
)
from lakefold_table.lance.manifests.chunks import Chunk, index_of
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.manifests.fragments import PORTION, Fragments, Numbered
from lakefold_table.lance.manifests.live_files import BasePrefixes, LiveFiles, file_key, prefixes_of
from lakefold_table.lance.new_files import NewFiles
from lakefold_table.lance.rows.deletions import deletion_path
from lakefold_table.lance.rows.numbering import Numbering
from lakefold_table.lance.schemas.columns import Columns, columns_of, some
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS, FileVersion
from lakefold_table.lance.schemas.fragment_files import (
    new_files,
    shared_file_fault,
    with_sizes,
    without_dropped_fields,
)
from lakefold_table.lance.validity import file_fault, new_fragment_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_table.format import Fetched, NewFile
    from lakefold_table.lance.change import TableChange
    from lakefold_table.lance.manifests.packed_append import Packed
    from lakefold_table.lance.manifests.plain_append import Plain
    from lakefold_table.lance.state import LanceState


class VersionBuilder:
    """The table as the next entry sees it. Only `take` and `create` change it.

    `head` is the manifest without fragments, `version` the number of the next version. `new`: the fragments
    added by the entries before, `proposed`: each of them as its entry proposed it, encoded. `packed`:
    fragments of the first entry that are kept in that form and are not in `new`. `before`: the files to write
    before the version is published, by path. `sizes`: those of the files that the next entry adds, as
    fetched.
    """

    def __init__(self, state: LanceState | None, fetched: Fetched) -> None:
        self.fetched = fetched
        self.sizes = fetched.sizes
        self.head = Manifest() if state is None else state.head
        self.version = 1 if state is None else state.version + 1
        self.file_version = None if state is None else state.file_version
        self.columns = columns_of((), None) if state is None else state.columns
        self.new: list[Numbered] = []
        self.proposed: list[bytes] = []
        self.packed: Packed | None = None
        self._chunks: Sequence[Chunk] = ()
        self.before: dict[str, NewFile] = {}
        self.new_file_versions: set[FileVersion] = set()
        self._index_section = self._stored_section = b"" if state is None else state.index_section
        self._indices: Sequence[IndexMetadata] | None = None
        self._sifted: Sequence[IndexMetadata] | None = None
        self._live = self._stored = Fragments() if state is None else state.fragments
        self._opened = self._live.opened()
        self._files_before = LiveFiles.of(self._live, ()) if state is None else state.files
        self._files = NewFiles(self._files_before, self._fragment)
        self._read: dict[int, DataFragment] = {}
        self._replaced: dict[int, DataFragment] = {}
        self._removed: set[int] = set()
        self.numbering = self._numbering()

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows keep their id for life (flag 2)."""
        return has_stable_row_ids(self.head)

    @property
    def base_ids(self) -> frozenset[int]:
        """The ids of the other roots that files may be stored under."""
        return frozenset(base.id for base in self.head.base_paths)

    @property
    def highest_id(self) -> int | None:
        """The highest fragment id that was given so far, None if none was."""
        return self.numbering.max_id

    @property
    def indices(self) -> Sequence[IndexMetadata]:
        """The index section's entries, not to be changed.

        Their coverage includes rows that compactions moved. Raises `DamagedError` if the table's
        fragment-reuse index can't be read.
        """
        if self._indices is None:
            entries = tuple(IndexSection.FromString(self._index_section).indices)
            self._indices = remapped(self.head, entries, self.content)
        return self._indices

    @property
    def index_section(self) -> bytes:
        """The index section, encoded; empty if the table has no index."""
        return self._index_section

    def settle_indices(self) -> bool:
        """Takes an outdated fragment-reuse index away (decision 0114). Returns whether indices changed.

        One that can't be read stays as it is: every client that opens an index fails because of it.
        """
        if self.stable_row_ids:
            return False
        # As the version before left it, in which it may be outdated already, and as the entries leave it.
        sections = ((self._stored_section, self._stored.taken), (self._index_section, self.taken))
        entries = [(reuse_of_section(section), live) for section, live in sections]
        reuses = [(reuse, live) for reuse, live in entries if reuse is not None]
        if not reuses:
            return False
        try:
            read = [(versions_of(self.head, reuse, self.content), live) for reuse, live in reuses]
        except DamagedError:
            return False
        before: Sequence[IndexMetadata] = tuple(IndexSection.FromString(self._index_section).indices)
        after = before
        for versions, live in read:
            if is_outdated(versions, live):
                after = without_reuse(after, versions)
        if len(after) == len(before) and all(map(operator.is_, after, before)):
            return False
        self._indices = None
        self._take_indices(after)
        return True

    def get(self, ids: Collection[int]) -> dict[int, DataFragment]:
        """Returns those of the fragments that exist, as the entries before left them; not to be changed.

        Fragments that this version adds are not among them: no proposal can have been built on them.
        """
        read = self._read
        missing = [number for number in ids if number not in read]
        if missing:
            read.update(self._opened.get(missing))
        present = [number for number in ids if number not in self._removed and number in read]
        return {number: self._replaced.get(number) or read[number] for number in present}

    def present(self, ids: Collection[int]) -> set[int]:
        """Returns the ids that `get` would find, without decoding anything."""
        return self._live.taken(ids) - self._removed

    def each(self, ids: Iterable[int]) -> Iterator[DataFragment]:
        """Yields what `get` returns, ascending, for any number of ids. Callers must not keep fragments."""
        present = sorted(set(ids) - self._removed)
        if len(present) <= PORTION:
            yield from self.get(present).values()
            return
        for fragment in self._opened.each(present):
            yield self._replaced.get(fragment.id, fragment)

    def taken(self, ids: Collection[int]) -> set[int]:
        """Returns those of the ids that fragments have after the entries before, including new fragments."""
        live = self._live.taken(ids) - self._removed
        new = {fragment.id for fragment in self.new}.union(*(chunk.ids for chunk in self._chunks))
        return live | new.intersection(ids)

    @property
    def replaced(self) -> Mapping[int, DataFragment]:
        """The fragments that were changed and still exist, as the entries before left them."""
        return self._replaced

    def content(self, path: str) -> bytes | None:
        """Returns the bytes of a file that was fetched or that an earlier entry made, or None.

        `path`: in the table, or the whole URI of a file elsewhere.
        """
        made = self.before.get(path)
        return self.fetched.contents.get(path) if made is None else made.data

    def all(self) -> Iterable[DataFragment]:
        """Yields every fragment that exists, ascending.

        Decodes them all: for operations on the whole table.
        """
        for fragment in self._live:
            if fragment.id not in self._removed:
                yield self._replaced.get(fragment.id, fragment)

    def new_fragments_fault(
        self,
        fragments: Sequence[DataFragment],
        columns: Columns | None = None,
        *,
        dropped: frozenset[int] = frozenset(),
    ) -> Invalid | None:
        """Returns what is wrong with fragments that an entry adds, or with their fetched files, or None.

        `columns`: those that they must have, if the entry has another schema. `dropped`: fields that their
        files may hold though the table no longer has them.
        """
        bases = self.base_ids
        for fragment in fragments:
            remaining = without_dropped_fields(fragment, dropped)
            fault = new_fragment_fault(remaining, columns or self.columns, bases) or file_fault(
                fragment, self.sizes
            )
            if fault is not None:
                return fault
        return (
            shared_file_fault(fragments) or self.numbering.fault(fragments) or self._used_id_fault(fragments)
        )

    def _used_id_fault(self, fragments: Iterable[DataFragment]) -> Invalid | None:
        """Refuses ids of removed fragments that indices still cover: these would hide the new rows."""
        if not self._index_section:
            return None
        ids = Bitmap([fragment.id for fragment in fragments if fragment.id])
        if not ids:
            return None
        entries = IndexSection.FromString(self._index_section).indices
        used = Bitmap().union(*(ids & (coverage(index) or Bitmap()) for index in entries))
        if not used:
            return None
        return Invalid(
            f"fragment ids {some(set(used))} were used before: indices cover them", "reserve new ones"
        )

    @property
    def rows(self) -> int:
        """The rows before this version's changes that are not deleted, as far as deletion files say."""
        return self._live.physical_rows - self._live.deleted_rows

    def create(self, head: Manifest, file_version: FileVersion | None) -> None:
        """Gives a table that doesn't exist yet its schema and choices, before its first entry is applied."""
        self.head = head
        self.file_version = file_version
        self.columns = columns_of(head.fields, file_version)
        self.numbering = self._numbering()

    def take(self, change: TableChange) -> tuple[int, int, int]:
        """Applies a change. Returns the rows that it adds, the first id that it gives and how many ids.

        What an operation has checked can't fail here. File sizes that the proposal left out are filled in.
        """
        if change.head is not None:
            self._take_head(change.head, change.file_version)
        if change.indices is not None:
            self._take_indices(change.indices)
        if change.whole is not None:
            self._files_before = LiveFiles.of(change.whole, self.head.base_paths)
            self._files = NewFiles(self._files_before, self._fragment)
            self._live, self._replaced, self._removed, self.new = change.whole, {}, set(), []
            self._opened, self._read = self._live.opened(), {}
            self._chunks = ()
            self.numbering.continue_on(change.whole)
        if change.replaced or change.removed:
            self._replace(change)
        self.before.update((file.path, file) for file in change.before)
        self.numbering.use_row_ids(change.row_ids)
        if change.reserved:
            return 0, self.numbering.reserve(change.reserved), change.reserved
        if change.packed is None:
            added = self._add(change.added)
        else:
            added = self._add_packed(change.packed, change.held or change.packed)
        if self._index_section and change.transaction.WhichOneof("operation") in SIFTING:
            self._sift(change)
        return added

    def _sift(self, change: TableChange) -> None:
        """Drops idle segments of indices; after the first time only if a change can have made some idle."""
        done = self._sifted is not None and self._sifted is self._indices
        if not done or change.removed or change.whole is not None:
            self._take_indices(without_idle(self.indices, self.taken))
            self._sifted = self._indices

    def look_up(self, keys: Collection[str]) -> None:
        """Finds out for all of these data files at once whether fragments have them."""
        self._files.look_up(keys)

    def files_fault(self, change: TableChange) -> Invalid | None:
        """Returns why a change can't have its new data files, or None: a fragment has one already."""
        if change.whole is not None:
            return None
        if change.packed is not None:
            owner = self._files.owner_among(change.packed.hashes, change.packed.name, self._prefixes)
            return None if owner is None else _owned_fault(*owner)
        prefixes = self._prefixes
        new = [file_key(file, prefixes) for fragment in change.added for file in fragment.files]
        new += [key for key, _ in self._files_of_replaced(change)]
        self._files.look_up(new)
        checked = set[str]()
        for key in new:
            number = self._files.owner(key, prefixes)
            if number is not None:
                return _owned_fault(key, number)
            if key in checked:
                return Invalid(
                    f"data file {key} would belong to two fragments, so its rows would be in the table twice",
                    "write the rows of each fragment into files of its own",
                )
            checked.add(key)
        return None

    def live_files(self, fragments: Fragments) -> LiveFiles:
        """Returns the data files of these fragments, which are the list after all entries."""
        return self._files_before.followed(fragments, self.head.base_paths, self._files.levels)

    @property
    def _prefixes(self) -> BasePrefixes:
        return prefixes_of(self.head.base_paths)

    def _files_of_replaced(self, change: TableChange) -> Iterator[tuple[str, int]]:
        """Yields the files that existing fragments get, with the fragments' ids."""
        if not change.replaced or change.transaction.WhichOneof("operation") == DELETE:
            return
        existing = self.get(change.replaced)
        for number, after in change.replaced.items():
            before = existing[number]
            if [file.path for file in before.files] != [file.path for file in after.files]:
                prefixes = self._prefixes
                for file in new_files(before, after):
                    yield file_key(file, prefixes), number

    def _fragment(self, number: int) -> DataFragment | None:
        """Returns the fragment of this id as the entries before left it, large Appends included."""
        for chunk in self._chunks:
            at = index_of(chunk.ids, number)
            if at is not None:
                return DataFragment.FromString(chunk.records()[at])
        return self.get([number]).get(number)

    def fragments(self) -> Fragments:
        """Returns the complete list after all entries."""
        new = sorted(self.new, key=lambda fragment: fragment.id)
        replaced = {number: Numbered.of(fragment) for number, fragment in self._replaced.items()}
        if not self._chunks:
            return self._live.changed(replaced, self._removed, new)
        return self._live.changed(replaced, self._removed).followed(self._chunks).added(new)

    def _replace(self, change: TableChange) -> None:
        """Replaces fragments; deletion files that were made for replaced ones are no longer needed."""
        for number in (*change.replaced, *change.removed):
            before = self._replaced.pop(number, None)
            after = change.replaced.get(number)
            if before is None or not before.HasField("deletion_file"):
                continue
            if after is None or number in change.removed or after.deletion_file != before.deletion_file:
                self.before.pop(deletion_path(number, before.deletion_file), None)
        for key, number in self._files_of_replaced(change):
            self._files.add(key, number)
        self._removed |= change.removed
        stay = {
            number: fragment for number, fragment in change.replaced.items() if number not in change.removed
        }
        self._replaced.update(zip(stay, with_sizes(list(stay.values()), self.fetched.sizes), strict=True))
        self._note_files(change.replaced.values())

    def _add(self, fragments: Sequence[DataFragment]) -> tuple[int, int, int]:
        prefixes = self._prefixes
        unsized = [fragment.SerializeToString(deterministic=True) for fragment in fragments]
        held, encoded = with_sizes(fragments, self.sizes), unsized
        if held is not fragments:
            encoded = [fragment.SerializeToString(deterministic=True) for fragment in held]
        numbered = self.numbering.number(held, encoded, self.version)
        self.proposed += unsized
        self.new += numbered
        for numbered_fragment, fragment in zip(numbered, fragments, strict=True):
            for file in fragment.files:
                self._files.add(file_key(file, prefixes), numbered_fragment.id)
        self._note_files(fragments)
        rows = sum(added.physical_rows - added.deleted_rows for added in numbered)
        return rows, numbered[0].id if numbered else 0, len(numbered)

    def takes(self, plain: Plain) -> bool:
        """Returns whether a usual Append has no fault.

        If this returns False, `add` has to find out what it is.
        """
        if plain.shape not in self.columns.sound or self.numbering.room_fault(1, plain.rows) is not None:
            return False
        if not self._files.is_new(plain.key):
            return False
        sizes = self.fetched.sizes
        return plain.path not in sizes or 0 < plain.size == sizes[plain.path]

    def take_plain(self, plain: Plain) -> int:
        """Adds the fragment of a usual Append. Returns the id that it gets."""
        numbered = self.numbering.number_plain(plain.record, plain.rows, self.version)
        self.proposed.append(plain.record)
        self.new.append(numbered)
        self._files.add(plain.key, numbered.id)
        self.new_file_versions.add(plain.shape[0][:2])
        return numbered.id

    def _add_packed(self, packed: Packed, held: Packed) -> tuple[int, int, int]:
        """As `_add`, for the first entry of a version.

        `held`: the same fragments as the table is to have them.
        """
        self.packed, self._chunks = packed, self.numbering.number_packed(held, self.version)
        self._files.add_many(packed.hashes, packed.files_of_fragments() + self._chunks[0].first_id)
        self._note_files(packed.kinds)
        return sum(packed.rows), self._chunks[0].first_id, packed.count

    def _note_files(self, fragments: Iterable[DataFragment]) -> None:
        for fragment in fragments:
            for file in fragment.files:
                self.new_file_versions.add((file.file_major_version, file.file_minor_version))

    def _take_head(self, head: Manifest, given: FileVersion | None) -> None:
        file_version = FILE_VERSIONS.get(head.data_format.version, given or self.file_version)
        if head.fields != self.head.fields or file_version != self.file_version:
            self.columns = columns_of(head.fields, file_version)
        self.head, self.file_version = head, file_version
        self.numbering.raise_to(head)

    def _take_indices(self, indices: Sequence[IndexMetadata]) -> None:
        if indices is self._indices:
            return
        self._indices = tuple(indices)
        section = IndexSection.FromString(self._index_section)
        del section.indices[:]
        section.indices.extend(indices)
        self._index_section = section.SerializeToString(deterministic=True) if indices else b""

    def _numbering(self) -> Numbering:
        highest = self.head.max_fragment_id if self.head.HasField("max_fragment_id") else None
        return Numbering(self._live, highest, self.head.next_row_id, stable=self.stable_row_ids)


def _owned_fault(key: str, number: int) -> Invalid:
    return Invalid(
        f"data file {key} belongs to fragment {number} of the table, so its rows would be in the table twice",
        "if this was sent before, its rows are in the table: do nothing; else write its rows into new files",
    )
