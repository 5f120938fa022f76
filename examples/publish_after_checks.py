"""Writes a batch to a branch, checks what the table would look like, and publishes it on the main branch.

Readers of the table see all of the checked batch at once, or nothing of it. Run `lakefold up` and
`lakefold committer` in this folder first.
"""

import pyarrow as pa
import pyarrow.compute as pc

import lakefold

TABLE = "prices.lance"
BRANCH = f"{TABLE}/tree/audit"
"""Spark writes to it too: `rows.write.format("lakefold").mode("append").save("prices.lance/tree/audit")`."""


def is_sound(rows: pa.Table) -> bool:
    """Returns whether the table with the new rows is as it has to be."""
    cheapest, articles = pc.min(rows["price"]).as_py(), pc.count_distinct(rows["article"]).as_py()
    return bool(cheapest > 0 and articles == rows.num_rows)


def main() -> None:
    old = pa.table({"article": [1, 2, 3], "price": [10.0, 20.0, 30.0]})
    new = pa.table({"article": [2, 4], "price": [21.0, 40.0]})
    print("first prices:", lakefold.append(TABLE, old, app_id="prices", batch_id=0).kind)
    lakefold.branch(TABLE, "audit")
    lakefold.upsert(BRANCH, new, keys="article", app_id="prices", batch_id=1)
    # Others may write to the table meanwhile: their rows stay, and rows that both change are refused.
    lakefold.append(TABLE, pa.table({"article": [9], "price": [90.0]}), app_id="others", batch_id=0)
    checked = lakefold.open(TABLE, branch="audit").to_arrow()
    if is_sound(checked):
        report = lakefold.promote(TABLE, "audit", commit_message="prices are positive, articles unique")
        print(f"promoted: {report.rows_added} rows added, {report.rows_removed} removed")
    else:
        print("not published: correct the branch, or delete it")
    # The batch counts on the main branch: a job that is run again adds nothing twice.
    print("sent again:", lakefold.upsert(TABLE, new, keys="article", app_id="prices", batch_id=1).kind)
    lakefold.branch(TABLE, "audit", delete=True)
    print(lakefold.open(TABLE).to_arrow().sort_by("article").to_pydict())


if __name__ == "__main__":
    main()
