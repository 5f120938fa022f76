"""A maintainer that is killed while it removes versions and files of a Delta table: nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.oracle.delta_maintenance import made
from tests.oracle.test_delta_upkeep import AT_ONCE, FOREVER, NOTICE, WEEK, DeltaSurroundings, stored
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

FILES = 24
CLEAN = """
import sys
from pathlib import Path
from tests.oracle.delta_maintenance import DeltaWorld
from tests.oracle.test_delta_upkeep import FOREVER, NOTICE, WEEK, DeltaSurroundings
around = DeltaSurroundings(DeltaWorld(Path(sys.argv[1])))
around.now += FOREVER
upkeep = around.upkeep(compaction="false", cleanup="true", version_age=sys.argv[2])
if sys.argv[2] == "20000d":
    # The files are seen, and then listed.
    for pause in (WEEK, NOTICE):
        upkeep.round()
        around.now += pause
print("ready", flush=True)
sys.stdin.readline()
upkeep.round()
"""
KEEP, REMOVE = "20000d", "0s"


@pytest.mark.parametrize(("version_age", "gone"), [(KEEP, 1), (KEEP, 9), (REMOVE, 1), (REMOVE, 9)])
def test_a_clean_up_that_is_killed_loses_nothing(tmp_path: Path, version_age: str, gone: int) -> None:
    """With old versions that stay the files go that nothing needs, else files and log together."""
    world = made(tmp_path / "t", FILES, **AT_ONCE)
    assert world.compaction().run(full=True).tasks == 1
    DeltaTable(world.path).create_checkpoint()
    world.append(1000)
    world.append(1001)
    left = [*range(10 * FILES), 1000, 1001]
    command = [sys.executable, "-c", CLEAN, str(world.path), version_age]

    def present() -> int:
        return len(stored(world)) + len(list((world.path / "_delta_log").iterdir()))

    entries = present()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        until(lambda: present() <= entries - gone, "the first removed files", every=0.0001)
        process.kill()
    newest = DeltaTable(world.path).version()
    for version in (newest - 1, newest):
        assert world.rows(version) == left[: len(left) - newest + version]
    around = DeltaSurroundings(world)
    around.now += FOREVER
    around.rounds(around.upkeep(compaction="false", version_age=version_age), WEEK, NOTICE)
    assert stored(world) == set(world.files)
    assert world.rows() == left
    assert len(list((world.path / "_delta_log").glob("*.json"))) == (
        3 if version_age == REMOVE else FILES + 4
    )
