"""Assigns ids to new fragments and rows, as pylance does (Lance facts 6.1 and 7.2).

A fragment without an id gets the id after the highest that the table ever used; a fragment with an id
keeps it if it is free. Row ids are assigned in the order of the proposal's fragments, to those that have
none.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from lakefold_table.entry import Invalid
from lakefold_table.lance.manifests.chunks import Chunk, counted, new_chunks
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.rows.rowids import lineage, lineages
from lakefold_table.lance.schemas.columns import some
from lakefold_table.wire import varint, varints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
    from lakefold_table.lance.manifests.packed_append import Packed

MAX_FRAGMENT_ID = 2**32 - 2
"""The highest id that is assigned; pylance can't assign ids after 2^32 - 1 (Lance fact 3.1)."""
MAX_STEP = 2**24
"""How far a proposal may raise the highest id. Ids are never reused, so a mistake must not use them all up.
"""
MAX_ROW_ID = 2**64 - 1


class Numbering:
    """The next free ids of a version in the making.

    `max_id`: the highest fragment id ever used, None if none was. `next_row_id`: the first free row id.
    `stable`: whether rows have stable ids, so that new rows need some. `live`: the table's current fragments.
    """

    def __init__(self, live: Fragments, max_id: int | None, next_row_id: int, *, stable: bool) -> None:
        self._live = live
        self._next = max(-1 if max_id is None else max_id, live.last_id) + 1
        self._stable = stable
        self.next_row_id = next_row_id
        self.first_ids = (self._next, next_row_id)

    def continue_on(self, live: Fragments) -> None:
        """Continues with another list of fragments; ids that were ever used stay used."""
        self._live = live
        self._next = max(self._next, live.last_id + 1)

    def raise_to(self, head: Manifest) -> None:
        """Marks the ids that this manifest has used as used."""
        if head.HasField("max_fragment_id"):
            self._next = max(self._next, head.max_fragment_id + 1)
        self.next_row_id = max(self.next_row_id, head.next_row_id)

    @property
    def max_id(self) -> int | None:
        """The highest fragment id ever used, None if none was."""
        return self._next - 1 if self._next else None

    def fault(self, fragments: Sequence[DataFragment]) -> Invalid | None:
        """Returns why these fragments can't get or keep their ids, None if they can."""
        proposed = [fragment.id for fragment in fragments if fragment.id]
        unnumbered = len(fragments) - len(proposed)
        room_fault = self.room_fault(unnumbered, sum(fragment.physical_rows for fragment in fragments))
        if room_fault is not None or not proposed:
            return room_fault
        after = self._next + unnumbered
        ids = set(proposed)
        used = self._live.taken(ids) | {number for number in ids if self._next <= number < after}
        highest = min(self._next + MAX_STEP, MAX_FRAGMENT_ID)
        wrong = used | {number for number in ids if number > highest}
        if wrong or len(ids) < len(proposed):
            return Invalid(
                f"fragment ids {some(wrong or ids)} are in use, listed twice or above {highest}",
                "set the ids to 0: they are assigned when the proposal is folded",
            )
        return None

    def room_fault(self, fragments: int, rows: int) -> Invalid | None:
        """Returns why these numbers of fragments and rows can't get new ids, or None if they can."""
        if self._next + fragments - 1 > MAX_FRAGMENT_ID:
            return Invalid("the table has no fragment ids left", "copy the table into a new one")
        if self._stable and self.next_row_id + rows > MAX_ROW_ID:
            return Invalid("the table has no row ids left", "copy the table into a new one")
        return None

    def ids_for(self, fragments: Sequence[DataFragment]) -> list[int]:
        """Returns the ids that these fragments will get, in their order."""
        free_ids = itertools.count(self._next)
        return [fragment.id or next(free_ids) for fragment in fragments]

    def use_row_ids(self, number: int) -> None:
        """Records that this many row ids were assigned in fragments with their own sequences."""
        self.next_row_id += number

    def reserve_fault(self, count: int) -> Invalid | None:
        """Returns why `count` ids can't be reserved, None if they can."""
        most = min(MAX_STEP, MAX_FRAGMENT_ID + 1 - self._next)
        if 0 < count <= most:
            return None
        return Invalid(f"{count} fragment ids can't be reserved", f"reserve from 1 to {most} at once")

    def reserve(self, count: int) -> int:
        """Reserves ids and returns the first of them."""
        first = self._next
        self._next += count
        return first

    def number(
        self, fragments: Sequence[DataFragment], plain: Sequence[bytes], version: int
    ) -> list[Numbered]:
        """Returns the fragments with their ids, in order. `plain`: each as proposed, encoded."""
        numbered: list[Numbered] = []
        for fragment, encoded in zip(fragments, plain, strict=True):
            number = fragment.id or self.reserve(1)
            complete = self._complete(fragment, encoded, number, version)
            numbered.append(counted(fragment, complete)._replace(id=number))
        self._next = max([self._next, *(entry.id + 1 for entry in numbered)])
        return numbered

    def number_plain(self, record: bytes, rows: int, version: int) -> Numbered:
        """Returns a fragment of `rows` rows that has no id yet. `record`: as proposed, encoded."""
        number = self._next
        self._next = number + 1
        encoded = b"\x08" + varint(number) + record if number else record
        if self._stable:
            encoded += lineage(self.next_row_id, rows, version)
            self.next_row_id += rows
        return Numbered(number, encoded, rows)

    def number_packed(self, packed: Packed, version: int) -> list[Chunk]:
        """Returns the encoded fragments with their ids, in order, as `number` would."""
        chunks: list[Chunk] = []
        offset = 0
        for records in packed.records():
            rows, first = packed.rows[offset : offset + len(records)], self.reserve(len(records))
            encoded = list(map(bytes.__add__, id_fields(first, len(records)), records))
            if self._stable:
                encoded = list(map(bytes.__add__, encoded, lineages(self.next_row_id, rows, version)))
                self.next_row_id += sum(rows)
            chunks += new_chunks(encoded, first, rows)
            offset += len(records)
        return chunks

    def _complete(self, fragment: DataFragment, plain: bytes, number: int, version: int) -> bytes:
        encoded = plain if fragment.id or not number else b"\x08" + varint(number) + plain
        if self._stable and not fragment.HasField("inline_row_ids"):
            encoded += lineage(self.next_row_id, fragment.physical_rows, version)
            self.next_row_id += fragment.physical_rows
        return encoded


def id_fields(first: int, count: int) -> list[bytes]:
    """Returns the encoded field `DataFragment.id` for consecutive ids; the id 0 is not encoded."""
    fields = [b"\x08" + encoded for encoded in varints(np.arange(first, first + count, dtype=np.uint64))]
    return [b"", *fields[1:]] if not first and fields else fields
