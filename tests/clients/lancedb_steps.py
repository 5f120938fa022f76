"""What a user of LanceDB does, step by step, in LanceDB's own environment: by a catalog, or on a folder.

Usage: lancedb_steps.py TARGET. Prints a line of JSON for each step: its name and what queries return.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import lancedb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def rows(*ids: int, text: str = "some words") -> pa.Table:
    vectors = pa.array([[float(each), 1.0] for each in ids], pa.list_(pa.float32(), 2))
    texts = pa.array([f"{text} {each}" for each in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "text": texts, "vector": vectors})


def merged(table: Any, more: pa.Table) -> None:  # noqa: ANN401 - LanceDB is in its own environment
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(more)


def replaced(table: Any) -> None:  # noqa: ANN401 - as above
    merge = table.merge_insert("id").when_matched_update_all(where="target.id > 2")
    merge.when_not_matched_by_source_delete("id > 6").execute(rows(2, 5, text="replaced"))


def restored(table: Any) -> None:  # noqa: ANN401 - as above
    table.checkout(2)
    table.restore()
    table.checkout_latest()


CHANGES: dict[str, Callable[[Any], object]] = {
    "add": lambda table: table.add(rows(3, 4)),
    "add as lists": lambda table: table.add([{"id": 5, "text": "five", "vector": [5.0, 1.0]}]),
    "merge": lambda table: merged(table, rows(4, 6, 7, 8, text="merged")),
    "merge by conditions": replaced,
    "update": lambda table: table.update(where="id = 1", values={"text": "it's one"}),
    "update by SQL": lambda table: table.update(
        where="text LIKE 'merged%'", values_sql={"text": "upper(text)"}
    ),
    "update of all": lambda table: table.update(values_sql={"id": "id + 100"}),
    "delete": lambda table: table.delete("id = 103"),
    "delete of nothing": lambda table: table.delete("id = 9999"),
    "add a column": lambda table: table.add_columns({"more": "id * 2"}),
    "rename it": lambda table: table.alter_columns({"path": "more", "rename": "most"}),
    "drop it": lambda table: table.drop_columns(["most"]),
    "restore": restored,
    "overwrite": lambda table: table.add(rows(1, 2, 3), mode="overwrite"),
    "index of values": lambda table: table.create_scalar_index("id"),
    "index of words": lambda table: table.create_fts_index("text"),
}
QUERIES: dict[str, Callable[[Any], object]] = {
    "rows": lambda table: sorted(table.search().limit(100).to_arrow().to_pylist(), key=lambda row: row["id"]),
    "count": lambda table: table.count_rows(),
    "count by a condition": lambda table: table.count_rows("id > 2"),
    "nearest": lambda table: table.search([2.0, 1.0]).limit(2).to_arrow()["id"].to_pylist(),
    "nearest by a condition": lambda table: (
        table.search([2.0, 1.0]).where("id > 2").select(["id"]).limit(1).to_arrow()["id"].to_pylist()
    ),
    "schema": lambda table: str(table.schema),
}


def main() -> None:
    """Does all steps and prints what each leaves."""
    target = sys.argv[1]
    if target.startswith("http"):
        database = lancedb.connect("db://lake", api_key="a word", host_override=target, region="here")
    else:
        database = lancedb.connect(target)
    table = database.create_table("t", rows(1, 2))
    shown("create", table)
    for name, change in CHANGES.items():
        change(table)
        shown(name, table)
    words = table.search("words", query_type="fts").limit(10).to_arrow()["id"].to_pylist()
    said(step="full text", ids=sorted(words))
    table.tags.create("first", 1)
    said(step="tag", version=table.tags.get_version("first"))
    database.create_table("empty", schema=rows().schema)
    said(step="tables", names=sorted(database.table_names()))
    database.drop_table("t")
    said(step="drop", names=database.table_names())


def shown(name: str, table: Any) -> None:  # noqa: ANN401 - as above
    """Prints what queries return after a step."""
    said(step=name, **{query: ask(table) for query, ask in QUERIES.items()})


def said(**values: object) -> None:
    """Prints a line of JSON."""
    sys.stdout.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
