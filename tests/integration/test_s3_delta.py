"""A Delta table on S3: faults at each request of its commits and checkpoints, other clients, its readers."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lakefold import cli
from lakefold_table.delta.log_segment.names import FOLDER, SIDECARS
from tests.delta_logs.proposed_table import APPENDS, ROWS, ProposedTable, take_turns_with_delta_rs
from tests.servers.fault_proxy import Answer, Fault, FaultProxy, LoseAnswer, LoseRequest
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server


def table_on(server: S3Server) -> ProposedTable:
    """A table that no other test uses."""
    return ProposedTable(f"s3://{BUCKET}/{uuid.uuid4().hex}/flights and é", server.options())


@pytest.mark.parametrize("fault", [LoseAnswer(), LoseRequest(), Answer(500, done=True), Answer(503)], ids=str)
def test_a_fault_at_each_request_costs_neither_a_row_nor_a_version(
    s3: S3Server, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault, *, all_faults: bool
) -> None:
    """Without `--all-faults` the faults of a table are seven requests from each other."""
    monkeypatch.setattr("lakefold_table.versions.versions.RECENT_SECONDS", -1)
    apart = 1 if all_faults else 7
    options = proxy.options(client_max_retries="0")
    requests = 0
    for at in range(0, 1000, apart):
        table = table_on(s3)
        writer = table.fold(table.writer(options), table.create())
        proxy.requests.clear()
        proxy.plan(fault, after=at)
        for number in range(APPENDS):
            writer = table.fold(writer, table.append(number))
        writer = table.fold(writer, table.delete(0, 1))
        table.fold(writer, table.delete(0, 3))
        assert table.rows() == [row for row in range(APPENDS * ROWS) if row not in {1, 3}]
        versions = table.versions()
        assert versions == list(range(len(versions)))
        # A writer that takes over from one whose version it can't be sure of confirms it by one of its own.
        assert APPENDS + 3 <= len(versions) <= APPENDS + 4
        requests = max(requests, len(proxy.requests))
        if proxy.left:
            proxy.forget()
            break
    assert requests > 30


def test_a_checkpoint_is_enough_to_open_a_table(s3: S3Server) -> None:
    table = table_on(s3)
    writer = table.fold(table.writer(), table.create())
    for number in range(APPENDS):
        writer = table.fold(writer, table.append(number))
    table.fold(writer, table.delete(2, 0))
    assert table.storage.names(SIDECARS)
    for version in range(APPENDS):
        table.storage.delete(f"{FOLDER}/{version:020}.json")
    assert table.rows() == [row for row in range(APPENDS * ROWS) if row != 2 * ROWS]


def test_delta_rs_and_we_write_one_table_by_turns(s3: S3Server) -> None:
    take_turns_with_delta_rs(table_on(s3))


def test_old_versions_are_removed_from_a_bucket(s3: S3Server) -> None:
    table = table_on(s3)
    writer = table.fold(table.writer(), table.create())
    for number in range(APPENDS):
        writer = table.fold(writer, table.append(number))
    flags = [
        part for name, value in table.options.items() for part in ("--storage-option", f"{name}={value}")
    ]
    assert cli.run(["cleanup", table.uri, "--older-than", "0s", *flags]) == 0
    left = table.versions()
    assert left[-1] == APPENDS
    assert len(left) < APPENDS
    assert table.rows() == list(range(APPENDS * ROWS))
    table.fold(writer, table.append(APPENDS))
    assert table.rows() == list(range((APPENDS + 1) * ROWS))
