"""Clients that take and give Arrow: pylance, LanceDB, and polars by way of pylance.

They run in their own environments: nothing of Lakefold can be imported here.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

AGE = 5
"""Seconds that LanceDB leaves a version; a stream commits far more often."""
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 4)),
    ]
)


def rows(ids: list[int], text: str) -> pa.Table:
    """Rows with these ids."""
    vectors = [[float(number)] * 4 for number in ids]
    return pa.table({"id": ids, "text": [text] * len(ids), "vec": vectors}, schema=SCHEMA)


class Pylance:
    """Lance's own Python client."""

    def __init__(self, uri: str) -> None:
        import lance

        self.lance: Any = lance
        self.uri = uri
        self.version: str = lance.__version__

    def open(self) -> Any:
        return self.lance.dataset(self.uri)

    def number(self, table: Any) -> int:
        return int(table.version)

    def read(self, table: Any) -> list[list[Any]]:
        actual = table.to_table(columns=["id", "text"])
        return [
            list(value) for value in zip(actual["id"].to_pylist(), actual["text"].to_pylist(), strict=True)
        ]

    def read_version(self, table: Any, version: int) -> list[list[Any]]:
        return self.read(table.checkout_version(version))

    def append(self, table: Any, ids: list[int], text: str) -> None:
        self.lance.write_dataset(rows(ids, text), table, mode="append")

    def delete(self, table: Any, ids: list[int]) -> None:
        table.delete(f"id IN ({', '.join(map(str, ids))})")

    def merge(self, table: Any, ids: list[int], text: str) -> None:
        merging = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merging.execute(rows(ids, text))

    def scalar_index(self, table: Any) -> None:
        table.create_scalar_index("id", "BTREE", replace=True)

    def text_index(self, table: Any) -> None:
        table.create_scalar_index("text", "INVERTED", replace=True)

    def vector_index(self, table: Any) -> None:
        table.create_index("vec", "IVF_FLAT", num_partitions=1, replace=True)

    def optimize(self, table: Any) -> None:
        table.optimize.compact_files(target_rows_per_fragment=1_000_000)
        table.optimize.optimize_indices()

    def restore(self, table: Any, version: int) -> None:
        table.checkout_version(version).restore()

    def cleanup(self, table: Any) -> None:
        table.cleanup_old_versions(older_than=timedelta(0))


class LanceDB:
    """LanceDB opens tables as folders named NAME.lance below the folder that it connects to."""

    def __init__(self, uri: str) -> None:
        import lancedb

        self.lancedb: Any = lancedb
        folder = Path(uri)
        self.database, self.name = str(folder.parent), folder.stem
        self.version: str = lancedb.__version__

    def open(self) -> Any:
        return self.lancedb.connect(self.database).open_table(self.name)

    def number(self, table: Any) -> int:
        return int(table.version)

    def read(self, table: Any) -> list[list[Any]]:
        actual = table.to_arrow()
        return [
            list(value) for value in zip(actual["id"].to_pylist(), actual["text"].to_pylist(), strict=True)
        ]

    def read_version(self, table: Any, version: int) -> list[list[Any]]:
        table.checkout(version)
        return self.read(table)

    def append(self, table: Any, ids: list[int], text: str) -> None:
        table.add(rows(ids, text))

    def delete(self, table: Any, ids: list[int]) -> None:
        table.delete(f"id IN ({', '.join(map(str, ids))})")

    def merge(self, table: Any, ids: list[int], text: str) -> None:
        merging = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merging.execute(rows(ids, text))

    def scalar_index(self, table: Any) -> None:
        table.create_scalar_index("id", replace=True)

    def text_index(self, table: Any) -> None:
        table.create_fts_index("text", replace=True)

    def vector_index(self, table: Any) -> None:
        table.create_index(
            metric="l2", vector_column_name="vec", index_type="IVF_FLAT", num_partitions=1, replace=True
        )

    def optimize(self, table: Any) -> None:
        table.optimize()

    def restore(self, table: Any, version: int) -> None:
        table.checkout(version)
        table.restore()

    def cleanup(self, table: Any) -> None:
        # It compacts first, and at no age would remove our version right before that, which proves our marks.
        table.optimize(cleanup_older_than=timedelta(seconds=AGE))


class Polars:
    """polars only reads: it scans pylance's dataset."""

    def __init__(self, uri: str) -> None:
        import lance
        import polars as pl

        self.lance: Any = lance
        self.polars: Any = pl
        self.uri = uri
        self.version: str = pl.__version__

    def read(self, table: Any) -> list[list[Any]]:
        actual = self.polars.scan_pyarrow_dataset(table).select("id", "text").collect()
        return [list(row) for row in actual.rows()]

    def read_version(self, table: Any, version: int) -> list[list[Any]]:
        return self.read(table.checkout_version(version))

    def open(self) -> Any:
        return self.lance.dataset(self.uri)

    def number(self, table: Any) -> int:
        return int(table.version)
