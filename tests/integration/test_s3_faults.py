"""S3 on a bad day: lost answers, faults of the server, broken bodies, and what each means to the caller."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lakefold.local.ports import free_port
from lakefold_table.errors import InvalidError, LocationError, RetryError
from lakefold_table.format import NewFile, Publication
from lakefold_table.lance.manifests.naming import Scheme, detect
from lakefold_table.storage import open_storage
from lakefold_table.storage import s3 as s3_module
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.storage.multipart import PART
from lakefold_table.storage.s3 import S3Storage
from lakefold_table.versions.lost_answers import Published
from lakefold_table.versions.versions import Versions
from tests.servers.fault_proxy import (
    Answer,
    CutBody,
    Fault,
    FaultProxy,
    Hold,
    LoseAnswer,
    LoseRequest,
    Request,
    Strip,
)
from tests.servers.s3 import BUCKET, options_for

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

LARGE = PART + 1000


@pytest.fixture(autouse=True)
def smaller_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts test as much as four."""
    monkeypatch.setattr(s3_module, "LARGE", LARGE)


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def plain(s3: S3Server, root: str) -> S3Storage:
    """The same place, without a proxy between."""
    return S3Storage(root, s3.options())


@pytest.fixture
def store(proxy: FaultProxy, root: str) -> S3Storage:
    """The store behind the proxy, with few attempts."""
    return S3Storage(root, proxy.options(client_max_retries="2", timeout="60s"))


def is_put(request: Request) -> bool:
    return request.method == "PUT"


def is_get(request: Request) -> bool:
    return request.method == "GET"


def completes(request: Request) -> bool:
    return request.method == "POST" and "uploadId" in request.query


@pytest.mark.parametrize(
    ("fault", "stored"),
    [
        (LoseAnswer(), True),
        (LoseRequest(), False),
        (Answer(500, done=True), True),
        (Answer(500), False),
        (Answer(503, "SlowDown"), False),
        (Answer(409, "ConditionalRequestConflict"), False),
        (Answer(400, "RequestTimeout"), False),
    ],
    ids=str,
)
def test_a_put_whose_end_is_not_known_is_doubtful_and_sent_once(
    store: S3Storage, plain: S3Storage, proxy: FaultProxy, fault: Fault, *, stored: bool
) -> None:
    proxy.plan(fault, is_put)
    with proxy.counted() as asked, pytest.raises(DoubtfulPutError):
        store.put_if_absent("v/1", [b"ours"])
    assert asked == {"PUT": 1}
    assert plain.size("v/1") == (4 if stored else None)
    assert store.put_if_absent("v/1", [b"ours"]) is (Put.EXISTS if stored else Put.STORED)


def test_a_put_that_is_answered_too_late_is_doubtful(proxy: FaultProxy, root: str, plain: S3Storage) -> None:
    hasty = S3Storage(root, proxy.options(read_timeout="200ms"))
    held = Hold()
    proxy.plan(held, is_put)
    with pytest.raises(DoubtfulPutError):
        hasty.put_if_absent("v/1", [b"ours"])
    assert plain.size("v/1") is None
    held.release.set()


def test_a_put_that_was_never_sent_is_no_doubt(root: str) -> None:
    unserved = S3Storage(root, options_for(f"http://127.0.0.1:{free_port()}", client_max_retries="1"))
    with pytest.raises(RetryError, match="Could not connect"):
        unserved.put_if_absent("v/1", [b"x"])
    with pytest.raises(RetryError):
        unserved.put_if_absent("v/1", [bytes(LARGE)])
    for ask in (unserved.get, unserved.size, unserved.delete, lambda path: list(unserved.list(path))):
        with pytest.raises(RetryError):
            ask("v")


def test_what_a_store_refuses_for_good_was_not_stored(
    store: S3Storage, plain: S3Storage, proxy: FaultProxy
) -> None:
    for status, code in ((403, "AccessDenied"), (400, "InvalidRequest"), (501, "NotImplemented")):
        proxy.plan(Answer(status, code), is_put)
        with pytest.raises(InvalidError, match=code) as refused:
            store.put_if_absent("v/1", [b"x"])
        assert refused.value.hint
        assert refused.value.where.endswith("/v/1")
    proxy.plan(Answer(400, "KeyTooLongError"), is_put)
    with pytest.raises(LocationError):
        store.put_if_absent("v/1", [b"x"])
    assert plain.size("v/1") is None


def test_other_requests_are_sent_again(store: S3Storage, plain: S3Storage, proxy: FaultProxy) -> None:
    plain.put("o", [b"0123456789"])
    for fault in (LoseRequest(), LoseAnswer(), Answer(503, "SlowDown")):
        for ask, expected in (
            (lambda: store.get("o"), b"0123456789"),
            (lambda: store.get_range("o", 2, 3), b"234"),
            (lambda: store.get_tail("o", 3), (b"789", 10)),
            (lambda: store.size("o"), 10),
            (lambda: list(store.names("")), ["o"]),
            (lambda: store.put("o", [b"0123456789"]), None),
            (lambda: store.delete("none"), None),
        ):
            proxy.plan(fault)
            with proxy.counted() as asked:
                assert ask() == expected
            assert asked.total() == 2


def test_a_body_that_breaks_off_is_asked_for_again(
    store: S3Storage, plain: S3Storage, proxy: FaultProxy
) -> None:
    plain.put("o", [b"0123456789"])
    proxy.plan(CutBody(4), is_get)
    assert store.get("o") == b"0123456789"
    proxy.plan(CutBody(1), is_get)
    assert store.get_tail("o", 3) == (b"789", 10)
    proxy.plan(CutBody(4), is_get, times=-1)
    with pytest.raises(RetryError):
        store.get("o")


def test_a_large_object_goes_up_in_parts_under_the_same_condition(
    store: S3Storage, plain: S3Storage, proxy: FaultProxy
) -> None:
    large = bytes(range(256)) * (LARGE // 256 + 1)
    with proxy.counted() as asked:
        assert store.put_if_absent("o", [large[:1000], large[1000:]]) is Put.STORED
    assert asked == {"POST": 2, "PUT": 2}
    assert plain.get("o") == large
    assert store.put_if_absent("o", [bytes(LARGE)]) is Put.EXISTS
    assert plain.get("o") == large
    store.put("o", [bytes(LARGE)])
    assert plain.get("o") == bytes(LARGE)
    assert unfinished(plain) == 0


def test_a_large_object_on_a_bad_day(store: S3Storage, plain: S3Storage, proxy: FaultProxy) -> None:
    large = bytes(LARGE)
    proxy.plan(LoseRequest(), is_put, after=1)
    assert store.put_if_absent("parts", [large]) is Put.STORED
    for fault, exists in ((LoseAnswer(), True), (LoseRequest(), False), (Answer(500), False)):
        proxy.plan(fault, completes)
        with pytest.raises(DoubtfulPutError):
            store.put_if_absent(str(fault), [large])
        assert (plain.size(str(fault)) is not None) is exists
    proxy.plan(Answer(403, "AccessDenied"), is_put)
    with pytest.raises(InvalidError):
        store.put_if_absent("refused", [large])
    assert plain.size("refused") is None
    assert unfinished(plain) == 0


def unfinished(store: S3Storage) -> int:
    """How many uploads below this root were neither joined nor given up."""
    listed = store._patient.list_multipart_uploads(Bucket=BUCKET)
    return sum(each["Key"].startswith(store._below) for each in listed.get("Uploads", ()))


def test_files_put_together_are_all_looked_after(
    store: S3Storage, plain: S3Storage, proxy: FaultProxy
) -> None:
    plain.put("d/5", [b"5"])
    proxy.plan(LoseAnswer(), lambda request: request.path.endswith("d/7"))
    objects = [(f"d/{number}", [str(number).encode()]) for number in range(40)]
    puts = store.put_together(objects)
    assert {number for number, put in enumerate(puts) if put is Put.EXISTS} == {5, 7}
    assert all(plain.get(path) == data for path, [data] in objects)


@pytest.mark.parametrize(
    "fault", [LoseAnswer(), LoseRequest(), Answer(500, done=True), Answer(503), Answer(409)], ids=str
)
def test_a_fault_at_any_request_of_a_publish_ends_in_our_own_version(
    s3: S3Server, proxy: FaultProxy, root: str, fault: Fault
) -> None:
    """Files that come before it too; it may have to be published a second time, and is never another's."""
    begun = Versions(S3Storage(root, s3.options()), "_versions", detect)
    begun.publish(Publication(1, Scheme.V2.path(1), [b"first"]))
    store = S3Storage(root, proxy.options(client_max_retries="0"))
    store.check_conditions()
    line = Versions(store, "_versions", detect)
    assert line.latest() == 1
    for version in range(2, 7):
        files = tuple(NewFile(f"_deletions/{version}-{number}", b"%d" % number) for number in range(3))
        publication = Publication(version, Scheme.V2.path(version), [b"ours", b"rest"], before=files)
        # A look, three files, the version.
        proxy.plan(fault, after=version - 2)
        try:
            published = line.publish(publication)
        except RetryError:
            published = Published.UNKNOWN
        assert published in {Published.OURS, Published.UNKNOWN}
        assert line.publish(publication) is Published.OURS
        assert begun.read(version) == b"oursrest"
        assert all(begun.storage.get(file.path) == file.data for file in files)
    assert begun.numbers() == list(range(1, 7))


def test_wrong_credentials_say_so(s3: S3Server, root: str) -> None:
    for wrong, code in (
        ({"aws_access_key_id": "nobody"}, "InvalidAccessKeyId"),
        ({"aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
    ):
        store = open_storage(root, s3.options(**wrong))
        for ask in (store.get, store.delete, lambda path: store.put(path, []), store.names):  # noqa: B023 - asked at once
            with pytest.raises(InvalidError, match=code) as refused:
                ask("v/1")
            assert "aws_" in refused.value.hint
        with pytest.raises(InvalidError) as refused:
            store.size("v/1")
        assert "permissions" in refused.value.hint


def test_a_missing_bucket_is_not_an_empty_one(s3: S3Server) -> None:
    store = open_storage("s3://nowhere/table", s3.options())
    for ask in (store.get, store.names, lambda path: store.put(path, [])):
        with pytest.raises(InvalidError, match="NoSuchBucket"):
            ask("v/1")
    with pytest.raises(InvalidError, match="NoSuchBucket"):
        store.put_if_absent("v/1", [b"x"])


def test_clocks_that_differ_are_named(store: S3Storage, proxy: FaultProxy) -> None:
    proxy.plan(Answer(403, "RequestTimeTooSkewed"))
    with pytest.raises(InvalidError, match="clock skew"):
        store.get("o")
    # An answer to HEAD has no body that could say so.
    long_ago = ("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
    proxy.plan(Answer(403, headers=(long_ago,)), lambda request: request.method == "HEAD")
    with pytest.raises(InvalidError, match="clock skew") as refused:
        store.size("o")
    assert "clock" in refused.value.hint


def test_a_server_without_ranges_is_read_all_the_same(store: S3Storage, proxy: FaultProxy) -> None:
    store.put("o", [b"0123456789"])
    proxy.plan(Strip("Range"), is_get, times=-1)
    assert store.get_range("o", 2, 3) == b"234"
    assert store.get_tail("o", 3) == (b"789", 10)
