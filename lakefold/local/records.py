"""The files in which `lakefold up` notes its broker: each is whole or absent whenever the process dies."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read_record(path: Path) -> dict[str, Any]:
    """Returns what was noted in a file, nothing if there is none, or another program has damaged it."""
    with suppress(FileNotFoundError, ValueError):
        record = json.loads(path.read_text())
        if isinstance(record, dict):
            return record
    return {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replaces the file, which is durable then. A reader finds the old record or the new one."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(json.dumps(record))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
