"""The fragments of a version as encoded chunks that the next version shares.

A manifest lists every fragment of its table. Decoding or encoding that list for each version would make a
commit's cost grow with the table, so the list is kept as chunks of bytes, each already in the form the
manifest wants (`Manifest.fragments`, field 2, one record after the other). A new version encodes the chunks
that its change falls into and shares the rest.
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
    Edit,
    Numbered,
    Tally,
    chunks_of,
    cut,
    decode_records,
    encode_records,
    parsed,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

__all__ = ["CHUNK_BYTES", "MAX_CHUNK_BYTES", "PORTION", "Fragments", "Gathering", "Numbered", "fragments_of"]

SEARCH_COST = 64
"""Looking one id up takes as long as walking by so many."""

PORTION = 1024
"""So many fragments are decoded at once where very many are looked at: each takes two kilobytes."""

_last_id = attrgetter("last_id")
_encoded = attrgetter("encoded")
_by_id = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Fragments:
    """All fragments of one version, ascending by id. Never changed: a new one shares its chunks.

    No two neighbouring chunks are together as short as `CHUNK_BYTES`; none is longer than `MAX_CHUNK_BYTES`,
    unless it is one fragment. `tally` is the sum of theirs.
    """

    chunks: tuple[Chunk, ...] = ()
    tally: Tally = NOTHING

    @classmethod
    def of(cls, fragments: Iterable[Numbered]) -> Fragments:
        """The list of these fragments, in any order. Raises `ValueError` where two have one id."""
        return cls().added(sorted(fragments, key=_by_id))

    @property
    def count(self) -> int:
        """How many fragments there are."""
        return self.tally.fragments

    @property
    def physical_rows(self) -> int:
        """All rows that lie in the data files, deleted ones included."""
        return self.tally.physical_rows

    @property
    def deleted_rows(self) -> int:
        """Rows that deletion files mark as deleted, as far as they tell how many."""
        return self.tally.deleted_rows

    @property
    def has_deletions(self) -> bool:
        """Whether any fragment has a deletion file."""
        return self.tally.deletion_files > 0

    @property
    def counts_rows(self) -> bool:
        """Whether every fragment says how many rows it has, and how many of them are deleted."""
        return not self.tally.untold

    @property
    def size(self) -> int:
        """The encoded size in bytes."""
        return self.tally.size

    @property
    def last_id(self) -> int:
        """The highest id in the list, -1 where it is empty."""
        return self.chunks[-1].last_id if self.chunks else -1

    def __iter__(self) -> Iterator[DataFragment]:
        """Each fragment as a message; decodes the whole list, so never on the way of a small commit."""
        for chunk in self.chunks:
            yield from chunk.decode()

    def buffers(self) -> Iterator[bytes]:
        """The whole list as records of `Manifest.fragments`, chunk by chunk."""
        return map(_encoded, self.chunks)

    def ids(self) -> Iterator[int]:
        """All ids, ascending; nothing is decoded for it."""
        return chain.from_iterable(chunk.ids for chunk in self.chunks)

    def taken(self, ids: Collection[int]) -> set[int]:
        """Those of `ids` that live fragments bear; nothing is decoded for it."""
        if len(ids) * SEARCH_COST > self.count:
            return set(self.ids()).intersection(ids)
        return {number for number in ids if self._find(number) is not None}

    def records(self, ids: Collection[int]) -> dict[int, bytes]:
        """The fragments with these ids, encoded as written; an id that no fragment bears is left out."""
        places = [(number, place) for number in ids if (place := self._find(number))]
        opened = {index: self._records_of(index) for index in {index for _, (index, _) in places}}
        return {number: opened[index][at] for number, (index, at) in places}

    def opened(self) -> Fragments:
        """The same list for many look-ups: it keeps open what it opened, so it is not to be kept itself."""
        return _Opened(self.chunks, self.tally)

    def _records_of(self, chunk: int) -> Sequence[bytes]:
        return self.chunks[chunk].records()

    def get(self, ids: Collection[int]) -> dict[int, DataFragment]:
        """The fragments with these ids; an id that no fragment bears is left out. Decodes no others."""
        return {number: DataFragment.FromString(data) for number, data in self.records(ids).items()}

    def each(self, ids: Iterable[int]) -> Iterator[DataFragment]:
        """As `get`, ascending, for any number of ids: decoded in portions, so not to be kept."""
        wanted = sorted(set(ids))
        for start in range(0, len(wanted), PORTION):
            yield from self.get(wanted[start : start + PORTION]).values()

    def added(self, fragments: Sequence[Numbered]) -> Fragments:
        """With these fragments, ascending among themselves; ids below the last one are put in their place.

        Raises `ValueError` where they don't ascend, or an id is taken.
        """
        return self.changed({}, (), fragments)

    def followed(self, chunks: Sequence[Chunk]) -> Fragments:
        """With these chunks behind the last one. Raises `ValueError` where their ids don't ascend."""
        result, tally, last = list(self.chunks), self.tally, self.last_id
        for chunk in chunks:
            if chunk.first_id <= last:
                raise ValueError(f"fragment {chunk.first_id} stands after fragment {last}: ids must ascend")
            _push(result, chunk)
            tally, last = tally.plus(chunk.tally), chunk.last_id
        return Fragments(tuple(result), tally)

    def changed(
        self, replaced: Mapping[int, Numbered], removed: Collection[int] = (), added: Sequence[Numbered] = ()
    ) -> Fragments:
        """With some fragments replaced by others of the same id, some removed, and some added.

        A fragment that is both replaced and removed is removed (Lance fact 5.4). Chunks in which
        nothing changes are shared; fragments beside a change keep their bytes. Raises `KeyError` where one to
        be replaced or removed is not in the list, `ValueError` where an added id is taken.
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
        """The encoded fragments that the other list doesn't have so; shared chunks cost nothing."""
        mine, theirs = _apart(self.chunks, other.chunks)
        first: Sequence[bytes] = ()
        if len(theirs) == 1 and mine and mine[0].encoded.startswith(theirs[0].encoded):
            # Only appended to, as most often: what lies in front need not be taken apart.
            first = decode_records(mine[0].encoded[len(theirs[0].encoded) :])
            mine, theirs = mine[1:], ()
        known = set(_records(theirs))
        return chain(first, filterfalse(known.__contains__, _records(mine)))

    def apart(self, other: Fragments) -> tuple[Sequence[Chunk], Sequence[Chunk]]:
        """The chunks that only this list has, and those that only the other has: in them is all that differs.

        Few where the lists share their chunks (`like` of `decode_file`), else maybe all.
        """
        mine, theirs = _apart(self.chunks, other.chunks)
        ours = {chunk.encoded for chunk in mine}
        both = ours.intersection(chunk.encoded for chunk in theirs)
        return (
            [chunk for chunk in mine if chunk.encoded not in both],
            [chunk for chunk in theirs if chunk.encoded not in both],
        )

    def _find(self, number: int) -> tuple[int, int] | None:
        """Where a fragment is: the index of its chunk, and its own in that."""
        index = self._place(number)
        if index == len(self.chunks):
            return None
        at = place_of(self.chunks[index].ids, number)
        return None if at is None else (index, at)

    def _place(self, number: int) -> int:
        """The index of the first chunk that doesn't end before this id."""
        return bisect_left(self.chunks, number, key=_last_id)

    def _edits(
        self, replaced: Mapping[int, Numbered], removed: set[int], added: Sequence[Numbered]
    ) -> tuple[dict[int, Edit], list[Numbered]]:
        """The edit of each chunk by its index, and what comes behind the last chunk."""
        edits: dict[int, Edit] = {}
        behind: list[Numbered] = []
        for number, fragment in replaced.items():
            if fragment.id != number:
                raise ValueError(f"fragment {number} can't be replaced by fragment {fragment.id}")
            edits.setdefault(self._live_place(number), Edit()).replaced.append(fragment)
        for number in removed:
            edits.setdefault(self._live_place(number), Edit()).removed.append(number)
        last = self.last_id
        for fragment in added:
            if fragment.id > last:
                behind.append(fragment)
            else:
                edits.setdefault(self._place(fragment.id), Edit()).added.append(fragment)
        return edits, behind

    def _live_place(self, number: int) -> int:
        index = self._place(number)
        if index == len(self.chunks):
            raise KeyError(number)
        return index


@dataclass(frozen=True, slots=True)
class _Opened(Fragments):
    """`open`: of the chunks that were opened so far, by their place."""

    open: dict[int, Sequence[bytes]] = field(default_factory=dict, compare=False, repr=False)

    def _records_of(self, chunk: int) -> Sequence[bytes]:
        found = self.open.get(chunk)
        if found is None:
            found = self.open[chunk] = self.chunks[chunk].records()
        return found


class Gathering:
    """The list of a manifest while it is read: its records are handed over part by part.

    Each fragment is decoded once, for its id and row counts; only the bytes are kept.
    """

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._tally = NOTHING
        self._pending = b""

    def add(self, records: bytes) -> None:
        """Takes the next fragments, as records of `Manifest.fragments`: `CHUNK_BYTES` at most, or one.

        Raises `DecodeError` where one is broken, `ValueError` where the ids don't ascend: what is looked up
        in such a list is silently wrong.
        """
        if self._pending and len(self._pending) + len(records) > CHUNK_BYTES:
            self._close()
        self._pending += records

    def share(self, chunk: Chunk) -> None:
        """Takes the next fragments as a chunk that was decoded already. Raises `ValueError` as `add`."""
        if self._pending:
            self._close()
        before = self._chunks[-1].last_id if self._chunks else -1
        if chunk.first_id <= before:
            raise ValueError(f"fragment {chunk.first_id} stands after fragment {before}: ids must ascend")
        _push(self._chunks, chunk)
        self._tally = self._tally.plus(chunk.tally)

    def finish(self) -> Fragments:
        """The list. Raises as `add`."""
        if self._pending:
            self._close()
        return Fragments(tuple(self._chunks), self._tally)

    def _close(self) -> None:
        chunk = parsed(self._pending, self._chunks[-1].last_id if self._chunks else -1)
        _push(self._chunks, chunk)
        self._tally = self._tally.plus(chunk.tally)
        self._pending = b""


def fragments_of(encoded: Sequence[bytes]) -> Fragments:
    """The list of these encoded fragments. Raises as `Gathering.add`."""
    gathering = Gathering()
    for part in cut(encoded):
        gathering.add(encode_records(part))
    return gathering.finish()


def _records(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    return chain.from_iterable(chunk.records() for chunk in chunks)


def _shared(one: tuple[Chunk, ...], other: tuple[Chunk, ...]) -> int:
    """How many chunks both begin with."""
    apart = list(map(is_not, one, other))
    return apart.index(True) if True in apart else len(apart)


def _apart(one: tuple[Chunk, ...], other: tuple[Chunk, ...]) -> tuple[Sequence[Chunk], Sequence[Chunk]]:
    """The chunks that only the one has, and those that only the other has, both in their order."""
    start = _shared(one, other)
    one, other = one[start:], other[start:]
    end = _shared(one[::-1], other[::-1])
    one, other = one[: len(one) - end], other[: len(other) - end]
    ours = {chunk.first_id: chunk for chunk in one}
    theirs = {chunk.first_id: chunk for chunk in other}
    return (
        [chunk for chunk in one if theirs.get(chunk.first_id) is not chunk],
        [chunk for chunk in other if ours.get(chunk.first_id) is not chunk],
    )


def _spliced(
    chunks: tuple[Chunk, ...], parts: Mapping[int, Sequence[Chunk]], behind: Sequence[Chunk]
) -> tuple[Chunk, ...]:
    """The chunks, with those at the indices of `parts` replaced by these, and more behind them.

    Neighbours that became short are joined. Chunks that were neighbours before are long enough together, so
    only the first of each untouched run is looked at.
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
