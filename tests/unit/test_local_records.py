"""What `lakefold up` notes of its broker is whole or absent, whenever it is killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lakefold.local.broker import Broker
from lakefold.local.home import known_broker, remember
from lakefold.local.records import read_record, write_record
from tests.interrupting import Interrupted, interrupt_at

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = {"port": 1}, {"port": 2, "controller_port": 3}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_record_that_is_written_is_the_old_one_or_the_new_one_at_each_moment(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    points, seen = 0, []
    while True:
        points += 1
        write_record(path, OLD)
        try:
            interrupt_at(points, lambda: write_record(path, NEW), "lakefold/local/records")
        except Interrupted:
            seen.append(read_record(path))
        else:
            break
    assert read_record(path) == NEW
    assert all(each in (OLD, NEW) for each in seen)
    assert OLD in seen


def test_a_record_is_durable_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ports.json"
    write_record(path, OLD)

    def fail(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_record(path, NEW)
    assert read_record(path) == OLD


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"port": "x"}', "\x00\x00"])
def test_a_damaged_record_is_none(tmp_path: Path, text: str) -> None:
    broker = Broker(tmp_path / ".lakefold" / "broker")
    remember(broker, tmp_path)
    assert known_broker(tmp_path) is not None
    (tmp_path / ".lakefold" / "broker.json").write_text(text)
    assert known_broker(tmp_path) is None
    broker.directory.mkdir()
    (broker.directory / "ports.json").write_text(text)
    assert broker.bootstrap_servers == ""
