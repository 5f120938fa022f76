"""Brings the pinned jars of the Kafka broker and of Spark's Kafka connector onto this machine, once.

Java people would ask for Maven; a Python user may not have it. Spark's wheel carries Ivy, so Java is enough.
What is fetched is the list in `jars.lock` and nothing else: every jar is named with its version and hash, so
neither a changed POM nor a bad mirror can bring other code onto the machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.local.ivy import retrieve
from lakefold.local.maven import find_repository
from lakefold.local.pins import pinned_jars
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold.local.pins import Jar, JarSet


def cache_folder() -> Path:
    """Give the folder of fetched files: `$LAKEFOLD_CACHE`, else `lakefold` in the user's cache folder."""
    chosen = os.environ.get("LAKEFOLD_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefold"


def fetch_jars(name: JarSet) -> list[Path]:
    """Give the paths of the jars of a set; fetch them first where they are missing or altered.

    Safe when several processes call it at once: one fetches, the others wait for it. Progress goes to stderr.
    Raises `SetupError` where Java or pyspark is missing, `RetryError` where the repository could not be
    reached or lacks a jar, `DamagedError` where what it gave has another hash than the pinned one.
    """
    jars = pinned_jars(name)
    pins = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    folder = cache_folder() / "jars" / f"{name}-{pins[:12]}"
    if _unlike(jars, folder):
        with _one_at_a_time(cache_folder()):
            if _unlike(jars, folder):
                _fetch(name, jars, folder)
    return [folder / jar.file_name for jar in jars]


def _unlike(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """Give the jars that are missing from `folder` or have another hash there."""
    return [jar for jar in jars if _sha256(folder / jar.file_name) != jar.sha256]


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the folder's lock file; the kernel lets go of it when the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "fetch.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(name: JarSet, jars: Sequence[Jar], folder: Path) -> None:
    """Fetch beside the final folder, check every hash, then rename: the folder is whole or absent."""
    repository = find_repository()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch:
        staged = Path(scratch) / "jars"
        _say(f"fetching {len(jars)} jars ({name}) from {repository.name} into {folder}\n")
        retrieve(jars, repository, scratch=Path(scratch), cache=cache_folder() / "ivy", into=staged)
        wrong = _unlike(jars, staged)
        if wrong:
            message = "not the pinned jars: " + ", ".join(jar.file_name for jar in wrong)
            hint = (
                "something between here and Maven Central alters or lacks them: look at the mirror, the proxy"
            )
            raise DamagedError(message, where=repository.name, hint=hint)
        shutil.rmtree(folder, ignore_errors=True)
        staged.rename(folder)
    _say(f"fetched and checked {len(jars)} jars ({name})\n")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
