"""The clients and steps of the matrix, and the file of their results, which the page of clients shows."""

from __future__ import annotations

import fcntl
import json
import re
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.clients.process import StepError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WRITERS: Final = (
    *("lancedb-0.40.0", "lancedb-0.33.0", "pylance-14.0.2", "pylance-13.0.0"),
    *("lance-spark", "duckdb"),
)
READERS: Final = ("polars",)
LABELS: Final = {"lance-spark": "lance-spark 0.4.0, Spark 3.5", "duckdb": "duckdb 1.5.5, its extension"}
CAN_NOT: Final = {
    ("lance-spark", "vector_index"): "Unsupported index method: ivf_flat",
    ("lance-spark", "restore"): "it has no statement for it",
    ("duckdb", "read_version"): "Catalog type does not support time travel",
    ("duckdb", "restore"): "it has no statement for it",
}
"""What a client refuses for any table, with what it says."""
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
READS: Final = ("read", "read_version")
YES, NO, ONLY_READS = "yes", "no", "-"


@contextmanager
def kept(client: str, step: str) -> Iterator[None]:
    """Notes whether the block went through: `yes`, or `no` and what the client said.

    A step of `CAN_NOT` has to fail with the words that are written there.
    """
    came = NO
    refused = CAN_NOT.get((client, step))
    try:
        with pytest.raises(StepError, match=re.escape(refused)) if refused else nullcontext():
            yield
        came = f"{NO}: {refused}" if refused else YES
    except StepError as error:
        came = f"{NO}: {error}"
        raise
    finally:
        _keep(client, step, came)


def table_of(reported: Mapping[str, Mapping[str, str]]) -> str:
    """The results as the page of clients shows them, and below them what was said where the answer is no."""
    head = ["client", *(step.replace("_", " ") for step in (*READS, *STEPS))]
    lines, notes = [head, ["---"] * len(head)], dict[str, int]()
    for name in (*WRITERS, *READERS):
        line = [LABELS.get(name, name.replace("-", " "))]
        for step in (*READS, *STEPS):
            came, _, text = reported[name].get(step, ONLY_READS).partition(": ")
            line.append(f"{came} ({notes.setdefault(text, len(notes) + 1)})" if text else came)
        lines.append(line)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return table + "\n" + "".join(f"\n{number}. {text}" for text, number in notes.items())


def _keep(client: str, step: str, came: str) -> None:
    with RESULTS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        document = json.loads(file.read() or "{}")
        document.setdefault(client, {})[step] = came
        file.truncate(0)
        file.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
