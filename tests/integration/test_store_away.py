"""A store that is full, read-only or away: the committer says why, and refuses no proposal for it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_log.client.topics import ensure_topics
from lakefold_log.write.producer import Proposer
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.disks import FailingDisk, small_disk
from tests.integration.ledger import ROWS, Ledger, each_position_has_one_outcome
from tests.integration.own_log import patient_admin
from tests.proposals import ids_in
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames
    from tests.integration.disks import Disk

TABLES = 4
ROUND = 4
"""How many batches are sent while the store is away."""


@dataclass
class Store:
    """A table on a disk of its own, and batches whose files are written already."""

    ledger: Ledger
    disk: Disk
    proposer: Proposer
    logs: Path
    batches: list[tuple[Envelope, range]]

    @property
    def table(self) -> Path:
        return self.disk.folder / "table"

    @contextmanager
    def committer(self) -> Iterator[CommitterProcess]:
        """A committer that has come to fold."""
        ledger = self.ledger
        with running_committer(
            ledger.bootstrap,
            ledger.names,
            ledger.root,
            logs=self.logs,
            interpreter=self.disk.interpreter,
        ) as committer:
            committer.wait_until_ready()
            yield committer

    def send(self, count: int = ROUND) -> None:
        """The next batches."""
        for _ in range(count):
            envelope, ids = self.batches.pop()
            self.ledger.send(self.proposer, envelope, "committed", ids)

    def wait(self) -> None:
        """Until all is answered."""
        expected = self.ledger.expected.keys()
        until(
            lambda: expected <= {outcome.position for outcome in self.ledger.outcomes()},
            "all answers",
            seconds=120,
        )

    def check_waiting(self, committer: CommitterProcess, reason: str) -> None:
        """It says why the table waits, keeps running, and is ready: the table is parked, not the process."""

        def is_parked() -> bool:
            status, text = committer.get("/readyz")
            return status == 200 and reason in text and has_parked(committer, 1)

        until(is_parked, f"a word of {reason!r}", seconds=120)
        assert committer.get("/livez")[0] == 200

    def audit(self) -> None:
        """After all, each batch is there once."""
        ledger = self.ledger
        fold_to_the_end(ledger.bootstrap, ledger.names, ledger.root)
        ledger.audit()


def has_parked(committer: CommitterProcess, tables: int) -> bool:
    """Whether its metrics say that so many tables are parked."""
    return f'lakefold_parked_tables{{partition="0"}} {tables}.0' in committer.get("/metrics")[1]


@contextmanager
def begun(disk: Disk, bootstrap: str, names: TopicNames) -> Iterator[Store]:
    """A table with a batch, and the files of some more."""
    ledger = Ledger(bootstrap, names, disk.folder)
    ensure_topics(patient_admin(ledger.config), ledger.topics)
    logs = disk.folder.with_name("logs")
    logs.mkdir()
    with Proposer(ledger.config, ledger.topics) as proposer:
        ledger.create(proposer)
        fold_to_the_end(bootstrap, names, disk.folder)
        batches = [ledger.batch("app", number, 10 * number) for number in range(4 * ROUND)]
        store = Store(ledger, disk, proposer, logs, batches)
        store.send(1)
        yield store


def test_a_full_disk_holds_up_and_loses_nothing(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "lake") as disk, begun(disk, bootstrap, topic_names) as store:
        with store.committer() as committer:
            store.wait()
            before = sorted(path.name for path in store.table.rglob("*"))
            disk.fill()
            store.send()
            store.check_waiting(committer, "the disk is full")
            # An attempt that fails just now removes its file in a moment.
            until(lambda: sorted(path.name for path in store.table.rglob("*")) == before, "nothing half done")
            assert len(ids_in(store.ledger.uri)) == ROWS
            disk.mend()
            store.wait()
            until(committer.is_ready, "ready again")
            disk.fill()
            store.send()
            store.check_waiting(committer, "the disk is full")
            committer.kill()
            disk.mend()
        store.audit()


def nothing_left(table: Path) -> Callable[[], None]:
    table.rename(table.with_name("away"))
    return lambda: None


def an_empty_folder_left(table: Path) -> Callable[[], None]:
    """As if a file system were unmounted."""
    table.rename(table.with_name("away"))
    table.mkdir()
    return table.rmdir


def test_a_table_that_is_away_or_takes_no_writes_is_no_reason_to_refuse_anything(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path / "lake")
    disk.folder.mkdir()
    with begun(disk, bootstrap, topic_names) as store:
        table = store.table
        with store.committer() as committer:
            store.wait()
            for leave in (nothing_left, an_empty_folder_left):
                clear = leave(table)
                store.send()
                store.check_waiting(committer, "restore access to the table")
                assert not table.exists() or list(table.iterdir()) == [], "nothing is begun in its place"
                clear()
                table.with_name("away").rename(table)
                store.wait()
            held = ids_in(store.ledger.uri)
            disk.make_read_only()
            store.send()
            # Nothing mends itself there: it may leave as well, with a word of what to mend.
            until(lambda: "read-only" in committer.log.read_text(), "the reason", seconds=120)
            assert ids_in(store.ledger.uri) == held
            committer.kill()
            disk.mend()
        store.audit()


def test_a_table_that_is_away_holds_up_no_other_of_its_partition(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    ledgers = [Ledger(bootstrap, topic_names, tmp_path, f"t{number}") for number in range(TABLES)]
    away, *others = ledgers
    ensure_topics(patient_admin(away.config), away.topics)

    def answered(some: list[Ledger]) -> bool:
        return all(ledger.expected.keys() <= {at.position for at in ledger.outcomes()} for ledger in some)

    with (
        Proposer(away.config, away.topics) as proposer,
        running_committer(bootstrap, topic_names, tmp_path) as committer,
    ):
        committer.wait_until_ready()
        for ledger in ledgers:
            ledger.create(proposer)
        until(lambda: answered(ledgers), "the tables", seconds=120)
        batches = [
            (ledger, *ledger.batch("app", number, 10 * number))
            for number in range(ROUND)
            for ledger in ledgers
        ]
        (tmp_path / "t0").rename(tmp_path / "away")
        for ledger, envelope, ids in batches:
            ledger.send(proposer, envelope, "committed", ids)
        until(lambda: answered(others), "the other tables' answers", seconds=120)
        assert len(away.outcomes()) == 1
        (tmp_path / "away").rename(tmp_path / "t0")
        until(lambda: answered(ledgers), "all answers", seconds=120)
        assert committer.stop() == 0
    for ledger in ledgers:
        ledger.audit()


def test_a_table_that_is_away_when_a_committer_starts_is_waited_for(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """It finds no version; the outcomes report a version. Other tables of its partition continue."""
    away, other = ledgers = [Ledger(bootstrap, topic_names, tmp_path, f"t{number}") for number in range(2)]
    never = Ledger(bootstrap, topic_names, tmp_path, "never")
    ensure_topics(patient_admin(away.config), away.topics)

    def answered(some: list[Ledger]) -> bool:
        return all(ledger.expected.keys() <= {at.position for at in ledger.outcomes()} for ledger in some)

    with Proposer(away.config, away.topics) as proposer:
        for ledger in ledgers:
            ledger.create(proposer)
        fold_to_the_end(bootstrap, topic_names, tmp_path)
        batches = [
            (ledger, *ledger.batch("app", number, 10 * number))
            for number in range(ROUND)
            for ledger in ledgers
        ]
        stray, _ = away.batch("stray", 0, 0)
        stray.table = never.uri
        (tmp_path / "t0").rename(tmp_path / "away")
        for ledger, envelope, ids in batches:
            ledger.send(proposer, envelope, "committed", ids)
        never.send(proposer, stray, "invalid")
        with running_committer(bootstrap, topic_names, tmp_path) as committer:
            committer.wait_until_ready()
            until(lambda: answered([other, never]), "the other tables' answers", seconds=120)
            until(lambda: "its store can't be reached, or" in committer.log.read_text(), "a word of it")
            until(lambda: has_parked(committer, 1), "the parked table")
            assert len(away.outcomes()) == 1, "only its creation"
            assert not (tmp_path / "t0").exists(), "nothing is begun in its place"
            status = [
                "lakefold",
                "status",
                "--timeout",
                "120",
                "--bootstrap-servers",
                bootstrap,
                "--transactions-topic",
            ]
            status += [
                topic_names.transactions,
                "--root",
                str(tmp_path),
                "--http-port",
                str(committer.http_port),
            ]
            shown = subprocess.run(
                [sys.executable, "-m", *status], capture_output=True, text=True, check=True
            )
            assert f": {away.uri} (partition 0, offset " in shown.stdout
            assert f"; {ROUND} entries wait)" in shown.stdout
            assert "its store can't be reached, or the table was deleted" in shown.stdout
            assert f"lakefold drop {away.uri}" in shown.stdout
            (tmp_path / "away").rename(tmp_path / "t0")
            until(lambda: answered(ledgers), "all answers", seconds=120)
            until(lambda: "unparked" in committer.log.read_text(), "a word that it goes on")
            until(lambda: has_parked(committer, 0), "no parked table")
            assert committer.stop() == 0
    for ledger in ledgers:
        ledger.audit()
    each_position_has_one_outcome(never.outcomes(), never.expected)
