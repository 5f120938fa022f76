"""Which partitions a process folds: by its settings, its ordinal, its host's name."""

from __future__ import annotations

import pytest

from lakefold.cli import run
from lakefold.console.settings import read_settings
from lakefold.errors import SettingError
from lakefold.folding.committer import fixed, shares
from lakefold_committer.process.ordinals import PartitionShare


def test_lists_and_all_stay_what_they_are() -> None:
    assert fixed(read_settings({"partitions": "0,2-3"}), "host-1") == (0, 2, 3)
    for text, numbers in (("0,2", (0, 2)), ("all", None)):
        settings = read_settings({"partitions": text})
        assert fixed(settings, "host-1") == numbers
        assert not shares(settings)


@pytest.mark.parametrize("given", [{}, {"partitions": ""}, {"partitions": "shared"}], ids=str)
def test_what_is_shared_is_nobodys_beforehand(given: dict[str, str]) -> None:
    """So a second committer doesn't end the first one, unless it says that it wants all partitions."""
    settings = read_settings(given)
    assert shares(settings)
    assert fixed(settings, "host-1") is None
    assert settings.printable()["partitions"] == (given.get("partitions") or None)


@pytest.mark.parametrize(
    ("hostname", "ordinal"), [("lakefold-main-0", 0), ("lakefold-2", 2), ("a-1-lakefold-0002", 2)]
)
def test_the_ordinal_is_the_number_at_the_end_of_the_hosts_name(hostname: str, ordinal: int) -> None:
    assert fixed(read_settings({"partitions": "ordinal/3"}), hostname) == PartitionShare(ordinal, 3)


def test_an_ordinal_that_is_said_goes_before_the_hosts_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFOLD_ORDINAL", "1")
    assert fixed(read_settings({"partitions": "ordinal/3"}), "lakefold-2") == PartitionShare(1, 3)
    assert fixed(read_settings({"partitions": "ordinal/3", "ordinal": "0"}), "lakefold-2") == PartitionShare(
        0, 3
    )


@pytest.mark.parametrize("hostname", ["lakefold", "lakefold2", "lakefold-7d9-x4z1k", "3"])
def test_a_host_without_an_ordinal_gets_an_error_with_what_to_set(hostname: str) -> None:
    with pytest.raises(SettingError, match=f"host's name {hostname} ends in no number.*LAKEFOLD_ORDINAL"):
        fixed(read_settings({"partitions": "ordinal/3"}), hostname)


def test_an_ordinal_beyond_the_number_of_processes_is_refused() -> None:
    with pytest.raises(
        SettingError, match="ordinal 3 is too high for partitions ordinal/3: the highest is 2"
    ):
        fixed(read_settings({"partitions": "ordinal/3"}), "lakefold-3")


@pytest.mark.parametrize("text", ["ordinal/0", "ordinal", "ordinal/x", "share", "0,shared"])
def test_what_is_neither_is_named(text: str) -> None:
    with pytest.raises(SettingError, match=r"not a partition, a range .*ordinal/N, all or shared"):
        read_settings({"partitions": text})


@pytest.mark.parametrize("partitions", range(12))
@pytest.mark.parametrize("replicas", range(1, 6))
def test_each_partition_is_the_turn_of_one(partitions: int, replicas: int) -> None:
    parts = [PartitionShare(ordinal, replicas).of(partitions) for ordinal in range(replicas)]
    assert sorted(number for part in parts for number in part) == list(range(partitions))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (["--partitions", "shared", "--until-caught-up"], "can't be used with --partitions shared"),
        (["--partitions", "ordinal/2", "--ordinal", "2"], "ordinal 2 is too high"),
        (["--partitions", "shared", "--kafka", "group.protocol=consumer"], "group.protocol is fixed"),
    ],
)
def test_a_committer_that_can_not_be_placed_says_so_and_begins_nothing(
    text: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    no_broker = ["--bootstrap-servers", "127.0.0.1:1", "--http-port", "0"]
    assert run(["committer", *no_broker, *text]) == 2
    assert complaint in capfd.readouterr().err
