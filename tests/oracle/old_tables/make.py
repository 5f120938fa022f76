"""Makes the tables of old releases again: `.venv/bin/python -m tests.oracle.old_tables.make`.

Each release comes from the registry, in an environment of its own (`tests/clients/locks/`). The archives are
kept in the repository, so that the tests run without those releases.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.clients.environments import python_of

HERE: Final = Path(__file__).parent
RELEASES: Final = ("0.3.19", "0.8.0", "0.8.14", "0.8.15", "0.10.18", "0.17.0", "0.36.0", "1.0.4", "13.0.0")
"""The oldest that installs on Python 3.11; one that counted rows and didn't name itself; the last one before
index bitmaps could be trusted, and the first one since; others."""


def archive(release: str) -> Path:
    """Returns the path of a release's table."""
    return HERE / f"pylance-{release}.tar.gz"


def main() -> None:
    """Make all of them, or those that are named."""
    for release in sys.argv[1:] or RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "t.lance"
            python = python_of(f"pylance-{release}")
            subprocess.run([str(python), str(HERE / "old_table.py"), str(table)], check=True)
            with tarfile.open(archive(release), "w:gz") as tar:
                tar.add(table, "t.lance", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
