"""One change of a table: a version, where it came from in the log, and the rows it inserted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from lakefold_reader.feed.parts import ChangeType, Misfits, misfits_of
from lakefold_reader.feed.plan import plan_version
from lakefold_reader.versions.effect import Effect, effect_of
from lakefold_reader.versions.read_errors import explained, guarded
from lakefold_reader.versions.source import read_state
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.operations import Kind
from lakefold_table.marks.record import decode_record, position_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.scan.columns import TableSchema
    from lakefold_reader.scan.scan import Dataset
    from lakefold_reader.versions.cursor import Cursor
    from lakefold_reader.versions.source import Source, Step
    from lakefold_table.marks.record import Record
    from lakefold_table.position import Position


CREATED = "_row_created_at_version"
"""Lance's column of the version that made a row (Lance fact 7.5)."""


class UntoldChangeError(InvalidError):
    """A version did more than insert rows, and this release can't tell its inserted rows from the others."""


@dataclass(frozen=True)
class Change:
    """What one version did to the table, as `lakefold.tail` hands it out.

    `version`; `timestamp` in UTC; `position` (the last log position folded into it, None for a version that
    no committer made); `operation` (Lance's name for what made it, such as `append`); `operations` (what the
    entries did that share it); `rows` (how many it inserted, None where that shows only by reading);
    `only_inserts`; `cursor`, from which `lakefold.tail` goes on after this change; `inserted()`,
    `appended()` and `feed()`.
    """

    version: int
    timestamp: datetime
    operation: str
    cursor: Cursor
    _source: Source = field(repr=False)
    _step: Step = field(repr=False)
    _schema: TableSchema = field(repr=False)
    _whole: bool = field(repr=False)

    @cached_property
    def position(self) -> Position | None:
        """The last log position folded into this version; None where there is none."""
        record = self._record
        if record is None or record.last_offset < record.first_offset:
            return None
        return position_at(record, record.last_offset)

    @property
    def operations(self) -> Mapping[str, int]:
        """What the entries did that share this version, and how many did that; empty where no entry did.

        By Lance's names; an `insert` is an update that only inserted. Entries of several kinds are one
        `operation` to other clients: an update.
        """
        return {} if self._record is None else self._record.operations(self.operation)

    @property
    def only_inserts(self) -> bool:
        """Whether `inserted()` is all that happened: no row, value or column was changed or removed.

        An index, a setting or a compaction changes none of these. The first change of a tail from
        "earliest" is the whole content at that version, so it counts as inserts only.
        """
        return self._whole or self._effect.only_inserts

    @cached_property
    def rows(self) -> int | None:
        """How many rows `inserted()` gives, None where that isn't known without reading data."""
        if not self._whole:
            return self._effect.rows
        state = read_state(self._source, self.version)
        return state.rows if state.fragments.counts_rows else None

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema at this version."""
        return self._schema.arrow

    def inserted(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that this version inserted, in these columns (None: all of the version's schema).

        What is promised, by operation:

        - append, the creation of a table, and a merge insert that met no row: exactly their rows.
        - overwrite: the rows of the new content. That the old content went is told by `only_inserts` being
          False.
        - merge (columns added): the rows of fragments that the version before didn't have, mostly none. The
          new values of old rows are not told.
        - any other update, on a table with stable row ids: the rows that are new, those that others appended
          in the same version among them. What it changed or removed is not told, here and in what follows.
        - appends and deletes that share a version: the rows appended.
        - delete, project, data_replacement, data_overlay, and an update that wrote no new fragment: no rows.
        - restore, and versions without a transaction, on a table with stable row ids: the rows that the
          version before didn't have. The first version of a clone or a branch: all its rows.
        - create_index, rewrite (compaction), reserve_fragments, update_config, update_bases: no rows, and
          nothing is missed.
        - an update, a restore and versions without a transaction on a table without them (new fragments mix
          new rows with old ones): raises `UntoldChangeError`. What was appended in the same version as such
          an update, `appended` gives.

        What a version changed and removed, `feed` gives.

        Raises `VersionExpiredError` where the version's files were cleaned up meanwhile, `InvalidError` for a
        column that isn't there. Nothing is kept: each call reads again.
        """
        return self.batches(columns).read_all()

    def appended(self, columns: Sequence[str] | None = None) -> pa.Table:
        """As `inserted`, but only the rows of fragments in which every row is new.

        What an update inserted beside the rows that it changed isn't among them, so this is never in doubt
        where a version is an update: on a table without stable row ids it is all that can be told of it.
        """
        import pyarrow as pa

        with explained(self._source, self.version):
            reader = self._reader(self._schema.chosen(columns), with_mixed=False)
            rows = guarded(self._source, self.version, reader)
            return pa.RecordBatchReader.from_batches(reader.schema, rows).read_all()

    @property
    def step(self) -> Step:
        """What the version says of itself."""
        return self._step

    @property
    def columns(self) -> TableSchema:
        """The columns of this version, by their field ids."""
        return self._schema

    @property
    def appended_fragments(self) -> Sequence[DataFragment]:
        """The fragments that `appended` reads, as the transaction tells them. Raises as `appended`."""
        with explained(self._source, self.version):
            return self._inserted_fragments(with_mixed=False)

    def batches(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """As `inserted`, batch by batch."""
        import pyarrow as pa

        with explained(self._source, self.version):
            reader = self._reader(self._schema.chosen(columns))
        return pa.RecordBatchReader.from_batches(reader.schema, guarded(self._source, self.version, reader))

    def feed(
        self, columns: Sequence[str] | None = None, *, misfits: Misfits | str = Misfits.FAIL
    ) -> pa.RecordBatchReader:
        """Every row that this version inserted, changed or deleted, as `lakefold.changes` gives them.

        The first change of a tail from "earliest" is the whole content: all its rows count as inserted.
        """
        from lakefold_reader.feed.feed import feed_of

        parts = plan_version(self._source, self.version, whole=self._whole)
        return feed_of(self._source, parts, self._schema, columns, misfits=misfits_of(misfits))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)

    @cached_property
    def _effect(self) -> Effect:
        return effect_of(self._step)

    @cached_property
    def _dataset(self) -> Dataset:
        from lakefold_reader.scan.scan import Dataset

        return Dataset(self._source.uri, self.version, self._source.options)

    @cached_property
    def _record(self) -> Record | None:
        return decode_record(self._step.properties, self._source.uri) if self._step.own else None

    def _reader(self, schema: TableSchema, *, with_mixed: bool = True) -> pa.RecordBatchReader:
        import pyarrow as pa

        from lakefold_reader.scan.scan import rows_of_fragments

        if self._whole:
            return self._dataset.reader([column.name for column in schema.columns])
        if with_mixed and self._effect.fragments is None:
            return self._compared(schema)
        fragments = self._inserted_fragments(with_mixed=with_mixed)
        if not fragments:
            return pa.RecordBatchReader.from_batches(schema.arrow, [])
        if with_mixed and self._effect.mixed:
            names = [column.name for column in schema.columns]
            mixed = {one.id: one for one in fragments}
            return self._dataset.reader(names, f"{CREATED} = {self.version}", mixed)
        return rows_of_fragments(self._dataset, fragments, schema, self._id_of)

    def _compared(self, schema: TableSchema) -> pa.RecordBatchReader:
        """The rows that the version before didn't have, where both together tell it."""
        import pyarrow as pa

        from lakefold_reader.feed.rows import PartReader
        from lakefold_reader.feed.values import with_bytes

        head = self._step.head
        if self._step.kind is not Kind.CLONE and (head is None or not has_stable_row_ids(head)):
            raise self._untold()
        names = [column.name for column in schema.columns]
        parts = [
            part for part in plan_version(self._source, self.version) if part.change_type is ChangeType.INSERT
        ]
        reader = PartReader(self._source, schema)
        shown = pa.schema(
            [field.with_type(with_bytes(field.type)) for field in schema.arrow], schema.arrow.metadata
        )
        batches = chain.from_iterable(reader.stored(part, names) for part in parts)
        return pa.RecordBatchReader.from_batches(shown, batches)

    def _inserted_fragments(self, *, with_mixed: bool) -> Sequence[DataFragment]:
        effect = self._effect
        if effect.fragments is None:
            raise self._untold()
        if with_mixed and effect.mixed:
            return self._told_by_birth([*effect.fragments, *effect.mixed])
        if not effect.compared:
            return effect.fragments
        before = {one.id for one in read_state(self._source, self.version - 1).fragments}
        return [one for one in read_state(self._source, self.version).fragments if one.id not in before]

    def _told_by_birth(self, fragments: Sequence[DataFragment]) -> Sequence[DataFragment]:
        """The same fragments as the version holds them, once it is sure that each row's birth is noted."""
        state = read_state(self._source, self.version)
        ids = sorted({self._id_of(one) for one in fragments})
        found = list(state.fragments.get(ids).values())
        if not has_stable_row_ids(state.head) or not all(
            one.HasField("inline_created_at_versions") for one in found
        ):
            raise self._untold()
        return found

    def _untold(self) -> UntoldChangeError:
        return UntoldChangeError(
            f"which rows version {self.version}, the work of {self.operation}, inserted can't be told",
            where=self._source.uri,
            hint="open the version and read it whole; `appended` gives the rows that others appended in it",
        )

    def _id_of(self, fragment: DataFragment) -> int:
        """The id that a fragment of the transaction has in the version: found by its first file."""
        found = self._ids.get(_first_file(fragment)) if fragment.files else None
        if found is None:
            raise DamagedError(
                f"version {self.version} doesn't hold a fragment of its own transaction",
                where=self._source.uri,
                hint="open the version and read it whole",
            )
        return found

    @cached_property
    def _ids(self) -> dict[tuple[int, str], int]:
        fragments = read_state(self._source, self.version).fragments
        return {_first_file(one): one.id for one in fragments if one.files}


def _first_file(fragment: DataFragment) -> tuple[int, str]:
    """What tells a fragment from every other: its first file. Base -1 is the table itself."""
    file = fragment.files[0]
    return (file.base_id if file.HasField("base_id") else -1), file.path
