"""An archive of classes, with which Java starts in half the time.

Most of a start of Java is reading classes out of jars. Java can write the classes that it has loaded to a
file when it ends, and map that file at the next start (class data sharing). An archive is usable for one
release of Java and one class path.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one program.

    `folder`: where archives are kept. `program`: the name of the program, in the archive's name. `jars`: what
    identifies its jars. `write`: runs the program with an option of Java, with some work that loads the
    classes. Returns whether it ended well, after which the archive is whole.
    """

    java: Path
    folder: Path
    program: str
    jars: str
    write: Callable[[str], bool]

    def options(self) -> tuple[str, ...]:
        """Returns the options of Java that use the archive, which is made first if it is missing.

        Returns none if the archive could not be made.
        """
        archive = self._path()
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{self.program}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unfinished = archive.with_suffix(".unfinished")
            if not archive.exists() and self.write(f"-XX:ArchiveClassesAtExit={unfinished}"):
                unfinished.rename(archive)
        return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()

    def _path(self) -> Path:
        release = subprocess.run([self.java, "-version"], capture_output=True, check=True).stderr
        key = hashlib.sha256(release + self.jars.encode()).hexdigest()[:12]
        return self.folder / f"{self.program}-{key}.jsa"
