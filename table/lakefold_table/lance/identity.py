"""Whether a proposal's field ids still mean what they meant when it was written.

Lance may give a dropped column's id to a new one. An Append that waited in between would then be read back as
another column, and no check of pylance would see it. So an id must name the same field at both versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_table.entry import Conflict, Rejected
from lakefold_table.lance.schema import identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Observed
    from lakefold_table.lance.state import LanceState


def identity_fault(transaction: Transaction, state: LanceState, observed: Observed) -> Rejected | None:
    """The refusal of a proposal whose field ids may mean other fields now; None where they mean the same."""
    read = transaction.read_version
    if read >= state.history.schema_since:
        return None
    fields = cast("Sequence[Field] | None", observed.schemas.get(read))
    if fields is None:
        return _refusal(state, f"the schema of version {read} is gone, so its field ids can't be told", ())
    before, now = identities(fields), identities(state.head.fields)
    used = {
        number
        for fragment in transaction.append.fragments
        for file in fragment.files
        for number in file.fields
    }
    changed = tuple(sorted(number for number in used if before.get(number) != now.get(number)))
    if not changed:
        return None
    return _refusal(state, f"field ids {list(changed)} mean other columns than at version {read}", changed)


def _refusal(state: LanceState, reason: str, field_ids: tuple[int, ...]) -> Rejected:
    conflict = Conflict(
        retryable=True,
        message=f"{reason}: write the batch again with the schema of version {state.version}",
        other_version=state.history.schema_since,
        field_ids=field_ids,
    )
    return Rejected(conflict)
