"""Checks whether a proposal's field ids still have the meaning that they had when it was written.

Lance may reuse a dropped column's id. An Append that was written before would then be read as another column,
and an index would answer for another column, and pylance would not notice. So each id that a proposal uses
must refer to the same field (name, type, parents) in its read version and now. Data files may also have
fields that the table has dropped: no new field gets an id that a file lists, so these are never read. But if
a new field has the name of a dropped one, as after a cast by pylance, new rows would be null in it: their
values would be lost (Lance fact 4.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_table.entry import Conflict, Rejected
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.schema import Identity, changed_ids, identities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Fetched
    from lakefold_table.lance.state import LanceState

MAX_EVIDENCE = 1000
"""How many field ids an outcome lists at most."""
MAX_NAME = 256
"""How many characters of a column's name a refusal contains at most."""
NONE: frozenset[int] = frozenset()


class Meanings:
    """What field ids mean in each version, computed once for all entries of a version in the making."""

    def __init__(self, state: LanceState, fetched: Fetched) -> None:
        self._state = state
        self._fetched = fetched
        self._known: dict[int, Mapping[int, Identity] | None] = {}

    def dropped(
        self, transaction: Transaction, read: int, *, packed: bool = False
    ) -> frozenset[int] | Rejected:
        """Returns the ids in the proposal's data files of fields that the table no longer has.

        Returns a refusal if field ids of the proposal may refer to other fields now, if its rows have values
        of fields that were replaced, or if all values in a fragment are of dropped fields. For `packed`
        fragments the latter holds for each file, since no file can be removed from them. `read`: the version
        with whose schema the proposal was built.
        """
        if read >= self._state.history.schema_since:
            return NONE
        ids = used(transaction, self._state)
        if not ids:
            return NONE
        before, current = self._at(read), self._at(self._state.version)
        if before is None or current is None:
            return self._refusal(
                f"the schema of version {read} was removed, so the meaning of its field ids is unknown", ()
            )
        changed = changed_ids(before, current, ids)
        if not changed:
            return NONE
        dropped_ids = frozenset(number for number in changed if number not in current)
        new = _NEW_FRAGMENTS.get(transaction.WhichOneof("operation") or "")
        if new is not None and len(dropped_ids) == len(changed):
            if replaced := self._replaced(dropped_ids, before, current):
                name = min(replaced)[:MAX_NAME]
                reason = f"another column got the name {name!r} since version {read}, so values would be lost"
                return self._refusal(reason, tuple(changed[:MAX_EVIDENCE]))
            all_or_any = any if packed else all
            files = [fragment.files for fragment in new(transaction) if fragment.files]
            if not any(
                all_or_any(dropped_ids >= {*file.fields} for file in fragment_files)
                for fragment_files in files
            ):
                return dropped_ids
            reason = (
                f"field ids {some(dropped_ids)} were dropped since version {read}, "
                "and a fragment has no other fields"
            )
        else:
            reason = f"field ids {some(changed)} refer to other columns than in version {read}"
        return self._refusal(reason, tuple(changed[:MAX_EVIDENCE]))

    def changed(self, read: int) -> Rejected | None:
        """Returns a refusal if the table has other columns than at version `read`, else None."""
        if read >= self._state.history.schema_since:
            return None
        before = cast("Sequence[Field] | None", self._fetched.schemas.get(read))
        if before is not None and list(before) == list(self._state.schema):
            return None
        return self._refusal(f"the columns were changed since version {read}, and this would undo that", ())

    def _replaced(
        self, dropped: frozenset[int], before: Mapping[int, Identity], current: Mapping[int, Identity]
    ) -> set[str]:
        """Returns the names of those dropped fields, or of columns that contained them, that others have."""
        names = {field.path for field in current.values()}
        numbers = {field.path: number for number, field in before.items()}
        paths = (
            before[number].path[:depth]
            for number in dropped
            if number in before
            for depth in range(1, len(before[number].path) + 1)
        )
        return {".".join(path) for path in paths if path in names and numbers[path] not in current}

    def _at(self, version: int) -> Mapping[int, Identity] | None:
        if version not in self._known:
            newest = version == self._state.version
            fields = self._state.schema if newest else self._fetched.schemas.get(version)
            self._known[version] = None if fields is None else identities(cast("Sequence[Field]", fields))
        return self._known[version]

    def _refusal(self, reason: str, field_ids: tuple[int, ...]) -> Rejected:
        conflict = Conflict(
            retryable=True,
            message=f"{reason}; build it again with the schema of version {self._state.version}",
            other_version=self._state.history.schema_since,
            field_ids=field_ids,
        )
        return Rejected(conflict)


def used(transaction: Transaction, state: LanceState) -> set[int]:
    """Returns the ids of the fields for which a proposal has values or which it names.

    A Delete names none: what it lists is in the table already. Of a Rewrite only the columns count that are
    in no file of the old fragments, since all their values were null. Merge, Project and Overwrite contain
    the whole schema, and can't be rebased over another change of it (`conflicts.rules`).
    """
    find = _USED.get(transaction.WhichOneof("operation") or "")
    return set() if find is None else {number for number in find(transaction, state) if number >= 0}


def _of_files(files: Iterable[DataFile]) -> Iterator[int]:
    return (number for file in files for number in file.fields)


def _of_append(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    return _of_files(file for fragment in transaction.append.fragments for file in fragment.files)


def _of_update(transaction: Transaction, state: LanceState) -> Iterator[int]:
    """Yields the field ids in new files, and those that the update names as modified or uses as keys."""
    update = transaction.update
    current = state.fragments.get([fragment.id for fragment in update.updated_fragments])
    existing = {(number, file.path) for number, fragment in current.items() for file in fragment.files}
    yield from _of_files(file for fragment in update.new_fragments for file in fragment.files)
    yield from _of_files(
        file
        for fragment in update.updated_fragments
        for file in fragment.files
        if (fragment.id, file.path) not in existing
    )
    yield from update.fields_modified
    yield from update.fields_for_preserving_frag_bitmap
    yield from update.inserted_rows.field_ids


def _of_rewrite(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    """Yields the field ids in new files that are in no file of the old fragments of their group."""
    for group in transaction.rewrite.groups:
        existing = set(_of_files(file for fragment in group.old_fragments for file in fragment.files))
        new = _of_files(file for fragment in group.new_fragments for file in fragment.files)
        yield from (number for number in new if number not in existing)


def _of_data_replacement(transaction: Transaction, _state: LanceState) -> Iterator[int]:
    return _of_files(group.new_file for group in transaction.data_replacement.replacements)


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
    "rewrite": _of_rewrite,
    "data_replacement": _of_data_replacement,
    "create_index": _of_create_index,
    "update_config": _of_update_config,
}
"""The functions that return the field ids of each operation, by its name in the transaction message."""

_NEW_FRAGMENTS: Mapping[str, Callable[[Transaction], Sequence[DataFragment]]] = {
    "append": lambda transaction: transaction.append.fragments,
    "update": lambda transaction: transaction.update.new_fragments,
    "rewrite": lambda transaction: [
        fragment for group in transaction.rewrite.groups for fragment in group.new_fragments
    ],
}
"""The new fragments of the operations whose files may have dropped fields (Lance fact 4.8)."""
