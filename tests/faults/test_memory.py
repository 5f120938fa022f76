"""Short of memory: a claim takes no more than it may, is never Invalid for want of it, and others go on.

Promise: claims-fit (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from lakefold_committer.claims.claim_check import CLAIM_BYTES
from lakefold_committer.claims.memory_budget import memory_left
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.expansion import PORTION_BYTES, content_of
from lakefold_table.lance.manifests.memory_cost import memory_to_fold, operations_in
from tests.faults.dense_parts import OPERATIONS
from tests.faults.large_flood import COUNT as COUNT_IN_FLOOD
from tests.faults.many_parts import KINDS, LIMIT
from tests.faults.preloaded import Preloaded
from tests.faults.short_of_memory import large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Program: TypeAlias = "Callable[..., Any]"
ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000
DELTA_TIMES = 30
"""How many times its size a claim on a Delta table is said to take. It takes ten times its size."""
CLAIMS = {
    "fitting": [
        ("append", 32, 160),
        ("delta", 4, 150),
        ("append", 48, 230),
        ("append", 95, 450),
        ("append", 150, 600),
        ("delta", 16, 520),
    ],
    "excessive": [
        ("update", 12, 60),
        ("update", 24, 100),
        ("delta", 18, 60),
        ("update", 95, 250),
        ("update", 150, 250),
        ("delta", 60, 160),
    ],
    "beyond_what_is_left": [
        ("update", 12, 60),
        ("delta", 4, 60),
        ("update", 24, 100),
        ("update", 95, 250),
        ("update", 150, 250),
    ],
}
SHORT = {"fitting": 2, "excessive": 3, "beyond_what_is_left": 3}
"""How many of the claims are played without `--all-faults`."""
PARSING = """
# Parses what its standard input holds under ever looser limits, and prints how each attempt ended.
import json, resource, sys
from lakefold_log.codec.envelope import decode, parse_large, parsed
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.position import LogId, Position
from lakefold_table.lance.manifests.codec import _parsed
from tests.faults.short_of_memory import large, may_take

data = sys.stdin.buffer.read()
position = Position(LogId("cluster", "topic", 0), 0)
decoders = {
    "message": lambda: type(decode(data, b"memory://t", position, 0)).__name__,
    "claim": lambda: "packed" if parse_large(data) else parsed(data) and "whole",
}
ends = {name: [] for name in decoders}
for spare in range(1, 40):
    for name, decoder in decoders.items():
        may_take(spare * 250_000)
        try:
            end = decoder()
        except Exception as error:
            end = type(error).__name__
        may_take(None)
        ends[name].append(end)
print(json.dumps(ends))
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A kind of claims, the size of one and how much more memory may be taken, in megabytes.

    There are larger ones in a long run.
    """
    is_long = metafunc.config.getoption("--all-faults")
    for name, claims in CLAIMS.items():
        if name in metafunc.fixturenames:
            chosen = claims if is_long else claims[: SHORT[name]]
            metafunc.parametrize(name, chosen, ids=[f"{kind}-{size}" for kind, size, _ in chosen])


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded() as process:
        yield process


@pytest.fixture
def folded(preloaded: Preloaded, tmp_path: Path) -> Program:
    return partial(preloaded.run, "short_of_memory", str(tmp_path))


def test_a_large_append_is_folded_within_what_it_was_said_to_take(
    folded: Program, fitting: tuple[str, int, int]
) -> None:
    outcomes = folded(*map(str, fitting))
    assert (outcomes["kind"], outcomes["parked"]) == ("Committed", [])
    took = outcomes["took"] / outcomes["claim"]
    if fitting[0] == "delta":
        assert DELTA_TIMES / 4 < took < DELTA_TIMES
    else:
        assert took < 3.4


def test_a_claim_that_takes_more_than_it_may_is_refused_before_it_is_decoded(
    folded: Program, excessive: tuple[str, int, int]
) -> None:
    outcomes = folded(*map(str, excessive))
    assert (outcomes["kind"], outcomes["parked"]) == ("Invalid", [])
    assert f"more than the {CLAIM_BYTES} of claim_memory" in outcomes["result"]
    assert "split the transaction" in outcomes["result"]
    assert outcomes["took"] < outcomes["claim"] + 16 * MEGABYTE


def test_a_claim_for_which_too_little_is_left_waits_while_other_tables_go_on(
    folded: Program, beyond_what_is_left: tuple[str, int, int]
) -> None:
    outcomes = folded(*map(str, beyond_what_is_left), "1000000")
    assert outcomes["kind"] == "parked"
    assert "bytes of memory, and " in outcomes["parked"][0]
    assert "claim_memory lower" in outcomes["parked"][0]
    assert outcomes["took"] < outcomes["claim"] + 16 * MEGABYTE


@pytest.mark.parametrize(
    ("kind", "size", "spare", "times"),
    [("append", 24, 40, 4), ("append unasked", 24, 40, 4), ("delta", 4, 20, DELTA_TIMES)],
)
def test_a_claim_that_waited_for_memory_is_folded_once_it_is_available(
    folded: Program, kind: str, size: int, spare: int, times: int
) -> None:
    outcomes = folded(kind, str(size), str(spare))
    assert outcomes["kind"] == "Committed"
    reason = outcomes["parked"][0]
    assert "memory" in reason
    # What an attempt had read is let go of while its table is parked.
    assert times / 4 < outcomes["took"] / outcomes["claim"] < times
    if kind == "delta":
        said = int(reason.partition("a claim takes about ")[2].split()[0])
        assert round(said / outcomes["claim"]) == DELTA_TIMES


@pytest.mark.parametrize(("kind", "result"), [("appends", "Invalid"), ("updates", "Committed")])
def test_a_flood_of_large_proposals_is_decoded_a_few_at_a_time(
    preloaded: Preloaded, tmp_path: Path, kind: str, result: str
) -> None:
    process = preloaded.run("large_flood", str(tmp_path), kind)
    assert process["kinds"] == {result: COUNT_IN_FLOOD}
    # Decoded, each of them takes 5 to 10 megabytes.
    assert process["took"] < 72 * MEGABYTE


def test_a_lack_of_memory_is_never_mistaken_for_bytes_that_are_no_message() -> None:
    data = large("update", "memory://t", 1_000_000)
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", PARSING],
        input=data,
        capture_output=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    process = json.loads(ended.stdout)
    assert set(process["message"]) == {"MemoryError", "Entry"}
    assert set(process["claim"]) == {"MemoryError", "whole"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_near_the_limit_takes_what_its_bytes_say_or_is_not_decoded(
    preloaded: Preloaded, kind: str
) -> None:
    below, above = preloaded.run("many_parts", kind)
    assert (below["kind"], above["kind"]) == ("Committed", "InvalidError")
    assert 0.9 * LIMIT < below["said"] <= LIMIT < above["said"]
    assert MEGABYTE < below["took"] < below["said"]
    if kind == "overwrite":
        assert below["took"] < 0.9 * below["said"], "its fragments share one message"
    # To look at bytes takes a few megabytes besides them.
    assert above["took"] < 16 * MEGABYTE


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_list_of_any_operation_takes_more_than_its_bytes_say(preloaded: Preloaded, operation: str) -> None:
    process = preloaded.run("dense_parts", operation)
    assert {name: each for name, each in process.items() if each["took"] > each["said"]} == {}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_recognised_by_the_bytes_of_its_proposal(operation: str) -> None:
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
