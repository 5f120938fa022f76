"""Operations of delta-spark, each of which is overtaken by each other one.

`races.json` has what `recording_races.py` has recorded: the tables, what was asked for, the commit that each
operation makes alone, what its transaction has read, and delta-spark's verdict on each pair, for each
isolation level: the class of the error with which the second ends if the first is committed before it, empty
if both are committed.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from lakefold_table.delta.table_features.clustering import DOMAIN
from tests.delta_logs.actions import VECTORS, metadata, protocol_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.delta_logs.actions import Members

RECORDED: Final = Path(__file__).parent / "races.json"
ISOLATION: Final = "delta.isolationLevel"
LEVELS: Final = ("Serializable", "WriteSerializable")


class Written(NamedTuple):
    """Rows of a query that are written to the table, with a mode and options (`delta_spark.writing`)."""

    query: str
    mode: str = "append"
    options: Mapping[str, str] = MappingProxyType({})


class RacedTable(NamedTuple):
    """How a table is made, and what is done to it, by rows that are written, or statements on `{}`.

    `begun`: the actions of its first commit; `made`: what makes each version after it.
    """

    begun: Sequence[Members]
    made: Sequence[Written | str]
    operations: Mapping[str, Written | str]


def _begun(
    columns: Mapping[str, str], *features: str, by: Sequence[str] = (), clustered: str = ""
) -> list[Members]:
    """The first commit of a table with these columns. `clustered`: the column by which it is clustered."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()
    ]
    created = metadata(json.dumps({"type": "struct", "fields": fields}), **VECTORS)
    created["metaData"]["partitionColumns"] = list(by)
    known = ("deletionVectors", "domainMetadata", "appendOnly", "invariants", "checkConstraints", *features)
    made = [protocol_with(*known), created]
    if clustered:
        configuration = json.dumps({"clusteringColumns": [[clustered]], "domainName": DOMAIN})
        made.append({"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": False}})
    return made


def _rows(*rows: str, names: str = "x, p") -> str:
    return f"SELECT * FROM VALUES {', '.join(rows)} AS v({names})"  # noqa: S608 - our own


TABLES: Final[Mapping[str, RacedTable]] = {
    "partitioned": RacedTable(
        _begun({"x": "long", "p": "string"}, "rowTracking", by=["p"]),
        (
            Written(_rows("(1L, 'a')", "(2L, 'a')", "(3L, 'a')", "(4L, 'b')", "(5L, 'b')")),
            Written(_rows("(6L, 'a')", "(7L, 'b')")),
        ),
        {
            "an append": Written(_rows("(10L, 'a')")),
            "an append to another partition": Written(_rows("(10L, 'z')")),
            "an append of rows of the table": Written("SELECT x + 100 AS x, p FROM {} WHERE p = 'a'"),
            "a batch of an application": Written(
                _rows("(13L, 'a')"), options={"txnAppId": "job", "txnVersion": "7"}
            ),
            "a deletion of files": "DELETE FROM {} WHERE p = 'b'",
            "a deletion of rows": "DELETE FROM {} WHERE x = 1",
            "an update": "UPDATE {} SET x = x + 100 WHERE x = 3",
            "a merge": (
                "MERGE INTO {} t USING (SELECT * FROM VALUES (2L, 'a'), (20L, 'a') AS s(x, p)) s ON "
                "t.x = s.x WHEN MATCHED THEN UPDATE SET x = 200 WHEN NOT MATCHED THEN INSERT *"
            ),
            "an overwrite": Written(_rows("(11L, 'a')"), "overwrite"),
            "a replacement of what matches": Written(
                _rows("(12L, 'a')"), "overwrite", {"replaceWhere": "p = 'a'"}
            ),
            "an overwrite of partitions": Written(
                _rows("(12L, 'b')"), "overwrite", {"partitionOverwriteMode": "dynamic"}
            ),
            "a compaction": "OPTIMIZE {}",
            "a new column": "ALTER TABLE {} ADD COLUMNS (y INT)",
            "a property": "ALTER TABLE {} SET TBLPROPERTIES ('note' = '1')",
            "a constraint": "ALTER TABLE {} ADD CONSTRAINT small CHECK (x < 1000)",
            "a feature": (
                "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"
            ),
            "row tracking": "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
            "a restore": "RESTORE TABLE {} TO VERSION AS OF 1",
        },
    ),
    "clustered": RacedTable(
        _begun({"x": "long", "n": "long"}, "rowTracking", "clustering", clustered="x"),
        (
            Written(_rows("(1L, 1L)", "(2L, 2L)", "(3L, 3L)", names="x, n")),
            Written(_rows("(6L, 6L)", "(7L, 7L)", names="x, n")),
        ),
        {
            "an append": Written(_rows("(10L, 10L)", names="x, n")),
            "a deletion of files": "DELETE FROM {} WHERE x >= 6",
            "a deletion of rows": "DELETE FROM {} WHERE x = 1",
            "an update": "UPDATE {} SET n = n + 100 WHERE x = 3",
            "an overwrite": Written(_rows("(11L, 11L)", names="x, n"), "overwrite"),
            "a replacement of what matches": Written(
                _rows("(2L, 12L)", names="x, n"), "overwrite", {"replaceWhere": "x = 2"}
            ),
            # OPTIMIZE of a clustered table never ends with these releases of delta-spark and Spark.
            "other clustering columns": "ALTER TABLE {} CLUSTER BY (n)",
            "no clustering columns": "ALTER TABLE {} CLUSTER BY NONE",
            "a property": "ALTER TABLE {} SET TBLPROPERTIES ('note' = '1')",
            "a restore": "RESTORE TABLE {} TO VERSION AS OF 1",
        },
    ),
}


class RecordedOperation(NamedTuple):
    """What was asked for, the actions of its commit, and what its transaction has read (`DeltaSpark.reads`).

    `asked`: as `in_json` gives it.
    """

    asked: object
    actions: Sequence[Members]
    reads: Members


class RecordedRaces(NamedTuple):
    """What is recorded of a table. `vectors`: the files of deletion vectors that operations have made.

    `made`: what made the versions of `base` after the first, as `in_json` gives it.
    """

    made: Sequence[object]
    base: Sequence[Sequence[Members]]
    operations: Mapping[str, RecordedOperation]
    vectors: Mapping[str, bytes]
    verdicts: Mapping[str, Mapping[str, Sequence[str]]]


@cache
def recorded(table: str) -> RecordedRaces:
    """Reads what is recorded of a table."""
    members = json.loads(RECORDED.read_text())[table]
    operations = {name: RecordedOperation(**each) for name, each in members["operations"].items()}
    vectors = {path: base64.b64decode(text) for path, text in members["vectors"].items()}
    return RecordedRaces(members["made"], members["base"], operations, vectors, members["verdicts"])


def in_json(asked: Written | str) -> object:
    """What is asked of delta-spark, as JSON has it."""
    return asked if isinstance(asked, str) else [asked.query, asked.mode, dict(asked.options)]


def with_level(actions: Sequence[Members], level: str) -> list[Members]:
    """The actions with this isolation level in the metadata that they set."""
    changed: list[Members] = json.loads(json.dumps(actions))
    for action in changed:
        if "metaData" in action:
            action["metaData"]["configuration"][ISOLATION] = level
    return changed


def pairs(table: str) -> list[tuple[str, str]]:
    """Each operation before each other one, and before itself."""
    names = TABLES[table].operations
    return [(first, then) for first in names for then in names]


def verdict_of(table: str, first: str, then: str, level: str) -> str:
    """The recorded verdict. One that stands alone is that of both levels: the first does more than append."""
    given = recorded(table).verdicts[first][then]
    return given[LEVELS.index(level)] if len(given) > 1 else given[0]


class Difference(NamedTuple):
    """Pairs of which we commit both and delta-spark the first alone, and why.

    Without `both` it is the other way about.
    """

    reason: str
    firsts: Sequence[str]
    thens: Sequence[str]
    both: bool = True

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Each first one before each of the others."""
        return {(first, then) for first in self.firsts for then in self.thens}


_APPENDS: Final = (
    "an append",
    "an append to another partition",
    "an append of rows of the table",
    "a batch of an application",
)
_WRITES: Final = (*_APPENDS, "a deletion of files", "a deletion of rows")
_STATISTICS: Final = "the statistics of the new files show that they have no rows that the condition selects"
_MERGED: Final = "the deletion vectors of both are merged"
_UPDATED: Final = "the statistics show it of the updated rows, and the deletion vectors of both are merged"
_PROPERTY: Final = "files fit to any value of the property, and the other change is merged with it"
_REMOVED: Final = (
    "nothing in the action of a removed file shows that it had no rows that the condition selects"
)
DIFFERENCES: Final[Mapping[str, Sequence[Difference]]] = {
    "partitioned": (
        Difference(_MERGED, ["a deletion of rows"], ["an update"]),
        Difference(_STATISTICS, [*_APPENDS, "a merge"], ["a deletion of rows", "an update"]),
        Difference(_UPDATED, ["an update"], ["a deletion of rows"]),
        Difference(_PROPERTY, ["a property"], [*_WRITES, "a property", "a constraint"]),
        Difference(
            "the new column is null in the files, and the other change is merged with it",
            ["a new column"],
            [*_WRITES, "a new column", "a constraint"],
        ),
        Difference(
            "files that have no rows of others fit, and the other change is merged with it",
            ["row tracking"],
            [*_WRITES, "row tracking", "a constraint"],
        ),
        Difference(_REMOVED, ["a deletion of files"], ["a deletion of rows", "an update"], both=False),
    ),
    "clustered": (
        Difference(_MERGED, ["a deletion of rows"], ["an update", "a replacement of what matches"]),
        Difference(
            _STATISTICS,
            ["an append", "a replacement of what matches"],
            ["a deletion of rows", "an update"],
        ),
        Difference(_UPDATED, ["an update"], ["a deletion of rows"]),
        Difference(
            _PROPERTY,
            ["a property"],
            [
                "an append",
                "a deletion of files",
                "a deletion of rows",
                "other clustering columns",
                "no clustering columns",
                "a property",
            ],
        ),
        Difference(_REMOVED, ["a deletion of files"], ["a deletion of rows", "an update"], both=False),
        Difference(
            "it says that it has read nothing; delta-spark has removals from an unpartitioned table read all",
            ["an append", "a deletion of rows", "an update", "a replacement of what matches"],
            ["a restore"],
        ),
    ),
}
