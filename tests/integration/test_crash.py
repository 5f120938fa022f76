"""Whenever the committer dies, nothing is lost or doubled (every-entry-answered, at-most-once-per-key)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import lance

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.lance.format import LanceFormat
from lakefold_table.marks.record import decode_record
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import Versions
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.own_log import patient_admin
from tests.proposals import append, creation, ids_in, remove_files_of, rows
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position
    from tests.integration.conftest import TopicNames

KILLS = 6
BATCHES = 75
LONGER = 2
"""How many times as many of both there are in `make test-faults`."""
ROWS = 3
LONGEST_LIFE_SECONDS = 1.2
SEED = 20_260_101


class Producer(threading.Thread):
    """Sends batches of its own app: some twice, some that must be refused."""

    def __init__(
        self, proposer: Proposer, uri: str, number: int, batches: int, paced: threading.Event
    ) -> None:
        super().__init__(name=f"producer-{number}")
        self._proposer = proposer
        self._uri = uri
        self._number = number
        self._batches = batches
        self._paced = paced
        self._random = random.Random(SEED + number)
        self.sent: dict[Position, str] = {}
        self.ids: set[int] = set()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Sends all of it, slowly enough to outlive some committers."""
        try:
            for batch in range(self._batches):
                self._send_batch(batch)
                self._paced.wait(0.04)
        except BaseException as error:
            self.error = error
            raise

    def _send_batch(self, batch: int) -> None:
        app = f"producer-{self._number}"
        first = (self._number * self._batches + batch) * ROWS
        kind = self._random.choice(["good", "good", "good", "good", "twice", "missing", "future"])
        if kind == "missing":
            bad = append(self._uri, rows([-1]), 1, app, self._batches + batch)
            remove_files_of(bad)
            self.sent[self._proposer.send_wait(bad)] = "invalid"
        elif kind == "future":
            bad = append(self._uri, rows([-2]), 1, app, self._batches + batch)
            bad.lance.read_version = 1_000_000
            self.sent[self._proposer.send_wait(bad)] = "invalid"
        good = append(self._uri, rows(range(first, first + ROWS)), 1, app, batch)
        self.ids.update(range(first, first + ROWS))
        self.sent[self._proposer.send_wait(good)] = "committed"
        if kind == "twice":
            self.sent[self._proposer.send_wait(good)] = "duplicate"


def test_a_committer_killed_at_random_moments_loses_and_doubles_nothing(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, *, all_faults: bool
) -> None:
    times = LONGER if all_faults else 1
    config = KafkaConfig(bootstrap)
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    uri = canonical(str(tmp_path / "table"))
    with running_committer(bootstrap, topic_names, tmp_path) as first:
        first.wait_until_ready()
        with Proposer(config, topics) as proposer:
            created = proposer.send_wait(creation(uri))
            # The folder is there before its first file is, and a producer reads that.
            until(lambda: any((tmp_path / "table" / "_versions").glob("*.manifest")), "the table")
            producers = _kill_again_and_again(proposer, bootstrap, topic_names, tmp_path, uri, times)
    fold_to_the_end(bootstrap, topic_names, tmp_path)

    expected = {created: "committed"} | producers[0].sent | producers[1].sent
    outcomes = [outcome for _, outcome in read_outcomes(patient_admin(config), topics, 0, 0)]
    _each_position_has_one_outcome(outcomes, expected)
    assert ids_in(uri) == sorted(producers[0].ids | producers[1].ids)
    _positions_grow(uri)


def _kill_again_and_again(
    proposer: Proposer, bootstrap: str, names: TopicNames, root: Path, uri: str, times: int
) -> list[Producer]:
    """Lets committers live for random times while two producers send; returns the producers."""
    chance, paced = random.Random(SEED), threading.Event()
    producers = [Producer(proposer, uri, number, BATCHES * times, paced) for number in range(2)]
    for producer in producers:
        producer.start()
    for _ in range(KILLS * times):
        with running_committer(bootstrap, names, root) as committer:
            until(
                lambda: committer.is_ready() or committer.process.poll() is not None,
                "a committer",
                seconds=120,
                every=0.01,
            )
            threading.Event().wait(chance.uniform(0, LONGEST_LIFE_SECONDS))
            committer.kill()
    paced.set()
    for producer in producers:
        producer.join()
        assert producer.error is None
    return producers


def _each_position_has_one_outcome(outcomes: list[Outcome], expected: dict[Position, str]) -> None:
    reports = Counter(outcome.position for outcome in outcomes)
    assert set(reports) == set(expected)
    assert [position for position, count in reports.items() if count > 1] == []
    names = {Committed: "committed", Duplicate: "duplicate", Invalid: "invalid", Rejected: "rejected"}
    got = {outcome.position: names[type(outcome.result)] for outcome in outcomes}
    assert got == expected


def _positions_grow(uri: str) -> None:
    """Each version covers positions after those of the version before, and says so in marks and record."""
    table_format = LanceFormat()
    versions = Versions(open_storage(uri), table_format.folder, table_format.detect)
    covered = -1
    for number in versions.numbers():
        state = table_format.decode(versions.path(number), versions.read(number), uri)
        record = decode_record(state.properties, uri)
        assert record is not None
        if record.last_offset >= record.first_offset:
            assert record.first_offset > covered
            covered = record.last_offset
    dataset = lance.dataset(str(versions.storage.uri).removeprefix("file://"))
    assert dataset.version == versions.latest()
