"""A batch through a real log and a real committer, without Spark: each key once, whatever happens.

Promises: rolled-back-batches, older-batches, different-content (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing import log_client
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.reused_key import ReusedKeyError
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_table.entry import Committed, Duplicate, Invalid, RefusedError, Rejected
from lakefold_table.errors import InvalidError, NotATableError, RetryError
from lakefold_table.uri import canonical
from tests.integration.committers import running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.writing_bench import APP, SCHEMA, Writer, WritingBench, logged, patient_writers, rows

if TYPE_CHECKING:
    from tests.integration.conftest import TopicNames


def test_the_outcome_of_each_batch_is_logged(bench: WritingBench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lakefold")
    with bench.committer():
        results = [bench.put(0, rows(1, 2)), bench.put(0, rows(1, 2)), bench.put(1, rows())]
    assert [type(each) for each in results] == [Committed, Duplicate, Committed]
    texts = [text.partition(": ")[2].partition(" files ") for text in logged(caplog, "INFO")]
    assert [text[0].rpartition("; ")[0] or text[0] for text in texts if text[0]] == [
        "committed in version 2, 2 rows",
        "duplicate, folded before in version 2: nothing was added",
        "committed in version 3, 0 rows",
    ]
    assert [text[2][:12] for text in texts if text[2]] == ["with 2 rows ", "with 0 rows "]
    batches = [vars(record)["batch"] for record in caplog.records if hasattr(record, "batch")]
    assert [(batch["kind"], batch["rows"], batch["files"]) for batch in batches] == [
        ("committed", 2, 1),
        ("duplicate", 0, 0),
        ("committed", 0, 0),
    ]
    assert all(batches[0][name] > 0 for name in ("bytes", "write_s", "send_s", "wait_s"))


def test_a_batch_that_was_rolled_back_is_not_dropped_without_a_word(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    """After a rollback by pylance the corrected batch comes under the same key, as Spark sends it."""
    caplog.set_level("INFO", "lakefold")
    gone = "batch 1 of app was folded before in version 3, and its rows were undone in version 4"
    with bench.committer():
        bench.put(0, rows(1))
        bench.put(1, rows(66))
        lance.dataset(bench.table, version=2).restore()
        corrected, known = rows(2), rows(2)
        with pytest.raises(InvalidError, match=gone) as caught:
            bench.put(1, corrected)
        assert "another app_id" in caught.value.hint
        assert corrected.calls == 0
        bench.put(2, rows(3))
        assert bench.put(1, known, on_rolled_back="skip") == Duplicate(3, rolled_back_by=4)
        assert known.calls == 0
        assert isinstance(bench.put(1, rows(2), "corrected"), Committed)
        with pytest.raises(InvalidError, match=gone):
            bench.put(1, known)
    assert bench.numbers() == [1, 2, 3]
    warnings = logged(caplog, "WARNING")
    assert len(warnings) == 3
    assert all("undone in version" in text for text in warnings)


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
        assert bench.put(1, older, on_reused_key="skip") == dropped
        lance.dataset(bench.table).update_config({"made": "by another client"})
        with pytest.raises(InvalidError, match=later_ones):
            bench.put(1, older, in_order=True, wait="log")
        assert older.calls == 0
        assert isinstance(bench.put(3, rows(3), in_order=True), Committed)
    assert bench.numbers() == [0, 1, 2, 3]


def test_a_batch_with_other_rows_under_its_key_is_an_error_also_if_the_committer_notices_it(
    bench: WritingBench, caplog: pytest.LogCaptureFixture
) -> None:
    """The same batch is sent by another process meanwhile, which has other rows for it."""

    def other_process() -> None:
        bench.put(1, rows(2))

    with bench.committer():
        bench.put(0, rows(1))
        with pytest.raises(ReusedKeyError, match="batch 1 of app was folded before in version 3"):
            bench.put(1, Writer(rows(2, 3).rows, other_process))
    assert bench.numbers() == [1, 2]
    warnings = logged(caplog, "WARNING")
    assert [text.split("; ")[1] for text in warnings] == ["its content differs from that of the first"]


def test_the_newest_batch_with_other_rows_is_an_error_unless_it_is_to_be_left_out(
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
            with pytest.raises(ReusedKeyError, match="batch 1 of app was folded before in version 3"):
                bench.put(1, other, in_order=True)
            skipped = bench.put(1, other, in_order=True, on_reused_key="skip")
            assert skipped == Duplicate(3, different_content=True)
            assert other.calls == 0
    assert bench.numbers() == [1, 2, 3]
    warnings = logged(caplog, "WARNING")
    assert len(warnings) == 8
    assert all(text.endswith("its content differs from that of the first") for text in warnings)


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
        assert bench.put(0, more, in_order=True, on_reused_key="skip") == dropped
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


def test_without_a_committer_the_batch_says_so_and_may_come_again(
    bench: WritingBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_client, "QUIET_S", 2.0)
    with pytest.raises(RetryError, match=r"no outcome within 5 s for the creation of the table"):
        bench.put(0, rows(1), timeout_s=5.0)
    bench.fold()
    with pytest.raises(RetryError, match=r"no outcome within 5 s for batch 0 of app at .*@1") as caught:
        bench.put(0, rows(1), timeout_s=5.0)
    assert "committer" in caught.value.hint
    assert any(
        f"{canonical(bench.table)}: waiting for the committer's outcome of" in each
        for each in caplog.messages
    )
    bench.fold()
    assert isinstance(bench.put(0, rows(1), timeout_s=5.0), Duplicate)
    assert bench.numbers() == [1]


def test_without_an_outcome_a_table_that_another_client_has_replaced_is_said_to_be_bound_to_no_log(
    bench: WritingBench,
) -> None:
    with bench.committer():
        bench.put(0, rows(1))
    with pytest.raises(RetryError, match=r"no outcome within 0.5 s for batch 1 ") as caught:
        bench.put(1, rows(2), timeout_s=0.5)
    assert "adopt" not in caught.value.hint
    shutil.rmtree(bench.table)
    lance.write_dataset(pa.table(rows(3).rows), bench.table)
    with pytest.raises(RetryError, match=r"no outcome within 0.5 s for batch 1 ") as caught:
        bench.put(1, rows(2), timeout_s=0.5)
    assert "if another client has replaced it, bind it by `lakefold adopt`" in caught.value.hint


def test_a_batch_without_rows_is_folded_and_a_number_that_was_skipped_stays_free(bench: WritingBench) -> None:
    with bench.committer():
        bench.put(0, rows(1))
        assert bench.put(1, rows()) == Committed(3)
        assert isinstance(bench.put(3, rows(2)), Committed)
        assert bench.put(1, rows()) == Duplicate(3)
        assert isinstance(bench.put(2, rows(3)), Committed)
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
    types = cycle([pa.large_string(), pa.string()])

    def change() -> None:
        lance.dataset(bench.table).alter_columns({"path": "s", "data_type": next(types)})  # type: ignore[dict-item] # its stub

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
    assert bench.outcomes() == [Committed, Committed, Invalid]


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
    tmp_path: Path, bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient_writers(monkeypatch)
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
        ({"timeout_s": 0}, "timeout: "),
        ({"max_rows_per_file": 0}, "max_rows_per_file"),
        ({"data_storage_version": "9.9"}, "9.9"),
    ],
)
def test_wrong_settings_are_named_at_once(given: dict[str, object], what: str, bench: WritingBench) -> None:
    with pytest.raises(InvalidError, match=what):
        replace(bench.settings, **given)  # type: ignore[arg-type] # the test names the field
