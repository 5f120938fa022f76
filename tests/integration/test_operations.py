"""Every operation through a real log while committers are killed: each is there once, or not at all.

Writers delete and update rows of the same fragments, a keeper indexes, compacts, restores and branches, and
another client commits by pylance in between.
"""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_committer.fold.grouping import Limits
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import describe, ensure_topics
from lakefold_log.codec.envelope import decode
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Entry, Rejected
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER
from lakefold_table.position import Position
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from tests.folding import FORMAT, groups_of
from tests.integration.committers import check_replay, fold_to_the_end, running_committer
from tests.integration.lines import Line, Sent
from tests.integration.own_log import patient_admin
from tests.properties.acts import ACTS, SCHEMA, Act, Choice, table_of, values_of
from tests.properties.model import FIRST_COLUMNS, Effect
from tests.proposals import creation
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lakefold_table.entry import Outcome, Result
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import LogId
    from lakefold_table.storage.base import Buffer, Put
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

    Running = Callable[[], AbstractContextManager[CommitterProcess]]

SEED = 20_260_102
KILLS = 2
ALL_KILLS = 4
"""How many committers are killed, at a file or before a version by turns, and in `make test-faults`."""
VERSIONS_A_LIFE = 6
WRITERS = ("append", "delete", "delete", "delete", "update", "upsert")
FOREIGN = ("append", "append", "config", "delete")
KEEPING = ("index", "config", "compact", "restore", "index", "compact")
FRAGMENTS, ROWS = 3, 200
MEETING, MEETING_ROWS = 3, 24
"""How many Deletes meet in the same fragments behind a dead committer, and of how many rows together."""
TOGETHER = Limits(1000, 10**9)
ANSWER_SECONDS = 120.0
KEEPER_SECONDS = 400.0
"""For some twenty answers, one after the other."""


class Client(threading.Thread):
    """A client that continues until it is stopped. `busy` is held while it does something."""

    def __init__(self, line: Line, number: int, stop: threading.Event) -> None:
        super().__init__(name=f"client-{number}")
        self.line = line
        self.stop = stop
        self.busy = threading.Lock()
        self.chance = random.Random(SEED + number)
        self.keys = count((number + 1) * 1_000_000)
        self.error: BaseException | None = None

    def run(self) -> None:
        """Does a list of things in turn."""
        try:
            while not self.stop.wait(0.01):
                with self.busy:
                    self.do_one()
        except BaseException as error:
            self.error = error
            raise

    def do_one(self) -> None:
        """Does a single thing."""
        raise NotImplementedError

    def act(self, name: str, version: int) -> Act | None:
        """An operation on a version; None if it has no rows for it."""
        picks = [self.chance.randrange(10_000) for _ in range(self.chance.randint(1, 4))]
        return ACTS[name](Choice(self.line.rows(version), picks, self.keys, self.line.at(version)))


class Writer(Client):
    """Proposes changes of rows, some on a version that isn't the newest, some twice."""

    def __init__(self, line: Line, number: int, stop: threading.Event, proposer: Proposer) -> None:
        super().__init__(line, number, stop)
        self.proposer = proposer

    def do_one(self) -> None:
        name = self.chance.choice(WRITERS)
        read = max(2, self.line.newest() - self.chance.choice([0, 0, 1, 2]))
        act = self.act(name, read)
        made = self.line.made(act, read) if act is not None else []
        if act is None or not made:
            return
        sent = Sent(name, self.line.envelope(made[0], read, act), act.effect)
        for _ in range(self.chance.choice([1, 1, 1, 1, 2])):
            self.line.note(self.proposer.send_wait(sent.envelope), sent)


class Foreigner(Client):
    """Commits by pylance."""

    def do_one(self) -> None:
        act = self.act(self.chance.choice(FOREIGN), self.line.newest())
        if act is not None:
            self.line.commit(act)
        self.stop.wait(self.chance.uniform(0, 0.5))


class Keeper(Client):
    """Keeps house by the log: does each thing until it is committed, then makes a branch and ends."""

    def __init__(self, line: Line, proposer: Proposer, others: list[Client], waiter: OutcomeWaiter) -> None:
        super().__init__(line, 0, threading.Event())
        self.proposer = proposer
        self.others = others
        self.waiter = waiter
        self.side = Line(line.root / "tree" / "side", line.uri, line.scratch / "side", "side")

    def do_one(self) -> None:
        for name in KEEPING:
            if not self.did(name):
                with self.others_waiting():
                    assert self.did(name), f"{name}, while the others wait"
        with self.others_waiting():
            # The writers' chances may have had each of an operation refused, and no two that meet in a row.
            # What these append lies in small fragments, so that there is something to compact.
            for name in (*sorted(set(WRITERS)), "compact"):
                assert self.did(name), f"{name}, while the others wait"
            self.update_a_row_twice()
        self.branch_off()
        self.stop.set()

    @contextmanager
    def others_waiting(self) -> Iterator[None]:
        """The other clients wait meanwhile."""
        with ExitStack() as stack:
            for client in self.others:
                stack.enter_context(client.busy)
            yield

    def did(self, name: str) -> bool:
        """Whether it is committed, built on what is the newest version once all that was sent is answered."""
        self.line.wait_for_last(self.waiter, ANSWER_SECONDS)
        read = self.line.newest()
        act = self.restoration(read) if name == "restore" else self.act(name, read)
        made = self.line.made(act, read) if act is not None else []
        assert act is not None
        for position, transaction in enumerate(made):
            reserves = transaction.HasField("reserve_fragments")
            envelope = self.line.envelope(transaction, read)
            if transaction.HasField("rewrite"):
                # pylance's compaction keeps the order of rows, so deletes are carried over it.
                envelope.lance.transaction_properties[ROW_ORDER] = KEPT
            sent = (
                Sent("reserve", envelope, Effect("compact")) if reserves else Sent(name, envelope, act.effect)
            )
            result = self.propose(self.line, sent)
            if not isinstance(result, Committed):
                assert isinstance(result, Rejected), result
                return False
            if reserves and result.first_fragment_id != _first_new_id(made[position + 1]):
                return False
        return True

    def update_a_row_twice(self) -> None:
        """Two updates of a row by writers that don't know each other: the later one is refused."""
        self.line.wait_for_last(self.waiter, ANSWER_SECONDS)
        read = self.line.newest()
        results: list[Result] = []
        for _ in range(2):
            act = ACTS["update"](Choice(self.line.rows(read), [0], self.keys, self.line.at(read)))
            assert act is not None
            (made,) = self.line.made(act, read)
            sent = Sent("update", self.line.envelope(made, read, act), act.effect)
            results.append(self.propose(self.line, sent))
        assert isinstance(results[0], Committed), results
        assert isinstance(results[1], Rejected), results
        assert results[1].conflict.row_addresses, results

    def restoration(self, read: int) -> Act:
        """Back to the version two before the last."""
        version = read - 2
        return Act(lambda ds: self.restored(ds, version), Effect("restore", restores=version))

    @staticmethod
    def restored(dataset: lance.LanceDataset, version: int) -> None:
        lance.dataset(dataset.uri, version=version).restore()

    def branch_off(self) -> None:
        """A branch, and three proposals on it that know nothing of each other."""
        begin = self.line.newest()
        transaction = Transaction(uuid="branch", read_version=begin)
        clone = transaction.clone
        clone.is_shallow, clone.ref_version, clone.branch_name = True, begin, self.side.branch
        clone.ref_path = str(self.line.root)
        begun = Sent("clone", self.side.envelope(transaction, begin), Effect("config"))
        assert isinstance(self.propose(self.side, begun), Committed)
        acts = [
            ACTS[name](Choice(self.side.rows(begin), picks, self.keys, self.side.at(begin)))
            for name, picks in (("append", [1, 2]), ("delete", [0, 5]), ("delete", [3, 6]))
        ]
        for act in acts:
            assert act is not None
            (made,) = self.side.made(act, begin)
            sent = Sent("on the branch", self.side.envelope(made, begin, act), act.effect)
            assert isinstance(self.propose(self.side, sent), Committed)

    def delete_every(self, step: int, first: int) -> None:
        """A Delete of some of the first rows, by a writer that knows the newest version."""
        read = self.line.newest()
        rows, dataset = self.line.rows(read), self.line.at(read)
        act = ACTS["delete"](Choice(rows, range(first, MEETING_ROWS, step), self.keys, dataset))
        assert act is not None
        (made,) = self.line.made(act, read)
        sent = Sent("delete", self.line.envelope(made, read, act), act.effect)
        self.line.note(self.proposer.send_wait(sent.envelope), sent)

    def propose(self, line: Line, sent: Sent) -> Result:
        """Sends it and waits for what becomes of it."""
        position = self.proposer.send_wait(sent.envelope)
        line.note(position, sent)
        return self.waiter.wait(position, sent.envelope, ANSWER_SECONDS).result


def _first_new_id(rewrite: Transaction) -> int:
    return min(fragment.id for group in rewrite.rewrite.groups for fragment in group.new_fragments)


def _rows_to_begin_with() -> Act:
    """Fragments that are large enough for many to meet in them."""
    rows = [values_of(key, FIRST_COLUMNS) for key in range(FRAGMENTS * ROWS)]

    def run(dataset: lance.LanceDataset) -> object:
        return lance.write_dataset(table_of(rows, SCHEMA), dataset, mode="append", max_rows_per_file=ROWS)

    return Act(run, Effect("append", adds=tuple(rows)))


class Moment:
    """When to kill: after some versions, or as soon as a file exists that a version will need."""

    def __init__(self, line: Line, *, versions: int, at_file: bool = False) -> None:
        self._line = line
        self._at_file = at_file
        self._wanted = line.newest() + versions
        self._files = len(self._joined())

    def has_come(self, failed: Callable[[], bool]) -> bool:
        """Whether it is now, or a client has failed."""
        if failed():
            return True
        if self._at_file:
            return len(self._joined()) > self._files
        return self._line.newest() >= self._wanted

    def _joined(self) -> list[Path]:
        return list((self._line.root / "_deletions").glob("*.bin"))


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_every_operation_is_there_once_or_not_at_all_whoever_dies(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, *, stable: bool, all_faults: bool
) -> None:
    kills = ALL_KILLS if all_faults else KILLS
    config = KafkaConfig(bootstrap)
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    ensure_topics(patient_admin(config), topics)
    line = Line(tmp_path / "table", canonical(str(tmp_path / "table")), tmp_path / "copies")
    log = Log(config, topics.transactions, describe(patient_admin(config), topics.transactions).log_id(0))
    running = partial(running_committer, bootstrap, topic_names, tmp_path)
    with ExitStack() as stack:
        proposer = stack.enter_context(Proposer(config, topics))
        waiter, keepers = (stack.enter_context(OutcomeWaiter(config, topics, line.uri)) for _ in range(2))
        with running():
            _begin(line, proposer, waiter, stable=stable)
        stop = threading.Event()
        others: list[Client] = [Writer(line, number, stop, proposer) for number in (1, 2)]
        others.append(Foreigner(line, 3, stop))
        keeper = Keeper(line, proposer, others, keepers)
        try:
            for client in (*others, keeper):
                client.start()
            _kill_again_and_again(keeper, others, log, waiter, running, kills)
        finally:
            stop.set()
            keeper.stop.set()
            for client in (*others, keeper):
                client.join()
    assert [client.error for client in (*others, keeper)] == [None] * 4
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    _check(line, keeper.side, [outcome for _, outcome in read_outcomes(patient_admin(config), topics, 0, 0)])
    check_replay(bootstrap, line, keeper.side)


def _begin(line: Line, proposer: Proposer, waiter: OutcomeWaiter, *, stable: bool) -> None:
    """The table, and its first rows."""
    created = Sent("create", creation(line.uri, SCHEMA, stable_row_ids=stable), Effect("overwrite"))
    position = proposer.send_wait(created.envelope)
    line.note(position, created)
    assert waiter.wait(position, created.envelope, ANSWER_SECONDS).result == Committed(1)
    act = _rows_to_begin_with()
    (made,) = line.made(act, 1)
    first = Sent("append", line.envelope(made, 1), act.effect)
    position = proposer.send_wait(first.envelope)
    line.note(position, first)
    assert waiter.wait(position, first.envelope, ANSWER_SECONDS).result == Committed(
        2, rows_added=FRAGMENTS * ROWS, num_fragment_ids=FRAGMENTS
    )


def _kill_again_and_again(
    keeper: Keeper, others: list[Client], log: Log, waiter: OutcomeWaiter, running: Running, kills: int
) -> None:
    """Committers live until the table has grown, and die; the last committer until the keeper is done."""
    line = keeper.line

    def failed() -> bool:
        return any(client.error for client in (keeper, *others))

    with ExitStack() as alone:
        for life in range(kills):
            first = Moment(line, versions=1)
            with running() as committer:
                committer.wait_until_ready()
                until(partial(first.has_come, failed), "the first version of a committer")
                alone.close()
                moment = Moment(line, versions=VERSIONS_A_LIFE, at_file=life % 4 == 0)
                until(partial(moment.has_come, failed), "the table to grow", every=0.002)
                if life % 2:
                    # A version of anybody else's would have the files that are left here meet no others.
                    for client in others:
                        alone.enter_context(client.busy)
                    line.wait_for_last(waiter, ANSWER_SECONDS)
                committer.kill()
            if life % 2:
                _die_between_files_and_version(keeper, log)
        last = Moment(line, versions=1)
        with running():
            until(partial(last.has_come, failed), "the last committer's first version")
            alone.close()
            until(lambda: not keeper.is_alive() or failed(), "the keeper", seconds=KEEPER_SECONDS)


def _die_between_files_and_version(keeper: Keeper, log: Log) -> None:
    """Committers that get as far as the files of a version, each with a bit more of the log.

    If the keeper has sent something meanwhile, a committer publishes that first, and dies before it reports.
    """
    line = keeper.line
    owned = line.opened(line.storage)
    for group in groups_of(log.entries(owned.table.marks, line), FORMAT, TOGETHER):
        owned.fold(group)
    for number in range(MEETING):
        keeper.delete_every(MEETING, number)
    (group, *_) = groups_of(log.entries(owned.table.marks, line), FORMAT, TOGETHER)
    for number in range(1, len(group)):
        with pytest.raises(Died):
            line.opened(Dying(line.root)).fold(group[:number])


class Died(BaseException):
    """A process ended here: nothing of it may catch this."""


class Dying(LocalStorage):
    """A disk on which a committer gets as far as the files of its next version."""

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """See `Storage.put_once_sure`."""
        if path.endswith(".manifest"):
            raise Died
        return super().put_once_sure(path, buffers, sure)


@dataclass(frozen=True)
class Log:
    """The log, for who reads it beside the committers."""

    config: KafkaConfig
    topic: str
    id: LogId

    def entries(self, marks: Marks, line: Line) -> list[Entry]:
        """The entries in it for a branch that are not folded yet."""
        entries: list[Entry] = []
        with PartitionReader(
            patient_admin(self.config), self.topic, self.id, marks.offset_of(self.id) + 1
        ) as reader:
            end = reader.end_offset()
            while reader.position < end:
                for message in reader.poll(1000, 1):
                    entry = decode(
                        message.value,
                        message.key,
                        Position(self.id, message.offset, self.topic),
                        message.time_us,
                    )
                    assert isinstance(entry, Entry)
                    entries.append(entry)
        return [entry for entry in entries if entry.envelope.branch == line.branch]


def _check(line: Line, side: Line, reported: list[Outcome]) -> None:
    outcomes = {outcome.position.offset: outcome for outcome in reported}
    assert len(outcomes) == len(reported), "one outcome for each position"
    assert sorted(outcomes) == sorted([*line.sent, *side.sent])
    line.check(outcomes)
    begin = side.versions.numbers()[0]
    side.model[begin - 1] = line.model[begin]
    side.check(outcomes)
    assert list(line.at(line.newest()).branches.list()) == [side.branch]
    done = {sent.name for at, sent in line.sent.items() if isinstance(outcomes[at].result, Committed)}
    assert done >= {*WRITERS, *KEEPING, "reserve"}
