"""How a history ends: without faults, until everything is answered; then all that is stored is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_committer.recovery.open_table import open_table
from lakefold_log.codec.claims import FOLDER
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import GapError
from lakefold_table.lance.state import LanceState
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, versions_at
from tests.memory_storage import MemoryStorage
from tests.simulation import foreign
from tests.simulation.claiming import THERE
from tests.simulation.ledger import demand
from tests.simulation.model import COMMITTED, DUPLICATE, INVALID, OUTSIDE, REJECTED, Model
from tests.simulation.rows import Live, followed, without
from tests.simulation.store import LATEST_PUT_S
from tests.whole_versions import broken_invariants

if TYPE_CHECKING:
    from lakefold_table.entry import Result
    from tests.simulation.model import Table
    from tests.simulation.partition import Partition
    from tests.simulation.rows import Rows
    from tests.simulation.world import World

MOST_STEPS: Final = 60_000
"""A history that needs more steps than this goes round in circles."""
ROUNDS: Final = 4
"""How many more entries a table gets until the files of its claims have to be gone."""
STEPS_OF_A_ROUND: Final = 2_000
AFTERWARDS_S: Final = LATEST_PUT_S + 10
"""How long is waited at the end for what is still on its way."""
LATER_S: Final = 8 * 24 * 3600.0
"""When the files of claims go, whatever became of them."""


class Ending:
    """The end of a world. `rules`: those of the newest release that was started."""

    def __init__(self, world: World, rules: int) -> None:
        self._world = world
        self._rules = rules

    def play(self) -> None:
        """Runs committers until every entry is answered, and checks everything."""
        world, hub = self._world, self._world.hub
        world.store.calm_down()
        for partition in world.partitions:
            partition.broker.calm_down()
        hub.note("world", "calms down")
        world.kill_all()
        done = hub.run(self._all_answered, MOST_STEPS)
        demand(done, "every-entry-answered", f"unanswered: {self._unanswered()}")
        self._go_on_beside_others()
        self._let_pass(AFTERWARDS_S)
        if any(partition.ledger.claims for partition in world.partitions):
            self._clean_up_claims()
        self.check()

    def _all_answered(self) -> bool:
        """Whether all is; starts who is missing for that."""
        world = self._world
        free = [
            partition
            for partition in world.partitions
            if not partition.is_stuck and not world.holders(partition.number)
        ]
        if free:
            few = free if world.hub.random.random() < 1 / 2 else free[:1]
            # If entries are gone, no committer continues without being allowed to (tried).
            accepts = all(
                isinstance(partition.ended_by, GapError) and partition.broker.has_gap for partition in few
            )
            world.start(rules=self._rules, partitions=few, accepts=accepts)
        stays = not any(committer.is_leaving for committer in world.running())
        return (
            not free
            and stays
            and all(partition.is_answered or partition.is_stuck for partition in world.partitions)
        )

    def _let_pass(self, seconds: float) -> None:
        hub = self._world.hub
        end = hub.now + seconds
        hub.later(seconds + 0.001, lambda: None)
        hub.run(lambda: hub.now > end, MOST_STEPS)

    def _go_on_beside_others(self) -> None:
        """Another client commits to each table, and an entry arrives. No committer is started for that."""
        world, claims = self._world, set[str]()
        for partition, uri in self._tables():
            version = foreign.ACTS["commit"](uri, 0)
            world.stored(uri, versions_at(uri).path(version), None)
            sent = partition.producer.send("keyless", uri)
            if sent.claim == THERE:
                claims.add(f"{uri}/{sent.claim_path}")
        done = world.hub.run(
            lambda: not self._unanswered() and not claims.intersection(self._claims_left()), MOST_STEPS
        )
        demand(done, "every-entry-answered", f"beside others: {self._unanswered()}")

    def _tables(self) -> list[tuple[Partition, str]]:
        """The main lines that are there."""
        every = (
            (partition, uri)
            for partition in self._world.partitions
            if not partition.is_stuck
            for uri in partition.uris
        )
        return [(partition, uri) for partition, uri in every if partition.ledger.line(uri).newest]

    def _claims_left(self) -> list[str]:
        """Files of claims that lie beside tables that are there."""
        return [f"{uri}/{file.path}" for _, uri in self._tables() for file in MemoryStorage(uri).list(FOLDER)]

    def _clean_up_claims(self) -> None:
        """More than a week later the files of all claims are removed, whatever their answers were."""
        world = self._world
        world.kill_all()
        self._let_pass(LATER_S)
        world.hub.note("world", "goes on more than a week later")
        world.start(rules=self._rules)
        # If an entry is answered before an earlier one, the files of its table go with the next one.
        for _ in range(ROUNDS):
            for partition, uri in self._tables():
                partition.producer.claims = 0.0
                partition.producer.send("keyless", uri)
            world.hub.run(lambda: not self._unanswered(), MOST_STEPS)
            if world.hub.run(lambda: not self._claims_left(), STEPS_OF_A_ROUND):
                break
        demand(not self._claims_left(), "the files of claims go", f"left: {self._claims_left()}")

    def _unanswered(self) -> list[tuple[int, int]]:
        """Partition and offset of entries that have no outcome."""
        going = [partition for partition in self._world.partitions if not partition.is_stuck]
        return [(partition.number, offset) for partition in going for offset in partition.ledger.unanswered]

    def check(self) -> None:
        """Everything is answered as the model says, and the tables hold what was answered."""
        demand(not self._unanswered(), "every-entry-answered", f"unanswered: {self._unanswered()[:10]}")
        for partition in self._world.partitions:
            partition.ledger.check_unchanged()
            if not partition.is_stuck:
                _check_model(partition)
            for uri, line in partition.ledger.lines.items():
                if line.newest:
                    _check_table(partition, uri)


def _check_model(partition: Partition) -> None:
    ledger, model = partition.ledger, _model_of(partition)
    for index, sent in enumerate(ledger.history):
        right, offset = model.right(sent), sent.offset
        if index in ledger.cut_off:
            before = ledger.cut_off[index]
            if before is not None:
                model.take(sent, before)
            continue
        outcome = ledger.reported.get(offset)
        if outcome is not None:
            # If the first answer was forgotten, the refusal may have another reason now.
            again = {DUPLICATE, REJECTED, INVALID} if offset in ledger.twice else set[str]()
            # It is folded on the table as it is now, which may contain what the log lost (decision 0076).
            again |= {COMMITTED} if offset in ledger.judged_again & ledger.twice else set[str]()
            name = type(outcome.result).__name__
            what = f"{offset} ({sent.kind}) is {outcome.result}, right is {right}"
            demand(name in right | again, "the model", what)
            if isinstance(outcome.result, Duplicate) and not again:
                _check_duplicate(partition, model.table(sent.uri).committed[sent.key], offset)
        # If no outcome was reported, or only now, its table may contain it.
        line = None if sent.kind in OUTSIDE else ledger.line(sent.uri)
        folded = None if line is None else line.answers.get(offset)
        if line is not None and sent.key is not None and isinstance(line.torn.get(offset), Committed):
            # A version contains it beside entries that the log lost.
            model.table(sent.uri).committed.setdefault(sent.key, offset)
        if isinstance(folded, Committed):
            model.take(sent, folded)
        elif outcome is not None:
            model.take(sent, outcome.result)
    _check_rows(partition, model)


def _model_of(partition: Partition) -> Model:
    """A model that knows what the log doesn't contain."""
    ledger, model = partition.ledger, Model()
    for uri in ledger.harsh:
        model.table(uri).harsh = True
    for uri, offset in partition.dropped.items():
        model.table(uri).dropped = offset
    for uri, line in ledger.lines.items():
        model.table(uri).undone = line.undone
    return model


def _check_rows(partition: Partition, model: Model) -> None:
    """The newest versions hold the rows that the log says."""
    for uri, table in model.tables.items():
        line = partition.ledger.line(uri)
        if line.newest and not table.harsh:
            rows, now = _without_undone(table, line.undone), line.rows[line.newest]
            demand(now == rows, "the model", f"{uri} holds {now}, not {rows}")


def _without_undone(table: Table, undone: Rows) -> Rows:
    """The rows that others left. A Rewrite that was built after they deleted rows has left these out."""
    if not table.moves:
        return without(table.rows, undone)
    gone = followed(undone, table.rows, table.moves)
    living = {
        number: Live(live.file, live.rows & table.rows[number].rows)
        for number, live in gone.items()
        if number in table.rows
    }
    return without(table.rows, living)


def _check_duplicate(partition: Partition, first: int, offset: int) -> None:
    """It names the version of the first entry, whose own answer may differ if that was forgotten."""
    ledger, sent = partition.ledger, partition.ledger.sent[offset]
    result = ledger.reported[offset].result
    before: Result | None = ledger.line(sent.uri).answers.get(first)
    if first in ledger.reported:
        before = ledger.reported[first].result
    lost = ledger.lost_answer(sent)
    right = Committed | Duplicate if first in ledger.twice else Committed
    if lost is not None:
        before = lost
    demand(
        isinstance(before, right) and isinstance(result, Duplicate) and result.version in (0, before.version),
        "at-most-once-per-key",
        f"{offset} is {result}, the first was {before}",
    )


def _check_table(partition: Partition, uri: str) -> None:
    table = open_table(StoredTable(FORMAT, versions_at(uri)))
    line = partition.ledger.line(uri)
    demand(table.version == line.newest, "one-commit-point", f"{uri} is at {table.version}")
    if line.marks is not None:
        demand(table.marks == line.marks, "positions-grow", f"{uri} opens with {table.marks}")
    if isinstance(table.state, LanceState):
        text = broken_invariants(None, table.state, line.deletions)
        demand(not text, "the table's own invariants", f"{uri}: {text}")
        files = [live.file for live in line.rows[line.newest].values()]
        demand(len(files) == len(set(files)), "at-most-once-per-key", f"{uri}: {files}")
