"""The goals of the figures, which are printed and kept beside them. Nothing fails if a goal is missed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A bound that a figure is to reach from above (`at_least`) or to stay below."""

    bound: float
    at_least: bool = True

    def reached(self, value: float) -> bool:
        """Whether it does."""
        return value >= self.bound if self.at_least else value < self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<'} {self.bound:,g}"


def below(bound: float) -> Goal:
    """A figure is to be less than this."""
    return Goal(bound, at_least=False)


GOALS: dict[str, dict[str, Goal]] = {
    "batches": {"overhead ms": below(60)},
    "carried": {
        "ms of CPU for a Delete": below(20),
        "s of CPU for a compaction": below(1),
        "stable row ids: ms of CPU for a Delete": below(20),
        "stable row ids: s of CPU for a compaction": below(1),
    },
    "catalog": {
        "16 pylance, by the catalog: failed": below(1),
        "16 pylance: commits/s, catalog / path": Goal(2),
        "16 pylance: ms, p99, catalog / path": below(1 / 3),
        "pylance alone: ms more by the catalog": below(15),
        "32 LanceDB, by the catalog: failed": below(1),
        "LanceDB: inserts/s, catalog / path": Goal(100),
        "LanceDB: inserts in a file, by the catalog": Goal(20),
    },
    "commits": {
        "transactions/s": Goal(10_000),
        "ratio to pylance's 32 processes": Goal(100),
        "ratio to delta-rs's 32 processes": Goal(500),
        "failed": below(1),
        "sent again": below(1),
        "not committed": below(1),
    },
    "contended": {
        "lance, 8 keys: tries, most": below(4),
        "lance, 8 keys: failed": below(1),
        "lance, own keys: tries, most": below(2),
        "delta, 8 keys: tries, most": below(4),
        "delta, 8 keys: failed": below(1),
    },
    "delta": {
        "10,000 files: transactions/s": Goal(5_000),
        "10,000 files: not committed": below(1),
        "100,000 files: transactions/s": Goal(3_000),
        "100,000 files: not committed": below(1),
        "ratio to delta-rs's 32 processes": Goal(300),
        "p50 ms": below(8),
        "bytes an active file": below(600.001),
    },
    "delta-log": {
        "1 % appended: share of a full checkpoint": below(0.05),
        "1 % compacted: share of a full checkpoint": below(0.05),
        "opening: lakefold to delta-rs": below(1),
        "most files: step, ms": below(15),
        "CPU, most files to least": below(1.5),
    },
    "opening": {
        "100,000 adds: lakefold to delta-rs": below(2),
        "300,000 adds: lakefold to delta-rs": below(2),
        **{
            f"{kind}, {door}, 100 versions of others: ms of CPU for the next": below(10)
            for kind in ("Delta", "Lance")
            for door in ("committer", "reader")
        },
        **{
            f"{kind}, {door}: 1,600 columns to 400": below(6)
            for kind in ("Delta", "Lance")
            for door in ("append", "upsert", "read", "changes")
        },
    },
    "producers": {
        "32 producers to 1": Goal(0.9),
        "backlog of 32 producers to that of 1": Goal(0.9),
        "failed": below(1),
        "sent again": below(1),
        "not committed": below(1),
    },
    "fairness": {
        "unknown: honest, table open, seconds": below(2),
        "unknown: honest, table not open, seconds": below(2),
        "large: honest, table open, seconds": below(2),
        "large: honest, table not open, seconds": below(2),
        "unknown: seconds until the flood was answered": below(30),
        "large: committer's peak MB": below(400),
    },
    "latency": {
        "p50 ms": below(5),
        "p99 ms": below(25),
        "100,000 fragments: p50 ms": below(40),
        "100,000 fragments, limited: manifest MB/s": below(20.001),
        "100,000 fragments, limited: max ms": below(1000),
    },
    "large": {"transactions/s": Goal(5_000), "not committed": below(1)},
    "maintenance": {
        "maintained: most fragments": below(501),
        "maintained: most MB of versions": below(200),
        "maintained: failed appends": below(1),
        "maintained: failed deletes": below(1),
        "maintained: failed updates": below(1),
        "maintained: failed rewrites": below(1),
        "read time to compacted": below(1.5),
        "read time to compacted, most": below(1.5),
        "p99 to that without maintenance": below(2),
        "write amplification": below(4),
    },
    "memory": {"peak to what it may be": below(1)},
    "restart": {"seconds to the first commit": below(2), "peak to what it may be": below(1)},
    "reverting": {
        f"{kind}, {rows} rows: ms to find, plan and write": below(2000)
        for kind in ("lance", "delta-vectors")
        for rows in ("1,000,000", "10,000,000", "100,000,000")
    },
    "s3": {
        "published: requests a version": below(3.05),
        "followed: listings": below(1),
        "caught up: requests a version": below(1.05),
    },
    "scan": {
        "20 fragments of 500,000 rows: ratio to pylance": below(1.15),
        "10,000 fragments of 100 rows: ratio to pylance": below(1.15),
    },
    "tail": {
        "CPU, 100,000 fragments to 10": below(1.5),
        "most fragments: pylance to lakefold": Goal(30),
        "most fragments: delta-rs to lakefold": Goal(15),
        "catching up: versions/s": Goal(2_000),
    },
    "upkeep": {
        "plan, ms": below(200),
        "full plan, ms": below(200),
        "reading what waits, s": below(1),
    },
    "streaming": {
        "lakefold / parquet": Goal(1),
        "10,000 rows a batch: lakefold / parquet": Goal(0.95),
        "lakefold / counting": Goal(0.9),
        "10,000 rows a batch: lakefold / counting": Goal(0.9),
        "lakefold / delta": Goal(2.5),
    },
    "queries": {"8 queries / one": Goal(0.9), "refused": below(1)},
    "upserts": {
        "delta-rs to lakefold": Goal(1),
        "delta-spark to lakefold": Goal(1),
        "delta-spark to lakefold, indexed": Goal(5),
        "plain to indexed, few rows": Goal(5),
        "beside appends: attempts, most": below(3),
        "beside appends: failed": below(1),
    },
    "writer": {
        "one Writer: rows/s": Goal(50_000),
        "8 Writers: repeated batches": below(1),
        "ratio to pylance's 8 processes": Goal(4),
    },
    "mixed": {"transactions/s": Goal(3_000), "not committed": below(1)},
}
"""By part and figure."""
