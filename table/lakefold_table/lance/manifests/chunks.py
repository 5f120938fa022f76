"""Adjacent fragments as bytes that versions share, and what must be known of them without decoding.

A chunk is the unit of a change: to replace a fragment, its chunk is encoded again, and all others are shared.
Its size is a compromise. The cost of a change grows with the size of a chunk, the cost of a version with the
number of chunks. At `CHUNK_BYTES` both are small beside the rest of a commit, up to some hundred thousand
fragments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_protos.lance.views_pb2 import FragmentsView
from lakefold_table.wire import SEVEN_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHUNK_BYTES = 64 * 1024
"""Adjacent chunks that are together no longer than this are joined."""
MAX_CHUNK_BYTES = 2 * CHUNK_BYTES
"""A longer chunk is cut, unless it is a single fragment. As this is twice `CHUNK_BYTES`, a chunk that grows
and shrinks is not cut and joined repeatedly."""
U32 = 2**32


class FragmentSums(NamedTuple):
    """The sums over some fragments. `size` is in bytes, as records of `Manifest.fragments`.

    `unknown`: how many don't say how many rows they have, or how many of these are deleted.
    """

    fragments: int = 0
    size: int = 0
    physical_rows: int = 0
    deleted_rows: int = 0
    deletion_files: int = 0
    unknown: int = 0

    def plus(self, other: FragmentSums) -> FragmentSums:
        """Returns the sums over these fragments and others."""
        return FragmentSums(*map(int.__add__, self, other))

    def minus(self, other: FragmentSums) -> FragmentSums:
        """Returns the sums over these fragments without some of them."""
        return FragmentSums(*map(int.__sub__, self, other))


NOTHING = FragmentSums()


class Numbered(NamedTuple):
    """A fragment that has its id. `encoded` is the whole DataFragment message, id included.

    `deleted_rows` is the number in its deletion file's record: 0 if it has no deletion file or the record
    doesn't say. `has_deletion_file` distinguishes the two. `Numbered.of` fills all fields.
    """

    id: int
    encoded: bytes
    physical_rows: int
    deleted_rows: int = 0
    has_deletion_file: bool = False

    @classmethod
    def of(cls, fragment: DataFragment) -> Numbered:
        """Returns the fragment, encoded in the form that is the same on every machine."""
        return counted(fragment, fragment.SerializeToString(deterministic=True))

    @property
    def tally(self) -> FragmentSums:
        """The numbers by which this fragment increases the sums of a list."""
        files = int(self.has_deletion_file or self.deleted_rows > 0)
        rows, unknown = self.physical_rows, int(self.lacks_counts)
        return FragmentSums(1, record_size(self.encoded), rows, self.deleted_rows, files, unknown)

    @property
    def lacks_counts(self) -> bool:
        """Whether the fragment doesn't say how many rows it has, or how many of them are deleted."""
        return not self.physical_rows or (self.has_deletion_file and not self.deleted_rows)


@dataclass(slots=True)
class ChunkChange:
    """A change of a chunk, in this order: first of fragments that it has, then new fragments."""

    replaced: list[Numbered] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    added: list[Numbered] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some adjacent fragments, at least one. `encoded` holds them as records of `Manifest.fragments`.

    `ids`: theirs, ascending, from `first_id` to `last_id`. A range if they have no gap, so that they take no
    memory.
    """

    encoded: bytes
    ids: Sequence[int]
    tally: FragmentSums
    first_id: int
    last_id: int

    def records(self) -> Sequence[bytes]:
        """Returns the fragments in order, still encoded."""
        return decode_records(self.encoded)

    def decode(self) -> Sequence[DataFragment]:
        """Returns the fragments as messages."""
        return Manifest.FromString(self.encoded).fragments

    def joined(self, other: Chunk) -> Chunk:
        """Returns this chunk and the next as a single chunk."""
        return _chunk(self.encoded + other.encoded, _after(self.ids, other.ids), self.tally.plus(other.tally))

    def edited(self, edit: ChunkChange) -> list[Chunk]:
        """Returns the chunks that replace it: none if it becomes empty, several if it becomes too long.

        Fragments that are not part of the edit keep their bytes. Raises `KeyError` if one to be replaced or
        removed is not in the chunk, `ValueError` if one to be added is.
        """
        view = FragmentsView.FromString(self.encoded)
        records, tally = view.fragments, self.tally
        for fragment in edit.replaced:
            at = _known_index(self.ids, fragment.id)
            tally = tally.minus(_tally_of(records[at])).plus(fragment.tally)
            records[at] = fragment.encoded
        if not (edit.removed or edit.added):
            return _chunks(self.ids, view, tally)
        ids = list(self.ids)
        for number in edit.removed:
            at = _known_index(ids, number)
            tally = tally.minus(_tally_of(records[at]))
            del ids[at], records[at]
        for fragment in edit.added:
            if index_of(ids, fragment.id) is not None:
                raise ValueError(f"two fragments with id {fragment.id}")
            at = bisect_left(ids, fragment.id)
            ids.insert(at, fragment.id)
            records.insert(at, fragment.encoded)
            tally = tally.plus(fragment.tally)
        return _chunks(ids, view, tally)


def index_of(ids: Sequence[int], number: int) -> int | None:
    """Returns the index of a number among ascending ids, or None if it isn't among them."""
    at = bisect_left(ids, number)
    return at if at < len(ids) and ids[at] == number else None


def _known_index(ids: Sequence[int], number: int) -> int:
    at = index_of(ids, number)
    if at is None:
        raise KeyError(number)
    return at


def _chunks(ids: Sequence[int], view: FragmentsView, tally: FragmentSums) -> list[Chunk]:
    if not ids:
        return []
    if len(ids) > 1 and tally.size > MAX_CHUNK_BYTES:
        return [parsed(encode_records(part)) for part in cut(list(view.fragments))]
    encoded = view.SerializeToString()
    return [_chunk(encoded, _compact(ids), tally._replace(size=len(encoded)))]


def chunks_of(fragments: Sequence[Numbered]) -> list[Chunk]:
    """Returns new chunks of fragments. Raises `ValueError` if their ids don't ascend."""
    chunks = []
    start = 0
    for part in cut([fragment.encoded for fragment in fragments]):
        some = fragments[start : start + len(part)]
        before = fragments[start - 1].id if start else -1
        encoded = encode_records(part)
        deletions = [fragment for fragment in some if fragment.has_deletion_file or fragment.deleted_rows > 0]
        deleted = sum(fragment.deleted_rows for fragment in deletions)
        rows = sum([fragment.physical_rows for fragment in some])
        unknown = sum([fragment.lacks_counts for fragment in some])
        tally = FragmentSums(len(some), len(encoded), rows, deleted, len(deletions), unknown)
        ids = [fragment.id for fragment in some]
        _check_ascending(ids, before)
        chunks.append(_chunk(encoded, _compact(ids), tally))
        start += len(part)
    return chunks


def new_chunks(fragments: Sequence[bytes], first_id: int, rows: Sequence[int]) -> Iterator[Chunk]:
    """Yields new chunks of encoded fragments with consecutive ids and these numbers of rows, none deleted."""
    at = 0
    for part in cut(fragments):
        encoded, end = encode_records(part), at + len(part)
        counts = rows[at:end]
        unknown = 0 if all(counts) else [*counts].count(0)
        tally = FragmentSums(len(part), len(encoded), sum(counts), unknown=unknown)
        yield _chunk(encoded, range(first_id + at, first_id + end), tally)
        at = end


def parsed(encoded: bytes, before: int = -1) -> Chunk:
    """Returns the chunk of these records. `before` is the id of the fragment before them.

    Decodes each fragment completely, so that a broken fragment is noticed when the manifest is read. Raises
    `DecodeError` for a broken fragment, and `ValueError` if the ids don't ascend: looking up an id in such a
    list gives wrong results.
    """
    ids: list[int] = []
    rows = deleted = files = unknown = 0
    for fragment in Manifest.FromString(encoded).fragments:
        ids.append(fragment.id)
        physical, counted_deletions = fragment.physical_rows, True
        rows += physical
        if fragment.HasField("deletion_file"):
            deleted_here = fragment.deletion_file.num_deleted_rows
            files += 1
            deleted += deleted_here
            counted_deletions = deleted_here > 0
        if not (physical and counted_deletions):
            unknown += 1
    _check_ascending(ids, before)
    return _chunk(encoded, _compact(ids), FragmentSums(len(ids), len(encoded), rows, deleted, files, unknown))


def cut(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cuts encoded fragments into parts that make chunks: at most `CHUNK_BYTES`, or a single fragment."""
    start = size = 0
    for at, length in enumerate(map(len, records)):
        more = length + 2 if length <= SEVEN_BITS else _size_of(length)
        if size and size + more > CHUNK_BYTES:
            yield records[start:at]
            start, size = at, 0
        size += more
    if size:
        yield records[start:]


def encode_records(fragments: Sequence[bytes]) -> bytes:
    """Encodes DataFragments, given as bytes, as the records of `Manifest.fragments`."""
    return FragmentsView(fragments=fragments).SerializeToString()


def decode_records(encoded: bytes) -> Sequence[bytes]:
    """Returns the records of `Manifest.fragments` as encoded DataFragments."""
    return FragmentsView.FromString(encoded).fragments


def record_size(fragment: bytes) -> int:
    """Returns how many bytes an encoded fragment takes as a record: its tag, its length, itself."""
    return _size_of(len(fragment))


def _size_of(length: int) -> int:
    return 1 + max(1, (length.bit_length() + 6) // 7) + length


def counted(fragment: DataFragment, encoded: bytes) -> Numbered:
    """Returns a fragment together with the bytes that it was decoded from."""
    deletion = fragment.deletion_file.num_deleted_rows
    return Numbered(
        fragment.id, encoded, fragment.physical_rows, deletion, fragment.HasField("deletion_file")
    )


def _tally_of(encoded: bytes) -> FragmentSums:
    return counted(DataFragment.FromString(encoded), encoded).tally


def _check_ascending(ids: Sequence[int], before: int) -> None:
    for number in ids:
        if number <= before:
            raise ValueError(f"fragment {number} comes after fragment {before}: ids must ascend")
        before = number


def _chunk(encoded: bytes, ids: Sequence[int], tally: FragmentSums) -> Chunk:
    return Chunk(encoded, ids, tally, ids[0], ids[-1])


def _compact(ids: Sequence[int]) -> Sequence[int]:
    """Returns ascending ids in a form that takes little memory."""
    if ids[-1] - ids[0] == len(ids) - 1:
        return range(ids[0], ids[-1] + 1)
    return array("I" if ids[-1] < U32 else "Q", ids)


def _after(ids: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    if isinstance(ids, range) and isinstance(more, range) and ids.stop == more.start:
        return range(ids.start, more.stop)
    return _compact([*ids, *more])
