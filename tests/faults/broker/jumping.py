"""Folds a log that is stamped by a clock which jumps 95 days ahead and back, and checks what came of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import lance
from structlog.testing import capture_logs

import lakefold
from lakefold_committer.fold.fold import MAX_AHEAD_US
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.marks.marks import KEPT_APPS
from tests.integration.own_log import PATIENCE_S
from tests.integration.stage import folding
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_committer.observability.metrics import Metrics
    from lakefold_table.entry import Result
    from tests.integration.stage import Stage

AHEAD = timedelta(days=95)


def play_a_jump(stage: Stage, send_ahead: Callable[[Envelope], None]) -> None:
    """Fold while the log's clock jumps, and check keys, rows, the times of versions and what is said of it.

    `send_ahead` sends a proposal that the log stamps `AHEAD` of now.
    """
    with capture_logs() as lines, folding(stage, policies_every_s=3600.0) as (errors, metrics):
        assert stage.ask(creation(stage.uri)) == Committed(1)
        assert _version(stage.ask(_batch(stage, "app", 1))) == 2
        *others, last = (_without_rows(stage, f"other-{number}") for number in range(KEPT_APPS - 1))
        stage.send(*others)
        assert _version(stage.ask(last)) > 2
        assert stage.ask(_batch(stage, "app", 1)) == Duplicate(2)
        # It is one app too many. By the time of the log `app` would have been silent for so long that it is
        # forgotten, and its batch folded again; by ours less is kept of it.
        late = _batch(stage, "late", 2)
        send_ahead(late)
        dated = _version(_answer_to(stage, late))
        assert stage.marks.apps["app"].is_short
        assert stage.ask(_batch(stage, "app", 1)) == Duplicate(0)
        assert _version(stage.ask(_batch(stage, "app", 3))) == dated + 1
    assert errors == []
    assert _noticed(metrics) == 1
    (line,) = [line for line in lines if line["event"] == "log time ahead"]
    assert line["log_level"] == "warning"
    assert line["entries"] == 1
    assert timedelta(seconds=line["log_time"] - line["clock"]) > AHEAD / 2

    again = [_batch(stage, "app", 1), late, _batch(stage, "app", 4)]
    stage.send(*again)
    assert stage.fold() == {"committed": 1, "duplicate": 2, "versions": 1}
    assert ids_in(stage.uri) == [1, 2, 3, 4]
    _check_times(stage, dated)
    assert "different" not in stage.replay().values()


def _check_times(stage: Stage, dated: int) -> None:
    """Versions are stamped in their order and by now, so the newest is that of now.

    `dated`: the version with the entry that is dated ahead.
    """
    now = datetime.now(UTC)
    newest = lance.dataset(str(stage.path)).version
    assert newest == dated + 2
    times = [lakefold.open(stage.uri, version=number).timestamp for number in range(1, newest + 1)]
    assert times == sorted(set(times))
    assert times[-1] <= now + timedelta(microseconds=MAX_AHEAD_US)
    assert lakefold.open(stage.uri, as_of=now).version == newest
    assert lakefold.open(stage.uri, as_of=times[dated - 1]).version == dated


def _batch(stage: Stage, app_id: str, number: int) -> Envelope:
    return append(stage.uri, rows([number]), 1, app_id, number)


def _without_rows(stage: Stage, app_id: str) -> Envelope:
    """A batch that adds no rows. Its app is known afterwards."""
    envelope = Envelope(table=stage.uri, app_id=app_id, batch_id=0)
    envelope.lance.uuid, envelope.lance.read_version = app_id, 1
    envelope.lance.append.SetInParent()
    return envelope


def _version(result: Result) -> int:
    assert isinstance(result, Committed)
    return result.version


def _answer_to(stage: Stage, envelope: Envelope) -> Result:
    results: list[Result] = []

    def answered() -> bool:
        results.extend(outcome.result for outcome in stage.outcomes() if outcome.uuid == envelope.lance.uuid)
        return bool(results)

    until(answered, "the answer", seconds=PATIENCE_S)
    return results[0]


def _noticed(metrics: Metrics) -> float:
    value = metrics.registry.get_sample_value("lakefold_log_time_ahead_total")
    assert value is not None
    return value
