"""The fragments of a version as encoded chunks that the next version shares.

A manifest lists every fragment of its table. If the list were decoded or encoded for each version, the cost
of a commit would grow with the table. So the list is kept as chunks of bytes, each already in the form that
the manifest needs (`Manifest.fragments`, field 2, record after record). A new version encodes the
chunks that its change falls into and shares the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import chain, filterfalse
from operator import attrgetter, is_not
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.lance.manifests.chunks import (
    CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    NOTHING,
    Chunk,
    ChunkChange,
    FragmentSums,
    Numbered,
    chunks_of,
    decode_records,
    index_of,
    parsed,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

__all__ = ["CHUNK_BYTES", "MAX_CHUNK_BYTES", "PORTION", "FragmentListReader", "Fragments", "Numbered"]

SEARCH_COST = 64
"""Looking up an id takes as long as going through this number of them."""

PORTION = 1024
"""How many fragments are decoded at once if very many are read. Each takes two kilobytes of memory."""

_last_id = attrgetter("last_id")
_encoded = attrgetter("encoded")
_by_id = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Fragments:
    """All fragments of a version, ascending by id.

    Never changed: the next version's list shares its chunks. No two adjacent chunks are together as short as
    `CHUNK_BYTES`; none is longer than `MAX_CHUNK_BYTES`, unless it is a single fragment. `tally` is the sum
    of theirs.
    """

    chunks: tuple[Chunk, ...] = ()
    tally: FragmentSums = NOTHING

    @classmethod
    def of(cls, fragments: Iterable[Numbered]) -> Fragments:
        """Returns the list of these fragments, given in any order.

        Raises `ValueError` if two have the same id.
        """
        return cls().added(sorted(fragments, key=_by_id))

    @property
    def count(self) -> int:
        """The number of fragments."""
        return self.tally.fragments

    @property
    def physical_rows(self) -> int:
        """The number of rows in the data files, including deleted rows."""
        return self.tally.physical_rows

    @property
    def deleted_rows(self) -> int:
        """The number of rows that deletion files mark as deleted, as far as the fragments say."""
        return self.tally.deleted_rows

    @property
    def has_deletions(self) -> bool:
        """Whether any fragment has a deletion file."""
        return self.tally.deletion_files > 0

    @property
    def counts_rows(self) -> bool:
        """Whether every fragment says how many rows it has, and how many of them are deleted."""
        return not self.tally.unknown

    @property
    def size(self) -> int:
        """The encoded size in bytes."""
        return self.tally.size

    @property
    def last_id(self) -> int:
        """The highest id in the list, -1 if it is empty."""
        return self.chunks[-1].last_id if self.chunks else -1

    def __iter__(self) -> Iterator[DataFragment]:
        """Yields each fragment as a message. Decodes the whole list, so a small commit must not use it."""
        for chunk in self.chunks:
            yield from chunk.decode()

    def buffers(self) -> Iterator[bytes]:
        """Yields the whole list as records of `Manifest.fragments`, chunk by chunk."""
        return map(_encoded, self.chunks)

    def ids(self) -> Iterator[int]:
        """Yields all ids, ascending, without decoding anything."""
        return chain.from_iterable(chunk.ids for chunk in self.chunks)

    def taken(self, ids: Collection[int]) -> set[int]:
        """Returns those of `ids` that fragments in the list have, without decoding anything."""
        if len(ids) * SEARCH_COST > self.count:
            return set(self.ids()).intersection(ids)
        return {number for number in ids if self._find(number) is not None}

    def records(self, ids: Collection[int]) -> dict[int, bytes]:
        """Returns the fragments with these ids, encoded as written. Ids that no fragment has are left out."""
        indices = [(number, index) for number in ids if (index := self._find(number))]
        opened = {chunk: self._records_of(chunk) for chunk in {chunk for _, (chunk, _) in indices}}
        return {number: opened[chunk][at] for number, (chunk, at) in indices}

    def opened(self) -> Fragments:
        """Returns the same list for many look-ups.

        It caches the chunks that it opened, so it must not be kept.
        """
        return _Opened(self.chunks, self.tally)

    def _records_of(self, chunk: int) -> Sequence[bytes]:
        return self.chunks[chunk].records()

    def get(self, ids: Collection[int]) -> dict[int, DataFragment]:
        """Returns the fragments with these ids, decoding no others. Ids that no fragment has are left out."""
        return {number: DataFragment.FromString(data) for number, data in self.records(ids).items()}

    def each(self, ids: Iterable[int]) -> Iterator[DataFragment]:
        """Yields what `get` returns, ascending, for many ids: in portions, which the caller must not keep."""
        numbers = sorted(set(ids))
        for start in range(0, len(numbers), PORTION):
            yield from self.get(numbers[start : start + PORTION]).values()

    def added(self, fragments: Sequence[Numbered]) -> Fragments:
        """Returns the list with these fragments, given in ascending order; lower ids are inserted in order.

        Raises `ValueError` if they don't ascend, or an id is taken.
        """
        return self.changed({}, (), fragments)

    def followed(self, chunks: Sequence[Chunk]) -> Fragments:
        """Returns the list with these chunks after the last chunk.

        Raises `ValueError` if their ids don't ascend.
        """
        result, tally, last = list(self.chunks), self.tally, self.last_id
        for chunk in chunks:
            if chunk.first_id <= last:
                raise ValueError(f"fragment {chunk.first_id} comes after fragment {last}: ids must ascend")
            _push(result, chunk)
            tally, last = tally.plus(chunk.tally), chunk.last_id
        return Fragments(tuple(result), tally)

    def changed(
        self, replaced: Mapping[int, Numbered], removed: Collection[int] = (), added: Sequence[Numbered] = ()
    ) -> Fragments:
        """Returns the list with fragments replaced by others of the same id, some removed, and some added.

        A fragment that is both replaced and removed is removed (Lance fact 5.4). Unchanged chunks are shared;
        fragments next to a changed fragment keep their bytes. Raises `KeyError` if one to be replaced or
        removed is not in the list, `ValueError` if an added id is taken.
        """
        if not (replaced or removed or added):
            return self
        edits, behind = self._edits(replaced, set(removed), added)
        parts = {index: self.chunks[index].edited(edit) for index, edit in edits.items()}
        new = chunks_of(behind)
        tally = self.tally
        for index in parts:
            tally = tally.minus(self.chunks[index].tally)
        for chunk in chain(new, *parts.values()):
            tally = tally.plus(chunk.tally)
        return Fragments(_spliced(self.chunks, parts, new), tally)

    def unlike(self, other: Fragments) -> Iterator[bytes]:
        """Returns the encoded fragments that the other list doesn't contain as they are.

        Shared chunks cost nothing.
        """
        mine, theirs = _apart(self.chunks, other.chunks)
        first: Sequence[bytes] = ()
        if len(theirs) == 1 and mine and mine[0].encoded.startswith(theirs[0].encoded):
            # Most often fragments were only appended, so what comes before them need not be taken apart.
            first = decode_records(mine[0].encoded[len(theirs[0].encoded) :])
            mine, theirs = mine[1:], ()
        others = set(_records(theirs))
        return chain(first, filterfalse(others.__contains__, _records(mine)))

    def apart(self, other: Fragments) -> tuple[Sequence[Chunk], Sequence[Chunk]]:
        """Returns the chunks that only this list has, and those that only the other has.

        All differences are in them. They are few if the lists share their chunks (`like` of `decode_file`);
        otherwise they may be all.
        """
        mine, theirs = _apart(self.chunks, other.chunks)
        ours = {chunk.encoded for chunk in mine}
        both = ours.intersection(chunk.encoded for chunk in theirs)
        return (
            [chunk for chunk in mine if chunk.encoded not in both],
            [chunk for chunk in theirs if chunk.encoded not in both],
        )

    def _find(self, number: int) -> tuple[int, int] | None:
        """Returns the index of a fragment's chunk and the fragment's index in it, or None."""
        index = self._chunk_index(number)
        if index == len(self.chunks):
            return None
        at = index_of(self.chunks[index].ids, number)
        return None if at is None else (index, at)

    def _chunk_index(self, number: int) -> int:
        """Returns the index of the first chunk that doesn't end before this id."""
        return bisect_left(self.chunks, number, key=_last_id)

    def _edits(
        self, replaced: Mapping[int, Numbered], removed: set[int], added: Sequence[Numbered]
    ) -> tuple[dict[int, ChunkChange], list[Numbered]]:
        """Returns the edit of each chunk by its index, and the fragments after the last chunk."""
        edits: dict[int, ChunkChange] = {}
        behind: list[Numbered] = []
        for number, fragment in replaced.items():
            if fragment.id != number:
                raise ValueError(f"fragment {number} can't be replaced by fragment {fragment.id}")
            edits.setdefault(self._present_index(number), ChunkChange()).replaced.append(fragment)
        for number in removed:
            edits.setdefault(self._present_index(number), ChunkChange()).removed.append(number)
        last = self.last_id
        for fragment in added:
            if fragment.id > last:
                behind.append(fragment)
            else:
                edits.setdefault(self._chunk_index(fragment.id), ChunkChange()).added.append(fragment)
        return edits, behind

    def _present_index(self, number: int) -> int:
        index = self._chunk_index(number)
        if index == len(self.chunks):
            raise KeyError(number)
        return index


@dataclass(frozen=True, slots=True)
class _Opened(Fragments):
    """`open`: the records of the chunks that were opened, by their index."""

    open: dict[int, Sequence[bytes]] = field(default_factory=dict, compare=False, repr=False)

    def _records_of(self, chunk: int) -> Sequence[bytes]:
        records = self.open.get(chunk)
        if records is None:
            records = self.open[chunk] = self.chunks[chunk].records()
        return records


class FragmentListReader:
    """The list of a manifest while it is read: its records are added part by part.

    Each fragment is decoded once, for its id and row counts; only the bytes are kept.
    """

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._tally = NOTHING
        self._pending = b""

    def add(self, records: bytes) -> None:
        """Adds the next fragments, as records of `Manifest.fragments`: at most `CHUNK_BYTES`, or just one.

        Raises `DecodeError` if a fragment is broken, and `ValueError` if the ids don't ascend: looking up an
        id in such a list gives wrong results.
        """
        if self._pending and len(self._pending) + len(records) > CHUNK_BYTES:
            self._close()
        self._pending += records

    def share(self, chunk: Chunk) -> None:
        """Adds the next fragments as a chunk that was decoded before. Raises as `add`."""
        if self._pending:
            self._close()
        before = self._chunks[-1].last_id if self._chunks else -1
        if chunk.first_id <= before:
            raise ValueError(f"fragment {chunk.first_id} comes after fragment {before}: ids must ascend")
        _push(self._chunks, chunk)
        self._tally = self._tally.plus(chunk.tally)

    def finish(self) -> Fragments:
        """Returns the list. Raises as `add`."""
        if self._pending:
            self._close()
        return Fragments(tuple(self._chunks), self._tally)

    def _close(self) -> None:
        chunk = parsed(self._pending, self._chunks[-1].last_id if self._chunks else -1)
        _push(self._chunks, chunk)
        self._tally = self._tally.plus(chunk.tally)
        self._pending = b""


def _records(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    return chain.from_iterable(chunk.records() for chunk in chunks)


def _shared(first: tuple[Chunk, ...], other: tuple[Chunk, ...]) -> int:
    """Returns how many chunks both begin with."""
    apart = list(map(is_not, first, other))
    return apart.index(True) if True in apart else len(apart)


def _apart(first: tuple[Chunk, ...], other: tuple[Chunk, ...]) -> tuple[Sequence[Chunk], Sequence[Chunk]]:
    """Returns the chunks that only the first has, and those that only the other has, both in their order."""
    start = _shared(first, other)
    first, other = first[start:], other[start:]
    end = _shared(first[::-1], other[::-1])
    first, other = first[: len(first) - end], other[: len(other) - end]
    ours = {chunk.first_id: chunk for chunk in first}
    theirs = {chunk.first_id: chunk for chunk in other}
    return (
        [chunk for chunk in first if theirs.get(chunk.first_id) is not chunk],
        [chunk for chunk in other if ours.get(chunk.first_id) is not chunk],
    )


def _spliced(
    chunks: tuple[Chunk, ...], parts: Mapping[int, Sequence[Chunk]], behind: Sequence[Chunk]
) -> tuple[Chunk, ...]:
    """Returns the chunks, with those at the indices of `parts` replaced by these, and `behind` after them.

    Adjacent chunks that became short are joined. Chunks that were adjacent before are long enough together,
    so only the first of each unchanged run is checked.
    """
    result: list[Chunk] = []
    done = 0
    for index in sorted(parts):
        _push_run(result, chunks, done, index)
        for chunk in parts[index]:
            _push(result, chunk)
        done = index + 1
    _push_run(result, chunks, done, len(chunks))
    for chunk in behind:
        _push(result, chunk)
    return tuple(result)


def _push_run(result: list[Chunk], chunks: tuple[Chunk, ...], start: int, end: int) -> None:
    if start < end:
        _push(result, chunks[start])
        result += chunks[start + 1 : end]


def _push(result: list[Chunk], chunk: Chunk) -> None:
    if result and result[-1].tally.size + chunk.tally.size <= CHUNK_BYTES:
        result[-1] = result[-1].joined(chunk)
    else:
        result.append(chunk)
