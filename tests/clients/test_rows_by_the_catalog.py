"""LanceDB's remote client, unmodified, does by the catalog what LanceDB does on a folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.environments import python_of
from tests.integration.conftest import TopicNames, bootstrap, broker, options, topic_names
from tests.integration.test_catalog import serving

if TYPE_CHECKING:
    from lakefold import WriteOptions

__all__ = ["bootstrap", "broker", "options", "topic_names"]
STEPS = Path(__file__).parent / "lancedb_steps.py"


def steps(version: str, target: str) -> list[dict[str, object]]:
    """What the steps leave at a target, each as a value."""
    command = (str(python_of(version)), str(STEPS), target)
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("version", ["lancedb-0.40.0"])
def test_each_step_leaves_the_same_rows(
    version: str, tmp_path: Path, options: WriteOptions, topic_names: TopicNames
) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    expected = steps(version, str(tmp_path / "bare"))
    with serving(root, options, topic_names.group) as served:
        remote = steps(version, served.url)
    for ours, theirs in zip(remote, expected, strict=True):
        assert ours == theirs
