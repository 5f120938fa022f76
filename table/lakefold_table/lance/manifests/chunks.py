"""Neighbouring fragments as bytes that versions share, and what must be known of them without decoding.

A chunk is the unit of a change: to replace one fragment, its chunk is encoded again, all others are shared.
So its size is a balance. A change costs by the bytes of a chunk, a version by the number of chunks; at
`CHUNK_BYTES` both are small beside the rest of a commit, up to some hundred thousand fragments.
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
"""Neighbours that are together no longer than this become one chunk."""
MAX_CHUNK_BYTES = 2 * CHUNK_BYTES
"""A chunk that grew longer is cut, unless it is one fragment. The gap between the two keeps a chunk that
grows and shrinks from being cut and joined again and again."""
U32 = 2**32


class Tally(NamedTuple):
    """What some fragments add up to. `size` is in bytes, as records of `Manifest.fragments`.

    `untold`: how many don't say how many rows they have, or how many of them are deleted.
    """

    fragments: int = 0
    size: int = 0
    physical_rows: int = 0
    deleted_rows: int = 0
    deletion_files: int = 0
    untold: int = 0

    def plus(self, other: Tally) -> Tally:
        """These fragments and others."""
        return Tally(*map(int.__add__, self, other))

    def minus(self, other: Tally) -> Tally:
        """These fragments without some of them."""
        return Tally(*map(int.__sub__, self, other))


NOTHING = Tally()


class Numbered(NamedTuple):
    """One fragment that has its id: `encoded` is the whole DataFragment message, id included.

    `deleted_rows` is what its deletion file says: 0 where there is none, or where it doesn't tell. Then only
    `has_deletion_file` shows that there is one. `Numbered.of` fills all of it.
    """

    id: int
    encoded: bytes
    physical_rows: int
    deleted_rows: int = 0
    has_deletion_file: bool = False

    @classmethod
    def of(cls, fragment: DataFragment) -> Numbered:
        """The fragment, encoded in the one way that is the same on every machine."""
        return counted(fragment, fragment.SerializeToString(deterministic=True))

    @property
    def tally(self) -> Tally:
        """What the list grows by when this fragment is added."""
        files = int(self.has_deletion_file or self.deleted_rows > 0)
        rows, untold = self.physical_rows, int(self.is_untold)
        return Tally(1, record_size(self.encoded), rows, self.deleted_rows, files, untold)

    @property
    def is_untold(self) -> bool:
        """Whether it doesn't say how many rows it has, or how many of them are deleted."""
        return not self.physical_rows or (self.has_deletion_file and not self.deleted_rows)


@dataclass(slots=True)
class Edit:
    """What happens to one chunk, in this order: first fragments it has, at last ones that it doesn't have."""

    replaced: list[Numbered] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    added: list[Numbered] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some neighbouring fragments, at least one: `encoded` holds them as records of `Manifest.fragments`.

    `ids`: theirs, ascending, from `first_id` to `last_id`; a range wherever they have no gap, so that they
    take no memory.
    """

    encoded: bytes
    ids: Sequence[int]
    tally: Tally
    first_id: int
    last_id: int

    def records(self) -> Sequence[bytes]:
        """The fragments one by one, still encoded."""
        return decode_records(self.encoded)

    def decode(self) -> Sequence[DataFragment]:
        """The fragments as messages."""
        return Manifest.FromString(self.encoded).fragments

    def joined(self, other: Chunk) -> Chunk:
        """The chunk and the one that follows it as one."""
        return _chunk(self.encoded + other.encoded, _after(self.ids, other.ids), self.tally.plus(other.tally))

    def edited(self, edit: Edit) -> list[Chunk]:
        """What becomes of the chunk: none where it is emptied, several where it grew too long.

        Fragments that are not part of the edit keep their bytes. Raises `KeyError` where one to be replaced
        or removed is not here, `ValueError` where one to be added is.
        """
        view = FragmentsView.FromString(self.encoded)
        records, tally = view.fragments, self.tally
        for one in edit.replaced:
            at = _known_place(self.ids, one.id)
            tally = tally.minus(_tally_of(records[at])).plus(one.tally)
            records[at] = one.encoded
        if not (edit.removed or edit.added):
            return _chunks(self.ids, view, tally)
        ids = list(self.ids)
        for number in edit.removed:
            at = _known_place(ids, number)
            tally = tally.minus(_tally_of(records[at]))
            del ids[at], records[at]
        for one in edit.added:
            if place_of(ids, one.id) is not None:
                raise ValueError(f"two fragments with id {one.id}")
            at = bisect_left(ids, one.id)
            ids.insert(at, one.id)
            records.insert(at, one.encoded)
            tally = tally.plus(one.tally)
        return _chunks(ids, view, tally)


def place_of(ids: Sequence[int], number: int) -> int | None:
    """Where a number stands among ascending ids, None where it isn't there."""
    at = bisect_left(ids, number)
    return at if at < len(ids) and ids[at] == number else None


def _known_place(ids: Sequence[int], number: int) -> int:
    at = place_of(ids, number)
    if at is None:
        raise KeyError(number)
    return at


def _chunks(ids: Sequence[int], view: FragmentsView, tally: Tally) -> list[Chunk]:
    if not ids:
        return []
    if len(ids) > 1 and tally.size > MAX_CHUNK_BYTES:
        return [parsed(encode_records(part)) for part in cut(list(view.fragments))]
    encoded = view.SerializeToString()
    return [_chunk(encoded, _compact(ids), tally._replace(size=len(encoded)))]


def chunks_of(fragments: Sequence[Numbered]) -> list[Chunk]:
    """New chunks of fragments that ascend by id. Raises `ValueError` where they don't."""
    chunks = []
    start = 0
    for part in cut([one.encoded for one in fragments]):
        some = fragments[start : start + len(part)]
        before = fragments[start - 1].id if start else -1
        encoded = encode_records(part)
        deletions = [one for one in some if one.has_deletion_file or one.deleted_rows > 0]
        deleted = sum(one.deleted_rows for one in deletions)
        rows = sum([one.physical_rows for one in some])
        untold = sum([one.is_untold for one in some])
        tally = Tally(len(some), len(encoded), rows, deleted, len(deletions), untold)
        ids = [one.id for one in some]
        _check_ascending(ids, before)
        chunks.append(_chunk(encoded, _compact(ids), tally))
        start += len(part)
    return chunks


def new_chunks(fragments: Sequence[bytes], first_id: int, rows: Sequence[int]) -> Iterator[Chunk]:
    """New chunks of encoded fragments with neighbouring ids and so many rows, none of which is deleted."""
    at = 0
    for part in cut(fragments):
        encoded, end = encode_records(part), at + len(part)
        counts = rows[at:end]
        untold = 0 if all(counts) else [*counts].count(0)
        tally = Tally(len(part), len(encoded), sum(counts), untold=untold)
        yield _chunk(encoded, range(first_id + at, first_id + end), tally)
        at = end


def parsed(encoded: bytes, before: int = -1) -> Chunk:
    """The chunk that these records are; `before` is the id of the fragment in front of them.

    Decodes each fragment whole, so that what is broken in one is found when a manifest is read. Raises
    `DecodeError` there, `ValueError` where the ids don't ascend: what is looked up in such a list is silently
    wrong.
    """
    ids: list[int] = []
    rows = deleted = files = untold = 0
    for fragment in Manifest.FromString(encoded).fragments:
        ids.append(fragment.id)
        physical, told = fragment.physical_rows, True
        rows += physical
        if fragment.HasField("deletion_file"):
            gone = fragment.deletion_file.num_deleted_rows
            files += 1
            deleted += gone
            told = gone > 0
        if not (physical and told):
            untold += 1
    _check_ascending(ids, before)
    return _chunk(encoded, _compact(ids), Tally(len(ids), len(encoded), rows, deleted, files, untold))


def cut(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cuts encoded fragments into parts that make chunks: at most `CHUNK_BYTES` each, or one fragment."""
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
    """Encoded DataFragments as the records of `Manifest.fragments`."""
    return FragmentsView(fragments=fragments).SerializeToString()


def decode_records(encoded: bytes) -> Sequence[bytes]:
    """Records of `Manifest.fragments` as encoded DataFragments."""
    return FragmentsView.FromString(encoded).fragments


def record_size(fragment: bytes) -> int:
    """How many bytes an encoded fragment takes as a record: its tag, its length, itself."""
    return _size_of(len(fragment))


def _size_of(length: int) -> int:
    return 1 + max(1, (length.bit_length() + 6) // 7) + length


def counted(fragment: DataFragment, encoded: bytes) -> Numbered:
    """A fragment with the bytes that it was decoded from."""
    deletion = fragment.deletion_file.num_deleted_rows
    return Numbered(
        fragment.id, encoded, fragment.physical_rows, deletion, fragment.HasField("deletion_file")
    )


def _tally_of(encoded: bytes) -> Tally:
    return counted(DataFragment.FromString(encoded), encoded).tally


def _check_ascending(ids: Sequence[int], before: int) -> None:
    for number in ids:
        if number <= before:
            raise ValueError(f"fragment {number} stands after fragment {before}: their ids must ascend")
        before = number


def _chunk(encoded: bytes, ids: Sequence[int], tally: Tally) -> Chunk:
    return Chunk(encoded, ids, tally, ids[0], ids[-1])


def _compact(ids: Sequence[int]) -> Sequence[int]:
    """Ascending ids in little memory."""
    if ids[-1] - ids[0] == len(ids) - 1:
        return range(ids[0], ids[-1] + 1)
    return array("I" if ids[-1] < U32 else "Q", ids)


def _after(ids: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    if isinstance(ids, range) and isinstance(more, range) and ids.stop == more.start:
        return range(ids.start, more.stop)
    return _compact([*ids, *more])
