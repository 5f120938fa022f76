"""One step along the versions of a table: what the invariants look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, IndexSection
from lakefold_table.lance.manifests.fragments import Fragments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFile, IndexMetadata
    from lakefold_table.lance.rows.bitmaps import Bitmap
    from lakefold_table.lance.state import LanceState

AT_ONCE = 4096
"""How many changed fragments are looked at together."""


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
    def changed(cls, before: LanceState | None, after: LanceState) -> Iterator[Step]:
        """Looks only at the fragments that are not the same in both; chunks that both share cost nothing.

        At some thousands at a time, each with the last one before, so that a change of any size takes no more
        memory than they do; at least once.
        """
        known = Fragments() if before is None else before.fragments
        fragments = map(DataFragment.FromString, after.fragments.unlike(known))
        looked_at = list(islice(fragments, AT_ONCE))
        yield cls(before, after, looked_at)
        while more := list(islice(fragments, AT_ONCE)):
            looked_at = [looked_at[-1], *more]
            yield cls(before, after, looked_at)

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
    def files(self) -> Sequence[Sequence[DataFile]]:
        """The data files of each of the fragments."""
        return [list(one.files) for one in self.fragments]

    @cached_property
    def earlier(self) -> Mapping[int, DataFragment]:
        """The fragments looked at as they were before, by id, where they were there."""
        if self.before is None:
            return {}
        last = self.before.fragments.last_id
        return self.before.fragments.get([number for one in self.fragments if (number := one.id) <= last])

    @cached_property
    def indices(self) -> Sequence[IndexMetadata]:
        """The entries of the index section; none where it is the one from before."""
        if self.before is not None and self.before.index_section == self.after.index_section:
            return ()
        return IndexSection.FromString(self.after.index_section).indices
