"""Short of memory: a claim takes no more than it may, is never Invalid for want of it, and others go on.

Promise: claims-fit (docs/operations.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakefold_committer.claims.claim_check import CLAIM_BYTES
from lakefold_committer.claims.memory_budget import memory_left
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.expansion import PORTION_BYTES, content_of
from lakefold_table.lance.manifests.memory_cost import memory_to_fold, operations_in
from tests.faults.dense_parts import OPERATIONS
from tests.faults.large_flood import COUNT as COUNT_IN_FLOOD
from tests.faults.many_parts import KINDS, LIMIT

ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000
PARSING = """
# Parses what its standard input holds under ever looser limits, and prints how each attempt ended.
import json, resource, sys
from lakefold_log.codec.envelope import decode, parse_large, parsed
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.position import LogId, Position
from lakefold_table.lance.manifests.codec import _parsed
from tests.faults.short_of_memory import large, may_take

data = sys.stdin.buffer.read()
place = Position(LogId("cluster", "topic", 0), 0)
ways = {
    "message": lambda: type(decode(data, b"memory://t", place, 0)).__name__,
    "claim": lambda: "packed" if parse_large(data) else parsed(data) and "whole",
}
told = {name: [] for name in ways}
for spare in range(1, 40):
    for name, way in ways.items():
        may_take(spare * 1_000_000)
        try:
            end = way()
        except Exception as error:
            end = type(error).__name__
        may_take(None)
        told[name].append(end)
print(json.dumps(told))
"""


def run(*command: str, data: bytes = b"") -> Any:  # noqa: ANN401 - whatever it prints as JSON
    """What a process prints; threads of its own take no address space beforehand."""
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, *command], input=data, capture_output=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def folded(folder: Path, kind: str, size: int, spare: int, most: str = "") -> Any:  # noqa: ANN401 - as `run`
    where = ("-m", "tests.faults.short_of_memory", str(folder))
    return run(*where, kind, str(size), str(spare), *filter(None, [most]))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("size", "spare"), [(95, 450), (150, 600)])
def test_a_large_append_is_folded_within_what_it_was_said_to_take(
    tmp_path: Path, size: int, spare: int
) -> None:
    outcomes = folded(tmp_path, "append", size, spare)
    assert (outcomes["kind"], outcomes["parked"]) == ("Committed", [])
    assert outcomes["took"] < 3.4 * outcomes["claim"]


@pytest.mark.parametrize("size", [95, 150])
def test_a_claim_that_takes_more_than_it_may_is_refused_before_it_is_decoded(
    tmp_path: Path, size: int
) -> None:
    outcomes = folded(tmp_path, "update", size, 250)
    assert (outcomes["kind"], outcomes["parked"]) == ("Invalid", [])
    assert f"more than the {CLAIM_BYTES} of claim_memory" in outcomes["result"]
    assert "split the transaction" in outcomes["result"]
    assert outcomes["took"] < outcomes["claim"] + 32 * MEGABYTE


@pytest.mark.parametrize("size", [95, 150])
def test_a_claim_for_which_too_little_is_left_waits_while_other_tables_go_on(
    tmp_path: Path, size: int
) -> None:
    outcomes = folded(tmp_path, "update", size, 250, "1000000")
    assert outcomes["kind"] == "parked"
    assert "bytes of memory, and " in outcomes["parked"][0]
    assert "claim_memory lower" in outcomes["parked"][0]
    assert outcomes["took"] < outcomes["claim"] + 32 * MEGABYTE


@pytest.mark.parametrize("kind", ["append", "append unasked"])
def test_a_claim_that_waited_for_memory_is_folded_once_it_is_there(tmp_path: Path, kind: str) -> None:
    outcomes = folded(tmp_path, kind, 24, 40)
    assert outcomes["kind"] == "Committed"
    assert "memory" in outcomes["parked"][0]
    # What an attempt had read is let go of while its table is parked.
    assert outcomes["took"] < 4 * outcomes["claim"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("kind", "result"), [("appends", "Invalid"), ("updates", "Committed")])
def test_a_flood_of_large_proposals_is_decoded_a_few_at_a_time(
    tmp_path: Path, kind: str, result: str
) -> None:
    process = run("-m", "tests.faults.large_flood", str(tmp_path), kind)
    assert process["kinds"] == {result: COUNT_IN_FLOOD}
    # Decoded, each of them takes 10 to 20 megabytes.
    assert process["took"] < 112 * MEGABYTE


def test_a_lack_of_memory_is_never_taken_for_bytes_that_are_no_message() -> None:
    source = "import sys; from tests.faults.short_of_memory import large; "
    write = source + "sys.stdout.buffer.write(large('update', 'memory://t', 4_000_000))"
    data = subprocess.run([sys.executable, "-c", write], capture_output=True, cwd=ROOT, check=True).stdout
    process = run("-c", PARSING, data=data)
    assert set(process["message"]) == {"MemoryError", "Entry"}
    assert set(process["claim"]) == {"MemoryError", "whole"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_near_the_limit_takes_what_its_bytes_say_or_is_not_decoded(kind: str) -> None:
    below, above = run("-m", "tests.faults.many_parts", kind)
    assert (below["kind"], above["kind"]) == ("Committed", "InvalidError")
    assert 0.9 * LIMIT < below["said"] <= LIMIT < above["said"]
    assert MEGABYTE < below["took"] < below["said"]
    # To look at bytes takes a few megabytes besides them.
    assert above["took"] < 16 * MEGABYTE


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_list_of_any_operation_takes_more_than_its_bytes_say(operation: str) -> None:
    process = run("-m", "tests.faults.dense_parts", operation)
    assert {name: each for name, each in process.items() if each["took"] > each["said"]} == {}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_told_from_the_bytes_of_its_proposal(operation: str) -> None:
    envelope = Envelope(table="memory://t")
    getattr(envelope.lance, operation).SetInParent()
    for padding in (0, 3 * PORTION_BYTES):
        envelope.lance.transaction_properties["x"] = "x" * padding
        data = envelope.SerializeToString()
        assert operations_in(content_of(data, Envelope)) == {operation}
        other = "merge" if operation != "merge" else "update"
        joined = Envelope()
        getattr(joined.lance, other).SetInParent()
        both = data + joined.SerializeToString()
        assert operations_in(content_of(both, Envelope)) == {operation, other}
        assert memory_to_fold(content_of(both, Envelope)) >= memory_to_fold(content_of(data, Envelope))


def test_the_fragments_of_an_overwrite_share_one_message() -> None:
    below, _ = run("-m", "tests.faults.many_parts", "overwrite")
    assert below["took"] < 0.8 * below["said"]


def test_what_is_left_is_the_least_that_any_limit_leaves(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    assert memory_left(proc, groups) is None
    write(proc / "meminfo", "MemFree: 1 kB\nMemAvailable:    2000 kB\n")
    assert memory_left(proc, groups) == 2_048_000
    write(proc / "self/cgroup", "0::/pods/one\n")
    write(groups / "pods/one/memory.max", "max\n")
    write(groups / "pods/one/memory.current", "500\n")
    assert memory_left(proc, groups) == 2_048_000
    write(groups / "pods/memory.max", "100000\n")
    write(groups / "pods/memory.current", "70000\n")
    assert memory_left(proc, groups) == 30_000
    write(groups / "pods/memory.stat", "anon 1\ninactive_file 5000\nactive_file 600\n")
    assert memory_left(proc, groups) == 35_600
    write(groups / "pods/memory.current", "200000\n")
    assert memory_left(proc, groups) == 0


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
