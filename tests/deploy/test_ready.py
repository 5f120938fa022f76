"""What `helm test` runs: it asks each committer behind a service whether it is ready."""

from __future__ import annotations

import runpy
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_committer.observability.health import HealthServer
from lakefold_committer.observability.metrics import Metrics
from tests.deploy.manifests import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = DEPLOY / "helm/lakefold/files/ready.py"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The script with these arguments; it doesn't wait."""
    program: dict[str, Any] = runpy.run_path(str(SCRIPT))
    program["main"].__globals__["PATIENCE_S"] = 0.0

    def main(*arguments: object) -> int:
        monkeypatch.setattr("sys.argv", ["ready.py", *map(str, arguments)])
        code: int = program["main"]()
        return code

    return main


@pytest.mark.parametrize(
    ("trouble", "replicas", "code", "text"),
    [
        ("", 1, 0, "127.0.0.1: ready\n1 of 1 committers are ready\n"),
        ("the broker is not reachable", 1, 1, "127.0.0.1: the broker is not reachable\n0 of 1 "),
        ("", 2, 1, "127.0.0.1: ready\n1 of 2 committers are ready\n"),
    ],
)
def test_it_succeeds_if_every_committer_is_there_and_ready(
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    trouble: str,
    replicas: int,
    code: int,
    text: str,
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(
            HealthServer("127.0.0.1", 0, Metrics(), lambda: trouble, lambda: "ready")
        )
        assert run("127.0.0.1", server.port, replicas) == code
    assert capsys.readouterr().out.startswith(text)


def test_a_service_without_pods_is_not_ready(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("no-such-service.invalid", 8080, 2) == 1
    assert capsys.readouterr().out == "0 of 2 committers are ready\n"
