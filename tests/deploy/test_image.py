"""The Dockerfile, the compose file, the image's part of the lock: what reading them shows."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from deploy.image.pins import asked_for, canonical, part_of
from lakefold.cli import VERBS
from lakefold.local.pins import pinned_jars
from tests.cluster.verbs import LACKING, WORKING
from tests.deploy.manifests import DEPLOY, ROOT, load

DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXAMPLES = sorted((DEPLOY / "helm/examples").glob("*.yaml"))
COPIED = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)


def names(part: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", part, re.MULTILINE))


def test_the_image_takes_what_the_committer_asks_for_and_neither_spark_nor_checks() -> None:
    taken = names(part_of(LOCK, asked_for(PROJECT, "committer", "otel", "s3", "objects")))
    asked = [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["kafka"],
        *PROJECT["optional-dependencies"]["committer"],
        *PROJECT["optional-dependencies"]["otel"],
        *PROJECT["optional-dependencies"]["s3"],
        *PROJECT["optional-dependencies"]["objects"],
    ]
    direct = {canonical(Requirement(each).name) for each in asked} - {"lakefold"}
    assert direct <= taken
    assert (
        taken & {"pyspark", "pandas", "py4j", "pytest", "mypy", "duckdb", "pylance", "lance-namespace"}
        == set()
    )
    assert len(taken) < 45


def test_every_pin_that_is_taken_keeps_its_hashes() -> None:
    part = part_of(LOCK, asked_for(PROJECT, "committer"))
    assert part.count("==") == len(re.findall(r"==[^\n]*\\\n +--hash=sha256:[0-9a-f]{64}", part))
    assert all(line in LOCK for line in part.splitlines())


def test_a_package_is_followed_to_those_that_require_it() -> None:
    lock = "".join(
        f"{name}==1 \\\n    --hash=sha256:{'0' * 64}\n{via}"
        for name, via in {
            "root": "    # via lakefold (pyproject.toml)\n",
            "near": "    # via\n    #   other\n    #   root\n",
            "far": "    # via near\n",
            "other": "    # via lakefold (pyproject.toml)\n",
        }.items()
    )
    assert names(part_of(lock, {"root"})) == {"root", "near", "far"}
    with pytest.raises(ValueError, match="absent"):
        part_of(lock, {"root", "absent"})


def test_an_extra_brings_the_extras_it_names() -> None:
    project = {
        "name": "P.q",
        "dependencies": ["a>=1"],
        "optional-dependencies": {"x": ["p-q[y]", "B_c"], "y": ["d[e]; python_version > '3'"]},
    }
    assert asked_for(project, "x") == {"a", "b-c", "d"}
    assert asked_for(project, "y", "x") == {"a", "b-c", "d"}
    assert asked_for(project, "y") == {"a", "d"}


def test_the_image_copies_what_exists_and_nothing_else() -> None:
    copied = " ".join(COPIED.findall(DOCKERFILE)).split()
    let_in = re.findall(
        r"^!([^/\n]+(?:/image)?)", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE
    )
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert sorted(path.removeprefix("./") for path in copied) == sorted(let_in)


def test_a_change_of_the_code_leaves_the_layers_of_the_packages_as_they_are() -> None:
    before = DOCKERFILE[: DOCKERFILE.index("\nFROM packages AS code")]
    assert " ".join(COPIED.findall(before)).split() == [
        "pyproject.toml",
        "requirements.lock",
        "deploy/image",
    ]
    # The code is a layer of its own in each image, above the packages.
    for image in re.split(r"^FROM run AS ", DOCKERFILE, flags=re.MULTILINE)[1:]:
        assert [line.split("=")[1].split()[0] for line in re.findall(r"^COPY .+$", image, re.MULTILINE)] in (
            ["packages", "code"],
            ["packages-with-pylance", "code"],
        )


def test_every_package_of_the_wheel_is_copied() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    packages = {path.split("/")[0] for path in build["targets"]["wheel"]["packages"]}
    assert packages <= set(" ".join(COPIED.findall(DOCKERFILE)).split())


def test_the_image_runs_as_nobody_in_particular_and_without_java() -> None:
    last = DOCKERFILE[DOCKERFILE.index("\nFROM ${BASE} AS run") :]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user
    assert int(user[1]) > 0
    assert "RUN" not in last
    # Both images are made of it; the committer's is the last, which is built if no target is named.
    assert re.findall(r"^FROM run AS (\S+)$", last, re.MULTILINE) == ["maintainer", "committer"]
    # Outside of a container the port is served on loopback only.
    assert "LAKEFOLD_HTTP_HOST=0.0.0.0" in last
    assert not re.search(r"apt-get|java|jre|jdk|curl|wget", DOCKERFILE, re.IGNORECASE)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        (["--builtin-schema", "vendor.compose-spec"], ["compose/compose.yaml"]),
        (
            ["--schemafile", str(DEPLOY / "helm/lakefold/values.schema.json")],
            ["helm/lakefold/values.yaml", *(f"helm/examples/{each.name}" for each in EXAMPLES)],
        ),
    ],
    ids=["compose", "values"],
)
def test_files_meet_their_schemas(schema: list[str], files: list[str]) -> None:
    names = [sys.executable, "-m", "check_jsonschema", *schema, *(str(DEPLOY / each) for each in files)]
    checked = subprocess.run(names, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pip_gets_another_index_and_certificate_by_files_that_are_not_kept() -> None:
    mounts = dict(re.findall(r"--mount=type=secret,id=(\S+),target=(\S+)", DOCKERFILE))
    assert mounts == {"pip.conf": "/etc/pip.conf", "ca.crt": "/run/secrets/ca.crt"}
    heading = DOCKERFILE[: DOCKERFILE.index("ARG BASE")]
    assert all(f"--secret id={name},src=" in heading for name in mounts)
    assert f"`cert = {mounts['ca.crt']}`" in heading


def test_compose_runs_the_image_as_carefully_as_kubernetes_does() -> None:
    services = load(DEPLOY / "compose/compose.yaml")["services"]
    committer = services["committer"]
    assert committer["build"]["dockerfile"] == "deploy/Dockerfile"
    assert (DEPLOY / "compose" / committer["build"]["context"]).resolve() == ROOT
    assert committer["read_only"] is True
    assert committer["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each["ports"])
    inside = committer["environment"]["LAKEFOLD_BOOTSTRAP_SERVERS"]
    assert f"INSIDE://{inside}" in services["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_compose_runs_the_broker_that_everything_else_is_tried_with() -> None:
    image = load(DEPLOY / "compose/compose.yaml")["services"]["broker"]["image"]
    brokers = [jar.revision for jar in pinned_jars("broker") if jar.artifact == "kafka_2.13"]
    assert brokers == [image.rpartition(":")[2]]


def test_each_verb_is_run_in_the_image_by_the_test_of_the_cluster() -> None:
    assert WORKING.keys() & LACKING.keys() == set()
    # These two serve until they are stopped.
    assert VERBS.keys() - WORKING.keys() - LACKING.keys() == {"committer", "console"}
