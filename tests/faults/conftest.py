"""Which tests are collected: those that need strace only if every point is played (`make test-faults`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A short run plays the same faults without strace (`test_disk.py`)."""
    if collection_path.name == "test_system_calls.py" and not config.getoption("--all-faults"):
        return True
    return None
