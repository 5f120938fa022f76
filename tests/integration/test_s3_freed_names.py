"""A name on S3 that others took and freed again while a version was being put under it: it shows nothing.

Real pylance commits and cleans up between our look and our put, which a proxy holds; a tag keeps the version
that our look asks for.

Promise: in-the-line (docs/operations/promises.md).
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.branches import open_branch
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Rejected
from lakefold_table.errors import StopError
from lakefold_table.versions.table_address import TableAddress
from tests.folding import LOG, entries
from tests.proposals import append, creation, rows
from tests.servers.fault_proxy import FaultProxy, Hold
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result
    from tests.servers.s3 import S3Server


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/t"


def fold(table: TableWriter, offset: int, *envelopes: Envelope) -> list[Result]:
    return [outcome.result for outcome in table.fold(entries(envelopes, offset)).outcomes]


def others_go_on(uri: str, server: S3Server) -> None:
    """Two versions of pylance's and a clean-up with zero age; a tag keeps the version before."""
    options = server.options()
    dataset = lance.dataset(uri, storage_options=options)
    dataset.tags.create("kept", dataset.version)
    for number in (101, 102):
        lance.write_dataset(rows([number]), uri, mode="append", storage_options=options)
    newest = lance.dataset(uri, storage_options=options)
    newest.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


def folded_anew(uri: str, proxy: FaultProxy, entry: Envelope) -> Result:
    """The answer to the entry at offset 2 after the table is opened again; the offset confirms its marks."""
    (result,) = fold(
        open_branch(TableAddress(uri, proxy.options()), "", recovery=RecoveryContext(LOG, lambda: 100, 2)),
        2,
        entry,
    )
    return result


def ids(uri: str, server: S3Server) -> list[int]:
    actual = lance.dataset(uri, storage_options=server.options()).to_table()["id"].to_pylist()
    return sorted(actual)


def test_a_version_in_a_freed_place_answers_nothing_and_is_removed(
    uri: str, s3: S3Server, proxy: FaultProxy
) -> None:
    table = open_branch(TableAddress(uri, proxy.options()), "")
    fold(table, 0, creation(uri))
    fold(table, 1, append(uri, rows([1]), 1, "app", 0, storage_options=s3.options()))
    entry = append(uri, rows([2]), 2, "app", 1, storage_options=s3.options())
    hold = Hold()
    proxy.plan(hold, lambda request: request.method == "PUT")
    with ThreadPoolExecutor(1) as pool:
        folded = pool.submit(fold, table, 2, entry)
        assert hold.reached.wait(120)
        others_go_on(uri, s3)
        hold.release.set()
        with pytest.raises(StopError, match="version 3 was put, but the newest is 4"):
            folded.result(120)
    assert table.late_versions_removed == 1
    assert open_source(uri, s3.options()).versions.numbers() == [2, 4]
    assert isinstance(folded_anew(uri, proxy, entry), Rejected)  # What version 3 did is not known any more.
    assert ids(uri, s3) == [1, 101, 102]


def test_a_version_that_others_built_on_at_once_is_reported(
    uri: str, s3: S3Server, proxy: FaultProxy
) -> None:
    """The listing behind the put shows a later version, which was made from ours."""
    table = open_branch(TableAddress(uri, proxy.options()), "")
    fold(table, 0, creation(uri))
    entry = append(uri, rows([2]), 1, "app", 1, storage_options=s3.options())
    hold = Hold()
    proxy.plan(hold, lambda request: request.method == "LIST")
    with ThreadPoolExecutor(1) as pool:
        folded = pool.submit(fold, table, 1, entry)
        assert hold.reached.wait(120)
        lance.write_dataset(rows([101]), uri, mode="append", storage_options=s3.options())
        hold.release.set()
        assert [type(result) for result in folded.result(120)] == [Committed]
    assert ids(uri, s3) == [2, 101]
    again = append(uri, rows([3]), 2, "app", 2, storage_options=s3.options())
    assert [committed.version for committed in fold(table, 2, again) if isinstance(committed, Committed)] == [
        4
    ]


def test_no_proposal_is_invalid_for_a_version_that_the_committer_has_not_seen(
    uri: str, s3: S3Server, proxy: FaultProxy
) -> None:
    """It read version 4, made by others a moment ago; the name 3 is free again, and a tag keeps version 2."""
    table = open_branch(TableAddress(uri, proxy.options()), "")
    fold(table, 0, creation(uri))
    fold(table, 1, append(uri, rows([1]), 1, "app", 0, storage_options=s3.options()))
    others_go_on(uri, s3)
    entry = append(uri, rows([2]), 4, "app", 1, storage_options=s3.options())
    with pytest.raises(StopError, match="version 2 was the newest, now it is 4"):
        fold(table, 2, entry)
    assert isinstance(folded_anew(uri, proxy, entry), Committed)
    assert ids(uri, s3) == [1, 2, 101, 102]
