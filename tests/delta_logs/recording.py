"""The logs that delta-spark made by the operations of `operations.py`, and the program that has it make them.

A log is a file in `recorded/`: a line for each version, with the statement and the actions of its commit, a
line with the deletion vectors, and for some tables the checkpoints, and one with the newest state as
delta-spark sees it. The data files are not there: nothing reads them.

The program needs a pyspark with which delta-spark does all that it can:

    pip install --target FOLDER pyspark==4.1.4
    PYTHONPATH=FOLDER:. python -m tests.delta_logs.recording [HISTORY ...]
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lakefold_table.delta.log_segment.names import FOLDER, SIDECARS, commit_path
from tests.delta_logs.actions import snapshot_of, text
from tests.delta_logs.operations import CHECKPOINTED, CREATE, HISTORIES, STREAM
from tests.servers.delta_spark import DeltaSpark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from tests.delta_logs.actions import Members

RECORDED: Final = Path(__file__).parent / "recorded"
PLACE: Final = "/recorded"
"""What stands for the folder in which the tables were."""


class RecordedVersion(NamedTuple):
    """A version that delta-spark made, alone or among others, by a statement."""

    statement: str
    actions: Sequence[Members]

    @property
    def time_ms(self) -> int:
        """When it was committed, as its commit says."""
        (info,) = (action["commitInfo"] for action in self.actions if "commitInfo" in action)
        return int(info.get("inCommitTimestamp", info["timestamp"]))


class Recording(NamedTuple):
    """A table's log. `files`: the other files of the table, by path. `state`: by the name of the action."""

    versions: Sequence[RecordedVersion]
    files: Mapping[str, bytes]
    state: Mapping[str, Sequence[Members]]

    def commits(self, newest: int) -> dict[str, bytes]:
        """The files of the commits up to a version."""
        return {
            commit_path(number): text(version.actions)
            for number, version in enumerate(self.versions[: newest + 1])
        }

    def added(self, version: int) -> list[Members]:
        """The members of the files that a version adds or changes."""
        actions = self.versions[version].actions
        return [action[name] for action in actions for name in ("add", "cdc") if name in action]

    def checkpoints(self) -> dict[int, dict[str, bytes]]:
        """The files of each checkpoint, by its version."""
        files: dict[int, dict[str, bytes]] = {}
        sidecars = {path: content for path, content in self.files.items() if path.startswith(SIDECARS)}
        for path, content in self.files.items():
            name = path.removeprefix(f"{FOLDER}/")
            if path not in sidecars and name[0].isdigit():
                files.setdefault(int(name.split(".")[0]), dict(sidecars))[path] = content
        return files

    def snapshot(self, version: int) -> DeltaSnapshot:
        """A version as its commits make it."""
        return snapshot_of(self.commits(version))


@cache
def recording(history: str) -> Recording:
    """Reads a recorded log."""
    *lines, files, state = _path(history).read_text().splitlines()
    versions = [RecordedVersion(**json.loads(line)) for line in lines]
    contents = {
        path: zlib.decompress(base64.b64decode(content)) for path, content in json.loads(files).items()
    }
    return Recording(versions, contents, json.loads(state))


def _path(history: str) -> Path:
    return RECORDED / f"{history.replace(' ', '_')}.jsonl"


def record(judge: DeltaSpark, history: str, folder: Path) -> None:
    """Has delta-spark do the operations of a history in an empty folder, and writes the log."""
    table, other = folder / "t", folder / "other"
    lines: list[str] = []

    def note(members: object) -> None:
        lines.append(json.dumps(members, ensure_ascii=False).replace(str(folder), PLACE))

    for statement in HISTORIES[history]:
        if statement == STREAM:
            judge.stream(other, table, folder / "query")
        elif statement.startswith(CREATE):
            judge.create(table, statement.removeprefix(CREATE).split(", "))
        else:
            names = {"{path}": str(table), "{other}": f"delta.`{other}`", "{}": f"delta.`{table}`"}
            sql = statement
            for mark, name in names.items():
                sql = sql.replace(mark, name)
            judge.sql(sql)
        while (commit := table / commit_path(len(lines))).exists():
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            note({"statement": statement, "actions": actions})
    note(_contents(table, with_log=history in CHECKPOINTED))
    note(_compact(judge.state(table)))
    RECORDED.mkdir(exist_ok=True)
    _path(history).write_text("".join(f"{line}\n" for line in lines))


def _contents(table: Path, *, with_log: bool) -> dict[str, str]:
    """The deletion vectors of a table, and the files of its log that are not commits, packed."""
    patterns = ["**/deletion_vector*.bin"]
    if with_log:
        patterns += [f"{FOLDER}/*checkpoint*", f"{FOLDER}/_sidecars/*"]
    files = sorted(path for pattern in patterns for path in table.glob(pattern))
    return {
        path.relative_to(table).as_posix(): base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
        for path in files
        if not path.name.startswith(".")
    }


def _compact(state: Mapping[str, Sequence[Members]]) -> dict[str, Any]:
    """The state with the paths of the removed files alone: what a tombstone says, its commit says as well."""
    removed = [{"path": each["path"]} for each in state.get("remove", ())]
    return {**state, "remove": removed}


def main(histories: Sequence[str]) -> None:
    """Records these histories, all if there are none."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        with DeltaSpark(root) as judge:
            for number, history in enumerate(histories or HISTORIES):
                folder = root / str(number)
                folder.mkdir()
                record(judge, history, folder)
                print(history, flush=True)  # noqa: T201 - what the program says


if __name__ == "__main__":
    main(sys.argv[1:])
