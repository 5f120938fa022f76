"""A writer takes the same rows as `append` does, in each form in which they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = pa.table({"id": [1, 2], "s": ["a", None], "b": [b"x", b"y"]})
VIEWS = ROWS.set_column(1, "s", ROWS["s"].cast(pa.string_view())).set_column(
    2, "b", ROWS["b"].cast(pa.binary_view())
)
FORMS = [lambda rows: rows, pa.Table.to_reader, lambda rows: rows.to_batches()[0]]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[lakefold.Writer]:
    """A writer that sends nothing."""
    writer = lakefold.Writer(tmp_path / "t", max_delay=3600, bootstrap_servers="127.0.0.1:1", timeout=0.01)
    yield writer
    with pytest.raises(lakefold.RetryError):
        writer.close()


@pytest.mark.parametrize("form", FORMS, ids=["table", "reader", "batch"])
def test_rows_become_plain_once_and_again(
    writer: lakefold.Writer, form: Callable[[pa.Table], pa.Table]
) -> None:
    for rows in (VIEWS, ROWS, VIEWS, ROWS, ROWS):
        writer.append(form(rows))
        pending = max(writer._unanswered, key=lambda each: each.added_at)
        assert pending.table.equals(ROWS)
        assert pending.shape.equals(ROWS.schema)


def test_a_name_that_ends_where_arrow_passes_it_on_is_refused(writer: lakefold.Writer) -> None:
    writer.append(ROWS)
    for _ in range(2):
        with pytest.raises(lakefold.InvalidError, match="can't contain the character NUL"):
            writer.append(pa.table({"id": [1], "a\0b": [1]}))
