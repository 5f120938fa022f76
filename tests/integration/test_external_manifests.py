"""Versions in DynamoDB: pylance and Lakefold continue each other's, item for item, at every step of a put."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_committer.tables.branches import located
from lakefold_table.errors import RetryError, VersionExpiredError
from lakefold_table.lance.manifests.naming import VERSIONS, Scheme
from lakefold_table.roots import below
from lakefold_table.storage import open_storage
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.table_address import TableAddress
from tests.integration.externals import External, check_whole
from tests.proposals import append, rows
from tests.servers.fault_proxy import Answer, FaultProxy

if TYPE_CHECKING:
    from tests.servers.dynamodb import DynamoServer
    from tests.servers.s3 import S3Server


@pytest.fixture(params=Scheme, ids=lambda scheme: scheme.value)
def table(request: pytest.FixtureRequest, s3: S3Server, dynamodb: DynamoServer) -> External:
    """An empty place."""
    return External.new(s3, dynamodb, request.param)


@pytest.fixture
def v2(s3: S3Server, dynamodb: DynamoServer) -> External:
    return External.new(s3, dynamodb)


def test_each_goes_on_with_the_versions_of_the_other(table: External) -> None:
    table.create_by_pylance([0])
    for number in range(1, 6, 2):
        assert table.fold([number]) == number + 1
        assert table.ids() == list(range(number + 1))
        assert table.grow([number + 1]) == number + 2
        opened = lakefold.open(table.uri, storage_options=table.options)
        assert sorted(opened.to_arrow(columns=["id"])["id"].to_pylist()) == list(range(number + 2))
    check_whole(table, 7)
    assert [version["version"] for version in table.dataset().versions()] == list(range(1, 8))
    assert [table.ids(number) for number in (1, 4, 7)] == [[0], [0, 1, 2, 3], list(range(7))]
    assert lance.dataset(table.plain, storage_options=table.options).version == 7


def test_a_table_that_we_create_is_one_of_pylance_too(v2: External) -> None:
    v2.create()
    assert v2.grow([1, 2]) == 2
    assert v2.fold([3]) == 3
    assert v2.ids() == [1, 2, 3]
    check_whole(v2, 3)


@pytest.mark.parametrize("made_by", ["pylance", "us"])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_each_goes_on_where_the_other_stopped(table: External, made_by: str, step: int) -> None:
    """The version at each step is taken back to, and met by both: as a reader, and as the next writer."""
    table.create_by_pylance([0])
    first, second = (table.grow, table.fold) if made_by == "pylance" else (table.fold, table.grow)
    assert first([1]) == 2
    table.leave_at(2, step)
    before = [0] if step == 1 else [0, 1]
    if made_by == "pylance":
        opened = lakefold.open(table.uri, storage_options=table.options)
        assert sorted(opened.to_arrow(columns=["id"])["id"].to_pylist()) == before
    else:
        assert table.ids() == before
    if step > 1:
        table.leave_at(2, step)
    assert second([2]) == len(before) + 1
    assert first([3]) == len(before) + 2
    assert table.ids() == [*before, 2, 3]
    # What was staged and never committed stays: no client can know that it will not be. So does what both of
    # them take for removed.
    litter = {1: 1, 2: 0, 3: 0, 4: 2}[step]
    check_whole(table, len(before) + 2, litter=litter)


@pytest.mark.parametrize("next_by", ["pylance", "us"])
def test_a_staged_object_that_went_before_the_item_was_final_is_not_missed(
    v2: External, next_by: str
) -> None:
    v2.create_by_pylance([0])
    v2.grow([1])
    v2.leave_at(2, 3, without_staged=True)
    assert not v2.items()[2]["path"]["S"].endswith(".manifest")
    grow = v2.grow if next_by == "pylance" else v2.fold
    assert grow([2]) == 3
    assert v2.ids() == [0, 1, 2]
    check_whole(v2, 3)


STOPPED = {
    "copying": ("s3", lambda request: request.method == "PUT" and request.path.endswith(".manifest"), 0),
    "recording the final path": ("dynamodb", lambda request: request.method == "PutItem", 1),
    "removing what was staged": ("s3", lambda request: request.method in {"POST", "DELETE"}, 0),
}
"""The step of a put that fails, by the requests that do and how many of them go well before."""


@pytest.mark.parametrize("made_by", ["pylance", "us"])
@pytest.mark.parametrize("step", STOPPED)
def test_a_put_is_continued_after_one_of_its_steps_was_refused(v2: External, step: str, made_by: str) -> None:
    v2.create_by_pylance([0])
    first, second = (v2.grow, v2.fold) if made_by == "pylance" else (v2.fold, v2.grow)
    server, fits, after = STOPPED[step]
    with FaultProxy(getattr(v2, server).port) as proxy:
        v2.through = {"aws_endpoint" if server == "s3" else "dynamodb_endpoint": proxy.endpoint}
        proxy.plan(Answer(400, "Refused"), fits, after=after, times=-1)
        # Without the copy neither can know that it has committed, and each says so.
        with pytest.raises((OSError, RetryError)) if step == "copying" else nullcontext():
            first([1])
    v2.through = {}
    assert len([name for name in v2.files() if not name.endswith(".manifest")]) == 1
    assert second([2]) == 3
    assert v2.ids() == [0, 1, 2]
    check_whole(v2, 3, litter=1 if step.startswith("removing") else 0)


def test_a_table_from_before_a_manifest_store_continues_in_it(table: External) -> None:
    is_v2 = table.scheme is Scheme.V2
    for mode in ("create", "append"):
        lance.write_dataset(
            rows([len(mode)]),
            table.plain,
            mode=mode,
            storage_options=table.options,
            enable_v2_manifest_paths=is_v2,
        )
    assert table.numbers() == [1, 2]
    assert table.fold([0]) == 3
    assert {2, 3} & set(table.items()) == {3}
    assert table.grow([1]) == 4
    assert table.fold([2]) == 5
    assert table.ids() == [0, 1, 2, 6, 6]
    assert table.numbers() == [1, 2, 3, 4, 5]


def test_versions_that_pylance_cleaned_up_are_gone_though_their_items_stay(v2: External) -> None:
    v2.create_by_pylance([0])
    v2.fold([1])
    v2.grow([2])
    v2.dataset().cleanup_old_versions(older_than=timedelta(0))
    assert set(v2.items()) == {1, 2, 3}
    assert v2.numbers() == [3]
    with pytest.raises(VersionExpiredError, match="the oldest one left is 3"):
        lakefold.open(v2.uri, version=1, storage_options=v2.options)
    assert v2.committer().fold(v2.proposal([3], read=3)) == 4
    assert v2.grow([4]) == 5
    assert v2.ids() == [0, 1, 2, 3, 4]


def test_a_branch_of_pylance_is_continued_by_both_clients(v2: External) -> None:
    v2.create_by_pylance([0])
    v2.fold([1])
    branch = v2.dataset().create_branch("dev")
    assert Refs(v2.storage()).resolve_branch("dev") == "tree/dev"
    uri = below(v2.uri, "tree/dev")
    line = located(TableAddress(v2.uri, v2.options), "dev").versions
    assert line.numbers() == [2]
    proposal = append(uri, rows([2]), 2, storage_options=v2.options)
    proposal.table, proposal.branch = v2.uri, "dev"
    assert v2.committer(line.storage).fold(proposal) == 3
    branch = lance.dataset(uri, storage_options=v2.options)
    grown = lance.write_dataset(rows([3]), branch, mode="append", storage_options=v2.options)
    assert grown.version == 4
    assert sorted(grown.to_table()["id"].to_pylist()) == [0, 1, 2, 3]
    opened = lakefold.open(v2.uri, branch="dev", storage_options=v2.options)
    assert sorted(opened.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    items = v2.items("tree/dev")
    assert set(items) == {2, 3, 4}
    shapes = {tuple(sorted((name, *value) for name, value in item.items())) for item in items.values()}
    assert len(shapes) == 1
    assert items[3]["path"] == {"S": f"{v2.base}/tree/dev/{Scheme.V2.path(3)}"}
    assert v2.numbers() == [1, 2]


def test_a_detached_version_is_passed_over(v2: External) -> None:
    """Lance clients (pylance 14.0.2) take it for the newest and then write no more; Lakefold continues."""
    v2.create_by_pylance([0])
    written = lance.fragment.write_fragments(rows([9]), v2.uri, storage_options=v2.options, mode="append")
    lance.LanceDataset.commit(
        v2.uri,
        lance.LanceOperation.Append(written),
        read_version=1,
        storage_options=v2.options,
        detached=True,
    )
    assert max(v2.items()) >= 1 << 63
    assert v2.numbers() == [1]
    assert v2.fold([1]) == 2
    assert v2.ids(2) == [0, 1]


@pytest.mark.parametrize("name", ["k=v", "a b", "p%20q", "é", "a+b", "x%3Dy", "it's"])
def test_a_table_is_the_same_one_under_each_odd_name(s3: S3Server, dynamodb: DynamoServer, name: str) -> None:
    base = f"{uuid.uuid4().hex}/{name}"
    table = External(s3, dynamodb, base)
    table.create_by_pylance([0])
    assert table.fold([1]) == 2
    assert table.grow([2]) == 3
    assert table.ids() == [0, 1, 2]
    assert open_storage(table.plain, table.options).names(VERSIONS)


def test_writers_of_both_kinds_at_one_time_lose_nothing(v2: External) -> None:
    v2.create_by_pylance([0])
    each = 4

    def grow(writer: int) -> None:
        for number in range(each):
            v2.grow([100 * writer + number])

    def fold() -> None:
        committer = v2.committer()
        for number in range(each):
            committer.fold(v2.proposal([1000 + number]))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(fold), pool.submit(grow, 1), pool.submit(grow, 2)]:
            done.result()
    expected = {0, *range(100, 100 + each), *range(200, 200 + each), *range(1000, 1000 + each)}
    assert v2.ids() == sorted(expected)
    check_whole(v2, 1 + 3 * each)
