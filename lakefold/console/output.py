"""Prints the results of verbs on stdout: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
import re
import sys
from itertools import islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final, TypeVar

import click

from lakefold.stderr_lines import write_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

SEPARATOR: Final = "  "
PAGE: Final = 50
MOST_RANGES: Final = 32
"""So many ranges of batch ids are shown, the highest."""
NARROWEST: Final = 9
"""A column that is shortened keeps at least this many characters."""

# Characters that move the cursor, end a line for some program, change the direction of the text, or can't be
# encoded. A text of several lines keeps its line ends and tabs.
_IN_A_LINE = re.compile(
    r"[^\x20-\x7e\xa1-\ud7ff\ue000-\U0010ffff]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_IN_A_TEXT = re.compile(rf"(?![\n\r\t])(?:{_IN_A_LINE.pattern})")


def shown(text: str) -> str:
    """Returns a text of several lines with control characters escaped, safe for a terminal."""
    return text if text.isprintable() else _IN_A_TEXT.sub(_escaped, text)


def one_line(text: str) -> str:
    """Returns a text as a single line: line ends, tabs and control characters in it are escaped."""
    return text if text.isprintable() else _IN_A_LINE.sub(_escaped, text)


def row_text(row: Mapping[str, object]) -> str:
    """Returns the names and values of a row as text."""
    return "  ".join(f"{name}={'-' if value is None else value}" for name, value in row.items())


def print_line(text: str, *, err: bool = False) -> None:
    """Prints a line on stdout, or on stderr if `err`. Control characters in it are escaped.

    If stderr is to have JSON lines only, it is logged instead.
    """
    if err:
        write_line(one_line(text))
    else:
        click.echo(one_line(text))


def counted(number: int, noun: str) -> str:
    """Returns e.g. "1 version" or "1,200 versions"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def table_text(uri: str, format_name: str) -> str:
    """Returns the URI of a table, with its format."""
    return f"{uri} ({format_name} table)"


def print_table(uri: str, format_name: str) -> None:
    """Prints which table a verb has opened and its format, on stderr: what it prints on stdout are rows."""
    print_line(table_text(uri, format_name), err=True)


def print_json(value: object) -> None:
    """Prints a JSON document on a single line: the whole answer, or an item of a stream.

    Control characters are escaped in JSON's form, so that every program reads it as a single line, and a
    terminal is not affected by them. JSON itself requires that only below U+0020.
    """
    text = json.dumps(value, ensure_ascii=False)
    click.echo(text if text.isprintable() else _IN_A_LINE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def ranges_text(ranges: Sequence[Sequence[int]]) -> str:
    """Returns ranges of batch ids as text; if there are many, the highest, after the number of the others."""
    others = len(ranges) - MOST_RANGES
    shown = ", ".join(f"{first}-{last}" for first, last in ranges[-MOST_RANGES:])
    return shown if others <= 0 else f"{others:,} others, {shown}"


def pages(rows: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """Yields the rows some at a time: column widths are computed for a page, so a long list begins soon."""
    rest = iter(rows)
    while page := list(islice(rest, size)):
        yield page


def print_columns(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    shorten: Collection[str] = (),
    before: Sequence[int] = (),
) -> list[int]:
    """Prints rows below a header, each column as wide as its widest cell; numbers are aligned to the right.

    If a terminal is too narrow, cells of the columns in `shorten` lose their middle until the rows fit. In a
    pipe or a file nothing is shortened, because a program needs complete names. Returns the widths. `before`:
    those of rows that were printed before, below whose header these come.
    """
    texts = [[_cell(cell) for cell in row] for row in rows]
    least = before or [0] * len(header)
    widths = [max(width, *(len(line[at]) for line in [header, *texts])) for at, width in enumerate(least)]
    if sys.stdout.isatty():
        _narrow(header, widths, shorten, get_terminal_size().columns)
        texts = [
            [_shortened(text, width) for text, width in zip(line, widths, strict=True)] for line in texts
        ]
    to_the_right = [
        all(isinstance(row[column], int | float) for row in rows) for column in range(len(header))
    ]
    for line in texts if before else [header, *texts]:
        cells = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, to_the_right, strict=True)
        )
        click.echo(SEPARATOR.join(cells).rstrip())
    return widths


def _narrow(header: Sequence[str], widths: list[int], shorten: Collection[str], room: int) -> None:
    """Makes the widest column in `shorten` narrower, character by character, until all fit in `room`."""
    may = [column for column, name in enumerate(header) if name in shorten]
    while sum(widths) + len(SEPARATOR) * (len(widths) - 1) > room:
        widest = max(may, key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] <= max(NARROWEST, len(header[widest])):
            return
        widths[widest] -= 1


def _shortened(text: str, width: int) -> str:
    """Returns the text with its middle left out if it is longer than `width`, as ids differ at both ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def operations_text(operation: str, operations: Mapping[str, int]) -> str:
    """Returns the operation of a version; if its entries had several, each operation with their number.

    The operation of its entries is the better name: the deletion of a branch is stored as another operation.
    """
    if len(operations) <= 1:
        return next(iter(operations), operation)
    return ", ".join(f"{name} x{count:,}" for name, count in operations.items())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else one_line(str(value))


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
