"""What the log says of the values of a column in a file: the partition value, or bounds by the statistics.

A value whose type is not compared here and statistics that are missing leave it open. Floating-point numbers
are not compared: a constant may be rounded to them, and NaN may be missing in statistics. A value of
`char(n)` counts as it is stored and with its spaces, since clients compare it as either.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import is_long
from lakefold_table.delta.record_counts import statistics_members
from lakefold_table.delta.table_features.partition_values import NULL_PARTITION, has_any_text
from lakefold_table.delta.table_features.text_types import above, is_char

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile

Value = Any
"""A value that can be compared with others of its column."""
INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
TIMES: Final = ("date", "timestamp", "timestamp_ntz")
_STATS_STEP: Final = dt.timedelta(milliseconds=1)
"""How much the largest time may be above the one in the statistics, which have milliseconds."""


class FileValues:
    """The values of a file.

    `types`: of the columns as `char_kind` has them, by the names under which the log has them.
    """

    def __init__(
        self, file: AddFile | RemoveFile, types: Mapping[str, str], partitions: Collection[str]
    ) -> None:
        self._file = file
        self._types = types
        self._partitions = partitions
        self._parsed: dict[str, Any] | None = None

    def bounds(self, name: str) -> tuple[Value, Value] | None:
        """Returns the least and the greatest value of a column, None for one that is not known.

        Returns None instead of both if all values are null.
        """
        kind = self._types[name]
        if name in self._partitions:
            is_known, text = self._partition(name)
            if is_known and text is None:
                return None
            exact = parsed_value(text, kind) if text is not None else None
            return exact, _greatest(exact, kind)
        least, most = (_of_statistics(self._statistic(end, name), kind) for end in ("minValues", "maxValues"))
        return least, _above(most) if isinstance(most, dt.datetime) else _greatest(most, kind)

    def may_be_null(self, name: str, *, is_null: bool) -> bool:
        """Returns whether the column can have a null, or a value that is none."""
        if name in self._partitions:
            is_known, text = self._partition(name)
            return not is_known or (text is None) is is_null
        nulls, rows = self._statistic("nullCount", name), self._stats().get("numRecords")
        if not is_long(nulls) or not is_long(rows):
            return True
        return nulls > 0 if is_null else nulls < rows

    def _partition(self, name: str) -> tuple[bool, str | None]:
        """Returns whether the value of a partition column is known, and the value as the log has it."""
        values = self._file.partition_values
        if values is None or name not in values:
            return False, None
        text = values[name]
        kind = self._types[name]
        if (text == "" and kind == "binary") or (text == NULL_PARTITION and not has_any_text(kind)):
            # Clients read it differently: as null, as no bytes, or not at all.
            return False, None
        return True, text or None

    def _stats(self) -> dict[str, Any]:
        if self._parsed is None:
            self._parsed = statistics_members(self._file)
        return self._parsed

    def _statistic(self, kind: str, name: str) -> Any:  # noqa: ANN401 - a JSON value
        values = self._stats().get(kind)
        return values.get(name) if isinstance(values, dict) else None


def parsed_value(text: str, kind: str) -> Value:
    """Returns a value of a type by its text, None if it has no such text or the type is not compared."""
    try:
        if kind in INTEGERS or kind.startswith("decimal"):
            number = Decimal(text)
            return number if number.is_finite() else None
        if kind == "string" or is_char(kind):
            return text
        if kind == "binary":
            # Clients agree on the text of ASCII alone: delta-rs writes any byte as \u0041.
            return None if "\\" in text else text.encode("ascii")
        if kind == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        if kind == "date":
            return dt.date.fromisoformat(text)
        if kind in ("timestamp", "timestamp_ntz"):
            at = dt.datetime.fromisoformat(text)
            # Times without a zone are of the session that wrote them, which is not known.
            needs_zone = kind == "timestamp"
            return at if (at.tzinfo is not None) is needs_zone else None
    except (ArithmeticError, ValueError):
        return None
    return None


def _greatest(most: Value, kind: str) -> Value:
    """Returns a bound that is not below values of `char(n)` up to `most` either, with their spaces."""
    return above(most) if isinstance(most, str) and is_char(kind) else most


def _above(most: dt.datetime) -> dt.datetime | None:
    """Returns the largest time of which the statistics can have this one, None if Python has no such time."""
    try:
        return most + _STATS_STEP
    except OverflowError:
        return None


def _of_statistics(content: object, kind: str) -> Value:
    """Returns a bound in the statistics, None if there is none."""
    if isinstance(content, bool):
        return content if kind == "boolean" else None
    if isinstance(content, int) and kind in INTEGERS:
        return Decimal(content)
    # Numbers are JSON numbers there, of which decimals may have been rounded.
    is_other = kind in INTEGERS or kind.startswith("decimal") or kind == "binary"
    return parsed_value(content, kind) if isinstance(content, str) and not is_other else None
