"""Whether a proposal's field ids still mean what they meant when it was written.

Lance may give a dropped column's id to a new one. An Append that waited in between would then be read back as
another column, an index answer for another one, and no check of pylance would see it. So each id that a
proposal uses must name the same field (name, type, parents) at its read version and now. Data files may also
hold fields that the table has dropped: no new field gets an id that a file lists, so nobody reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_table.entry import Conflict, Rejected
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.schema import changed_ids, identities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Fetched
    from lakefold_table.lance.schemas.schema import Identity
    from lakefold_table.lance.state import LanceState

MAX_EVIDENCE = 1000
"""How many field ids an outcome lists."""
NONE: frozenset[int] = frozenset()


class Meanings:
    """What field ids mean now and meant before, for the entries of one version: found once a version."""

    def __init__(self, state: LanceState, observed: Fetched) -> None:
        self._state = state
        self._observed = observed
        self._known: dict[int, Mapping[int, Identity] | None] = {}

    def dropped(
        self, transaction: Transaction, read: int, *, packed: bool = False
    ) -> frozenset[int] | Rejected:
        """The ids in the proposal's data files of fields that the table has no more.

        Returns the refusal of a proposal whose field ids may mean other fields now, or all of whose values in
        a fragment are of dropped fields; if its fragments are `packed`, also in a file, since no file can be
        left out of those. `read`: the version whose schema it was built with.
        """
        if read >= self._state.history.schema_since:
            return NONE
        ids = used(transaction, self._state)
        if not ids:
            return NONE
        before, now = self._at(read), self._at(self._state.version)
        if before is None or now is None:
            return self._refusal(f"the schema of version {read} is gone, so its field ids can't be told", ())
        changed = changed_ids(before, now, ids)
        if not changed:
            return NONE
        gone = frozenset(number for number in changed if number not in now)
        new = _NEW_FRAGMENTS.get(transaction.WhichOneof("operation") or "")
        if new is not None and len(gone) == len(changed):
            hollow = any if packed else all
            files = [one.files for one in new(transaction) if one.files]
            if not any(hollow(gone >= {*file.fields} for file in several) for several in files):
                return gone
            reason = f"field ids {some(gone)} were dropped since version {read}, and a fragment has no others"
        else:
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
            message=f"{reason}: build it again with the schema of version {self._state.version}",
            other_version=self._state.history.schema_since,
            field_ids=field_ids,
        )
        return Rejected(conflict)


def used(transaction: Transaction, state: LanceState) -> set[int]:
    """The ids of the fields that a proposal brings values for, or says something of.

    A Delete and a Rewrite name none: what they list was in the table before. Merge, Project and Overwrite
    bring the whole schema, and can follow no other change of it (`conflicts.matrix`).
    """
    find = _USED.get(transaction.WhichOneof("operation") or "")
    return set() if find is None else {number for number in find(transaction, state) if number >= 0}


def _of_files(files: Iterable[DataFile]) -> Iterator[int]:
    return (number for file in files for number in file.fields)


def _of_append(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    return _of_files(file for one in transaction.append.fragments for file in one.files)


def _of_update(transaction: Transaction, state: LanceState) -> Iterator[int]:
    """Those in files that the table doesn't have, and those it says it modified or took keys from."""
    update = transaction.update
    there = state.fragments.get([one.id for one in update.updated_fragments])
    known = {(number, file.path) for number, one in there.items() for file in one.files}
    yield from _of_files(file for one in update.new_fragments for file in one.files)
    yield from _of_files(
        file for one in update.updated_fragments for file in one.files if (one.id, file.path) not in known
    )
    yield from update.fields_modified
    yield from update.fields_for_preserving_frag_bitmap
    yield from update.inserted_rows.field_ids


def _of_data_replacement(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    return _of_files(one.new_file for one in transaction.data_replacement.replacements)


def _of_create_index(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    for index in transaction.create_index.new_indices:
        yield from index.fields
        yield from index.covering_fields


def _of_update_config(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    yield from transaction.update_config.field_metadata_updates
    yield from transaction.update_config.field_metadata


_USED: Mapping[str, Callable[[Transaction, LanceState], Iterator[int]]] = {
    "append": _of_append,
    "update": _of_update,
    "data_replacement": _of_data_replacement,
    "create_index": _of_create_index,
    "update_config": _of_update_config,
}
"""For each operation, by its name in the transaction message, the field ids that it uses."""

_NEW_FRAGMENTS: Mapping[str, Callable[[Transaction], Sequence[DataFragment]]] = {
    "append": lambda transaction: transaction.append.fragments,
    "update": lambda transaction: transaction.update.new_fragments,
}
"""The new fragments of the operations whose files may hold dropped fields (Lance fact 4.8)."""
