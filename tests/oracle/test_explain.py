"""`explain` shows from the table alone what became of a proposal: by position, by key, by uuid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pytest

from lakefold import cli
from lakefold_reader.versions.proposals import ProposalName, sought_of
from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from lakefold_table.uri import local_path
from tests.proposals import append, creation, rows
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope


@pytest.fixture(autouse=True)
def _no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is named and none was started in the folder."""
    monkeypatch.delenv("LAKEFOLD_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    """Version 1: the creation at 0. Version 2: two batches at 1 and 2. Version 3: no key, at 3."""
    made = Folded(open_storage(tmp_path / "t"))
    made.append(rows(range(5)), rows(range(5, 12)), app_id="app")
    made.append(rows([20]))
    return made


def explained(
    capsys: pytest.CaptureFixture[str], table: Folded, what: str, *more: str, code: int = 0
) -> dict[str, Any]:
    assert cli.run(["explain", table.uri, what, *more, "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def text(capsys: pytest.CaptureFixture[str], table: Folded, what: str) -> str:
    assert cli.run(["explain", table.uri, what]) == 0
    return capsys.readouterr().out


def folded_with_refusal(table: Folded, *envelopes: Envelope) -> None:
    """Folds these as a group, whatever their answers are."""
    table.owned.fold([table.entry(envelope) for envelope in envelopes])


def test_by_position(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    explanation = explained(capsys, table, "2")
    assert (explanation["state"], explanation["committed_in"]) == ("committed", 2)
    assert explanation["outcome"]["committed"]["rows_added"] == "7"
    assert explanation["position"]["offset"] == 2
    assert explanation["told_by"] == "the record in version 2"
    assert (explanation["version"]["first_offset"], explanation["version"]["last_offset"]) == (1, 2)
    assert (explanation["version"]["base_version"], explanation["version"]["operations"]) == (
        1,
        {"append": 2},
    )
    words = text(capsys, table, "2")
    assert "committed in version 2: 7 rows added" in words
    assert "lakefold.transactions/0@2" in words
    assert "not searched" in words


def test_by_key(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    explanation = explained(capsys, table, "app:2")
    assert (explanation["state"], explanation["committed_in"], explanation["version"]["entries"]) == (
        "committed",
        2,
        2,
    )
    assert explanation["told_by"] == "the marks in version 3"
    assert "committed in version 2" in text(capsys, table, "app:2")


def test_by_uuid(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    envelope = append(table.uri, rows([30]), 3)
    table.fold(envelope)
    explanation = explained(capsys, table, envelope.lance.uuid)
    assert (explanation["state"], explanation["committed_in"]) == ("committed", 4)
    assert explanation["position"]["offset"] == 4
    assert explanation["outcome"]["committed"]["rows_added"] == "1"


def test_a_refusal_is_shown_with_what_it_conflicts_with(
    table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    again = creation(table.uri)
    again.app_id, again.batch_id = "maker", 7
    folded_with_refusal(table, again, append(table.uri, rows([40]), 3, "app", 9))
    for what in ("4", "maker:7", again.lance.uuid):
        explanation = explained(capsys, table, what)
        assert (explanation["state"], explanation["committed_in"]) == ("rejected", None)
        assert explanation["outcome"]["rejected"]["retryable"]
        assert explanation["told_by"] == "the record in version 4"
        assert explanation["advice"] == "build it again on the newest version and send it under the same key"
    words = text(capsys, table, "maker:7")
    assert "rejected, may be built again" in words
    assert "what to do" in words


def test_a_proposal_that_was_sent_again_is_shown_with_its_new_position(
    table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    folded_with_refusal(
        table, append(table.uri, rows([1]), 1, "app", 2), append(table.uri, rows([2]), 3, "app", 5)
    )
    explanation = explained(capsys, table, "4")
    assert (explanation["state"], explanation["committed_in"]) == ("duplicate", 2)
    assert explained(capsys, table, "app:2")["committed_in"] == 2


def test_the_marks_are_used_if_the_version_is_gone(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    path = table.versions.path(2)
    (open_storage(table.uri)).delete(path)
    explanation = explained(capsys, table, "app:1")
    assert (explanation["state"], explanation["committed_in"], explanation["version"]) == (
        "committed",
        2,
        None,
    )
    explained(capsys, table, "1", code=2)


def test_foreign_versions_in_between_hide_nothing(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    lance.dataset(local_path(table.uri)).delete("id = 3")
    assert explained(capsys, table, "1")["committed_in"] == 2


def test_marks_rolled_back_by_a_foreign_client_do_not_count(
    table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    lance.dataset(local_path(table.uri), version=1).restore()
    explanation = explained(capsys, table, "app:2")
    assert (explanation["state"], explanation["committed_in"]) == ("committed", 2)
    assert explanation["told_by"] == "the marks in version 3"


def test_a_branch_knows_nothing_of_proposals_for_the_main_branch(
    table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    lance.dataset(local_path(table.uri)).create_branch("side")
    error = explained(capsys, table, "app:2", "--branch", "side", code=2)["error"]
    assert error["where"] == table.uri
    assert "the marks" not in error["hint"]
    assert explained(capsys, table, "app:2", "--branch", "main")["committed_in"] == 2
    explained(capsys, table, "app:2", "--branch", "none", code=2)


@pytest.mark.parametrize(
    "what", ["99", "app:77", "nobody:1", "nobody:x", "0f3c2a77-5a0e-4f7e-9f42-6d1c0a3f2b11"]
)
def test_an_unknown_proposal_names_what_was_searched(
    table: Folded, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    error = explained(capsys, table, what, code=2)["error"]
    assert what in error["message"]
    assert "the marks in version 3" in error["hint"]
    assert "no brokers are set" in error["hint"]
    assert ("read as the uuid of a transaction" in error["hint"]) is bool(sought_of(what).uuid)


def test_a_broker_that_does_not_answer_is_said(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = ("--bootstrap-servers", "127.0.0.1:1", "--timeout", "0.2")
    explanation = explained(capsys, table, "2", *nowhere)
    assert explanation["state"] == "committed"
    assert explanation["not_looked_at"]
    assert explained(capsys, table, "app:77", *nowhere, code=5)["error"]["exit_code"] == 5


def test_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", str(tmp_path / "none"), "1"]) == 2
    assert "no table here yet" in capsys.readouterr().err


def test_how_a_proposal_is_named() -> None:
    assert sought_of("12") == ProposalName("12", offset=12)
    assert sought_of("a:b:12") == ProposalName("a:b:12", app_id="a:b", batch_id=12)
    assert sought_of("0f3c") == ProposalName("0f3c", uuid="0f3c")
    for wrong in ("", " ", "a:99999999999999999999"):
        with pytest.raises(InvalidError):
            sought_of(wrong)
