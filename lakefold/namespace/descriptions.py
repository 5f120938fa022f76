"""What the Lance Namespace says of a table: its schema in JSON, and its statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance_namespace as interface
import numpy as np
import pyarrow as pa
from lance_namespace_urllib3_client.models.fragment_stats import FragmentStats
from lance_namespace_urllib3_client.models.fragment_summary import FragmentSummary

from lakefold_table.lance.schemas.arrow_types import leaf_name

if TYPE_CHECKING:
    from lakefold_reader.snapshot.snapshot import Table

SMALL_ROWS: Final = 100_000
"""A fragment with fewer rows counts as small, as in pylance."""


def schema_json(schema: pa.Schema) -> dict[str, Any]:
    """Returns a schema as JSON. Raises `InvalidError` for a type that Lance doesn't have."""
    return {"fields": [_field(each) for each in schema], "metadata": _texts(schema.metadata)}


def _field(field: pa.Field) -> dict[str, Any]:
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    form = {"name": field.name, "type": _type(kind, field.name), "nullable": field.nullable}
    return form | ({"metadata": _texts(field.metadata)} if field.metadata else {})


def _type(kind: pa.DataType, where: str) -> dict[str, Any]:
    if pa.types.is_fixed_size_list(kind):
        return {"type": "fixed_size_list", "fields": [_field(kind.value_field)], "length": kind.list_size}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(each) for each in kind]}
    if pa.types.is_map(kind):
        entries = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        return {"type": "map", "fields": [_field(entries)]}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name = "large_list" if pa.types.is_large_list(kind) else "list"
        return {"type": name, "fields": [_field(kind.value_field)]}
    return {"type": leaf_name(kind, where)}


def _texts(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    return {
        name.decode("utf-8", "replace"): each.decode("utf-8", "replace")
        for name, each in (metadata or {}).items()
    }


def statistics_of(table: Table) -> interface.GetTableStatsResponse:
    """Returns the statistics of a version: rows, bytes of data files, indices and rows of fragments."""
    sizes = list(table.fragment_sizes())
    rows = np.array([(each.rows or 0) - each.deleted for each in sizes] or [0], np.int64)
    quantiles = (int(each) for each in np.percentile(rows, [0, 100, 25, 50, 75, 99], method="lower"))
    least, most, p25, p50, p75, p99 = quantiles
    return interface.GetTableStatsResponse(
        total_bytes=sum(each.bytes or 0 for each in sizes),
        num_rows=table.count_rows(),
        num_indices=len(table.indices),
        fragment_stats=FragmentStats(
            num_fragments=len(sizes),
            num_small_fragments=int((rows[: len(sizes)] < SMALL_ROWS).sum()),
            lengths=FragmentSummary(
                min=least, max=most, mean=int(rows.mean()), p25=p25, p50=p50, p75=p75, p99=p99
            ),
        ),
    )
