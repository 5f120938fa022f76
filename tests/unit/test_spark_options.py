"""The options of `format("lakefold")` are understood, or refused with a hint that names the right options."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lakefold_reader.spark.options import OPTIONS, Use, read_options
from lakefold_table.errors import InvalidError

PATH = {"path": "/lake/t"}


def test_values_are_read_by_their_option() -> None:
    given = read_options(
        PATH
        | {
            "startingversion": "7",
            "readchangefeed": "TRUE",
            "maxbytespertrigger": "64m",
            "columns": " a, b ,",
            "timestampasof": "2026-05-01",
        }
    )
    assert given.path == "/lake/t"
    assert given.value("startingVersion") == 7
    assert given.value("readChangeFeed")
    assert not given.value("ignoreDeletes")
    assert given.value("maxBytesPerTrigger") == 64 * 1024 * 1024
    assert given.value("columns") == ("a", "b")
    assert given.value("timestampAsOf") == 1_777_593_600_000_000
    assert given.value("maxRowsPerTrigger") is None


@pytest.mark.parametrize("option", OPTIONS, ids=lambda e: e.name)
def test_each_option_is_known_in_any_case(option: object) -> None:
    name = option.name  # type: ignore[attr-defined]
    with pytest.raises(InvalidError) as lower:
        read_options(PATH | {name.lower(): " "})
    assert lower.value.where == name


@pytest.mark.parametrize("prefix", ["storage.", "storageOptions.", "STORAGE."])
def test_options_of_the_store_are_handed_on(prefix: str) -> None:
    assert read_options(PATH | {f"{prefix}aws_region": "eu"}).storage == {"aws_region": "eu"}


def test_zero_is_said_too() -> None:
    given = read_options(PATH | {"versionAsOf": "0"})
    assert given.first("versionAsOf", "endingVersion") == 0
    assert given.first("endingVersion", "timestampAsOf") is None
    assert read_options(PATH | {"endingVersion": "7"}).first("versionAsOf", "endingVersion") == 7


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(read_options(PATH | {"storage.aws_secret_access_key": "hunter2"}))


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidError, match="maxFilesPerTrigger: there is no such option") as raised:
        read_options(PATH | {"maxFilesPerTrigger": "1"})
    assert "maxVersionsPerTrigger" in raised.value.hint
    assert "storage.*" in raised.value.hint
    with pytest.raises(InvalidError) as raised:
        read_options(PATH | {"max_rows_per_trigger": "1"})
    assert raised.value.hint.startswith("do you mean maxRowsPerTrigger?")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("versionAsOf", "-1"),
        ("versionAsOf", "1.5"),
        ("startingVersion", "newest"),
        ("readChangeFeed", "yes"),
        ("maxRowsPerTrigger", "0"),
        ("maxPartitionBytes", "0"),
        ("maxPartitionBytes", "many"),
        ("timestampAsOf", "yesterday"),
        ("columns", ","),
        ("branch", " "),
    ],
)
def test_a_wrong_value_is_refused_with_its_option(name: str, text: str) -> None:
    with pytest.raises(InvalidError) as raised:
        read_options(PATH | {name: text})
    assert raised.value.where == name
    assert raised.value.hint


@pytest.mark.parametrize(
    "both",
    [
        {"versionAsOf": "1", "timestampAsOf": "2026-01-01"},
        {"tag": "a", "branch": "b"},
        {"startingVersion": "1", "startingTimestamp": "2026-01-01"},
        {"endingVersion": "1", "endingTimestamp": "2026-01-01"},
        {"ignoreChanges": "true", "skipChangeCommits": "true"},
    ],
)
def test_options_that_say_the_same_are_refused_together(both: dict[str, str]) -> None:
    with pytest.raises(InvalidError) as raised:
        read_options(PATH | both)
    assert raised.value.where == " and ".join(both)


def test_a_flag_that_is_off_may_be_given_with_others() -> None:
    read_options(PATH | {"ignoreChanges": "false", "skipChangeCommits": "true"})


def test_a_range_may_not_be_turned_round() -> None:
    with pytest.raises(InvalidError, match="is after"):
        read_options(PATH | {"startingVersion": "8", "endingVersion": "7"})


def test_a_read_without_a_table_is_refused() -> None:
    with pytest.raises(InvalidError, match="no table is named"):
        read_options({"tag": "a"})


@pytest.mark.parametrize("use", list(Use))
def test_what_has_no_meaning_for_a_use_is_refused_with_what_has(use: Use) -> None:
    value = {"columns": "a", "readChangeFeed": "true", "failOnDataLoss": "false", "misfits": "null"}
    for option in OPTIONS:
        text = value.get(option.name, "1")
        if "imestamp" in option.name:
            text = "2026-01-01"
        if "ignore" in option.name or "skip" in option.name:
            text = "true"
        given = read_options(PATH | {option.name: text})
        if option.is_for(use):
            given.check(use)
        else:
            with pytest.raises(InvalidError, match=f"{option.name}: no option of {use}"):
                given.check(use)


def test_a_read_of_rows_that_names_changes_gets_a_hint_how_to_read_them() -> None:
    given = read_options({"path": "t", "startingVersion": "3", "endingVersion": "4"})
    with pytest.raises(InvalidError, match=r"add \.option\(\"readChangeFeed\", True\)"):
        given.check(Use.ROWS)
    given = read_options({"path": "t", "startingVersion": "3", "consumer": "x"})
    with pytest.raises(InvalidError) as raised:
        given.check(Use.ROWS)
    assert "readChangeFeed" not in raised.value.hint.partition("options of read")[0]


def test_the_names_are_unlike_without_their_case() -> None:
    names = sorted(option.name.lower() for option in OPTIONS)
    assert all(text != other for text, other in pairwise(names))
