"""The registry of table formats as a reader needs them, and tables opened in the format that they have.

It is the only module outside their folders that names formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lakefold_reader.delta.format import DeltaReader
from lakefold_reader.format.source import ReaderFormat, Source
from lakefold_reader.lance.format import LanceReader
from lakefold_reader.versions.branches import branched
from lakefold_reader.versions.listing import OtherFormatError
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import format_at

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from lakefold_table.storage.base import Storage

FORMATS: tuple[ReaderFormat, ...] = (LanceReader(),)
"""The formats that can be read. A table whose folders show none of them is opened as one of the first."""
LATER: tuple[ReaderFormat, ...] = (DeltaReader(),)
"""The formats that are tried only if a table has none of `FORMATS`: others cost no request more."""
T = TypeVar("T")


def open_source(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None, format_name: str = ""
) -> Source:
    """Returns the table at `uri`. Nothing is read if its format is given, or if there is only one.

    A table of a format of `LATER` is found by `in_its_format`.
    """
    storage = open_storage(canonical(uri), storage_options)
    for reader in (*FORMATS, *LATER):
        if reader.name == format_name:
            return Source.on(storage, reader, storage_options)
    return source_on(storage, storage_options)


def in_its_format(source: Source, act: Callable[[Source], T]) -> T:
    """Returns what `act` returns for a table. If the table has a format of `LATER`, `act` is called again.

    Raises what `act` raises.
    """
    try:
        return act(source)
    except OtherFormatError as error:
        reader = next((each for each in LATER if each.name == error.format_name), None)
        if reader is None:
            raise
    return act(Source.on(source.storage, reader, source.options))


def on_branch(
    uri: str | os.PathLike[str],
    branch: str | None,
    storage_options: Mapping[str, str] | None,
    act: Callable[[Source], T],
) -> T:
    """Returns what `act` returns for the table at `uri`, or for a branch of it, in the table's format.

    `act` is called again if the first call finds that the table has another format. Raises as `open_branch`.
    """

    def on(source: Source) -> T:
        return act(source if branch is None else branched(source, branch))

    return in_its_format(open_source(uri, storage_options), on)


def source_on(storage: Storage, storage_options: Mapping[str, str] | None = None) -> Source:
    """Returns the table at the root of a store."""
    return Source.on(storage, format_at(storage, FORMATS), storage_options)


def open_branch(
    uri: str | os.PathLike[str], branch: str | None, storage_options: Mapping[str, str] | None = None
) -> Source:
    """Returns the table at `uri`, or a branch of the same table. Raises `UnknownRefError`, `InvalidError`."""
    source = open_source(uri, storage_options)
    return source if branch is None else branched(source, branch)
