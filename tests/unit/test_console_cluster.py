"""What the console's page gets of the committers: which of them it asked, and who shares the partitions."""

from __future__ import annotations

from lakefold.web.cluster import lag_at, plain_members, waiting_at
from lakefold_log.client.requests import GroupMember


def test_members_have_their_names_hosts_and_partitions_of_the_log() -> None:
    members = [
        GroupMember("pod-1", "/10.0.0.8", ()),
        GroupMember("pod-0", "/10.0.0.7", (("log", 0), ("other", 4), ("log", 2))),
        GroupMember("", "/10.0.0.9", (("log", 1),)),
    ]
    assert plain_members(members, "log") == [
        {"name": "", "host": "10.0.0.9", "partitions": [1]},
        {"name": "pod-0", "host": "10.0.0.7", "partitions": [0, 2]},
        {"name": "pod-1", "host": "10.0.0.8", "partitions": []},
    ]


def test_a_table_has_the_lag_of_its_partition_if_that_is_known() -> None:
    partitions = [{"partition": 0, "lag": 3}, {"partition": 1, "lag": 0}]
    here = {"topic": "log", "partition": 0}
    assert lag_at(here, "log", partitions) == 3
    assert lag_at(here | {"partition": 1}, "log", partitions) == 0
    assert lag_at(here | {"partition": 2}, "log", partitions) is None
    assert lag_at(here, "another log", partitions) is None
    assert lag_at(None, "log", partitions) is None


def test_the_entries_of_a_table_are_known_if_the_asked_committer_folds_its_partition() -> None:
    rows = [{"table": "a", "branch": name, "entries": 2} for name in ("", "b")]
    seen = {"partitions": [0], "parked": [], "waiting": rows, "tables_waiting": 2}
    here = {"topic": "log", "partition": 0}
    assert waiting_at("a", here, "log", seen) == 4
    assert waiting_at("other", here, "log", seen) == 0
    # Not all tables are named, so those of others are not known.
    assert waiting_at("other", here, "log", seen | {"tables_waiting": 3}) is None
    assert waiting_at("a", here | {"partition": 1}, "log", seen) is None
    assert waiting_at("a", here, "another log", seen) is None
    assert waiting_at("a", here, "log", None) is None
    assert waiting_at("a", None, "log", seen) is None
    # A release before this one names neither.
    assert waiting_at("a", here, "log", {"parked": []}) is None
