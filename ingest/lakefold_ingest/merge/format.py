"""The seam between changes of rows and a table format: what merges, deletes and replacements need of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.merge.conditions import RowCondition
    from lakefold_ingest.merge.read_version import ReadVersion
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target
    from lakefold_ingest.view import TableSettings, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.written_before import WrittenBefore
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(frozen=True, slots=True)
class Replacement:
    """How rows of a table are replaced: new ones are written for `target`, and `operation` proposes it.

    `condition`: what each new row has to satisfy; None: nothing.
    """

    target: Target
    operation: WrittenBefore
    condition: RowCondition | None


class MergeFormat(ABC):
    """A table format as changes of rows need it. All views are of tables of this format."""

    name: ClassVar[str]

    @abstractmethod
    def open(self, view: View, storage_options: Mapping[str, str]) -> ReadVersion:
        """Opens the version of `view`. Raises `InvalidError` if rows of it can't be found or changed."""

    @abstractmethod
    def target(self, view: View, settings: TableSettings) -> Target:
        """Returns where and how rows with all columns of the table are written."""

    def opened(self, view: View, settings: TableSettings) -> tuple[ReadVersion, Target]:
        """Returns the version, open, and the target of rows with all columns."""
        return self.open(view, settings.storage_options), self.target(view, settings)

    @abstractmethod
    def condition(self, where: str, columns: pa.Schema, partitions: Sequence[str]) -> RowCondition:
        """Returns the condition of `replaceWhere` for a table that is going to have these columns.

        `partitions`: the names of its partition columns.
        """

    @abstractmethod
    def replacement(
        self, view: View, columns: pa.Schema, settings: WriteSettings, where: str | None
    ) -> Replacement:
        """Returns how rows with these columns replace those for which `where` holds; None: all rows.

        The table gets these columns, unless the settings keep its schema. Raises `InvalidError` if rows can't
        be replaced, or `where` can't be evaluated.
        """

    def deletion(self, view: View, key: Key, where: str, settings: WriteSettings) -> Envelope | None:
        """Returns the proposal that deletes the rows for which `where` holds; None if it holds for none.

        Writes the deletion files. Raises `InvalidError` if it can't be evaluated, and as `ReadVersion`.
        """
        table, target = self.opened(view, settings)
        try:
            addresses = table.rows_where(where)
        except InvalidError as error:
            message = f"the predicate {where!r} can't be evaluated: {error.message}"
            raise InvalidError(message, where=view.uri, hint=error.hint) from error
        return table.deletion(target, key, addresses, where) if addresses.size else None
