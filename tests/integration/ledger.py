"""What was sent to one table through a log, what must have become of it, and the audit that compares them.

After any faults of committers, brokers and disks the same must be true in the end: each position
has one outcome, of the kind that was to be expected; each row is there once; the versions cover positions in
their order; the log folded again gives the same versions; pylance finds no fault.
"""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING

import lance

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.read.outcomes import read_outcomes
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.lance.format import LanceFormat
from lakefold_table.marks.record import decode_record
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, local_path
from lakefold_table.versions.versions import Versions
from tests.integration.copies import command_line
from tests.integration.own_log import patient_admin
from tests.proposals import append, creation, ids_in, remove_files_of, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

    from lakefold_log.write.producer import Proposer
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position
    from tests.integration.conftest import TopicNames

KINDS = {Committed: "committed", Duplicate: "duplicate", Invalid: "invalid", Rejected: "rejected"}
ROWS = 3
A_WRITERS_IDS = 1_000_000


class Ledger:
    """All that was sent to one table. Threads may write into it at once."""

    def __init__(self, bootstrap: str, names: TopicNames, root: Path, table: str = "table") -> None:
        self.bootstrap = bootstrap
        self.names = names
        self.root = root
        self._folder = root / table
        self.uri = canonical(str(self._folder))
        self.expected: dict[Position, str] = {}
        self.ids: set[int] = set()

    @property
    def config(self) -> KafkaConfig:
        """How to reach the broker."""
        return KafkaConfig(self.bootstrap)

    @property
    def topics(self) -> Topics:
        """Where all was sent to."""
        return Topics(self.names.transactions, self.names.outcomes, self.names.dead_letters)

    @property
    def versions(self) -> Versions:
        """The table's versions."""
        table_format = LanceFormat()
        return Versions(open_storage(self.uri), table_format.folder, table_format.detect)

    def newest(self) -> int:
        """Returns the newest version, 0 if none exists."""
        return self.versions.latest()

    def contents(self) -> dict[str, bytes]:
        """The files of the table's versions, by name."""
        return {path.name: path.read_bytes() for path in (self._folder / "_versions").glob("*.manifest")}

    def create(self, proposer: Proposer) -> Position:
        """Send the table's creation."""
        return self.send(proposer, creation(self.uri), "committed")

    def send(
        self, proposer: Proposer, envelope: Envelope, expected: str, ids: Iterable[int] = ()
    ) -> Position:
        """Sends a proposal that must get this outcome and adds these rows."""
        position = proposer.send_wait(envelope)
        self.expected[position] = expected
        self.ids.update(ids)
        return position

    def batch(self, app: str, number: int, first: int, read: int = 1) -> tuple[Envelope, range]:
        """A batch of an app, its files written; its rows have ids from `first` on."""
        ids = range(first, first + ROWS)
        return append(self.uri, rows(ids), read, app, number), ids

    def outcomes(self) -> list[Outcome]:
        """All outcomes that were reported for the table, in their order."""
        return [outcome for outcome in self.all_outcomes() if outcome.table == self.uri]

    def all_outcomes(self) -> list[Outcome]:
        """Returns all reported outcomes of all tables, in their order."""
        return [outcome for _, outcome in read_outcomes(patient_admin(self.config), self.topics, 0, 0)]

    def audit(self) -> None:
        """Hold what came of it against what was sent. Every committer must have ended."""
        outcomes = self.outcomes()
        each_position_has_one_outcome(outcomes, self.expected)
        assert ids_in(self.uri) == sorted(self.ids)
        positions_grow(self.versions)
        self.check_replay()

    def check_replay(self) -> None:
        """The log gives every version of a committer's once more, whichever committer made it."""
        arguments = ["replay", self.uri, "--json", "--bootstrap-servers", self.bootstrap]
        done = command_line().run(arguments, timeout=200)
        assert done.returncode == 0, done.stderr + done.stdout
        document = [json.loads(line) for line in done.stdout.splitlines()]
        assert [each["version"] for each in document] == self.versions.numbers()
        assert {each["verdict"] for each in document} <= {"same", "foreign"}, document
        assert sum(each["verdict"] == "same" for each in document) > 1


def each_position_has_one_outcome(outcomes: Iterable[Outcome], expected: Mapping[Position, str]) -> None:
    """Every position that was sent was answered, once, and as it had to be."""
    got: dict[Position, str] = {}
    for outcome in outcomes:
        kind = KINDS[type(outcome.result)]
        assert outcome.position not in got, f"{outcome.position} was answered {got} and {kind}"
        got[outcome.position] = kind
    unlike = {
        position: (got.get(position), expected.get(position)) for position in got.keys() | expected.keys()
    }
    assert {position: both for position, both in unlike.items() if both[0] != both[1]} == {}


def positions_grow(versions: Versions) -> None:
    """Each version covers positions after those of the one before; pylance opens the same newest one."""
    table_format, uri = LanceFormat(), versions.storage.uri
    covered = -1
    for number in versions.numbers():
        state = table_format.decode(versions.path(number), versions.read(number), uri)
        record = decode_record(state.properties, uri)
        if record is not None and record.last_offset >= record.first_offset:
            assert record.first_offset > covered
            covered = record.last_offset
    assert lance.dataset(local_path(uri)).version == versions.latest()


class Writer(threading.Thread):
    """Sends batches of an app of its own until it is stopped: some twice, some that must be refused."""

    def __init__(self, ledger: Ledger, proposer: Proposer, number: int, pause_s: float = 0.03) -> None:
        super().__init__(name=f"writer-{number}")
        self._ledger = ledger
        self._proposer = proposer
        self._pause_s = pause_s
        self._app = f"writer-{number}"
        self._chance = random.Random(number)
        self._next_id = (number + 1) * A_WRITERS_IDS
        self._told_to_stop = threading.Event()
        self.batches = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Sends the batches in turn."""
        try:
            while not self._told_to_stop.wait(self._pause_s):
                self._send_batch()
                self.batches += 1
        except BaseException as error:
            self.error = error
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._told_to_stop.set()
        self.join()
        assert self.error is None

    def _send_batch(self) -> None:
        kind = self._chance.choice(["good", "good", "good", "good", "twice", "missing", "future"])
        send = self._ledger.send
        if kind in {"missing", "future"}:
            bad, _ = self._batch(1_000_000 + self.batches)
            if kind == "missing":
                remove_files_of(bad)
            else:
                bad.lance.read_version = 1_000_000
            send(self._proposer, bad, "invalid")
        good, ids = self._batch(self.batches)
        send(self._proposer, good, "committed", ids)
        if kind == "twice":
            send(self._proposer, good, "duplicate")

    def _batch(self, number: int) -> tuple[Envelope, range]:
        self._next_id += ROWS
        return self._ledger.batch(self._app, number, self._next_id)


def published_by(log: Path) -> Iterator[int]:
    """The versions that a committer says in its log to have published."""
    for line in log.read_text().splitlines():
        reported = json.loads(line) if line.startswith("{") else {}
        if reported.get("event") == "published":
            yield int(reported["version"])
