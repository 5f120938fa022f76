"""Writers of the same keys take turns: in several processes, and beside one that was killed.

Promises: refused-first (docs/operations/promises.md).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

import lakefold
from lakefold.branching import ref_proposals
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.revert.batch_revert import RevertBatches
from lakefold_ingest.writing.log_client import LogClient, close_clients
from tests.integration.own_log import PATIENCE_S
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier, Event
    from pathlib import Path

    from lakefold.console.settings import BrokerOptions
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.turns import Turn
    from lakefold_protos.lakefold.log_pb2 import Envelope

SPAWN = multiprocessing.get_context("spawn")
WRITERS, KEYS, UPSERTS = 6, 8, 15
OF_ANY_ROW = 3
"""The most tries of a batch that may meet any row, beside two writers that have each begun a batch before."""
SLOW_S = 1.5
"""How many seconds a slow batch waits for another one that comes first. Less than the shortest turn."""
ALL_OVERTAKE = WRITERS + 1
"""The most tries if each other writer overtakes a refused one, by an upsert that it had begun before."""


def rows(ids: list[int], number: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "number": pa.array([number] * len(ids), pa.int64())})


def write_all(
    table: Path, options: lakefold.WriteOptions, number: int, begin: Barrier, tries: Queue[list[int]]
) -> None:
    generator = random.Random(number)
    lakefold.upsert(table, rows([0]), keys="id", **options)
    begin.wait(PATIENCE_S)
    batches = [rows(generator.sample(range(KEYS), 4), count) for count in range(UPSERTS)]
    tries.put([lakefold.upsert(table, batch, keys="id", **options).attempts for batch in batches])


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_writers_of_the_same_keys_take_turns(
    options: lakefold.WriteOptions, tmp_path: Path, table_format: str
) -> None:
    table = tmp_path / "t"
    given: lakefold.WriteOptions = {**options, "format": table_format}
    lakefold.append(table, rows(list(range(KEYS))), **given)
    begin, results = SPAWN.Barrier(WRITERS), SPAWN.Queue()
    processes = [
        SPAWN.Process(target=write_all, args=(table, options, number, begin, results))
        for number in range(WRITERS)
    ]
    for process in processes:
        process.start()
    tries = [each for _ in processes for each in results.get(timeout=10 * PATIENCE_S)]
    for process in processes:
        process.join(PATIENCE_S)
    assert len(tries) == WRITERS * UPSERTS
    assert max(tries) <= ALL_OVERTAKE
    assert sorted(row["id"] for row in lakefold.open(table).to_arrow().to_pylist()) == list(range(KEYS))


def upsert_until(table: Path, options: lakefold.WriteOptions, begin: Barrier, end: Event) -> None:
    lakefold.upsert(table, rows([0]), keys="id", **options)
    begin.wait(PATIENCE_S)
    number = 1
    while not end.is_set():
        lakefold.upsert(table, rows([0, 1], number := number + 1), keys="id", **options)


def test_what_may_meet_any_row_is_let_in_by_a_stream_of_upserts(
    options: lakefold.WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upsert replaces the table's only file, and is faster than what changes or restores other rows."""
    table, tries = tmp_path / "t", list[object]()

    def slowly(build: Callable[..., Any]) -> Callable[..., Any]:
        def built(*given: Any) -> Any:  # noqa: ANN401 - any builder's
            tries.append(build)
            version, result = lakefold.open(table).version, build(*given)
            with suppress(TimeoutError):
                until(lambda: lakefold.open(table).version > version, "another version", seconds=SLOW_S)
            return result

        return built

    given: lakefold.WriteOptions = {**options, "format": "delta"}
    lakefold.append(table, rows(list(range(KEYS))), **given)
    whole = lakefold.open(table).version
    lakefold.delete(table, rows=rows([6, 7]), keys="id", app_id="app", batch_id=1, **options)
    begin, end = SPAWN.Barrier(3), SPAWN.Event()
    writers = [SPAWN.Process(target=upsert_until, args=(table, options, begin, end)) for _ in range(2)]
    for writer in writers:
        writer.start()
    broker = cast("BrokerOptions", options)
    for owner, name in ((RevertBatches, "build"), (DeleteWhere, "build"), (ref_proposals, "restoring")):
        monkeypatch.setattr(owner, name, slowly(getattr(owner, name)))
    begin.wait(PATIENCE_S)
    lakefold.revert(table, ["app:1"], **broker)
    assert len(tries) <= OF_ANY_ROW
    lakefold.restore(table, version=whole, **broker)
    assert len(tries) <= 2 * OF_ANY_ROW
    assert lakefold.delete(table, where="id > 5", **options).attempts <= OF_ANY_ROW
    end.set()
    for writer in writers:
        writer.join(PATIENCE_S)
        assert writer.exitcode == 0


def be_killed_once_refused(table: Path, options: lakefold.WriteOptions, built: Event, go_on: Event) -> None:
    build, propose, builds = UpsertRows.build, LogClient.propose, list[int]()

    def build_once(operation: UpsertRows, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        if builds:
            os.kill(os.getpid(), signal.SIGKILL)
        builds.append(1)
        return build(operation, view, key, settings)

    def propose_late(*arguments: object, **options: object) -> object:
        built.set()
        go_on.wait(PATIENCE_S)
        return propose(*arguments, **options)  # type: ignore[arg-type]

    UpsertRows.build, LogClient.propose = build_once, propose_late  # type: ignore[method-assign,assignment]
    lakefold.upsert(table, rows([1], 7), keys="id", **options)


def test_a_refused_writer_that_was_killed_loses_its_turn(
    options: lakefold.WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upserts of its keys wait for it for a while; those of other keys don't wait."""
    table, built, go_on = tmp_path / "t", SPAWN.Event(), SPAWN.Event()
    lakefold.upsert(table, rows([1, 2, 3, 4]), keys="id", **options)
    process = SPAWN.Process(target=be_killed_once_refused, args=(table, options, built, go_on))
    process.start()
    assert built.wait(PATIENCE_S)
    lakefold.upsert(table, rows([1], 1), keys="id", **options)
    go_on.set()
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL
    await_turn, waits, longest = LogClient.await_turn, list[bool](), list[float]()

    def noted(
        client: LogClient, table: str, partition: int | None, turn: Callable[[], Turn], timeout_s: float
    ) -> float:
        waited_s = await_turn(client, table, partition, turn, timeout_s)
        waits.append(waited_s > 0)
        longest.append(timeout_s)
        return waited_s

    monkeypatch.setattr(LogClient, "await_turn", noted)
    assert lakefold.upsert(table, rows([2, 3], 2), keys="id", **options).attempts == 1
    assert waits == [False]
    # A new client hears of the refusal as if it had just come, once it has built its first batch.
    close_clients()
    options = {**options, "timeout": 30.0}
    assert lakefold.upsert(table, rows([1, 4], 3), keys="id", **options).attempts == 1
    assert max(longest[1:]) == 30.0
    assert waits == [False, True, False]
