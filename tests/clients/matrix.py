"""The clients and steps of the matrix, and the file that keeps what came of them for the README."""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WRITERS: Final = ("lancedb-0.40.0", "lancedb-0.33.0", "pylance-14.0.2", "pylance-13.0.0")
READERS: Final = ("polars",)
STEPS: Final = (
    "append",
    "delete",
    "merge",
    "scalar_index",
    "vector_index",
    "text_index",
    "optimize",
    "restore",
    "cleanup",
)
RESULTS: Final = Path(__file__).parent / "results.json"
YES, NO, NOT_TRIED = "yes", "no", "not tried"


@contextmanager
def kept(client: str, step: str) -> Iterator[None]:
    """Notes whether the block went through."""
    came = NO
    try:
        yield
        came = YES
    finally:
        with RESULTS.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            told = json.loads(file.read() or "{}")
            told.setdefault(client, {})[step] = came
            file.truncate(0)
            file.write(json.dumps(told, indent=2, sort_keys=True) + "\n")


def table_of(told: Mapping[str, Mapping[str, str]]) -> str:
    """The results as the README shows them."""
    head = ["client", "read", *(step.replace("_", " ") for step in STEPS)]
    lines = [head, ["---"] * len(head)]
    for name in (*WRITERS, *READERS):
        results = told.get(name, {})
        lines.append([name.replace("-", " "), *(results.get(step, NOT_TRIED) for step in ("read", *STEPS))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
