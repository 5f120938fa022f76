"""What the driver knows of the table while it writes one batch: the read version, its schema and its marks.

The driver reads the version itself, without pylance, whose use would forbid it to fork.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_log.record import is_own
from lakefold_table.lance.arrow import schema_to_arrow
from lakefold_table.lance.schema import TOP
from lakefold_table.lance.table import LanceFormat
from lakefold_table.marks import Marks, decode_marks
from lakefold_table.storage import open_storage
from lakefold_table.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_table.entry import Position


@dataclass(frozen=True, slots=True)
class View:
    """A table at its newest version.

    `fields` is its schema, `schema` the same as Arrow shows it. `marks` are those that this very version was
    made with, none where it is a foreign client's. `bound` is the position to which the table is bound, None
    where it is bound to no log.
    """

    uri: str
    version: int
    fields: Sequence[Field]
    schema: pa.Schema
    data_storage_version: str
    marks: Marks
    bound: Position | None

    def folded(self, app_id: str, batch_id: int) -> int | None:
        """The version that holds this batch (0: some version); None where it may not be folded yet."""
        mark = self.marks.apps.get(app_id)
        return mark.version_of(batch_id) if mark is not None and mark.has(batch_id) else None

    def field_ids(self, columns: Collection[str]) -> tuple[int, ...]:
        """The ids of these columns and of the fields below them, in the order of the schema."""
        ids: list[int] = []
        chosen: set[int] = set()
        for field in self.fields:
            if field.name in columns if field.parent_id == TOP else field.parent_id in chosen:
                chosen.add(field.id)
                ids.append(field.id)
        return tuple(ids)

    @property
    def partition(self) -> int | None:
        """The partition of the log that the table is bound to; None where it isn't bound yet."""
        return None if self.bound is None else self.bound.log.partition


def look(uri: str, storage_options: Mapping[str, str]) -> View | None:
    """The table as it is now; None where there is nothing at all at this place.

    Raises `NotATableError` where there is something else, `InvalidError` where the table uses features that a
    writer must know and this release doesn't.
    """
    lance = LanceFormat()
    versions = Versions(open_storage(uri, storage_options), lance.folder, lance.detect)
    version = versions.latest()
    if not version:
        return None
    state = lance.decode(versions.path(version), versions.read(version), uri)
    lance.check_writable(state, uri)
    marks = decode_marks(state.metadata, uri) or Marks()
    # A foreign client's version may carry the marks of another table (a clone) or of an older version.
    own = is_own(state.properties, version)
    return View(
        uri,
        version,
        state.schema,
        schema_to_arrow(state.schema, state.head.schema_metadata),
        state.head.data_format.version,
        marks if own else Marks(),
        marks.position,
    )
