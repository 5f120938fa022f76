"""What a committer does while connections are cut, and what must be true afterwards, whatever was cut.

Everything but the act itself goes to the broker directly, so that a cut can only meet the act.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import lance
import pytest
from lance.fragment import write_fragments

import lakefold
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer, Options
from lakefold_committer.tables.branches import located
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.codec.envelope import encode
from lakefold_log.write.reporter import Reporter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.errors import FencedError, LakefoldError, StopError
from lakefold_table.marks.record import decode_record
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import LISTED, data_file, metadata, text
from tests.integration.own_log import OwnLog
from tests.integration.stage import Stage, folding
from tests.proposals import creation, ids_in, remove_files_of, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from confluent_kafka import KafkaError, Producer

    from lakefold_table.entry import Outcome, Result
    from tests.delta_logs.actions import Members
    from tests.integration.conftest import TopicNames
    from tests.servers.kafka_relay import RelayedBroker

ACT_SECONDS: Final = 180.0
"""How long an act may take with one connection cut: longer, and it is parked for ever."""


@dataclass
class Scene:
    """The topics and the tables of an act. `expected`: the kind of outcome of each offset that was sent.

    `ids`: of the rows in the table; `delta_ids`: of those in the Delta table beside it, if there is one.
    """

    broker: RelayedBroker
    producer: Producer
    names: TopicNames
    root: Path
    expected: dict[int, type[Result]] = field(default_factory=dict)
    ids: set[int] = field(default_factory=set)
    delta_ids: set[int] = field(default_factory=set)

    @property
    def topics(self) -> Topics:
        return Topics(self.names.transactions, self.names.outcomes, self.names.dead_letters)

    @property
    def direct(self) -> Stage:
        """The stage as it is reached past the relay."""
        own = OwnLog.make(self.broker.bootstrap_servers, self.names)
        return Stage(self.broker.bootstrap_servers, self.names, own, self.root)

    @property
    def table(self) -> Path:
        return self.root / "table"

    @property
    def delta_table(self) -> Path:
        return self.root / "delta"

    def begin(self) -> None:
        """Make the topics and the table, and send two batches."""
        stage = self.direct
        self.send(creation(canonical(self.table)), Committed)
        stage.fold()
        self.send_batches(0, 1)

    def send(self, envelope: Envelope, expected: type[Result] | None) -> None:
        """Send a proposal that is to end so (None: that is to wait)."""
        delivered: list[KafkaError | None] = []
        self.producer.produce(
            self.names.transactions,
            encode(envelope),
            envelope.table.encode(),
            0,
            on_delivery=lambda error, _: delivered.append(error),
        )
        assert self.producer.flush(ACT_SECONDS) == 0
        assert delivered == [None]
        if expected is not None:
            self.expected[len(self.expected)] = expected

    def send_batches(self, *numbers: int) -> None:
        """Send a good batch of each number."""
        for number in numbers:
            self.send(self.batch(number), Committed)
            self.ids.add(number)

    def batch(self, number: int) -> Envelope:
        """A batch of a single row, its file written."""
        envelope = Envelope(table=canonical(self.table), app_id="app", batch_id=number)
        envelope.lance.uuid = str(uuid.uuid4())
        envelope.lance.read_version = 1
        for fragment in write_fragments(rows([number]), str(self.root / "written"), mode="create"):
            added = envelope.lance.append.fragments.add(physical_rows=fragment.physical_rows)
            for file in fragment.files:
                (self.table / "data").mkdir(parents=True, exist_ok=True)
                (self.root / "written" / "data" / file.path).rename(self.table / "data" / file.path)
                added.files.add(
                    path=file.path,
                    fields=file.fields,
                    column_indices=file.column_indices,
                    file_major_version=file.file_major_version,
                    file_minor_version=file.file_minor_version,
                )
        return envelope

    def send_delta(self) -> None:
        """Send to the same partition a Delta table, two batches of it, one of them again, and a bad one."""
        self.send(self.delta_proposal(LISTED, metadata()), Committed)
        for number, expected in ((1, Committed), (2, Committed), (1, Duplicate)):
            added = data_file(self.delta_table, f"{number}.parquet", number)
            self.send(self.delta_proposal(added, batch=number), expected)
            self.delta_ids.add(number)
        missing = data_file(self.delta_table, "missing.parquet", 3)
        (self.delta_table / "missing.parquet").unlink()
        self.send(self.delta_proposal(missing, batch=3), Invalid)

    def delta_proposal(self, *actions: Members, batch: int | None = None) -> Envelope:
        """What changes the Delta table. `batch`: the number of a batch of an application."""
        envelope = Envelope(table=canonical(self.delta_table))
        if batch is not None:
            envelope.app_id, envelope.batch_id = "app", batch
        envelope.delta.actions = text(actions)
        return envelope

    def fold_behind_relay(self) -> None:
        """Fold to the log's end as a committer that reaches the broker through the relay.

        Raises what ends the committer, and `TimeoutError` if nothing does.
        """
        config = KafkaConfig(self.broker.relayed_servers)
        # What it asks from time to time would be counted in a clean run that takes longer.
        seldom_s = 3600.0
        options = Options(
            config,
            self.topics,
            (canonical(self.root),),
            group=self.names.group,
            policies_every_s=seldom_s,
            held_back_every_s=seldom_s,
        )
        errors: list[BaseException] = []
        committer = Committer(options, Metrics())

        def run() -> None:
            try:
                committer.run(until_caught_up=True)
            except LakefoldError as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="behind the relay", daemon=True)
        thread.start()
        thread.join(ACT_SECONDS)
        if thread.is_alive():
            committer.stop()
            raise TimeoutError(f"the committer does not end: {committer.trouble}")
        if errors:
            # In the list, the error would keep this frame, and with it the committer and all its clients.
            raise errors.pop()

    def check(self) -> None:
        """Each proposal was answered once, as it had to be and with the version that holds it; rows once."""
        self.check_versions(self.check_answers())

    def check_answers(self) -> list[Outcome]:
        """Each proposal was answered once, and as it had to be; each row is there once."""
        outcomes = self.direct.outcomes()
        counter = Counter(outcome.position.offset for outcome in outcomes)
        assert [offset for offset, count in counter.items() if count > 1] == []
        kinds = {outcome.position.offset: type(outcome.result) for outcome in outcomes}
        assert kinds == self.expected
        assert ids_in(canonical(self.table)) == sorted(self.ids)
        if self.delta_ids:
            rows_of_delta = lakefold.open(self.delta_table).to_arrow()["x"].to_pylist()
            assert sorted(rows_of_delta) == sorted(self.delta_ids)
        return outcomes

    def check_versions(self, outcomes: Iterable[Outcome]) -> None:
        """Each version says what was answered of it."""
        for outcome in outcomes:
            if isinstance(outcome.result, Committed):
                stored = located(TableAddress(outcome.table), "")
                number = outcome.result.version
                state = stored.read_state(number)
                record = decode_record(state.properties, stored.uri)
                assert record is not None
                assert record.committed[outcome.position.offset] == outcome.result


@dataclass(frozen=True, slots=True)
class Act:
    """`prepare` and `check` go past the relay; connections are cut during `play`."""

    name: str
    prepare: Callable[[Scene], None]
    play: Callable[[Scene], None]
    check: Callable[[Scene], None]


def _fold(scene: Scene) -> None:
    scene.fold_behind_relay()


def _start_and_fold(scene: Scene) -> None:
    """The topics were made during the act; what is sent afterwards is folded into a table of theirs."""
    scene.begin()
    scene.direct.fold()
    scene.check()


def _send_all_kinds(scene: Scene) -> None:
    scene.begin()
    scene.send(scene.batch(1), Duplicate)
    missing = scene.batch(7)
    remove_files_of(missing)
    scene.send(missing, Invalid)
    scene.send_delta()
    scene.send_batches(2)


def _take_over(scene: Scene) -> None:
    """Another committer has answered all, and still runs, when this committer begins."""
    with folding(scene.direct) as (errors, _):
        until(lambda: len(scene.direct.own.answers()) == len(scene.expected), "answers", seconds=ACT_SECONDS)
        scene.fold_behind_relay()
    assert [error for error in errors if not isinstance(error, FencedError)] == []


class _DiedError(StopError):
    """A committer ends here as if it were killed."""


def _die_before_the_report(scene: Scene) -> None:
    """The versions exist, and no committer has reported them."""
    _send_all_kinds(scene)

    def die(*_: object) -> int:
        raise _DiedError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "report", die)
        with pytest.raises(_DiedError):
            scene.direct.fold()
    assert len(scene.direct.own.answers()) < len(scene.expected)


def _set_back(scene: Scene) -> None:
    """The table is a copy from before its last version."""
    scene.begin()
    scene.direct.fold()
    copy = scene.root / "copy"
    shutil.copytree(scene.table, copy)
    scene.send_batches(2)
    scene.direct.fold()
    shutil.rmtree(scene.table)
    copy.rename(scene.table)
    scene.send(scene.batch(3), None)
    scene.ids.discard(2)


def _take_away(scene: Scene) -> None:
    """The table's store is away."""
    scene.begin()
    scene.direct.fold()
    batch = scene.batch(3)
    scene.table.rename(scene.root / "away")
    scene.send(batch, None)


def _is_parked(scene: Scene) -> None:
    with pytest.raises(StopError):
        scene.fold_behind_relay()


def _check_left_alone(scene: Scene) -> None:
    """Nothing was answered or folded since the table was set back."""
    scene.check_answers()
    assert lance.dataset(str(scene.table)).version == 2


def _check_brought_back(scene: Scene) -> None:
    (scene.root / "away").rename(scene.table)
    scene.check()


ACTS: Sequence[Act] = (
    Act("start", lambda _: None, _fold, _start_and_fold),
    Act("report", _send_all_kinds, _fold, Scene.check),
    Act("take-over", Scene.begin, _take_over, Scene.check),
    Act("recovery", _die_before_the_report, _fold, Scene.check),
    Act("set back", _set_back, _is_parked, _check_left_alone),
    Act("store away", _take_away, _is_parked, _check_brought_back),
)
