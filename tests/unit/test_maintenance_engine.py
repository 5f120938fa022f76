"""`--engine`, and what a task of another process returns."""

from __future__ import annotations

import pickle

import pytest

from lakefold.cli import run
from lakefold.maintaining.engine import HERE, engine_of
from lakefold_maintenance.format import TaskLimits
from lakefold_maintenance.lance.remote_tasks import RemoteResult, RemoteTask
from lakefold_maintenance.planning.plan import RewriteTask
from lakefold_maintenance.rewriting.engines import InProcess
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError

USAGE = 2
OLD = DataFragment(id=3, physical_rows=5)


@pytest.fixture
def sent() -> RemoteTask:
    task = RewriteTask((3,), 5, 0, 100)
    encoded = (OLD.SerializeToString(),)
    return RemoteTask("/t", 7, task, encoded, TaskLimits(), options={"key": "secret"})


@pytest.mark.parametrize("verb", ["compact", "maintain"])
def test_an_engine_that_does_not_exist_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "/nowhere/t", "--engine", "flink"]) == USAGE
    assert "'flink' is not one of 'process', 'spark'" in capsys.readouterr().err


def test_the_functions_engine_is_checked() -> None:
    assert isinstance(engine_of(HERE, 1), InProcess)
    with pytest.raises(InvalidError, match="there is no engine 'flink'"):
        engine_of("flink", 1)


def test_a_task_arrives_as_it_was_sent(sent: RemoteTask) -> None:
    assert pickle.loads(pickle.dumps(sent)) == sent  # noqa: S301 - made here
    assert "secret" not in repr(sent)


def test_a_result_arrives_with_the_task_s_fragments(sent: RemoteTask) -> None:
    new = DataFragment(physical_rows=5)
    result = sent.received(RemoteResult((new.SerializeToString(),)))
    assert not isinstance(result, LakefoldError)
    assert (result.task, result.old, result.new) == (sent.task, [OLD], [new])


@pytest.mark.parametrize("kind", [DamagedError, RetryError, InvalidError])
def test_an_error_arrives_with_its_kind(sent: RemoteTask, kind: type[LakefoldError]) -> None:
    result = sent.received(RemoteResult(fault=(kind.__name__, "no", "there", "do")))
    assert type(result) is kind
    assert str(result) == "there: no (do)"


def test_a_task_without_a_table_returns_its_error(sent: RemoteTask) -> None:
    result = sent.run()
    assert result.fault is not None
    assert isinstance(sent.received(result), LakefoldError)
