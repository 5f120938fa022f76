"""Programs that tests start beside themselves: they put objects in a race, or until they are killed.

`race ROOT WRITER ROUNDS`: waits for a line, then puts `v/0`, `v/1`, …; prints the numbers it has won as JSON.
`die ROOT named|unnamed KILLS SEED`: starts one putting child after another and kills each at a random moment;
prints the names that were reported as stored, as JSON. The children come by fork, which is cheap here,
because nothing but the store is loaded.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import zlib

from lakefold_table.storage.base import Put
from lakefold_table.storage.local import LocalStorage

LONGEST_LIFE_SECONDS = 0.02


def content_of(name: str) -> list[bytes]:
    """The buffers that belong to a name: some kilobytes up to 400, different for each name."""
    random_bytes = random.Random(zlib.crc32(name.encode()))
    return [name.encode(), *(random_bytes.randbytes(2_000) for _ in range(random_bytes.randrange(1, 200)))]


def race(root: str, writer: str, rounds: int) -> None:
    """Put the same names as all the others do."""
    store = LocalStorage(root)
    print("ready", flush=True)  # noqa: T201 - the test waits for it
    sys.stdin.readline()
    buffers = [writer.encode(), b"." * 10_000, writer.encode()]
    won = [number for number in range(rounds) if store.put_if_absent(f"v/{number}", buffers) is Put.STORED]
    json.dump(won, sys.stdout)


def die(root: str, mode: str, kills: int, seed: int) -> None:
    """Let children put objects of known content, and kill each in the middle of it."""
    moments = random.Random(seed)
    reported = b""
    for child in range(kills):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                put_for_ever(root, mode, f"{child}", writing)
            finally:
                os._exit(1)
        os.close(writing)
        if child % 2:
            # Half of them come as far as their first report, the others may die before their first file.
            reported += os.read(reading, 1 << 16)
        select.select([], [], [], moments.uniform(0.001, LONGEST_LIFE_SECONDS))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while more := os.read(reading, 1 << 16):
            reported += more
        os.close(reading)
    json.dump(reported.decode().split(), sys.stdout)


def put_for_ever(root: str, mode: str, prefix: str, reports: int) -> None:
    """Put object after object, and report each once it is said to be stored."""
    store = LocalStorage(root, unnamed=mode == "unnamed")
    number = 0
    while True:
        name = f"v/{prefix}-{number}"
        if store.put_if_absent(name, content_of(name)) is Put.STORED:
            os.write(reports, f"{name}\n".encode())
        number += 1


if __name__ == "__main__":
    if sys.argv[1] == "race":
        race(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        die(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
