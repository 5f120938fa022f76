"""Which dead letters are sent again, and when a refusal is the same as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.errors import SettingError
from lakefold.proposals.resend import SentAgain, checked, pick
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.read.dead_letters import DeadLetter
from lakefold_maintenance.files.removal_note import RemovalNote, write_note
from lakefold_maintenance.lance.names import files_of
from lakefold_table.entry import Committed, Conflict, Entry, Invalid, Outcome, Rejected, Result, Undecodable
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import LogId, Position
from lakefold_table.storage.local import LocalStorage
from tests.folding import URI, append

if TYPE_CHECKING:
    from pathlib import Path

LETTERS = LogId("cluster", "letters", 0)


def letter(
    offset: int, *, partition: int = 0, app: str = "", batch: int | None = None, name: str = "u"
) -> DeadLetter:
    """The dead letter of a proposal that was at `offset`."""
    envelope = append(name, app=app, batch=batch)
    position = Position(LogId("cluster", "topic", partition), offset, "transactions")
    entry = Entry(position, 0, envelope, envelope.ByteSize(), BUILT_IN.proposal(envelope))
    return DeadLetter(Position(LETTERS, offset), 0, position, "because", "", entry, 0, ())


def undecodable(offset: int) -> DeadLetter:
    position = Position(LogId("cluster", "topic", 0), offset, "transactions")
    return DeadLetter(
        Position(LETTERS, offset), 0, position, "no", "", Undecodable(position, 0, URI, "no", "", 3), 0, ()
    )


def test_the_newest_of_several_dead_letters_of_one_proposal_is_sent() -> None:
    first, other, again = (
        letter(1, app="a", batch=1),
        letter(2, app="a", batch=2),
        letter(3, app="a", batch=1, name="v"),
    )
    assert pick([first, other, again], ()) == [other, again]
    assert pick([letter(1), letter(2)], ()) == [letter(2)]
    assert len(pick([undecodable(1), undecodable(2)], ())) == 2


def test_chosen_by_position() -> None:
    dead_letters = [
        letter(1, app="a", batch=1),
        letter(2, app="a", batch=2),
        letter(2, partition=1, name="w"),
    ]
    assert pick(dead_letters, ("1",)) == dead_letters[:1]
    assert pick(dead_letters, ("1/2",)) == dead_letters[2:]
    assert pick(dead_letters, ("0/2", "1")) == dead_letters[:2]
    for wrong in ("2", "9", "x", "x/2", "-1", ""):
        with pytest.raises(SettingError):
            pick(dead_letters, (wrong,))
    with pytest.raises(SettingError) as caught:
        pick([letter(1, app="a", batch=1), letter(1, app="a", batch=2)], ("0/1",))
    assert "--all" in caught.value.hint


def test_what_can_not_be_sent_says_why() -> None:
    assert letter(1).obstacle == ""
    assert undecodable(1).obstacle == "it is not a proposal"
    assert letter(1, name="").obstacle.startswith("it has no key")
    whole = letter(1)
    left = DeadLetter(whole.stored_at, 0, whole.position, "", "", undecodable(1).proposal, 5_000, ())
    assert left.obstacle.startswith("its 5,000 bytes")


def test_a_claim_is_known_by_its_key_or_its_hash() -> None:
    claims = [letter(offset, name="") for offset in range(3)]
    for first, digest in zip(claims, (b"a" * 32, b"b" * 32, b"a" * 32), strict=True):
        assert isinstance(first.proposal, Entry)
        first.proposal.envelope.claim.sha256 = digest
        assert first.obstacle == ""
    assert pick(claims, ()) == claims[1:]


@pytest.mark.parametrize(
    ("result", "same"),
    [
        (Committed(3), None),
        (Invalid("because"), True),
        (Invalid("else"), False),
        (Rejected(Conflict(retryable=True, message="because")), True),
        (Rejected(Conflict(retryable=True, message="else")), False),
    ],
)
def test_the_same_cause(result: Result, same: bool | None) -> None:  # noqa: FBT001 - a parameter of the test
    single = letter(1)
    assert SentAgain(single, single.position, Outcome(single.position, URI, result)).same_cause is same
    assert SentAgain(single, single.position).same_cause is None


def test_what_maintenance_is_about_to_remove_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path / "t")
    monkeypatch.setattr("lakefold_log.read.repetitions.sent_since", lambda *_, **__: {})
    dead_letters = [letter(number, app="a", batch=number, name=f"f{number}") for number in (1, 2, 3)]
    envelopes = [each.proposal.envelope for each in dead_letters if isinstance(each.proposal, Entry)]
    for envelope in envelopes:
        envelope.table = storage.uri
    going, _, branch = envelopes
    branch.branch = "audit"
    listed = [*files_of(going), *files_of(branch)]

    def obstacles() -> list[str]:
        options: dict[str, str] = {}
        config = KafkaConfig("127.0.0.1:1")
        checked_letters = checked(
            dead_letters, config, Topics("t", "o", "d"), options, group="g", timeout_s=1
        )
        return [each.obstacle for each in checked_letters]

    assert obstacles() == ["", "", ""]
    write_note(storage, RemovalNote(dict.fromkeys(listed, 1.0)))
    assert obstacles() == ["", "", ""]
    write_note(storage, RemovalNote(removing=dict.fromkeys(listed, 1.0)))
    # Files of a branch are below its own root, where maintenance removes none.
    assert [bool(each) for each in obstacles()] == [True, False, False]
    assert "maintenance removes its files" in obstacles()[0]
