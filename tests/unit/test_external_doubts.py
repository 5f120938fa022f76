"""Any call may fail or lose its answer: a version in a manifest store is put once, and leaves nothing."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.lance.manifests.naming import Scheme
from lakefold_table.manifest_stores.external import ExternalManifests
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.versions.lost_answers import Published
from tests.contracts.manifest_stores import (
    Kept,
    Lose,
    MemoryManifests,
    Throttle,
    check_whole,
    publication,
    versions,
)
from tests.memory_storage import LoseAnswer, MemoryStorage, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_table.manifest_stores.base import ManifestRecord
    from lakefold_table.storage.base import Buffer

STAGED = ".manifest-id-0"
FINAL = ".manifest"


@pytest.fixture(params=Scheme)
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    table = Kept(uuid.uuid4().hex, request.param)
    yield table
    table.close()


class Failing(MemoryStorage):
    """Objects whose calls of a name fail, for paths that contain a text, while `failing` is set."""

    def __init__(self, uri: str, call: str, text: str, error: Exception) -> None:
        super().__init__(uri)
        self.failing = True
        self._fails, self._error = (call, text), error

    def delete(self, path: str) -> None:
        self._meet("delete", path)
        super().delete(path)

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        self._meet("put", path)
        super().put(path, buffers)

    def _meet(self, call: str, path: str) -> None:
        if self.failing and self._fails[0] == call and self._fails[1] in path:
            raise self._error


def test_a_version_that_can_not_be_staged_is_not_put(kept: Kept) -> None:
    kept.objects.faults.plan(Refuse(suffix=STAGED))
    storage = kept.open()
    with pytest.raises(RetryError):
        storage.put_if_absent(kept.scheme.path(1), [b"one"])
    assert (kept.paths(), kept.recorded()) == ([], {})
    assert storage.put_if_absent(kept.scheme.path(1), [b"one"]) is Put.STORED
    check_whole(kept, b"one")


def test_a_version_that_the_manifest_store_turns_away_leaves_nothing(kept: Kept) -> None:
    kept.manifests.faults.append(Throttle("put_if_absent"))
    with pytest.raises(RetryError):
        kept.open().put_if_absent(kept.scheme.path(1), [b"one"])
    assert (kept.paths(), kept.recorded()) == ([], {})


def test_a_lost_answer_is_settled_by_the_staged_path(kept: Kept) -> None:
    storage = kept.open()
    kept.manifests.faults.append(Lose("put_if_absent", done=True))
    assert storage.put_if_absent(kept.scheme.path(1), [b"one"]) is Put.STORED
    check_whole(kept, b"one")
    kept.left_at(2, 2, b"two")
    kept.manifests.faults.append(Lose("put_if_absent", done=False))
    line = versions(kept.open())
    with pytest.raises(DoubtfulPutError):
        storage.put_if_absent(kept.scheme.path(3), [b"three"])
    assert line.numbers() == [1, 2]


def test_a_lost_answer_to_a_lost_race_is_a_lost_race(kept: Kept) -> None:
    storage, path = kept.open(), kept.scheme.path(1)

    class Racing(MemoryStorage):
        def put(self, wanted: str, buffers: Sequence[Buffer]) -> None:
            super().put(wanted, buffers)
            if wanted == f"{path}-id-0":
                kept.left_at(2, 1, b"theirs")

    kept.manifests.faults.append(Lose("put_if_absent", done=True))
    assert kept.open(objects=Racing(kept.uri)).put_if_absent(path, [b"ours"]) is Put.EXISTS
    assert storage.get(path) == b"theirs"
    check_whole(kept, b"theirs")


@pytest.mark.parametrize(
    "fault",
    [
        Lose("put_if_absent", done=True),
        Lose("put_if_present", done=True),
        Lose("put_if_present", done=False),
    ],
    ids=str,
)
def test_a_version_is_published_whatever_answer_of_the_manifest_store_is_lost(
    kept: Kept, fault: Lose
) -> None:
    line = versions(kept.open())
    kept.manifests.faults.append(fault)
    assert line.publish(publication(kept, 1)) is Published.OURS
    assert not kept.manifests.faults
    assert line.publish(publication(kept, 2, b"next")) is Published.OURS
    check_whole(kept, b"oursrest", b"nextrest")


@pytest.mark.parametrize(
    "fault",
    [Refuse(suffix=FINAL), LoseAnswer(stored=True, suffix=FINAL), LoseAnswer(stored=False, suffix=FINAL)],
    ids=str,
)
def test_a_version_is_published_whatever_becomes_of_its_final_put(
    kept: Kept, fault: Refuse | LoseAnswer
) -> None:
    line = versions(kept.open())
    kept.objects.faults.plan(fault)
    assert line.publish(publication(kept, 1)) is Published.OURS
    assert kept.objects.faults.left == 0
    assert line.publish(publication(kept, 2, b"next")) is Published.OURS
    check_whole(kept, b"oursrest", b"nextrest")


def test_a_version_whose_staged_object_can_not_be_removed_is_published(kept: Kept) -> None:
    objects = Failing(kept.uri, "delete", "manifest-", RetryError("away"))
    line = versions(kept.open(objects=objects))
    assert line.publish(publication(kept, 1)) is Published.OURS
    assert len(kept.paths()) == 2
    with pytest.raises(RetryError, match="away"):
        line.publish(publication(kept, 2, b"next"))
    objects.failing = False
    assert line.publish(publication(kept, 2, b"next")) is Published.OURS
    check_whole(kept, b"oursrest", b"nextrest")


def test_a_lost_put_whose_staged_object_can_not_be_removed_is_lost_all_the_same(kept: Kept) -> None:
    path = kept.scheme.path(1)
    objects = Failing(kept.uri, "delete", "manifest-", RetryError("away"))
    ours = kept.open(objects=objects)
    kept.left_at(2, 1, b"theirs")
    objects.failing = True
    assert ours.put_if_absent(path, [b"ours"]) is Put.EXISTS
    objects.failing = False
    assert ours.get(path) == b"theirs"
    assert ours.put_if_absent(kept.scheme.path(2), [b"two"]) is Put.STORED
    check_whole(kept, b"theirs", b"two")


@pytest.mark.parametrize("late", ["before the second attempt", "after it", "never"])
def test_an_attempt_that_comes_late_is_never_mistaken_for_another(kept: Kept, late: str) -> None:
    line = versions(kept.open())
    kept.manifests.faults.append(Lose("put_if_absent", done=False, late=late != "never"))
    assert line.publish(publication(kept, 1)) is Published.UNKNOWN
    assert kept.recorded() == {}
    if late == "before the second attempt":
        kept.manifests.deliver()
    assert line.publish(publication(kept, 1)) is Published.OURS
    kept.manifests.deliver()
    assert line.publish(publication(kept, 2, b"next")) is Published.OURS
    check_whole(kept, b"oursrest", b"nextrest")


@pytest.mark.parametrize("done", [True, False])
def test_a_late_attempt_of_ours_is_distinguished_from_theirs(kept: Kept, *, done: bool) -> None:
    """What one attempt staged must be there until the version is recorded: it may be what counts."""
    line = versions(kept.open())
    kept.manifests.faults.append(Lose("put_if_absent", done=False, late=True))
    assert line.publish(publication(kept, 1)) is Published.UNKNOWN
    theirs = kept.open()
    if done:
        kept.manifests.deliver()
    assert theirs.put_if_absent(kept.scheme.path(1), [b"theirs"]) is (Put.EXISTS if done else Put.STORED)
    kept.manifests.deliver()
    expected = (Published.OURS, b"oursrest") if done else (Published.THEIRS, b"theirs")
    assert (line.publish(publication(kept, 1)), theirs.get(kept.scheme.path(1))) == expected
    assert line.publish(publication(kept, 2, b"next")) is Published.OURS
    check_whole(kept, expected[1], b"nextrest")


def test_if_no_request_succeeds_the_put_stays_in_doubt(kept: Kept) -> None:
    line = versions(kept.open())
    kept.manifests.faults.extend([Lose("put_if_absent", done=True), Throttle("get"), Throttle("get")])
    with pytest.raises(RetryError):
        line.publish(publication(kept, 1))
    assert line.publish(publication(kept, 1)) is Published.OURS
    assert line.publish(publication(kept, 2, b"next")) is Published.OURS
    check_whole(kept, b"oursrest", b"nextrest")


def test_a_lost_answer_that_a_reader_has_finished_is_in_doubt_and_settled_by_the_bytes(kept: Kept) -> None:
    path = kept.scheme.path(1)

    class Helped(MemoryManifests):
        def put_if_absent(self, base: str, recorded: ManifestRecord) -> Put:
            super().put_if_absent(base, recorded)
            assert kept.open().get(path) == b"oursrest"
            raise DoubtfulPutError("lost")

    helped = Helped()
    helped.items = kept.manifests.items
    storage = ExternalManifests(kept.uri, kept.objects, helped, lambda: "own")
    with pytest.raises(DoubtfulPutError):
        storage.put_if_absent(path, [b"oursrest"])
    assert versions(storage).publish(publication(kept, 1)) is Published.OURS
    check_whole(kept, b"oursrest")


def test_a_lost_answer_beside_a_finished_version_of_another_size_is_a_lost_race(kept: Kept) -> None:
    class Overtaken(MemoryManifests):
        def put_if_absent(self, base: str, recorded: ManifestRecord) -> Put:
            kept.left_at(5, recorded.version, b"theirs")
            return super().put_if_absent(base, recorded)

    overtaken = Overtaken()
    overtaken.items = kept.manifests.items
    overtaken.faults.append(Lose("put_if_absent", done=True))
    storage = ExternalManifests(kept.uri, kept.objects, overtaken, lambda: "own")
    assert storage.put_if_absent(kept.scheme.path(1), [b"ours"]) is Put.EXISTS
    check_whole(kept, b"theirs")


def test_the_same_put_again_finishes_what_the_first_one_committed(kept: Kept) -> None:
    storage, path = kept.open(), kept.scheme.path(1)
    kept.objects.faults.plan(Refuse(suffix=FINAL))
    with pytest.raises(DoubtfulPutError, match="is committed, but was not finalized"):
        storage.put_if_absent(path, [b"one"])
    assert storage.put_if_absent(path, [b"one"]) is Put.EXISTS
    check_whole(kept, b"one")


@pytest.mark.parametrize(
    "error", [InvalidError("no permission to write"), RetryError("away")], ids=["refused", "away"]
)
def test_a_client_that_may_not_finish_a_version_gets_an_error_to_try_again(
    kept: Kept, error: Exception
) -> None:
    kept.left_at(5, 1, b"one")
    path = kept.left_at(2, 2, b"two")
    reader = kept.open(objects=Failing(kept.uri, "put", "manifest", error))
    for read in (lambda: reader.get(path), lambda: reader.size(path), lambda: versions(reader).latest()):
        with pytest.raises(RetryError) as caught:
            read()
        if isinstance(error, InvalidError):
            assert "version 2 is committed and doesn't have its final name yet: no permission" in str(
                caught.value
            )
            assert caught.value.hint
    assert reader.get(kept.scheme.path(1)) == b"one"
    assert kept.open().get(path) == b"two"
    assert reader.get(path) == b"two"
