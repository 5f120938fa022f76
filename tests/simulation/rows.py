"""Which rows of a table are live: read from a version's files, and computed from what was committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.lance.rows.deleted_rows import deletion_location
from lakefold_table.lance.rows.deletions import decode_deletions
from lakefold_table.roots import folder_and_name
from lakefold_table.storage.memory import MemoryStorage

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
    """The rows of one fragment that live, by their places in its data file."""

    file: str
    rows: frozenset[int]


Rows = dict[int, Live]
"""The rows that live, by the fragment's id; one without any is not there."""


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
