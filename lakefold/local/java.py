"""Finds Java: the broker and Spark run on it, and say little that helps where it is missing or old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lakefold.errors import SetupError

OLDEST = 17
"""The oldest major release of Java that Kafka 4 and Spark 4 run on."""

_HINT = (
    f"install Java {OLDEST} or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it"
)


def find_java() -> Path:
    """Give the `java` to run: `$JAVA_HOME/bin/java` where that is set, else the first one on the PATH.

    Raises `SetupError` where there is none, or where it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        message = "there is no java"
        raise SetupError(message, where=f"JAVA_HOME={home}" if home else "PATH", hint=_HINT)
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', answer)
    if version is None or int(version[1]) < OLDEST:
        message = f"this java is too old: {answer.strip()}"
        raise SetupError(message, where=found, hint=_HINT)
    return Path(found)
