"""Finds the file of a version that causes an error, after reading it has failed: the scanner doesn't name it.

This is done only after an error, so it may take longer than a scan: it requests the size of each data file
and reads each deletion file. Of versions with very many files only the first are checked.
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
"""How Lance names a file that it can't read: by its path from the root of the disk or bucket."""


def with_file_name(source: Source, version: int, error: DamagedError) -> DamagedError:
    """The same error with the name of the file that causes it; unchanged if none is found."""
    try:
        fragments = list(read_state(source, version).fragments)[:MOST_FRAGMENTS]
        result = (
            next(_wrong_sizes(source, fragments), None)
            or next(_wrong_deletions(source, fragments), None)
            or _named(source, error)
        )
    except (LakefoldError, FileNotFoundError):
        return error
    if result is None:
        return error
    path, what = result
    message = f"{what} ({error.message})" if what else error.message
    return DamagedError(message, where=below(source.uri, path), hint=error.hint)


def _named(source: Source, error: DamagedError) -> tuple[str, str] | None:
    """Returns the file that Lance's error text names, if it is below the table's root."""
    match = CORRUPT.search(error.message)
    return (match[1], "") if match and source.storage.size(match[1]) is not None else None


def _wrong_sizes(source: Source, fragments: Iterable[DataFragment]) -> Iterator[tuple[str, str]]:
    """Returns data files below the table's root whose size isn't the recorded size."""
    recorded = {
        data_path(file.path): file.file_size_bytes
        for fragment in fragments
        for file in fragment.files
        if file.file_size_bytes and not file.HasField("base_id")
    }
    for path, size in source.storage.sizes(recorded).items():
        if size != recorded[path]:
            yield path, f"the file has {size} bytes, its version says {recorded[path]}"


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
