"""Committers that start, crash, lose answers and race, compared with a plain dictionary of the log.

Whatever happens, each position gets exactly one kind of outcome, each committed batch's rows are there
exactly once, positions only grow (every-entry-answered, at-most-once-per-key, positions-grow, fence-by-fact).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from lakefold_committer.fold.grouping import Limits
from lakefold_table.entry import Committed, Duplicate, Entry, Outcome
from lakefold_table.errors import RetryError, StopError
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import decode_marks
from lakefold_table.marks.record import decode_record
from lakefold_table.storage.base import DoubtfulPutError
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, append, creation, entries, groups_of, opened, reserve, versions_at
from tests.foreign import commit, roll_back, wipe
from tests.memory_storage import Fault, LoseAnswer, MemoryStorage, Refuse

if TYPE_CHECKING:
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_protos.lakefold.log_pb2 import Envelope

MANIFEST = ".manifest"
RUNS = count()
FAULTS: list[Fault] = [
    LoseAnswer(stored=True, suffix=MANIFEST),
    LoseAnswer(stored=False, suffix=MANIFEST),
    Refuse(suffix=MANIFEST),
]
WHO = st.integers(0, 1)
KINDS = st.sampled_from(
    [
        "new",
        "new",
        "new",
        "keyless",
        "nameless",
        "bad",
        "future",
        "missing",
        "tagged",
        "reserve",
        "create",
        "empty",
    ]
)


@dataclass
class Committer:
    """A process: what it has read of the log, and what it would report."""

    generation: int
    position: int
    table: TableWriter | None = None
    answers: list[Outcome] = field(default_factory=list)
    stuck: list[Entry] = field(default_factory=list)


def key_of(envelope: Envelope) -> object:
    """By what a repetition of this entry is recognised. None if it isn't."""
    if envelope.app_id and envelope.HasField("batch_id"):
        return (envelope.app_id, envelope.batch_id)
    return envelope.lance.uuid or None


@dataclass
class Model:
    """The expected answers to the entries of a log, computed from the kind of each entry."""

    exists: bool = False
    committed: dict[object, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def outcome(self, offset: int, kind: str, envelope: Envelope) -> str:
        """The name of the outcome's kind."""
        key = key_of(envelope)
        if key is not None and key in self.committed:
            return "Duplicate"
        if kind == "create":
            if self.exists:
                return "Rejected"
            self.exists = True
        elif not self.exists or kind in ("bad", "future", "missing"):
            return "Invalid"
        files = [file.path for fragment in envelope.lance.append.fragments for file in fragment.files]
        if not set(self.files).isdisjoint(files):
            return "Invalid"
        if key is not None:
            self.committed[key] = offset
        self.files += files
        return "Committed"


class CommitterMachine(RuleBasedStateMachine):
    """Two places for committers, a log, and another client that commits in between."""

    def __init__(self) -> None:
        super().__init__()
        self.name = f"committers-{next(RUNS)}"
        self.uri = f"memory://{self.name}/t"
        self.store = MemoryStorage(self.uri)
        self.names = (f"n{number}" for number in count())
        self.log: list[tuple[str, Envelope]] = []
        self.reported: dict[int, Outcome] = {}
        self.generations = 0
        self.committers: list[Committer | None] = [None, None]

    def teardown(self) -> None:
        self.fold_the_rest()
        self.check_outcomes()
        self.check_table()
        MemoryStorage.forget(self.name)

    @initialize(kinds=st.lists(KINDS, max_size=3))
    def begin(self, kinds: list[str]) -> None:
        """A log that creates its table at last; entries before that are refused."""
        for kind in (*kinds, "create"):
            self.propose_one(kind, "a", len(self.log))

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=6), app=st.sampled_from("ab"), batch=st.integers(0, 30))
    def propose(self, kinds: list[str], app: str, batch: int) -> None:
        for number, kind in enumerate(kinds):
            self.propose_one(kind, app, (batch + number) % 31)

    @rule(back=st.integers(1, 12), times=st.integers(1, 3))
    def propose_again(self, back: int, times: int) -> None:
        self.log += [self.log[max(0, len(self.log) - back)]] * times

    def propose_one(self, kind: str, app: str, batch: int) -> None:
        name = next(self.names)
        match kind:
            case "create":
                envelope = creation(uuid=name)
            case "reserve":
                envelope = reserve(3)
                envelope.lance.uuid = name
            case "keyless" | "tagged":
                envelope = append(name)
            case "nameless":
                envelope = append(name)
                envelope.lance.uuid = ""
            case _:
                envelope = append(name, app=app, batch=batch, fragments=0 if kind == "empty" else 1)
        envelope.table = self.uri
        if kind == "tagged":
            envelope.lance.tag = name
        elif kind == "future":
            envelope.lance.read_version = 10**9
        elif kind == "bad":
            envelope.lance.append.fragments[0].files[0].fields[1] = 77
        if kind != "missing":
            self.store.put(f"data/{name}-0.lance", [b"x" * 1000])
        self.log.append((kind, envelope))

    @rule(who=WHO)
    def start(self, who: int) -> None:
        """Earlier processes are gone; the new process continues where the last report ended."""
        self.generations += 1
        self.committers[who] = Committer(self.generations, len(self.reported))

    @rule(who=WHO, most=st.integers(1, 5), groups=st.integers(1, 4))
    def fold(self, who: int, most: int, groups: int) -> None:
        self.work(who, most, groups)

    @rule(who=WHO, faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=7), most=st.integers(1, 5))
    def fold_in_trouble(self, who: int, faults: list[Fault], most: int) -> None:
        self.store.faults.plan(*faults)
        self.work(who, most, 1)
        self.forget_faults()

    @rule(who=WHO, most=st.integers(1, 5))
    def fold_and_report(self, who: int, most: int) -> None:
        self.work(who, most, 3)
        self.report(who)

    def work(self, who: int, most: int, groups: int) -> None:
        committer = self.committers[who]
        if committer is None:
            self.start(who)
            committer = self.committers[who]
        assert committer is not None
        try:
            self.fold_some(committer, most, groups)
        except RetryError:
            event("the store was away")
        except StopError:
            event("a committer stopped")
            self.committers[who] = None

    def fold_some(self, committer: Committer, most: int, groups: int) -> None:
        """Folds the group that failed before, or the next group."""
        if committer.table is None:
            committer.table = opened(self.uri, check_sizes=True)
        end = min(committer.position + most * groups, len(self.log))
        polled = entries([envelope for _, envelope in self.log[committer.position : end]], committer.position)
        waiting = [committer.stuck] if committer.stuck else groups_of(polled, FORMAT, Limits(most, 10**9))
        for group in waiting:
            committer.stuck = list(group)
            outcomes = committer.table.fold(group).outcomes
            assert [outcome.position for outcome in outcomes] == [entry.position for entry in group]
            committer.stuck = []
            committer.answers += outcomes
            committer.position += len(group)

    @rule(who=WHO)
    def report(self, who: int) -> None:
        """In one Kafka transaction; only the producer that began last may."""
        committer = self.committers[who]
        if committer is None or committer.table is None:
            return
        if committer.generation < self.generations:
            self.committers[who] = None
            return
        for outcome in committer.answers:
            assert outcome.position.offset == len(self.reported)
            self.reported[outcome.position.offset] = outcome
        committer.answers = []
        committer.table.reported()

    @rule(spoil=st.sampled_from(["keep", "wipe", "roll back"]))
    def another_client(self, spoil: str) -> None:
        versions = versions_at(self.uri)
        if not versions.numbers():
            return
        older = StoredTable(FORMAT, versions).read_state(versions.numbers()[0]).metadata
        change = {"keep": None, "wipe": wipe, "roll back": roll_back(dict(older))}[spoil]
        with suppress(RetryError, DoubtfulPutError):
            commit(self.uri, "delete" if spoil == "keep" else "update_config", change)

    @invariant()
    def positions_grow(self) -> None:
        versions = versions_at(self.uri)
        numbers = versions.numbers()
        assert numbers == list(range(1, len(numbers) + 1))
        last = (-1, 0, 0)
        for number in numbers[-4:]:
            state = StoredTable(FORMAT, versions).read_state(number)
            if StoredTable(FORMAT, versions).own_properties(number) is not None:
                marks = decode_marks(state.metadata)
                assert marks is not None
                assert marks.position is not None
                now = (marks.position.offset, marks.epoch, state.time_us)
                assert now[0] >= last[0]
                assert now[1] >= last[1]
                assert now[2] > last[2]
                last = now

    def forget_faults(self) -> None:
        while self.store.faults.left:
            self.store.faults.take("x" + MANIFEST)

    def fold_the_rest(self) -> None:
        self.start(0)
        committer = self.committers[0]
        assert committer is not None
        while committer.position < len(self.log):
            self.fold_some(committer, 3, 8)
        self.report(0)

    def check_outcomes(self) -> None:
        model = Model()
        assert list(self.reported) == list(range(len(self.log)))
        for offset, (kind, envelope) in enumerate(self.log):
            result = self.reported[offset].result
            assert type(result).__name__ == model.outcome(offset, kind, envelope)
            if isinstance(result, Duplicate):
                first = self.reported[model.committed[key_of(envelope)]].result
                assert isinstance(first, Committed)
                assert result.version in (0, first.version)
        versions = versions_at(self.uri)
        for offset, outcome in self.reported.items():
            if isinstance(outcome.result, Committed):
                record = decode_record(
                    StoredTable(FORMAT, versions).own_properties(outcome.result.version) or {}
                )
                assert record is not None
                assert record.answer(offset) == outcome.result
        self.model = model

    def check_table(self) -> None:
        versions = versions_at(self.uri)
        numbers = versions.numbers()
        assert bool(numbers) == self.model.exists
        if not numbers:
            return
        state = StoredTable(FORMAT, versions).read_state(numbers[-1])
        assert isinstance(state, LanceState)
        fragments = list(state.fragments)
        assert sorted(fragment.files[0].path for fragment in fragments) == sorted(self.model.files)
        ids = [fragment.id for fragment in fragments]
        assert ids == sorted(set(ids))


def test_committers() -> None:
    run_state_machine_as_test(
        CommitterMachine, settings=settings(max_examples=80, stateful_step_count=40, deadline=None)
    )
