"""How long a proposal takes to become visible at a steady pace, on a small table and on a large table.

Proposals leave at their times, also if those before aren't visible yet, as with independent writers.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from benchmarks.files import appends
from benchmarks.ground import (
    ROWS_PER_FRAGMENT,
    await_answers,
    await_start,
    committer,
    mould_of,
    not_committed,
    outcomes_of,
    prove,
)
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed
from lakefold_table.lance.manifests.naming import Scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from benchmarks.ground import Ground
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome

SMALL = 1_000
PER_SECOND = 50
WARM_UP = 50
MINUTE = 60.0
NO_LIMIT = ("--manifest-bytes-per-second", "0")
LOOK_EVERY_SECONDS = 0.0005


def measure(ground: Ground, proposals: int, fragments: int) -> dict[str, float]:
    """Sends `proposals` Appends at 50 a second to a table of 1,000 fragments, then to one of `fragments`.

    The large table is measured without a limit for its manifests, and for a minute with the default limit.
    """
    figures = {"proposals": float(proposals), "proposals/s": float(PER_SECOND)}
    figures |= _measure(ground, "small", proposals, SMALL)
    large = _measure(ground, "large", proposals, fragments, *NO_LIMIT)
    figures |= {f"{fragments:,} fragments: {name}": value for name, value in large.items()}
    limited = _measure(ground, "limited", 3 * proposals, fragments)
    return figures | {f"{fragments:,} fragments, limited: {name}": value for name, value in limited.items()}


def _measure(ground: Ground, name: str, proposals: int, fragments: int, *options: str) -> dict[str, float]:
    mould = mould_of(ground, name, fragments)
    path = ground.root / name
    envelopes = appends(mould, 2, f"writer-{name}", WARM_UP + proposals)
    with (
        committer(ground, *options),
        Watch(path, 3) as watch,
        Proposer(ground.config, ground.topics) as proposer,
    ):
        await_start(ground)
        sent = send_at_pace(proposer, envelopes)
        await_answers(ground)
    outcomes = [outcome for outcome in outcomes_of(ground) if outcome.app_id == f"writer-{name}"]
    if len(outcomes) != len(envelopes) or not_committed(outcomes):
        raise AssertionError(f"{len(outcomes)} answers, {not_committed(outcomes):.0f} of them no versions")
    prove(path, (fragments + len(envelopes)) * ROWS_PER_FRAGMENT, whole=False)
    return {
        **percentiles(watch, sent, outcomes),
        "versions": len(watch.seen),
        "manifest MB/s": _most_per_second(path, watch) / 1e6,
    }


def percentiles(watch: Watch, sent: Sequence[float], outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How long proposals took until they were visible, without the first ones. `sent`: by batch id."""
    times = sorted(
        watch.seen[outcome.result.version] - sent[outcome.batch_id]
        for outcome in outcomes
        if isinstance(outcome.result, Committed)
        and outcome.batch_id is not None
        and outcome.batch_id >= WARM_UP
    )
    return {
        "p50 ms": 1000 * times[len(times) // 2],
        "p99 ms": 1000 * times[int(len(times) * 0.99)],
        "max ms": 1000 * times[-1],
    }


def _most_per_second(path: Path, watch: Watch) -> float:
    """Returns the bytes of manifests per second, of the minute in which most were written."""
    written = [(at, (path / Scheme.V2.path(version)).stat().st_size) for version, at in watch.seen.items()]
    minutes = [[size for at, size in written if first <= at < first + MINUTE] for first, _ in written]
    seconds = min(MINUTE, written[-1][0] - written[0][0])
    return max(map(sum, minutes)) / seconds


def send_at_pace(proposer: Proposer, envelopes: Sequence[Envelope]) -> list[float]:
    """Sends them at their times; when each was sent, by `time.perf_counter`."""
    sent, on_their_way = [], []
    begun = time.perf_counter()
    for number, envelope in enumerate(envelopes):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.perf_counter()))
        sent.append(time.perf_counter())
        on_their_way.append(proposer.send(envelope))
    for future in on_their_way:
        future.result(10)
    return sent


class Watch:
    """Polls for each next version by name. `seen`: when each was seen, by `perf_counter`."""

    def __init__(self, path: Path, first: int, name: Callable[[int], str] = Scheme.V2.path) -> None:
        self.seen: dict[int, float] = {}
        self._path = path
        self._name = name
        self._next = first
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ending.is_set():
            if (self._path / self._name(self._next)).exists():
                self.seen[self._next] = time.perf_counter()
                self._next += 1
            else:
                time.sleep(LOOK_EVERY_SECONDS)
