"""What verbs print on stdout: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Line ends stay: they are no danger, and whoever shows one on purpose means it.
_CONTROL = re.compile(r"[^\n\r\t\x20-\x7e\xa1-\U0010ffff]|[\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """The text for a terminal: what a message calls itself may not move the cursor, so that is escaped."""
    return text if text.isprintable() else _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def print_json(value: object) -> None:
    """Print one JSON document on one line: the whole answer, or one item of a stream."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below a header, each column as wide as its widest cell; numbers stand to the right."""
    texts = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(header), *texts]) for column in range(len(header))]
    to_the_right = [
        all(isinstance(row[column], int | float) for row in rows) for column in range(len(header))
    ]
    for line in [list(header), *texts]:
        cells = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, to_the_right, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def operations_text(operation: str, operations: Mapping[str, int]) -> str:
    """What a version did; where its entries did several things, each with how many did it."""
    if len(operations) <= 1:
        return operation
    return ", ".join(f"{name} x{count:,}" for name, count in operations.items())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else shown(str(value))
