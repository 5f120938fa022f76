"""Tests image, chart and kustomize base on a cluster of two nodes on this machine: `make test-cluster`.

    python -m tests.cluster [SCENARIO]…      # without a scenario all of them, and the compose file

It needs Linux, root, and what `make cluster-tools` has prepared. It stops and removes all that it
started, also if it fails; the logs of the last run stay in the folder of the tools.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lakefold.local.jars import fetch_jars
from tests.cluster.compose import PODMAN_GROUP, build_broker
from tests.cluster.image import build_images
from tests.cluster.machine import NODE_GROUPS, call, in_namespaces, remove_groups
from tests.cluster.packages import installed, other_releases
from tests.cluster.tools import prepared, require_root, tools_folder


def main() -> int:
    """Returns the exit code of the test."""
    require_root()
    # As Ctrl-C does, so that everything is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tools = tools_folder()
    if not prepared(tools):
        sys.exit(f"{tools} is not prepared: run `make cluster-tools` once (10 minutes of two cores)")
    with (tools / "lock").open("w") as alone:
        try:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("the test of the cluster runs already on this machine")
        packages = installed()
        print("packages:", ", ".join(" ".join(each) for each in packages.items()), flush=True)
        if fault := other_releases(packages):
            sys.exit(fault)
        # Both are downloaded here, since the namespaces have no network to the outside.
        fetch_jars("broker")
        fetch_jars("s3")
        images = build_images(tools)
        build_broker(tools)
        began = time.monotonic()
        work = Path(tempfile.mkdtemp(prefix="lakefold-cluster-"))
        program = [sys.executable, "-m", "tests.cluster.inside", *map(str, (work, tools, *images))]
        try:
            work.chmod(0o755)
            with ThreadPoolExecutor(1) as beside:
                # It has namespaces of its own as well, and ends before anything is measured.
                composed = None if sys.argv[1:] else beside.submit(_compose, tools)
                code = in_namespaces([*program, *sys.argv[1:]])
            code = code or (composed.result() if composed else 0)
        finally:
            remove_groups(*NODE_GROUPS)
            shutil.rmtree(tools / "logs", ignore_errors=True)
            if (work / "logs").exists():
                shutil.move(work / "logs", tools / "logs")
                lines = (f"{name} {version}\n" for name, version in packages.items())
                (tools / "logs/packages").write_text("".join(lines))
            # There are a hundred thousand files in it, those of the image on both nodes.
            call("rm", "-rf", work)
        print(f"the test took {time.monotonic() - began:.0f} s; its logs are in {tools / 'logs'}")
        return code


def _compose(tools: Path) -> int:
    """Tries the compose file, and returns the exit code. What podman prints is shown only if it fails."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        try:
            code = in_namespaces([sys.executable, "-m", "tests.cluster.compose", tools], log)
        finally:
            remove_groups(PODMAN_GROUP)
        log.seek(0)
        said = log.read().decode(errors="replace") if code else "a table was created and appended to"
    print(f"the compose file: {time.monotonic() - began:.0f} s, {said}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
