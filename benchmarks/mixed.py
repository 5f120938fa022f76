"""Appends, Deletes and Updates of a table, as eight writers send them at the same time.

The Deletes and Updates list the rows that they change. Each writer takes rows of its own from fragments at
random, so that many change the same fragment, and no proposal has to be refused.
"""

from __future__ import annotations

import random
import uuid
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.commits import PRODUCERS, fold_live
from benchmarks.files import Mould, append_of
from benchmarks.ground import mould_of, prove, small_append
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.rows.deletions import ARRAY, deletion_path, encode_deletions
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.ground import Ground

ROWS = 100
READ_VERSION = 2
APPENDS, DELETES, UPDATES = 80, 15, 5
"""Of a hundred proposals."""


def measure(ground: Ground, transactions: int, fragments: int) -> dict[str, float]:
    """Folds `transactions` of all three kinds as they come, into a table of `fragments` of 100 rows each."""
    mould = mould_of(ground, "mixed", fragments, ROWS)
    path = ground.root / "mixed"
    one_row = Mould.of(small_append(mould.uri, READ_VERSION, 0, rows=1))
    each = transactions // PRODUCERS
    makers = [partial(proposals, path, mould, one_row, number, each) for number in range(PRODUCERS)]
    figures = fold_live(ground, path, makers)
    kinds = [kind for number in range(PRODUCERS) for kind in kinds_of(number, each)]
    prove(path, (fragments + kinds.count("append")) * ROWS - kinds.count("delete"))
    return {"fragments": fragments, **figures} | {
        f"{kind}s": float(kinds.count(kind)) for kind in ("append", "delete", "update")
    }


def kinds_of(number: int, count: int) -> list[str]:
    """What producer `number` sends, in its order: in every hundred the same of each kind, shuffled."""
    hundred = ["append"] * APPENDS + ["delete"] * DELETES + ["update"] * UPDATES
    kinds = (hundred * (count // len(hundred) + 1))[:count]
    random.Random(number).shuffle(kinds)
    return kinds


def proposals(path: Path, mould: Mould, one_row: Mould, number: int, count: int) -> list[Envelope]:
    """What producer `number` sends, its files written: Updates move one row into a fragment of its own."""
    changes = _Changes(path, number)
    made = []
    for batch, kind in enumerate(kinds_of(number, count)):
        if kind == "append":
            envelope = append_of(mould.uri, mould.cast(1), READ_VERSION)
        elif kind == "delete":
            envelope = changes.delete(mould.uri)
        else:
            envelope = changes.update(mould.uri, one_row.cast(1)[0])
        envelope.app_id, envelope.batch_id = f"producer-{number}", batch
        made.append(envelope)
    return made


class _Changes:
    """A writer's changes to rows of version 2."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        storage = LocalStorage(path)
        table_format = LanceFormat()
        versions = Versions(storage, table_format.folder, table_format.detect)
        file = versions.path(READ_VERSION)
        state = table_format.decode(file, versions.read(READ_VERSION), storage.uri)
        self._fragments = list(state.fragments)
        self._random = random.Random(number)
        first = number * ROWS // PRODUCERS
        self._rows = {
            fragment.id: list(range(first, first + ROWS // PRODUCERS)) for fragment in self._fragments
        }

    def delete(self, uri: str) -> Envelope:
        """Deletes a row."""
        envelope = self._envelope(uri)
        envelope.lance.delete.predicate = "a row of its own"
        envelope.lance.delete.updated_fragments.append(self._without_a_row(envelope))
        return envelope

    def update(self, uri: str, moved: DataFragment) -> Envelope:
        """Deletes a row and adds it again, changed, in a new fragment."""
        envelope = self._envelope(uri)
        envelope.lance.update.updated_fragments.append(self._without_a_row(envelope))
        envelope.lance.update.new_fragments.append(moved)
        return envelope

    def _envelope(self, uri: str) -> Envelope:
        envelope = Envelope(table=uri)
        envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), READ_VERSION
        return envelope

    def _without_a_row(self, envelope: Envelope) -> DataFragment:
        """Returns a random fragment without a row that no other writer changes. Writes its deletion file."""
        fragment = self._random.choice(self._fragments)
        while not self._rows[fragment.id]:
            fragment = self._random.choice(self._fragments)
        row = self._rows[fragment.id].pop()
        changed = DataFragment()
        changed.CopyFrom(fragment)
        file = changed.deletion_file
        file.CopyFrom(
            DeletionFile(read_version=READ_VERSION, id=self._random.getrandbits(63), num_deleted_rows=1)
        )
        rows = Bitmap([row])
        path = self._path / deletion_path(fragment.id, file)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode_deletions(rows, ARRAY))
        envelope.affected_rows[fragment.id] = encode_bitmap(rows)
        return changed
