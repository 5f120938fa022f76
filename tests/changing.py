"""A table in memory whose rows are deleted and updated; its deletion files lie in its store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.lance.rows.deletions import BITMAP, deletion_path, encode_deletions
from lakefold_table.lance.state import LanceState
from tests.folding import add_fragment, append, creation, fold_at, opened
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.entry import Outcome, Result

ROWS = 10


class MemoryRows:
    """A table with fragments of 10 rows each, at version 2."""

    def __init__(self, *, stable: bool = False, fragments: int = 3) -> None:
        self.uri = f"memory://tests/{uuid4()}"
        self.owned = opened(self.uri)
        self.storage = MemoryStorage(self.uri)
        self.offset = 0
        self._files = 0
        first = append("first")
        first.lance.append.ClearField("fragments")
        for number in range(fragments):
            add_fragment(first.lance.append.fragments.add(), f"first-{number}", ROWS)
        self.fold(creation(stable_row_ids=stable))
        self.fold(first)

    @property
    def state(self) -> LanceState:
        """The newest version."""
        state = self.owned.table.state
        assert isinstance(state, LanceState)
        return state

    @property
    def version(self) -> int:
        """The newest version's number."""
        return self.state.version

    def fold(self, *envelopes: Envelope) -> list[Result]:
        """Folds these as a group."""
        return [outcome.result for outcome in self.outcomes(*envelopes)]

    def outcomes(self, *envelopes: Envelope) -> list[Outcome]:
        """Folds these as a group."""
        for envelope in envelopes:
            envelope.table = self.uri
        self.offset += len(envelopes)
        return fold_at(self.owned, envelopes, self.offset - len(envelopes))

    def fragment(self, number: int) -> DataFragment:
        """A fragment as it is now."""
        return self.state.fragments.get([number])[number]

    def deleted(self, number: int) -> Bitmap:
        """The rows deleted from a fragment."""
        file = self.fragment(number).deletion_file
        if not file.ByteSize():
            return Bitmap()
        data = self.storage.get(deletion_path(number, file))
        return Bitmap.deserialize(data)

    def without(self, number: int, rows: Iterable[int], *, also: Iterable[int] | None = None) -> DataFragment:
        """A fragment with a new deletion file of these rows; `also`: those deleted before, if not as now."""
        before = self.deleted(number) if also is None else Bitmap(also)
        all_rows = before | Bitmap(rows)
        self._files += 1
        file = DeletionFile(
            file_type=BITMAP, read_version=self.version, id=self._files, num_deleted_rows=len(all_rows)
        )
        self.storage.put_if_absent(deletion_path(number, file), [encode_deletions(all_rows, BITMAP)])
        fragment = DataFragment()
        fragment.CopyFrom(self.fragment(number))
        fragment.deletion_file.CopyFrom(file)
        return fragment

    def delete(
        self, rows: dict[int, Iterable[int]], removed: Iterable[int] = (), *, names_rows: bool = True
    ) -> Envelope:
        """A Delete of rows, by fragment, of the newest version. `names_rows`: the envelope contains which."""
        envelope = self._envelope()
        envelope.lance.delete.deleted_fragment_ids.extend(removed)
        envelope.lance.delete.predicate = "some"
        for number, few in rows.items():
            envelope.lance.delete.updated_fragments.append(self.without(number, few))
        if names_rows:
            self._state_rows(envelope, rows, removed)
        return envelope

    def update(
        self,
        rows: dict[int, Iterable[int]],
        removed: Iterable[int] = (),
        *,
        names_rows: bool = True,
        new: int = 1,
    ) -> Envelope:
        """An Update of rows, by fragment, that adds as many fragments as `new` of 3 rows each."""
        envelope = self._envelope()
        envelope.lance.update.removed_fragment_ids.extend(removed)
        for number, few in rows.items():
            envelope.lance.update.updated_fragments.append(self.without(number, few))
        for number in range(new):
            add_fragment(envelope.lance.update.new_fragments.add(), f"{envelope.lance.uuid}-{number}")
        if names_rows:
            self._state_rows(envelope, rows, removed)
        return envelope

    def append(self) -> Envelope:
        """An Append of a single fragment of 3 rows."""
        return append(f"a{uuid4()}", read=self.version)

    def _envelope(self) -> Envelope:
        envelope = Envelope(table=self.uri)
        envelope.lance.uuid, envelope.lance.read_version = str(uuid4()), self.version
        return envelope

    def _state_rows(self, envelope: Envelope, rows: dict[int, Iterable[int]], removed: Iterable[int]) -> None:
        for number, few in rows.items():
            envelope.affected_rows[number] = encode_bitmap(Bitmap(few))
        for number in removed:
            envelope.affected_rows[number] = encode_bitmap(Bitmap(range(ROWS)) - self.deleted(number))
