"""Whatever happens in the threads of a writer, each append gets its outcome, and `close` raises an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writer import batch_writer
from lakefold_ingest.writing.report import BatchReport
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"n": [1]})
OPTIONS: lakefold.WriteOptions = {"bootstrap_servers": "127.0.0.1:1", "timeout": 30.0}


class Answering:
    """Answers each batch at once."""

    def __init__(self, *_: object, before_send: Callable[[], None], **__: object) -> None:
        before_send()

    def finish(self) -> BatchReport:
        return BatchReport(None, is_sent=False)


@pytest.mark.parametrize("max_delay", [0, 1e-9, 3600, 1e10, float("inf")])
def test_appends_may_wait_for_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_delay: float
) -> None:
    monkeypatch.setattr(batch_writer, "start_batch", Answering)
    with lakefold.Writer(tmp_path / "t", max_delay=max_delay, **OPTIONS) as writer:
        writer.append(ROWS)
        future = writer.append(ROWS)
        writer.flush()
        assert future.result(0).kind == "empty"


def fail(*_: object, **__: object) -> None:
    raise ArithmeticError("an unexpected error")


def refuse(*_: object, **__: object) -> None:
    raise lakefold.InvalidError("the rows don't fit")


@pytest.mark.parametrize(
    "broken",
    [
        {"start_batch": fail},
        {"start_batch": refuse, "_misfit": fail},
        {"start_batch": refuse, "read_view": fail},
        {"_append_of": fail},
        {"time": None},
    ],
    ids=["sending", "looking for misfits", "reading the table", "joining rows", "waiting"],
)
@pytest.mark.parametrize("appends", [1, 5])
def test_an_error_in_the_thread_that_sends_reaches_every_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, object], appends: int
) -> None:
    options: lakefold.WriteOptions = {**OPTIONS, "merge_schema": True}
    writer = lakefold.Writer(tmp_path / "t", max_delay=0.2, **options)
    monkeypatch.setattr(writer, "_recent_view", lambda: None)
    for name, replacement in broken.items():
        if name == "time":
            monkeypatch.setattr(writer._batching, "take", fail)
        else:
            monkeypatch.setattr(batch_writer, name, replacement)
    futures = [writer.append(ROWS) for _ in range(appends)]
    for future in futures:
        assert isinstance(future.exception(30), ArithmeticError)
    with pytest.raises(ArithmeticError, match="an unexpected error") as raised:
        writer.close()
    assert f"{appends} appends of this writer failed" in raised.value.__notes__[0]


def test_a_callback_does_not_wait_for_its_own_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "start_batch", Answering)
    refused = list[str]()
    with lakefold.Writer(tmp_path / "t", max_delay=3600, **OPTIONS) as writer:

        def wait(_: object) -> None:
            for method in (writer.flush, writer.close):
                with pytest.raises(lakefold.InvalidError, match="the thread that calls it") as raised:
                    method()
                refused.append(str(raised.value))

        writer.append(ROWS).add_done_callback(wait)
        writer.flush()
        until(lambda: len(refused) == 2, "the callback")


def test_a_callback_may_append_while_too_much_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Futures call it in the thread by which the outcomes come that others wait for."""
    monkeypatch.setattr(batch_writer, "start_batch", Answering)
    again: list[BatchReport] = []
    with lakefold.Writer(tmp_path / "t", max_queued_bytes=1, max_delay=0, **OPTIONS) as writer:

        def append_more(_: object) -> None:
            writer.append(ROWS).add_done_callback(lambda future: again.append(future.result()))

        for _ in range(5):
            writer.append(ROWS).add_done_callback(append_more)
        until(lambda: len(again) == 5, "the appends of the callbacks")
    assert [report.kind for report in again] == ["empty"] * 5
