"""Finds the parts of two consecutive versions that have to be compared.

Most fragments are the same in both, byte for byte. These are not decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.lance.feed.difference import ANEW, Side
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deleted_rows import deletion_location
from lakefold_table.lance.rows.deletions import decode_deletions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_reader.format.source import Source
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.kinds import Kind
    from lakefold_table.lance.manifests.chunks import Chunk
    from lakefold_table.lance.manifests.fragments import Fragments
    from lakefold_table.lance.state import LanceState

Unlike = tuple[dict[int, DataFragment], dict[int, DataFragment]]


def sides_of(
    source: Source,
    before: LanceState | None,
    after: LanceState,
    kind: Kind,
    dropped: frozenset[int] = frozenset(),
) -> tuple[Side, Side]:
    """Returns both versions for the comparison. `before` is None if the table had no rows.

    `went`: fields of `before` whose loss counts as a change. The deletion files of both are read when they
    are needed. Raises `FileNotFoundError` then, and `DamagedError`.
    """
    shown = frozenset(field.id for field in after.head.fields)
    if before is None:
        return Side({}, frozenset(), _no_rows), _side(
            source, after, {fragment.id: fragment for fragment in after.fragments}
        )
    known_ids = frozenset(field.id for field in before.head.fields)
    if kind in ANEW or dropped or not shown <= known_ids:
        # A column that is dropped or restored may have its values in files that existed all the time.
        old, new = ({fragment.id: fragment for fragment in state.fragments} for state in (before, after))
    else:
        old, new = unlike(before.fragments, after.fragments)
    return _side(source, before, old), _side(source, after, new)


def unlike(before: Fragments, after: Fragments) -> Unlike:
    """Returns, by id, the fragments of each version that differ from the other version's."""
    old, new = before.apart(after)
    was, now = _records(old), _records(new)
    return (
        {number: DataFragment.FromString(data) for number, data in was.items() if now.get(number) != data},
        {number: DataFragment.FromString(data) for number, data in now.items() if was.get(number) != data},
    )


def _records(chunks: Sequence[Chunk]) -> dict[int, bytes]:
    return {number: data for chunk in chunks for number, data in zip(chunk.ids, chunk.records(), strict=True)}


def _side(source: Source, state: LanceState, fragments: dict[int, DataFragment]) -> Side:
    fields = frozenset(field.id for field in state.head.fields)
    return Side(fragments, fields, lambda fragment: deleted_rows(source, state.head, fragment))


def deleted_rows(source: Source, head: Manifest, fragment: DataFragment) -> Bitmap:
    """Returns the rows that a fragment's deletion file lists. `head`: of a version that has the fragment.

    Raises `FileNotFoundError`, and `DamagedError`.
    """
    file = fragment.deletion_file
    path = deletion_location(head, fragment.id, file)
    if not path:
        raise DamagedError(
            f"the kind or the base of the deletion file of fragment {fragment.id} isn't known",
            where=source.uri,
            hint="restore an older version of the table",
        )
    return decode_deletions(file, source.content(path), fragment.physical_rows, path)


def _no_rows(fragment: DataFragment) -> Bitmap:
    raise AssertionError(f"a table without fragments has no fragment {fragment.id}")
