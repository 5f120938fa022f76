"""The fragments of a version as encoded chunks that the next version shares.

A manifest lists every fragment of its table. Decoding or encoding that list for each version would make a
commit's cost grow with the table, so the list is kept as chunks of bytes, each already in the form the
manifest wants (`Manifest.fragments`, field 2, one record after the other). A new version adds a chunk and
shares the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_protos.lance.views_pb2 import FragmentsView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

CHUNK_BYTES = 256 * 1024


class Numbered(NamedTuple):
    """One fragment that has its id: `encoded` is the whole DataFragment message, id included."""

    id: int
    encoded: bytes
    physical_rows: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some neighbouring fragments of the list: `encoded` holds them as records of `Manifest.fragments`."""

    encoded: bytes
    count: int
    first_id: int
    last_id: int
    physical_rows: int
    deleted_rows: int

    def records(self) -> list[bytes]:
        """The fragments one by one, still encoded."""
        return list(FragmentsView.FromString(self.encoded).fragments)

    def decode(self) -> list[DataFragment]:
        """The fragments as messages."""
        return [DataFragment.FromString(data) for data in self.records()]

    def joined(self, other: Chunk) -> Chunk:
        """Joins this chunk and the one that follows it."""
        return Chunk(
            self.encoded + other.encoded,
            self.count + other.count,
            self.first_id,
            other.last_id,
            self.physical_rows + other.physical_rows,
            self.deleted_rows + other.deleted_rows,
        )


def encode_records(fragments: Sequence[bytes]) -> bytes:
    """Encoded DataFragments as the records of `Manifest.fragments`."""
    return FragmentsView(fragments=fragments).SerializeToString()


@dataclass(frozen=True, slots=True)
class Fragments:
    """All fragments of one version, ascending by id. Never changed: a new one shares its chunks."""

    chunks: tuple[Chunk, ...] = ()

    @property
    def count(self) -> int:
        """How many fragments there are."""
        return sum(chunk.count for chunk in self.chunks)

    @property
    def physical_rows(self) -> int:
        """All rows that lie in the data files, deleted ones included."""
        return sum(chunk.physical_rows for chunk in self.chunks)

    @property
    def deleted_rows(self) -> int:
        """Rows that deletion files mark as deleted."""
        return sum(chunk.deleted_rows for chunk in self.chunks)

    @property
    def last_id(self) -> int:
        """The highest id in the list, -1 where it is empty."""
        return self.chunks[-1].last_id if self.chunks else -1

    @property
    def size(self) -> int:
        """The encoded size in bytes."""
        return sum(len(chunk.encoded) for chunk in self.chunks)

    def __iter__(self) -> Iterator[DataFragment]:
        """Each fragment as a message; decodes the whole list, so never on the way of a commit."""
        for chunk in self.chunks:
            yield from chunk.decode()

    def taken(self, ids: Collection[int]) -> set[int]:
        """Those of `ids` that live fragments bear; decodes only the chunks that they fall into, each once."""
        found: set[int] = set()
        for chunk in self.chunks:
            near = {number for number in ids if chunk.first_id <= number <= chunk.last_id}
            if near:
                found |= near.intersection(fragment.id for fragment in chunk.decode())
        return found

    def added(self, fragments: Sequence[Numbered]) -> Fragments:
        """With these fragments, ascending among themselves; ids below the last one are put in their place."""
        if not fragments:
            return self
        if fragments[0].id > self.last_id:
            return Fragments(_settled((*self.chunks, _chunk_of(fragments))))
        return Fragments(_with_inserted(self.chunks, fragments))


def _chunk_of(fragments: Sequence[Numbered]) -> Chunk:
    return Chunk(
        encode_records([fragment.encoded for fragment in fragments]),
        len(fragments),
        fragments[0].id,
        fragments[-1].id,
        sum(fragment.physical_rows for fragment in fragments),
        0,
    )


def _settled(chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Joins short chunks at the end, so that their number grows with the logarithm of the versions.

    A byte is copied only into a chunk at least half as long again: the work for one version stays bounded by
    its own change times that logarithm, and by `CHUNK_BYTES` in one step.
    """
    settled = list(chunks)
    while len(settled) > 1:
        last, before = settled[-1], settled[-2]
        if (
            len(before.encoded) > 2 * len(last.encoded)
            or len(before.encoded) + len(last.encoded) > CHUNK_BYTES
        ):
            break
        settled[-2:] = [before.joined(last)]
    return tuple(settled)


def _with_inserted(chunks: tuple[Chunk, ...], fragments: Sequence[Numbered]) -> tuple[Chunk, ...]:
    """Puts fragments among those that are there; only the chunks they fall into are decoded."""
    result: list[Chunk] = []
    waiting = list(fragments)
    for chunk in chunks:
        mine = [fragment for fragment in waiting if fragment.id <= chunk.last_id]
        waiting = waiting[len(mine) :]
        result.append(_merged(chunk, mine) if mine else chunk)
    return tuple(result) if not waiting else _settled((*result, _chunk_of(waiting)))


def _merged(chunk: Chunk, fragments: Sequence[Numbered]) -> Chunk:
    """A chunk with more fragments, each in its place; those that were there keep their bytes."""
    present = [
        Numbered(one.id, data, one.physical_rows)
        for one, data in zip(chunk.decode(), chunk.records(), strict=True)
    ]
    merged = _chunk_of(sorted([*present, *fragments], key=lambda fragment: fragment.id))
    return replace(merged, deleted_rows=chunk.deleted_rows)


def fragments_of(encoded: Sequence[bytes]) -> Fragments:
    """The list of a manifest just read, in chunks. Parses each fragment once (for its id and row counts).

    Raises `ValueError` where the ids don't ascend: what is looked up in such a list is silently wrong.
    """
    chunks: list[Chunk] = []
    start, size = 0, 0
    for end, data in enumerate(encoded, start=1):
        size += len(data)
        if size >= CHUNK_BYTES or end == len(encoded):
            chunks.append(_parsed_chunk(encoded[start:end], chunks[-1].last_id if chunks else -1))
            start, size = end, 0
    return Fragments(tuple(chunks))


def _parsed_chunk(encoded: Sequence[bytes], last_id: int) -> Chunk:
    fragments = [DataFragment.FromString(data) for data in encoded]
    for fragment in fragments:
        if fragment.id <= last_id:
            raise ValueError(f"fragment {fragment.id} stands after fragment {last_id}: their ids must ascend")
        last_id = fragment.id
    return Chunk(
        encode_records(encoded),
        len(fragments),
        fragments[0].id,
        fragments[-1].id,
        sum(fragment.physical_rows for fragment in fragments),
        sum(
            fragment.deletion_file.num_deleted_rows
            for fragment in fragments
            if fragment.HasField("deletion_file")
        ),
    )
