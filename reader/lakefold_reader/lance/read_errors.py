"""Explains why reading a version failed: it is being cleaned up, or it is damaged.

A clean-up removes first the files that only old versions name, and then these versions: pylance does so, and
our clean-up uses pylance's. In between a version exists, but some of its files are gone. The newest version
distinguishes the two cases: a clean-up keeps what the newest version and tagged versions name. So it is
damage if any of these loses a file, or if an old version loses a file that the newest
names, too.

The scanner doesn't name a file that it can't read, so the file is searched for after such an error. That may
take longer than a scan: the size of each data file is requested, and each deletion file is read.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_reader.lance.versions import read_state
from lakefold_reader.versions.late_versions import missing, tagged_versions
from lakefold_reader.versions.listing import newest_of, numbers_of, remaining, unbroken_from
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LakefoldError,
    NotATableError,
    VersionExpiredError,
)
from lakefold_table.lance.manifests.naming import data_path, index_path
from lakefold_table.lance.rows.deletions import decode_deletions, deletion_path
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.state import LanceState

Batch = TypeVar("Batch")
MOST_FRAGMENTS: Final = 1_000
"""The files of this many fragments are checked."""
CORRUPT: Final = re.compile(r"Encountered corrupt file (?:\S*/)?((?:_deletions|data)/[^/:\s]+):")
"""How Lance names a file that it can't read: by its path from the root of the disk or bucket."""


@contextmanager
def explained(source: Source, version: int, *beside: int) -> Iterator[None]:
    """Raises the error that explains why files of a version are gone or can't be read, and names the file.

    `beside`: other versions whose files are read. Raises `VersionExpiredError` if any of all these versions
    was cleaned up or is being cleaned up, else `DamagedError`.
    """
    try:
        yield
    except (FileNotFoundError, DamagedError) as error:
        for number in (version, *beside):
            if gone := expiry(source, number):
                raise gone from error
        damage = _damage(source, version, error)
        if damage is error:
            raise
        raise damage from error


def guarded(source: Source, version: int, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Returns the batches of a version; an error about a missing file is explained."""
    with explained(source, version):
        yield from batches


def expiry(source: Source, version: int) -> LakefoldError | None:
    """Returns the error for a version that was or is being cleaned up.

    Returns None if all its files should exist.

    Takes a listing, two manifests, and a request for the size of each file that the version names. Raises
    `RetryError` if the store can't be reached.
    """
    try:
        if not source.versions.exists(version):
            return missing(source, version)
        newest = newest_of(source)
        if version >= newest or version in tagged_versions(source):
            return None
        named, kept = _files(read_state(source, version)), _files(read_state(source, newest))
    except NotATableError as error:
        return error
    except VersionExpiredError:
        return missing(source, version)
    except (DamagedError, InvalidError):
        # It is not known which files it names, so nothing shows that a clean-up removed them.
        return None
    lost = {path for path, size in source.storage.sizes(sorted(named)).items() if size is None}
    if not lost or lost & kept:
        return None
    numbers = [number for number in numbers_of(source) if number > version]
    return VersionExpiredError(
        f"version {version} is being cleaned up: files that it names and the newest doesn't are gone",
        oldest=unbroken_from(numbers),
        where=source.uri,
        hint=f'{remaining(numbers)}; start from "earliest" to read all that exists and continue from there',
    )


def _damage(source: Source, version: int, error: FileNotFoundError | DamagedError) -> DamagedError:
    if isinstance(error, FileNotFoundError):
        message = f"version {version} names a file that is missing: {error}"
        return DamagedError(message, where=source.uri)
    if error.where == source.uri:
        return _with_file_name(source, version, error)
    if not error.where or error.where.startswith("/") or "://" in error.where:
        return error
    return DamagedError(error.message, where=below(source.uri, error.where), hint=error.hint)


def _files(state: LanceState) -> frozenset[str]:
    """Returns the data, deletion and index files that a version names in the table itself."""
    return frozenset([*_rows(state), *_indices(state)])


def _rows(state: LanceState) -> Iterator[str]:
    for fragment in state.fragments:
        yield from (data_path(file.path) for file in fragment.files if not file.HasField("base_id"))
        file = fragment.deletion_file
        if fragment.HasField("deletion_file") and not file.HasField("base_id"):
            yield deletion_path(fragment.id, file)


def _indices(state: LanceState) -> Iterator[str]:
    """Yields the files of the indices. Ignores an index that doesn't list its files."""
    try:
        section = IndexSection.FromString(state.index_section)
    except DecodeError as error:
        raise DamagedError(f"the index section can't be decoded: {error}") from error
    for index in section.indices:
        if not index.HasField("base_id"):
            yield from (index_path(index.uuid.uuid, file.path) for file in index.files)


def _with_file_name(source: Source, version: int, error: DamagedError) -> DamagedError:
    """Returns the error with the name of the file that causes it, or unchanged if no file does."""
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
    """Returns the deletion files in the table itself that can't be decoded."""
    for fragment in fragments:
        file = fragment.deletion_file
        if not fragment.HasField("deletion_file") or file.HasField("base_id"):
            continue
        path = deletion_path(fragment.id, file)
        try:
            decode_deletions(file, source.storage.get(path), fragment.physical_rows)
        except DamagedError as error:
            yield path, error.message
