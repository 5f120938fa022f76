"""Virtual environments of clients that nobody here wrote, an environment for each lock in `locks/`.

What they need doesn't fit into one environment, nor into ours: each pins its own Lance. They are made once,
outside the repository, and again when the lock changes. Every file is checked against its hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

LOCKS: Final = Path(__file__).parent / "locks"
MAKING_SECONDS: Final = 900
PIP: Final = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
    *("--require-hashes", "--no-deps", "--no-build-isolation", "--only-binary", ":all:"),
)


def cache() -> Path:
    """The folder of the environments: below `XDG_CACHE_HOME`, else below `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefold" / "clients"


def python_of(name: str) -> Path:
    """The interpreter of the environment whose lock is `locks/NAME.txt`, which is made if it isn't there.

    What has to be installed before it can be built is in `locks/NAME-build.txt`. Raises
    `CalledProcessError` if pip can't install what the locks name.
    """
    locks = [lock for lock in (LOCKS / f"{name}-build.txt", LOCKS / f"{name}.txt") if lock.exists()]
    mark = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks) + sys.version.encode()).hexdigest()[
        :16
    ]
    home = cache() / f"{name}-{mark}"
    python, done = home / "bin" / "python", home / "complete"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(home, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(home))
            for lock in locks:
                _run(str(python), *PIP, "--requirement", str(lock))
            done.touch()
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=MAKING_SECONDS)
