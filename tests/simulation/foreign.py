"""What other clients do to a table by commits of their own, each one step; some go by an older version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.manifests.features import Flag, set_flag
from lakefold_table.lance.rows.deletions import ARRAY, deletion_path, encode_deletions
from lakefold_table.lance.state import LanceState
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, versions_at
from tests.foreign import commit, roll_back, wipe
from tests.simulation.rows import deletions_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_protos.lance.table_pb2 import Manifest

FILE_ID: Final = 10**6
"""Of deletion files that other clients write: no proposal's has it."""


def _older(uri: str, version: int) -> LanceState:
    state = StoredTable(FORMAT, versions_at(uri)).read_state(version)
    assert isinstance(state, LanceState)
    return state


def _commit(uri: str, older: int) -> int:
    del older
    return commit(uri)


def _config(uri: str, older: int) -> int:
    return commit(uri, "update_config", lambda head: head.table_metadata.update({"theirs": str(older)}))


def _wipe(uri: str, older: int) -> int:
    del older
    return commit(uri, "update_config", wipe)


def _roll_back(uri: str, older: int) -> int:
    return commit(uri, "update_config", roll_back(dict(_older(uri, older).metadata)))


def _restore(uri: str, older: int) -> int:
    state = _older(uri, older)

    def change(head: Manifest) -> None:
        number, highest = head.version, head.max_fragment_id
        head.CopyFrom(state.head)
        head.version, head.max_fragment_id = number, highest
        del head.fragments[:]
        head.fragments.extend(state.fragments)

    return commit(uri, "restore", change)


def _delete(uri: str, older: int) -> int:
    """Deletes a row as other clients do; an ordinary commit if the table has no rows."""
    versions = versions_at(uri)
    newest = _older(uri, versions.latest())
    rows = [
        (number, live)
        for number, live in rows_of(newest, deletions_of(uri, newest)).items()
        if len(live.rows) > 1
    ]
    if not rows:
        return commit(uri)
    number, live = rows[older % len(rows)]
    fragment = newest.fragments.get([number])[number]
    deleted = Bitmap(range(fragment.physical_rows)) - Bitmap(sorted(live.rows)[1:])
    file = DeletionFile(
        file_type=ARRAY, read_version=newest.version, id=FILE_ID, num_deleted_rows=len(deleted)
    )
    versions.storage.put(deletion_path(number, file), [encode_deletions(deleted, ARRAY)])
    changed = DataFragment()
    changed.CopyFrom(fragment)
    changed.deletion_file.CopyFrom(file)

    def change(head: Manifest) -> None:
        fragments = [changed if fragment.id == number else fragment for fragment in newest.fragments]
        del head.fragments[:]
        head.fragments.extend(fragments)
        set_flag(head, Flag.DELETION_FILES)

    return commit(uri, "delete", change, deletes=[changed])


ACTS: Final[Mapping[str, Callable[[str, int], int]]] = {
    "commit": _commit,
    "config": _config,
    "wipe": _wipe,
    "roll back": _roll_back,
    "restore": _restore,
    "delete": _delete,
}
