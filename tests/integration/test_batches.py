"""A batch through a real log and a real committer, without Spark: each key once, whatever happens.

Promises: rolled-back-batches, older-batches, different-content (docs/operations.md).
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.query_runs import sent_batches_noted
from lakefold_ingest.spark.sink import Sink
from lakefold_ingest.writing import log_client
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import watermarks
from lakefold_log.write.producer import transaction_uuid
from lakefold_table.entry import Committed, Duplicate, Invalid, RefusedError, Rejected
from lakefold_table.errors import InvalidError, NotATableError, RetryError
from lakefold_table.uri import canonical, local_path
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_table.entry import Result
    from tests.integration.conftest import TopicNames

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
APP = "app"


@dataclass
class Writer:
    """Writes rows as an executor does, counts how often, and may do something else after that."""

    rows: pa.RecordBatch
    then: Callable[[], None] = lambda: None
    calls: int = field(default=0, init=False)

    def __call__(self, target: Target) -> list[WrittenFile]:
        self.calls += 1
        written = list(target.write([self.rows]))
        self.then()
        return written

    def count(self) -> int:
        return len(self.rows)


@dataclass
class WritingBench:
    """A table to be, with a log of its own."""

    root: Path
    names: TopicNames
    log: OwnLog
    settings: WriteSettings

    @property
    def table(self) -> str:
        return local_path(self.settings.table)

    def put(
        self,
        batch_id: int,
        write: Writer,
        app_id: str = APP,
        *,
        in_order: bool = False,
        may_repeat: bool = True,
        **given: str | float,
    ) -> Result | None:
        settings = replace(self.settings, **given)  # type: ignore[arg-type] # the test names the field
        operation = AppendRows(write.rows.schema, write, count=write.count)
        key = Key(app_id, batch_id)
        return put_batch(settings, key, operation, in_order=in_order, may_repeat=may_repeat).result

    def end(self) -> int:
        """How many messages the transactions topic has had."""
        return watermarks(self.log.admin, self.names.transactions, 0).end

    def numbers(self) -> list[int]:
        """The column n of all rows, as pylance reads it."""
        values: list[int] = lance.dataset(self.table).to_table()["n"].to_pylist()
        return sorted(values)

    def outcomes(self) -> list[type]:
        return [type(outcome.result) for outcome in self.log.answers()]

    @contextmanager
    def committer(self) -> Iterator[None]:
        bootstrap = self.settings.kafka.bootstrap_servers
        with running_committer(bootstrap, self.names, self.root) as running:
            running.wait_until_ready()
            yield
            # Its last report may still be open, which would end with it.
            self.log.answers()
            assert running.process.poll() is None, running.log.read_text()

    def fold(self) -> None:
        fold_to_the_end(self.settings.kafka.bootstrap_servers, self.names, self.root)


@pytest.fixture
def bench(
    tmp_path: Path, bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WritingBench]:
    log = OwnLog.make(bootstrap, topic_names)
    settings = WriteSettings(
        canonical(tmp_path / "t"), KafkaConfig(bootstrap), log.topics, timeout_s=PATIENCE_S
    )
    # A batch reads refusals that were reported for a second, and leaves the rest to the next batch.
    monkeypatch.setattr(log_client, "_READ_S", PATIENCE_S)
    # Tests that set a short limit don't wait for the brokers, but for an outcome.
    log_client.open_client(settings.kafka, settings.topics, PATIENCE_S)
    yield WritingBench(tmp_path, topic_names, log, settings)
    close_clients()


def logged(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    """What was logged about batches at this level. The Kafka client logs what it tries again."""
    return [
        each.getMessage() for each in caplog.records if (each.name, each.levelname) == ("lakefold", level)
    ]


def rows(*numbers: int) -> Writer:
    return Writer(pa.record_batch({"n": list(numbers), "s": [str(n) for n in numbers]}, schema=SCHEMA))


def test_the_outcome_of_each_batch_is_logged(bench: WritingBench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lakefold")
    with bench.committer():
        results = [bench.put(0, rows(1, 2)), bench.put(0, rows(1, 2)), bench.put(1, rows())]
    assert [type(each) for each in results] == [Committed, Duplicate, type(None)]
    texts = [text.partition(": ")[2].partition("; 1 files ") for text in logged(caplog, "INFO")]
    assert [text[0] for text in texts if text[0]] == [
        "committed in version 2, 2 rows",
        "duplicate, folded before in version 2: nothing was added",
        "nothing to change, nothing was sent",
    ]
    assert [text[2].startswith("with 2 rows and ") for text in texts if text[2]] == [True]
    batches = [vars(record)["batch"] for record in caplog.records if hasattr(record, "batch")]
    assert [(batch["kind"], batch["rows"], batch["files"]) for batch in batches] == [
        ("committed", 2, 1),
        ("duplicate", 0, 0),
        ("empty", 0, 0),
    ]
    assert all(batches[0][name] > 0 for name in ("bytes", "write_s", "send_s", "wait_s"))


def test_a_batch_that_was_rolled_back_is_not_dropped_without_a_word(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    """After a rollback by pylance the corrected batch comes under the same key, as Spark sends it."""
    caplog.set_level("INFO", "lakefold")
    gone = (
        "batch 1 of app was folded before in version 3, and version 4 restored an older one without its rows"
    )
    with bench.committer():
        bench.put(0, rows(1))
        bench.put(1, rows(66))
        lance.dataset(bench.table, version=2).restore()
        corrected, known = rows(2), rows(2)
        with pytest.raises(InvalidError, match=gone) as caught:
            bench.put(1, corrected)
        assert "another app_id" in caught.value.hint
        assert corrected.calls == 1
        bench.put(2, rows(3))
        # Now the marks of the newest version say it, and nothing is written.
        assert bench.put(1, known, on_rolled_back="skip") == Duplicate(3, rolled_back_by=4)
        assert known.calls == 0
        assert isinstance(bench.put(1, rows(2), "corrected"), Committed)
        with pytest.raises(InvalidError, match=gone):
            bench.put(1, known)
    assert bench.numbers() == [1, 2, 3]
    warnings = logged(caplog, "WARNING")
    assert len(warnings) == 3
    assert all("restored an older one without its rows" in text for text in warnings)


def test_a_query_whose_checkpoint_is_older_than_the_table_is_refused(bench: WritingBench) -> None:
    older = rows(1, 77)
    later_ones = "batch 1 of app was folded before, and so were later ones up to 2"
    with bench.committer():
        for batch in range(3):
            bench.put(batch, rows(batch), in_order=True)
        assert bench.put(2, rows(2), in_order=True) == Duplicate(4)
        with pytest.raises(InvalidError, match=later_ones) as caught:
            bench.put(1, older, in_order=True)
        assert "another app_id" in caught.value.hint
        dropped = Duplicate(3, different_content=True)
        assert bench.put(1, older, in_order=True, on_older_batch="skip") == dropped
        # Who sends its batches in any order may repeat any of them.
        assert bench.put(1, older) == dropped
        lance.dataset(bench.table).update_config({"made": "by another client"})
        with pytest.raises(InvalidError, match=later_ones):
            bench.put(1, older, in_order=True, wait="log")
        assert older.calls == 0
        assert isinstance(bench.put(3, rows(3), in_order=True), Committed)
    assert bench.numbers() == [0, 1, 2, 3]


def test_a_batch_with_other_rows_under_its_key_is_a_warning(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    """The same batch is sent by another process meanwhile, which has other rows for it."""

    def other_process() -> None:
        bench.put(1, rows(2))

    with bench.committer():
        bench.put(0, rows(1))
        answer = bench.put(1, Writer(rows(2, 3).rows, other_process))
    assert answer == Duplicate(3, different_content=True)
    assert bench.numbers() == [1, 2]
    warnings = logged(caplog, "WARNING")
    assert [text.split("; ")[1] for text in warnings] == ["its content is another than that of the first"]


def test_the_newest_batch_with_other_rows_is_a_warning(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that is one batch older than the table gives the last batch all rows that came since."""
    same, longer, fewer, none = rows(2, 3), rows(2, 3, 4), rows(2), rows()
    narrower = Writer(same.rows.select(["n"]))
    with bench.committer():
        bench.put(0, rows(1), in_order=True)
        assert isinstance(bench.put(1, rows(2, 3), in_order=True), Committed)
        assert bench.put(1, same, in_order=True) == Duplicate(3)
        for other in (longer, fewer, none, narrower):
            assert bench.put(1, other, in_order=True) == Duplicate(3, different_content=True)
            assert other.calls == 0
    assert bench.numbers() == [1, 2, 3]
    warnings = logged(caplog, "WARNING")
    assert len(warnings) == 4
    assert all(text.endswith("its content is another than that of the first") for text in warnings)


def test_a_first_batch_with_other_rows_is_that_of_a_query_whose_checkpoint_was_deleted(
    bench: WritingBench,
) -> None:
    """A job that is run each day with a new checkpoint begins with batch 0 each time."""
    more, narrower = rows(3, 4), Writer(rows(1, 2, 3).rows.select(["n"]))
    with bench.committer():
        bench.put(0, rows(1, 2, 3), in_order=True)
        assert bench.put(0, rows(1, 2, 3), in_order=True) == Duplicate(2), "a restart after a crash"
        for other in (more, narrower):
            with pytest.raises(
                InvalidError, match="batch 0 of app was folded before in version 2 with"
            ) as caught:
                bench.put(0, other, in_order=True)
            assert "another app_id" in caught.value.hint
        dropped = Duplicate(2, different_content=True)
        assert bench.put(0, more, in_order=True, on_older_batch="skip") == dropped
        assert bench.put(0, more) == dropped, "the batches of no query"
        assert (more.calls, narrower.calls) == (0, 0)
        lance.dataset(bench.table).update_config({"made": "by another client"})
        with pytest.raises(InvalidError, match="checkpoint was deleted"):
            bench.put(0, more, in_order=True)
        assert isinstance(bench.put(0, more, app_id="another", in_order=True), Committed)
    assert bench.numbers() == [1, 2, 3, 3, 4]


def test_creates_the_table_and_folds_each_batch_once(bench: WritingBench) -> None:
    with bench.committer():
        assert isinstance(bench.put(0, rows(1, 2)), Committed)
        assert isinstance(bench.put(1, rows(3)), Committed)
        again = rows(3)
        assert bench.put(1, again) == Duplicate(3)
        assert again.calls == 0
    assert bench.numbers() == [1, 2, 3]
    dataset = lance.dataset(bench.table)
    assert dataset.schema == SCHEMA
    assert dataset.version == 3
    assert bench.outcomes() == [Committed] * 3


def test_with_wait_log_a_batch_sent_twice_before_it_is_folded_is_one(bench: WritingBench) -> None:
    with bench.committer():
        bench.put(0, rows(1))
    assert bench.put(1, rows(2), wait="log") is None
    assert bench.put(1, rows(2), wait="log") is None
    assert bench.end() == 4
    assert bench.numbers() == [1]
    bench.fold()
    assert bench.numbers() == [1, 2]
    assert bench.outcomes() == [Committed, Committed, Committed, Duplicate]


def send_under_a_shared_app_id(bench: WritingBench, *, may_repeat: bool) -> None:
    """Two queries with one app id send a batch 1 each, before either is folded."""
    with bench.committer():
        bench.put(0, rows(1))
    bench.put(1, rows(2), wait="log", may_repeat=may_repeat)
    close_clients()
    bench.put(1, rows(77, 78), wait="log", may_repeat=may_repeat)
    bench.fold()
    assert bench.numbers() == [1, 2]
    assert bench.outcomes()[-2:] == [Committed, Duplicate]


def test_with_wait_log_a_second_query_with_the_app_id_learns_that_its_batch_was_not_added(
    bench: WritingBench,
) -> None:
    send_under_a_shared_app_id(bench, may_repeat=False)
    message = f"batch 1 of {APP} into .*: a duplicate at .*folded before in version 3; its content is another"
    with pytest.raises(RefusedError, match=message) as caught:
        bench.put(2, rows(79), wait="log", may_repeat=False)
    assert caught.value.outcome.result == Duplicate(3, different_content=True)
    assert "another query uses this app_id" in caught.value.hint


def test_with_wait_log_a_repeated_batch_with_other_rows_is_a_warning(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    send_under_a_shared_app_id(bench, may_repeat=True)
    assert bench.put(2, rows(3), wait="log", may_repeat=False) is None
    (warning,) = logged(caplog, "WARNING")
    assert warning.endswith("folded before in version 3; its content is another than that of the first")


def test_with_wait_log_a_batch_that_was_rolled_back_is_not_dropped_without_a_word(
    bench: WritingBench,
) -> None:
    with bench.committer():
        bench.put(0, rows(1))
        bench.put(1, rows(66))
        lance.dataset(bench.table, version=2).restore()
    assert bench.put(1, rows(2), wait="log") is None
    bench.fold()
    lost = f"batch 1 of {APP} .*folded before in version 3; version 4 restored an older one without its rows"
    with pytest.raises(RefusedError, match=lost) as caught:
        bench.put(2, rows(3), wait="log")
    assert "under which its batches are new" in caught.value.hint
    assert bench.put(2, rows(3), wait="log") is None


def refuse_a_batch(bench: WritingBench) -> Writer:
    """Another client overwrites the table with other columns while batch 1 is on its way.

    Returns rows that fit the table then.
    """
    with bench.committer():
        bench.put(0, rows(1))
    bench.put(1, rows(2), wait="log")
    lance.write_dataset(pa.table({"other": [1.5]}), bench.table, mode="overwrite")
    bench.fold()
    return Writer(pa.record_batch({"other": [2.5]}))


def test_with_wait_log_a_refusal_fails_a_later_batch_once(bench: WritingBench) -> None:
    other = refuse_a_batch(bench)
    end = bench.end()
    with pytest.raises(RefusedError, match=f"batch 1 of {APP} into .*: refused at .*") as caught:
        bench.put(2, other, wait="log")
    assert f"uuid {transaction_uuid(APP, 1, bench.settings.table)}" in str(caught.value)
    assert caught.value.outcome.batch_id == 1
    assert "redrive" in caught.value.hint
    assert (bench.end(), other.calls) == (end, 0)
    assert bench.put(2, other, wait="log") is None
    bench.fold()
    assert lance.dataset(bench.table).to_table()["other"].to_pylist() == [1.5, 2.5]


def test_with_wait_log_a_refusal_may_be_logged_only(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    other = refuse_a_batch(bench)
    assert bench.put(2, other, wait="log", on_refused="warn") is None
    assert bench.put(3, other, wait="log", on_refused="warn") is None
    warnings = logged(caplog, "WARNING")
    # Logged once, with what identifies it in the dead letters.
    (refused,) = [text for text in warnings if "refused at" in text]
    assert refused.startswith(f"batch 1 of {APP} into {bench.settings.table}: refused at ")
    assert transaction_uuid(APP, 1, bench.settings.table) in refused
    bench.fold()
    assert lance.dataset(bench.table).to_table()["other"].to_pylist() == [1.5, 2.5, 2.5]


def test_with_wait_log_a_new_process_learns_of_a_refusal(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    other = refuse_a_batch(bench)
    close_clients()
    with pytest.raises(RefusedError, match=f"batch 1 of {APP} into .*: refused at ") as caught:
        bench.put(3, other, wait="log")
    uuid = transaction_uuid(APP, 1, bench.settings.table)
    assert (caught.value.outcome.uuid, other.calls) == (uuid, 0)
    assert bench.put(3, other, app_id="another", wait="log") is None
    close_clients()
    assert bench.put(3, other, wait="log", on_refused="warn") is None
    assert [text for text in caplog.messages if "refused at" in text and uuid in text]
    with bench.committer():
        # As `lakefold redrive` does once the cause is gone.
        assert isinstance(bench.put(1, other), Committed)
    close_clients()
    assert bench.put(4, other, wait="log") is None
    bench.fold()
    assert lance.dataset(bench.table).to_table()["other"].to_pylist() == [1.5, 2.5, 2.5, 2.5, 2.5]


def test_with_wait_log_a_batch_waits_for_room_while_the_committer_is_behind(bench: WritingBench) -> None:
    with bench.committer():
        bench.put(0, rows(1))
    for batch in (1, 2):
        assert bench.put(batch, rows(batch + 1), wait="log", max_unanswered=2) is None
    late = rows(4)
    with pytest.raises(RetryError, match="2 batches in the log have no outcome yet") as caught:
        bench.put(3, late, wait="log", max_unanswered=2, timeout_s=0.5)
    assert "lakefold status" in caught.value.hint
    assert late.calls == 0
    with pytest.raises(RetryError, match=r"2 batches in the log .* the oldest for [0-9.]+ s: no outcome"):
        bench.put(3, late, wait="log", max_lag_s=0.01, timeout_s=0.2)
    assert late.calls == 0
    # Another app's batches are its own affair.
    assert bench.put(1, rows(10), app_id="other", wait="log", max_unanswered=2) is None
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(bench.put, 3, late, wait="log", max_unanswered=2, max_lag_s=0.01)
        with bench.committer():
            assert waiting.result(PATIENCE_S) is None
            bench.put(4, rows(5))
    assert bench.numbers() == [1, 2, 3, 4, 5, 10]


def test_with_wait_log_the_last_batches_are_awaited_at_the_end(bench: WritingBench, tmp_path: Path) -> None:
    settings = replace(bench.settings, wait="log")
    other = refuse_a_batch(bench)
    query: Any = SimpleNamespace(id="another")
    Sink(settings).wait_for_outcomes(query)
    query.id = APP
    with pytest.raises(RefusedError, match=f"batch 1 of {APP} into .*: refused at "):
        Sink(settings).wait_for_outcomes(query)
    Sink(settings).wait_for_outcomes(query)
    bench.put(2, other, wait="log")
    with pytest.raises(RetryError, match="1 batches in the log have no outcome yet"):
        Sink(replace(settings, timeout_s=0.5), APP).wait_for_outcomes(query)
    bench.fold()
    Sink(settings, APP).wait_for_outcomes(query)
    Sink(replace(settings, table=canonical(tmp_path / "none"))).wait_for_outcomes(query)


@dataclass
class OtherProcesses:
    """A streaming query of which each batch is sent by a process of its own, as `format` may do it."""

    bench: WritingBench
    folder: Path
    run: str = field(default_factory=lambda: str(uuid.uuid4()))

    def put(self, batch_id: int, write: Writer, **given: Any) -> None:  # noqa: ANN401 - fields of the settings
        settings = replace(self.bench.settings, wait="log", **given)
        key = Key(APP, batch_id)
        try:
            with sent_batches_noted(self.run, key, settings, self.folder):
                self.bench.put(batch_id, write, wait="log", **given)
        finally:
            close_clients()


def test_with_wait_log_a_batch_waits_for_those_that_another_process_has_sent(
    bench: WritingBench, tmp_path: Path
) -> None:
    with bench.committer():
        bench.put(0, rows(1))
    query, late = OtherProcesses(bench, tmp_path / "lakefold-7" / "query-runs"), rows(4)
    query.put(1, rows(2))
    query.put(2, rows(3))
    with pytest.raises(RetryError, match="2 batches in the log have no outcome yet, the oldest for"):
        query.put(3, late, max_unanswered=2, timeout_s=5.0)
    with pytest.raises(RetryError, match="2 batches in the log have no outcome yet, the oldest for"):
        query.put(3, late, max_lag_s=0.01, timeout_s=5.0)
    assert late.calls == 0
    bench.fold()
    query.put(3, late, max_unanswered=1)
    bench.fold()
    assert bench.numbers() == [1, 2, 3, 4]


def test_with_wait_log_a_process_learns_of_a_refusal_without_reading_all_dead_letters(
    bench: WritingBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_dead_letters(*_: object, **__: object) -> None:
        raise AssertionError("they are read once by each run")

    with bench.committer():
        bench.put(0, rows(1))
    query = OtherProcesses(bench, tmp_path / "lakefold-7" / "query-runs")
    query.put(1, rows(2))
    lance.write_dataset(pa.table({"other": [1.5]}), bench.table, mode="overwrite")
    bench.fold()
    monkeypatch.setattr(log_client, "read_dead_letters", all_dead_letters)
    other = Writer(pa.record_batch({"other": [2.5]}))
    with pytest.raises(RefusedError, match=f"batch 1 of {APP} into .*: refused at "):
        query.put(2, other)
    query.put(2, other)
    bench.fold()
    assert lance.dataset(bench.table).to_table()["other"].to_pylist() == [1.5, 2.5]


def test_without_a_committer_the_batch_says_so_and_may_come_again(bench: WritingBench) -> None:
    with pytest.raises(RetryError, match=r"no outcome within 0.5 s for the creation of the table"):
        bench.put(0, rows(1), timeout_s=0.5)
    bench.fold()
    with pytest.raises(RetryError, match=r"no outcome within 0.5 s for batch 0 of app at .*@1") as caught:
        bench.put(0, rows(1), timeout_s=0.5)
    assert "committer" in caught.value.hint
    bench.fold()
    assert isinstance(bench.put(0, rows(1), timeout_s=0.5), Duplicate)
    assert bench.numbers() == [1]


def test_a_batch_without_rows_is_not_sent_and_its_number_stays_free(bench: WritingBench) -> None:
    with bench.committer():
        bench.put(0, rows(1))
        before = bench.end()
        assert bench.put(1, rows()) is None
        assert bench.end() == before
        assert isinstance(bench.put(2, rows(2)), Committed)
        assert isinstance(bench.put(1, rows(3)), Committed)
    assert bench.numbers() == [1, 2, 3]


def test_what_does_not_fit_is_not_sent(bench: WritingBench) -> None:
    with bench.committer():
        bench.put(0, rows(1))
    before = bench.end()
    other = Writer(pa.record_batch({"N": [1], "s": [1.5]}))
    with pytest.raises(
        InvalidError, match=r"N \(.*\) is not in the table \(which has n\).*s is double.*n \(.*\) is missing"
    ):
        bench.put(1, other)
    nullable = Writer(pa.record_batch({"n": pa.array([2, None], pa.int64())}))
    with pytest.raises(InvalidError, match="n: the batch has a null"):
        bench.put(1, nullable)
    assert bench.end() == before
    assert other.calls == 0


def test_a_schema_that_changes_while_the_files_are_written_costs_one_more_run(bench: WritingBench) -> None:
    """Lance gives the dropped column's id to the new one: the files would be read back as another column."""

    def change() -> None:
        dataset = lance.dataset(bench.table)
        if "s" in dataset.schema.names:
            dataset.drop_columns(["s"])
            lance.dataset(bench.table).add_columns({"s": "cast('old' as string)"})

    with bench.committer():
        bench.put(0, rows(1))
        late = rows(2)
        late.then = change
        change_once = late.then

        def once() -> None:
            late.then = lambda: None
            change_once()

        late.then = once
        assert isinstance(bench.put(1, late), Committed)
        assert late.calls == 2
    assert lance.dataset(bench.table).to_table().to_pylist() == [{"n": 1, "s": "old"}, {"n": 2, "s": "2"}]
    assert bench.outcomes() == [Committed, Committed, Rejected, Committed]


def test_a_table_that_is_never_the_same_again_ends_the_batch(bench: WritingBench) -> None:
    def change() -> None:
        lance.dataset(bench.table).drop_columns(["s"])
        lance.dataset(bench.table).add_columns({"s": "cast('old' as string)"})

    with bench.committer():
        bench.put(0, rows(1))
        late = rows(2)
        late.then = change
        with pytest.raises(RetryError, match="refused 5 times"):
            bench.put(1, late)
    assert bench.numbers() == [1]


def test_an_overwrite_by_another_client_is_a_refusal_for_good(bench: WritingBench) -> None:
    def overwrite() -> None:
        lance.write_dataset(pa.table({"n": [9], "s": ["9"]}, schema=SCHEMA), bench.table, mode="overwrite")

    with bench.committer():
        bench.put(0, rows(1))
        late = rows(2)
        late.then = overwrite
        with pytest.raises(RefusedError, match="the batch was refused") as caught:
            bench.put(1, late)
        assert isinstance(caught.value.outcome.result, Rejected)
        assert bench.put(1, rows(2)) is not None
    assert bench.numbers() == [2, 9]


def test_what_the_committer_can_not_fold_is_reported_with_its_reason(bench: WritingBench) -> None:
    def lose() -> None:
        for file in Path(bench.table, "data").iterdir():
            file.unlink()

    with bench.committer():
        bench.put(0, rows())
        late = rows(2)
        late.then = lose
        with pytest.raises(RefusedError, match=r"can't fold it: data file .* is missing"):
            bench.put(1, late)
    assert bench.outcomes() == [Committed, Invalid]


def test_a_table_of_another_log_is_not_written(
    bench: WritingBench, topic_names: TopicNames, bootstrap: str
) -> None:
    with bench.committer():
        bench.put(0, rows(1))
    other = replace(topic_names, transactions="other-" + topic_names.transactions)
    topics = OwnLog.make(bootstrap, replace(other, outcomes="other-" + topic_names.outcomes)).topics
    settings = replace(bench.settings, topics=topics)
    with pytest.raises(InvalidError, match="the table is bound to topic"):
        put_batch(settings, Key(APP, 1), AppendRows(SCHEMA, rows(2)))


def test_a_folder_of_something_else_is_left_alone(bench: WritingBench) -> None:
    Path(bench.table).mkdir()
    Path(bench.table, "notes.txt").write_text("mine")
    with pytest.raises(NotATableError):
        bench.put(0, rows(1))
    assert [path.name for path in Path(bench.table).iterdir()] == ["notes.txt"]
    assert bench.end() == 0


def test_topics_that_are_missing_are_waited_for(
    tmp_path: Path, bootstrap: str, topic_names: TopicNames
) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    settings = WriteSettings(canonical(tmp_path / "t"), KafkaConfig(bootstrap), topics, timeout_s=5)
    first = AppendRows(SCHEMA, rows(1))
    with pytest.raises(RetryError, match="start a committer"):
        put_batch(settings, Key(APP, 0), first)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(put_batch, replace(settings, timeout_s=PATIENCE_S), Key(APP, 0), first)
        with running_committer(bootstrap, topic_names, tmp_path) as committer:
            committer.wait_until_ready()
            assert isinstance(early.result(PATIENCE_S).result, Committed)
    close_clients()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"wait": "never"}, "wait"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"max_rows_per_file": 0}, "max_rows_per_file"),
        ({"data_storage_version": "9.9"}, "9.9"),
    ],
)
def test_wrong_settings_are_named_at_once(given: dict[str, object], what: str, bench: WritingBench) -> None:
    with pytest.raises(InvalidError, match=what):
        replace(bench.settings, **given)  # type: ignore[arg-type] # the test names the field
