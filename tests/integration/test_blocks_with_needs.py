"""The blocks of the documents that need what the test of a page doesn't have, as far as they can be tried.

What can't be run is checked in its words: the files, targets, settings and tests that it names exist. A new
block of this kind fails here until `CHECKS` says how it is tried.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

import lakefold
from tests.code_blocks import NEEDS, ROOT, Block, pages
from tests.servers.dynamodb import KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.dynamodb import DynamoServer

pytestmark = pytest.mark.timeout(600)

BLOCKS: Final = [
    (page.name, block) for page in pages() for block in page.blocks if block.text.startswith(NEEDS)
]
INSTALLED: Final = Path(yaml.__file__).parents[1]
"""The packages of this environment, from which those of a block are taken in place of the network."""


def commands(block: Block) -> list[list[str]]:
    """The commands of a shell block as words, without their comments."""
    return [words for line in block.commands() if (words := shlex.split(line, comments=True))]


def run(words: list[str], **variables: str) -> None:
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def is_known_to_this_repository(block: Block, _: Path) -> None:
    """Targets of make are played dry, tests are collected, and programs of the environment are run."""
    for program, *words in commands(block):
        if program == "make":
            run(["make", "--dry-run", *words])
        elif program == ".venv/bin/pytest":
            run([sys.executable, "-m", "pytest", "--collect-only", "-q", *words])
        else:
            assert program == ".venv/bin/python", "no check knows what to do with this command"
            run([sys.executable, *words])


def installs(block: Block, folder: Path) -> None:
    """The block is run in a copy of the clone. Packages come from this environment, not from the network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    clone = folder / "clone"
    for name in packages:
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    here = {"PYTHONPATH": str(INSTALLED), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false"}
    path = f"{Path(sys._base_executable).parent}:{os.environ['PATH']}"  # type: ignore[attr-defined]
    check = "set -e\n" + block.text + "command -v lakefold; cd /; lakefold --version"
    done = subprocess.run(
        ["bash", "-c", check], cwd=clone, env={**os.environ, **here, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    program, release = done.stdout.splitlines()[-2:]
    assert (program, release) == (f"{clone}/.venv/bin/lakefold", f"lakefold {lakefold.__version__}")
    assert list((clone / ".venv").rglob("site-packages/lakefold_reader/__init__.py"))
    extra = re.search(r"\.\[(\w+)\]", block.text)
    assert extra is not None
    assert extra[1] in project["project"]["optional-dependencies"]


def names_files_and_values_of_the_chart(block: Block, _: Path) -> None:
    """`make test-cluster` builds and installs the files. Here they exist, and the values are the chart's."""
    build, install = commands(block)
    assert build[:2] == ["docker", "build"]
    assert install[:2] == ["helm", "install"]
    chart = ROOT / install[3]
    assert (chart / "Chart.yaml").exists()
    values = yaml.safe_load((chart / "values.yaml").read_text())
    for words in (build, install):
        for flag, text in pairwise(words):
            if flag == "-f":
                assert (ROOT / text).is_file(), text
            elif flag == "--set":
                part: Any = values
                for name in text.partition("=")[0].split("."):
                    assert name in part, f"{text}: the chart has no such value"
                    part = part[name]


def makes_the_table_of_versions(words: list[str], dynamodb: DynamoServer) -> None:
    """The command's options become a request to DynamoDB Local, which makes such a table."""
    assert words[:3] == ["aws", "dynamodb", "create-table"]
    options: dict[str, list[str]] = {}
    for word in words[3:]:
        if word.startswith("--"):
            options[word.removeprefix("--")] = []
        else:
            [*options.values()][-1].append(word)
    pairs = {
        name: [dict(part.split("=") for part in text.split(",")) for text in options.pop(name)]
        for name in ("attribute-definitions", "key-schema")
    }
    request: dict[str, Any] = {
        "".join(part.title() for part in name.split("-")): value
        for name, value in {**{name: text for name, [text] in options.items()}, **pairs}.items()
    }
    request["TableName"] += "-of-the-page"
    made = dynamodb.client().create_table(**request)["TableDescription"]
    kinds = {each["AttributeName"]: each["AttributeType"] for each in made["AttributeDefinitions"]}
    assert [(each["AttributeName"], each["KeyType"]) for each in made["KeySchema"]] == [
        (name, kind) for (name, _), kind in zip(KEYS, ("HASH", "RANGE"), strict=True)
    ]
    assert kinds == dict(KEYS)


ELSEWHERE: Final = {
    ("docs/operations/stores.md", "an account of AWS"): "below, on DynamoDB Local",
    ("docs/reference/spark.md", "a Spark session with lakefold[ingest], and a table"): "test_spark_writes.py",
    (
        "docs/reference/spark-writes.md",
        "a Spark session with lakefold[ingest], brokers, and a frame and a stream of events",
    ): "test_spark_writes.py",
}
"""Blocks that are run by tests of their own."""
CHECKS: Final[dict[tuple[str, str], Callable[[Block, Path], None]]] = {
    ("README.md", "Python 3.11 or newer, Java 17 or newer, and make"): is_known_to_this_repository,
    ("CONTRIBUTING.md", "Python 3.11, Java 17 and a quarter of an hour"): is_known_to_this_repository,
    ("tests/README.md", "the environment of `make test`, and some minutes"): is_known_to_this_repository,
    ("tests/README.md", "ten minutes, and hours for the random examples"): is_known_to_this_repository,
    ("docs/tutorial.md", "a clone as the current folder, and the network"): installs,
    (
        "docs/operations/install.md",
        "Docker, a registry, helm and a cluster",
    ): names_files_and_values_of_the_chart,
}


def key_of(page: str, block: Block) -> tuple[str, str]:
    return page, block.text.partition("\n")[0].removeprefix(NEEDS).strip()


def test_each_block_is_tried_by_a_test() -> None:
    assert Counter(key_of(*each) for each in BLOCKS) == Counter([*CHECKS, *ELSEWHERE])


@pytest.mark.parametrize("key", CHECKS, ids=lambda key: f"{key[0]}: {key[1]}")
def test_a_block_works_as_far_as_it_is_tried(key: tuple[str, str], tmp_path: Path) -> None:
    [block] = [block for page, block in BLOCKS if key_of(page, block) == key]
    CHECKS[key](block, tmp_path)


def test_the_command_of_aws_makes_the_table_that_clients_expect(dynamodb: DynamoServer) -> None:
    [block] = [block for page, block in BLOCKS if key_of(page, block)[1] == "an account of AWS"]
    [words] = commands(block)
    makes_the_table_of_versions(words, dynamodb)
