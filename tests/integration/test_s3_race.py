"""Many writers on one name of S3, and a server that dies under them: one winner, and every answer is true."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import RetryError
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.storage.multipart import PartsUpload
from lakefold_table.storage.s3 import S3Storage, conditional_put
from tests.servers.s3 import BUCKET, S3Server
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WRITERS = 32
ROUNDS = 40
PARTS_ROUNDS = 10
STORED_BETWEEN_KILLS = 50
LONGER = 5
"""How many times as long the races are in `make test-faults`."""


def race(writers: int, rounds: int, put: Callable[[int, int], Put]) -> list[Counter[Put]]:
    """How each round ended, where all `writers` put at the same moment."""
    barrier = threading.Barrier(writers, timeout=200)

    def write(writer: int) -> list[Put]:
        answers = []
        for number in range(rounds):
            barrier.wait()
            answers.append(put(writer, number))
        return answers

    with ThreadPoolExecutor(writers) as pool:
        answers = list(pool.map(write, range(writers)))
    return [Counter(column) for column in zip(*answers, strict=True)]


@pytest.fixture
def times(*, all_faults: bool) -> int:
    """How long the races are."""
    return LONGER if all_faults else 1


def test_of_32_writers_exactly_one_wins_each_round(s3: S3Server, times: int) -> None:
    rounds = ROUNDS * times
    root = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    stores = [S3Storage(root, s3.options()) for _ in range(4)]
    ended = race(
        WRITERS,
        rounds,
        lambda writer, number: stores[writer % 4].put_if_absent(f"v/{number}", [str(writer).encode()]),
    )
    assert ended == [Counter({Put.STORED: 1, Put.EXISTS: WRITERS - 1})] * rounds
    assert len(stores[0].names("v")) == rounds


def test_exactly_one_of_many_multipart_uploads_is_completed(s3: S3Server, times: int) -> None:
    rounds = PARTS_ROUNDS * times
    store = S3Storage(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.options())

    def put(writer: int, number: int) -> Put:
        named = {**store._all, "Key": store._key(f"v/{number}")}
        parts = PartsUpload(store._patient, store._once, named)
        return conditional_put("v", lambda: parts.run(str(writer).encode(), {}, {"IfNoneMatch": "*"}))

    assert race(8, rounds, put) == [Counter({Put.STORED: 1, Put.EXISTS: 7})] * rounds
    left = store._patient.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
    assert not [each for each in left if each["Key"].startswith(store._below)]


def has_stored(reported: Mapping[str, Put | None], enough: int) -> bool:
    return sum(put is Put.STORED for put in list(reported.values())) >= enough


def test_a_server_killed_in_the_middle_of_puts_has_what_was_reported(times: int) -> None:
    """Three times: every object that was reported as stored exists and is whole; so is an unreported one."""
    padding = b"." * 20_000
    values: dict[str, Put | None] = {}

    def body(path: str) -> bytes:
        return path.encode() + padding

    with TemporaryDirectory(prefix="lakefold-s3-") as folder, S3Server(Path(folder)) as server:
        store = S3Storage(f"s3://{BUCKET}/killed", server.options(client_max_retries="0", timeout="30s"))
        done = threading.Event()

        def write(writer: int) -> None:
            number = 0
            while not done.is_set():
                path = f"v/{writer}-{number}"
                number += 1
                try:
                    values[path] = store.put_if_absent(path, [body(path)])
                except DoubtfulPutError:
                    values[path] = None
                except RetryError:
                    done.wait(0.1)

        with ThreadPoolExecutor(8) as pool:
            writing = [pool.submit(write, writer) for writer in range(8)]
            try:
                for kill in (1, 2, 3):
                    enough = kill * STORED_BETWEEN_KILLS * times
                    until(partial(has_stored, values, enough), f"{enough} puts", seconds=120)
                    server.kill()
                    server.start()
            finally:
                done.set()
            for future in writing:
                future.result()
        # Files that this server was just writing stay under names of its own, which no client requests.
        kept = {f"v/{name}" for name in store.names("v")} & values.keys()
        assert {path for path, put in values.items() if put is Put.STORED} <= kept
        assert Put.EXISTS not in values.values()
        assert all(store.get(path) == body(path) for path in kept)
