"""A second query with the same app id is noticed by the batches that each run has begun.

Promises: older-batches, different-content (docs/operations/promises.md).
"""

from __future__ import annotations

import os
import stat
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.spark import query_runs
from lakefold_ingest.spark.query_runs import begin_batch
from lakefold_ingest.writing.report import BatchReport
from lakefold_ingest.writing.reused_key import ReusedKeyError
from lakefold_ingest.writing.sending_query import ANYBODY
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = WriteSettings(table="file:///lake/t", kafka=KafkaConfig("127.0.0.1:1"), topics=Topics())
SKIPPING = WriteSettings(
    table="file:///lake/t", kafka=KafkaConfig("127.0.0.1:1"), topics=Topics(), on_older_batch="skip"
)


@pytest.fixture
def run() -> str:
    """The id of a run that nothing has noted yet."""
    return str(uuid.uuid4())


def begun(
    run: str | None, batch_id: int, folder: Path | None = None, *, settings: WriteSettings = SETTINGS
) -> bool:
    """Whether the batch may repeat one that was sent before."""
    return begin_batch(run, Key("app", batch_id), settings, ANYBODY, folder).sender.may_repeat


def test_only_the_first_batch_of_a_run_may_be_a_repetition(run: str) -> None:
    assert begun(run, 7)
    assert not begun(run, 8)
    assert begun(run, 8), "it was begun before, as by a function that tries again"
    assert not begun(run, 9)
    assert begun(str(uuid.uuid4()), 9), "another run"


def test_apps_and_tables_of_a_run_are_apart(run: str) -> None:
    assert begun(run, 7)
    assert begin_batch(run, Key("other", 8), SETTINGS, ANYBODY).sender.may_repeat
    other = WriteSettings(table="file:///lake/u", kafka=SETTINGS.kafka, topics=SETTINGS.topics)
    assert begin_batch(run, Key("app", 8), other, ANYBODY).sender.may_repeat


@pytest.mark.parametrize("no_run", [None, ""])
def test_a_batch_of_no_run_may_always_be_a_repetition(no_run: str | None) -> None:
    assert begun(no_run, 1)
    assert begun(no_run, 2)


def test_what_can_be_skipped_or_has_no_number_is_not_noted(run: str) -> None:
    assert begun(run, 1)
    assert begun(run, 2, settings=SKIPPING)
    assert begin_batch(run, new_key(), SETTINGS, ANYBODY).sender.may_repeat


def test_each_batch_of_a_run_may_be_sent_by_another_process(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lakefold-7" / "query-runs"
    for batch_id, may_repeat in ((4, True), (5, False), (5, True), (6, False)):
        monkeypatch.setattr(query_runs, "_begun", {})
        assert begun(run, batch_id, folder) is may_repeat
    (note,) = folder.iterdir()
    assert note.read_text() == "6"
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_notes_of_runs_that_ended_long_ago_are_removed(run: str, tmp_path: Path) -> None:
    folder = tmp_path / "lakefold-7" / "query-runs"
    begun(run, 4, folder)
    (old,) = folder.iterdir()
    os.utime(old, (1, 1))
    begun(str(uuid.uuid4()), 0, folder)
    assert len(list(folder.iterdir())) == 1
    assert not old.exists()


def test_a_folder_that_others_may_write_to_is_not_used_and_stops_nothing(
    run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "lakefold-7" / "query-runs"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o777)
    assert begun(run, 4, folder)
    assert list(folder.iterdir()) == []
    assert "a second query with the same app id is not noticed, and with wait=log" in caplog.text


def test_a_damaged_note_is_a_first_batch(run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "lakefold-7" / "query-runs"
    begun(run, 4, folder)
    (note,) = folder.iterdir()
    note.write_text("")
    query_runs._begun.clear()
    assert begun(run, 5, folder)
    assert "can't be stored" in caplog.text
    assert note.read_text() == "5"


def test_a_duplicate_of_a_batch_that_was_never_sent_is_an_error(run: str) -> None:
    first, second = (begin_batch(run, Key("app", batch_id), SETTINGS, ANYBODY) for batch_id in (4, 5))
    first.check(BatchReport(Duplicate(3)))
    second.check(BatchReport(Committed(3)))
    second.check(BatchReport(Duplicate(3), is_by_marks=True))
    second.check(BatchReport(Duplicate(3, rolled_back_by=4)))
    with pytest.raises(InvalidError, match="batch 5 of app was folded before in version 3") as caught:
        second.check(BatchReport(Duplicate(3)))
    assert caught.value.where == "file:///lake/t"
    assert "give each query its own app_id" in caught.value.hint


def test_a_run_that_writes_other_rows_under_the_key_of_a_batch_is_told_so(run: str) -> None:
    skips = replace(SETTINGS, on_reused_key="skip")
    appended, again, others = ("rows", None), ("rows", None), ("other rows", None)
    for result in (Duplicate(3), None):
        this = str(uuid.uuid4())

        def check(
            plan: object,
            result: Duplicate | Committed | None,
            settings: WriteSettings = SETTINGS,
            run: str = this,
        ) -> None:
            begin_batch(run, Key("app", 4), settings, ANYBODY, plan=plan).check(BatchReport(result))

        check(appended, Committed(3))
        check(again, result)
        check(others, result, skips)
        with pytest.raises(ReusedKeyError, match="batch 4 of app"):
            check(others, result)
        check(others, result, run=run)
