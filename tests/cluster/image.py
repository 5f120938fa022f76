"""The images, built by buildah from `deploy/Dockerfile`, as archives that containerd imports.

They are built again if a file changes that the Dockerfile copies.
"""

from __future__ import annotations

import configparser
import os
import re
import ssl
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.tools import base_image, digest, output, run, storage_options

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = ROOT / "deploy/Dockerfile"
NAMES: Final = {"committer": "lakefold", "maintainer": "lakefold-maintainer"}
"""The targets of the Dockerfile, with the names of their images."""
PACKAGES: Final = ("packages", "packages-with-pylance")
"""The stages that a change of the code leaves as they are. By their names the next build has their layers."""


def version() -> str:
    """Returns the version of the project, which is the image's tag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def image_name(target: str) -> str:
    """Returns the name under which the chart and the kustomize base look for the image of a target."""
    return f"docker.io/library/{NAMES[target]}:{version()}"


def build_images(folder: Path) -> list[Path]:
    """Returns the archives of both images. Builds them first if `folder` has none of the same files."""
    content = digest(DOCKERFILE, *_copied())
    archives = {target: folder / f"{name}-{content}.tar" for target, name in NAMES.items()}
    if not all(archive.exists() for archive in archives.values()):
        for target in PACKAGES:
            _build(folder, target, f"lakefold-{target}:{version()}")
        for target, archive in archives.items():
            tag = f"{NAMES[target]}:{version()}"
            _build(folder, target, tag)
            _write_archive(folder, tag, archive, image_name(target))
        for old in {*folder.glob("lakefold-*.tar")} - {*archives.values()}:
            old.unlink()
        # Each build leaves images without a name, which no later one uses: its files are others.
        run("buildah", *storage_options(folder), "rmi", "--prune")
    return [*archives.values()]


def _build(folder: Path, target: str, tag: str) -> None:
    buildah = ["buildah", *storage_options(folder)]
    with tempfile.TemporaryDirectory() as temporary:
        settings = Path(temporary) / "pip.conf"
        settings.write_text(_pip_settings())
        secrets = ["--secret", f"id=pip.conf,src={settings}", "--secret", f"id=ca.crt,src={_authorities()}"]
        chroot = ["--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={base_image()}"]
        # The stages that both images begin with are built once.
        stages = ["--layers", "--target", target]
        try:
            run(*buildah, "bud", *chroot, *secrets, *stages, "--file", DOCKERFILE, "--tag", tag, ROOT)
        except BaseException:
            # A build that is interrupted leaves its containers, which are mounted.
            run(*buildah, "rm", "--all")
            raise


def _write_archive(folder: Path, tag: str, archive: Path, name: str) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    run("buildah", *storage_options(folder), "push", "--quiet", tag, f"docker-archive:{part}:{name}")
    part.rename(archive)


def _copied() -> Iterator[Path]:
    """The files and folders that the Dockerfile copies from the repository."""
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text("utf-8"), re.MULTILINE):
        yield from (ROOT / name for name in names.split())


def _authorities() -> str:
    """The certificates that this machine trusts, as pip does if PIP_CERT names none."""
    default = ssl.get_default_verify_paths()
    return os.environ.get("PIP_CERT") or default.cafile or default.openssl_cafile


def _pip_settings() -> str:
    """Where pip gets packages from on this machine, as a file for the build."""
    written = re.findall(
        r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", output("pip", "config", "list"), re.MULTILINE
    )
    kept = {"index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "default-timeout"}
    settings = configparser.RawConfigParser()
    settings["global"] = {name: value for name, value in written if name in kept}
    settings["global"]["cert"] = "/run/secrets/ca.crt"
    lines = [f"{name} = {value}" for name, value in settings["global"].items()]
    return "\n".join(["[global]", *lines, ""])
