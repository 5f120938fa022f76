"""What the driver knows of the table while it writes one batch: the read version, its schema and its marks.

The driver reads the version itself, without pylance, whose use would forbid it to fork, and without decoding
the fragments, whose number has nothing to do with a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_reader.lance.versions import head_of
from lakefold_reader.opening import open_source
from lakefold_reader.versions.stray_files import missing
from lakefold_table.entry import Duplicate
from lakefold_table.lance.manifests.features import check_writable
from lakefold_table.lance.schemas.arrow import schema_to_arrow
from lakefold_table.lance.schemas.schema import TOP
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.format.source import Source
    from lakefold_table.position import Position
    from lakefold_table.versions.versions import Versions


# The tables that this process writes, by URI and storage options: their versions, the newest one seen.
_seen: dict[tuple[object, ...], tuple[Source, int]] = {}


@dataclass(frozen=True, slots=True)
class View:
    """A table at its newest version.

    `fields` is its schema, `schema` the same as Arrow shows it. `marks` are those that this very version was
    made with, none where it is a foreign client's; `carried` those that it has, whoever made it. `bound` is
    the position to which the table is bound, None where it is bound to no log.
    """

    uri: str
    version: int
    fields: Sequence[Field]
    schema: pa.Schema
    data_storage_version: str
    marks: Marks
    carried: Marks
    bound: Position | None

    def folded(self, app_id: str, batch_id: int) -> Duplicate | None:
        """What a repetition of this batch is answered; None if it may not be folded yet."""
        mark = self.marks.apps.get(app_id)
        if mark is None or not mark.has(batch_id):
            return None
        return Duplicate(mark.version_of(batch_id), mark.rolled_back_by(batch_id))

    def folded_later(self, app_id: str, batch_id: int) -> int | None:
        """The highest batch id of the app if this batch was folded, and that later one too.

        Returns None otherwise, and for a batch that a Restore left out of the table.
        """
        mark = self.carried.apps.get(app_id)
        if mark is None or not mark.has(batch_id) or mark.rolled_back_by(batch_id):
            return None
        highest = mark.folded[-1][1]
        return highest if highest > batch_id else None

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


def look(uri: str, storage_options: Mapping[str, str], *, afresh: bool = False) -> View | None:
    """The table as it is now; None where there is nothing at all at this place.

    Lists the versions the first time, or where `afresh` is said. Else it goes on from the one it saw last,
    and stops short where versions were removed in the middle: the committer refuses what is built on such a
    version, and who looks afresh sees what is there. Raises `NotATableError` where there is something else
    than a table, `InvalidError` where it uses features that a writer must know and this release doesn't.
    """
    place = (uri, *sorted(storage_options.items()))
    if place not in _seen:
        _seen[place] = open_source(uri, storage_options), 0
    source, known = _seen[place]
    versions = source.versions
    goes_on = known and not afresh and versions.exists(known)
    version = newest(versions, known) if goes_on else versions.latest()
    _seen[place] = source, version
    if not version:
        return None
    summary = source.summary(version, whole=True)
    head = None if summary is None else head_of(summary)
    if summary is None or head is None:
        raise missing(source, version)
    check_writable(head, uri)
    marks = decode_marks(head.table_metadata, uri) or Marks()
    return View(
        uri,
        version,
        head.fields,
        schema_to_arrow(head.fields, head.schema_metadata),
        head.data_format.version,
        # A foreign client's version may carry the marks of another table (a clone) or of an older version.
        marks if summary.own else Marks(),
        marks,
        marks.position,
    )


def newest(versions: Versions, known: int) -> int:
    """The newest version without listing, from one that is there: asks for names ahead in growing steps.

    A table keeps its versions until somebody cleans up; listing 20,000 of them takes 0.2 s on a local disk.
    """
    step = 1
    while versions.exists(known + step):
        known += step
        step *= 2
    while step > 1:
        step //= 2
        if versions.exists(known + step):
            known += step
    return known
