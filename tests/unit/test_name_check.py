"""Names that are not tables are found out and refused together, and answered as if each had been opened.

Promise: fair-shares (docs/operations/promises.md).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop import partition
from lakefold_committer.loop.admission import LOOKED_AT, NAMES_AT_ONCE
from lakefold_committer.loop.name_check import MOST_LISTED, NameCheck
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.loop.unopened_tables import NO_NAME, UnopenedTables, bucket_of
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.recovery.recovery_context import LastCommit
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import RetryError
from lakefold_table.position import Position
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, parse_location
from tests.folding import FORMATS, LOG, append, changed, creation, entry, reserve
from tests.memory_storage import MemoryStorage
from tests.unit.test_parking import Stamped
from tests.unit.test_partition import at, messages, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_table.entry import Outcome
    from lakefold_table.storage.base import Storage
    from tests.unit.test_partition import Log

FLOOD = 3_000
BUCKET = "memory://name-check"
LIMITS = Limits(100, 1 << 20)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield
    MemoryStorage.forget("name-check")


@dataclass
class Opening:
    """Opens tables, and keeps their names."""

    names: list[str] = field(default_factory=list)

    def open(self, uri: str, branch: str) -> TableWriter:
        self.names.append(uri)
        return opened(uri, branch)


@dataclass
class Asking(Opening):
    """Asks what was reported when a table is opened."""

    ask: Callable[[str], object] = str

    def open(self, uri: str, branch: str) -> TableWriter:
        self.ask(uri)
        return super().open(uri, branch)


@dataclass
class Witness:
    """Says that a proposal was committed into the table at `uri`."""

    uri: str
    error: RetryError | None = None

    def last_committed(self, uri: str) -> LastCommit | None:
        if self.error is not None:
            raise self.error
        return LastCommit(3, Position(LOG, 0), "id") if uri == self.uri else None


def name_check_of(**parts: object) -> NameCheck:
    return NameCheck(FORMATS, lambda _: None, **parts)  # type: ignore[arg-type]


def committed_by(
    log: Log,
    name_check: NameCheck | None,
    opening: Opening,
    reports: Stamped | None = None,
    limits: Limits = LIMITS,
) -> Stamped:
    """The outcomes of all messages, in the order in which they were reported."""
    reports = reports or Stamped()
    tables = Tables(FORMATS, lambda _: None, opening.open, name_check=name_check)
    committer = PartitionCommitter(log, reports, tables, LoopLimits(limits, 0.0), Metrics())  # type: ignore[arg-type]
    committer.run(threading.Event(), log.end_offset())
    return reports


def missing_tables(folder: str, count: int, first: int = 0) -> list[Envelope]:
    """Proposals for as many tables that aren't there."""
    return [at(f"{folder}/nobody-{number}", append(f"u{number}")) for number in range(first, first + count)]


@pytest.mark.parametrize("store", ["disk", "bucket"])
def test_names_that_are_no_tables_are_not_opened(tmp_path: Path, store: str) -> None:
    folder = canonical(tmp_path) if store == "disk" else BUCKET
    opening = Opening()
    reports = committed_by(messages(missing_tables(folder, FLOOD)), name_check_of(), opening)
    assert len(reports.outcomes) == FLOOD
    assert {type(outcome.result) for outcome in reports.outcomes} == {Invalid}
    assert len(opening.names) <= 2 * NAMES_AT_ONCE
    assert reports.kept_metadata[-1].low_watermark == FLOOD


def test_a_table_in_a_bucket_that_is_not_open_does_not_wait_behind_names_without_a_table() -> None:
    """It was found by listing the folder, so what waits for it goes before names that came earlier."""
    begun = committed_by(messages([at(f"{BUCKET}/lake/honest", creation())]), None, Opening())
    assert isinstance(begun.outcomes[0].result, Committed)
    log = messages([*missing_tables(f"{BUCKET}/lake", FLOOD), at(f"{BUCKET}/lake/honest", append("a"))])
    reports = committed_by(log, name_check_of(), Opening())
    order = [outcome.table for outcome in reports.outcomes]
    assert len(order) == FLOOD + 1
    assert order.index(f"{BUCKET}/lake/honest") < FLOOD / 2


def kinds(folder: str, name: int) -> list[Envelope]:
    """Proposals of many kinds, right and wrong proposals, all for a name."""
    uri = f"{folder}/mixed-{name}"
    clone = changed(append("clone"), lambda envelope: envelope.lance.clone.SetInParent())
    claimed = changed(Envelope(table=uri), lambda envelope: setattr(envelope.claim, "size", 10))
    several: list[list[Envelope]] = [
        [append("a"), append("b")],
        [append("a"), creation(), append("b")],
        [reserve(3)],
        [clone],
        [claimed],
        [Envelope()],
        [changed(append("a"), lambda envelope: setattr(envelope, "branch", "b"))],
        [changed(append("a"), lambda envelope: setattr(envelope, "branch", "../b"))],
        [changed(append("a"), lambda envelope: envelope.lance.restore.SetInParent())],
        [changed(append("a", app="app", batch=3), lambda envelope: envelope.lance.delete.SetInParent())],
        [changed(append("a"), lambda envelope: setattr(envelope.lance, "uuid", "x" * 5_000))],
        [append("c")],
    ]
    return [at(uri, envelope) for envelope in several[name % len(several)]]


def test_a_refusal_is_reported_before_a_table_begins_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a version's record doesn't know of can't be answered again by a successor."""
    monkeypatch.setattr(partition, "GATHER_SECONDS", 60.0)
    folder, reports = f"{BUCKET}/lake", Stamped()
    late = f"{folder}/late"
    flood = [
        *missing_tables(folder, LOOKED_AT),
        at(late, append("a")),
        *missing_tables(folder, LOOKED_AT, LOOKED_AT),
    ]
    log = messages([*flood, at(late, creation()), *missing_tables(folder, FLOOD, 2 * LOOKED_AT)])
    reported: list[bool] = []

    def ask(uri: str) -> None:
        if uri == late:
            reported.append(any(outcome.table == late for outcome in reports.outcomes))

    committed_by(log, name_check_of(), Asking(ask=ask), reports)
    assert reported == [True]
    mine = [type(outcome.result) for outcome in reports.outcomes if outcome.table == late]
    assert mine == [Invalid, Committed]


@pytest.mark.parametrize("store", ["disk", "bucket"])
def test_the_answers_are_those_that_opening_each_name_gives(tmp_path: Path, store: str) -> None:
    def answers(name_check: NameCheck | None, folder: str) -> list[Outcome]:
        mixed = [envelope for name in range(48) for envelope in kinds(folder, name)]
        again = [envelope for name in range(48) for envelope in kinds(folder, name)]
        log = messages([*missing_tables(folder, 200), *mixed, *missing_tables(folder, 600, 200), *again])
        # How many entries would share a version depends on when a table is opened.
        reports = committed_by(log, name_check, Opening(), limits=Limits(1, 1 << 20))
        return sorted(reports.outcomes, key=lambda outcome: outcome.position.offset)

    first_uri = canonical(tmp_path / "one") if store == "disk" else f"{BUCKET}/one"
    second_uri = canonical(tmp_path / "two") if store == "disk" else f"{BUCKET}/two"
    checked, opened_each = answers(name_check_of(), first_uri), answers(None, second_uri)
    first, second = (
        [str(outcome).replace(uri, "") for outcome in outcomes]
        for uri, outcomes in ((first_uri, checked), (second_uri, opened_each))
    )
    assert first == second
    assert {type(outcome.result) for outcome in checked} >= {Committed, Invalid}


def refused(name_check: NameCheck, *envelopes: Envelope) -> set[int]:
    """Returns the offsets of the entries that are refused by their names."""
    return {*name_check.check([entry(envelope, offset) for offset, envelope in enumerate(envelopes)]).refused}


def test_a_name_of_which_a_proposal_was_committed_is_opened() -> None:
    some = missing_tables(BUCKET, 6)
    assert refused(name_check_of(), *some) == {0, 1, 2, 3, 4, 5}
    assert refused(name_check_of(outcome_index=Witness(some[2].table)), *some) == {0, 1, 3, 4, 5}
    assert refused(name_check_of(outcome_index=Witness("", RetryError("away"))), *some) == set()


def test_nothing_is_refused_if_the_folder_cannot_be_listed() -> None:
    def away(uri: str) -> Storage:
        raise RetryError("away", where=uri)

    class Large(MemoryStorage):
        def folders(self, prefix: str) -> Sequence[str]:
            return [*super().folders(prefix), *map(str, range(MOST_LISTED + 1))]

    stores: list[Callable[[str], Storage]] = [away, Large]
    for store in stores:
        assert refused(name_check_of(store=store), *missing_tables(BUCKET, 6)) == set()


def test_a_name_that_cannot_be_checked_is_opened(tmp_path: Path) -> None:
    folder = canonical(tmp_path)
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to("nowhere")
    names = [f"{folder}/nothing", f"{folder}/link", f"{folder}/file/below", f"{folder}/{'x' * 300}"]
    assert refused(name_check_of(), *(at(name, append()) for name in names)) == {0}


def test_all_entries_of_a_name_are_opened_if_one_of_them_may_begin_the_table() -> None:
    spelled = [f"{BUCKET}/k=v", f"{BUCKET}/k%3Dv"]
    begins = [at(spelled[0], append("a")), at(spelled[1], creation())]
    assert refused(name_check_of(), *begins, *missing_tables(BUCKET, 6)) == set(range(2, 8))
    only = [at(spelled[0], append("a")), at(spelled[1], append("b"))]
    assert refused(name_check_of(), *only, *missing_tables(BUCKET, 6)) == set(range(8))


def test_a_table_outside_the_roots_is_left_to_who_says_so() -> None:
    name_check = NameCheck(FORMATS, lambda uri: Invalid("outside", "") if uri.endswith("-0") else None)
    assert refused(name_check, *missing_tables(BUCKET, 6)) == {1, 2, 3, 4, 5}


def test_what_a_listing_found_seems_to_be_there() -> None:
    name_check = name_check_of()
    open_storage(f"{BUCKET}/lake/table").put("data/x", [b"x"])
    assert not name_check.may_exist(parse_location(f"{BUCKET}/lake/table"))
    checked = name_check.check(
        [entry(envelope, offset) for offset, envelope in enumerate(missing_tables(f"{BUCKET}/lake", 6))]
    )
    assert checked.existing == {bucket_of(parse_location(f"{BUCKET}/lake/table"))}
    assert name_check.may_exist(parse_location(f"{BUCKET}/lake/table"))
    assert not name_check.may_exist(parse_location(f"{BUCKET}/lake/nobody-0"))


def test_strangers_that_are_put_first_keep_their_order_and_count_as_before() -> None:
    strangers = UnopenedTables()
    names = [parse_location(f"{BUCKET}/{number}") for number in range(4)]
    for offset, name in enumerate([0, 1, 2, 1, 3, 1]):
        strangers.add(offset, names[name])
    strangers.add(6, None)
    strangers.put_first({bucket_of(names[1]), bucket_of(parse_location(f"{BUCKET}/other")), NO_NAME})
    assert [*strangers.leading(10)] == [1, 3, 5]
    strangers.put_first({bucket_of(names[0])})
    assert ([*strangers.leading(10)], strangers.first, len(strangers)) == ([0, 1, 3, 5], 0, 7)
    strangers.drop([names[0], names[1], names[1]], except_offsets={1, 3})
    assert ([*strangers.leading(10)], strangers.first) == ([1, 3, 5], 1)
    assert [strangers.holds(name) for name in names] == [False, True, True, True]
    strangers.drop([names[1]] * 3)
    assert ([*strangers.leading(10)], strangers.first) == ([2, 4, 6], 2)
    strangers.drop([names[2], names[3]], except_offsets={4})
    assert [*strangers.leading(10)] == [4, 6]
    assert [strangers.holds(name) for name in names] == [False, False, False, True]
    strangers.put_first({bucket_of(names[3])})
    assert [*strangers.leading(10)] == [4]
    strangers.drop([names[3]])
    strangers.drop([None])
    assert (len(strangers), strangers.holds(names[3])) == (0, False)
