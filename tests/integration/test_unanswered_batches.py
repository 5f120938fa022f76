"""Batches that are sent without waiting for their outcome, through a real log and a real committer."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.query_runs import sent_batches_noted
from lakefold_ingest.spark.sink import Sink
from lakefold_ingest.writing import log_client
from lakefold_ingest.writing.batch import StartedBatch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import transaction_uuid
from lakefold_table.entry import Committed, Duplicate, RefusedError
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.uri import canonical
from tests.integration.own_log import PATIENCE_S
from tests.integration.writing_bench import APP, Writer, WritingBench, logged, rows

if TYPE_CHECKING:
    from pathlib import Path


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
    message = f"batch 1 of {APP} into .*: a duplicate at .*folded before in version 3; its content differs"
    with pytest.raises(RefusedError, match=message) as caught:
        bench.put(2, rows(79), wait="log", may_repeat=False)
    assert caught.value.outcome.result == Duplicate(3, different_content=True)
    assert "another query uses this app_id" in caught.value.hint


def test_with_wait_log_a_repeated_batch_with_other_rows_is_an_error_unless_it_is_to_be_left_out(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    send_under_a_shared_app_id(bench, may_repeat=True)
    assert bench.put(2, rows(3), wait="log", may_repeat=False, on_reused_key="skip") is None
    (warning,) = logged(caplog, "WARNING")
    assert warning.endswith("folded before in version 3; its content differs from that of the first")


def test_with_wait_log_a_batch_that_was_rolled_back_is_not_dropped_without_a_word(
    bench: WritingBench,
) -> None:
    with bench.committer():
        bench.put(0, rows(1))
        bench.put(1, rows(66))
        lance.dataset(bench.table, version=2).restore()
    end = bench.end()
    with pytest.raises(
        InvalidError, match=f"batch 1 of {APP} .*folded before in version 3.* undone in version 4"
    ):
        bench.put(1, rows(2), wait="log")
    assert bench.end() == end
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


@pytest.mark.parametrize("is_at_end", [True, False])
def test_with_wait_log_a_refusal_that_is_only_logged_does_not_end_the_wait_for_other_batches(
    bench: WritingBench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_at_end: bool,
) -> None:
    late = refuse_a_batch(bench)
    with monkeypatch.context() as patched:
        # As if batch 1 was refused just after batch 2 was sent.
        patched.setattr(StartedBatch, "_check_earlier", lambda *_: None)
        bench.put(2, Writer(late.rows), wait="log")
    query: Any = SimpleNamespace(id=APP)
    settings = replace(bench.settings, wait="log", on_refused="warn", timeout_s=0.5)

    def send_next() -> None:
        bench.put(3, late, wait="log", on_refused="warn", max_unanswered=1, timeout_s=0.5)

    wait = partial(Sink(settings).wait_for_outcomes, query) if is_at_end else send_next
    with pytest.raises(RetryError, match="1 batches in the log have no outcome yet"):
        wait()
    assert late.calls == 0
    (refused,) = [text for text in logged(caplog, "WARNING") if "refused at" in text]
    assert refused.startswith(f"batch 1 of {APP} into ")
    bench.fold()
    Sink(replace(settings, timeout_s=PATIENCE_S)).wait_for_outcomes(query)


def test_with_wait_log_a_user_who_may_not_read_outcomes_does_not_seem_to_have_them_at_the_end(
    bench: WritingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InvalidError("no right to read", where="outcomes")

    with bench.committer():
        bench.put(0, rows(1))
    bench.put(1, rows(2), wait="log")
    monkeypatch.setattr(OutcomeWaiter, "reported", refuse)
    query: Any = SimpleNamespace(id=APP)
    with pytest.raises(InvalidError, match="those of the last 1 batches are not known") as caught:
        Sink(replace(bench.settings, wait="log")).wait_for_outcomes(query)
    assert caught.value.where.startswith(bench.names.outcomes)


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


def test_with_wait_log_a_run_that_begins_with_a_batch_of_the_table_learns_of_refusals_before_it(
    bench: WritingBench, tmp_path: Path
) -> None:
    """Batch 1 is refused and batch 2 added. Then the query is started again, and repeats batch 2."""
    other, folder = refuse_a_batch(bench), tmp_path / "lakefold-7" / "query-runs"
    with bench.committer():
        bench.put(2, other)
    close_clients()
    query, more = OtherProcesses(bench, folder), Writer(other.rows)
    query.put(2, more)
    with pytest.raises(RefusedError, match=f"batch 1 of {APP} into .*: refused at "):
        query.put(3, more)
    assert more.calls == 0
    query.put(3, more)
    bench.fold()
    assert lance.dataset(bench.table).to_table()["other"].to_pylist() == [1.5, 2.5, 2.5]
