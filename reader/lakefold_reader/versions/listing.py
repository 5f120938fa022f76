"""Lists the versions of a table that exist."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_table.errors import NotATableError
from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.format.source import Source


class OtherFormatError(NotATableError):
    """The table has another format than it was opened as: `format_name`."""

    def __init__(self, format_name: str, where: str) -> None:
        message = f"the table has the format {format_name}, and this can't be done with such tables yet"
        hint = "`lakefold.open`, `tail` and `changes` read it; for more use another client"
        super().__init__(message, where=where, hint=hint)
        self.format_name = format_name


def numbers_of(source: Source) -> list[int]:
    """Lists the versions that exist, ascending. Raises `NotATableError` if none exists.

    Raises `OtherFormatError` if the table has versions of another format.
    """
    numbers = source.versions.numbers()
    if numbers:
        return numbers
    for other in BUILT_IN:
        if other.folder != source.format.folder and source.versions.in_format(other).has_any():
            raise OtherFormatError(other.name, source.uri)
    folders = " or ".join(f"{each.folder}/" for each in BUILT_IN)
    if source.storage.anything_at_root():
        raise NotATableError(
            "there are files here, and no version of a table",
            where=source.uri,
            hint=f"name the table's own root, the folder that has {folders}",
        )
    raise NotATableError(
        "no table here yet", where=source.uri, hint="is the path right? Append rows to create the table"
    )


def unbroken_from(numbers: Sequence[int]) -> int:
    """Returns the oldest of these ascending versions after which none is missing.

    A tag keeps its version when the versions around it are cleaned up: a reader can't continue from there.
    """
    first = numbers[-1]
    for number in reversed(numbers[:-1]):
        if number + 1 != first:
            break
        first = number
    return first


def remaining(numbers: Sequence[int]) -> str:
    """Returns the part of a hint that names the first of these versions at which a reader can continue."""
    oldest = unbroken_from(numbers)
    if oldest == numbers[0]:
        return f"the oldest one left is {oldest}"
    return f"none is missing from {oldest} on"


def newest_of(source: Source) -> int:
    """Returns the newest version. Raises `NotATableError` if no version exists.

    If the store lists the newest version first, this is a single request, however many versions there are.
    """
    with suppress(NotATableError):
        newest = source.versions.latest()
        if newest >= source.versions.first:
            return newest
    return numbers_of(source)[-1]
