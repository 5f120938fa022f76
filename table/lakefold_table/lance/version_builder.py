"""A table on its way to its next version: operations read it, it takes up their changes one by one.

Many entries share one version, so nothing is encoded before all are in; an operation sees what the entries
before it have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, IndexSection, Manifest
from lakefold_table.entry import Invalid
from lakefold_table.lance.combine_transactions import DELETE
from lakefold_table.lance.indexing.indices import SIFTING, coverage, without_idle
from lakefold_table.lance.indexing.reuse import remapped
from lakefold_table.lance.manifests.chunks import place_of
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.manifests.fragments import PORTION, Fragments, Numbered
from lakefold_table.lance.manifests.live_files import LiveFiles, place_of_file, places_of
from lakefold_table.lance.new_files import NewFiles
from lakefold_table.lance.rows.bitmaps import Bitmap
from lakefold_table.lance.rows.deletions import deletion_path
from lakefold_table.lance.rows.numbering import Numbering
from lakefold_table.lance.schemas.columns import columns_of, some
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS
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
    from lakefold_table.lance.manifests.chunks import Chunk
    from lakefold_table.lance.manifests.live_files import Places
    from lakefold_table.lance.manifests.packed import Packed
    from lakefold_table.lance.manifests.plain import Plain
    from lakefold_table.lance.operations.change import Change
    from lakefold_table.lance.schemas.columns import Columns
    from lakefold_table.lance.schemas.data_files import FileVersion
    from lakefold_table.lance.state import LanceState


class VersionBuilder:
    """The table as the next entry finds it. Only `take` and `create` change it.

    `head` is the manifest without fragments, `version` the number of the version in the making. `new` are the
    fragments added so far, `proposed` each of them as its entry proposed it, encoded. `packed`: fragments
    that the first entry brought so, which are not among them. `before` are the files to write before the
    version is put, by path. `keeps_files_apart`: whether a data file that a fragment has is a fault.
    """

    def __init__(self, state: LanceState | None, observed: Fetched) -> None:
        self.observed = observed
        self.head = Manifest() if state is None else state.head
        self.version = 1 if state is None else state.version + 1
        self.keeps_files_apart = True
        self.file_version = None if state is None else state.file_version
        self.columns = columns_of((), None) if state is None else state.columns
        self.new: list[Numbered] = []
        self.proposed: list[bytes] = []
        self.packed: Packed | None = None
        self._chunks: Sequence[Chunk] = ()
        self.before: dict[str, NewFile] = {}
        self.new_file_versions: set[FileVersion] = set()
        self._index_section = b"" if state is None else state.index_section
        self._indices: Sequence[IndexMetadata] | None = None
        self._sifted: Sequence[IndexMetadata] | None = None
        self._live = Fragments() if state is None else state.fragments
        self._opened = self._live.opened()
        self._files_before = LiveFiles.of(self._live, ()) if state is None else state.files
        self._files = NewFiles(self._files_before, self._fragment)
        self._known: dict[int, DataFragment] = {}
        self._replaced: dict[int, DataFragment] = {}
        self._removed: set[int] = set()
        self.numbering = self._numbering()

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows keep their id for life (flag 2)."""
        return has_stable_row_ids(self.head)

    @property
    def base_ids(self) -> frozenset[int]:
        """The ids of the other roots that files may lie under."""
        return frozenset(base.id for base in self.head.base_paths)

    @property
    def indices(self) -> Sequence[IndexMetadata]:
        """The index section's entries, not to be changed; their coverage follows rows that compactions moved.

        Raises `DamagedError` where the table's fragment-reuse index can't be read.
        """
        if self._indices is None:
            entries = tuple(IndexSection.FromString(self._index_section).indices)
            self._indices = remapped(self.head, entries, self.content)
        return self._indices

    @property
    def index_section(self) -> bytes:
        """The index section, encoded; empty where there is no index."""
        return self._index_section

    def get(self, ids: Collection[int]) -> dict[int, DataFragment]:
        """Those of the fragments that are there, as the entries so far left them; not to be changed.

        Fragments that this version adds are not among them: no proposal can have been built on them.
        """
        known = self._known
        asked = [number for number in ids if number not in known]
        if asked:
            known.update(self._opened.get(asked))
        wanted = [number for number in ids if number not in self._removed and number in known]
        return {number: self._replaced.get(number) or known[number] for number in wanted}

    def there(self, ids: Collection[int]) -> set[int]:
        """The ids of those that `get` would give; nothing is decoded for it."""
        return self._live.taken(ids) - self._removed

    def each(self, ids: Iterable[int]) -> Iterator[DataFragment]:
        """As `get`, ascending, one after the other: for any number of ids, and not to be kept."""
        wanted = sorted(set(ids) - self._removed)
        if len(wanted) <= PORTION:
            yield from self.get(wanted).values()
            return
        for one in self._opened.each(wanted):
            yield self._replaced.get(one.id, one)

    def taken(self, ids: Collection[int]) -> set[int]:
        """Those of the ids that fragments bear, as the entries so far left them, new ones among them."""
        there = self._live.taken(ids) - self._removed
        new = {one.id for one in self.new}.union(*(chunk.ids for chunk in self._chunks))
        return there | new.intersection(ids)

    @property
    def replaced(self) -> Mapping[int, DataFragment]:
        """The fragments that were changed and are still there, as the entries so far left them."""
        return self._replaced

    def content(self, path: str) -> bytes | None:
        """The bytes of a file that was asked for, or that an entry before made; None where it isn't there.

        `path`: in the table, or the whole URI of a file elsewhere.
        """
        made = self.before.get(path)
        return self.observed.contents.get(path) if made is None else made.data

    def all(self) -> Iterable[DataFragment]:
        """Every fragment that is there, ascending; decodes them all: for operations on the whole table."""
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
        """What is wrong with fragments that an entry adds, the files the shell looked at included.

        `columns`: those they must have, where the entry brings another schema. `dropped`: fields that their
        files may hold though the table has them no more.
        """
        bases = self.base_ids
        for fragment in fragments:
            left = without_dropped_fields(fragment, dropped)
            fault = new_fragment_fault(left, columns or self.columns, bases) or file_fault(
                fragment, self.observed.sizes
            )
            if fault is not None:
                return fault
        return (
            shared_file_fault(fragments) or self.numbering.fault(fragments) or self._used_id_fault(fragments)
        )

    def _used_id_fault(self, fragments: Iterable[DataFragment]) -> Invalid | None:
        """Ids of fragments that are gone: indices still cover them, and would hide the rows of new ones."""
        if not self._index_section:
            return None
        given = Bitmap([one.id for one in fragments if one.id])
        if not given:
            return None
        entries = IndexSection.FromString(self._index_section).indices
        used = Bitmap().union(*(given & (coverage(index) or Bitmap()) for index in entries))
        if not used:
            return None
        return Invalid(
            f"fragment ids {some(set(used))} were used before: indices cover them", "reserve new ones"
        )

    @property
    def rows(self) -> int:
        """The rows that can be seen before this version's changes, as far as deletion files tell."""
        return self._live.physical_rows - self._live.deleted_rows

    def create(self, head: Manifest, file_version: FileVersion | None) -> None:
        """Gives a table that isn't there its schema and choices; its first entry comes on top."""
        self.head = head
        self.file_version = file_version
        self.columns = columns_of(head.fields, file_version)
        self.numbering = self._numbering()

    def take(self, change: Change) -> tuple[int, int, int]:
        """Takes a change up; the rows that it adds, the first id that it gives and how many ids.

        What an operation found sound can't fail here. The sizes of files that nobody said are filled in.
        """
        if change.head is not None:
            self._take_head(change.head, change.file_version)
        if change.indices is not None:
            self._take_indices(change.indices)
        if change.whole is not None:
            self._files_before = LiveFiles.of(change.whole, self.head.base_paths)
            self._files = NewFiles(self._files_before, self._fragment)
            self._live, self._replaced, self._removed, self.new = change.whole, {}, set(), []
            self._opened, self._known = self._live.opened(), {}
            self._chunks = ()
            self.numbering.continue_on(change.whole)
        if change.replaced or change.removed:
            self._replace(change)
        self.before.update((file.path, file) for file in change.before)
        self.numbering.use_row_ids(change.row_ids)
        if change.reserved:
            return 0, self.numbering.reserve(change.reserved), change.reserved
        if change.packed is None:
            taken = self._add(change.added)
        else:
            taken = self._add_packed(change.packed, change.held or change.packed)
        if self._index_section and change.transaction.WhichOneof("operation") in SIFTING:
            self._sift(change)
        return taken

    def _sift(self, change: Change) -> None:
        """Drops idle segments of indices; after the first time only where a change can have made one idle."""
        seen = self._sifted is not None and self._sifted is self._indices
        if not seen or change.removed or change.whole is not None:
            self._take_indices(without_idle(self.indices, self.taken))
            self._sifted = self._indices

    def look_up(self, places: Collection[str]) -> None:
        """Finds out together whether fragments have these data files; entries will bring them."""
        self._files.look_up(places)

    def files_fault(self, change: Change) -> Invalid | None:
        """Why a change can't have its new data files: a fragment of the table has one of them already."""
        if change.whole is not None or not self.keeps_files_apart:
            return None
        if change.packed is not None:
            found = self._files.owner_among(change.packed.hashes, change.packed.name, self._places)
            return None if found is None else _owned_fault(*found)
        places = self._places
        new = [place_of_file(file, places) for one in change.added for file in one.files]
        new += [place for place, _ in self._files_of_replaced(change)]
        self._files.look_up(new)
        seen = set[str]()
        for place in new:
            owner = self._files.owner(place, places)
            if owner is not None:
                return _owned_fault(place, owner)
            if place in seen:
                return Invalid(
                    f"data file {place} would belong to two fragments, so its rows would be there twice",
                    "write the rows of each fragment into files of its own",
                )
            seen.add(place)
        return None

    def live_files(self, fragments: Fragments) -> LiveFiles:
        """Which of these fragments has a data file: they are the list after all entries."""
        return self._files_before.followed(fragments, self.head.base_paths, self._files.levels)

    @property
    def _places(self) -> Places:
        return places_of(self.head.base_paths)

    def _files_of_replaced(self, change: Change) -> Iterator[tuple[str, int]]:
        """The files that fragments of the table get, with the fragments' ids."""
        if not change.replaced or change.transaction.WhichOneof("operation") == DELETE:
            return
        there = self.get(change.replaced)
        for number, after in change.replaced.items():
            before = there[number]
            if [one.path for one in before.files] != [one.path for one in after.files]:
                places = self._places
                for file in new_files(before, after):
                    yield place_of_file(file, places), number

    def _fragment(self, number: int) -> DataFragment | None:
        """The fragment of this id as the entries so far left it, also one that a large Append brought."""
        for chunk in self._chunks:
            at = place_of(chunk.ids, number)
            if at is not None:
                return DataFragment.FromString(chunk.records()[at])
        return self.get([number]).get(number)

    def fragments(self) -> Fragments:
        """The complete list after all entries."""
        new = sorted(self.new, key=lambda one: one.id)
        replaced = {number: Numbered.of(one) for number, one in self._replaced.items()}
        if not self._chunks:
            return self._live.changed(replaced, self._removed, new)
        return self._live.changed(replaced, self._removed).followed(self._chunks).added(new)

    def _replace(self, change: Change) -> None:
        """Puts fragments in the place of others; deletion files made for those are of no use any more."""
        for number in (*change.replaced, *change.removed):
            before = self._replaced.pop(number, None)
            after = change.replaced.get(number)
            if before is None or not before.HasField("deletion_file"):
                continue
            if after is None or number in change.removed or after.deletion_file != before.deletion_file:
                self.before.pop(deletion_path(number, before.deletion_file), None)
        for place, number in self._files_of_replaced(change):
            self._files.add(place, number)
        self._removed |= change.removed
        stay = {number: one for number, one in change.replaced.items() if number not in change.removed}
        self._replaced.update(zip(stay, with_sizes(list(stay.values()), self.observed.sizes), strict=True))
        self._note_files(change.replaced.values())

    def _add(self, fragments: Sequence[DataFragment]) -> tuple[int, int, int]:
        places = self._places
        plain = [fragment.SerializeToString(deterministic=True) for fragment in fragments]
        held, encoded = with_sizes(fragments, self.observed.sizes), plain
        if held is not fragments:
            encoded = [fragment.SerializeToString(deterministic=True) for fragment in held]
        numbered = self.numbering.number(held, encoded, self.version)
        self.proposed += plain
        self.new += numbered
        for one, fragment in zip(numbered, fragments, strict=True):
            for file in fragment.files:
                self._files.add(place_of_file(file, places), one.id)
        self._note_files(fragments)
        rows = sum(one.physical_rows - one.deleted_rows for one in numbered)
        return rows, numbered[0].id if numbered else 0, len(numbered)

    def takes(self, plain: Plain) -> bool:
        """Whether nothing is wrong with a usual Append; where not, what that is must be looked for."""
        if plain.shape not in self.columns.sound or self.numbering.room_fault(1, plain.rows) is not None:
            return False
        if self.keeps_files_apart and not self._files.is_new(plain.place):
            return False
        sizes = self.observed.sizes
        return plain.path not in sizes or 0 < plain.size == sizes[plain.path]

    def take_plain(self, plain: Plain) -> int:
        """Takes the fragment of a usual Append; the id that it gets."""
        one = self.numbering.number_plain(plain.record, plain.rows, self.version)
        self.proposed.append(plain.record)
        self.new.append(one)
        self._files.add(plain.place, one.id)
        self.new_file_versions.add(plain.shape[0][:2])
        return one.id

    def _add_packed(self, packed: Packed, held: Packed) -> tuple[int, int, int]:
        """As `_add`, for the first entry of a version; `held`: the same as the table is to have them."""
        self.packed, self._chunks = packed, self.numbering.number_packed(held, self.version)
        self._files.add_many(packed.hashes, packed.files_of_fragments() + self._chunks[0].first_id)
        self._note_files(packed.kinds)
        return sum(packed.rows), self._chunks[0].first_id, packed.count

    def _note_files(self, fragments: Iterable[DataFragment]) -> None:
        for one in fragments:
            for file in one.files:
                self.new_file_versions.add((file.file_major_version, file.file_minor_version))

    def _take_head(self, head: Manifest, told: FileVersion | None) -> None:
        file_version = FILE_VERSIONS.get(head.data_format.version, told or self.file_version)
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


def _owned_fault(place: str, number: int) -> Invalid:
    return Invalid(
        f"data file {place} is that of fragment {number} of the table, so its rows would be there twice",
        "if this was sent before, its rows are there: do nothing; else write its rows into new files",
    )
