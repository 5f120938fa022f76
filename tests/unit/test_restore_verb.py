"""`lakefold restore` builds a refused restore again on the newest version, if that may pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold.branching import ref_proposals, undone_versions
from lakefold.cli import run
from lakefold.proposals import logged_proposal
from lakefold_table.entry import Committed, Conflict, Rejected
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RETRYABLE = Rejected(Conflict(retryable=True, message="rows were added"))
FINAL = Rejected(Conflict(retryable=False, message="it was removed"))


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[int]]]:
    """Restores with these answers in turn; returns the last one, and on which versions it was built."""

    def run(answers: list[Any], made_anew_after: int = 100) -> tuple[Any, list[int]]:
        versions, built, left = iter(range(100)), list[int](), iter(answers)
        monkeypatch.setattr(undone_versions, "newest_before", lambda *_: next(versions))
        monkeypatch.setattr(ref_proposals, "restoring", lambda _, newest: built.append(newest))
        monkeypatch.setattr(logged_proposal, "send_and_wait", lambda *_: SimpleNamespace(result=next(left)))
        monkeypatch.setattr(
            ref_proposals, "newest_id", lambda _: "same" if len(built) < made_anew_after else "other"
        )
        chosen: Any = SimpleNamespace(source=None, table_id="same")
        settings: Any = None
        return ref_proposals.send_restore(settings, chosen, 1.0).result, built

    return run


def test_it_is_built_again_until_it_passes(restored: Callable[..., tuple[Any, list[int]]]) -> None:
    assert restored([RETRYABLE, RETRYABLE, Committed(9)]) == (Committed(9), [0, 1, 2])
    assert restored([FINAL]) == (FINAL, [0])


def test_it_is_given_up_in_the_end(restored: Callable[..., tuple[Any, list[int]]]) -> None:
    assert restored([RETRYABLE] * 20) == (RETRYABLE, list(range(ref_proposals.ATTEMPTS)))


def test_it_is_not_built_again_on_another_table_of_the_name(
    restored: Callable[..., tuple[Any, list[int]]],
) -> None:
    assert restored([RETRYABLE] * 20, made_anew_after=2) == (RETRYABLE, [0, 1])


def test_the_folder_of_a_branch_is_not_taken_for_the_branch_that_a_tag_is_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It restored the main branch."""
    table = tmp_path / "t.lance"
    dataset = lance.write_dataset(pa.table({"n": [1]}), table)
    dataset.tags.create("good", 1)
    dataset.create_branch("audit")
    lance.write_dataset(pa.table({"n": [2]}), table, mode="append")
    assert (
        run(["restore", str(table / "tree" / "audit"), "--tag", "good", "--dry-run"])
        == InvalidError.exit_code
    )
    shown = capsys.readouterr().err
    assert "version 1 is of the main branch, and not of the branch in this folder" in shown
    assert f"to restore the main branch, name its folder, {canonical(table)}" in shown
    for named in ([str(table), "--tag", "good"], [str(table), "--branch", "audit", "--version", "1"]):
        run(["restore", *named, "--dry-run"])
        assert "in this folder" not in capsys.readouterr().err
