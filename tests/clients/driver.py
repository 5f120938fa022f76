"""Runs in a client's own environment: does one step for each line of JSON on stdin, and answers with one.

Nothing of Lakefold can be imported here. A handle is opened under a name and kept, so that what is done with
it can be done from a version that is old by then. A commit that the client itself calls a conflict is tried
again from a new handle, as its users would; the answer tells how often.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

ATTEMPTS = 30
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 4)),
    ]
)


def rows(ids: list[int], text: str) -> pa.Table:
    """Rows with these ids."""
    vectors = [[float(one)] * 4 for one in ids]
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
        found = table.to_table(columns=["id", "text"])
        return [list(one) for one in zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)]

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
        found = table.to_arrow()
        return [list(one) for one in zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)]

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
        table.optimize(cleanup_older_than=timedelta(0))


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
        found = self.polars.scan_pyarrow_dataset(table).select("id", "text").collect()
        return [list(one) for one in found.rows()]

    def open(self) -> Any:
        return self.lance.dataset(self.uri)

    def number(self, table: Any) -> int:
        return int(table.version)


def client_of(uri: str) -> Any:
    """The client that this environment was made for."""
    if importlib.util.find_spec("polars"):
        return Polars(uri)
    return LanceDB(uri) if importlib.util.find_spec("lancedb") else Pylance(uri)


def is_conflict(error: BaseException) -> bool:
    """Whether the client says that the same may be tried again."""
    return "conflict" in str(error).lower() or "preempted" in str(error).lower()


def main() -> None:
    """Answer until stdin ends."""
    client = client_of(sys.argv[1])
    print(json.dumps({"version": client.version}), flush=True)
    handles: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        do, name = asked.pop("do"), asked.pop("handle", "")
        answer: dict[str, Any] = {}
        for attempt in range(ATTEMPTS):
            try:
                if do == "open":
                    handles[name] = client.open()
                    answer = {"value": client.number(handles[name])}
                else:
                    table = handles[name] if name in handles and not attempt else client.open()
                    answer = {"value": getattr(client, do)(table, **asked)}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
                if is_conflict(error):
                    continue
            break
        print(json.dumps({**answer, "attempts": attempt + 1}), flush=True)


if __name__ == "__main__":
    main()
