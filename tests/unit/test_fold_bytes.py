"""The same entries on the same table give the same bytes, in any process (fold-is-a-function)."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lakefold_committer.fold.fold import FoldInputs
from lakefold_protos.lakefold.log_pb2 import Envelope
from tests.folding import MemoryTable, append, changed, creation, reserve

ROOT = Path(__file__).parents[2]


def proposals() -> list[list[Envelope]]:
    """Groups of all kinds, drawn with a seed of their own."""
    chance = random.Random(5)
    first = creation(stable_row_ids=True)
    first.lance.overwrite.config_upsert_values.update({f"k{number}": "v" for number in range(20)})
    first.lance.overwrite.schema_metadata.update({f"m{number}": b"v" for number in range(20)})
    groups = [[first]]
    for number in range(12):
        group = [
            append(
                f"{number}-{index}", read=chance.randint(1, len(groups)), app=f"app{index % 3}", batch=number
            )
            for index in range(chance.randint(1, 6))
        ]
        group.append(append(f"{number}", fragments=chance.randint(0, 3)))
        group.append(changed(append("bad"), lambda e: setattr(e.lance, "read_version", 999)))
        groups.append(group)
    own = append("own")
    own.lance.transaction_properties.update({f"p{number}": "v" for number in range(20)})
    return [*groups, [own], [reserve(7)], [append("last")]]


def digest() -> str:
    """A hash of every version's path and bytes."""
    table, actual = MemoryTable(), hashlib.sha256()
    for number, group in enumerate(proposals()):
        table.fold(*group, inputs=FoldInputs(1 + number // 5, must_publish=True))
    for path, data in table.files.items():
        actual.update(path.encode())
        actual.update(data)
    return actual.hexdigest()


def test_folding_twice_gives_the_same_bytes() -> None:
    assert digest() == digest()


def test_folding_on_a_table_read_back_gives_the_same_bytes() -> None:
    """What a version leaves out of its file must not decide what the next version is."""
    straight, read_back = MemoryTable(), MemoryTable()
    for group in proposals():
        straight.fold(*group)
        read_back.fold(*group)
        read_back = read_back.reopened()
    assert read_back.files == straight.files


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_another_process_gives_the_same_bytes(seed: str) -> None:
    """In any order of its sets and dictionaries of texts."""
    roots = [".", "protos", "table", "log", "ingest", "committer", "reader"]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in roots),
        "TZ": "Pacific/Kiritimati",
    }
    program = "from tests.unit.test_fold_bytes import digest; print(digest())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest()
