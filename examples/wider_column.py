"""A column of a table that is in use turns out to be too small, and gets a wider type; nothing is copied.

A Delta table allows that once a property says so. Older files keep their values as they are, and readers
convert them. Run `lakefold up` and `lakefold committer` in this folder first. Usage: python wider_column.py
"""

import pyarrow as pa

import lakefold

TABLE = "counters"
LARGE = 3_000_000_000


def rows(name: str, count: int, kind: pa.DataType) -> pa.Table:
    return pa.table({"name": [name], "count": pa.array([count], kind)})


def main() -> None:
    lakefold.create(TABLE, {"name": "string not null", "count": "int"}, format="delta", if_not_exists=True)
    if lakefold.open(TABLE).schema.field("count").type == pa.int32():
        lakefold.append(TABLE, rows("visits", 2_000_000_000, pa.int32()))
        try:
            lakefold.append(TABLE, rows("visits", LARGE, pa.int64()))
        except lakefold.InvalidError as error:
            print(f"refused: {error.message}")
        lakefold.alter(TABLE, properties={"delta.enableTypeWidening": True})
        lakefold.alter(TABLE, widen={"count": "long"}, add={"note": "string"})
    lakefold.append(TABLE, rows("visits", LARGE, pa.int64()))
    counts = lakefold.open(TABLE).to_arrow()["count"].to_pylist()
    print(f"counts, from files of both types: {sorted(counts)}")
    assert {2_000_000_000, LARGE} <= {*counts}

    day = pa.table({"name": ["visits"], "count": [0], "note": ["counted anew"]})
    report = lakefold.overwrite(TABLE, day, where="name = 'visits'")
    print(f"replaced in version {report.version}: {report.rows_deleted} rows by {report.rows_added}")


if __name__ == "__main__":
    main()
