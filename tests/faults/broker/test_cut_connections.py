"""A connection that is cut at any request changes nothing: each proposal has its right outcome.

A clean run counts the requests of each kind. Then the connection is cut at the n-th request of each kind, in
each way. `make test` plays the points of `SHORT`, which meet each kind and each way; `make test-faults` plays
all.

Promise: cut-connections (docs/operations/promises.md).
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.faults.broker.acts import ACTS, Act, Scene
from tests.integration.conftest import TopicNames
from tests.servers.kafka_relay import Cut, CutMoment, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.servers.kafka_relay import KafkaRelay, RelayedBroker

SHORT: Mapping[str, Sequence[tuple[Kind, CutMoment]]] = {
    "start": (
        (Kind.CREATE_TOPICS, CutMoment.AFTER),
        (Kind.DESCRIBE_CONFIGS, CutMoment.BEFORE),
        (Kind.METADATA, CutMoment.HALF),
    ),
    "report": (
        (Kind.PRODUCE, CutMoment.AFTER),
        (Kind.ADD_PARTITIONS_TO_TXN, CutMoment.HALF),
        (Kind.TXN_OFFSET_COMMIT, CutMoment.BEFORE),
        (Kind.END_TXN, CutMoment.AFTER),
    ),
    "take-over": ((Kind.INIT_PRODUCER_ID, CutMoment.AFTER), (Kind.API_VERSIONS, CutMoment.BEFORE)),
    "recovery": (
        (Kind.LIST_OFFSETS, CutMoment.AFTER),
        (Kind.ADD_OFFSETS_TO_TXN, CutMoment.HALF),
        (Kind.FIND_COORDINATOR, CutMoment.BEFORE),
    ),
    "set back": ((Kind.LIST_OFFSETS, CutMoment.HALF), (Kind.OFFSET_FETCH, CutMoment.AFTER)),
    "store away": ((Kind.FETCH, CutMoment.HALF), (Kind.LIST_OFFSETS, CutMoment.BEFORE)),
}
"""What the short form cuts in each act: a request of this kind, a third of the way through them."""
LAST: Mapping[str, Sequence[tuple[Kind, CutMoment]]] = {"start": ((Kind.LIST_OFFSETS, CutMoment.AFTER),)}
"""What it cuts besides: the last request of this kind, if an act sends as many each time.

Here it is the question up to where `--until-caught-up` folds.
"""
FINDING = {Kind.METADATA, Kind.API_VERSIONS, Kind.FIND_COORDINATOR}
"""A client sends hundreds of these, most of them for itself."""
MEETINGS = 3
"""How often an act is played at most in the short form until a cut has happened."""
PROGRESS_POINTS = 25
"""After how many points the long form prints how far an act has come."""
_numbers = itertools.count()


def _names() -> TopicNames:
    unique = f"{os.getpid()}-{next(_numbers)}"
    parts = ("events", "transactions", "outcomes", "dead-letters", "group")
    return TopicNames(*(f"cut-{part}-{unique}" for part in parts))


def _points(counts: Mapping[Kind, int]) -> list[Cut]:
    """Each request of each kind in each way; those by which a client finds its way in one way each."""
    moments = tuple(CutMoment)
    return [
        Cut(kind, number, method)
        for kind, count in sorted(counts.items())
        for number in range(1, count + 1)
        for method in ((moments[number % len(moments)],) if kind in FINDING else moments)
    ]


def _short(act: Act, counts: Mapping[Kind, int]) -> list[Cut]:
    """The same points in every run. A third of the way, since the last requests of a kind may not come."""
    missing = [kind.name for kind, _ in SHORT[act.name] if not counts.get(kind)]
    assert missing == [], f"{act.name} sends no such request; choose other kinds"
    last = [Cut(kind, counts[kind], method) for kind, method in LAST.get(act.name, ())]
    return [Cut(kind, 1 + (counts[kind] - 1) // 3, method) for kind, method in SHORT[act.name]] + last


def _play(
    act: Act, cut: Cut | None, broker: RelayedBroker, relay: KafkaRelay, producer: Producer, root: Path
) -> Mapping[Kind, int] | None:
    """Play an act with a cut, and check what came of it.

    Returns None if the cut happened, else how many requests of each kind were sent.
    """
    root.mkdir()
    scene = Scene(broker, producer, _names(), root)
    relay.plan(None)
    act.prepare(scene)
    relay.plan(cut)
    try:
        act.play(scene)
    finally:
        sent = None if relay.happened else relay.counts
        if cut is not None:
            relay.plan(None)
    act.check(scene)
    return sent


def _meet(
    act: Act, cut: Cut, broker: RelayedBroker, relay: KafkaRelay, producer: Producer, root: Path
) -> bool:
    """Plays an act with a cut until the cut has happened. Returns whether it did.

    A clean run on a busy machine has sent more requests than the act needs.
    """
    for number in range(MEETINGS):
        sent = _play(act, cut, broker, relay, producer, root / str(number))
        if sent is None:
            return True
        cut = replace(cut, number=min(cut.number, sent.get(cut.kind, 0)))
    return False


def _chosen(act: Act, counts: Mapping[Kind, int], config: pytest.Config) -> list[tuple[int, Cut]]:
    """The points to play, each with its number."""
    if not config.getoption("--all-faults"):
        return list(enumerate(_short(act, counts), 1))
    first, _, last = config.getoption("--fault-points").partition(":")
    chosen = list(enumerate(_points(counts), 1))[int(first) - 1 : int(last) if last else None]
    assert chosen, f"{act.name} has {len(_points(counts))} points"
    return chosen


def _print_at_once(capfd: pytest.CaptureFixture[str], text: str) -> None:
    """Print past pytest's capture, to stderr, since the stdout of a pytest-xdist worker goes nowhere."""
    with capfd.disabled():
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_a_cut_connection_changes_no_outcome(
    act: Act,
    relayed: RelayedBroker,
    relay: KafkaRelay,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
) -> None:
    producer = Producer({"bootstrap.servers": relayed.bootstrap_servers, "acks": "all"})
    counts = _play(act, None, relayed, relay, producer, tmp_path / "clean")
    assert counts is not None
    is_long = request.config.getoption("--all-faults")
    failures: list[str] = []
    happened = 0
    chosen = _chosen(act, counts, request.config)
    began = time.monotonic()
    for number, cut in chosen:
        root = tmp_path / str(number)
        try:
            root.mkdir()
            if is_long:
                happened += _play(act, cut, relayed, relay, producer, root / "only") is None
            else:
                happened += _meet(act, cut, relayed, relay, producer, root)
        except Exception:  # noqa: BLE001 - all points are played before the test fails
            failures.append(f"{cut}:\n{traceback.format_exc(limit=-3)}")
            _print_at_once(capfd, f"{act.name} failed at {failures[-1]}")
        else:
            shutil.rmtree(root)
        if is_long and number % PROGRESS_POINTS == 0:
            passed = f"point {number} of {chosen[0][0]} to {chosen[-1][0]}, {len(failures)} failed"
            _print_at_once(capfd, f"{act.name}: {passed}, {time.monotonic() - began:.0f} s")
    assert not failures, f"{len(failures)} of {len(chosen)} points\n" + "\n".join(failures)
    # How often a client fetches and asks for metadata is its own affair, so the last requests may not come.
    assert happened >= (len(chosen) // 2 if is_long else len(chosen))


def test_the_short_form_meets_each_kind_and_each_way() -> None:
    points = [point for points in SHORT.values() for point in points]
    assert {kind for kind, _ in points} == set(Kind)
    assert {method for _, method in points} == set(CutMoment)
    assert list(SHORT) == [act.name for act in ACTS]
