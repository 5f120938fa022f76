"""What the checks of deploy/ read: documents of manifests, and the words inside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GOLDEN = sorted((ROOT / "tests/deploy/golden").glob("*.yaml"))
BASE = DEPLOY / "kustomize/base"
TABLES = DEPLOY / "kustomize/tables"

Manifest = dict[str, Any]


def load(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """The only document of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def manifests(path: Path) -> list[Manifest]:
    """Every manifest in a file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def kustomized() -> list[Manifest]:
    """The manifests of the kustomize base and of the tables' claim, as their kustomizations list them."""
    return [*listed_by(TABLES), *listed_by(BASE)]


def listed_by(folder: Path) -> list[Manifest]:
    """The manifests that the kustomization in a folder lists."""
    names = load(folder / "kustomization.yaml")["resources"]
    return [each for name in names for each in manifests(folder / name)]


def of_kind(documents: list[Manifest], kind: str) -> list[Manifest]:
    """Those of this kind."""
    return [each for each in documents if each["kind"] == kind]


def committers_of(documents: list[Manifest]) -> list[Manifest]:
    """What runs committers: deployments, and sets whose pods are counted."""
    workloads = [*of_kind(documents, "Deployment"), *of_kind(documents, "StatefulSet")]
    return [each for each in workloads if _component_of(each) == "committer"]


def maintainers_of(documents: list[Manifest]) -> list[Manifest]:
    """What runs `lakefold maintain`."""
    return [each for each in of_kind(documents, "Deployment") if _component_of(each) == "maintainer"]


def service_of(documents: list[Manifest]) -> Manifest:
    """The service of the committers."""
    services = of_kind(documents, "Service")
    (own,) = [each for each in services if not each["metadata"]["name"].endswith("-maintainer")]
    return own


def _component_of(workload: Manifest) -> str:
    return str(workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"])


def pod_of(deployment: Manifest) -> Manifest:
    """The specification of the pods of a deployment or a set."""
    pod: Manifest = deployment["spec"]["template"]["spec"]
    return pod


def texts(value: object) -> Iterator[str]:
    """Every text anywhere in a document."""
    if isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value
