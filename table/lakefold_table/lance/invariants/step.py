"""A version with its predecessor, as the invariants check them."""

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
    from lakefold_table.lance.state import LanceState

AT_ONCE = 4096
"""How many changed fragments are checked together."""


@dataclass(frozen=True)
class Step:
    """A version `after`, and its predecessor `before` (None if it has none or isn't compared).

    `fragments`: those of `after` that are checked.
    """

    before: LanceState | None
    after: LanceState
    fragments: Sequence[DataFragment]

    @classmethod
    def changed(cls, before: LanceState | None, after: LanceState) -> Iterator[Step]:
        """Yields steps with only the fragments that differ between the versions.

        Chunks that both versions share cost nothing. Each step has some thousands of fragments, beginning
        with the last of the step before, so that the memory used doesn't depend on the size of the
        change. Yields at least one step.
        """
        previous = Fragments() if before is None else before.fragments
        fragments = map(DataFragment.FromString, after.fragments.unlike(previous))
        checked = list(islice(fragments, AT_ONCE))
        yield cls(before, after, checked)
        while more := list(islice(fragments, AT_ONCE)):
            checked = [checked[-1], *more]
            yield cls(before, after, checked)

    @classmethod
    def whole(cls, before: LanceState | None, after: LanceState) -> Step:
        """Returns a step with every fragment of `after`."""
        return cls(before, after, list(after.fragments))

    @cached_property
    def files(self) -> Sequence[Sequence[DataFile]]:
        """The data files of each of the fragments."""
        return [list(fragment.files) for fragment in self.fragments]

    @cached_property
    def earlier(self) -> Mapping[int, DataFragment]:
        """The previous form of the fragments, by id; fragments that didn't exist are left out."""
        if self.before is None:
            return {}
        last = self.before.fragments.last_id
        return self.before.fragments.get(
            [number for fragment in self.fragments if (number := fragment.id) <= last]
        )

    @cached_property
    def indices(self) -> Sequence[IndexMetadata]:
        """The entries of the index section; none if the section is the same as before."""
        if self.before is not None and self.before.index_section == self.after.index_section:
            return ()
        return IndexSection.FromString(self.after.index_section).indices
