"""What an executor does: read the fragments that its partition names, of one version, and nothing else.

A partition carries the fragments as the manifest has them, so that an executor asks the store for data files
alone: it lists nothing, looks for no newest version, and opens the version's manifest only where a filter or
deleted rows ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.spark.types import fitted
from lakefold_reader.versions.read_errors import explained
from lakefold_reader.versions.source import open_source
from lakefold_table.errors import DamagedError
from lakefold_table.lance.format import LanceFormat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.scan.columns import TableSchema


@dataclass(frozen=True)
class VersionRows:
    """One version of a table, as a task reads it. Goes from the driver to the executors.

    `manifest`: the path of its file. `schema`: its columns, chosen and in order. `numbered`: the fragments
    that a task gets bear the ids that they have in the version; those of a transaction don't yet.
    """

    uri: str
    version: int
    manifest: str
    schema: TableSchema
    numbered: bool = True
    where: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def read(self, fragments: Sequence[bytes], target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of some fragments (encoded) in the form of `target`.

        Raises `VersionExpiredError` where the version was cleaned up meanwhile, `DamagedError` where a file
        of it is missing or can't be read, `InvalidError` for values that Spark has no place for.
        """
        found = [DataFragment.FromString(data) for data in fragments]
        with explained(open_source(self.uri, self.options), self.version):
            for batch in self._batches(found):
                yield fitted(batch, target)

    def _batches(self, fragments: Sequence[DataFragment]) -> pa.RecordBatchReader:
        from lakefold_reader.scan.scan import Dataset, rows_of_fragments

        dataset = Dataset(self.uri, self.version, self.options)
        if self.where is None:
            return rows_of_fragments(dataset, fragments, self.schema, self._id_of)
        names = [column.name for column in self.schema.columns]
        return dataset.reader(names, self.where, {self._id_of(one): one for one in fragments})

    def _id_of(self, fragment: DataFragment) -> int:
        if self.numbered:
            return fragment.id
        found = self._ids.get(_first_file(fragment)) if fragment.files else None
        if found is None:
            message = f"version {self.version} doesn't hold a fragment of its own transaction"
            raise DamagedError(message, where=self.uri, hint="open the version and read it whole")
        return found

    @cached_property
    def _ids(self) -> dict[tuple[int, str], int]:
        stored = open_source(self.uri, self.options).storage.get(self.manifest)
        state = LanceFormat().decode(self.manifest, stored, self.uri)
        return {_first_file(one): one.id for one in state.fragments if one.files}


def _first_file(fragment: DataFragment) -> tuple[int, str]:
    """What tells a fragment from every other: its first file. Base -1 is the table itself."""
    file = fragment.files[0]
    return (file.base_id if file.HasField("base_id") else -1), file.path
