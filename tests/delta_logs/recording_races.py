"""Has delta-spark judge each pair of operations in `races.py`, and each pair of transactions in `pairs.py`.

`python -m tests.delta_logs.recording_races` writes `races.json` and `verdicts.json` anew; with the names of
tables, these tables of `races.json` alone.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.local.pins import pinned_jars
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from tests.delta_logs.actions import Members, text
from tests.delta_logs.comparing import proposable
from tests.delta_logs.pairs import PAIRS, VERDICTS, JudgedPair, PairTable
from tests.delta_logs.races import (
    LEVELS,
    RECORDED,
    TABLES,
    RecordedOperation,
    Written,
    in_json,
    pairs,
    with_level,
)
from tests.servers.delta_spark import DeltaSpark, Race, writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Verdicts = Mapping[str, Mapping[str, Sequence[str]]]
    """Those on each operation behind each first one, by their names, for each level or for both."""


class Races:
    """A table that delta-spark makes in an empty folder, and what it does to copies of it."""

    def __init__(self, judge: DeltaSpark, folder: Path, table: str) -> None:
        self._judge, self._folder, self._table = judge, folder, TABLES[table]
        self._copies = 0
        self.operations: dict[str, RecordedOperation] = {}
        self.base = folder / "base"
        (self.base / FOLDER).mkdir(parents=True)
        (self.base / commit_path(0)).write_bytes(text(self._table.begun))
        for made in self._table.made:
            judge.reads(**self._asked(made, self.base))
        self.version = len(self._table.made) + 1

    def operate(self, name: str) -> RecordedOperation:
        """Has an operation done on a copy of the table, once."""
        if name not in self.operations:
            copy = self._folder / name
            shutil.copytree(self.base, copy)
            asked = self._table.operations[name]
            reads = self._judge.reads(**self._asked(asked, copy))
            reads["predicates"] = list(map(_condition, reads["predicates"]))
            assert not (copy / commit_path(self.version + 1)).exists(), name
            actions = _read(copy / commit_path(self.version))
            self.operations[name] = RecordedOperation(in_json(asked), actions, reads)
        return self.operations[name]

    def verdicts(self, raced: Sequence[tuple[str, str]], level: str) -> list[str]:
        """The verdicts on operations that are overtaken by others, of a table with this isolation level."""
        self._copies += 1
        copy = self._folder / f"judged-{self._copies}"
        shutil.copytree(self.base, copy, ignore=shutil.ignore_patterns("*.crc"))
        begun = copy / commit_path(0)
        begun.write_bytes(text(with_level(_read(begun), level)))
        given = [self._race(self.operate(first), self.operate(then), level) for first, then in raced]
        return self._judge.verdicts(copy, given)

    def _race(self, first: RecordedOperation, then: RecordedOperation, level: str) -> Race:
        reads = then.reads
        proposed = with_level(list(filter(None, map(proposable, then.actions))), level)
        return Race(
            with_level(first.actions, level),
            [action for action in proposed if "commitInfo" not in action],
            reads["predicates"],
            reads["apps"],
            reads["all"],
            [each for each in self._files() if each["add"]["path"] in reads["files"]],
        )

    def _files(self) -> list[Members]:
        """The files of the table."""
        return [action for commit in self.log() for action in commit if "add" in action]

    def vectors(self) -> dict[str, bytes]:
        """The files of deletion vectors of all operations, by their paths in the table."""
        return {
            path.name: path.read_bytes()
            for name in self.operations
            for path in sorted((self._folder / name).glob("deletion_vector*.bin"))
        }

    def log(self) -> list[list[Members]]:
        """The commits of the table."""
        return [_read(self.base / commit_path(version)) for version in range(self.version)]

    def _asked(self, what: Written | str, table: Path) -> Members:
        name = f"delta.`{table}`"
        if isinstance(what, str):
            return {"sql": what.replace("{}", name)}
        return writing(what.query.replace("{}", name), table, mode=what.mode, **what.options)


def _condition(text: str) -> str:
    """A condition by which delta-spark selects files, without the name of the table before a column's."""
    # An overwrite of partitions selects those that it writes to by a function of its own.
    return re.sub(r"[\w.]*`[^`]*`[.](\w+)", r"\1", text).replace("UDF(partitionValues)", "p = 'b'") or "true"


def _read(commit: Path) -> list[Members]:
    return [json.loads(line) for line in commit.read_text().splitlines()]


def pair_verdicts(judge: DeltaSpark, folder: Path, names: Sequence[str], level: str) -> list[str]:
    """The verdicts on pairs of transactions, on a new table in an empty folder."""
    table = PairTable(folder, level)
    races = []
    for name in names:
        pair = PAIRS[name]
        first = table.actions(pair.first)
        is_blind = not any("remove" in action for action in first)
        info = {"operation": "Manual Update", "isBlindAppend": is_blind, "timestamp": 0}
        races.append(Race([{"commitInfo": info}, *first], table.actions(pair.then), pair.reads, pair.apps))
    return judge.verdicts(folder, races)


def shortened(verdicts: Verdicts) -> Verdicts:
    """With one verdict for each pair, behind a first operation behind which the levels never differ."""
    return {
        first: {then: each[:1] for then, each in of_first.items()}
        if all(len(set(each)) == 1 for each in of_first.values())
        else of_first
        for first, of_first in verdicts.items()
    }


def main(tables: Sequence[str]) -> None:
    """Records the operations on these tables, all that there is to record if there are none."""
    (version,) = (jar.revision for jar in pinned_jars("delta") if jar.artifact.startswith("delta-spark"))
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        with DeltaSpark(root) as judge:
            if not tables:
                _record_pairs(judge, root, version)
            raced = {table: _recorded(Races(judge, root / table, table), table) for table in tables or TABLES}
            before = json.loads(RECORDED.read_text()) if tables else {"delta-spark": version}
            assert before["delta-spark"] == version, (
                "record all tables: another delta-spark recorded the others"
            )
            RECORDED.write_text(formed({**before, **raced}) + "\n")


def _record_pairs(judge: DeltaSpark, root: Path, version: str) -> None:
    of_levels = [pair_verdicts(judge, root / level, list(PAIRS), level) for level in LEVELS]
    given = zip(PAIRS.items(), zip(*of_levels, strict=True), strict=True)
    judged = {name: JudgedPair(pair, each).in_json() for (name, pair), each in given}
    VERDICTS.write_text(formed({"delta-spark": version, "pairs": judged}, 2) + "\n")


def _recorded(races: Races, table: str) -> dict[str, object]:
    of_levels = [races.verdicts(pairs(table), level) for level in LEVELS]
    verdicts: dict[str, dict[str, Sequence[str]]] = {}
    for (first, then), each in zip(pairs(table), zip(*of_levels, strict=True), strict=True):
        verdicts.setdefault(first, {})[then] = each
    return {
        "made": list(map(in_json, TABLES[table].made)),
        "base": races.log(),
        "operations": {name: each._asdict() for name, each in races.operations.items()},
        "vectors": {path: base64.b64encode(data).decode() for path, data in races.vectors().items()},
        "verdicts": shortened(verdicts),
    }


def formed(members: object, depth: int = 4) -> str:
    """JSON with a line for each member, down to so many objects in each other."""
    if not depth or not isinstance(members, dict):
        return json.dumps(members, ensure_ascii=False)
    lines = (f"{json.dumps(name)}: {formed(each, depth - 1)}" for name, each in members.items())
    return "{\n" + ",\n".join(lines) + "\n}"


if __name__ == "__main__":
    main(sys.argv[1:])
