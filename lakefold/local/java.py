"""Finds Java for the broker and Spark, whose own errors don't help if it is missing or too old."""

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
    """Returns the `java` to run: `$JAVA_HOME/bin/java` if that is set, else the first on the PATH.

    Raises `SetupError` if it is missing or older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        message = "java was not found"
        raise SetupError(message, where=f"JAVA_HOME={home}" if home else "PATH", hint=_HINT)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', answer)
    if version is None or int(version[1]) < OLDEST:
        message = f"this java is too old: {answer.strip()}"
        raise SetupError(message, where=java, hint=_HINT)
    return Path(java)
