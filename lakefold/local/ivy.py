"""Downloads jars with the Ivy in pyspark's wheel, so that Java is needed but not Maven."""

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
from lakefold.stderr_lines import only_json
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.local.pins import Jar


def retrieve(jars: Sequence[Jar], repository: Repository, *, scratch: Path, cache: Path, into: Path) -> None:
    """Downloads exactly these jars from `repository` into the folder `into`. The caller checks their hashes.

    `scratch` is for Ivy's own input files. `cache` keeps the files of an interrupted download for the next
    attempt, and is removed after a complete attempt. Raises `SetupError` if Java or pyspark is missing,
    `RetryError` if the repository could not be reached or lacks a jar.
    """
    java, ivy = find_java(), _ivy_jar()
    settings, module = scratch / "ivysettings.xml", scratch / "ivy.xml"
    settings.touch(mode=0o600)
    settings.write_text(ivy_settings(repository))
    module.write_text(_module(jars))
    command = [java, *proxy_options(), f"-Divy.default.ivy.user.dir={cache}", "-jar", ivy]
    command += ["-settings", settings, "-ivy", module, "-types", "jar", "bundle", "-verbose"]
    command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    failed, output = _run([str(part) for part in command], total=len(jars))
    if failed:
        raise _failure(output, repository)
    shutil.rmtree(cache, ignore_errors=True)


def _ivy_jar() -> Path:
    """Returns the path of Ivy in pyspark's folder, without importing pyspark."""
    spec = find_spec("pyspark")
    paths = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not paths:
        message = "the jars are downloaded with the Ivy in pyspark, but pyspark is not installed"
        raise SetupError(message, hint="pip install 'lakefold[ingest]'")
    return paths[-1]


def _module(jars: Sequence[Jar]) -> str:
    """Returns the text of an Ivy module that needs exactly these jars, without their dependencies."""
    root = ET.Element("ivy-module", {"version": "2.0"})
    ET.SubElement(root, "info", {"organisation": "lakefold", "module": "local"})
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", {"name": "default"})
    needs = ET.SubElement(root, "dependencies")
    for jar in jars:
        name = {"org": jar.group, "name": jar.artifact, "rev": jar.revision}
        ET.SubElement(needs, "dependency", {**name, "conf": "default->default", "transitive": "false"})
    return ET.tostring(root, encoding="unicode")


def _run(command: list[str], *, total: int) -> tuple[bool, list[str]]:
    """Runs Ivy and shows its progress. Returns whether it failed, and the lines it printed."""
    output, counts = [], {"found": 0, "downloading": 0}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            output.append(line.strip())
            if step := re.match(r"(found|downloading) (\S+)", output[-1]):
                counts[step[1]] += 1
                _show(f"{step[1]} {counts[step[1]]} of {total}: {re.split('[/#]', step[2])[-1]}")
    _show("")
    return process.returncode != 0, output


def _failure(output: Sequence[str], repository: Repository) -> RetryError:
    """Returns the error for a failed run, with Ivy's own messages, each of them once."""
    missing = re.compile(r"(?:ERROR:|WARN:\s+(?=module not found))\s*(.*)")
    errors = list(dict.fromkeys(match[1] for line in output if (match := missing.match(line))))
    message = "the jars could not be downloaded: " + "; ".join(errors[:3] or output[-3:])
    hint = "check the network; a mirror is read from ~/.m2/settings.xml, a proxy from https_proxy"
    return RetryError(message, where=repository.name, hint=hint)


def _show(text: str) -> None:
    """Replaces the last line of a terminal. Prints nothing to a file or a pipe."""
    if sys.stderr.isatty() and not only_json():
        sys.stderr.write(f"\r\x1b[K  {text}" if text else "\r\x1b[K")
        sys.stderr.flush()
