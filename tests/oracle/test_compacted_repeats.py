"""A proposal without app id that is sent again after pylance compacted the table: its rows come once.

Promise: keyless-repeats (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_table.entry import Duplicate, Invalid
from lakefold_table.formats import BUILT_IN
from lakefold_table.storage import open_storage
from lakefold_table.uri import local_path
from lakefold_table.versions.stored_table import StoredTable
from tests.proposals import append, ids_in, rows
from tests.replaying import Listed
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry, Result


class Compacted(Folded):
    """A table whose log is kept, so that it can be folded again, and that pylance compacts."""

    def __init__(self, path: Path) -> None:
        self.log: list[Entry] = []
        super().__init__(open_storage(path))

    def entry(self, envelope: Envelope) -> Entry:
        self.log.append(super().entry(envelope))
        return self.log[-1]

    def result(self, envelope: Envelope) -> Result:
        """What becomes of a proposal."""
        return self.owned.fold([self.entry(envelope)]).outcomes[0].result

    def compact(self) -> int:
        """Compact it as another client; returns the new version."""
        dataset = lance.dataset(local_path(self.uri))
        dataset.optimize.compact_files(target_rows_per_fragment=1000)
        return int(dataset.version)


@pytest.mark.parametrize("takes_over", [False, True], ids=["running", "started again"])
def test_rows_come_once_though_pylance_compacted_their_files_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, takes_over: bool
) -> None:
    monkeypatch.setattr("lakefold_committer.fold.keys.MAX_UUIDS", 4)
    table = Compacted(tmp_path / "t")
    first = append(table.uri, rows(range(10)), 1)
    table.result(first)
    table.result(append(table.uri, rows(range(10, 20)), 2))
    compacted = table.compact()
    assert isinstance(table.result(first), Duplicate)
    for number in range(4):
        table.result(append(table.uri, rows([20 + number]), compacted))
    if takes_over:
        table.take_over()
    again = table.result(first)
    assert isinstance(again, Invalid)
    assert f"the Rewrite of version {compacted}" in again.message
    assert ids_in(table.uri) == list(range(24))
    table.result(append(table.uri, rows([24]), 1))
    assert ids_in(table.uri) == list(range(25))
    verdicts = [
        each.verdict for each in replay(StoredTable(BUILT_IN.first, table.versions), Listed(table.log))
    ]
    assert Verdict.DIFFERENT not in verdicts
