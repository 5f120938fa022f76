"""Reads a manifest's list of fragments with the help of another version's: equal chunks are shared.

Most of a list is the same from version to version, byte for byte, at whatever offset of the file. So with the
list of one version the next is read at the cost of comparing bytes, and only the fragments around a
change are parsed and decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.wire import Run, record_end, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.lance.manifests.chunks import Chunk
    from lakefold_table.lance.manifests.fragments import Fragments


class ChunkReuse:
    """Finds the chunks of another version's list in a message, while it is read from start to end.

    `number`: the field number of the records.
    """

    def __init__(self, like: Fragments, number: int) -> None:
        self._chunks = like.chunks
        self._number = number
        self._next = 0
        self._starts: dict[bytes, int] | None = None

    def parts(self, data: bytes, longest: int, span: range) -> Iterator[Run | Chunk]:
        """Yields what `runs` does, with the other list's chunk for each equal part. Raises as `runs`."""
        at, end = span.start, span.stop
        while at < end:
            start = at
            chunk = self._chunk_at(data, at, end)
            while chunk is None and self._next < len(self._chunks):
                after = record_end(data, at, end, self._number)
                if after == at or (after - start > longest and at > start):
                    break
                at = after
                chunk = self._chunk_at(data, at, end)
            if at > start:
                yield Run(wanted=True, start=start, end=at)
            if chunk is not None:
                yield chunk
                at += len(chunk.encoded)
            elif at == start:
                # The next field is not a fragment, or all chunks of the other list were found.
                run = next(runs(data, self._number, longest, range(at, end)))
                yield run
                at = run.end

    def _chunk_at(self, data: bytes, at: int, end: int) -> Chunk | None:
        """Returns the chunk that begins at `at`, if it was not found before."""
        if self._next < len(self._chunks) and self._is_at(self._next, data, at, end):
            index = self._next
        else:
            if self._starts is None:
                self._starts = self._first_records()
            record = data[at : record_end(data, at, end, self._number)]
            index = self._starts.get(record, -1)
            if index < self._next or not self._is_at(index, data, at, end):
                return None
        self._next = index + 1
        return self._chunks[index]

    def _is_at(self, index: int, data: bytes, at: int, end: int) -> bool:
        encoded = self._chunks[index].encoded
        return at + len(encoded) <= end and data.startswith(encoded, at)

    def _first_records(self) -> dict[bytes, int]:
        """Returns the index of each chunk by the record that it begins with."""
        starts: dict[bytes, int] = {}
        for index, chunk in enumerate(self._chunks):
            encoded = chunk.encoded
            starts[encoded[: record_end(encoded, 0, len(encoded), self._number)]] = index
        starts.pop(b"", None)
        return starts
