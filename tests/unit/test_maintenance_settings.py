"""A maintenance policy that makes no sense is refused where it is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.cli import run
from lakefold.proposals.envelopes import envelope_of
from lakefold_maintenance.planning.policy import PREFIX
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path

USAGE = 2
KEY = PREFIX + "target_rows"


@pytest.mark.parametrize(
    "verb", [["compact", "--dry-run"], ["compact"], ["maintain"], ["maintain", "--once"]]
)
def test_a_setting_is_refused_before_anything_is_read(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, "/nowhere/t", "--maintenance", "target_rows=0"]) == USAGE
    assert "maintenance.target_rows is '0'" in capsys.readouterr().err


def update(transaction: Transaction, value: str) -> None:
    transaction.update_config.config_updates.update_entries.add(key=KEY, value=value)


def old_update(transaction: Transaction, value: str) -> None:
    transaction.update_config.upsert_values[KEY] = value


def overwrite(transaction: Transaction, value: str) -> None:
    transaction.overwrite.config_upsert_values[KEY] = value


@pytest.mark.parametrize("set_key", [update, old_update, overwrite])
def test_a_proposal_is_refused_before_it_is_sent(set_key: object, tmp_path: Path) -> None:
    assert callable(set_key)
    for value in ("1000", "0"):
        transaction = Transaction(read_version=1, uuid="u")
        set_key(transaction, value)
        (tmp_path / value).write_bytes(transaction.SerializeToString())
    assert envelope_of("/t", tmp_path / "1000").lance.read_version == 1
    with pytest.raises(InvalidError, match="target_rows is '0'") as caught:
        envelope_of("/t", tmp_path / "0")
    assert caught.value.where == KEY


def test_a_key_that_is_removed_is_not_checked(tmp_path: Path) -> None:
    transaction = Transaction(read_version=1, uuid="u")
    transaction.update_config.config_updates.update_entries.add(key=KEY)
    (tmp_path / "t").write_bytes(transaction.SerializeToString())
    assert envelope_of("/t", tmp_path / "t").lance.uuid == "u"
