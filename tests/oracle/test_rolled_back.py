"""A batch whose rows pylance's `restore` left out: its repetition and `explain` say so.

Promise: rolled-back-batches (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold import cli
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_table.entry import Duplicate
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.batches import MAX_RECENT_BATCHES
from lakefold_table.storage import open_storage
from lakefold_table.uri import local_path
from lakefold_table.versions.stored_table import StoredTable
from tests.oracle.committing import fold, owned
from tests.proposals import append, rows
from tests.replaying import Listed
from tests.tables import Folded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry


class Logged(Folded):
    """A folded table whose log is kept, so that it can be folded again."""

    def __init__(self, path: Path) -> None:
        self.log: list[Entry] = []
        super().__init__(open_storage(path))

    def entry(self, envelope: Envelope) -> Entry:
        self.log.append(super().entry(envelope))
        return self.log[-1]

    def batch(self, number: int, fetched: pa.Table) -> object:
        """What becomes of a batch with these rows."""
        proposal = append(self.uri, fetched, self.versions.latest(), "app", number)
        return self.owned.fold([self.entry(proposal)]).outcomes[0].result

    def restore(self, version: int) -> int:
        """Has pylance go back to a version; returns the new version."""
        dataset = lance.dataset(local_path(self.uri), version=version)
        dataset.restore()
        return int(dataset.version)

    def count(self) -> int:
        return int(lance.dataset(local_path(self.uri)).count_rows())

    def verdicts(self) -> Sequence[Verdict]:
        return [each.verdict for each in replay(StoredTable(BUILT_IN.first, self.versions), Listed(self.log))]


@pytest.fixture
def table(tmp_path: Path) -> Logged:
    """Versions 2 to 4 hold batches 0 to 2, of ten rows each."""
    made = Logged(tmp_path / "t")
    for number in range(3):
        made.batch(number, rows(range(10 * number, 10 * number + 10)))
    return made


@pytest.mark.parametrize("takes_over", [False, True], ids=["running", "started again"])
def test_a_corrected_batch_is_not_dropped_without_a_word(table: Logged, *, takes_over: bool) -> None:
    restored = table.restore(2)
    if takes_over:
        table.take_over()
    corrected = rows(range(10, 20))
    assert table.batch(1, corrected) == Duplicate(3, rolled_back_by=restored)
    assert table.batch(0, rows(range(10))) == Duplicate(2)
    assert table.batch(3, rows([1, 2])) != Duplicate(0)
    assert table.count() == 12
    table.take_over()
    assert table.batch(2, corrected) == Duplicate(4, rolled_back_by=restored)
    table.batch(4, rows([3]))
    assert set(table.verdicts()) == {Verdict.SAME, Verdict.FOREIGN}


@pytest.mark.parametrize("takes_over", [False, True], ids=["running", "started again"])
def test_later_versions_than_the_restore_hide_nothing(table: Logged, *, takes_over: bool) -> None:
    restored = table.restore(2)
    lance.dataset(local_path(table.uri)).delete("id = 3")
    if takes_over:
        table.take_over()
    assert table.batch(1, rows([1])) == Duplicate(3, rolled_back_by=restored, different_content=True)
    table.batch(3, rows([1]))
    assert set(table.verdicts()) == {Verdict.SAME, Verdict.FOREIGN}


@pytest.mark.parametrize("takes_over", [False, True], ids=["running", "started again"])
def test_the_last_of_several_restores_decides(table: Logged, *, takes_over: bool) -> None:
    table.restore(1)
    restored = table.restore(3)
    lance.dataset(local_path(table.uri)).delete("id = 3")
    if takes_over:
        table.take_over()
    answers = [table.batch(number, rows(range(10))) for number in range(3)]
    assert answers == [Duplicate(2), Duplicate(3), Duplicate(4, rolled_back_by=restored)]


def test_a_batch_whose_version_is_forgotten_is_reported_as_well(table: Logged) -> None:
    for number in range(3, 3 + MAX_RECENT_BATCHES):
        table.batch(number, rows([number]))
    restored = table.restore(2)
    assert table.batch(1, rows([1])) == Duplicate(0, rolled_back_by=restored)
    assert table.batch(0, rows([1])) == Duplicate(0)


def test_before_the_first_version_of_ours_no_batch_was_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows([1]), path)
    proposal = append(open_storage(path).uri, rows([2]), 1, "app", 0)
    fold(owned(path), [proposal], 0)
    lance.dataset(path, version=1).restore()
    assert fold(owned(path), [proposal], 1) == [Duplicate(2, rolled_back_by=3)]
    assert lance.dataset(path).count_rows() == 1


@pytest.mark.parametrize("folds", [False, True], ids=["right behind the restore", "later"])
def test_explain_says_what_became_of_the_rows(
    table: Logged,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    folds: bool,
) -> None:
    monkeypatch.delenv("LAKEFOLD_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.chdir(tmp_path)
    restored = table.restore(2)
    if folds:
        table.batch(1, rows(range(10)))
        table.batch(3, rows([1]))
    assert cli.run(["explain", table.uri, "app:1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["committed_in"], document["rolled_back_by"]) == (3, restored)
    assert "another app_id" in document["advice"]
    assert cli.run(["explain", table.uri, "app:1"]) == 0
    assert f"undone by the restore in version {restored}" in capsys.readouterr().out
    assert cli.run(["explain", table.uri, "app:0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rolled_back_by"] is None
