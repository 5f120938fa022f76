"""Other clients restore, wipe, clone and clean up a table that is being folded: nothing is lost or doubled.

What each version must hold follows from the log's outcomes and from what the others did; pylance reads it.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_log.client.topics import ensure_topics
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed, Duplicate, Rejected
from lakefold_table.marks.record import decode_record
from lakefold_table.uri import local_path
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.ledger import Ledger, positions_grow
from tests.integration.own_log import patient_admin
from tests.oracle.operations import version_in
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

EACH_TIME = 4
CLEANUPS = 2


class Shared:
    """A table that a committer folds into and others commit to by pylance."""

    def __init__(self, ledger: Ledger, proposer: Proposer) -> None:
        self.ledger = ledger
        self.proposer = proposer
        self.sent: dict[Position, int] = {}
        self.foreign: list[int] = []
        self._ids = count(1)
        self.again: Position | None = None
        self.created = proposer.send_wait(creation(ledger.uri))

    @property
    def path(self) -> str:
        return local_path(self.ledger.uri)

    def send(self) -> Envelope:
        """Append a row, built on the newest version."""
        number = next(self._ids)
        made = append(self.ledger.uri, rows([number]), self.ledger.newest(), "app", number)
        self.sent[self.proposer.send_wait(made)] = number
        return made

    def append(self) -> None:
        self.foreign.append(next(self._ids))
        lance.write_dataset(rows([self.foreign[-1]]), self.path, mode="append")

    def restore(self) -> None:
        """Back to a version without the newest rows."""
        lance.dataset(self.path, version=max(1, self.ledger.newest() - EACH_TIME)).restore()

    def wipe(self) -> None:
        lance.dataset(self.path).update_metadata({"owner": "somebody else"}, replace=True)

    def clean_up(self) -> None:
        lance.dataset(self.path).cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)

    def send_some(self) -> None:
        for _ in range(EACH_TIME):
            self.send()

    def send_again(self, envelope: Envelope) -> None:
        """The very same once more."""
        self.again = self.proposer.send_wait(envelope)

    @contextmanager
    def committer(self) -> Iterator[CommitterProcess]:
        """A committer that folds."""
        ledger = self.ledger
        with running_committer(ledger.bootstrap, ledger.names, ledger.root) as process:
            process.wait_until_ready()
            yield process

    def wait(self, committer: CommitterProcess) -> None:
        """Until all that was sent is answered, or the committer steps down, so that another can continue."""
        running = committer.process

        def is_over() -> bool:
            return running.poll() is not None or self.sent.keys() <= self.answered().keys()

        until(is_over, "all answers", seconds=120, every=0.1)
        assert running.returncode in {None, 5}, committer.log.read_text()

    def answered(self) -> dict[Position, Outcome]:
        """What became of what, as far as it is reported."""
        outcomes = self.ledger.outcomes()
        values = {outcome.position: outcome for outcome in outcomes}
        assert len(values) == len(outcomes), "a position was answered twice"
        return values

    def check_answers(self) -> list[int]:
        """Each is committed or may be sent again; what was sent twice is a Duplicate. Gives the committed."""
        answers = self.answers()
        if self.again is not None:
            assert isinstance(answers[self.again].result, Duplicate), answers[self.again]
        for position in self.sent:
            result = answers[position].result
            if not isinstance(result, Committed):
                assert isinstance(result, Rejected), result
                assert result.conflict.retryable, result
        return [number for at, number in self.sent.items() if isinstance(answers[at].result, Committed)]

    def answers(self) -> dict[Position, Outcome]:
        """What became of all that was sent, and of nothing else."""
        answers = self.answered()
        others = {self.created} if self.again is None else {self.created, self.again}
        assert answers.keys() == self.sent.keys() | others
        return answers

    def check_versions(self) -> None:
        """Each version holds what the versions before it, its entries and the others' doings make."""
        committed: dict[int, set[int]] = {}
        for position, outcome in self.answers().items():
            if isinstance(outcome.result, Committed) and position in self.sent:
                committed.setdefault(outcome.result.version, set()).add(self.sent[position])
        foreign = iter(self.foreign)
        held: dict[int, set[int]] = {0: set()}
        for number in self.ledger.versions.numbers():
            transaction = version_in(self._file(number)).transaction
            assert transaction is not None
            operation = transaction.WhichOneof("operation")
            held[number] = held[number - 1] | committed.get(number, set())
            if decode_record(transaction.transaction_properties, "") is None:
                if operation == "restore":
                    held[number] = held[transaction.restore.version]
                elif operation == "append":
                    held[number] = held[number] | {next(foreign)}
            actual = lance.dataset(self.path, version=number).to_table(columns=["id"])["id"].to_pylist()
            assert sorted(actual) == sorted(held[number]), f"version {number}: {operation}"
        assert list(foreign) == []

    def _file(self, version: int) -> Path:
        return self.ledger.root / "table" / self.ledger.versions.path(version)


@pytest.fixture
def shared(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[Shared]:
    ledger = Ledger(bootstrap, topic_names, tmp_path)
    ensure_topics(patient_admin(ledger.config), ledger.topics)
    with Proposer(ledger.config, ledger.topics) as proposer:
        shared = Shared(ledger, proposer)
        fold(shared)
        yield shared


def fold(shared: Shared) -> None:
    fold_to_the_end(shared.ledger.bootstrap, shared.ledger.names, shared.ledger.root)


def test_foreign_restores_and_wipes_take_no_position_and_no_key_back(shared: Shared) -> None:
    first = shared.send()
    fold(shared)
    acts = [shared.append, shared.restore, shared.wipe, shared.restore]
    with shared.committer() as committer:
        for act in acts:
            shared.send_some()
            act()
        shared.send_some()
        shared.wait(committer)
        committer.kill()
    for act in acts[2:]:
        shared.send_some()
        act()
        with shared.committer() as committer:
            shared.send_some()
            shared.wait(committer)
            shared.send_some()
            committer.kill()
    shared.send_again(first)
    fold(shared)
    shared.check_answers()
    shared.check_versions()
    positions_grow(shared.ledger.versions)
    shared.ledger.check_replay()


def test_old_versions_that_are_cleaned_up_under_way_lose_nothing(shared: Shared) -> None:
    """As rudely as can be: all but the newest, while a committer folds, is paused, and is killed."""
    first = shared.send()
    fold(shared)
    for number in range(CLEANUPS):
        shared.send_some()
        with shared.committer() as committer:
            shared.append()
            shared.clean_up()
            shared.send_some()
            shared.wait(committer)
            if number % 2:
                committer.process.send_signal(signal.SIGSTOP)
            shared.append()
            shared.append()
            shared.clean_up()
            shared.send_some()
            committer.process.send_signal(signal.SIGCONT)
            shared.wait(committer)
            committer.kill()
    shared.append()
    shared.append()
    shared.clean_up()
    shared.send_again(first)
    fold(shared)
    committed = shared.check_answers()
    assert ids_in(shared.ledger.uri) == sorted([*committed, *shared.foreign])
    positions_grow(shared.ledger.versions)


def test_a_clone_is_a_table_of_its_own(shared: Shared) -> None:
    shared.send_some()
    fold(shared)
    source = shared.ledger
    clone = Ledger(source.bootstrap, source.names, source.root, "clone")
    lance.dataset(shared.path).shallow_clone(local_path(clone.uri), source.newest())
    begun = clone.newest()
    kept = shared.send()
    key = ("app", 1)
    sent = [append(clone.uri, rows([number]), begun, *key) for number in (1000, 1001)]
    positions = [shared.proposer.send_wait(envelope) for envelope in sent]
    fold(shared)
    answers = {outcome.position: outcome for outcome in clone.outcomes()}
    first, second = (answers[position] for position in positions)
    assert first.result == Committed(
        begun + 1, rows_added=1, first_fragment_id=EACH_TIME, num_fragment_ids=1
    ), "a key is the table's own"
    assert second.result == Duplicate(begun + 1)
    ours = {outcome.table_id for outcome in shared.answers().values()}
    assert len({*ours, first.table_id}) == 2
    assert kept.lance.uuid in {outcome.uuid for outcome in shared.answers().values()}
    assert ids_in(clone.uri) == [*range(1, EACH_TIME + 1), 1000]
    assert ids_in(source.uri) == [*range(1, EACH_TIME + 2)]
    shared.check_versions()
