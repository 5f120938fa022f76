"""The committer's own code with a format that it doesn't know: fold, writer, file log and replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.replay.file_fold import fold_file
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located, open_branch
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.formats import Formats, lance
from lakefold_table.versions.table_address import TableAddress
from tests.folding import append, changed, creation
from tests.memory_storage import MemoryStorage
from tests.toy_format.toy import (
    APPEND,
    CREATE,
    DELETE,
    FOLDER,
    NAMING,
    ToyFormat,
    ToyProposal,
    ToyState,
    envelope_of,
    file_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome, Result

URI = "memory://toys/t"
TOY = ToyFormat()
FORMATS = Formats(lance(), TOY)
LIMITS = Limits(100, 1 << 20)
LOG_ID, OTHER_ID = "6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e", "0d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


@pytest.fixture(autouse=True)
def _empty_store() -> Iterator[None]:
    yield
    MemoryStorage.forget("toys")


def create(uuid: str = "create") -> Envelope:
    return envelope_of(URI, ToyProposal(uuid, CREATE))


def rows(uuid: str, *keys: str, read: int = 1, app: str = "", batch: int | None = None) -> Envelope:
    return envelope_of(URI, ToyProposal(uuid, APPEND, read, dict.fromkeys(keys, uuid)), app, batch)


def delete(uuid: str, *keys: str, read: int = 1) -> Envelope:
    return envelope_of(URI, ToyProposal(uuid, DELETE, read, keys=keys))


def fold(*envelopes: Envelope, log: str = LOG_ID, dry_run: bool = False) -> list[Outcome]:
    entries = FileLog(framed(envelopes), log, formats=FORMATS)

    def opened(branch: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as fold_file takes it
        return open_branch(TableAddress(URI), branch, formats=FORMATS)

    claims = Claims(formats=FORMATS)
    return list(fold_file(opened, URI, FORMATS, entries, LIMITS, dry_run=dry_run, claims=claims))


def results(outcomes: Sequence[Outcome]) -> list[Result]:
    return [outcome.result for outcome in outcomes]


def newest() -> ToyState:
    return open_branch(TableAddress(URI), "", formats=FORMATS).table.state  # type: ignore[return-value]


def test_entries_are_folded_in_their_order_into_versions_that_they_share() -> None:
    values = results(fold(create(), rows("a", "1", "2"), delete("b", "1"), rows("c", "1")))
    assert values == [
        Committed(1),
        Committed(2, rows_added=2),
        Committed(2, rows_deleted=1),
        Committed(2, rows_added=1),
    ]
    assert newest().rows == {"2": "a", "1": "c"}
    assert MemoryStorage(URI).names(FOLDER) == ["00000000000000000001.jsonl", "00000000000000000002.jsonl"]


def test_a_row_that_another_deleted_is_a_conflict_and_one_that_never_was_a_fault() -> None:
    fold(create(), rows("a", "1", "2"))
    values = results(
        fold(delete("d", "1", read=2), delete("e", "1", read=2), delete("f", "9", read=2), log=OTHER_ID)
    )
    assert isinstance(values[0], Committed)
    assert isinstance(values[1], Rejected)
    assert (values[1].conflict.other_version, values[1].conflict.keys) == (3, ("1",))
    assert isinstance(values[2], Invalid)


def test_a_key_and_a_uuid_count_once() -> None:
    first, again = rows("a", "1", app="app", batch=7), rows("z", "2", app="app", batch=7)
    values = results(fold(create(), first, rows("b", "3"), again, rows("b", "4")))
    assert [type(result) for result in values] == [Committed, Committed, Committed, Duplicate, Duplicate]
    assert newest().rows == {"1": "a", "3": "b"}
    known = results(fold(create(), first, rows("b", "3"), again, rows("b", "4")))
    assert [type(result) for result in known] == [Duplicate] * 5


def test_without_a_table_only_a_creation_is_taken() -> None:
    (missing, made, twice) = results(fold(rows("a", "1"), create(), create("d")))
    assert isinstance(missing, Invalid)
    assert made == Committed(1)
    assert isinstance(twice, Rejected)


def test_a_dry_run_gives_the_same_answers_and_writes_nothing() -> None:
    proposals = [create(), rows("a", "1"), delete("b", "2")]
    outcomes = fold(*proposals, dry_run=True)
    assert MemoryStorage(URI).names(FOLDER) == []
    assert results(fold(*proposals)) == results(outcomes)


def test_a_proposal_for_another_format_is_refused() -> None:
    lances = changed(append("f"), lambda envelope: setattr(envelope, "table", URI))
    (_, refused, taken) = results(fold(create(), lances, rows("a", "1")))
    assert isinstance(refused, Invalid)
    assert "toy" in refused.message
    assert isinstance(taken, Committed)


def test_a_table_gets_the_format_of_what_begins_it() -> None:
    lances = changed(creation(), lambda envelope: setattr(envelope, "table", URI))
    (missing, made, refused) = results(fold(rows("a", "1"), lances, rows("b", "1")))
    assert isinstance(missing, Invalid)
    assert made == Committed(1)
    assert isinstance(refused, Invalid)
    assert "lance" in refused.message
    assert located(TableAddress(URI), "", formats=FORMATS).format.name == "lance"


def test_the_versions_of_another_client_are_followed() -> None:
    fold(create(), rows("a", "1"))
    before = newest()
    head = {**before.head, "version": 3, "uuid": "theirs", "properties": {}, "operation": APPEND}
    MemoryStorage(URI).put_if_absent(NAMING.path(3), file_of(head, [{"add": {"7": "theirs"}}]))
    (added, taken) = results(fold(rows("b", "8", read=3), rows("c", "7", read=2), log=OTHER_ID))
    assert added == Committed(4, rows_added=1)
    assert isinstance(taken, Rejected)
    assert newest().rows == {"1": "a", "7": "theirs", "8": "b"}


def test_a_replay_makes_the_same_files_again() -> None:
    proposals = [
        create(),
        rows("a", "1", "2"),
        delete("b", "1"),
        delete("c", "1"),
        rows("d", "3", app="x", batch=1),
    ]
    fold(*proposals)
    stored = located(TableAddress(URI), "", formats=FORMATS)
    entries = FileEntries([FileLog(framed(proposals), LOG_ID, formats=FORMATS)])
    replays = list(replay(stored, entries))
    assert [(each.version, each.verdict, each.differences) for each in replays] == [
        (1, Verdict.SAME, ()),
        (2, Verdict.SAME, ()),
    ]


def test_a_replay_finds_a_version_that_was_changed() -> None:
    proposals = [create(), rows("a", "1")]
    fold(*proposals)
    storage = MemoryStorage(URI)
    data = storage.get(NAMING.path(2)).replace(
        json.dumps({"1": "a"}).encode(), json.dumps({"1": "b"}).encode()
    )
    storage.put(NAMING.path(2), [data])
    stored = located(TableAddress(URI), "", formats=FORMATS)
    entries = FileEntries([FileLog(framed(proposals), LOG_ID, formats=FORMATS)])
    (_, actual) = replay(stored, entries)
    assert actual.verdict is Verdict.DIFFERENT
    assert [difference.what for difference in actual.differences] == ["line 3"]
