"""A batch whose outcome comes later than its writer waits: the table says whether it has this very proposal.

The committer is killed when it has published a version and reported nothing, and none follows it. The writer
sees no outcome, but the key of its batch in the table's marks. That key may be another process's.

Promise: own-batches (docs/operations/promises.md).
"""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import Answer, Proposed, close_clients
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage
from tests.integration.writing_bench import patient_writers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

APP = "svc"
FORMATS = ("lance", "delta")
SHORT_S = 0.5
"""How long a writer waits for an outcome, once the version with its batch is published."""


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.fixture
def stage(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """A log whose committer publishes what was sent, dies, and leaves its writer without an outcome."""
    stage = Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)
    patient_writers(monkeypatch)
    answer = Proposed.answer

    def outlasted(proposed: Proposed, timeout_s: float) -> Answer:
        wait([proposed._sent])
        stage.fold_unreported()
        late = answer(proposed, timeout_s)
        # The next one must not find anything to report before it publishes.
        stage.fold()
        assert late.outcome is None
        return late

    monkeypatch.setattr(Proposed, "answer", outlasted)
    yield stage
    close_clients()


def options_of(stage: Stage, kind: str) -> lakefold.WriteOptions:
    return {
        "bootstrap_servers": stage.bootstrap,
        "transactions_topic": stage.names.transactions,
        "outcomes_topic": stage.names.outcomes,
        "timeout": SHORT_S,
        "format": kind,
    }


def numbers(stage: Stage) -> list[int]:
    return sorted(lakefold.open(stage.path).to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_each_door_recognizes_its_own_batch_and_applies_it_once(stage: Stage, kind: str) -> None:
    options, table = options_of(stage, kind), stage.path
    with lakefold.Writer(table, app_id=APP, max_delay=0, **options) as writer:
        first = writer.append(rows(1)).result(PATIENCE_S)
        later = writer.append(rows(2)).result(PATIENCE_S)
    key: dict[str, Any] = {"app_id": "loader", **options}
    reports = [
        first,
        later,
        lakefold.append(table, rows(3, 4), batch_id=0, **key),
        lakefold.upsert(table, rows(4, 5), keys="n", batch_id=1, **key),
        lakefold.delete(table, where="n = 5", batch_id=2, **key),
        lakefold.apply_changes(
            table, pa.table({"n": [4], "op": ["d"]}), keys="n", operation_column="op", batch_id=3, **key
        ),
        lakefold.append(table, rows(6), **options),
    ]
    assert [report.kind for report in reports] == ["committed"] * len(reports)
    versions = [report.version or 0 for report in reports]
    assert versions == sorted(set(versions))
    assert numbers(stage) == [1, 2, 3, 6]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_number_that_another_process_has_used_is_passed_over(stage: Stage, kind: str) -> None:
    options, table = options_of(stage, kind), stage.path
    lakefold.append(table, rows(1), app_id=APP, batch_id=0, **options)
    logged: lakefold.WriteOptions = {**options, "wait": "log"}
    lakefold.append(table, rows(2), app_id=APP, batch_id=1, **logged)
    with lakefold.Writer(table, app_id=APP, max_delay=0, **options) as writer:
        assert writer.append(rows(3)).result(PATIENCE_S).kind == "committed"
    assert numbers(stage) == [1, 2, 3]
