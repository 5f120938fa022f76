"""Which clients read our tables, and what each may write while we commit: docs/reference/clients.md.

A stream of our commits goes on all the time, but for a restore, after which nobody could say which rows are
to be there. Whatever the client did, the rows are exact afterwards, and the table is sound.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests.clients.arrow import AGE
from tests.clients.matrix import READERS, STEPS, WRITERS, kept
from tests.clients.process import Client
from tests.clients.stream import FIRST, Stream
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def append(client: Client, stream: Stream) -> None:
    for first in (1000, 1010):
        client.do("append", "before", ids=[first, first + 1], text="theirs")
        stream.expected |= {first: "theirs", first + 1: "theirs"}


def delete(client: Client, stream: Stream) -> None:
    client.do("delete", "before", ids=[3, 150])
    del stream.expected[3], stream.expected[150]


def merge(client: Client, stream: Stream) -> None:
    client.do("merge", "before", ids=[7, 1000], text="merged")
    stream.expected |= {7: "merged", 1000: "merged"}


def plain(step: str) -> Callable[[Client, Stream], None]:
    """A step that leaves the rows as they are."""

    def do(client: Client, stream: Stream) -> None:
        del stream
        client.do(step, "before")

    return do


def restore(client: Client, stream: Stream) -> None:
    before, version = dict(stream.expected), stream.version
    stream.commit(3)
    client.do("restore", version=version)
    stream.expected = before
    stream.commit(2)


def cleanup(client: Client, stream: Stream) -> None:
    until(lambda: stream.seconds > AGE + 1, "versions that are old enough")
    client.do("cleanup", "before")
    assert stream.oldest > 1


DO: dict[str, Callable[[Client, Stream], None]] = {
    "append": append,
    "cleanup": cleanup,
    "delete": delete,
    "merge": merge,
    "restore": restore,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", WRITERS)
def test_writing(name: str, step: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "t.lance")
    with Client(name, str(stream.path)) as client:
        client.open("before")
        stream.commit(3)
        with kept(name, step):
            with nullcontext() if step == "restore" else stream.running():
                DO.get(step, plain(step))(client, stream)
            stream.commit()
            stream.check()
            assert client.rows() == stream.expected
        stream.commit()
        stream.check()


@pytest.mark.parametrize("name", [*WRITERS, *READERS])
def test_reading(name: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "t.lance")
    with Client(name, str(stream.path)) as client, kept(name, "read"):
        assert client.rows() == stream.expected
        with stream.running():
            assert client.rows().keys() >= set(range(FIRST))
        assert client.rows() == stream.expected


@pytest.mark.parametrize("name", [*WRITERS, *READERS])
def test_reading_a_version(name: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "t.lance")
    before, version = dict(stream.expected), stream.version
    with Client(name, str(stream.path)) as client, kept(name, "read_version"):
        with stream.running():
            assert client.rows(version) == before
        assert client.rows(version) == before
