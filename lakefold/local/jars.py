"""Downloads the pinned jars of the Kafka broker and of Spark's Kafka connector once.

pyspark's wheel contains Ivy, so Java is enough and Maven isn't needed. Only the jars in `jars.lock` are
downloaded. The list has the version and hash of each jar, so neither a changed POM nor a bad mirror can add
other code.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.local.ivy import retrieve
from lakefold.local.maven import find_repository
from lakefold.local.pins import Jar, JarSet, pinned_jars
from lakefold.stderr_lines import write_line
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def cache_folder() -> Path:
    """Returns the folder for downloads: `$LAKEFOLD_CACHE`, or `lakefold` in the user's cache folder."""
    chosen = os.environ.get("LAKEFOLD_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefold"


def fetch_jars(name: JarSet) -> list[Path]:
    """Returns the paths of the jars of a set. Downloads them first if a jar is missing or altered.

    If several processes call it at once, a single process downloads and the others wait. Progress is printed
    to stderr. Raises `SetupError` if Java or pyspark is missing, `RetryError` if the repository could not be
    reached or lacks a jar, `DamagedError` if a downloaded jar has another hash than the pinned hash.
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
    """Returns the jars that are missing from `folder` or have another hash there."""
    return [jar for jar in jars if _sha256(folder / jar.file_name) != jar.sha256]


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Holds the folder's lock file. The kernel releases it if the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "fetch.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(name: JarSet, jars: Sequence[Jar], folder: Path) -> None:
    """Downloads to a temporary folder, checks every hash, and renames it: it is complete or missing."""
    repository = find_repository()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch:
        staged = Path(scratch) / "jars"
        write_line(f"downloading {len(jars)} jars ({name}) from {repository.name} into {folder}")
        retrieve(jars, repository, scratch=Path(scratch), cache=cache_folder() / "ivy", into=staged)
        wrong = _unlike(jars, staged)
        if wrong:
            message = "not the pinned jars: " + ", ".join(jar.file_name for jar in wrong)
            hint = "a mirror or a proxy before Maven Central alters them or lacks them; check both"
            raise DamagedError(message, where=repository.name, hint=hint)
        shutil.rmtree(folder, ignore_errors=True)
        staged.rename(folder)
    write_line(f"downloaded and checked {len(jars)} jars ({name})")
