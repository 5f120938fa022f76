"""Restores by us and by others in any order: a key counts as rolled back exactly if its rows are gone.

Promise: rolled-back-batches (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.formats import BUILT_IN
from lakefold_table.versions.stored_table import StoredTable
from tests import foreign
from tests.folding import FORMAT, append, changed, creation, entries, opened, versions_at
from tests.memory_storage import MemoryStorage
from tests.replaying import Listed

if TYPE_CHECKING:
    from lakefold_table.entry import Entry, Result

NAME = "rollbacks"
HERE = f"memory://{NAME}/t"
Key = tuple[str, int]

KEYS = st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 5))
STEPS = st.one_of(
    st.tuples(st.just("send"), KEYS),
    st.tuples(st.just("restore"), st.integers(0, 99)),
    st.tuples(st.just("foreign restore"), st.integers(0, 99)),
    st.tuples(st.sampled_from(["foreign delete", "take over"]), st.just(0)),
)


@dataclass
class Model:
    """The table, and which keys' rows each of its versions holds."""

    rows: dict[int, frozenset[Key]] = field(default_factory=dict)
    sent: dict[Key, Envelope] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.take_over()
        self.fold(creation())
        self.note(frozenset())

    @property
    def newest(self) -> int:
        return versions_at(HERE).latest()

    def take_over(self) -> None:
        self.owned = opened(HERE)

    def note(self, rows: frozenset[Key]) -> None:
        """The versions that came since hold these rows."""
        for version in range(max(self.rows, default=0) + 1, self.newest + 1):
            self.rows[version] = rows

    def fold(self, envelope: Envelope) -> Result:
        envelope = changed(envelope, lambda e: setattr(e, "table", HERE))
        self.log += entries([envelope], len(self.log))
        return self.owned.fold(self.log[-1:]).outcomes[0].result

    def send(self, key: Key) -> None:
        """Sends a key for the first time, or once more."""
        app, number = key
        held = self.rows[self.newest]
        if key not in self.sent:
            name = f"{app}-{number}"
            made = append(name, read=self.newest, app=app, batch=number if app else None)
            self.sent[key] = made
            result = self.fold(made)
            assert isinstance(result, Committed), result
            held |= {key}
        else:
            result = self.fold(self.sent[key])
            assert isinstance(result, Duplicate), result
            assert bool(result.rolled_back_by) == (key not in held), (key, result)
            assert not result.different_content
        self.note(held)

    def restore(self, pick: int) -> None:
        """Goes back to some version, through the log."""
        version = 1 + pick % self.newest
        envelope = Envelope()
        envelope.lance.uuid, envelope.lance.read_version = f"restore {len(self.log)}", self.newest
        envelope.lance.restore.version = version
        result = self.fold(envelope)
        assert isinstance(result, Committed), result
        # A committer that begins may publish before.
        self.rows[self.newest] = self.rows[version]

    def foreign_restore(self, pick: int) -> None:
        version = 1 + pick % self.newest
        then = StoredTable(FORMAT, versions_at(HERE)).read_state(version)
        foreign.restore(HERE, then)
        self.note(self.rows[version])

    def foreign_delete(self) -> None:
        foreign.commit(HERE, "delete")
        self.note(self.rows[self.newest - 1])


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=40))
def test_a_key_counts_as_rolled_back_exactly_if_its_rows_are_gone(steps: list[tuple[str, object]]) -> None:
    MemoryStorage.forget(NAME)
    model = Model()
    for what, how in steps:
        act = getattr(model, what.replace(" ", "_"))
        if what in {"foreign delete", "take over"}:
            act()
        else:
            act(how)
    for key in [*model.sent]:
        model.send(key)
    replays = replay(StoredTable(BUILT_IN.first, versions_at(HERE)), Listed(model.log))
    assert {each.verdict for each in replays} <= {Verdict.SAME, Verdict.FOREIGN}
    MemoryStorage.forget(NAME)
