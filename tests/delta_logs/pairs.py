"""Pairs of transactions that begin at one version of a table, and what delta-spark does with the second.

`verdicts.json` has each pair, and the class of the error with which delta-spark ends its second transaction,
empty if it commits it, once for each isolation level of the table. `tests/integration/test_delta_spark.py`
lets it judge again. Whole operations are in `races.py`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from tests.delta_logs.actions import LISTED, VECTORS, Members, data_file, domain, metadata, text, txn
from tests.delta_logs.races import with_level

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS: Final = (1, 2, 3)
"""The values of x in the file `f`."""
VERDICTS: Final = Path(__file__).parent / "verdicts.json"
FIELDS: Final = (("x", "long"), ("p", "string"))


class Pair(NamedTuple):
    """Two transactions, each by the names of its actions (`PairTable.action`).

    `reads`: conditions by which the second has read the table, `true` for all of it. `apps`: the applications
    whose last batch it has read.
    """

    first: str
    then: str
    reads: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, bytes]:
        """The rows that the second deletes, by the path of their file."""
        rows = [int(name[1:]) for name in self.then.split() if name[0] == "r"]
        return {"f.parquet": encode_treemap({0: Bitmap(rows)})} if rows else {}


def schema(*more: str) -> str:
    fields = [*FIELDS, *((name, "long") for name in more)]
    return json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields
            ],
        }
    )


def described(*columns: str, **configuration: str) -> Members:
    action = metadata(schema(*columns), **VECTORS, **configuration)
    action["metaData"]["partitionColumns"] = ["p"]
    return action


METADATA: Final[Mapping[str, Members]] = {
    "note": described(note="1"),
    "other": described(other="1"),
    "interval": described(**{"delta.checkpointInterval": "7"}),
    "again": described(note="2"),
    "y": described("y"),
    "z": described("z"),
}


class JudgedPair(NamedTuple):
    """A pair as it was when delta-spark judged it, and the verdict for each of `races.LEVELS`."""

    pair: Pair
    verdicts: tuple[str, ...]

    def in_json(self) -> Members:
        """As `verdicts.json` has it."""
        return {**self.pair._asdict(), "verdicts": self.verdicts}


@cache
def judged_pairs() -> dict[str, JudgedPair]:
    """The pairs of `verdicts.json`, by their names."""
    return {
        name: JudgedPair(
            Pair(each["first"], each["then"], tuple(each["reads"]), tuple(each["apps"])),
            tuple(each["verdicts"]),
        )
        for name, each in json.loads(VERDICTS.read_text())["pairs"].items()
    }


class PairTable:
    """The table in a folder, with an isolation level, the file `f` and a batch of the application x."""

    def __init__(self, path: Path, level: str) -> None:
        self.path, self.level = path, level
        (path / FOLDER).mkdir(parents=True)
        begun = with_level([LISTED, described(), self.add("f"), txn("x", 0)], level)
        (path / commit_path(0)).write_bytes(text(begun))

    def actions(self, names: str) -> list[Members]:
        return with_level([action for name in names.split() for action in self.action(name)], self.level)

    def action(self, name: str) -> list[Members]:
        """The actions of a name.

        `+b` adds a file, `+b:z` to the partition z. `-f` removes the file, `~` adds or removes one with
        dataChange false. `r1` deletes a row of `f`. `@x:1` records a batch, `d1` sets a domain, `m` replaces
        the metadata.
        """
        match name[0], name[1:].partition(":"):
            case "+", (file, _, p):
                return [self.add(file, p or "a")]
            case "~", ("f", _, _):
                return [self.remove(dataChange=False)]
            case "~", (file, _, _):
                return [self.add(file, dataChange=False)]
            case "-", _:
                return [self.remove()]
            case "r", (row, _, _):
                vector = members_of(inline_vector({0: Bitmap([int(row)])}))
                stats = json.dumps({"numRecords": len(ROWS), "tightBounds": False})
                return [self.remove(), self.add("f", deletionVector=vector, stats=stats)]
            case "@", (app, _, version):
                return [txn(app, int(version))]
            case "d", (other, _, _):
                return [domain(f"d{other}")]
            case "m", (_, _, which):
                return [METADATA[which]]
        return [LISTED]

    def add(self, name: str, p: str = "a", **more: object) -> Members:
        path = self.path / f"{name}.parquet"
        if path.exists():
            size = path.stat().st_size
            stats = json.dumps({"numRecords": len(ROWS)})
            members: Members = {"path": path.name, "size": size, "modificationTime": 1, "dataChange": True}
            return {"add": {**members, "stats": stats, "partitionValues": {"p": p}, **more}}
        action = data_file(self.path, path.name, *ROWS)
        bounds = {"minValues": {"x": min(ROWS)}, "maxValues": {"x": max(ROWS)}, "nullCount": {"x": 0}}
        action["add"].update({"partitionValues": {"p": p}, **more})
        action["add"]["stats"] = json.dumps({"numRecords": len(ROWS), **bounds})
        return action

    def remove(self, **more: object) -> Members:
        return {
            "remove": {
                "path": "f.parquet",
                "deletionTimestamp": 5,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {"p": "a"},
                "size": (self.path / "f.parquet").stat().st_size,
                **more,
            }
        }


PAIRS: Final[Mapping[str, Pair]] = {
    "two appends": Pair("+b", "+c"),
    "an append, all was read": Pair("+b", "+c", ("true",)),
    "an append to another partition": Pair("+b:z", "+c", ("p = 'a'",)),
    "an append to the partition that was read": Pair("+b:z", "+c", ("p = 'z'",)),
    "an append to one of two partitions that were read": Pair("+b:z", "+c", ("p = 'a'", "p = 'z'")),
    "an append, a list of partitions was read": Pair("+b:z", "+c", ("p IN ('y', 'z')",)),
    "an append, other partitions were read": Pair("+b:z", "+c", ("p <> 'z'",)),
    "an append, rows below its own were read": Pair("+b", "+c", ("x < 1",)),
    "an append of files rearranged, all was read": Pair("~f ~b", "+c", ("true",)),
    "a file that was read is removed": Pair("-f", "+c", ("true",)),
    "a file of another partition is removed": Pair("-f", "+c:z", ("p = 'z'",)),
    "a file is removed, nothing was read": Pair("-f", "+c"),
    "a file is removed twice": Pair("-f", "-f"),
    "a file is replaced twice": Pair("-f +b", "-f +c"),
    "a file is removed, then replaced": Pair("-f", "-f +c", ("true",)),
    "an overwrite after an append": Pair("+b", "-f +c", ("true",)),
    "a partition is overwritten after an append to another": Pair("+b:z", "-f +c", ("p = 'a'",)),
    "an append after an overwrite": Pair("-f +b", "+c"),
    "a compaction after an append": Pair("+b", "~f ~c", ("true",)),
    "a compaction after an append to its partition": Pair("+b", "~f ~c", ("p = 'a'",)),
    "an append after a compaction": Pair("~f ~c", "+b"),
    "a compaction after a removal": Pair("-f", "~f ~c", ("true",)),
    "a removal after a compaction": Pair("~f ~c", "-f"),
    "two compactions": Pair("~f ~b", "~f ~c", ("true",)),
    "rows of one file": Pair("r0", "r1", ("true",)),
    "one row": Pair("r1", "r1", ("true",)),
    "a row of a removed file": Pair("-f", "r1", ("true",)),
    "a removal after a row": Pair("r1", "-f", ("true",)),
    "an append after a row": Pair("r1", "+b"),
    "a row after an append": Pair("+b:z", "r1", ("p = 'a'",)),
    "a compaction after a row": Pair("r1", "~f ~c", ("true",)),
    "an application that was read": Pair("+b @x:1", "+c @x:2", (), ("x",)),
    "an application that was not read": Pair("+b @x:1", "+c @x:2"),
    "another application": Pair("+b @y:1", "+c @x:2", (), ("x",)),
    "one domain": Pair("d1", "d1 +c"),
    "two domains": Pair("d1", "d2 +c"),
    "a domain and an append": Pair("d1", "+c"),
    "two protocols": Pair("protocol", "protocol"),
    "a protocol": Pair("protocol", "+c"),
    "a protocol and metadata": Pair("protocol", "m:note"),
    "metadata and a protocol": Pair("m:note", "protocol"),
    "a property and an append": Pair("m:note", "+c"),
    "an append and a property": Pair("+c", "m:note"),
    "an append and a property, all was read": Pair("+c", "m:note", ("true",)),
    "a removal and a property": Pair("-f", "m:note"),
    "a property and a removal": Pair("m:note", "-f"),
    "a column and an append": Pair("m:y", "+c"),
    "two properties": Pair("m:note", "m:other"),
    "two properties of Delta": Pair("m:note", "m:interval"),
    "one property": Pair("m:note", "m:again"),
    "a property, and a column": Pair("m:note", "m:y"),
    "two columns": Pair("m:y", "m:z"),
    "one column": Pair("m:y", "m:y"),
}
STRICTER: Final[dict[str, str]] = {}
"""Pairs of which delta-spark commits both, and we the first alone."""
LOOSER: Final = {
    "an append, rows below its own were read": "the statistics of the file show that it has no such row",
    "rows of one file": "the deletion vectors are merged",
    "a property and an append": "the file fits to any value of the property",
    "a property and a removal": "the file fits to any value of the property",
    "a column and an append": "the new column is null in the file",
    "metadata and a protocol": "the protocol fits to any value of the property",
    "two protocols": "both name the protocol that the table has",
    "two properties": "changes of different properties are merged",
    "two properties of Delta": "changes of different properties are merged",
    "a property, and a column": "changes of a property and of the schema are merged",
    "two columns": "the table gets both",
    "one column": "both add the same column",
}
"""Pairs of which we commit both, and delta-spark the first alone."""
