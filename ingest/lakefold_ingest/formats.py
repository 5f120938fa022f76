"""The registry of table formats as a writer needs them, and the tables that this process writes.

A table's format is that of the versions in its folder. Everything else gets a view of the table from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_ingest.delta.format import DeltaWriting
from lakefold_ingest.lance.format import LanceWriting
from lakefold_reader.format.source import Source
from lakefold_reader.formats import LATER, open_source
from lakefold_table.delta.table_features.table_properties import PREFIX, checked_properties
from lakefold_table.errors import NotATableError
from lakefold_table.lance.creation import DEFAULT_STORAGE_VERSION
from lakefold_table.lance.schemas.columns import KNOWN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.view import View, WriterFormat
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.versions.versions import Versions

FORMATS: Final[Mapping[str, WriterFormat]] = {each.name: each for each in (LanceWriting(), DeltaWriting())}
DEFAULT: Final = "lance"
"""The format of a table that a writer creates without naming one."""

PROPERTY_PREFIX: Final = PREFIX
"""What the names of properties begin with that a format gives its tables. Only Delta does."""
FILE_VERSIONS, DEFAULT_FILE_VERSION = KNOWN_VERSIONS, DEFAULT_STORAGE_VERSION
"""The versions that data files of a new table may have (`data_storage_version`). Only Lance has several."""

# The tables that this process writes, by URI and storage options: their source and the newest version read.
_seen: dict[tuple[object, ...], tuple[Source, View]] = {}
# The newest version that an outcome has named, by the same keys.
_published: dict[tuple[object, ...], int] = {}


def format_of(envelope: Envelope) -> WriterFormat:
    """Returns the format of an envelope's proposal."""
    return FORMATS[str(envelope.WhichOneof("proposal"))]


def read_properties(given: Mapping[str, str | bool | int]) -> dict[str, str]:
    """Returns the properties of a table that a write creates, as texts.

    Raises `InvalidError` that names one which tables can't have, with the nearest.
    """
    return checked_properties({name: property_text(value) for name, value in given.items()})


def property_text(value: str | bool | int) -> str:  # noqa: FBT001 - the value of a property
    """Returns the value of a property as a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_view(uri: str, storage_options: Mapping[str, str], *, afresh: bool = False) -> View | None:
    """Returns the table as it is now, or None if nothing exists at this location.

    Lists the versions the first time, and if `afresh` is true. Otherwise it continues from the newest version
    that it has read or that `note_published` has noted, which ends too early if versions after that one were
    removed. The committer refuses what is built on such a version, and then the table is read afresh.
    Raises `NotATableError` if something other than a table is there, `InvalidError` if the table uses
    features that a writer must know and this release doesn't.
    """
    table = (uri, *sorted(storage_options.items()))
    source, before = _seen.get(table, (None, None))
    version = None
    if source is not None and before is not None and not afresh:
        version = _newest_since(source.versions, max(before.version, _published.get(table, 0)))
    if source is None or version is None:
        _seen.pop(table, None)
        _published.pop(table, None)
        opened = _opened(uri, storage_options)
        if opened is None:
            return None
        source, version = opened
    view = FORMATS[source.format.name].view(source, version, None if afresh else before)
    if before is not None and not afresh and _is_other_table(before, view):
        return read_view(uri, storage_options, afresh=True)
    _seen[table] = source, view
    return view


def _is_other_table(before: View, now: View) -> bool:
    """Returns whether the table was made anew meanwhile: the source may keep versions of the old one."""
    return bool(before.carried.full_id) and before.carried.full_id != now.carried.full_id


def note_published(uri: str, storage_options: Mapping[str, str], version: int) -> None:
    """Has `read_view` continue from a version that an outcome has named, so that it reads no older names."""
    table = (uri, *sorted(storage_options.items()))
    _published[table] = max(version, _published.get(table, 0))


def _newest_since(versions: Versions, existing: int) -> int | None:
    """Returns the newest version, from one that existed; None if neither that one nor the next one does."""
    version = newest(versions, existing)
    return version if version > existing or versions.exists(existing) else None


def view_at(uri: str, version: int, storage_options: Mapping[str, str]) -> View:
    """Returns the table at a version that exists, as `read_view` returns its newest. Raises as it does."""
    source = seen_source(uri, storage_options)
    view = FORMATS[source.format.name].view(source, version, None)
    seen = _seen.get((uri, *sorted(storage_options.items())))
    if seen is None or not _is_other_table(seen[1], view):
        return view
    read_view(uri, storage_options, afresh=True)
    source = seen_source(uri, storage_options)
    return FORMATS[source.format.name].view(source, version, None)


def seen_source(uri: str, storage_options: Mapping[str, str]) -> Source:
    """Returns the table as `read_view` opened it, so that its versions are not listed again."""
    seen = _seen.get((uri, *sorted(storage_options.items())))
    if seen is not None:
        return seen[0]
    opened = _opened(uri, storage_options)
    return open_source(uri, storage_options) if opened is None else opened[0]


def _opened(uri: str, storage_options: Mapping[str, str]) -> tuple[Source, int] | None:
    """Returns a table in its format, and its newest version; None if nothing exists at this location."""
    source = open_source(uri, storage_options)
    try:
        version = source.versions.latest()
    except NotATableError:
        for reader in LATER:
            other = Source.on(source.storage, reader, source.options)
            if other.versions.has_any():
                return other, other.versions.latest()
        raise
    # Versions of Lance begin with 1, so 0 means that there is none.
    return (source, version) if version >= source.versions.first or source.versions.has_any() else None


def newest(versions: Versions, existing: int) -> int:
    """Returns the newest version without listing, starting from a version that exists.

    It checks names in growing steps. A table keeps its versions until they are cleaned up; listing 20,000 of
    them takes 0.2 s on a local disk.
    """
    step = 1
    while versions.exists(existing + step):
        existing += step
        step *= 2
    while step > 1:
        step //= 2
        if versions.exists(existing + step):
            existing += step
    return existing
