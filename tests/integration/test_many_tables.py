"""A process that writes to many tables stays connected for some of them only.

It ended with an error of the interpreter at the 500th table, since a table's waiter has threads of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import lakefold
from lakefold_ingest.writing import log_client
from lakefold_ingest.writing.log_client import close_clients
from lakefold_table.uri import canonical
from tests.integration.committers import running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.writing_bench import patient_writers

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.integration.conftest import TopicNames

MOST = 3
TABLES = 3 * MOST


def test_the_waiters_of_the_tables_that_were_written_longest_ago_are_closed(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient_writers(monkeypatch)
    monkeypatch.setattr(log_client, "MOST_WAITERS", MOST)
    OwnLog.make(bootstrap, topic_names)
    names = topic_names
    options: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": names.transactions,
        "outcomes_topic": names.outcomes,
        "timeout": PATIENCE_S,
    }

    def kinds(batch: int) -> set[str]:
        rows = pa.table({"n": [batch]})
        return {
            lakefold.append(tmp_path / f"{number}", rows, app_id="a", batch_id=batch, **options).kind
            for number in range(TABLES)
        }

    def waiting() -> int:
        return sum(len(client._waiters) for client in log_client._clients.values())

    def unanswered() -> list[int]:
        (client,) = log_client._clients.values()
        tables = [canonical(tmp_path / f"{number}") for number in range(TABLES)]
        return [sent.batch_id for table in tables for sent in client.unanswered(table, "a")]

    try:
        with running_committer(bootstrap, names, tmp_path):
            assert kinds(0) == {"committed"}
        assert waiting() <= MOST
        options["wait"] = "log"
        assert kinds(1) == {"sent"}
        assert waiting() <= MOST
        assert unanswered() == [1] * TABLES
        options["wait"] = "commit"
        with running_committer(bootstrap, names, tmp_path):
            assert kinds(2) == {"committed"}
            assert kinds(2) == {"duplicate"}
        assert waiting() <= MOST
        # The outcomes of batches that were sent with wait="log" are read with the next such batch.
        options["wait"] = "log"
        assert kinds(3) == {"sent"}
        assert unanswered() == [3] * TABLES
    finally:
        close_clients()
    for number in range(TABLES):
        assert sorted(lakefold.open(tmp_path / f"{number}").to_arrow()["n"].to_pylist()) == [0, 1, 2]
