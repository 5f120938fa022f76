"""Lance tables behind the seam of `lakefold_reader.format`."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, cast

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.lance.changed_rows import ChangedRows
from lakefold_reader.lance.feed.feed import LanceFeed
from lakefold_reader.lance.read_errors import explained
from lakefold_reader.lance.scan.columns import TableSchema, schema_in
from lakefold_reader.lance.scan.sound_indices import may_hide_rows
from lakefold_reader.lance.snapshot.counts import counts_of
from lakefold_reader.lance.snapshot.snapshot import LanceSnapshot
from lakefold_reader.lance.units import FragmentUnit
from lakefold_reader.lance.versions import head_of, read_state, read_summary
from lakefold_table.branch_names import branch_root, check_branch_name
from lakefold_table.lance.manifests.naming import VERSIONS, detect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakefold_reader.format.snapshots import Cleaned
    from lakefold_reader.format.source import ScanUnit, Schema, Source
    from lakefold_table.format import VersionSummary

LEGACY = "0.1"
"""The version of Lance's first format of data files."""


class LanceReader:
    """See `ReaderFormat`."""

    name = "lance"
    folder = VERSIONS
    first_version = 1
    has_refs = True
    feed = LanceFeed()
    detect = staticmethod(detect)
    summary = staticmethod(read_summary)
    schema = staticmethod(schema_in)
    counts = staticmethod(counts_of)
    check_branch_name = staticmethod(check_branch_name)

    def change(self, source: Source, summary: VersionSummary, schema: Schema, *, whole: bool) -> ChangedRows:
        """See `ReaderFormat.change`."""
        return ChangedRows(source, summary, cast("TableSchema", schema), whole=whole)

    def open(self, source: Source, version: int) -> LanceSnapshot:
        """See `ReaderFormat.open`."""
        return LanceSnapshot(source, read_state(source, version))

    def scan_units(self, source: Source, version: int) -> list[FragmentUnit]:
        """Returns the fragments of a version. The driver has it, and says whether indices find all rows."""
        state = read_state(source, version)
        by_index = not may_hide_rows(state, source.content)
        return [FragmentUnit.of(fragment, by_index=by_index) for fragment in state.fragments]

    def scan(
        self, source: Source, version: int, units: Sequence[ScanUnit], schema: Schema, where: str | None
    ) -> Iterator[pa.RecordBatch]:
        """See `ReaderFormat.scan`. Opens the manifest only if a filter or deleted rows need it."""
        from lakefold_reader.lance.scan.scan import Dataset, rows_of_fragments

        chosen = cast("TableSchema", schema)
        parts = cast("Sequence[FragmentUnit]", units)
        fragments = [DataFragment.FromString(unit.fragment) for unit in parts]
        with explained(source, version):
            dataset = Dataset(source, version, by_index=all(unit.by_index for unit in parts))
            if where is None:
                yield from rows_of_fragments(dataset, fragments, chosen, attrgetter("id"))
            else:
                yield from dataset.reader(
                    chosen.names, where, {fragment.id: fragment for fragment in fragments}
                )

    def answers_filters(self, summary: VersionSummary) -> bool:
        """Returns whether a scan may filter rows: not if the data files have Lance's first format.

        In that format a null of a number is read as 0, but a scan that skips pages takes some nulls for null
        (Lance fact 13.4). A manifest may leave out the name of that format.
        """
        head = head_of(summary)
        return head is not None and head.data_format.version not in {"", LEGACY}

    def clean_up(
        self,
        source: Source,
        newest: int,
        versions: Sequence[int],
        *,
        begin: Callable[[Sequence[int]], None] | None,
    ) -> Cleaned:
        """See `ReaderFormat.clean_up`."""
        from lakefold_reader.lance.scan.scan import Dataset

        return Dataset(source, newest).clean_up(versions, begin)

    def branch_root(self, branch: str) -> str:
        """See `ReaderFormat.branch_root`."""
        return branch_root(branch)
