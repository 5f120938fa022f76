"""One step along the versions of a table: what the invariants look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_table.lance.manifests.fragments import Fragments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, IndexMetadata
    from lakefold_table.lance.rows.bitmaps import Bitmap
    from lakefold_table.lance.state import LanceState


@dataclass(frozen=True)
class Step:
    """From the version `before` (None: there is none, or it isn't looked at) to the version `after`.

    `fragments`: those of `after` that are looked at. `deletions`: the deleted row offsets of the fragments
    that have a deletion file, read from those files; None where nobody read them.
    """

    before: LanceState | None
    after: LanceState
    fragments: Sequence[DataFragment]
    deletions: Mapping[int, Bitmap] | None = None

    @classmethod
    def changed(cls, before: LanceState | None, after: LanceState) -> Step:
        """Looks only at the fragments that are not the same in both; chunks that both share cost nothing."""
        known = Fragments() if before is None else before.fragments
        return cls(before, after, after.fragments.unlike(known))

    @classmethod
    def whole(
        cls,
        before: LanceState | None,
        after: LanceState,
        deletions: Mapping[int, Bitmap] | None = None,
    ) -> Step:
        """Looks at every fragment."""
        return cls(before, after, list(after.fragments), deletions)

    @cached_property
    def earlier(self) -> Mapping[int, DataFragment]:
        """The fragments looked at as they were before, by id, where they were there."""
        if self.before is None:
            return {}
        return self.before.fragments.get([one.id for one in self.fragments])

    @cached_property
    def indices(self) -> Sequence[IndexMetadata]:
        """The entries of the index section; none where it is the one from before."""
        if self.before is not None and self.before.index_section == self.after.index_section:
            return ()
        return IndexSection.FromString(self.after.index_section).indices
