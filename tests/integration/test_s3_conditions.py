"""A server that ignores conditions is found out before the first version is put there, and refused."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.format import Publication
from lakefold_table.lance.manifests.naming import Scheme, detect
from lakefold_table.storage.s3 import S3Storage
from lakefold_table.versions.lost_answers import Published
from lakefold_table.versions.versions import Versions
from tests.servers.fault_proxy import Answer, FaultProxy, LoseAnswer, Request, Strip
from tests.servers.s3 import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.s3 import S3Server

STRIPPED = Strip("If-None-Match")


@pytest.fixture
def store(proxy: FaultProxy) -> S3Storage:
    return S3Storage(f"s3://{BUCKET}/{uuid.uuid4().hex}", proxy.options(client_max_retries="0"))


def publish(store: S3Storage, version: int) -> Published:
    line = Versions(store, "_versions", detect)
    return line.publish(Publication(version, Scheme.V2.path(version), [b"ours", b"rest"]))


def puts(request: Request) -> bool:
    return request.method == "PUT" and "uploadId" not in request.query


def joins(request: Request) -> bool:
    return request.method == "POST" and "uploadId" in request.query


@pytest.mark.parametrize("ignores", [puts, joins])
def test_a_server_that_ignores_the_condition_gets_no_version(
    store: S3Storage, proxy: FaultProxy, ignores: Callable[[Request], bool]
) -> None:
    """Of a put, or of the joining of parts; also when asked again."""
    proxy.plan(STRIPPED, ignores, times=-1)
    for _ in range(2):
        with pytest.raises(InvalidError, match="ignores the condition") as refused:
            publish(store, 1)
        assert "s3+ddb" in refused.value.hint
    assert not store.anything_at_root()
    proxy.forget()
    assert publish(store, 1) is Published.OURS


def test_a_server_is_tried_once_whatever_the_table(store: S3Storage, proxy: FaultProxy) -> None:
    publish(store, 1)
    tried = [request for request in proxy.requests if "_lakefold/probe" in request.path]
    assert len(tried) == 7
    proxy.forget()
    publish(store, 2)
    other = S3Storage(f"{store.uri}-other", proxy.options(client_max_retries="0"))
    publish(other, 1)
    assert not [request for request in proxy.requests if "probe" in request.path]
    assert store.names("_lakefold/probe") == []


def test_a_check_that_gets_no_answer_is_tried_again(store: S3Storage, proxy: FaultProxy) -> None:
    for fault, error in ((LoseAnswer(), RetryError), (Answer(403, "AccessDenied"), InvalidError)):
        proxy.plan(fault, puts)
        with pytest.raises(error):
            publish(store, 1)
    assert store.names("_versions") == []
    assert publish(store, 1) is Published.OURS


def test_a_server_that_refuses_the_condition_is_said(store: S3Storage, proxy: FaultProxy) -> None:
    proxy.plan(Answer(501, "NotImplemented"), puts)
    with pytest.raises(InvalidError, match="NotImplemented") as refused:
        publish(store, 1)
    assert "lacks something" in refused.value.hint


def test_readers_need_no_permission_to_write(s3: S3Server, proxy: FaultProxy) -> None:
    """Only who puts a version tries the server."""
    store = S3Storage(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.options())
    publish(store, 1)
    line = Versions(S3Storage(store.uri, proxy.options()), "_versions", detect)
    assert line.latest() == 1
    assert line.read(1) == b"oursrest"
    assert {request.method for request in proxy.requests} <= {"GET", "HEAD", "LIST"}
