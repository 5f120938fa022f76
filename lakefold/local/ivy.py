"""Runs the Ivy that Spark's wheel carries, so that jars can be fetched where there is Java but no Maven."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lakefold.errors import SetupError
from lakefold.local.java import find_java
from lakefold.local.maven import Repository, ivy_settings, proxy_options
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.local.pins import Jar


def retrieve(jars: Sequence[Jar], repository: Repository, *, scratch: Path, cache: Path, into: Path) -> None:
    """Fetch exactly these jars from `repository` into the folder `into`; the caller checks their hashes.

    `scratch` takes Ivy's own input files. `cache` keeps what a broken fetch has brought, for the next
    attempt; it is removed after a whole one. Raises `SetupError` where Java or pyspark is missing,
    `RetryError` where the repository could not be reached or lacks a jar.
    """
    java, ivy = find_java(), _ivy_jar()
    settings, module = scratch / "ivysettings.xml", scratch / "ivy.xml"
    settings.touch(mode=0o600)
    settings.write_text(ivy_settings(repository))
    module.write_text(_module(jars))
    command = [java, *proxy_options(), f"-Divy.default.ivy.user.dir={cache}", "-jar", ivy]
    command += ["-settings", settings, "-ivy", module, "-types", "jar", "bundle", "-verbose"]
    command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    failed, said = _run([str(part) for part in command], total=len(jars))
    if failed:
        raise _failure(said, repository)
    shutil.rmtree(cache, ignore_errors=True)


def _ivy_jar() -> Path:
    """Give the path of Ivy in pyspark's folder, without importing pyspark."""
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        message = "the jars are fetched with the Ivy that pyspark carries, and pyspark is not installed"
        raise SetupError(message, hint="pip install 'lakefold[ingest]'")
    return found[-1]


def _module(jars: Sequence[Jar]) -> str:
    """Give the text of an Ivy module that needs exactly these jars: nothing is resolved beyond them."""
    root = ET.Element("ivy-module", {"version": "2.0"})
    ET.SubElement(root, "info", {"organisation": "lakefold", "module": "local"})
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", {"name": "default"})
    needs = ET.SubElement(root, "dependencies")
    for jar in jars:
        name = {"org": jar.group, "name": jar.artifact, "rev": jar.revision}
        ET.SubElement(needs, "dependency", {**name, "conf": "default->default", "transitive": "false"})
    return ET.tostring(root, encoding="unicode")


def _run(command: list[str], *, total: int) -> tuple[bool, list[str]]:
    """Run Ivy and show its progress; give whether it failed and the lines it printed."""
    said, counts = [], {"found": 0, "downloading": 0}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            said.append(line.strip())
            if step := re.match(r"(found|downloading) (\S+)", said[-1]):
                counts[step[1]] += 1
                _show(f"{step[1]} {counts[step[1]]} of {total}: {re.split('[/#]', step[2])[-1]}")
    _show("")
    return process.returncode != 0, said


def _failure(said: Sequence[str], repository: Repository) -> RetryError:
    """Give the error for a failed run, with what Ivy itself said, each line once."""
    missing = re.compile(r"(?:ERROR:|WARN:\s+(?=module not found))\s*(.*)")
    told = list(dict.fromkeys(found[1] for line in said if (found := missing.match(line))))
    message = "the jars could not be fetched: " + "; ".join(told[:3] or said[-3:])
    hint = "is the machine online? A mirror is read from ~/.m2/settings.xml, a proxy from https_proxy"
    return RetryError(message, where=repository.name, hint=hint)


def _show(text: str) -> None:
    """Keep one line of the terminal up to date; a file or a pipe gets none of it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K  {text}" if text else "\r\x1b[K")
        sys.stderr.flush()
