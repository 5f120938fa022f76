"""A maintainer that is killed while it removes versions: nothing is lost that a kept version needs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals
from tests.oracle.test_compacting import data_files, made
from tests.oracle.test_upkeep import LATER, Surroundings
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS, TAGGED = 60, 20
CLEAN = """
import sys
from pathlib import Path
from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals
from tests.oracle.test_upkeep import LATER, Surroundings
around = Surroundings(Path(sys.argv[1]), WaitingProposals(1, int(sys.argv[2])))
around.now += LATER
upkeep = around.upkeep(compaction="false")
print("ready", flush=True)
sys.stdin.readline()
upkeep.round()
"""


def manifests(table: Path) -> int:
    return sum(1 for _ in (table / "_versions").glob("*.manifest"))


@pytest.mark.parametrize("gone", [1, 15])
def test_a_clean_up_that_is_killed_loses_nothing(tmp_path: Path, gone: int) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=VERSIONS)
    # The files of the versions before this are needed by none after it, but some by the tagged version.
    lance.dataset(str(table)).optimize.compact_files()
    lance.dataset(str(table)).tags.create("audit", TAGGED)
    before = manifests(table)
    command = [sys.executable, "-c", CLEAN, str(table), str(before)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        until(lambda: manifests(table) <= before - gone, "the first removed versions", every=0.0001)
        process.kill()
    around = Surroundings(table, WaitingProposals(1, before))
    around.now += LATER

    def check() -> None:
        for version in (TAGGED, before):
            dataset = lance.dataset(str(table), version=version)
            dataset.validate()
            assert dataset.to_table().num_rows == 10 * min(version, VERSIONS)

    check()
    around.upkeep(compaction="false").round()
    check()
    assert len(data_files(table)) == TAGGED + 1
    assert around.versions() == [TAGGED, before]
