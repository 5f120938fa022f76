"""A key that was used before for another batch: by what that is noticed, and the error that says it.

A batch that is run again has the same rows, in other files and in another order. So its content is what is
done, how many rows it has, and their columns; and a checksum of their values if this process has all of them.
Spark's tasks write without one: expressions such as `uuid()` have other values whenever a batch is run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakefold_ingest.proposals.key import APP_ID
from lakefold_ingest.writing.report import in_version
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_ingest.proposals.key import Key
    from lakefold_table.entry import Duplicate

ON_REUSED_KEY = OptionName("on_reused_key")


class ReusedKeyError(InvalidError):
    """A batch has the key of another one, which was folded before. Nothing was added or changed.

    lakefold.append("s3://lake/flights.lance", rows, app_id="loader", batch_id=8)
    try:
        lakefold.append("s3://lake/flights.lance", rows.slice(1), app_id="loader", batch_id=8)
    except lakefold.ReusedKeyError as error:
        print(error.hint)
    """

    exit_code = 3


def batch_content(kind: str, columns: Iterable[str], rows: int) -> str:
    """Returns the content of a batch that does `kind` with so many rows of these columns."""
    return f"{kind} {rows} {json.dumps(sorted(columns))}"


def reused_key(result: Duplicate, key: Key, table: str) -> ReusedKeyError:
    """Returns the error for a batch whose key another batch of the table has."""
    batch = OptionName("batch_id")
    return ReusedKeyError(
        f"{key} was folded before {in_version(result)} with other rows, other columns or another operation: "
        "this is another batch with its key; nothing was added or changed",
        where=table,
        hint=(
            "give each batch a ",
            batch,
            " of its own, and the same one only when it is run again; or, if it is the same batch and only ",
            "has other rows whenever it is run, ",
            ON_REUSED_KEY,
            '="skip", to leave them out',
        ),
    )


def other_rows(key: Key, table: str) -> ReusedKeyError:
    """Returns the error for rows under a key that the same run of a query has used for others."""
    return ReusedKeyError(
        f"the query has written other rows of its batch as {key}, so these are left out of the table",
        where=table,
        hint=(
            "call the sink once for each batch, or give each of several sinks an ",
            APP_ID,
            " of its own; if the rows are the same and only computed anew, ",
            ON_REUSED_KEY,
            '="skip"',
        ),
    )


def other_first_batch(result: Duplicate, key: Key, table: str) -> ReusedKeyError:
    """Returns the error for a streaming query that begins anew with an app id whose batch 0 the table has."""
    return ReusedKeyError(
        (
            f"{key} was folded before {in_version(result)} with another number of rows or other columns: ",
            "the query's checkpoint was deleted, or another query uses this ",
            APP_ID,
            "; nothing was added",
        ),
        where=table,
        hint=(
            "give the sink another ",
            APP_ID,
            ", under which all of the query's batches are new; or, if the batch only has other rows ",
            "whenever it is run, ",
            ON_REUSED_KEY,
            '="skip" for this start, to leave them out',
        ),
    )
