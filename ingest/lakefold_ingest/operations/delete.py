"""Deletes rows of the table: those for which a predicate holds, or whose keys are in a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.merge.clauses import MatchedDelete, Merge
from lakefold_ingest.merge.formats import merge_format
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.operations.upsert import ATTEMPTS, UpsertRows, check_waits
from lakefold_ingest.rows.source_columns import own_columns
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(frozen=True, slots=True)
class DeleteWhere(ChangesAnyRow):
    """An `Operation` that deletes the rows for which `where` holds, which is SQL as the reader's filters.

    Rows that other writers add between the read version and this delete stay, unless the table's level is
    serializable.
    """

    where: str
    attempts: int = ATTEMPTS
    schema: None = None
    batch_columns: None = None

    def __post_init__(self) -> None:
        if not self.where.strip():
            option = OptionName("where")
            hint = "give ", option, '="true" to delete all rows'
            raise InvalidError("the predicate is empty", where=option, hint=hint)

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`: the condition."""
        del view, rows
        return f"delete {self.where}"

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Writes the deletion files and returns the envelope; None if the predicate holds for no row.

        Raises `InvalidError` if the predicate can't be evaluated, and as `ReadVersion`.
        """
        check_waits(settings)
        return merge_format(view).deletion(view, key, self.where, settings)


def delete_keys(rows: pa.Table, keys: Sequence[str], source: tuple[str, ...] = ()) -> UpsertRows:
    """Returns the operation that deletes the rows whose keys are in `rows`, which need no other columns.

    A key may be in several rows. `source`: the columns that only bad rows keep. Raises `InvalidError` if
    `keys` names no column, one twice, or one of `source`, or two columns have the name of one.
    """
    merge = Merge(tuple(keys), clauses=(MatchedDelete(),))
    merge.check_columns(rows.column_names, keys)
    repeated = [name for name in (*keys, *source) if len(rows.schema.get_all_field_indices(name)) > 1]
    if repeated:
        raise InvalidError(
            f"several columns of the batch are called {repeated[0]}", hint="rename or drop one"
        )
    own_columns(rows.schema, source)
    return UpsertRows(rows.select([*keys, *source]), merge, source=source)
