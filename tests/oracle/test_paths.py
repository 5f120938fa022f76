"""ARCHITECTURE.md describes the paths that calls take: it names the modules in the order of their calls."""

from __future__ import annotations

import re
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa

import lakefold
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.tables.branches import open_branch
from lakefold_table.entry import Committed
from lakefold_table.uri import canonical
from tests.folding import FORMATS, creation
from tests.unit.test_partition import Reports, at, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from lakefold_committer.loop.ports import Stop

PAGE: Final = Path(__file__).parents[2] / "ARCHITECTURE.md"
MODULE: Final = re.compile(r"`([\w/]+)\.py`")
ENTRY: Final = {
    "lakefold_committer/loop/partition": "run",
    "lakefold_log/codec/envelope": "decode",
    "lakefold_committer/loop/table_queue": "take",
    "lakefold_committer/loop/admission": "begin",
    "lakefold_committer/loop/table_scheduler": "advance",
    "lakefold_committer/tables/branches": "open_branch",
    "lakefold_committer/recovery/open_table": "open_table",
    "lakefold_committer/fold/grouping": "first_group",
    "lakefold_committer/claims/claim_check": "bring",
    "lakefold_committer/tables/table_writer": "prepare",
    "lakefold_committer/tables/requirements": "observe",
    "lakefold_committer/tables/prefetcher": "",
    "lakefold_committer/fold/fold": "fold",
    "lakefold_committer/fold/keys": "seen",
    "lakefold_table/versions/versions": "publish",
    "lakefold_committer/loop/reporting": "add",
}
"""The functions that do the steps of an entry, by their modules."""
NEEDS_A_BROKER: Final = {
    "lakefold_committer/process/daemon",
    "lakefold_committer/process/partition_thread",
    "lakefold_committer/recovery/start_offset",
    "lakefold_log/read/consumer",
    "lakefold_log/write/reporter",
}
VERSION: Final = {
    "lakefold_reader/tail/tail": "tail",
    "lakefold_reader/opening": "on_branch",
    "lakefold_reader/versions/start": "start_of",
    "lakefold_reader/versions/cursor": "mark_of",
    "lakefold_reader/versions/prefetch": "take",
    "lakefold_reader/lance/versions": "read_summary",
    "lakefold_reader/tail/change": "inserted",
    "lakefold_reader/lance/changed_rows": "inserted",
    "lakefold_reader/lance/effect": "effect_of",
    "lakefold_reader/lance/scan/scan": "rows_of_fragments",
}
"""The functions that do the steps of a version."""


class AtOnce:
    """A `Runtime` that runs each task when it is started, so that all calls are on one thread."""

    def __init__(self) -> None:
        self.running = 0
        self._ended: list[tuple[Callable[[Any], None], object]] = []

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def pause(self, seconds: float, stop: Stop) -> None:
        del seconds, stop

    def start(self, work: Callable[[], Any], ended: Callable[[Any], None]) -> None:
        self.running += 1
        self._ended.append((ended, work()))

    def wait(self, timeout_s: float) -> bool:
        del timeout_s
        values, self._ended = self._ended, []
        self.running -= len(values)
        for ended, result in values:
            ended(result)
        return bool(values)

    def close(self) -> None:
        pass


@contextmanager
def calls() -> Iterator[list[tuple[str, str]]]:
    """Yields the calls of our packages' functions in here: modules, as paths, and names."""
    made: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("lakefold_"):
            made.append((name.replace(".", "/"), frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(before)


def described(heading: str, package: str, *, but: frozenset[str] = frozenset()) -> list[str]:
    """The modules that a section of the page names, in its order; relative paths are those of the package."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    modules = (
        path.partition("/")[2] if "/lakefold_" in path else f"{package}/{path}"
        for path in MODULE.findall(section)
        if not path.startswith("tests/")
    )
    return [module for module in modules if module not in but]


def assert_called_in_order(made: list[tuple[str, str]], steps: list[tuple[str, str]]) -> None:
    rest = iter(made)
    for module, name in steps:
        assert any(each == module and name in {"", called} for each, called in rest), f"{module} {name}"


def test_an_entry_follows_the_page(tmp_path: Path) -> None:
    uri, reports = canonical(tmp_path / "t"), Reports()
    log = messages([at(uri, creation())])
    tables = Tables(FORMATS, lambda _: None, lambda uri, branch: open_branch(uri, branch, {}))
    pace = LoopLimits(Limits(10, 1 << 20), 0.0)
    committer = PartitionCommitter(log, reports, tables, pace, Metrics(), runtime=AtOnce())  # type: ignore[arg-type]
    with calls() as made:
        committer.run(threading.Event(), log.end_offset())
    assert [type(outcome.result) for outcome in reports.outcomes] == [Committed]
    modules = described(
        "The path of an entry, from poll to answer", "lakefold_committer", but=frozenset(NEEDS_A_BROKER)
    )
    assert set(modules) == set(ENTRY)
    assert_called_in_order(made, [(module, ENTRY[module]) for module in modules])


def test_a_version_follows_the_page(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for number in range(2):
        lance.write_dataset(pa.table({"n": [number]}), uri, mode="append")
    with calls() as made:
        rows = [change.inserted()["n"].to_pylist() for change in lakefold.tail(uri, 1)]
    assert rows == [[1]]
    modules = described("The path of a version, from its name to rows", "lakefold_reader")
    named = [module for module in modules if module != "lakefold_reader/snapshot/snapshot"]
    assert set(named) == set(VERSION)
    assert_called_in_order(made, [(module, VERSION[module]) for module in named])
