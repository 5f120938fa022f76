"""Random histories of a table: our log and other clients in turn, compared with plain rows after each step.

`pytest --hypothesis-profile=long` runs far more and longer histories than an ordinary test run.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.properties.acts import ACTS
from tests.properties.world import World

LONG = settings.get_current_profile_name() == "long"
OFTEN = ("append", "append", "delete", "update", "update", "upsert")
NAMES = st.sampled_from([*OFTEN, *sorted(ACTS)])
EARLY = st.sampled_from(["add_column", "index", "delete", "append"])
PICKS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
BACK = st.integers(0, 4)


class HistoryMachine(RuleBasedStateMachine):
    """What may happen to a table."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="histories-"))
        self.world: World

    @initialize(stable=st.booleans(), first=st.lists(EARLY, max_size=3))
    def begin(self, stable: bool, first: list[str]) -> None:  # noqa: FBT001 - drawn
        self.world = World(self.folder, stable)
        for number, name in enumerate(first):
            self.world.foreign(name, [number, number + 1], 0)

    @rule(name=NAMES, picks=PICKS, back=BACK)
    def another_client_commits(self, name: str, picks: list[int], back: int) -> None:
        self.world.foreign(name, picks, back)

    @rule(name=NAMES, picks=PICKS, back=BACK, knows_rows=st.booleans())
    def propose(self, name: str, picks: list[int], back: int, knows_rows: bool) -> None:  # noqa: FBT001 - drawn
        self.world.propose(name, picks, back, knows_rows=knows_rows)

    @rule(name=NAMES, picks=PICKS, knows_rows=st.booleans())
    def propose_on_newest(self, name: str, picks: list[int], knows_rows: bool) -> None:  # noqa: FBT001 - drawn
        self.world.propose(name, picks, 0, knows_rows=knows_rows)

    @rule(name=NAMES, picks=PICKS, knows_rows=st.booleans())
    def propose_alone(self, name: str, picks: list[int], knows_rows: bool) -> None:  # noqa: FBT001 - drawn
        self.world.fold(len(self.world.waiting))
        self.world.propose(name, picks, 0, knows_rows=knows_rows)
        self.world.fold(1)

    @precondition(lambda self: self.world.waiting)
    @rule(most=st.integers(1, 5))
    def fold(self, most: int) -> None:
        self.world.fold(most)

    @precondition(lambda self: self.world.waiting)
    @rule(which=st.integers(0, 9))
    def send_again(self, which: int) -> None:
        self.world.waiting.append(self.world.waiting[which % len(self.world.waiting)])

    @rule()
    def another_committer_takes_over(self) -> None:
        self.world.take_over()

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.world.fold(len(self.world.waiting))
                self.world.replay()
        finally:
            shutil.rmtree(self.folder)


@pytest.mark.timeout(7200 if LONG else 600)
def test_histories() -> None:
    run_state_machine_as_test(
        HistoryMachine,
        settings=settings(
            max_examples=2000 if LONG else 30,
            stateful_step_count=40 if LONG else 15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
