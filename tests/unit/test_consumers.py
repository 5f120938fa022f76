"""A consumer continues after its last commit, by its name, on its branch; no process moves it unnoticed."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakefold_reader.consumers.consumers import FOLDER, TAG, Consumers, UnknownConsumerError, lags
from lakefold_reader.formats import source_on
from lakefold_reader.lance.scan.scan import Dataset
from lakefold_reader.tail.tail import tail_of
from lakefold_reader.versions.cursor import Cursor
from lakefold_table.errors import DamagedError, InvalidError, RetryError, StopError, VersionExpiredError
from lakefold_table.storage.base import DoubtfulPutError
from lakefold_table.versions.refs import Refs
from tests.memory_storage import LoseAnswer, MemoryStorage
from tests.tables import Folded, Recording, fragments_only
from tests.tagging import set_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.format.source import Source
    from lakefold_reader.tail.tail import Tail
    from lakefold_table.storage.base import Buffer, Put

COUNTER = itertools.count()
NAME = "nightly.jobs-1"
SOUND = {"form": 1, "at": "earliest", "created_at": "2026-01-01", "updated_at": "2026-01-01", "by": ""}


@pytest.fixture
def table() -> Folded:
    made = Folded(MemoryStorage(f"memory://consumers-{next(COUNTER)}/t"))
    for _ in range(5):
        made.fold(fragments_only(made.uri, 1))
    return made


@pytest.fixture
def source(table: Folded) -> Source:
    return source_on(table.versions.storage)


def versions(tail: Tail) -> list[int]:
    return [change.version for change in tail]


def pinned(source: Source, name: str = NAME) -> int | None:
    tag = Refs(source.storage).tags().get(TAG + name)
    return None if tag is None else tag.version


def remove(source: Source, *numbers: int) -> None:
    for number in numbers:
        source.storage.delete(source.versions.path(number))


def test_a_consumer_continues_after_what_it_committed(source: Source) -> None:
    begun = tail_of(source, 2, consumer=NAME)
    assert pinned(source) == 2
    assert [next(begun).version, next(begun).version] == [3, 4]
    begun.commit()
    assert pinned(source) == 4
    next(begun)
    assert versions(tail_of(source, "earliest", consumer=NAME)) == [5, 6]
    assert versions(tail_of(source, "latest", consumer="other")) == []


def test_a_consumer_of_the_whole_content_gets_it_until_it_commits(source: Source) -> None:
    for _ in range(2):
        begun = tail_of(source, "earliest", consumer=NAME)
        remove(source, 1, 2)
        assert pinned(source) == 1
    change = next(tail_of(source, "latest", consumer=NAME))
    assert (change.version, change.rows) == (3, 2)
    begun = tail_of(source, consumer=NAME)
    next(begun)
    begun.commit()
    assert pinned(source) == 3
    assert versions(tail_of(source, consumer=NAME)) == [4, 5, 6]


def test_where_latest_begins_is_settled_once(table: Folded, source: Source) -> None:
    tail_of(source, "latest", consumer=NAME)
    table.fold(fragments_only(table.uri, 1))
    assert versions(tail_of(source, "latest", consumer=NAME)) == [7]


def test_what_is_written_of_a_consumer(source: Source) -> None:
    begun = tail_of(source, 2, consumer=NAME)
    at = begun.cursor
    document = json.loads(source.storage.get(f"{FOLDER}/{NAME}.json"))
    assert (document["form"], document["at"], document["branch"]) == (1, str(at), "")
    (consumer,) = Consumers(source).all()
    assert (consumer.name, consumer.at, consumer.version) == (NAME, at, 2)
    assert str(at) == f"lf1:{at.table_id}::2:{at.mark}:"
    assert abs(datetime.now(UTC) - consumer.updated_at) < timedelta(minutes=1)
    assert consumer.created_at == consumer.updated_at
    assert "/" in consumer.by


def test_committing_lists_nothing_and_costs_little(table: Folded) -> None:
    recording = Recording(table.versions.storage)
    begun = tail_of(source_on(recording), 2, consumer=NAME)
    list(begun)
    recording.calls.clear()
    begun.commit()
    assert sorted(recording.calls) == ["get", "get_with_etag", "put", "replace", "size"]
    recording.calls.clear()
    begun.commit()
    assert recording.calls == []


def test_two_readers_under_one_name(source: Source) -> None:
    first = tail_of(source, 2, consumer=NAME)
    second = tail_of(source, 2, consumer=NAME)
    next(first)
    first.commit()
    next(second)
    with pytest.raises(StopError, match=f"moved the consumer {NAME}"):
        second.commit()
    assert Consumers(source).get(NAME).version == 3


@pytest.mark.parametrize("moves", ["commit", "set"])
def test_one_of_two_readers_that_commit_at_the_same_moment_succeeds(source: Source, moves: str) -> None:
    """The second reader's object is written between the first reader's reading and writing."""
    second = tail_of(source, 2, consumer=NAME)

    class Overtaken(Recording):
        def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
            next(second)
            second.commit()
            exists: bool = MemoryStorage(source.uri).replace(path, mark, buffers)
            return exists

    first = source_on(Overtaken(source.storage))
    begun = tail_of(first, consumer=NAME)
    list(begun)
    move = begun.commit if moves == "commit" else partial(Consumers(first).set, NAME, Cursor("", "", 5))
    with pytest.raises(StopError, match=f"moved the consumer {NAME} to version 3"):
        move()
    assert (Consumers(source).get(NAME).version, pinned(source)) == (3, 3)


def test_a_lost_answer_to_a_commit_is_read_back(source: Source) -> None:
    begun = tail_of(source, 2, consumer=NAME)
    next(begun)
    storage = source.storage
    assert isinstance(storage, MemoryStorage)
    storage.faults.plan(LoseAnswer(stored=False, suffix=f"{NAME}.json"))
    with pytest.raises(RetryError, match="answer was lost"):
        begun.commit()
    assert (Consumers(source).get(NAME).version, pinned(source)) == (2, 2)
    storage.faults.plan(LoseAnswer(stored=True, suffix=f"{NAME}.json"))
    begun.commit()
    assert (Consumers(source).get(NAME).version, pinned(source)) == (3, 3)


def test_a_tag_that_is_ahead_of_its_consumer_is_set_back(source: Source) -> None:
    """The process that moved it on was overtaken by a process that moved it back, and its tag came last."""
    tail_of(source, 2, consumer=NAME)
    set_tag(source.storage, TAG + NAME, 5)
    assert versions(tail_of(source, consumer=NAME)) == [3, 4, 5, 6]
    assert pinned(source) == 2


def test_a_server_that_knows_no_such_condition_is_written_to_all_the_same(source: Source) -> None:
    class Old(Recording):
        def replace(self, *_: object) -> bool:
            raise InvalidError("what is a condition?")

    begun = tail_of(source_on(Old(source.storage)), 2, consumer=NAME)
    next(begun)
    begun.commit()
    assert Consumers(source).get(NAME).version == 3


def test_a_name_that_two_take_at_once_is_given_to_one(source: Source) -> None:
    class Overtaken(Recording):
        def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
            Consumers(source).begin(NAME, tail_of(source, 4).cursor)
            return source.storage.put_if_absent(path, buffers)

    assert versions(tail_of(source_on(Overtaken(source.storage)), 2, consumer=NAME)) == [5, 6]


def test_a_lost_answer_to_the_first_put_is_read_back(source: Source) -> None:
    class Lossy(Recording):
        def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
            source.storage.put_if_absent(path, buffers)
            raise DoubtfulPutError

    begun = tail_of(source_on(Lossy(source.storage)), 2, consumer=NAME)
    assert pinned(source) == 2
    assert versions(begun) == [3, 4, 5, 6]
    begun.commit()
    assert pinned(source) == 6


def test_a_consumer_whose_maker_died_before_the_tag_gets_it(source: Source) -> None:
    tail_of(source, 2, consumer=NAME)
    Refs(source.storage).delete_tag(TAG + NAME)
    tail_of(source, consumer=NAME)
    assert pinned(source) == 2


def test_an_object_that_no_consumer_can_have_made_hides_none(source: Source) -> None:
    tail_of(source, 2, consumer=NAME)
    for name in ("a.lock", "-a", "a..b"):
        source.storage.put(f"{FOLDER}/{name}.json", [b"{}"])
    assert [consumer.name for consumer in Consumers(source).all()] == [NAME]


def test_what_a_reader_prints_of_itself_names_no_secret() -> None:
    source = source_on(MemoryStorage("memory://secret/t"), {"aws_secret_access_key": "hush"})
    assert "hush" not in f"{source!r} {Dataset(source, 1)!r}"


def test_a_tail_without_a_name_commits_nothing(source: Source) -> None:
    with pytest.raises(InvalidError, match="this tail has no consumer"):
        tail_of(source).commit()


def test_a_consumer_whose_next_version_is_gone(source: Source) -> None:
    begun = tail_of(source, 2, consumer=NAME)
    remove(source, 1, 2, 3, 4)
    with pytest.raises(VersionExpiredError, match=f"--set {NAME} earliest") as caught:
        next(begun)
    assert caught.value.oldest == 5
    with pytest.raises(VersionExpiredError, match=f"--set {NAME} earliest"):
        tail_of(source, consumer=NAME)
    Consumers(source).set(NAME, None)
    change = next(tail_of(source, consumer=NAME))
    assert (change.version, change.rows) == (5, 4)


def test_the_next_version_is_kept_if_the_one_read_last_is_gone(source: Source) -> None:
    remove(source, 1, 2)
    tail_of(source, 2, consumer=NAME)
    assert pinned(source) == 3


def test_a_dropped_consumer_is_forgotten(source: Source) -> None:
    begun = tail_of(source, 2, consumer=NAME)
    Consumers(source).drop(NAME)
    assert (Consumers(source).all(), pinned(source)) == ([], None)
    next(begun)
    with pytest.raises(UnknownConsumerError, match=f"no consumer {NAME}"):
        begun.commit()
    with pytest.raises(UnknownConsumerError):
        Consumers(source).drop(NAME)


def test_a_consumer_is_set_and_its_lag_shown(source: Source) -> None:
    consumers = Consumers(source)
    consumers.set("new", None)
    consumers.set(NAME, Cursor("", "", 4))
    consumers.set(NAME, Cursor("", "", 5))
    assert [(lag.consumer.name, lag.versions) for lag in lags(source)] == [("new", 6), (NAME, 1)]
    assert pinned(source) == 5


def test_versions_that_are_gone_count_as_not_read(source: Source) -> None:
    """Other clients clean up without regard to consumers."""
    Consumers(source).set(NAME, Cursor("", "", 2))
    remove(source, 1, 3, 4)
    assert [lag.versions for lag in lags(source)] == [4]


def test_a_consumer_of_a_branch_that_is_gone_is_still_listed(source: Source) -> None:
    tail_of(source, 2, consumer=NAME)
    path = f"{FOLDER}/{NAME}.json"
    values = {**json.loads(source.storage.get(path)), "branch": "gone"}
    source.storage.put(path, [json.dumps(values).encode()])
    assert [(lag.consumer.branch, lag.versions) for lag in lags(source)] == [("gone", None)]


@pytest.mark.parametrize("name", ["", ".", "-a", "a/b", "a..b", "a.", "a.lock", "é", "a" * 101, "a\n"])
def test_names_that_can_not_be(source: Source, name: str) -> None:
    with pytest.raises(InvalidError, match="can't be the name of a consumer"):
        tail_of(source, consumer=name)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"form": 2}',
        b"[" * 60_000,
        b'{"at": "lf1:x"}',
        b'{"form": 1, "at": 7}',
        b" " * 70_000,
        json.dumps({**SOUND, "branch": "../x"}).encode(),
    ],
)
def test_an_object_that_is_none(source: Source, data: bytes) -> None:
    source.storage.put(f"{FOLDER}/{NAME}.json", [data])
    with pytest.raises(DamagedError, match=r"consumer") as caught:
        tail_of(source, consumer=NAME)
    assert caught.value.where.endswith(f"{NAME}.json")
    Consumers(source).drop(NAME)
    assert versions(tail_of(source, 5, consumer=NAME)) == [6]


def test_a_file_of_a_later_release_is_not_read_as_ours(source: Source) -> None:
    tail_of(source, 2, consumer=NAME)
    path = f"{FOLDER}/{NAME}.json"
    later = {**json.loads(source.storage.get(path)), "form": 2}
    source.storage.put(path, [json.dumps(later).encode()])
    with pytest.raises(DamagedError, match="the format 2"):
        tail_of(source, consumer=NAME)
