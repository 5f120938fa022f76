"""If the system allows too few threads, verbs and committers say so at their end, and lose nothing."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold.local.ports import free_port
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed
from lakefold_table.errors import RetryError
from lakefold_table.uri import canonical
from tests.integration.committers import NEW_PROCESS, committer_arguments, fold_to_the_end
from tests.integration.few_threads import limited
from tests.integration.own_log import PATIENCE_S, patient_admin
from tests.proposals import append, creation, rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.integration.conftest import TopicNames

SECONDS = 200
LIMITS = (2, 14, 22, 80)
"""Enough for nothing, for some of a committer's threads, for all."""
TOO_FEW = "Error: the system allows this process no more threads"


def run(threads: int, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a verb in a process that may have so many threads."""
    command = limited(threads, *NEW_PROCESS, *arguments)
    # numpy would end a process in which it can't start a thread for each core.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
    )


@pytest.mark.parametrize("threads", [2, 6])
def test_a_verb_names_the_limit(threads: int, tmp_path: Path) -> None:
    brokers = f"127.0.0.1:{free_port()}"
    ended = run(threads, ["status", "--bootstrap-servers", brokers, "--root", str(tmp_path)])
    assert ended.returncode == RetryError.exit_code, ended.stderr
    assert TOO_FEW in ended.stderr
    assert "Hint: raise the limit of processes" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_scan_names_the_limit(tmp_path: Path) -> None:
    """It waited for ever for a thread."""
    lance.write_dataset(rows([1]), tmp_path / "t")
    ended = run(5, ["tail", str(tmp_path / "t"), "--rows", "--from", "0"])
    assert ended.returncode == RetryError.exit_code, ended.stderr
    assert TOO_FEW in ended.stderr


def test_no_limit_makes_a_committer_lose_an_entry(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """It ends with an error, or does all of its work, whichever thread is one too many."""
    names, table = topic_names, tmp_path / "t"
    config, topics = KafkaConfig(bootstrap), Topics(names.transactions, names.outcomes, names.dead_letters)
    ensure_topics(patient_admin(config), topics)
    uri = canonical(table)
    arguments = committer_arguments(bootstrap, names, tmp_path)
    arguments += ["--until-caught-up", "--http-port", "0"]
    codes = []
    with Proposer(config, topics) as proposer:
        proposer.send_wait(creation(uri))
        fold_to_the_end(bootstrap, names, tmp_path)
        sent = 0
        for threads in LIMITS:
            sent += 1
            proposer.send_wait(append(uri, rows([sent]), 1, "app", sent))
            # What has too few threads tries again for that long; what has enough is not hurried.
            patience = PATIENCE_S if threads == LIMITS[-1] else 15
            ended = run(threads, [*arguments, "--give-up-after", f"{patience:.0f}"])
            assert "Traceback" not in ended.stderr, ended.stderr
            assert ended.returncode == 0 or "no more threads" in ended.stderr, ended.stderr
            codes.append(ended.returncode)
    assert codes[0] == RetryError.exit_code
    assert codes[-1] == 0
    assert set(codes) == {0, RetryError.exit_code}
    fold_to_the_end(bootstrap, names, tmp_path)
    outcomes = [outcome for _, outcome in read_outcomes(patient_admin(config), topics, 0, 0)]
    assert [outcome.batch_id for outcome in outcomes] == [None, *range(1, sent + 1)]
    assert {type(outcome.result) for outcome in outcomes} == {Committed}
