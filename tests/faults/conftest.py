"""Which tests are collected: those that need strace or faketime only for `make test-faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LONG_ONLY = {"test_system_calls.py", "test_broker_clock.py"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A short run plays the same faults otherwise (`test_disk.py`, `broker/test_clock_jumps.py`)."""
    if collection_path.name in LONG_ONLY and not config.getoption("--all-faults"):
        return True
    return None
