"""What one sender floods a partition with takes its own time: others' proposals are answered meanwhile.

Promise: fair-shares (docs/operations/promises.md).
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.loop.name_check import NameCheck
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.loop.reread_entries import LARGE_BYTES
from lakefold_committer.loop.table_queue import TableQueue
from lakefold_committer.loop.table_scheduler import Slots
from lakefold_committer.loop.unopened_tables import UnopenedTables
from lakefold_committer.loop.waiting_entries import Load, Waiting
from lakefold_committer.observability.metrics import Metrics
from lakefold_log.codec.envelope import address_of, encode
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.uri import canonical, parse_location
from tests.folding import FORMATS, append, creation, entries
from tests.unit.test_parking import LIMITS, Stamped, Trouble, committer_of
from tests.unit.test_parking import offsets as offsets_of
from tests.unit.test_partition import Message, at, folded, messages, opened
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_committer.tables.table_writer import TableWriter

FLOOD, FIRST_LOOKS = 1_000, 100


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


def test_names_that_are_no_tables_do_not_hold_up_the_tables(tmp_path: Path) -> None:
    """A table is open, and another was not opened yet; most names are checked only once both are answered."""
    text, other = canonical(tmp_path / "open"), canonical(tmp_path / "other")
    first = messages([at(text, creation()), at(other, creation())])
    committer_of(first, Stamped(), Trouble("", [])).run(threading.Event(), first.end_offset())
    flood = [at(canonical(tmp_path / f"no-{number}"), append()) for number in range(FLOOD)]
    log = messages([at(text, append("c"))], [*flood, at(text, append("a")), at(other, append("b"))])
    for polled in log.polls:
        for message in polled:
            message.offset += first.position
    log.position = first.position
    reports, looked_at = Stamped(), count()
    last = first.position + FLOOD + 2

    def open_late(uri: str, branch: str) -> TableWriter:
        if uri not in {text, other} and next(looked_at) >= FIRST_LOOKS:
            until(lambda: {last - 1, last} <= {*offsets_of(reports)}, "the tables' answers")
        return opened(uri, branch)

    tables = Tables(FORMATS, lambda _: None, open_late, name_check=NameCheck(FORMATS, lambda _: None))
    committer = PartitionCommitter(log, reports, tables, LoopLimits(LIMITS, 0.0), Metrics())  # type: ignore[arg-type]
    committer.run(threading.Event(), log.end_offset())
    kinds = [type(outcome.result) for outcome in reports.outcomes]
    assert (kinds.count(Committed), kinds.count(Invalid)) == (3, FLOOD)
    assert reports.kept_metadata[-1].low_watermark == last + 1
    offsets = sorted(outcome.position.offset for outcome in reports.outcomes)
    assert offsets == list(range(first.position, last + 1))


def test_the_entries_of_one_name_keep_their_order_among_strangers(tmp_path: Path) -> None:
    """A table that begins behind a flood: what comes for it later waits behind what came before."""
    uri = canonical(tmp_path / "one")
    flood = [at(canonical(tmp_path / f"no-{number}"), append()) for number in range(200)]
    tail = [at(canonical(tmp_path / f"no-{number}"), append()) for number in range(200, 300)]
    log = messages(
        [*flood, at(uri, creation())],
        [at(uri, append("a")), *tail, at(uri, append("b"))],
        [at(uri, append("a")), at(uri, append("c"))],
    )
    reports = Stamped()
    committer_of(log, reports, Trouble("", [])).run(threading.Event(), log.end_offset())
    mine = [outcome for outcome in reports.outcomes if outcome.table == uri]
    assert [outcome.position.offset for outcome in mine] == [200, 201, 302, 303, 304]
    kinds = [type(outcome.result) for outcome in mine]
    assert kinds == [Committed, Committed, Committed, Duplicate, Committed]
    assert len(reports.outcomes) == 305


def test_a_large_message_for_a_table_that_is_not_open_comes_before_later_ones_for_it(tmp_path: Path) -> None:
    """A committer starts, and the first of the entries that wait for a table is large."""
    uri = canonical(tmp_path / "one")
    folded(messages([at(uri, creation())]))
    large, small = append("large", fragments=4_000, app="a", batch=1), append("small", app="a", batch=2)
    log = messages([at(uri, creation()), at(uri, large), at(uri, small)])
    assert len(log.polls[0][1].value) > LARGE_BYTES
    # The committer before this one has answered the first.
    del log.polls[0][0]
    log.position = 1
    outcomes, _ = folded(log)
    assert [type(outcome.result) for outcome in outcomes] == [Committed, Committed]


def test_a_queue_whose_entries_wait_long_gives_them_up_except_its_next_group() -> None:
    load = Load()
    line = TableQueue(parse_location("memory://line/t"), "memory://line/t", "", load=load)
    for number, entry in enumerate(entries([append(f"u{number}") for number in range(250)], 0)):
        message = Message(number, b"", b"")
        line.take(Waiting(message, entry), now=float(number))  # type: ignore[arg-type]
    assert line.in_memory.delay(100.0) == 100.0
    assert (load.entries, load.size, load.offsets) == (250, line.in_memory.size, 0)
    line.spill(LIMITS)
    assert (len(line.in_memory), len(line.backlog), line.first_offset) == (100, 150, 0)
    assert (load.entries, load.size, load.offsets) == (100, line.in_memory.size, 150)
    while line.in_memory:
        line.take_head()
    assert line.in_memory.delay(200.0) == 0.0
    assert (load.entries, load.size, line.first_offset) == (0, 0, 100)


def test_turns_go_to_those_who_asked_first() -> None:
    slots, begun = Slots(2), list[str]()

    def begin(name: str, *, able: bool = True) -> bool:
        begun.append(name)
        return able

    for name in ("a", "b", "c", "d", "c"):
        slots.ask(name, partial(begin, name, able=name != "c"))
    assert begun == ["a", "b"]
    slots.release()
    # Who can't begin any more takes no turn.
    assert begun == ["a", "b", "c", "d"]
    slots.ask("e", partial(begin, "e"))
    slots.release()
    assert begun[-1] == "e"


def test_strangers_are_known_by_their_names_until_they_are_gone() -> None:
    strangers = UnopenedTables()
    some = [parse_location(f"s3://lake/{number}") for number in range(3)]
    assert not strangers.holds(some[0])
    for offset, location in enumerate([some[0], some[1], None, some[0]]):
        strangers.add(offset, location)
    assert [strangers.holds(location) for location in some] == [True, True, False]
    strangers.drop([some[0], some[1], None])
    assert [strangers.holds(location) for location in some] == [True, False, False]
    assert (len(strangers), strangers.first) == (1, 3)
    strangers.drop([some[0]])
    assert not strangers.holds(some[0])


def test_of_many_strangers_hardly_any_is_taken_for_another_name() -> None:
    """A table whose name is taken for one of them waits for its turn, behind thousands of names."""
    strangers, waiting, others = UnopenedTables(), 60_000, 2_000
    locations = [parse_location(f"file:///lake/{number}") for number in range(waiting + others)]
    for offset, location in enumerate(locations[:waiting]):
        strangers.add(offset, location)
    assert all(map(strangers.holds, locations[:waiting]))
    # With one hash it would be a hundred of them.
    assert sum(map(strangers.holds, locations[waiting:])) < 20
    strangers.drop(locations[:waiting])
    assert not any(map(strangers.holds, locations))


@pytest.mark.parametrize("branch", ["", "b"])
def test_an_address_is_read_without_the_proposal(branch: str) -> None:
    envelope = at("s3://lake/t", append("u"))
    envelope.branch = branch
    assert address_of(encode(envelope)) == ("s3://lake/t", branch)
    assert address_of(b"\xff\xff") is None
    assert address_of(b"\x0a\x01\xff") is None
