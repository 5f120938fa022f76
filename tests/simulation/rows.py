"""Which rows of a table are live: read from a version's files, and computed from what was committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.lance.rows.deleted_rows import deletion_location
from lakefold_table.lance.rows.deletions import decode_deletions
from lakefold_table.roots import folder_and_name
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.entry import Committed
    from lakefold_table.lance.state import LanceState

DELETIONS: Final = "_deletions/"


@dataclass(frozen=True)
class Live:
    """The rows of a fragment that live, by their places in its data file."""

    file: str
    rows: frozenset[int]


Rows = dict[int, Live]
"""The rows that live, by the fragment's id; one without any is not there."""


Moves = dict[int, dict[int, tuple[int, int]]]
"""Where Rewrites moved rows: by old fragment and offset, the new fragment and the offset there."""


class MissingRowsError(Exception):
    """Rows can't be deleted that don't live."""


def deletions_of(uri: str, state: LanceState) -> dict[int, Bitmap]:
    """The rows deleted from each fragment that has a deletion file, as the file says.

    Raises `FileNotFoundError`, `DamagedError`.
    """
    return {
        fragment.id: _deleted(uri, state, fragment)
        for fragment in state.fragments
        if fragment.HasField("deletion_file")
    }


def rows_of(state: LanceState, deletions: Mapping[int, Bitmap]) -> Rows:
    """The rows that live in a version, where these are deleted."""
    return {
        fragment.id: Live(
            fragment.files[0].path,
            frozenset(range(fragment.physical_rows)).difference(deletions.get(fragment.id, ())),
        )
        for fragment in state.fragments
    }


def _deleted(uri: str, state: LanceState, fragment: DataFragment) -> Bitmap:
    path = deletion_location(state.head, fragment.id, fragment.deletion_file)
    root, name = folder_and_name(path) if "://" in path else (uri, path)
    data = MemoryStorage(root).get(name)
    return decode_deletions(fragment.deletion_file, data, fragment.physical_rows, path)


def new_fragments(envelope: Envelope) -> list[DataFragment]:
    """The fragments that a proposal adds."""
    return [*envelope.lance.append.fragments, *envelope.lance.update.new_fragments]


def written_fragments(envelope: Envelope) -> list[DataFragment]:
    """The fragments for which a proposal has written files, those of a Rewrite too."""
    rewritten = [fragment for group in envelope.lance.rewrite.groups for fragment in group.new_fragments]
    return [*new_fragments(envelope), *rewritten]


def moves_of(rewrites: Mapping[int, Live], committed: Committed) -> Moves:
    """Where a Rewrite moved the rows that it read as live: one after another, into one fragment."""
    live_rows = [(number, offset) for number, live in rewrites.items() for offset in sorted(live.rows)]
    moves: Moves = {number: {} for number in rewrites}
    for rank, (number, offset) in enumerate(live_rows):
        moves[number][offset] = (committed.first_fragment_id, rank)
    return moves


def followed(named: Mapping[int, Live], rows: Rows, moves: Moves) -> Rows:
    """The named rows where they are now. Rows of a fragment that is there, or was not rewritten, stay."""
    now: dict[int, tuple[str, set[int]]] = {}
    for number, live in named.items():
        for row in live.rows:
            address = (number, row)
            while address[0] not in rows and address[1] in moves.get(address[0], {}):
                address = moves[address[0]][address[1]]
            stays = address[0] == number or address[0] not in rows
            now.setdefault(address[0], (live.file if stays else rows[address[0]].file, set()))[1].add(
                address[1]
            )
    return {number: Live(file, frozenset(some)) for number, (file, some) in now.items()}


def rewritten(rows: Rows, rewrites: Mapping[int, Live], envelope: Envelope, committed: Committed) -> Rows:
    """The rows after a Rewrite: those that still live of those that it read, in its new fragment.

    `rewrites`: the rows that it read as live, by old fragment, in the order of the group.
    """
    left = {number: live for number, live in rows.items() if number not in rewrites}
    moves = moves_of(rewrites, committed)
    live = [
        moves[number][row][1]
        for number in rewrites
        if number in rows
        for row in rows[number].rows
        if row in moves[number]
    ]
    (fragment,) = envelope.lance.rewrite.groups[0].new_fragments
    return (
        {**left, committed.first_fragment_id: Live(fragment.files[0].path, frozenset(live))} if live else left
    )


def added(envelope: Envelope, committed: Committed) -> Rows:
    """The rows that a proposal added, in fragments with the ids of its outcome."""
    return {
        committed.first_fragment_id + index: Live(
            fragment.files[0].path, frozenset(range(fragment.physical_rows))
        )
        for index, fragment in enumerate(new_fragments(envelope))
    }


def without(rows: Rows, deleted: Mapping[int, Live]) -> Rows:
    """The rows without these. Raises `MissingRowsError` unless all of them live."""
    left = dict(rows)
    for number, gone in deleted.items():
        fragment = left.get(number)
        if fragment is None or fragment.file != gone.file or not gone.rows <= fragment.rows:
            raise MissingRowsError(f"{gone} of fragment {number} don't live there, but {fragment}")
        left[number] = Live(fragment.file, fragment.rows - gone.rows)
        if not left[number].rows:
            del left[number]
    return left


def count(rows: Mapping[int, Live]) -> int:
    """How many rows these are."""
    return sum(len(fragment.rows) for fragment in rows.values())
