"""The rows of a change feed as all formats give them: the columns that it adds, values that don't fit."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakefold_reader.format.changes import MisfitError
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakefold_reader.format.source import ChangePart

LOG: Final = structlog.get_logger("lakefold.reader")
CHANGE_FIELDS = (
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("_log_offset", pa.int64()),
)
"""The columns that a feed adds after the table's own."""


def check_free_names(names: Sequence[str]) -> None:
    """Raises `InvalidError` if a column has the name of a column that the feed adds."""
    added = {field.name for field in CHANGE_FIELDS}
    taken = [name for name in names if name in added]
    if taken:
        raise InvalidError(
            f"the table's own columns {taken} have names of the change feed",
            where=OptionName("columns"),
            hint="rename them, or choose the columns of `lakefold.changes` without them",
        )


def added_values(rows: int, part: ChangePart, names: Collection[str]) -> list[pa.Array]:
    """Returns the values of those of these columns that the feed adds, which are the same for `rows` rows."""
    values = (str(part.change_type), part.version, part.time_us, part.log_offset)
    return [
        pa.repeat(pa.scalar(given, field.type), rows)
        for given, field in zip(values, CHANGE_FIELDS, strict=True)
        if field.name in names
    ]


def shown_values(
    values: pa.Array,
    field: pa.Field,
    shape: Callable[[pa.Array], pa.Array],
    versions: tuple[int, int],
    skipped: Counter[str] | None,
) -> pa.Array:
    """Returns values by `shape`, which gives them the type of `field`. Those that don't fit are null.

    `skipped` counts these by column. Without it they raise `MisfitError`, which names the `versions` that has
    the values and that changed the rows.
    """
    try:
        return shape(values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if skipped is None:
            raise _misfit(field, values.type, *versions, error) from error
    fitting = pa.concat_arrays(_fitted_one_by_one(values, field.type, shape))
    skipped[field.name] += fitting.null_count - values.null_count
    return fitting


def _fitted_one_by_one(
    values: pa.Array, kind: pa.DataType, shape: Callable[[pa.Array], pa.Array]
) -> list[pa.Array]:
    """Returns the values by `shape`, in order, in arrays; null if it raises for a value alone.

    It bisects the values, so it costs little if few values don't fit.
    """
    try:
        return [shape(values)]
    except pa.ArrowNotImplementedError:
        return [pa.nulls(len(values), kind)]
    except pa.ArrowInvalid:
        if len(values) == 1:
            return [pa.nulls(1, kind)]
    half = len(values) // 2
    return [
        *_fitted_one_by_one(values.slice(0, half), kind, shape),
        *_fitted_one_by_one(values.slice(half), kind, shape),
    ]


def _misfit(field: pa.Field, kind: pa.DataType, at: int, version: int, error: Exception) -> MisfitError:
    """Returns the error for values of version `at`, of another type, that can't be shown as `field`.

    `version`: the version that changed the rows.
    """
    return MisfitError(
        f"column {field.name} is {kind} in version {at} and {field.type} in the feed's last, "
        f"so what version {version} did can't be shown: {error}",
        version=version,
        column=field.name,
        where=OptionName("columns"),
        hint="misfits='null' (--misfits null, Spark's option misfits) shows such values as null and logs "
        "how many; or leave the column out, or end the feed before the version that changed its type",
    )


def warn_of_misfits(table: str, version: int, change_type: str, skipped: Mapping[str, int]) -> None:
    """Logs how many values of a version's changes are shown as null, for each column in `skipped`."""
    for column, values in skipped.items():
        LOG.warning(
            "values that don't fit the column's type are null in the change feed",
            table=table,
            version=version,
            change=str(change_type),
            column=column,
            values=values,
        )


def has_values(batch: pa.RecordBatch, values: Mapping[str, pa.Scalar]) -> bool:
    """Returns whether a row of a batch has these values of columns."""
    matches = [pc.equal(batch.column(name), value) for name, value in values.items()]
    return bool(pc.any(reduce(pc.and_, matches)).as_py())
