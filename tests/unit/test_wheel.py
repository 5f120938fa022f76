"""The wheel has what a user needs, and `pip install` of it installs nothing that only developers need."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import lakefold
from lakefold.web.site import ASSETS

ROOT = Path(__file__).parents[2]
DEVELOPERS = {"pytest", "ruff", "mypy", "mkdocs-material", "mermaidx", "grpcio-tools", "hypothesis"}
SPARK = {"pyspark", "pandas"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built by the backend of the lock as pip builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    program = f"import hatchling.build; print(hatchling.build.build_wheel({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)
    [file] = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def requirements(wheel: zipfile.ZipFile, extra: str) -> set[str]:
    """The packages that are required with an extra alone; "" is the plain package."""
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []
    chosen = [line for line in lines if (f"extra == '{extra}'" in line if extra else "extra ==" not in line)]
    return {match[0] for line in chosen if (match := re.match(r"[\w-]+", line))}


def test_the_wheel_has_the_packages_and_the_files_of_the_console(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {f"lakefold/web/assets/{name}" for name in ASSETS} <= names
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    parts = ("protos", "table", "log", "ingest", "committer", "reader", "maintenance")
    packages = {"lakefold", *(f"lakefold_{part}" for part in parts)}
    assert tops == {*packages, "pyspark_lakefold"}
    assert {f"{package}/py.typed" for package in packages} <= names


def test_the_plain_package_needs_no_tools_and_no_spark(wheel: zipfile.ZipFile) -> None:
    plain = requirements(wheel, "")
    assert not plain & (DEVELOPERS | SPARK | {"pylance"})
    assert "pylance" in requirements(wheel, "lance") & requirements(wheel, "ingest")
    assert requirements(wheel, "dev") >= DEVELOPERS
    assert requirements(wheel, "ingest") >= SPARK


def test_the_release_is_that_of_the_project() -> None:
    assert lakefold.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
