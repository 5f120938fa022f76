"""Times of entries in a log that no calendar has: senders set them, and every verb shows the nearest one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lakefold.console.settings import Settings
from lakefold.proposals.explain import _show as show_explained
from lakefold.proposals.explain import explanation_document
from lakefold.proposals.explanation import Explanation
from lakefold.proposals.redrive import _list as list_letters
from lakefold.proposals.redrive import plain_letter
from lakefold.web import documents
from lakefold_reader.as_json import plain_move
from lakefold_reader.consumers.expire_versions import plan
from lakefold_reader.formats import source_on
from lakefold_reader.versions.proposals import sought_of
from lakefold_table.marks.marks import Rebinding, RebindReason
from tests.folding import append, entry
from tests.foreign import commit
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only
from tests.unit.test_redriving import letter

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import Manifest

LAST, FIRST = "9999-12-31T23:59:59", "0001-01-01T00:00:00"
TIMES = [
    (2**63 * 1000, LAST),
    (2**62, LAST),
    (253_402_300_800_000_000, LAST),
    (253_402_300_799_000_000, LAST),
    (1_790_000_000_123_456, "2026-09-21T14:13:20"),
    (0, "1970-01-01T00:00:00"),
    (-1000, "1969-12-31T23:59:59"),
    (-(2**62), FIRST),
]
each_time = pytest.mark.parametrize(("time_us", "shown"), TIMES)


def explained(time_us: int) -> Explanation:
    explanation = Explanation("memory://tests/t", sought_of("5"), "lance")
    explanation.proposal = replace(entry(append("f"), 5), time_us=time_us)
    return explanation


@each_time
def test_explain_shows_the_time(time_us: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    explanation = explained(time_us)
    document = explanation_document(explanation)
    assert document["proposal"]["time"].startswith(shown)
    show_explained(explanation)
    assert f"at {shown}" in capsys.readouterr().out


@each_time
def test_the_console_shows_the_time(monkeypatch: pytest.MonkeyPatch, time_us: int, shown: str) -> None:
    explanation = explained(time_us)
    monkeypatch.setattr(documents, "brokers_of", lambda *_: None)
    monkeypatch.setattr(documents, "on_branch", lambda *_: (explanation, None))
    document = documents.proposal_document("memory://tests/t", "5", "", Settings(bootstrap_servers="b:1"))
    assert document["logged_at"].startswith(shown)


@each_time
@pytest.mark.parametrize("as_json", [True, False])
def test_redrive_shows_the_time(
    time_us: int, shown: str, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    refused = replace(letter(1), time_us=time_us)
    list_letters(iter([refused]), as_json=as_json)
    printed = capsys.readouterr().out
    assert (json.loads(printed)["time"] if as_json else printed.replace(" ", "T")).find(shown) >= 0
    assert plain_letter(refused)["time"].startswith(shown)


@each_time
def test_a_move_shows_the_time(time_us: int, shown: str) -> None:
    move = Rebinding(RebindReason.ADOPTED, None, None, time_us)
    assert plain_move(move)["time"].startswith(shown)


@pytest.mark.parametrize("seconds", [253_402_300_799, 253_402_300_800, 2**41])
def test_a_version_with_such_a_time_stops_no_clean_up(seconds: int) -> None:
    def change(head: Manifest) -> None:
        head.timestamp.seconds = seconds

    storage = MemoryStorage(f"memory://times-shown-{seconds}/t")
    table = Folded(storage)
    late = commit(storage.uri, "update_config", change)
    table.take_over()
    table.fold(fragments_only(storage.uri, 1))
    now = datetime.now(UTC) + timedelta(days=365)
    planned = plan(source_on(storage), timedelta(days=1), keep=1, now=lambda: now)
    assert late not in planned.versions
    assert planned.versions
