"""Listings of S3 that break off: never taken for the whole, and never a traceback.

The server here gives the answers that a test has planned: no server that starts without Docker gives these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import RetryError
from lakefold_table.storage import open_storage
from tests.contracts.test_object_answers import Answer, Server, serving
from tests.servers.s3 import options_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_table.storage.base import Storage

FOUND = "<Contents><Key>t/f/{}</Key><Size>3</Size></Contents>"
CALLS: dict[str, Callable[[Storage], object]] = {
    "list": lambda store: list(store.list("f")),
    "names": lambda store: store.names("f"),
    "some_folders": lambda store: store.some_folders("f", 1000),
    "anything_at_root": lambda store: store.anything_at_root(["x"]),
}


def page(*parts: str, more: bool = True) -> Answer:
    """A page of a listing."""
    text = "".join([f"<IsTruncated>{str(more).lower()}</IsTruncated>", *parts])
    return Answer(200, body=f"<ListBucketResult>{text}</ListBucketResult>".encode())


def token(text: str) -> str:
    return f"<NextContinuationToken>{text}</NextContinuationToken>"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def store(server: Server) -> Storage:
    return open_storage("s3://lake/t", options_for(server.url, client_max_retries="0"))


def test_pages_of_a_listing_are_joined(server: Server, store: Storage) -> None:
    server.plan(page(FOUND.format("a"), token("1")), page(FOUND.format("b"), more=False))
    assert store.names("f") == ["a", "b"]


@pytest.mark.parametrize(("most", "listed", "asked"), [(3, ["b", "c"], 2), (2, None, 2), (1, None, 1)])
def test_folders_are_listed_up_to_a_number_of_names(
    server: Server, store: Storage, most: int, listed: list[str] | None, asked: int
) -> None:
    folder = "<CommonPrefixes><Prefix>t/f/{}/</Prefix></CommonPrefixes>"
    first = page(FOUND.format("a"), folder.format("b"), token("1"))
    server.plan(*[first, page(folder.format("c"), more=False)][:asked])
    assert store.some_folders("f", most) == listed
    assert len(server.asked) == asked


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("pages", [[page()], [page(token("1")), page(token("1"))]])
def test_a_listing_that_does_not_say_where_it_continues(
    server: Server, store: Storage, call: str, pages: list[Answer]
) -> None:
    server.plan(*pages)
    with pytest.raises(RetryError, match="doesn't say where it continues") as caught:
        CALLS[call](store)
    assert caught.value.where.startswith("s3://lake/t/")
    assert len(server.asked) == len(pages)


@pytest.mark.parametrize(
    "listed", ["<Contents><Key>t/f/a</Key></Contents>", "<Contents><Size>1</Size></Contents>"]
)
def test_an_object_without_name_or_size(server: Server, store: Storage, listed: str) -> None:
    server.plan(page(listed, more=False))
    with pytest.raises(RetryError, match="no name or no size"):
        store.names("f")
