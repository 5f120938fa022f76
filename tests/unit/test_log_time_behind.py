"""Entries dated long before those in front of them are noticed, as those are that are dated ahead."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import MAX_BEHIND_US, PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_log.codec.envelope import encode
from lakefold_table.uri import canonical
from tests.folding import DAY, FORMATS, append, creation
from tests.unit.test_partition import Log, Message, Reports, at, opened

if TYPE_CHECKING:
    from pathlib import Path


def test_entries_dated_far_before_others_are_counted_and_logged(tmp_path: Path) -> None:
    """A clock that ran ahead for an entry makes none of those behind it late."""
    now = time.time_ns() // 1000
    minute = MAX_BEHIND_US // 5
    late = [0, -1, now - 6 * minute]
    times = [0, now - 3 * minute, -1, now - 4 * minute, now + 95 * DAY, now, now - 6 * minute, now - minute]
    uri = canonical(tmp_path / "t")
    made = [creation(), *(append(f"f{number}") for number in range(len(times) - 1))]
    sent = [
        Message(offset, uri.encode(), encode(at(uri, envelope)), at_us)
        for offset, (envelope, at_us) in enumerate(zip(made, times, strict=True))
    ]
    metrics, reports = Metrics(), Reports()
    tables = Tables(FORMATS, lambda _: None, opened)
    log = Log([sent[:3], sent[3:]])
    with capture_logs() as lines:
        committer = PartitionCommitter(log, reports, tables, LoopLimits(Limits(100, 1 << 20), 0.0), metrics)  # type: ignore[arg-type]
        committer.run(threading.Event(), log.end_offset())
    assert metrics.registry.get_sample_value("lakefold_log_time_behind_total") == len(late)
    values = [line for line in lines if line["event"] == "log time behind"]
    assert sum(each["entries"] for each in values) == len(late)
    assert values[-1]["last"].endswith("0@6")
    assert values[-1]["log_time"] == pytest.approx((now - 6 * minute) / 1e6)
    assert len(reports.outcomes) == len(times)
