"""Says whether searches through a version's indices find all rows (decision 0114).

Between another client's compaction and the next version of a committer, an index may hide rows. A filter is
then evaluated by a scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_table.errors import DamagedError, LocationError
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE
from lakefold_table.lance.indexing.reuse import is_outdated, remapped, reuse_index, versions_of, without_reuse
from lakefold_table.lance.manifests.features import has_stable_row_ids

if TYPE_CHECKING:
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.state import LanceState


Content = Callable[[str], bytes]
"""Returns the bytes of a file. Raises `FileNotFoundError` if it does not exist."""


def stored_indices(state: LanceState) -> Indices:
    """Returns the entries of the index section. Raises `DamagedError`."""
    try:
        return tuple(IndexSection.FromString(state.index_section).indices)
    except DecodeError as error:
        raise DamagedError(f"the index section can't be decoded: {error}") from error


def indices_without_reuse(state: LanceState, content: Content) -> Indices:
    """Returns the indices as they are without the fragment-reuse index (decision 0114).

    Raises `DamagedError` if that can't be read.
    """
    stored = stored_indices(state)
    reuse = reuse_index(stored)
    if reuse is None:
        return stored
    versions = versions_of(state.head, reuse, _or_none(content))
    return without_reuse(remapped(state.head, stored, _or_none(content)), versions)


def sound_indices(state: LanceState, content: Content) -> Indices:
    """Returns the indices of a version with the coverage that can be relied on. Raises `DamagedError`.

    Fragments that compactions wrote are covered as far as the fragment-reuse index leads to them.
    """
    stored = stored_indices(state)
    reuse = reuse_index(stored)
    if reuse is None:
        return stored
    versions = versions_of(state.head, reuse, _or_none(content))
    if is_outdated(versions, state.fragments.taken) and not has_stable_row_ids(state.head):
        return indices_without_reuse(state, content)
    return remapped(state.head, stored, _or_none(content))


def may_hide_rows(state: LanceState, content: Content) -> bool:
    """Returns whether an index of the version may hide rows that it should find, or can't be read."""
    if FRAGMENT_REUSE.encode() not in state.index_section or has_stable_row_ids(state.head):
        return False
    try:
        return reuse_index(sound_indices(state, content)) is None
    except DamagedError:
        return True


def _or_none(content: Content) -> Callable[[str], bytes | None]:
    def content_or_none(path: str) -> bytes | None:
        try:
            return content(path)
        except (FileNotFoundError, LocationError):
            return None

    return content_or_none
