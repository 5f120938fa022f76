"""Columns that say where the rows of a batch come from, as Kafka's offsets: only its bad rows keep them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from lakefold_ingest.rows.target import Target

    AnyTarget = TypeVar("AnyTarget", bound=Target)


def own_columns(given: pa.Schema, source: Sequence[str]) -> pa.Schema:
    """Returns the columns of a batch without `source`. Raises `InvalidError` if it lacks one of these."""
    missing = [name for name in source if name not in given.names]
    if missing:
        message = f"{', '.join(missing)} is not in the batch"
        raise InvalidError(message, where=OptionName("bad_records_columns"), hint="names are case-sensitive")
    return given if not source else given.empty_table().drop_columns(list(source)).schema


def check_keys(keys: Collection[str], source: Sequence[str]) -> None:
    """Raises `InvalidError` if columns identify rows of the table, and are in `source`."""
    both = [name for name in source if name in keys]
    if both:
        message = f"{', '.join(both)} can't be a key of the table and a column that only bad rows keep"
        raise InvalidError(
            message,
            where=(OptionName("keys"), ", ", OptionName("bad_records_columns")),
            hint="name it in one of them",
        )


def own_rows(given: pa.Table, source: Sequence[str], kept: Collection[str] = ()) -> pa.Table:
    """Returns rows without the columns `source`, except those that are `kept` because they order the rows."""
    return given.drop_columns([name for name in source if name in given.column_names and name not in kept])


def from_source(target: AnyTarget, given: pa.Schema, source: tuple[str, ...]) -> AnyTarget:
    """Returns the target for batches that have the columns `given`, with `source` among them.

    `target`: that for batches without these.
    """
    if not source:
        return target
    own = [index for index, name in enumerate(given.names) if name not in source]
    fitting = replace(target.fitting, indices=tuple(own[index] for index in target.fitting.indices))
    return replace(target, fitting=fitting, source_columns=source)
