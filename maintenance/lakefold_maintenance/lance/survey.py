"""Reads what a plan is made of: the figures of a version's fragments, what indices cover them, the policy.

Fragments are kept in encoded chunks that versions share (`lakefold_table.lance.manifests.fragments`). So the
figures of a chunk are kept too, and of the next version only the chunks that changed are decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from lakefold_maintenance.format import MaintenanceFormat, TableSurvey
from lakefold_maintenance.planning.fragments import FragmentFigures, coverages_of
from lakefold_maintenance.planning.policy import policy_of
from lakefold_reader.lance.scan.sound_indices import sound_indices
from lakefold_reader.lance.versions import read_state
from lakefold_reader.versions.branches import main_and_branch
from lakefold_reader.versions.listing import newest_of
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, coverage, is_address_based
from lakefold_table.lance.manifests.features import check_writable, has_stable_row_ids
from lakefold_table.marks.marks import decode_marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_protos.lance.table_pb2 import DataFragment, IndexMetadata
    from lakefold_reader.format.source import Source
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.manifests.chunks import Chunk
    from lakefold_table.lance.state import LanceState

ROWS, DELETED, BYTES = range(3)


@dataclass
class LanceSurveyor:
    """See `FormatSurveyor`. `settings`: the policy's, as `policy_of` takes them."""

    format: MaintenanceFormat
    source: Source
    settings: Mapping[str, str] = field(default_factory=dict)
    _columns: dict[bytes, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    def survey(self) -> TableSurvey:
        """See `FormatSurveyor.survey`."""
        main, branch = main_and_branch(self.source)
        state = read_state(self.source, newest_of(self.source))
        check_writable(state.head, self.source.uri)
        known = self._coverage_of_indices(state)
        stable = has_stable_row_ids(state.head)
        following = [covered for index, covered in known if stable and not is_address_based(index)]
        ids = np.fromiter(state.fragments.ids(), np.int64, state.fragments.count)
        columns = self._figures(state.fragments.chunks)
        figures = FragmentFigures(
            ids, columns[ROWS], columns[DELETED], columns[BYTES], coverages_of(ids, following)
        )
        marks = decode_marks(state.metadata, self.source.uri)
        return TableSurvey(
            self.source,
            main.uri,
            branch,
            self.format,
            state,
            figures,
            policy_of(state.head.config, self.settings),
            None if marks is None else marks.position,
            _unindexed(figures, known),
            has_reuse_index=FRAGMENT_REUSE.encode() in state.index_section,
            dropped=marks is not None and marks.dropped and not state.is_clone,
            table_id="" if marks is None else marks.full_id,
        )

    def _figures(self, chunks: Sequence[Chunk]) -> NDArray[np.int64]:
        self._columns = {
            chunk.encoded: self._columns[chunk.encoded]
            if chunk.encoded in self._columns
            else _figures_of(chunk)
            for chunk in chunks
        }
        if not chunks:
            return np.zeros((3, 0), np.int64)
        return np.concatenate([self._columns[chunk.encoded] for chunk in chunks], axis=1)

    def _coverage_of_indices(self, state: LanceState) -> list[tuple[IndexMetadata, Bitmap]]:
        """Returns each part of an index, and the fragments that it covers, as far as known.

        The fragments are those after all compactions since it was built.
        """
        indices = sound_indices(state, self.source.content)
        known = ((index, coverage(index)) for index in indices if index.name != FRAGMENT_REUSE)
        return [(index, bitmap) for index, bitmap in known if bitmap is not None]


def _unindexed(figures: FragmentFigures, indices: Sequence[tuple[IndexMetadata, Bitmap]]) -> dict[str, int]:
    """Returns how many live rows each index doesn't cover. An index may have several parts of one name."""
    covered: dict[str, set[int]] = {}
    for index, bitmap in indices:
        covered.setdefault(index.name, set()).update(bitmap)
    live = int(figures.live.sum())
    return {
        name: live - int(figures.live[np.isin(figures.ids, np.fromiter(ids, np.int64))].sum())
        for name, ids in covered.items()
    }


def _figures_of(chunk: Chunk) -> NDArray[np.int64]:
    """Returns three rows: of each fragment its rows, the deleted rows among them, the bytes of its files."""
    figures = [
        (
            fragment.physical_rows,
            fragment.deletion_file.num_deleted_rows,
            sum(file.file_size_bytes for file in fragment.files),
        )
        for fragment in chunk.decode()
    ]
    return np.array(figures, np.int64).T


def lance_state(survey: TableSurvey) -> LanceState:
    """Returns the version that was surveyed."""
    return cast("LanceState", survey.state)


def fragments_of(survey: TableSurvey, task: RewriteTask) -> list[DataFragment]:
    """Returns the fragments of a task as the version of the survey has them, in their order."""
    fragments = lance_state(survey).fragments.get(task.fragment_ids)
    return [fragments[number] for number in task.fragment_ids]
