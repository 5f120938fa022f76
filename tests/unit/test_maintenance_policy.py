"""The maintenance policy: what a table, the settings and Lance's own keys say, and what makes no sense."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lakefold_maintenance.planning.policy import (
    LANCE_KEYS,
    NAMES,
    PREFIX,
    MaintenancePolicy,
    QuietHours,
    policy_of,
)
from lakefold_table.errors import InvalidError


def test_a_table_that_says_nothing_has_the_defaults() -> None:
    assert policy_of({"other": "1", "lakefold.table": "x"}) == MaintenancePolicy()


def test_the_table_counts_before_the_settings() -> None:
    settings = {"target_rows": "10", "growth": "4"}
    policy = policy_of({PREFIX + "target_rows": "20"}, settings)
    assert (policy.target_rows, policy.growth) == (20, 4)


def test_lances_keys_count_unless_the_table_has_ours() -> None:
    config = {
        "lance.auto_cleanup.older_than": "2weeks 1day",
        "lance.auto_cleanup.retain_versions": "7",
        "lance.auto_cleanup.interval": "20",
    }
    policy = policy_of(config, {"version_age": "1h"})
    assert (policy.version_age, policy.min_versions) == (timedelta(days=15), 7)
    assert policy_of({**config, PREFIX + "version_age": "3h"}).version_age == timedelta(hours=3)


def test_lance_may_retain_none_but_the_newest() -> None:
    assert policy_of({"lance.auto_cleanup.retain_versions": "0"}).min_versions == 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("compaction", "false", False),
        ("target_bytes", "1000", 1000),
        ("deleted_share", "0.25", 0.25),
        ("unindexed_share", "0.5", 0.5),
        ("unindexed_share", "None", None),
        ("version_age", "36h", timedelta(hours=36)),
        ("version_age", "0s", timedelta(0)),
        ("conflict_files", "2h", timedelta(hours=2)),
        ("refused_files", "0s", timedelta(0)),
        ("unnamed_files", "1h", timedelta(hours=1)),
        ("quiet_hours", "22:30-06:00", QuietHours(22 * 60 + 30, 6 * 60)),
        ("quiet_load", "0.5", 0.5),
        ("bytes_per_second", "0", 0),
    ],
)
def test_each_key_is_read(name: str, text: str, value: object) -> None:
    assert getattr(policy_of({PREFIX + name: text}), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("target_rows", "0"),
        ("target_rows", "-5"),
        ("target_rows", "9" * 19),
        ("target_bytes", "1e9"),
        ("growth", "1"),
        ("deleted_share", "0"),
        ("unindexed_share", "0"),
        ("deleted_share", "1.5"),
        ("deleted_share", "nan"),
        ("version_age", "-1d"),
        ("conflict_files", "soon"),
        ("refused_files", "-1d"),
        ("unnamed_files", "59m"),
        ("version_age", "soon"),
        ("version_age", ""),
        ("version_age", "999999999999y"),
        ("min_versions", "0"),
        ("compaction", "yes please"),
        ("quiet_hours", "8-18"),
        ("quiet_hours", "08:00-08:00"),
        ("quiet_load", "0"),
        ("target", "5"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(name: str, text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        policy_of({PREFIX + name: text})
    assert caught.value.where == PREFIX + name
    assert PREFIX + name in caught.value.message
    with pytest.raises(InvalidError, match=f"maintenance.{name}"):
        policy_of({}, {name: text})


@pytest.mark.parametrize("key", LANCE_KEYS.values())
def test_lances_keys_are_checked_as_well(key: str) -> None:
    with pytest.raises(InvalidError) as caught:
        policy_of({key: "many"})
    assert caught.value.where == key


def test_a_refusal_says_what_the_key_is_for() -> None:
    with pytest.raises(InvalidError) as caught:
        policy_of({PREFIX + "growth": "one"})
    assert "the default is 8" in caught.value.hint
    with pytest.raises(InvalidError) as caught:
        policy_of({PREFIX + "grwth": "2"})
    assert all(name in caught.value.hint for name in NAMES)


def test_the_documentation_names_each_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "maintain.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []


def test_quiet_hours_may_pass_midnight() -> None:
    night = QuietHours(22 * 60, 6 * 60)
    assert night.contain(23 * 60)
    assert night.contain(0)
    assert not night.contain(6 * 60)
    assert not night.contain(12 * 60)
