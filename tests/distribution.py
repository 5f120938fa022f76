"""Which tests run in the same process, and which of them begin first.

`make test` runs the integration tests in several processes, and the oracle tests among them: the ones wait,
the others compute. What is costly to start is started once in a process, and the
tests that run there share it: a broker, an S3 server, DynamoDB, a Spark session. So a group of tests is given
to one process: the tests of a file, since they may share a fixture, and the files of `TOGETHER`, so that only
two processes start Spark, three an S3 server, and one keeps the broker behind a relay until it ends. In one
process the tests with Spark would take as long as all others in four.

pytest-xdist 3.8 has groups of its own, which its processes write into the ids of the tests. With pytest 9.2
they have no effect, because an id can't be changed any more. So the tests are divided here by their files,
whose names are part of the ids.

The longest groups begin first, by `tests/durations.json`. If a long group began last, one process would work
and the others would wait.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

TOGETHER: Final = {
    "spark writing": (
        "test_authors_in_the_log",
        "test_docstrings",
        "test_executors",
        "test_query_before_broker",
        "test_sending_query",
        "test_sink",
        "test_small_batches",
        "test_spark_bad_records",
        "test_spark_changes",
        "test_spark_evolution",
        "test_spark_new_tables",
        "test_spark_repeats",
        "test_spark_seen",
        "test_spark_types",
        "test_spark_writes",
    ),
    "spark reading": (
        "test_external_end_to_end",
        "test_s3_end_to_end",
        "test_spark_compaction",
        "test_spark_session",
        "test_spark_source",
        "test_spark_streams",
    ),
    "relayed": (
        "test_clock_jumps",
        "test_cut_connections",
        "test_late_files",
        "test_passing_states",
        "test_questions",
    ),
    "dynamodb": (
        "test_blocks_with_needs",
        "test_bucket_drop",
        "test_external_faults",
        "test_external_manifests",
    ),
    "s3": (
        "test_bad_stores",
        "test_delta_tables",
        "test_google_storage",
        "test_roots",
        "test_s3_conditions",
        "test_s3_delta",
        "test_s3_faults",
        "test_s3_feed",
        "test_s3_freed_names",
        "test_s3_race",
        "test_s3_reading",
        "test_s3_storage",
        "test_s3_table",
        "test_s3_tags",
        "test_s3_tail",
    ),
}
"""Files that are one group. The name of a group begins with the fixture that they share."""

LAST: Final = 4
"""So many ranks after all other groups are for tests that compute, so that no core is idle at the end."""

_GROUPS: Final = {file: group for group, files in TOGETHER.items() for file in files}


def group_of(test_id: str) -> str:
    """Returns the name of the group of the test with this id.

    For an integration test that is the name of its file, or of the group that the file is in. For any other
    test it is the path of its file.
    """
    path = PurePath(test_id.partition("::")[0])
    if is_integration(path):
        return _GROUPS.get(path.stem, path.stem)
    return str(path)


def is_integration(path: PurePath) -> bool:
    """Returns whether the tests of a file, by its path below the repository, need a broker or Spark."""
    return path.parts[:2] == ("tests", "integration") or path.parts[:3] == ("tests", "faults", "broker")


def in_order(items: list[pytest.Item], seconds: Mapping[str, int]) -> None:
    """Sort tests: the longest groups first, those that compute spread among them, some of these last.

    `seconds`: how long the tests of each file take, by its path.
    """
    files = dict.fromkeys(item.nodeid.partition("::")[0] for item in items)
    lengths: dict[str, int] = defaultdict(int)
    for file in files:
        lengths[group_of(file)] += seconds.get(file, 0)
    longest = sorted(lengths, key=lambda group: -lengths[group])
    waiting = [group for group in longest if "/" not in group]
    computing = [group for group in longest if "/" in group]
    ranks: dict[str, float] = {group: rank for rank, group in enumerate(waiting)}
    ranks |= {group: at * (len(waiting) + LAST) / len(computing) for at, group in enumerate(computing)}
    items.sort(key=lambda item: ranks[group_of(item.nodeid)])


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist is used without its types
    """Gives each group of tests to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:  # noqa: ANN401 - xdist's own
    """Divide the tests by groups if `--dist loadgroup` asks for them."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None
