"""Versions in DynamoDB on a bad day: races, lost answers at each step of a put, what each refusal says."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lakefold.local.ports import free_port
from lakefold_table.errors import DamagedError, InvalidError, RetryError
from lakefold_table.lance.manifests.naming import VERSIONS, Scheme
from lakefold_table.manifest_stores.base import ManifestRecord
from lakefold_table.manifest_stores.dynamodb import PAGE, DynamoManifests
from lakefold_table.storage import open_storage
from lakefold_table.storage.base import DoubtfulPutError, Put
from tests.integration.externals import External, check_whole
from tests.servers.dynamodb import TABLE, DynamoServer
from tests.servers.fault_proxy import Answer, Fault, FaultProxy, LoseAnswer, LoseRequest, Request, Strip
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers.s3 import S3Server

THREADS = 32
ROUNDS = 25
ALL_ROUNDS = 100
"""How many rounds a race has in `make test-faults`."""
OPTIONS = {
    "aws_access_key_id": "lakefold",
    "aws_secret_access_key": "lakefold-secret",
    "aws_region": "us-east-1",
    "client_max_retries": "0",
}


@pytest.fixture
def base() -> str:
    return f"{uuid.uuid4().hex}/t"


@pytest.fixture
def dynamodb_proxy(dynamodb: DynamoServer) -> Iterator[FaultProxy]:
    with FaultProxy(dynamodb.port) as running:
        yield running


@pytest.fixture
def manifests(dynamodb_proxy: FaultProxy) -> DynamoManifests:
    """The manifest store behind the proxy."""
    return DynamoManifests(TABLE, {**OPTIONS, "dynamodb_endpoint": dynamodb_proxy.endpoint})


def recorded(version: int, writer: str = "x", size: int | None = 5) -> ManifestRecord:
    return ManifestRecord(version, f"some/{version}.manifest-{writer}", size)


def is_put(request: Request) -> bool:
    return request.method == "PutItem"


def test_of_many_threads_exactly_one_records_a_version(
    dynamodb: DynamoServer, base: str, *, all_faults: bool
) -> None:
    """Each of hundreds of puts is one request, as pylance makes it."""
    rounds = ALL_ROUNDS if all_faults else ROUNDS
    options = dynamodb.options(**OPTIONS)
    stores = [DynamoManifests(TABLE, options) for _ in range(4)]
    barrier = threading.Barrier(THREADS, timeout=200)

    def race(writer: int) -> list[Put]:
        answers = []
        for number in range(1, rounds + 1):
            barrier.wait()
            answers.append(stores[writer % 4].put_if_absent(base, recorded(number, str(writer))))
        return answers

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(race, range(THREADS)))
    for number, column in enumerate(zip(*answers, strict=True), 1):
        assert Counter(column) == {Put.STORED: 1, Put.EXISTS: THREADS - 1}
        assert stores[0].get(base, number) == recorded(number, str(column.index(Put.STORED)))


def test_of_many_threads_exactly_one_puts_a_version(s3: S3Server, dynamodb: DynamoServer) -> None:
    table = External.new(s3, dynamodb)
    stores = [table.storage() for _ in range(4)]
    rounds = 4
    barrier = threading.Barrier(THREADS, timeout=200)

    def race(writer: int) -> list[Put]:
        answers = []
        for number in range(1, rounds + 1):
            barrier.wait()
            answers.append(stores[writer % 4].put_if_absent(Scheme.V2.path(number), [b"writer %d" % writer]))
        return answers

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(race, range(THREADS)))
    for number, column in enumerate(zip(*answers, strict=True), 1):
        assert Counter(column) == {Put.STORED: 1, Put.EXISTS: THREADS - 1}
        assert stores[0].get(Scheme.V2.path(number)) == b"writer %d" % column.index(Put.STORED)
    check_whole(table, rounds)


LOST: list[Fault] = [LoseAnswer(), LoseRequest(), Answer(500, done=True), Answer(503)]
LOST_IDS = ["lost answer", "lost request", "done and 500", "503"]


@pytest.mark.parametrize(
    ("step", "fault"),
    [(step, fault) for step in range(1, 6) for fault in (LOST if step in {2, 4} else LOST[:2])],
    ids=lambda value: str(value) if isinstance(value, int) else LOST_IDS[LOST.index(value)],
)
def test_a_fold_is_published_once_whatever_is_lost_at_a_step(
    s3: S3Server,
    dynamodb: DynamoServer,
    dynamodb_proxy: FaultProxy,
    proxy: FaultProxy,
    step: int,
    fault: Fault,
) -> None:
    table = External.new(s3, dynamodb)
    table.create_by_pylance([0])
    proposal = table.proposal([1])
    table.through = {
        "aws_endpoint": proxy.endpoint,
        "dynamodb_endpoint": dynamodb_proxy.endpoint,
        "client_max_retries": "0",
    }
    final = f"/{BUCKET}/{table.base}/{table.scheme.path(2)}"
    at, fits, after = {
        1: (proxy, lambda request: request.method == "PUT" and request.path.startswith(f"{final}-"), 0),
        2: (dynamodb_proxy, is_put, 0),
        3: (proxy, lambda request: request.method == "PUT" and request.path == final, 0),
        4: (dynamodb_proxy, is_put, 1),
        5: (proxy, lambda request: request.method == "DELETE" and request.path.startswith(f"{final}-"), 0),
    }[step]
    at.plan(fault, fits, after=after)
    committer = table.committer()
    try:
        version = committer.fold(proposal)
    except RetryError:
        # A committer makes the same attempt again.
        version = committer.fold(proposal)
    assert version == 2
    assert at.left == 0
    table.through = {}
    assert table.ids() == [0, 1]
    assert committer.fold(table.proposal([2])) == 3
    assert table.ids() == [0, 1, 2]
    check_whole(table, 3)


def test_a_put_costs_as_many_requests_as_it_has_steps_and_a_look(
    s3: S3Server, dynamodb: DynamoServer, dynamodb_proxy: FaultProxy, proxy: FaultProxy
) -> None:
    table = External.new(s3, dynamodb)
    table.through = {"aws_endpoint": proxy.endpoint, "dynamodb_endpoint": dynamodb_proxy.endpoint}
    storage = table.storage()
    for number in (1, 2):
        storage.put_if_absent(Scheme.V2.path(number), [b"x"])
    with proxy.counted() as of_objects, dynamodb_proxy.counted() as of_items:
        storage.put_if_absent(Scheme.V2.path(3), [b"x"])
    assert of_objects == {"HEAD": 1, "PUT": 2, "DELETE": 1}
    assert of_items == {"PutItem": 2}
    with proxy.counted() as of_objects, dynamodb_proxy.counted() as of_items:
        storage.get(Scheme.V2.path(3))
        storage.size(Scheme.V2.path(4))
    assert of_objects == {"GET": 1, "HEAD": 1}
    assert of_items == {"GetItem": 1}


REFUSED = [
    ("AccessDeniedException", "allow dynamodb:"),
    ("UnrecognizedClientException", "check the key"),
    ("ExpiredTokenException", "supply a new one"),
    ("ValidationException", "keys must be base_uri"),
]
CALLS: list[Callable[[DynamoManifests], object]] = [
    lambda manifests: manifests.get("b", 1),
    lambda manifests: manifests.put_if_absent("b", recorded(1)),
    lambda manifests: manifests.put_if_present("b", recorded(1)),
    lambda manifests: list(manifests.newest("b")),
    lambda manifests: manifests.forget("b"),
]


@pytest.mark.parametrize("call", CALLS, ids=["get", "put_if_absent", "put_if_present", "newest", "forget"])
def test_each_refusal_says_what_to_do(
    manifests: DynamoManifests, dynamodb_proxy: FaultProxy, call: Callable[[DynamoManifests], object]
) -> None:
    manifests.put_if_absent(uuid.uuid4().hex, recorded(1))
    for code, says in REFUSED:
        dynamodb_proxy.plan(Answer(400, code))
        with pytest.raises(InvalidError) as refused:
            call(manifests)
        assert code in refused.value.message
        assert says in refused.value.hint
        assert refused.value.where.startswith(f"dynamodb://{TABLE}/")
    dynamodb_proxy.plan(
        Answer(400, "InvalidSignatureException", message="Signature expired: 1 is now earlier than 2")
    )
    with pytest.raises(InvalidError, match="Signature expired") as refused:
        call(manifests)
    assert "clock" in refused.value.hint
    for code in ("ProvisionedThroughputExceededException", "ThrottlingException"):
        dynamodb_proxy.plan(Answer(400, code))
        with pytest.raises(RetryError, match=code) as throttled:
            call(manifests)
        assert "capacity" in throttled.value.hint


@pytest.mark.parametrize("fault", LOST, ids=LOST_IDS)
def test_an_answer_that_did_not_come_is_doubt_for_a_commit_and_tried_again_for_all_else(
    manifests: DynamoManifests, dynamodb_proxy: FaultProxy, base: str, fault: Fault
) -> None:
    assert manifests.put_if_absent(base, recorded(1)) is Put.STORED
    dynamodb_proxy.plan(fault, is_put)
    with pytest.raises(DoubtfulPutError):
        manifests.put_if_absent(base, recorded(2))
    stored = recorded(2) if fault in (LOST[0], LOST[2]) else None
    assert manifests.get(base, 2) == stored
    for call in (CALLS[0], *CALLS[2:]):
        dynamodb_proxy.plan(fault)
        with pytest.raises(RetryError):
            call(manifests)
    assert dynamodb_proxy.left == 0


def test_what_may_be_sent_again_is_sent_again(dynamodb_proxy: FaultProxy, base: str) -> None:
    options = {**OPTIONS, "client_max_retries": "1", "dynamodb_endpoint": dynamodb_proxy.endpoint}
    manifests = DynamoManifests(TABLE, options)
    assert manifests.put_if_absent(base, recorded(1)) is Put.STORED
    for call in (
        lambda: manifests.get(base, 1),
        lambda: manifests.put_if_present(base, recorded(1)),
        lambda: next(manifests.newest(base)),
    ):
        dynamodb_proxy.plan(Answer(500))
        assert call() in {recorded(1), True}
    assert dynamodb_proxy.left == 0


def test_what_commits_a_version_is_sent_once(dynamodb_proxy: FaultProxy, base: str) -> None:
    options = {**OPTIONS, "client_max_retries": "3", "dynamodb_endpoint": dynamodb_proxy.endpoint}
    manifests = DynamoManifests(TABLE, options)
    dynamodb_proxy.plan(LoseAnswer(), is_put)
    with dynamodb_proxy.counted() as asked, pytest.raises(DoubtfulPutError):
        manifests.put_if_absent(base, recorded(1))
    assert asked["PutItem"] == 1
    assert manifests.get(base, 1) == recorded(1)


def test_a_server_that_is_away_has_recorded_nothing() -> None:
    options = {**OPTIONS, "dynamodb_endpoint": f"http://127.0.0.1:{free_port()}"}
    manifests = DynamoManifests(TABLE, options)
    for call in CALLS:
        with pytest.raises(RetryError, match="Could not connect"):
            call(manifests)


def test_a_server_that_went_away_has_recorded_nothing(tmp_path: Path, base: str) -> None:
    with DynamoServer(tmp_path) as server:
        manifests = DynamoManifests(TABLE, server.options(**OPTIONS))
        assert manifests.put_if_absent(base, recorded(1)) is Put.STORED
        server.kill()
        with pytest.raises(RetryError, match="Could not connect"):
            manifests.put_if_absent(base, recorded(2))


def test_records_are_read_back_as_they_were_put(dynamodb: DynamoServer, base: str) -> None:
    manifests = DynamoManifests(TABLE, dynamodb.options(**OPTIONS))
    numbers = [*range(1, 2 * PAGE + 2), 1 << 63, (1 << 64) - 1]
    for number in numbers:
        assert manifests.put_if_absent(base, recorded(number)) is Put.STORED
    assert manifests.put_if_absent(base, recorded(7, "other")) is Put.EXISTS
    assert manifests.get(base, (1 << 64) - 1) == recorded((1 << 64) - 1)
    assert [record.version for record in manifests.newest(base)] == list(reversed(numbers[:-2]))
    assert list(manifests.newest(f"{base}x")) == []
    assert manifests.put_if_present(base, recorded(7, "other", None))
    assert manifests.get(base, 7) == recorded(7, "other", None)
    assert "size" not in dynamodb.items(base)[7]
    assert not manifests.put_if_present(base, recorded(99))
    assert manifests.get(base, 99) is None


@pytest.mark.parametrize(
    "broken",
    [{"path": {"N": "1"}}, {"size": {"S": "many"}}, {"size": {"N": "1.5"}}, {"path": None}],
    ids=["path", "size", "half a byte", "no path"],
)
def test_an_item_that_is_no_version_is_damage(
    dynamodb: DynamoServer, base: str, broken: dict[str, dict[str, str] | None]
) -> None:
    manifests = DynamoManifests(TABLE, dynamodb.options(**OPTIONS))
    manifests.put_if_absent(base, recorded(1))
    item = {name: value for name, value in {**dynamodb.items(base)[1], **broken}.items() if value}
    dynamodb.client().put_item(TableName=TABLE, Item=item)
    for read in (lambda: manifests.get(base, 1), lambda: list(manifests.newest(base))):
        with pytest.raises(DamagedError, match="can't be a version") as caught:
            read()
        assert caught.value.where == f"dynamodb://{TABLE}/{base}"


def test_a_missing_table_is_reported_with_the_command_that_creates_it(
    s3: S3Server, dynamodb: DynamoServer, base: str
) -> None:
    storage = open_storage(
        f"s3+ddb://{BUCKET}/{base}?ddbTableName=not-made", dynamodb.options(**s3.options())
    )
    for call in (
        lambda: storage.put_if_absent(Scheme.V2.path(1), [b"x"]),
        lambda: storage.names(VERSIONS),
        lambda: storage.size(Scheme.V2.path(1)),
    ):
        with pytest.raises(InvalidError, match="the DynamoDB table not-made does not exist") as caught:
            call()
        assert caught.value.hint.startswith("aws dynamodb create-table --table-name not-made ")
    assert storage.names("") == []


@pytest.mark.parametrize(
    "keys",
    [[("base_uri", "S")], [("base_uri", "S"), ("version", "S")], [("base_uri", "S"), ("number", "N")]],
    ids=["one key", "another type", "another name"],
)
def test_a_table_with_other_keys_is_refused_before_anything_is_put(
    dynamodb: DynamoServer, base: str, keys: list[tuple[str, str]]
) -> None:
    name = f"other-{uuid.uuid4().hex}"
    dynamodb.make_table(name, keys)
    manifests = DynamoManifests(name, dynamodb.options(**OPTIONS))
    with pytest.raises(InvalidError, match="other keys than a manifest store") as caught:
        manifests.put_if_absent(base, recorded(1))
    assert "aws dynamodb create-table" in caught.value.hint
    with pytest.raises(InvalidError, match="ValidationException"):
        manifests.get(base, 1)


def test_the_endpoint_may_come_from_the_environment(
    dynamodb: DynamoServer, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNAMODB_ENDPOINT", dynamodb.endpoint)
    assert DynamoManifests(TABLE, OPTIONS).put_if_absent(base, recorded(1)) is Put.STORED
    assert set(dynamodb.items(base)) == {1}


def test_settings_that_can_not_be_used_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    without = {name: value for name, value in OPTIONS.items() if name != "aws_region"}
    with pytest.raises(InvalidError) as caught:
        open_storage(f"s3+ddb://{BUCKET}/t?ddbTableName={TABLE}", without)
    assert "region" in str(caught.value)
    for uri in (f"s3+ddb://{BUCKET}/t", f"s3+ddb://{BUCKET}?ddbTableName={TABLE}"):
        with pytest.raises(InvalidError) as caught:
            open_storage(uri, OPTIONS)
        assert caught.value.hint


def test_a_bucket_that_ignores_conditions_is_enough(
    s3: S3Server, dynamodb: DynamoServer, proxy: FaultProxy
) -> None:
    """It is what the manifest store is for: nothing hangs on a condition of the bucket's."""
    table = External.new(s3, dynamodb)
    table.through = {"aws_endpoint": proxy.endpoint}
    proxy.plan(Strip("If-None-Match"), times=-1)
    table.create_by_pylance([0])
    assert open_storage(table.plain, table.options).put_if_absent("data/x", [b"1"]) is Put.STORED
    assert open_storage(table.plain, table.options).put_if_absent("data/x", [b"2"]) is Put.STORED
    assert [table.fold([1]), table.grow([2])] == [2, 3]
    data = table.storage().get(Scheme.V2.path(3))
    with ThreadPoolExecutor(8) as pool:
        puts = list(pool.map(lambda _: table.storage().put_if_absent(Scheme.V2.path(4), [data]), range(8)))
    assert Counter(puts) == {Put.STORED: 1, Put.EXISTS: 7}
    check_whole(table, 4)
