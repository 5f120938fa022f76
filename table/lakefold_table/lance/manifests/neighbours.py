"""A manifest's list of fragments read beside that of a neighbouring version: what is the same is shared.

Most of a list is the same from version to version, byte for byte, wherever it stands in the file. So whoever
has one version reads the next one at the cost of comparing bytes, and only the fragments around a change are
walked through and decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.wire import Run, record_end, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.lance.manifests.chunks import Chunk
    from lakefold_table.lance.manifests.fragments import Fragments


class Neighbour:
    """The list of another version, as one walks through a message in which most of it stands again.

    `number`: the field that the records are.
    """

    def __init__(self, like: Fragments, number: int) -> None:
        self._chunks = like.chunks
        self._number = number
        self._next = 0
        self._starts: dict[bytes, int] | None = None

    def parts(self, data: bytes, longest: int, span: range) -> Iterator[Run | Chunk]:
        """As `runs`, with a chunk of the other list wherever its bytes stand. Raises as `runs`."""
        at, end = span.start, span.stop
        while at < end:
            start = at
            chunk = self._here(data, at, end)
            while chunk is None and self._next < len(self._chunks):
                after = record_end(data, at, end, self._number)
                if after == at or (after - start > longest and at > start):
                    break
                at = after
                chunk = self._here(data, at, end)
            if at > start:
                yield Run(wanted=True, start=start, end=at)
            if chunk is not None:
                yield chunk
                at += len(chunk.encoded)
            elif at == start:
                # Another field, or nothing of the other list is to come.
                run = next(runs(data, self._number, longest, range(at, end)))
                yield run
                at = run.end

    def _here(self, data: bytes, at: int, end: int) -> Chunk | None:
        """The chunk that begins here and is none of those that came already."""
        if self._next < len(self._chunks) and self._stands(self._next, data, at, end):
            found = self._next
        else:
            if self._starts is None:
                self._starts = self._first_records()
            record = data[at : record_end(data, at, end, self._number)]
            found = self._starts.get(record, -1)
            if found < self._next or not self._stands(found, data, at, end):
                return None
        self._next = found + 1
        return self._chunks[found]

    def _stands(self, index: int, data: bytes, at: int, end: int) -> bool:
        encoded = self._chunks[index].encoded
        return at + len(encoded) <= end and data.startswith(encoded, at)

    def _first_records(self) -> dict[bytes, int]:
        """The record that each chunk begins with."""
        found: dict[bytes, int] = {}
        for index, chunk in enumerate(self._chunks):
            encoded = chunk.encoded
            found[encoded[: record_end(encoded, 0, len(encoded), self._number)]] = index
        found.pop(b"", None)
        return found
