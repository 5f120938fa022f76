"""The values that describe a version: its features, indices and roots, and what is read of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

MOST_NAMED = 5
"""How many ids the message of an error names; its fields have all of them."""

Missing = Literal["raise", "skip"]
"""What `take` does if a row is not in the version."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature flag: its bit value, what it means, and who must know it."""

    flag: int
    meaning: str
    readers: bool
    writers: bool


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index with all its segments.

    `columns`: the indexed columns, nested columns by their path (`s.x`); a column that no longer exists is
    its field id in brackets. `type`: the format's name, such as `BTree`; `Vector` for all indices on vectors;
    empty if the index does not record it. `covered`: how many fragments of this version it covers, None if it
    does not record that.
    """

    name: str
    columns: tuple[str, ...]
    type: str
    segments: int
    covered: int | None


@dataclass(frozen=True, slots=True)
class Root:
    """A place outside of the table that its files may be in: `path` is absolute or a URI.

    `is_table`: the files are in folders as in a table (`data/`, `_deletions/`, `_indices/`), else directly
    in it.
    """

    id: int
    name: str
    path: str
    is_table: bool


class FragmentSize(NamedTuple):
    """The size of a fragment: rows in its data files, how many of them are deleted, bytes of the files.

    None: the version does not record it.
    """

    rows: int | None
    deleted: int
    bytes: int | None


class FileTotal(NamedTuple):
    """Some data files: how many, and their bytes; None if they aren't recorded."""

    files: int
    bytes: int | None

    @classmethod
    def of(cls, sizes: Iterable[int | None]) -> FileTotal:
        """Returns the total of files of these sizes."""
        listed = [*sizes]
        known = [size for size in listed if size is not None]
        return cls(len(listed), sum(known) if len(known) == len(listed) else None)


class NamedEvidence(NamedTuple):
    """What the evidence of a conflict names: fragments by their names, fields by their paths."""

    fragments: tuple[str, ...]
    fields: tuple[str, ...]


class FragmentRows(NamedTuple):
    """A fragment's rows: how many its data files have, and the positions of those that are deleted.

    `rows`: None if the version does not record it. The positions ascend.
    """

    rows: int | None
    deleted: np.ndarray


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows that are read, in their order, and the most rows of a batch.

    None: all rows; the batches that the scanner makes.
    """

    limit: int | None = None
    offset: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class VersionCounts:
    """The rows and files that a version added and removed. None: not known."""

    rows_in: int | None = None
    rows_out: int | None = None
    files_in: int | None = None
    files_out: int | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How many versions and data files a clean-up removed, and how many bytes of both."""

    versions: int
    data_files: int
    bytes: int


class RowsNotFoundError(InvalidError):
    """Rows that were requested by id are not in the version: their ids are `unknown`, or they are `deleted`.

    If the fragment of a deleted row was compacted since, the id of the row is unknown too.
    """

    def __init__(self, unknown: Sequence[int], deleted: Sequence[int], *, where: str) -> None:
        ids_of = {"unknown": unknown, "deleted": deleted}
        parts = [f"{what} are {_listed(ids)}" for what, ids in ids_of.items() if ids]
        hint = 'open a version that has them, or leave them out by missing="skip"'
        super().__init__(f"rows not found by their ids: {'; '.join(parts)}", where=where, hint=hint)
        self.unknown = list(unknown)
        self.deleted = list(deleted)


def _listed(ids: Sequence[int]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(map(str, ids[:MOST_NAMED])) + more
