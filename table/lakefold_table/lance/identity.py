"""Whether a proposal's field ids still mean what they meant when it was written.

Lance may give a dropped column's id to a new one. An Append that waited in between would then be read back as
another column, and no check of pylance would see it. So an id must name the same field at both versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_table.entry import Conflict, Rejected
from lakefold_table.lance.columns import some
from lakefold_table.lance.schema import changed_ids, identities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Observed
    from lakefold_table.lance.schema import Identity
    from lakefold_table.lance.state import LanceState

MAX_EVIDENCE = 1000
"""How many field ids an outcome lists."""


class Meanings:
    """What field ids mean now and meant before, for the entries of one version: found once a version."""

    def __init__(self, state: LanceState, observed: Observed) -> None:
        self._state = state
        self._observed = observed
        self._known: dict[int, Mapping[int, Identity] | None] = {}

    def fault(self, transaction: Transaction) -> Rejected | None:
        """The refusal of a proposal whose field ids may mean other fields now; None where they don't."""
        read = transaction.read_version
        if read >= self._state.history.schema_since:
            return None
        used = _used(transaction)
        if not used:
            return None
        before, now = self._at(read), self._at(self._state.version)
        if before is None or now is None:
            return self._refusal(f"the schema of version {read} is gone, so its field ids can't be told", ())
        changed = changed_ids(before, now, used)
        if not changed:
            return None
        reason = f"field ids {some(changed)} mean other columns than at version {read}"
        return self._refusal(reason, tuple(changed[:MAX_EVIDENCE]))

    def _at(self, version: int) -> Mapping[int, Identity] | None:
        if version not in self._known:
            newest = version == self._state.version
            fields = self._state.schema if newest else self._observed.schemas.get(version)
            self._known[version] = None if fields is None else identities(cast("Sequence[Field]", fields))
        return self._known[version]

    def _refusal(self, reason: str, field_ids: tuple[int, ...]) -> Rejected:
        conflict = Conflict(
            retryable=True,
            message=f"{reason}: write the batch again with the schema of version {self._state.version}",
            other_version=self._state.history.schema_since,
            field_ids=field_ids,
        )
        return Rejected(conflict)


def _used(transaction: Transaction) -> set[int]:
    """The field ids that a proposal names: those whose values it brings."""
    fragments = (*transaction.append.fragments, *transaction.update.new_fragments)
    named = {number for fragment in fragments for file in fragment.files for number in file.fields}
    return named.union(transaction.update.fields_modified)
