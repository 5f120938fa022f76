"""How soon a committer that is started again commits, on a table of many fragments and many versions."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.files import append_of
from benchmarks.ground import committer, mould_of
from benchmarks.memory import memory_of
from lakefold_log.write.producer import Proposer
from lakefold_table.lance.manifests.codec import assemble_file, decode_file, encode_transaction
from lakefold_table.lance.manifests.naming import Scheme
from lakefold_table.marks.marks import decode_marks
from lakefold_table.marks.record import VERSION
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.files import Mould
    from benchmarks.ground import Ground

STARTS = 5
"""How often it is started."""
MORE = 200
"""How many versions the last one makes, for its memory to settle."""
LINKS = 10_000
"""How many names one file gets: file systems take some ten thousands."""


def measure(ground: Ground, fragments: int, versions: int) -> dict[str, float]:
    """Starts a committer for which an Append waits. Returns when that is visible."""
    mould = mould_of(ground, "restart", fragments)
    path = ground.root / "restart"
    age(path, versions)
    seconds = []
    figures: dict[str, float] = {}
    newest = versions
    for number in range(STARTS):
        send(ground, mould, newest)
        started = time.perf_counter()
        with committer(ground) as process:
            newest = await_version(path, newest + 1)
            seconds.append(time.perf_counter() - started)
            for _ in range(MORE if number == STARTS - 1 else 0):
                send(ground, mould, newest)
                newest = await_version(path, newest + 1)
            figures = memory_of(process, path / Scheme.V2.path(newest))
    return {
        "fragments": fragments,
        "versions": newest,
        "seconds to the first commit": sorted(seconds)[STARTS // 2],
        "of the slowest start": max(seconds),
        **figures,
    }


def age(path: Path, versions: int) -> None:
    """Gives the table's newest version a higher number, and the numbers before it to its first version.

    Opening the table lists them all, and reads only the newest.
    """
    newest = path / Scheme.V2.path(2)
    file = decode_file(newest.read_bytes())
    marks = decode_marks(file.head.table_metadata)
    if marks is None or file.transaction is None:
        raise ValueError(f"{newest} is not a version of a committer's")
    file.head.version = versions
    file.head.table_metadata.update(replace(marks, version=versions).encode())
    file.transaction.read_version = versions - 1
    file.transaction.transaction_properties[VERSION] = str(versions)
    buffers = assemble_file(
        file.head, file.fragments, file.index_section, encode_transaction(file.transaction)
    )
    newest.unlink()
    first = path / Scheme.V2.path(1)
    source = first
    for number in range(2, versions):
        target = path / Scheme.V2.path(number)
        if number % LINKS == 0:
            target.write_bytes(first.read_bytes())
            source = target
        else:
            os.link(source, target)
    (path / Scheme.V2.path(versions)).write_bytes(b"".join(buffers))


def send(ground: Ground, mould: Mould, read_version: int) -> None:
    """An Append of a single fragment, which the broker then has."""
    with Proposer(ground.config, ground.topics) as proposer:
        proposer.send_wait(append_of(mould.uri, mould.cast(1), read_version))


def await_version(path: Path, version: int) -> int:
    """Waits for this version."""
    file = path / Scheme.V2.path(version)
    until(file.exists, f"version {version}", seconds=60, every=0.001)
    return version
