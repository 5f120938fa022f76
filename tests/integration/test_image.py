"""What the Dockerfile does, done in an empty virtual environment: no image is built for the tests.

The files that the Dockerfile copies are copied, its commands are run, and the committer that comes out is
started, asked and stopped as an orchestrator would.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from tests.cluster.verbs import check_verbs
from tests.integration.committers import running_committer
from tests.integration.copies import LoadedCommandLine
from tests.integration.own_log import patient_admin
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import TopicNames

# The first test installs all packages: a minute on an idle machine, and several on a busy one.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the image would have as /lakefold."""
    context, target = tmp_path_factory.mktemp("src"), tmp_path_factory.mktemp("opt") / "lakefold"
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for name in names.split():
            _copy(ROOT / name, context / name)
    joined = re.sub(r"\\\n\s*|--mount=\S+ *", "", DOCKERFILE)
    run = re.findall(r"^RUN (.+)$", joined, re.MULTILINE)
    assert run == [
        "deploy/image/packages.sh /src /lakefold",
        "deploy/image/packages.sh /src /lakefold with-pylance",
        "deploy/image/code.sh /src /lakefold /code",
    ]
    code = tmp_path_factory.mktemp("code")
    names = {"/src": context, "/lakefold": target, "/code": code}
    for command in (run[0], run[2]):
        words = [str(names.get(word, word)) for word in command.split()]
        subprocess.run(words, cwd=context, check=True, env=_environment(PYTHON=sys.executable))
    assert "COPY --from=code /code/lakefold /lakefold" in DOCKERFILE
    shutil.copytree(code / target.relative_to("/"), target, dirs_exist_ok=True)
    return target


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def _environment(**more: str) -> dict[str, str]:
    """The environment of a container, and where packages come from on this machine."""
    kept = (
        "PATH",
        "HOME",
        "TMPDIR",
        "PIP_INDEX_URL",
        "PIP_CERT",
        "SSL_CERT_FILE",
        "HTTPS_PROXY",
        "HTTP_PROXY",
    )
    return {name: os.environ[name] for name in kept if name in os.environ} | more


@pytest.fixture
def committer(image: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A committer of the image whose brokers are unreachable, and the address of its health page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = _environment(
        LAKEFOLD_BOOTSTRAP_SERVERS="127.0.0.1:1",
        LAKEFOLD_ROOTS=tmp_path.as_uri(),
        LAKEFOLD_HTTP_HOST="127.0.0.1",
        LAKEFOLD_HTTP_PORT=str(port),
        PYTHONDONTWRITEBYTECODE="1",
    )
    with subprocess.Popen(
        [image / "bin/lakefold", "committer"], env=settings, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, f"http://127.0.0.1:{port}"
        process.kill()


def _page(address: str) -> tuple[int, str]:
    """Returns status and text of a page; 0 if the port is not open yet."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - an address made here
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_the_image_holds_the_committer_and_no_java_spark_or_pip(image: Path) -> None:
    program = (
        "import importlib.util as u\n"
        "names = 'lakefold lakefold_committer confluent_kafka prometheus_client requests'\n"
        "names += ' pyspark pandas lance pip'\n"
        "print(*[name for name in names.split() if u.find_spec(name)])"
    )
    process = subprocess.run(
        [image / "bin/python", "-c", program], check=True, capture_output=True, text=True, env={}, cwd=image
    )
    assert process.stdout.split() == [
        "lakefold",
        "lakefold_committer",
        "confluent_kafka",
        "prometheus_client",
        # By which OpenTelemetry's exporter sends.
        "requests",
    ]
    assert list(image.rglob("*.jar")) == []


def test_the_image_is_small(image: Path) -> None:
    size = sum(path.lstat().st_size for path in image.rglob("*") if path.is_file() and not path.is_symlink())
    assert size < 350 * 2**20


def test_a_committer_of_the_image_serves_its_health_and_stops_on_a_signal(
    committer: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = committer
    until(lambda: _page(f"{address}/livez")[0] == 200, "the committer's health")
    assert _page(f"{address}/readyz")[0] == 503
    assert "lakefold_ready 0.0" in _page(f"{address}/metrics")[1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    assert process.stdout is not None
    assert "0 versions" in process.stdout.read()


def test_traces_can_be_exported_from_the_image(image: Path) -> None:
    program = (
        "from lakefold_committer.observability.tracing import tracing_from\n"
        "tracing = tracing_from({'OTEL_TRACES_EXPORTER': 'otlp'})\n"
        "tracing.close()\nprint(type(tracing).__name__)"
    )
    process = subprocess.run(
        [image / "bin/python", "-c", program], check=True, capture_output=True, text=True, env={}, cwd=image
    )
    assert process.stdout == "Exporting\n"


def test_every_verb_works_with_the_packages_of_the_image_or_says_what_it_lacks(
    image: Path, bootstrap: str, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    ensure_topics(patient_admin(KafkaConfig(bootstrap)), names, partitions=2)
    root = tmp_path / "lake"
    root.mkdir()
    verbs = LoadedCommandLine(image / "bin/python")
    try:
        with running_committer(bootstrap, topic_names, root) as committer:
            committer.wait_until_ready()
            settings = {
                "BOOTSTRAP_SERVERS": bootstrap,
                "TRANSACTIONS_TOPIC": names.transactions,
                "OUTCOMES_TOPIC": names.outcomes,
                "DEAD_LETTERS_TOPIC": names.dead_letters,
                "GROUP": topic_names.group,
                "ROOTS": root.as_uri(),
            }
            for name, value in settings.items():
                monkeypatch.setenv(f"LAKEFOLD_{name}", value)
            # The image has no Java.
            monkeypatch.setenv("PATH", str(image / "bin"))
            monkeypatch.delenv("JAVA_HOME", raising=False)
            check_verbs(lambda words: verbs.run(words, timeout=200), KafkaConfig(bootstrap), names, root)
    finally:
        verbs.close()
