"""Tags through the log: what the fold answers, and that no tag is answered before it is stored, or lost.

Promises: tag-before-answer (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from lakefold.console.outcomes import result_text
from lakefold.web.activity import plain_outcome
from lakefold_committer.fold.tagging import TagAnswers
from lakefold_committer.observability.metrics import operation_of
from lakefold_committer.recovery.outcome_index import LastCommitted, Reported
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.previews import Previews
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import decode, outcome_message, outcome_value
from lakefold_maintenance.scheduling.waiting_proposals import waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_table.entry import Entry, Invalid, Outcome, Result, Tagged
from lakefold_table.errors import FencedError, RetryError, StopError
from lakefold_table.formats import BUILT_IN, delta
from lakefold_table.marks.record import decode_record
from lakefold_table.position import LogId, Position
from lakefold_table.tag_proposal import NO_TAGS
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, LOG, append, changed, creation, entries, entry, opened, versions_at
from tests.memory_storage import LoseAnswer, MemoryStorage, Refuse
from tests.replaying import Listed
from tests.tagging import set_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer, Put
    from lakefold_table.versions.lost_answers import Published

T = TypeVar("T")
NAME = "tags"
HERE = f"memory://{NAME}/t"
JSON = ".json"
FILE_LOG = LogId(LogId.FILE_CLUSTER, "f" * 32, 0)


def tag(name: str, version: int | None = None, **fields: Any) -> Envelope:  # noqa: ANN401 - fields of a message
    return Envelope(table=HERE, tag=Tag(name=name, version=version, uuid=f"{name}-{version}", **fields))


def rows(name: str, read: int = 1) -> Envelope:
    return changed(append(name, read=read), lambda e: setattr(e, "table", HERE))


def begin() -> Envelope:
    return changed(creation(), lambda e: setattr(e, "table", HERE))


def tags() -> dict[str, int]:
    return {name: tag.version for name, tag in Refs(MemoryStorage(HERE)).tags().items()}


@pytest.fixture(autouse=True)
def store() -> Iterator[MemoryStorage]:
    MemoryStorage.forget(NAME)
    yield MemoryStorage(HERE)
    MemoryStorage.forget(NAME)


@pytest.fixture
def table() -> TableWriter:
    """A table with three versions, the last at offset 2."""
    table = opened(HERE)
    for offset, envelope in enumerate([begin(), rows("a"), rows("b", 2)]):
        table.fold([entry(envelope, offset)])
    table.reported()
    return table


def results(table: TableWriter, *envelopes: Envelope, first: int = 3) -> list[Result]:
    return [outcome.result for outcome in table.fold(entries(envelopes, first)).outcomes]


def test_tags_are_set_moved_and_removed_in_the_order_of_the_log(table: TableWriter) -> None:
    assert results(table, tag("x", 1), tag("y", 2), tag("x", 2, move=True)) == [
        Tagged(1, "x"),
        Tagged(2, "y"),
        Tagged(2, "x"),
    ]
    assert tags() == {"x": 2, "y": 2}
    assert table.table.version == 3, "a tag makes no version"
    first = Refs(MemoryStorage(HERE)).tag("x")
    again = [tag("y", delete=True), tag("y", 3), tag("x", 3, move=True)]
    assert results(table, *again, first=6) == [Tagged(0, "y"), Tagged(3, "y"), Tagged(3, "x")]
    assert tags() == {"x": 3, "y": 3}
    moved = Refs(MemoryStorage(HERE)).tag("x")
    assert (moved.created_ns, moved.updated_ns) == (first.created_ns, entry(rows("z"), 8).time_us * 1000)


def test_what_is_missing_or_in_use_is_refused(table: TableWriter) -> None:
    results(table, tag("x", 1))
    refused = [tag("x", 2), tag("y", 9), tag("y", 2, branch="dev"), tag("y", delete=True), tag("y", 0)]
    words = ["exists already", "no version 9", "on branch dev", "y does not exist", "no version 0"]
    for offset, (envelope, text) in enumerate(zip(refused, words, strict=True), 4):
        (result,) = results(table, envelope, first=offset)
        assert isinstance(result, Invalid)
        assert text in result.message
        assert result.hint
    assert tags() == {"x": 1}
    # A committer may have set it before it died.
    assert results(table, tag("x", 1), first=9) == [Tagged(1, "x")]


HOSTILE = ("", ".", "..", "a..b", ".a", "a.lock", "a/b", "../x", "a b", "ä", "\0", "x" * 201, "x" * 100_000)


@pytest.mark.parametrize("name", [*HOSTILE, "lakefold-consumer-x"], ids=lambda name: ascii(name)[:20])
def test_no_tag_gets_a_hostile_name(table: TableWriter, name: str) -> None:
    for envelope in (tag(name, 1), tag(name, delete=True)):
        (result,) = results(table, envelope)
        assert isinstance(result, Invalid)
        assert len(result.message) < 1000
        assert result.hint
    assert tags() == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e: e.tag.ClearField("version"), "names no version"),
        (lambda e: setattr(e.tag, "delete", True), "whichever version"),
        (lambda e: setattr(e.tag, "version", 2**64 - 1), "there is no version"),
        (lambda e: setattr(e.tag, "version", 2**63), "there is no version"),
        (lambda e: setattr(e.tag, "branch", "../../other"), "there is no version"),
        (lambda e: setattr(e.tag, "branch", "b" * 10_000), "there is no version"),
        (lambda e: setattr(e, "app_id", "a"), "no batch id"),
        (lambda e: setattr(e, "batch_id", 1), "no batch id"),
    ],
)
def test_a_malformed_tag_is_invalid(
    table: TableWriter, change: Callable[[Envelope], object], text: str
) -> None:
    (result,) = results(table, changed(tag("x", 1), change))
    assert isinstance(result, Invalid)
    assert text in result.message
    assert tags() == {}


def test_a_table_that_does_not_exist_has_no_tags() -> None:
    (result,) = results(opened(HERE), tag("x", 1), first=0)
    assert isinstance(result, Invalid)
    assert result.message == f"there is no table at {HERE}"


def test_a_delta_table_has_no_tags(table: TableWriter) -> None:
    tagging = TagAnswers(delta().name, delta().refs, table.table.state, NO_TAGS)
    result = tagging.answer(entry(tag("x", 1), 3), tag("x", 1).tag, 0, None)
    assert isinstance(result, Invalid)
    assert (result.message, bool(result.hint)) == ("Delta tables have no tags", True)
    assert tagging.changes == ()


def test_the_main_branch_may_be_named(table: TableWriter) -> None:
    assert results(table, tag("x", 1, branch="main")) == [Tagged(1, "x")]
    assert Refs(MemoryStorage(HERE)).tag("x").branch is None


def test_a_tag_of_the_version_being_made_waits_for_it(table: TableWriter) -> None:
    group = entries([rows("c", 3), tag("x", 4), tag("y", 4)], 3)
    assert len(table.fold(group).outcomes) == 1
    assert [outcome.result for outcome in table.fold(group[1:]).outcomes] == [Tagged(4, "x"), Tagged(4, "y")]
    assert tags() == {"x": 4, "y": 4}


def test_what_is_not_written_yet_counts_for_the_next_group(table: TableWriter) -> None:
    """The next group is folded while a version is put."""
    first = table.prepare(entries([tag("x", 1), rows("c", 3)], 3))
    second = table.prepare(entries([tag("x", delete=True), tag("y", 4)], 5))
    third_entries = entries([tag("x", delete=True), tag("y", 3, move=True)], 7)
    assert [outcome.result for outcome in second.folded.outcomes] == [Tagged(0, "x"), Tagged(4, "y")]
    assert tags() == {}
    assert table.put(first)
    table.confirm(first)
    assert tags() == {"x": 1}
    third = table.prepare(third_entries)
    assert isinstance(third.folded.outcomes[0].result, Invalid)
    for prepared in (second, third):
        assert table.put(prepared)
        table.confirm(prepared)
    assert tags() == {"y": 3}


def test_a_preview_writes_nothing_and_answers_the_same(table: TableWriter) -> None:
    proposals = [rows("c", 3), tag("x", 4), tag("x", 1), tag("x", delete=True), tag("x", delete=True)]
    previewed: list[Result] = []
    before = dict(MemoryStorage(HERE)._shared.objects)
    preview, previews = opened(HERE), Previews()
    while len(previewed) < len(proposals):
        group = entries(proposals, 3)[len(previewed) :]
        previewed += [outcome.result for outcome in preview.preview(group, previews).outcomes]
    assert MemoryStorage(HERE)._shared.objects == before
    folded: list[Result] = []
    while len(folded) < len(proposals):
        folded += results(table, *proposals[len(folded) :], first=3 + len(folded))
    assert folded == previewed
    assert [type(result) for result in folded[1:]] == [Tagged, Invalid, Tagged, Invalid]


def test_the_next_version_records_the_answer(table: TableWriter) -> None:
    first = results(table, tag("x", 1), tag("y", delete=True))
    (last,) = results(table, rows("c", 3), first=5)
    state = table.table.state
    record = None if state is None else decode_record(state.properties)
    assert record is not None
    assert (len(record.committed), len(record.refused), record.refusals) == (1, 2, 1)
    set_tag(MemoryStorage(HERE), "x", 2)
    again = opened(HERE)
    assert results(again, tag("x", 1), tag("y", delete=True), rows("c", 3)) == [*first, last]
    assert tags() == {"x": 2}, "another client has moved it since"


def test_a_file_log_answers_a_position_again_as_duplicate(table: TableWriter) -> None:
    envelopes = [tag("x", 1), tag("x", delete=True)]
    first = [outcome.result for outcome in table.fold(entries(envelopes, 0, FILE_LOG)).outcomes]
    assert first == [Tagged(1, "x"), Tagged(0, "x")]
    again = [outcome.kind for outcome in opened(HERE).fold(entries(envelopes, 0, FILE_LOG)).outcomes]
    assert again == ["duplicate", "duplicate"]
    assert tags() == {}


def test_an_outcome_passes_the_topic_and_is_no_version(table: TableWriter) -> None:
    (outcome,) = table.fold(entries([tag("x", 2)], 3)).outcomes
    message = outcome_message(outcome)
    assert (message.committed.version, message.committed.tag, outcome.kind) == (2, "x", "committed")
    assert outcome_value(message) == outcome
    assert plain_outcome(outcome, 0)["message"] == result_text(outcome) == "tag x names version 2"
    assert result_text(replace(outcome, result=Tagged(0, "x"))) == "tag x removed"
    assert operation_of(entry(tag("x", 2), 3)) == "tag"
    assert (outcome.uuid, outcome.table) == ("x-2", HERE)
    reported, last = Reported(), LastCommitted()
    # A tag of another branch, or of a detached version, may have any number.
    higher = replace(outcome, result=Tagged(2**63, "x"))
    reported.add(0, higher)
    last.add(higher)
    assert reported.newest(HERE, outcome.table_id, 0) is None
    assert last.of(HERE) is None


def test_an_envelope_in_the_log_is_read(table: TableWriter) -> None:
    position = Position(LOG, 3, "transactions")
    read = decode(tag("x", 2).SerializeToString(), HERE.encode(), position, 10**15)
    assert isinstance(read, Entry)
    assert [outcome.result for outcome in table.fold([read]).outcomes] == [Tagged(2, "x")]


def test_a_clean_up_keeps_the_version_that_a_waiting_tag_will_name() -> None:
    proposals = [tag("x", 7), tag("y", 2, branch="dev"), tag("z", delete=True), tag("w", 9, branch="main")]
    of_main, of_dev = waiting_of(proposals, ""), waiting_of(proposals, "dev")
    assert (of_main.count, of_main.oldest_read, of_main.unknown) == (2, 7, False)
    assert (of_dev.count, of_dev.oldest_read, of_dev.unknown) == (1, 2, False)


def test_nothing_is_answered_while_the_store_refuses(table: TableWriter, store: MemoryStorage) -> None:
    group = entries([tag("x", 1), rows("c", 3)], 3)
    store.faults.plan(Refuse("the disk is full", JSON))
    with pytest.raises(RetryError, match="the disk is full"):
        table.fold(group)
    assert (tags(), opened(HERE).table.version) == ({}, 3)
    assert table.fold(group).outcomes[0].result == Tagged(1, "x")
    assert tags() == {"x": 1}


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("move", [True, False])
def test_a_lost_answer_of_a_put_is_settled(
    table: TableWriter, store: MemoryStorage, *, stored: bool, move: bool
) -> None:
    if move:
        results(table, tag("x", 1))
    store.faults.plan(LoseAnswer(stored, JSON))
    try:
        assert results(table, tag("x", 2, move=move), first=4) == [Tagged(2, "x")]
    except RetryError:
        assert results(table, tag("x", 2, move=move), first=4) == [Tagged(2, "x")]
    assert tags() == {"x": 2}


def test_a_foreign_change_between_the_fold_and_the_write_is_seen(table: TableWriter) -> None:
    prepared = table.prepare(entries([tag("x", 1)], 3))
    set_tag(MemoryStorage(HERE), "x", 2)
    assert not table.put(prepared)
    table.fall_back(lost=True)
    (result,) = results(table, tag("x", 1))
    assert isinstance(result, Invalid)
    assert tags() == {"x": 2}


def test_a_committer_that_was_suspended_changes_no_tag_of_its_successor(table: TableWriter) -> None:
    results(table, tag("x", 1), tag("y", 1))
    table.reported()
    prepared = table.prepare(entries([tag("x", 2, move=True), tag("y", delete=True)], 5))
    results(opened(HERE), tag("x", 2, move=True), tag("x", 3, move=True), first=5)
    assert not table.put(prepared)
    table.fall_back(lost=True)
    with pytest.raises(FencedError):
        results(table, tag("x", 2, move=True), first=5)
    assert tags() == {"x": 3, "y": 1}


@pytest.mark.parametrize("also", [[], [rows("c", 3)]], ids=["tags only", "with a version"])
def test_a_committer_changes_no_tag_if_the_version_that_shows_its_successor_was_removed(
    table: TableWriter, also: list[Envelope]
) -> None:
    results(table, tag("x", 1))
    table.reported()
    group = entries([tag("x", 2, move=True), *also], 4)
    prepared = table.prepare(group)
    successor = opened(HERE)
    for offset, envelope in enumerate([tag("x", 2, move=True), rows("c", 3), rows("d", 4)], 4):
        results(successor, envelope, first=offset)
    results(successor, tag("x", 6, move=True), first=7)
    for version in (3, 4, 5):
        MemoryStorage(HERE).delete(versions_at(HERE).path(version))
    with pytest.raises(StopError, match="now it is 6"):
        table.put(prepared)
    assert tags() == {"x": 6}


def test_a_new_owner_sets_its_tags_again_once_its_first_version_is_published(
    table: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner before it may still write until then."""
    results(table, tag("x", 1))
    publish = Versions.publish

    def publish_late(versions: Versions, *arguments: Any) -> Published:  # noqa: ANN401 - as `publish` has them
        set_tag(MemoryStorage(HERE), "x", 2)
        return publish(versions, *arguments)

    monkeypatch.setattr(Versions, "publish", publish_late)
    assert results(opened(HERE), tag("x", 3, move=True), first=4) == [Tagged(3, "x")]
    assert tags() == {"x": 3}


@pytest.mark.parametrize("sizes", [(1,) * 7, (7,), (2, 3, 2), (3, 1, 3)])
def test_versions_that_record_tags_are_the_same_when_they_are_folded_again(
    table: TableWriter, sizes: tuple[int, ...]
) -> None:
    proposals = [
        tag("x", 1),
        tag("x", 2),
        rows("c", 3),
        tag("y", delete=True),
        tag("x", 2, move=True),
        tag("x", delete=True),
        rows("d", 3),
    ]
    written = [begin(), rows("a"), rows("b", 2), *proposals]
    offset = 3
    for size in sizes:
        results(table, *written[offset : offset + size], first=offset)
        offset += size
    replays = list(replay(StoredTable(BUILT_IN.first, versions_at(HERE)), Listed(entries(written, 0))))
    assert {each.verdict for each in replays} == {Verdict.SAME}
    assert (sum(each.committed for each in replays), sum(each.refused for each in replays)) == (5, 2)


class Died(BaseException):
    """The process died."""


class Mortal(MemoryStorage):
    """A store whose process dies before or after the write of this number."""

    def __init__(self, uri: str, deadline: list[int], *, after: bool) -> None:
        super().__init__(uri)
        self._deadline, self._after = deadline, after

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        self._counted(lambda: super(Mortal, self).put(path, buffers))

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        return self._counted(lambda: super(Mortal, self).put_if_absent(path, buffers))

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        return self._counted(lambda: super(Mortal, self).replace(path, etag, buffers))

    def delete(self, path: str) -> None:
        self._counted(lambda: super(Mortal, self).delete(path))

    def _counted(self, write: Callable[[], T]) -> T:
        self._deadline[0] -= 1
        if not self._deadline[0] and not self._after:
            raise Died
        result = write()
        if not self._deadline[0] and self._after:
            raise Died
        return result


HISTORY = [
    begin(),
    tag("x", 1),
    rows("a"),
    tag("x", 2, move=True),
    tag("y", 1),
    rows("b", 2),
    rows("c", 2),
    tag("y", delete=True),
    tag("x", 3, move=True),
    tag("z", 3),
    tag("y", 2),
]
CUTS = (1, 2, 3, 2, 1, 2)


def tags_after(count: int) -> dict[str, int]:
    """The tags after the first entries of the history, by a model of three lines."""
    known: dict[str, int] = {}
    for proposed in (envelope.tag for envelope in HISTORY[:count] if envelope.HasField("tag")):
        known = {name: version for name, version in known.items() if name != proposed.name}
        known |= {} if proposed.delete else {proposed.name: proposed.version}
    return known


def run_to_end(uri: str, deadline: list[int], *, after: bool) -> tuple[list[Outcome], int]:
    """Folds the history, by another process after each death, and returns its outcomes and the deaths."""
    outcomes: list[Outcome] = []
    deaths = 0
    while len(outcomes) < len(HISTORY):
        try:
            storage = Mortal(uri, deadline, after=after)
            table = TableWriter(
                StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)), check_sizes=False
            )
            while len(outcomes) < len(HISTORY):
                done = len(outcomes)
                end = next(end for end in _ends() if end > done)
                outcomes += table.fold(entries(HISTORY, 0)[done:end]).outcomes
                assert tags() == tags_after(len(outcomes)), "answered before it was stored"
        except Died:
            deaths += 1
    return outcomes, deaths


def _ends() -> list[int]:
    return [sum(CUTS[: number + 1]) for number in range(len(CUTS))]


def test_wherever_a_committer_dies_each_tag_is_set_before_it_is_answered() -> None:
    undisturbed, _ = run_to_end(HERE, [0], after=False)
    assert set(Refs(MemoryStorage(HERE)).tags()) == {"x", "y", "z"}
    assert {outcome.kind for outcome in undisturbed} == {"committed"}
    points = 0
    for after in (False, True):
        for number in range(1, 100):
            MemoryStorage.forget(NAME)
            outcomes, deaths = run_to_end(HERE, [number], after=after)
            assert tags() == tags_after(len(HISTORY)) == {"x": 3, "y": 2, "z": 3}
            for outcome, first in zip(outcomes, undisturbed, strict=True):
                removed_twice = deaths and first.result == Tagged(0, "y")
                assert type(outcome.result) is type(first.result) or removed_twice
            if not deaths:
                break
            points += 1
    assert points >= 30
