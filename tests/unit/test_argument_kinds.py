"""An argument of another type is refused by its name, with what it takes, before anything is sent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import lakefold
from lakefold.spark import sink
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE: Final = "memory://kinds"
BROKERS: Final[dict[str, Any]] = {"bootstrap_servers": "127.0.0.1:1", "timeout": 0.1}
ROWS: Final = pa.table({"id": [1]})
WRITER: Final = partial[Any](lakefold.Writer, TABLE, **BROKERS)
APPEND: Final = partial[Any](lakefold.append, TABLE, ROWS, **BROKERS)
UPSERT: Final = partial[Any](lakefold.upsert, TABLE, ROWS, **BROKERS)
DELETE: Final = partial[Any](lakefold.delete, TABLE, **BROKERS)
CHANGES: Final = partial[Any](lakefold.apply_changes, TABLE, ROWS, keys="id", **BROKERS)
COMPACT: Final = partial[Any](lakefold.compact, TABLE)
SINK: Final = partial[Any](sink, TABLE, "127.0.0.1:1")


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        *((WRITER, name, "5") for name in ("max_rows", "max_bytes", "max_delay", "max_queued_bytes")),
        (WRITER, "max_rows", None),
        (WRITER, "max_bytes", 2.5),
        (WRITER, "app_id", 3),
        (WRITER, "sort_by", [1]),
        (WRITER, "partition_by", [1]),
        (partial(APPEND, batch_id=1), "app_id", 3),
        (UPSERT, "keys", 3),
        (partial(UPSERT, keys="id"), "order_by", 3),
        *(
            (partial(UPSERT, keys="id"), "clauses", value)
            for value in (3, lakefold.MatchedUpdate(), [lakefold.MatchedUpdate(condition=3)])  # type: ignore[arg-type] # what a user may pass
        ),
        (partial(UPSERT, keys="id"), "clauses", [lakefold.NotMatchedBySourceUpdate(3)]),  # type: ignore[arg-type] # what a user may pass
        (DELETE, "where", 3),
        (partial(DELETE, rows=ROWS), "keys", 3),
        *((CHANGES, name, 3) for name in ("envelope", "operation_column", "operations", "debezium_types")),
        (SINK, "app_id", 3),
        (partial(SINK, write_mode="upsert"), "keys", 3),
        (partial(SINK, write_mode="upsert", keys="id"), "clauses", 3),
        (SINK, "target_rows_per_file", "x"),
        (SINK, "target_file_size", 2.5),
        (SINK, "sort_by", 3),
        (SINK, "driver_rows", "3"),
        (SINK, "on_report", 3),
        (SINK, "metrics_port", "80"),
        (partial(SINK, metrics_port=9_999), "metrics_host", 3),
        *((COMPACT, *each) for each in (("timeout", "5"), ("threads", "2"), ("branch", 3), ("policy", 3))),
        *(
            (partial[Any](read, TABLE), "storage_options", 3)
            for read in (lakefold.open, lakefold.tail, partial(lakefold.changes, after=1))
        ),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(
    call: Callable[..., object], name: str, value: object
) -> None:
    with pytest.raises(InvalidError) as raised:
        call(**{name: value})
    assert raised.value.where == name
    assert raised.value.hint


@pytest.mark.parametrize(
    "read", [lakefold.open, lakefold.tail, partial(lakefold.changes, after=1), lakefold.compact]
)
def test_a_table_of_another_type_is_refused(read: Callable[..., object]) -> None:
    with pytest.raises(InvalidError, match="3 is not a table's name"):
        read(3)
