"""Which file of a version is to blame, once reading it has failed: the scanner doesn't name it.

Looked for only then, so it may cost what a scan costs no reader: a size for each data file, and each deletion
file whole. Of versions with very many files only the first are looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_reader.lance.versions import read_state
from lakefold_table.errors import DamagedError, LakefoldError
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.lance.rows.deletions import decode_deletions, deletion_path
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source

MOST_FRAGMENTS: Final = 1_000
CORRUPT: Final = re.compile(r"Encountered corrupt file (?:\S*/)?((?:_deletions|data)/[^/:\s]+):")
"""How Lance names a file that it can't read: by its path from the root of the disk or bucket on."""


def blamed(source: Source, version: int, error: DamagedError) -> DamagedError:
    """The error again, naming the file that is to blame; as it is where none is found."""
    try:
        fragments = list(read_state(source, version).fragments)[:MOST_FRAGMENTS]
        found = (
            next(_wrong_sizes(source, fragments), None)
            or next(_wrong_deletions(source, fragments), None)
            or _named(source, error)
        )
    except (LakefoldError, FileNotFoundError):
        return error
    if found is None:
        return error
    path, what = found
    message = f"{what} ({error.message})" if what else error.message
    return DamagedError(message, where=below(source.uri, path), hint=error.hint)


def _named(source: Source, error: DamagedError) -> tuple[str, str] | None:
    """The file that Lance names in its words, where that is one of the table itself."""
    found = CORRUPT.search(error.message)
    return (found[1], "") if found and source.storage.size(found[1]) is not None else None


def _wrong_sizes(source: Source, fragments: Iterable[DataFragment]) -> Iterator[tuple[str, str]]:
    """Data files in the table itself whose size isn't what the version says."""
    said = {
        data_path(file.path): file.file_size_bytes
        for fragment in fragments
        for file in fragment.files
        if file.file_size_bytes and not file.HasField("base_id")
    }
    for path, size in source.storage.sizes(said).items():
        if size != said[path]:
            yield path, f"the file has {size} bytes, its version says {said[path]}"


def _wrong_deletions(source: Source, fragments: Iterable[DataFragment]) -> Iterator[tuple[str, str]]:
    """Deletion files in the table itself that can't be decoded."""
    for fragment in fragments:
        file = fragment.deletion_file
        if not fragment.HasField("deletion_file") or file.HasField("base_id"):
            continue
        path = deletion_path(fragment.id, file)
        try:
            decode_deletions(file, source.storage.get(path), fragment.physical_rows)
        except DamagedError as error:
            yield path, error.message
