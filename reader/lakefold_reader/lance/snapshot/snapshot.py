"""A version of a Lance table, opened: what its manifest contains, and its rows by pylance's scanner."""

from __future__ import annotations

from functools import cached_property
from typing import IO, TYPE_CHECKING

from lakefold_reader.format.row_ids import row_ids_of
from lakefold_reader.format.snapshots import (
    Feature,
    FragmentRows,
    FragmentSize,
    IndexInfo,
    Missing,
    NamedEvidence,
    Root,
    RowRange,
)
from lakefold_reader.lance.feed.sides import deleted_rows
from lakefold_reader.lance.read_errors import explained, guarded
from lakefold_reader.lance.scan.columns import TableSchema, schema_of
from lakefold_reader.lance.snapshot.indices import field_paths, indices_of
from lakefold_reader.row_stream import row_stream
from lakefold_table.bitmaps import Bitmap, numbers_of
from lakefold_table.lance.manifests.features import bits_of, meaning
from lakefold_table.lance.rows.merge_deletions import ROW_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.source import Source
    from lakefold_reader.lance.scan.scan import Dataset
    from lakefold_reader.lance.scan.take import RowTake
    from lakefold_table.entry import Conflict
    from lakefold_table.lance.state import LanceState


class LanceSnapshot:
    """See `Snapshot`."""

    def __init__(self, source: Source, state: LanceState) -> None:
        self._source = source
        self.state = state

    @cached_property
    def schema(self) -> TableSchema:
        """See `Snapshot.schema`. Raises `DamagedError`."""
        return schema_of(self.state.head)

    @property
    def fragment_count(self) -> int:
        """See `Snapshot.fragment_count`."""
        return self.state.fragments.count

    def fragment_sizes(self) -> Iterator[FragmentSize]:
        """See `Snapshot.fragment_sizes`. Old files of other clients record no bytes."""
        for fragment in self.state.fragments:
            sizes = [file.file_size_bytes for file in fragment.files]
            deleted = fragment.deletion_file.num_deleted_rows if fragment.HasField("deletion_file") else 0
            yield FragmentSize(fragment.physical_rows or None, deleted, sum(sizes) if all(sizes) else None)

    def data_files(self) -> Iterator[tuple[str, int | None]]:
        """See `Snapshot.data_files`. A path begins with the number of its base, if it is in one."""
        for fragment in self.state.fragments:
            for file in fragment.files:
                base = f"{file.base_id}:" if file.HasField("base_id") else ""
                yield f"{base}{file.path}", file.file_size_bytes or None

    def touched(self, conflict: Conflict) -> NamedEvidence:
        """See `Snapshot.touched`. Fragments are named by their ids, whether this version has them or not."""
        ids = {*conflict.fragment_ids, *(row >> ROW_BITS for row in conflict.row_addresses)}
        paths = field_paths(self.state.head.fields)
        fields = (paths[number] for number in conflict.field_ids if number in paths)
        return NamedEvidence(tuple(map(str, sorted(ids))), tuple(fields))

    def fragment_rows(self, names: Sequence[str]) -> dict[str, FragmentRows]:
        """See `Snapshot.fragment_rows`. The names are ids."""
        ids = [int(name) for name in names if name.isascii() and name.isdecimal()]
        by_fragment: dict[str, FragmentRows] = {}
        for fragment in self.state.fragments.each(ids):
            gone = Bitmap()
            if fragment.HasField("deletion_file"):
                gone = deleted_rows(self._source, self.state.head, fragment)
            by_fragment[str(fragment.id)] = FragmentRows(fragment.physical_rows or None, numbers_of(gone))
        return by_fragment

    @property
    def physical_rows(self) -> int:
        """See `Snapshot.physical_rows`."""
        return self.state.fragments.physical_rows

    @property
    def config(self) -> Mapping[str, str]:
        """See `Snapshot.config`."""
        return self.state.head.config

    @property
    def features(self) -> tuple[Feature, ...]:
        """The feature flags that are set, ascending."""
        head = self.state.head
        return features_of(head.reader_feature_flags, head.writer_feature_flags)

    @property
    def roots(self) -> tuple[Root, ...]:
        """See `Snapshot.roots`."""
        bases = sorted(self.state.head.base_paths, key=lambda base: base.id)
        return tuple(Root(base.id, base.name, base.path, base.is_dataset_root) for base in bases)

    @property
    def storage_version(self) -> str:
        """See `Snapshot.storage_version`."""
        return self.state.head.data_format.version

    def indices(self) -> tuple[IndexInfo, ...]:
        """See `Snapshot.indices`."""
        return indices_of(self.state, self._source.content)

    def count_rows(self, where: str | None) -> int:
        """See `Snapshot.count_rows`: without a filter from the manifest, if it records the numbers."""
        if where is None and self.state.fragments.counts_rows:
            return self.state.rows
        with explained(self._source, self.state.version):
            return self._dataset.count(where)

    def reader(
        self, columns: Sequence[str] | None, where: str | None, part: RowRange
    ) -> pa.RecordBatchReader:
        """See `Snapshot.reader`."""
        with explained(self._source, self.state.version):
            reader = self._dataset.reader(columns, where, part=part)
        batches = guarded(self._source, self.state.version, reader)
        return row_stream(reader.schema, batches)

    def take(self, row_ids: object, columns: Sequence[str] | None, missing: Missing) -> pa.Table:
        """See `Snapshot.take`."""
        with explained(self._source, self.state.version):
            return self._row_take.rows(row_ids_of(row_ids), columns, missing)

    def blobs(self, column: str, row_ids: object) -> list[IO[bytes] | None]:
        """See `Snapshot.blobs`."""
        with explained(self._source, self.state.version):
            return self._dataset.blobs(column, self._row_take.addresses(row_ids_of(row_ids)))

    @cached_property
    def _dataset(self) -> Dataset:
        from lakefold_reader.lance.scan.scan import Dataset

        return Dataset(self._source, self.state.version, self.state)

    @cached_property
    def _row_take(self) -> RowTake:
        from lakefold_reader.lance.scan.row_id_index import row_index_of
        from lakefold_reader.lance.scan.take import RowTake

        return RowTake(self._dataset, row_index_of(self.state))


def features_of(reader_flags: int, writer_flags: int) -> tuple[Feature, ...]:
    """Returns the flags that are set, ascending."""
    return tuple(
        Feature(flag, meaning(flag), bool(reader_flags & flag), bool(writer_flags & flag))
        for flag in bits_of(reader_flags | writer_flags)
    )
