"""`lakefold restore` builds a refused restore again on the newest version, if that may pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lakefold.branching import undone_versions, verbs
from lakefold.proposals import logged_proposal
from lakefold_table.entry import Committed, Conflict, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable

RETRYABLE = Rejected(Conflict(retryable=True, message="rows were added"))
FINAL = Rejected(Conflict(retryable=False, message="it was removed"))


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[int]]]:
    """Restores with these answers in turn; returns the last one, and on which versions it was built."""

    def run(answers: list[Any], made_anew_after: int = 100) -> tuple[Any, list[int]]:
        versions, built, left = iter(range(100)), list[int](), iter(answers)
        monkeypatch.setattr(undone_versions, "newest_before", lambda *_: next(versions))
        monkeypatch.setattr(verbs, "restoring", lambda _, newest: built.append(newest))
        monkeypatch.setattr(logged_proposal, "send_and_wait", lambda *_: SimpleNamespace(result=next(left)))
        monkeypatch.setattr(verbs, "newest_id", lambda _: "same" if len(built) < made_anew_after else "other")
        chosen: Any = SimpleNamespace(source=None, table_id="same")
        settings: Any = None
        return verbs._send_restore(settings, chosen, 1.0).result, built

    return run


def test_it_is_built_again_until_it_passes(restored: Callable[..., tuple[Any, list[int]]]) -> None:
    assert restored([RETRYABLE, RETRYABLE, Committed(9)]) == (Committed(9), [0, 1, 2])
    assert restored([FINAL]) == (FINAL, [0])


def test_it_is_given_up_in_the_end(restored: Callable[..., tuple[Any, list[int]]]) -> None:
    assert restored([RETRYABLE] * 20) == (RETRYABLE, list(range(verbs.ATTEMPTS)))


def test_it_is_not_built_again_on_another_table_of_the_name(
    restored: Callable[..., tuple[Any, list[int]]],
) -> None:
    assert restored([RETRYABLE] * 20, made_anew_after=2) == (RETRYABLE, [0, 1])
