"""What the console's page gets of the committers: which of them it asked, and who shares the partitions."""

from __future__ import annotations

from lakefold.web.cluster import lag_at, plain_members
from lakefold_log.client.questions import GroupMember


def test_members_have_their_names_hosts_and_partitions_of_the_log() -> None:
    members = [
        GroupMember("b-uuid", "pod-1", "/10.0.0.8", ()),
        GroupMember("a-uuid", "pod-0", "/10.0.0.7", (("log", 0), ("other", 4), ("log", 2))),
        GroupMember("c-uuid", "", "/10.0.0.9", (("log", 1),)),
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
