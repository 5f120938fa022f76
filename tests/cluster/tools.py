"""Prepares once what the test of the cluster needs: Debian's packages, the binaries of Kubernetes, images.

    python -m tests.cluster.tools

Kubernetes and helm are built from their own Go modules, whose hashes are in `binaries/*/go.sum`. Packages and
modules come from the mirrors that apt and go are configured for on this machine. Everything is in one folder,
`~/.cache/lakefold-cluster` unless LAKEFOLD_CLUSTER_TOOLS names another.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
KUBERNETES: Final = "1.34.4"
HELM: Final = "3.22.0"
PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
"""The names under which the binary of the control plane is started."""
PACKAGES: Final = (
    *("buildah", "mmdebstrap", "containerd", "runc", "containernetworking-plugins", "iptables"),
    *("prometheus", "dnsmasq-base", "podman", "podman-compose"),
    "golang-github-containernetworking-plugin-dnsname",
    *("etcd-server", "iproute2", "util-linux", "conntrack", "socat", "gcc", "libc6-dev"),
)
BASE_PACKAGES: Final = "python3,python3-venv,ca-certificates"


def tools_folder() -> Path:
    """Returns the folder in which everything is kept."""
    return Path(
        os.environ.get("LAKEFOLD_CLUSTER_TOOLS") or Path.home() / ".cache/lakefold-cluster"
    ).absolute()


def require_root() -> None:
    """Raises `SystemExit` if this is not Linux or the user is not root."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        sys.exit("The test of the cluster needs Linux and root: it creates namespaces, mounts and cgroups.")


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Runs a command to its end. Raises `CalledProcessError` if it fails."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd, env=env and {**os.environ, **env}, stdin=subprocess.DEVNULL)


def output(*command: str | Path) -> str:
    """Returns what a command prints. Raises `CalledProcessError` if it fails."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def digest(*paths: Path) -> str:
    """Returns a hash of the names and contents of files, and of all files below folders."""
    content = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                content.update(file.relative_to(path.parent).as_posix().encode() + b"\0" + file.read_bytes())
    return content.hexdigest()[:16]


def storage_options(folder: Path) -> list[str]:
    """Returns the options that make buildah keep its files in the folder of the tools."""
    containers = folder / "containers"
    roots = ["--root", str(containers / "storage"), "--runroot", str(containers / "run")]
    return [*roots, "--storage-driver", "overlay"]


def base_image() -> str:
    """Returns the name of the base image: Debian of this machine's release with its Python."""
    return f"localhost/lakefold-base:{platform.freedesktop_os_release()['VERSION_CODENAME']}"


def _install_packages() -> None:
    missing = [
        name
        for name in PACKAGES
        if subprocess.run(["dpkg", "-s", name], check=False, capture_output=True).returncode != 0
    ]
    if missing:
        run("apt-get", "update", "--quiet")
        # A RUNLEVEL of 1 keeps the packages from starting their services.
        settings = {"RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *missing, env=settings)


def _build(folder: Path, module: str, package: str, binary: str, flags: str) -> None:
    """Builds a Go module of `binaries/` as `bin/BINARY`. go.sum has the hashes of its dependencies."""
    go = {
        "GOMODCACHE": str(folder / "go/mod"),
        "GOCACHE": str(folder / "go/cache"),
        "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw",
        "CGO_ENABLED": "1",
    }
    command = ["go", "build", "-p", "2", "-trimpath", "-ldflags", f"-s -w {flags}"]
    run(*command, "-o", folder / "bin" / binary, package, cwd=HERE / "binaries" / module, env=go)


def _build_binaries(folder: Path) -> None:
    helm = f"-X helm.sh/helm/v3/internal/version.version=v{HELM}"
    _build(folder, "helm", "helm.sh/helm/v3/cmd/helm", "helm", helm)
    major, minor, _ = KUBERNETES.split(".")
    name = "k8s.io/component-base/version.git"
    kubernetes = f"-X {name}Version=v{KUBERNETES} -X {name}Major={major} -X {name}Minor={minor}"
    _build(folder, "control", ".", "kubernetes", kubernetes)
    for program in PROGRAMS:
        link = folder / "bin" / program
        link.unlink(missing_ok=True)
        link.symlink_to("kubernetes")


def _mirror(release: str) -> str:
    """Returns the address from which apt gets the packages of this release."""
    lines = output("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    return next(line.split()[1] for line in lines.splitlines() if line.split()[0] == release)


def _build_images(folder: Path) -> None:
    """Builds the base of the committer's image, and the image of the process that pods begin with."""
    buildah = ["buildah", *storage_options(folder)]
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    base, pause = folder / "base.tar", folder / "pause"
    run("mmdebstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", release, base, _mirror(release))
    container = output(*buildah, "from", "scratch").strip()
    run(*buildah, "add", "--quiet", container, base, "/")
    run(*buildah, "config", "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
    run(*buildah, "commit", "--quiet", "--rm", container, base_image())
    base.unlink()
    run("gcc", "-Os", "-static", "-s", "-o", pause, HERE / "binaries/pause.c")
    container = output(*buildah, "from", "scratch").strip()
    run(*buildah, "copy", "--quiet", container, pause, "/pause")
    run(*buildah, "config", "--entrypoint", '["/pause"]', container)
    run(*buildah, "commit", "--quiet", "--rm", container, "localhost/pause:1")
    archive = folder / "pause.tar"
    archive.unlink(missing_ok=True)
    run(*buildah, "push", "--quiet", "localhost/pause:1", f"docker-archive:{archive}:localhost/pause:1")


def prepared(folder: Path) -> bool:
    """Returns whether the folder has what this version of the preparation makes."""
    stamp = folder / "prepared"
    return stamp.exists() and stamp.read_text() == digest(HERE / "binaries", Path(__file__))


def main() -> None:
    """Prepares everything, unless the folder has it already."""
    require_root()
    folder = tools_folder()
    if prepared(folder):
        print(f"{folder}: prepared already")
        return
    if shutil.which("go") is None:
        sys.exit("Go is missing: Kubernetes and helm are built from their modules.")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    _install_packages()
    _build_binaries(folder)
    _build_images(folder)
    (folder / "prepared").write_text(digest(HERE / "binaries", Path(__file__)))


if __name__ == "__main__":
    main()
