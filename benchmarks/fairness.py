"""How long an honest proposal waits behind a flood: of names that are not tables, of Appends that cost much.

A partition has the proposals of many writers. What a single writer sends, by mistake or on purpose, may take
its own time and not that of the others. So each flood is sent at once, then a small Append to a table that is
open already and another to a table that no committer has opened yet; what counts is when their answers come.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.files import Mould, append_of
from benchmarks.ground import MEGABYTE, await_answers, await_start, committer, mould_of, not_committed
from benchmarks.memory import KILOBYTE
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from benchmarks.ground import Ground

FRAGMENTS = 100
FRAGMENTS_IN_LARGE = 38_000
LONGEST_S = 300.0


def measure(ground: Ground, unknown: int, large: int) -> dict[str, float]:
    """Sends `unknown` proposals for as many names without a table, then `large` Appends of many fragments."""
    figures: dict[str, float] = {"names without a table": float(unknown), "large Appends": float(large)}
    figures |= _behind(ground, "unknown", lambda: _for_unknown_tables(ground, unknown))
    figures |= _behind(ground, "large", lambda: _large_appends(ground, large))
    return figures


def _behind(ground: Ground, flood: str, make: Callable[[], Iterator[Envelope]]) -> dict[str, float]:
    """Sends the result of `make`, and right after it a small Append to each of two tables."""
    open_already, not_open = (mould_of(ground, f"{flood}-{name}", FRAGMENTS) for name in ("open", "closed"))
    bad = list(make())
    with committer(ground) as process, Proposer(ground.config, ground.topics) as proposer:
        await_start(ground)
        idle = _Honest(ground, proposer, open_already).answered()
        honest = [_Honest(ground, proposer, mould) for mould in (open_already, not_open)]
        started = time.perf_counter()
        sent = [proposer.send(envelope) for envelope in bad]
        with ThreadPoolExecutor(len(honest)) as together:
            # After the flood: a producer keeps the order of what it sends.
            sending = time.perf_counter() - started
            waits = list(together.map(_Honest.answered, honest))
        before = peak_mb(process)
        for future in sent:
            future.result(LONGEST_S)
        await_answers(ground)
        whole = time.perf_counter() - started
        return {
            f"{flood}: seconds of sending the flood": sending,
            f"{flood}: seconds until the flood was answered": whole,
            f"{flood}: honest, idle, seconds": idle,
            f"{flood}: honest, table open, seconds": waits[0],
            f"{flood}: honest, table not open, seconds": waits[1],
            f"{flood}: committer's peak MB": max(before, peak_mb(process)),
        }


@dataclass
class _Honest:
    """A writer of a small table."""

    ground: Ground
    proposer: Proposer
    mould: Mould

    def answered(self) -> float:
        """Sends a small Append. Returns the seconds until its outcome."""
        envelope = append_of(self.mould.uri, self.mould.cast(1), 2)
        with OutcomeWaiter(self.ground.config, self.ground.topics, self.mould.uri) as waiter:
            started = time.perf_counter()
            position = self.proposer.send_wait(envelope)
            outcome = waiter.wait(position, envelope, LONGEST_S)
            seconds = time.perf_counter() - started
        if not_committed([outcome]):
            raise AssertionError(f"an honest proposal was refused: {outcome}")
        return seconds


def _for_unknown_tables(ground: Ground, count: int) -> Iterator[Envelope]:
    for number in range(count):
        envelope = Envelope(table=ground.uri(f"nobody-{number}"))
        envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), 1
        file = envelope.lance.append.fragments.add(physical_rows=1).files.add(path=f"{number}.lance")
        file.fields.append(0)
        yield envelope


def _large_appends(ground: Ground, count: int) -> Iterator[Envelope]:
    uri = mould_of(ground, "flooded", 1).uri
    for number in range(count):
        envelope = Envelope(table=uri)
        envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), 1
        for index in range(FRAGMENTS_IN_LARGE):
            envelope.lance.append.fragments.add(physical_rows=1).files.add(path=f"{number:x}-{index:x}.lance")
        yield envelope


def peak_mb(process: subprocess.Popen[bytes]) -> float:
    """The most memory that a running process has had so far, by the kernel."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return peak * KILOBYTE / MEGABYTE
