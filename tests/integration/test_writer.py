"""`lakefold.Writer` through a real log: many threads, failures of each part, and every row once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.client.topics import watermarks
from tests.integration.committers import fold_to_the_end, ready_committer, running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from lakefold.local.broker import Broker
    from tests.integration.conftest import TopicNames

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers), "s": [str(number) for number in numbers]}, schema=SCHEMA)


def numbers(table: Path) -> list[int]:
    """The column n of all rows in the order of the table, as pylance reads it."""
    read: list[int] = lance.dataset(table).to_table()["n"].to_pylist()
    return read


def options_of(bootstrap: str, names: TopicNames) -> lakefold.WriteOptions:
    return {
        "bootstrap_servers": bootstrap,
        "transactions_topic": names.transactions,
        "outcomes_topic": names.outcomes,
        "timeout": PATIENCE_S,
    }


@pytest.fixture
def options(bootstrap: str, topic_names: TopicNames) -> Iterator[lakefold.WriteOptions]:
    OwnLog.make(bootstrap, topic_names)
    yield options_of(bootstrap, topic_names)
    close_clients()


@pytest.fixture
def committed(
    options: lakefold.WriteOptions, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> Iterator[lakefold.WriteOptions]:
    """The options of a log that a committer folds."""
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        yield options


def test_many_threads_share_batches_and_every_row_is_added_once(
    committed: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    with lakefold.Writer(table, app_id="svc", max_delay=0.2, **committed) as writer:

        def append(thread: int) -> list[Future[lakefold.BatchReport]]:
            return [writer.append(rows(thread * 1000 + number)) for number in range(100)]

        with ThreadPoolExecutor(8) as pool:
            futures = [future for each in pool.map(append, range(8)) for future in each]
    reports = [future.result(0) for future in futures]
    assert {report.kind for report in reports} == {"committed"}
    assert {report.rows_added for report in reports} == {1}
    written = numbers(table)
    assert sorted(written) == [thread * 1000 + number for thread in range(8) for number in range(100)]
    for thread in range(8):
        own = [number for number in written if number // 1000 == thread]
        assert own == sorted(own), "the appends of a thread are not in order"
    versions = {report.version for report in reports}
    # Each batch but the last waits for its delay, so more of them would take 40 seconds, for 0.3 s of work.
    assert len(versions) < 800 / 4
    with pytest.raises(lakefold.InvalidError, match="the writer is closed"):
        writer.append(rows(1))


def test_a_writer_goes_on_after_the_highest_number_and_keyless_ones_need_none(
    committed: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    for start in (0, 10):
        with lakefold.Writer(table, app_id="svc", max_delay=0, **committed) as writer:
            for number in range(start, start + 3):
                writer.append(rows(number)).result(PATIENCE_S)
    with lakefold.Writer(table, **committed) as writer:
        future = writer.append(rows(20))
        assert writer.append(rows()).result(0).kind == "empty"
        writer.flush()
        assert future.result(0).kind == "committed"
    assert sorted(numbers(table)) == [0, 1, 2, 10, 11, 12, 20]


def test_rows_that_do_not_fit_fail_alone(committed: lakefold.WriteOptions, tmp_path: Path) -> None:
    table = tmp_path / "t"
    lakefold.append(table, rows(0), **committed)
    writer = lakefold.Writer(table, app_id="svc", max_delay=5, **committed)
    nulls = pa.table({"n": pa.array([None], pa.int64()), "s": ["x"]})
    good = [writer.append(pa.table({"n": [number], "s": ["y"]})) for number in (1, 2)]
    bad, other = writer.append(nulls), writer.append(pa.table({"z": [1]}))
    later = writer.append(rows(3))
    for _ in range(2):
        with pytest.raises(
            lakefold.InvalidError, match=r"n: the batch has a null|z .* is not in the table"
        ) as caught:
            writer.close()
        assert [note[:46] for note in caught.value.__notes__] == [
            "2 appends of this writer failed, with 2 rows: "
        ]
    assert [future.result(0).kind for future in (*good, later)] == ["committed"] * 3
    with pytest.raises(lakefold.InvalidError, match="n: the batch has a null"):
        bad.result(0)
    with pytest.raises(lakefold.InvalidError, match=r"z .* is not in the table"):
        other.result(0)
    assert numbers(table) == [0, 1, 2, 3]


def test_a_text_that_is_no_json_fails_alone(committed: lakefold.WriteOptions, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("doc", pa.string(), metadata={"ARROW:extension:name": "arrow.json"})])
    lakefold.append(tmp_path / "t", pa.table([['{"n": 0}']], schema=schema), **committed)
    writer = lakefold.Writer(tmp_path / "t", max_delay=5, **committed)
    texts = ['{"n": 1}', '{"n": ', "[]"]
    futures = [writer.append(pa.table([[text]], schema=schema)) for text in texts]
    with pytest.raises(lakefold.InvalidError, match="a text can't be stored as JSON"):
        writer.close()
    assert [future.exception() is None for future in futures] == [True, False, True]
    assert lance.dataset(tmp_path / "t").count_rows() == 3
    with pytest.raises(
        lakefold.BadRowsError, match="1 rows of the batch can't be written: doc in 1"
    ) as caught:
        lakefold.append(tmp_path / "t", pa.table([texts], schema=schema), **committed)
    assert caught.value.examples == ({"doc": '{"n": '},)


def test_a_second_writer_of_an_app_is_noticed_and_drops_nothing_silently(
    committed: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    first = lakefold.Writer(table, app_id="svc", max_delay=0, **committed)
    first.append(rows(0)).result(PATIENCE_S)
    second = lakefold.Writer(table, app_id="svc", max_delay=0, **committed)
    second.append(rows(1)).result(PATIENCE_S)
    with pytest.raises(lakefold.StopError, match="another writer uses this app id"):
        first.append(rows(2)).result(PATIENCE_S)
    with pytest.raises(lakefold.StopError, match="another writer"):
        first.append(rows(3))
    with pytest.raises(lakefold.StopError, match="another writer"):
        first.close()
    second.close()
    assert numbers(table) == [0, 1]


def test_numbers_that_an_earlier_process_left_in_the_log_are_passed_over(
    options: lakefold.WriteOptions, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """The earlier process was killed while no committer ran, so the marks don't show its last batch."""
    table = tmp_path / "t"
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        lakefold.append(table, rows(0), app_id="svc", batch_id=0, **options)
    logged: lakefold.WriteOptions = {**options, "wait": "log"}
    lakefold.append(table, rows(1), app_id="svc", batch_id=1, **logged)
    with lakefold.Writer(table, app_id="svc", max_delay=0, **options) as writer:
        future = writer.append(rows(2))
        with pytest.raises(TimeoutError):
            future.result(1)
        with running_committer(bootstrap, topic_names, tmp_path):
            assert future.result(PATIENCE_S).kind == "committed"
            writer.append(rows(3)).result(PATIENCE_S)
    assert numbers(table) == [0, 1, 2, 3]


def test_appends_wait_while_too_much_is_queued(
    options: lakefold.WriteOptions, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """No committer runs at first, so nothing is answered."""
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    size = rows(0).get_total_buffer_size()
    writer = lakefold.Writer(tmp_path / "t", max_queued_bytes=2 * size, max_delay=0, **options)
    futures = [writer.append(rows(0)), writer.append(rows(1))]
    third = threading.Thread(target=lambda: futures.append(writer.append(rows(2))))
    third.start()
    third.join(0.5)
    assert third.is_alive()
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        third.join(PATIENCE_S)
        writer.close()
    assert [future.result(0).kind for future in futures] == ["committed"] * 3
    assert sorted(numbers(tmp_path / "t")) == [0, 1, 2]


def test_asyncio_awaits_appends(committed: lakefold.WriteOptions, tmp_path: Path) -> None:
    async def append_all(writer: lakefold.Writer) -> list[lakefold.BatchReport]:
        one_by_one = await writer.append_async(rows(0))
        wrapped = await asyncio.wrap_future(writer.append(rows(1)))
        return [
            one_by_one,
            wrapped,
            *await asyncio.gather(*(writer.append_async(rows(n)) for n in range(2, 50))),
        ]

    size = rows(0).get_total_buffer_size()
    with lakefold.Writer(tmp_path / "t", max_delay=0.01, max_queued_bytes=5 * size, **committed) as writer:
        reports = asyncio.run(append_all(writer))
    assert {report.kind for report in reports} == {"committed"}
    assert sorted(numbers(tmp_path / "t")) == list(range(50))


def test_the_end_of_an_async_block_lets_other_coroutines_run_and_loses_nothing(
    options: lakefold.WriteOptions, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """The committer is started by another coroutine, while the writer waits for its outcomes."""

    async def write(ended: asyncio.Event) -> Future[lakefold.BatchReport]:
        try:
            async with lakefold.Writer(tmp_path / "t", max_delay=60, **options) as writer:
                return writer.append(rows(0))
        finally:
            ended.set()

    async def fold(ended: asyncio.Event) -> None:
        with running_committer(bootstrap, topic_names, tmp_path):
            await asyncio.wait_for(ended.wait(), PATIENCE_S)

    async def both() -> Future[lakefold.BatchReport]:
        ended = asyncio.Event()
        future, _ = await asyncio.gather(write(ended), fold(ended))
        return future

    assert asyncio.run(both()).result(0).kind == "committed"
    assert numbers(tmp_path / "t") == [0]


def test_an_async_block_ends_with_the_error_of_an_append(
    committed: lakefold.WriteOptions, tmp_path: Path
) -> None:
    async def write() -> None:
        lakefold.append(tmp_path / "t", rows(0), **committed)
        async with lakefold.Writer(tmp_path / "t", **committed) as writer:
            writer.append(pa.table({"z": [1]}))

    with pytest.raises(lakefold.InvalidError, match=r"z .* is not in the table"):
        asyncio.run(write())


def test_closing_under_load_loses_nothing_that_was_accepted(
    committed: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    writer = lakefold.Writer(table, app_id="svc", max_delay=0.02, **committed)
    accepted: list[int] = []

    def append_until_closed(thread: int) -> None:
        number = thread * 1_000_000
        while True:
            try:
                writer.append(rows(number))
            except lakefold.InvalidError:
                return
            accepted.append(number)
            number += 1

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(append_until_closed, thread) for thread in range(4)]
        until(lambda: len(accepted) > 200, "some appends")
        writer.close()
        wait(threads)
    assert sorted(numbers(table)) == sorted(accepted)


def test_a_committer_that_is_killed_and_replaced_costs_time_only(
    options: lakefold.WriteOptions, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    futures: list[Future[lakefold.BatchReport]] = []
    with ExitStack() as stack:
        writer = stack.enter_context(lakefold.Writer(table, app_id="svc", max_delay=0.01, **options))
        for number in range(3):
            with running_committer(bootstrap, topic_names, tmp_path) as committer:
                committer.wait_until_ready()
                futures += [writer.append(rows(number * 100 + each)) for each in range(20)]
                futures[-20].result(PATIENCE_S)
                futures += [writer.append(rows(number * 100 + each)) for each in range(20, 40)]
                committer.kill()
        stack.enter_context(running_committer(bootstrap, topic_names, tmp_path))
        writer.close()
    assert len(futures) == 120
    assert {future.result(0).kind for future in futures} <= {"committed", "duplicate"}
    assert sorted(numbers(table)) == [number * 100 + each for number in range(3) for each in range(40)]


def test_a_broker_that_comes_back_gets_what_waited(
    own_broker: Broker, topic_names: TopicNames, tmp_path: Path
) -> None:
    bootstrap = own_broker.bootstrap_servers
    OwnLog.make(bootstrap, topic_names)
    table = tmp_path / "t"
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        with lakefold.Writer(
            table, app_id="svc", max_delay=0.01, **options_of(bootstrap, topic_names)
        ) as writer:
            writer.append(rows(0)).result(PATIENCE_S)
            own_broker.kill()
            away = [writer.append(rows(number)) for number in range(1, 30)]
            with pytest.raises(TimeoutError):
                away[0].result(1)
            own_broker.start()
            assert {future.result(PATIENCE_S).kind for future in away} == {"committed"}
        close_clients()
    assert sorted(numbers(table)) == list(range(30))


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_what_is_sent_beside_a_restore_comes_after_it(
    options: lakefold.WriteOptions, bootstrap: str, topic_names: TopicNames, tmp_path: Path, table_format: str
) -> None:
    """All is sent while no committer runs: the restore first, then what was built on versions before it."""
    own, table = OwnLog.make(bootstrap, topic_names), tmp_path / "t"
    given: lakefold.WriteOptions = {**options, "format": table_format}
    writer = lakefold.Writer(table, max_delay=0, **given)
    with ready_committer(bootstrap, topic_names, tmp_path):
        writer.append(rows(1, 2, 3)).result(PATIENCE_S)
        begin = lakefold.open(table).version
        writer.append(rows(4)).result(PATIENCE_S)
    # It can be read once only: what was written of it is sent again.
    stream = rows(6).to_reader()
    calls: list[Callable[[], lakefold.BatchReport | lakefold.Outcome]] = [
        lambda: lakefold.restore(
            table,
            version=begin,
            timeout=PATIENCE_S,
            bootstrap_servers=bootstrap,
            transactions_topic=topic_names.transactions,
            outcomes_topic=topic_names.outcomes,
        ),
        lambda: writer.append(rows(5)).result(PATIENCE_S),
        lambda: lakefold.append(table, stream, app_id="svc", batch_id=7, **options),
        lambda: lakefold.upsert(table, rows(3, 7), keys="n", **options),
        lambda: lakefold.delete(table, where="n = 1", **options),
    ]
    ends = [watermarks(own.admin, own.topics.transactions, 0).end]
    answers = []
    with ThreadPoolExecutor(len(calls)) as pool:
        for call in calls:
            answers.append(pool.submit(call))

            def is_sent() -> bool:
                ends.append(watermarks(own.admin, own.topics.transactions, 0).end)
                return ends[-1] == ends[0] + len(answers)

            until(is_sent, "the log to have it", seconds=PATIENCE_S)
        with ready_committer(bootstrap, topic_names, tmp_path):
            assert {each.result(PATIENCE_S).kind for each in answers} == {"committed"}
    writer.close()
    assert sorted(lakefold.open(table).to_arrow()["n"].to_pylist()) == [2, 3, 5, 6, 7]
    assert lakefold.append(table, rows(6), app_id="svc", batch_id=7, **options).kind == "duplicate"
