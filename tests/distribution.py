"""Which integration tests run in the same process, and which of them begin first.

`make test-integration` runs several processes. What is costly to start is started once in a process, and the
tests that run there share it: a broker, an S3 server, DynamoDB, a Spark session. pytest-xdist gives a whole
group of tests to one process (`--dist loadgroup`). The tests of a file are a group, since they may share a
fixture. The tests of any file that need Spark are one group, so that only one process starts Spark.

The longest groups begin first. If a long group began last, one process would work and the others would wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

COSTLY: Final = ("spark", "dynamodb")
"""The fixtures whose tests are a group, whichever files they are in. The first that a test needs decides."""

LONGEST: Final = (
    "spark",
    "test_demo",
    "test_cut_connections",
    "dynamodb",
    "test_sharing",
    "test_exactly_once",
    "test_image",
    "test_readme",
    "test_moving_verbs",
    "test_least_rights",
    "test_batches",
    "test_local_broker",
    "test_sink",
    "test_spark_streams",
    "test_s3_race",
    "test_s3_faults",
    "test_bad_stores",
    "test_outcomes_cut_short",
)
"""The groups that take longest, the longest first."""


def group_of(item: pytest.Item) -> str:
    """Returns the name of a test's group: the costly fixture that the test needs, else its file."""
    needed = getattr(item, "fixturenames", ())
    return next((name for name in COSTLY if name in needed), item.path.stem)


def distribute(items: list[pytest.Item], integration: Iterable[pytest.Item]) -> None:
    """Mark each test of `integration` with its group, and move the longest groups to the front of `items`."""
    ranks = {group: rank for rank, group in enumerate(LONGEST)}
    order = dict.fromkeys(items, len(ranks))
    for item in integration:
        group = group_of(item)
        item.add_marker(pytest.mark.xdist_group(group))
        order[item] = ranks.get(group, len(ranks))
    items.sort(key=order.__getitem__)
