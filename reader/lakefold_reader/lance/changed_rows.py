"""The rows that a version of a Lance table inserted, and how much a reader has to read for them."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.format.changes import NOTHING, ChangeType, Misfits, ReadCost, UnknownChangeError
from lakefold_reader.lance.effect import Effect, effect_of
from lakefold_reader.lance.feed.parts import FragmentPart
from lakefold_reader.lance.feed.plan import plan_version
from lakefold_reader.lance.read_errors import explained, guarded
from lakefold_reader.lance.units import added_fragments, first_file
from lakefold_reader.lance.versions import head_of, kind_in, read_state, transaction_of
from lakefold_reader.row_stream import row_stream
from lakefold_table.errors import DamagedError
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_reader.format.source import ChangePart, Source
    from lakefold_reader.lance.scan.columns import TableSchema
    from lakefold_reader.lance.scan.scan import Dataset
    from lakefold_table.format import VersionSummary

CREATED = "_row_created_at_version"
"""Lance's column of the version that made a row (Lance fact 7.5)."""
SHARED = frozenset({"append", "delete", "update"})
"""Operations whose version may also hold entries that only append."""


class ChangedRows:
    """What a version did to the rows of its table. `whole`: all its rows count as inserted."""

    def __init__(self, source: Source, summary: VersionSummary, schema: TableSchema, *, whole: bool) -> None:
        self._source = source
        self._summary = summary
        self._schema = schema
        self._whole = whole

    @property
    def only_inserts(self) -> bool:
        """See `VersionChange.only_inserts`."""
        return self._whole or self._effect.only_inserts

    @cached_property
    def rows(self) -> int | None:
        """See `VersionChange.rows`."""
        if not self._whole:
            return self._effect.rows
        state = read_state(self._source, self._summary.version)
        return state.rows if state.fragments.counts_rows else None

    @property
    def cost(self) -> ReadCost:
        """The rows and bytes of the fragments that the version added, and the rows that it deleted.

        Deleted rows count if a committer recorded them.
        """
        if self._whole:
            return cost_of_fragments(read_state(self._source, self._summary.version).fragments)
        summary = self._summary
        record = decode_record(summary.properties, self._source.uri) if summary.own else None
        deleted = 0 if record is None else sum(answer.rows_deleted for answer in record.committed.values())
        return cost_of(transaction_of(summary), deleted)

    def inserted(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `Change.inserted`."""
        with explained(self._source, self._summary.version):
            reader = self._reader(self._schema.chosen(columns))
        return self._guarded(reader)

    def appended(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `Change.appended`."""
        with explained(self._source, self._summary.version):
            reader = self._reader(self._schema.chosen(columns), with_mixed=False)
        return self._guarded(reader)

    def feed(self, columns: Sequence[str] | None, misfits: Misfits) -> pa.RecordBatchReader:
        """See `Change.feed`."""
        from lakefold_reader.lance.feed.rows import feed_of

        parts = plan_version(self._source, self._summary.version, whole=self._whole)
        return feed_of(self._source, parts, self._schema, columns, misfits)

    def is_appended(self) -> Callable[[ChangePart], bool]:
        """See `VersionChange.is_appended`; entries that only append may share their version with others."""
        fragments: Sequence[DataFragment] = ()
        if self._summary.operation in SHARED:
            with explained(self._source, self._summary.version):
                fragments = self._inserted_fragments(with_mixed=False)
        files = {first_file(fragment) for fragment in fragments}

        def appended(part: ChangePart) -> bool:
            if not isinstance(part, FragmentPart) or part.change_type is not ChangeType.INSERT:
                return False
            return first_file(DataFragment.FromString(part.fragment)) in files

        return appended

    @cached_property
    def _effect(self) -> Effect:
        return effect_of(self._summary)

    @cached_property
    def _dataset(self) -> Dataset:
        from lakefold_reader.lance.scan.scan import Dataset

        return Dataset(self._source, self._summary.version)

    def _guarded(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:

        batches = guarded(self._source, self._summary.version, reader)
        return row_stream(reader.schema, batches)

    def _reader(self, schema: TableSchema, *, with_mixed: bool = True) -> pa.RecordBatchReader:

        from lakefold_reader.lance.scan.scan import rows_of_fragments

        if self._whole:
            return self._dataset.reader(schema.names)
        if with_mixed and self._effect.fragments is None:
            return self._compared(schema)
        fragments = self._inserted_fragments(with_mixed=with_mixed)
        if not fragments:
            return row_stream(schema.arrow, [])
        if with_mixed and self._effect.mixed:
            mixed = {fragment.id: fragment for fragment in fragments}
            return self._dataset.reader(schema.names, f"{CREATED} = {self._summary.version}", mixed)
        return rows_of_fragments(self._dataset, fragments, schema, self._id_of)

    def _compared(self, schema: TableSchema) -> pa.RecordBatchReader:
        """Returns the rows that the version before didn't have, if comparing the two versions shows them."""
        import pyarrow as pa

        from lakefold_reader.lance.feed.rows import FragmentPartReader
        from lakefold_reader.lance.feed.values import with_bytes

        head = head_of(self._summary)
        if kind_in(self._summary) is not Kind.CLONE and (head is None or not has_stable_row_ids(head)):
            raise self._not_known()
        parts = [
            part
            for part in plan_version(self._source, self._summary.version)
            if part.change_type is ChangeType.INSERT
        ]
        reader = FragmentPartReader(self._source, schema)
        shown = pa.schema(
            [field.with_type(with_bytes(field.type)) for field in schema.arrow], schema.arrow.metadata
        )
        batches = chain.from_iterable(reader.stored(part, schema.names) for part in parts)
        return row_stream(shown, batches)

    def _inserted_fragments(self, *, with_mixed: bool) -> Sequence[DataFragment]:
        effect, version = self._effect, self._summary.version
        if effect.fragments is None:
            raise self._not_known()
        if with_mixed and effect.mixed:
            return self._with_row_versions([*effect.fragments, *effect.mixed])
        if not effect.compared:
            return effect.fragments
        before = {fragment.id for fragment in read_state(self._source, version - 1).fragments}
        return [
            fragment for fragment in read_state(self._source, version).fragments if fragment.id not in before
        ]

    def _with_row_versions(self, fragments: Sequence[DataFragment]) -> Sequence[DataFragment]:
        """Returns these fragments as the version holds them. Raises if their rows' versions are unknown."""
        state = read_state(self._source, self._summary.version)
        ids = sorted({self._id_of(fragment) for fragment in fragments})
        held = list(state.fragments.get(ids).values())
        if not has_stable_row_ids(state.head) or not all(
            fragment.HasField("inline_created_at_versions") for fragment in held
        ):
            raise self._not_known()
        return held

    def _not_known(self) -> UnknownChangeError:
        summary = self._summary
        return UnknownChangeError(
            f"version {summary.version} ({summary.operation}) does not record which rows it inserted",
            where=self._source.uri,
            hint="open the version and read it whole; `appended` gives the rows that other entries appended",
        )

    def _id_of(self, fragment: DataFragment) -> int:
        """Returns the id that a fragment of the transaction has in the version, by its first file."""
        number = self._ids.get(first_file(fragment)) if fragment.files else None
        if number is None:
            raise DamagedError(
                f"version {self._summary.version} doesn't hold a fragment of its own transaction",
                where=self._source.uri,
                hint="open the version and read it whole",
            )
        return number

    @cached_property
    def _ids(self) -> dict[tuple[int, str], int]:
        fragments = read_state(self._source, self._summary.version).fragments
        return {first_file(fragment): fragment.id for fragment in fragments if fragment.files}


def cost_of(transaction: Transaction | None, deleted: int = 0) -> ReadCost:
    """Returns what a version of this transaction counts for.

    `deleted`: the rows that it is known to have deleted.

    Numbers that the transaction doesn't record count as 0.
    """
    if transaction is None:
        return NOTHING
    return cost_of_fragments(added_fragments(transaction)) + ReadCost(deleted, 0)


def cost_of_fragments(fragments: Iterable[DataFragment]) -> ReadCost:
    """Returns the number of live rows of these fragments, and the bytes of their files."""
    rows = size = 0
    for fragment in fragments:
        rows += max(0, fragment.physical_rows - fragment.deletion_file.num_deleted_rows)
        size += sum(file.file_size_bytes for file in fragment.files)
    return ReadCost(rows, size)
