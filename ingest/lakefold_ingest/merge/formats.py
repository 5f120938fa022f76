"""The registry of formats whose rows are found and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_ingest.merge.delta.format import DeltaMerging
from lakefold_ingest.merge.lance.format import LanceMerging
from lakefold_ingest.view import not_in_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.merge.format import MergeFormat
    from lakefold_ingest.view import View

FORMATS: Final[Mapping[str, MergeFormat]] = {each.name: each for each in (LanceMerging(), DeltaMerging())}


def merge_format(view: View) -> MergeFormat:
    """Returns the format of a table. Raises `NotInFormatError` if rows can't be changed in its format."""
    if view.format not in FORMATS:
        raise not_in_format("changing rows", view, "append the rows, or use a client of that format")
    return FORMATS[view.format]


def check_condition(
    where: str | None, table_format: str, partitions: Sequence[str], columns: pa.Schema, _: str = ""
) -> None:
    """Raises `InvalidError` if rows of a table with these columns can't be chosen by `where`; None: all."""
    if where is not None:
        FORMATS[table_format].condition(where, columns, partitions).check()
