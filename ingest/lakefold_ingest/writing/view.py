"""What a writer knows of the table while it writes one batch: the read version, its schema and its marks.

The version is read without pylance, because a process that has used pylance must not fork, and without
decoding the fragments, because a batch needs none of them.
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
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.content_digest import UNKNOWN, digest_of
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.format.source import Source
    from lakefold_table.marks.batches import Interval
    from lakefold_table.position import Position
    from lakefold_table.versions.versions import Versions


# The tables that this process writes, by URI and storage options: their source and the newest version read.
_seen: dict[tuple[object, ...], tuple[Source, int]] = {}


@dataclass(frozen=True, slots=True)
class View:
    """A table at its newest version.

    `fields` is its schema, `schema` the same in Arrow's types. `marks` are those that a committer published
    with this version, empty if another client made it; `carried` are those in it, whichever client made it.
    `bound` is the position to which the table is bound, None if it is bound to no log.
    """

    uri: str
    version: int
    fields: Sequence[Field]
    schema: pa.Schema
    data_storage_version: str
    marks: Marks
    carried: Marks
    bound: Position | None

    def folded(self, key: Key) -> Duplicate | None:
        """Returns the outcome of a repetition of this batch. Returns None if it may not be folded yet."""
        if key.batch_id is None:
            version = dict(self.marks.uuids).get(key.own_uuid)
            rolled_back_by = self.marks.uuids_rolled_back.get(key.own_uuid, 0)
            return None if version is None else Duplicate(version, rolled_back_by)
        mark = self.marks.apps.get(key.app_id)
        if mark is None or not mark.has(key.batch_id):
            return None
        return Duplicate(mark.version_of(key.batch_id), mark.rolled_back_by(key.batch_id))

    def differs(self, key: Key, content: str) -> bool:
        """Whether this batch was folded with another content, as far as is known (`TableProposal.content`).

        The content is remembered for the newest batches of each app.
        """
        mark = None if key.batch_id is None else self.marks.apps.get(key.app_id)
        known = UNKNOWN if key.batch_id is None or mark is None else mark.content_of(key.batch_id)
        return UNKNOWN not in {known, digest_of(content)} and known != digest_of(content)

    def folded_later(self, key: Key) -> int | None:
        """Returns the highest batch id of the app if this batch was folded, and that later one too.

        Returns None otherwise, and for a batch that a Restore left out of the table.
        """
        mark = self.carried.apps.get(key.app_id)
        if key.batch_id is None or mark is None or not mark.has(key.batch_id):
            return None
        highest = mark.folded[-1][1]
        return highest if highest > key.batch_id and not mark.rolled_back_by(key.batch_id) else None

    def not_folded_before(self, key: Key) -> Sequence[Interval]:
        """Returns the ids of earlier batches of the app that are not in the table, as far as is known."""
        mark = self.carried.apps.get(key.app_id, AppMark())
        return () if not key.batch_id else mark.not_folded_below(key.batch_id)

    def field_ids(self, columns: Collection[str]) -> tuple[int, ...]:
        """Returns the ids of these columns and of the fields below them, in the order of the schema."""
        ids: list[int] = []
        chosen: set[int] = set()
        for field in self.fields:
            if field.name in columns if field.parent_id == TOP else field.parent_id in chosen:
                chosen.add(field.id)
                ids.append(field.id)
        return tuple(ids)

    @property
    def partition(self) -> int | None:
        """The partition of the log that the table is bound to; None if it isn't bound yet."""
        return None if self.bound is None else self.bound.log.partition


def read_view(uri: str, storage_options: Mapping[str, str], *, afresh: bool = False) -> View | None:
    """Returns the table as it is now, or None if nothing exists at this location.

    Lists the versions the first time, and if `afresh` is true. Otherwise it continues from the version that
    it read last, which ends too early if versions after that one were removed. The committer refuses what is
    built on such a version, and then the table is read afresh. Raises `NotATableError` if something other
    than a table is there, `InvalidError` if the table uses features that a writer must know and this release
    doesn't.
    """
    table = (uri, *sorted(storage_options.items()))
    if table not in _seen:
        _seen[table] = open_source(uri, storage_options), 0
    source, known = _seen[table]
    versions = source.versions
    continues = known and not afresh and versions.exists(known)
    version = newest(versions, known) if continues else versions.latest()
    _seen[table] = source, version
    return _view_of(source, version) if version else None


def view_at(uri: str, version: int, storage_options: Mapping[str, str]) -> View:
    """Returns the table at a version that exists, as `read_view` returns its newest. Raises as it does."""
    return _view_of(seen_source(uri, storage_options), version)


def _view_of(source: Source, version: int) -> View:
    uri = source.uri
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
        # The version of another client may contain the marks of another table (a clone) or of an older
        # version.
        marks if summary.own else Marks(),
        marks,
        marks.position,
    )


def seen_source(uri: str, storage_options: Mapping[str, str]) -> Source:
    """Returns the table as `read_view` opened it, so that its versions are not listed again."""
    seen = _seen.get((uri, *sorted(storage_options.items())))
    return open_source(uri, storage_options) if seen is None else seen[0]


def newest(versions: Versions, known: int) -> int:
    """Returns the newest version without listing, starting from a version that exists.

    It checks names in growing steps. A table keeps its versions until they are cleaned up; listing 20,000 of
    them takes 0.2 s on a local disk.
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
