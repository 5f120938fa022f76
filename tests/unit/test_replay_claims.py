"""Large envelopes beside the log are fetched again for a replay. If that is impossible, it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.replay.replay import CLAIM_NOTE
from lakefold_committer.replay.version_replay import Verdict
from lakefold_log.codec.claims import path_of, put_claim
from lakefold_log.codec.envelope import encode
from lakefold_table.entry import Committed, Invalid
from tests.folding import append, creation, entries, opened
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, Listed, here, replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_protos.lakefold.log_pb2 import Envelope


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def claimed(envelope: Envelope) -> tuple[Envelope, str]:
    """The message for an envelope that is stored beside the table, and its path."""
    small = put_claim(MemoryStorage(HERE), envelope, encode(envelope), 1)
    return small, path_of(small.claim)


def folded(*envelopes: Envelope) -> Listed:
    """The log of a table that was folded from these, each alone, its refusals recorded."""
    log = entries([here(creation()), *envelopes, here(append("last"))], 0)
    table = opened(HERE)
    for entry in log:
        table.fold(Claims().fetch([entry]))
    return Listed(log)


def test_what_is_claimed_is_brought_again() -> None:
    small, path = claimed(here(append("f", app="a", batch=1)))
    log = folded(small, small)
    replays = replayed(log)
    assert [(replay.verdict, replay.committed, replay.notes) for replay in replays] == [
        (Verdict.SAME, 1, ())
    ] * 3
    assert sum(replay.refused for replay in replays) == 1
    MemoryStorage(HERE).delete(path)
    replays = replayed(log)
    assert [replay.verdict for replay in replays] == [
        Verdict.SAME,
        Verdict.NOT_COMPARED,
        Verdict.NOT_COMPARED,
    ]
    assert "the claimed envelope can't be read any more" in replays[1].notes[0]


def test_a_claim_without_its_file_is_refused_again_whatever_exists_now() -> None:
    storage = MemoryStorage(HERE)
    small, path = claimed(here(append("f")))
    data = storage.get(path)
    storage.delete(path)
    log = folded(small)
    replays = replayed(log)
    assert [(replay.verdict, replay.notes) for replay in replays] == [(Verdict.SAME, ())] * 2
    assert replays[1].refused == 1
    storage.put(path, [data])
    replays = replayed(log)
    assert [(replay.verdict, replay.notes) for replay in replays] == [
        (Verdict.SAME, ()),
        (Verdict.SAME, (CLAIM_NOTE.format(1),)),
    ]


def test_a_claim_refused_for_its_memory_is_refused_again_whatever_a_claim_may_take_now() -> None:
    small, _ = claimed(here(append("f")))
    log = entries([here(creation()), small, here(append("last"))], 0)
    table = opened(HERE)
    results = [table.fold(Claims(most_bytes=1000).fetch([entry])).outcomes[0].result for entry in log]
    refused = results[1]
    assert isinstance(refused, Invalid)
    assert "more than the 1000 of claim_memory" in refused.message
    replays = replayed(Listed(log))
    assert [(replay.verdict, replay.notes) for replay in replays] == [
        (Verdict.SAME, ()),
        (Verdict.SAME, (CLAIM_NOTE.format(1),)),
    ]
    # The same proposal again, under a higher limit.
    (outcome,) = table.fold(Claims().fetch(entries([small], 3))).outcomes
    assert outcome.result == Committed(3, rebased=True, rows_added=3, first_fragment_id=1, num_fragment_ids=1)
