"""Renders the chart by a real helm, so that the checks can hold what comes out where there is no helm.

`tests/deploy/golden/` holds the chart's output for each file of values in `deploy/helm/examples/`. The first
line of each says from what it was rendered. A test counts that again, so nobody can change the chart and
forget this program. The chart's copies of the alert rules and of the dashboard are written here too.

    python deploy/helm/render.py          # needs helm 3 on the PATH
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/lakefold"
EXAMPLES = ROOT / "deploy/helm/examples"
GOLDEN = ROOT / "tests/deploy/golden"
COPIES = {
    ROOT / "deploy/alerts/lakefold.yaml": CHART / "files/alerts.yaml",
    ROOT / "deploy/dashboards/lakefold.json": CHART / "files/dashboard.json",
}
"""What the chart carries a copy of: helm reads nothing outside a chart."""

KUBERNETES = "1.34.0"
"""The version of Kubernetes that the chart is rendered for."""


def heading(values: Path) -> str:
    """The first line of what was rendered with `values`: a hash of the chart and of the values."""
    content = hashlib.sha256()
    for path in [*sorted(each for each in CHART.rglob("*") if each.is_file()), values]:
        content.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"# Rendered by deploy/helm/render.py from chart and values {content.hexdigest()}\n"


def render(values: Path) -> str:
    """What helm makes of the chart with `values`. Raises `CalledProcessError` if helm refuses."""
    options = ["--kube-version", KUBERNETES, "--namespace", "lake", "--values", str(values)]
    helm = ["helm", "template", "lakefold", str(CHART), *options]
    return subprocess.run(helm, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Copies, lints and renders."""
    for source, copy in COPIES.items():
        shutil.copyfile(source, copy)
    for values in sorted(EXAMPLES.glob("*.yaml")):
        subprocess.run(
            ["helm", "lint", "--strict", "--quiet", str(CHART), "--values", str(values)], check=True
        )
        (GOLDEN / values.name).write_text(heading(values) + render(values), encoding="utf-8")
        print(f"{values.name}: rendered")


if __name__ == "__main__":
    main()
