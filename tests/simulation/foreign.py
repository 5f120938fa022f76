"""What other clients do to a table by commits of their own, each one step; some go by an older version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_committer.stored import read_state
from lakefold_table.lance.state import LanceState
from tests.folding import FORMAT, versions_at
from tests.foreign import commit, roll_back, wipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_protos.lance.table_pb2 import Manifest


def _older(uri: str, version: int) -> LanceState:
    state = read_state(FORMAT, versions_at(uri), version)
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


ACTS: Final[Mapping[str, Callable[[str, int], int]]] = {
    "commit": _commit,
    "config": _config,
    "wipe": _wipe,
    "roll back": _roll_back,
    "restore": _restore,
}
