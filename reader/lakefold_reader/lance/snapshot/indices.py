"""The indices of a version for people: which columns they are on, and how many fragments they cover.

An index made long ago covers the fragments of its time; the others are scanned. Whether an index should be
built again depends on its coverage, which no name or number in the manifest says directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.format.snapshots import IndexInfo
from lakefold_reader.lance.scan.sound_indices import sound_indices
from lakefold_table.lance.indexing.indices import effective_coverage, type_of
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_table.lance.state import LanceState


def indices_of(state: LanceState, content: Callable[[str], bytes]) -> tuple[IndexInfo, ...]:
    """Returns the indices of a version, by name.

    `content` returns the bytes of a file and raises `FileNotFoundError` if it does not exist: the new
    addresses of rows that compactions moved may be in a file beside the manifest. Raises `DamagedError`.
    """
    by_name: dict[str, list[IndexMetadata]] = {}
    for index in sound_indices(state, content):
        by_name.setdefault(index.name, []).append(index)
    paths = field_paths(state.head.fields)
    return tuple(_info(name, by_name[name], paths, state) for name in sorted(by_name))


def _info(
    name: str, segments: Sequence[IndexMetadata], paths: dict[int, str], state: LanceState
) -> IndexInfo:
    covered: set[int] | None = set()
    for segment in segments:
        part = effective_coverage(segment, state.fragments.taken)
        covered = None if part is None or covered is None else covered.union(part)
    first = segments[0]
    return IndexInfo(
        name,
        tuple(paths.get(number, f"[{number}]") for number in first.fields),
        type_of(first).removesuffix("Details").removesuffix("Index"),
        len(segments),
        None if covered is None else len(covered),
    )


def field_paths(fields: Iterable[Field]) -> dict[int, str]:
    """Returns the path of each field by its id; parents come before their children."""
    paths: dict[int, str] = {}
    for field in fields:
        paths[field.id] = (
            field.name if field.parent_id == TOP else f"{paths.get(field.parent_id, '')}.{field.name}"
        )
    return paths
