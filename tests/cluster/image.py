"""The committer's image, built by buildah from `deploy/Dockerfile`, as an archive that containerd imports.

It is built again if a file changes that the Dockerfile copies.
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


def version() -> str:
    """Returns the version of the project, which is the image's tag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def image_name() -> str:
    """Returns the name under which the chart and the kustomize base look for the image."""
    return f"docker.io/library/lakefold:{version()}"


def build_image(folder: Path) -> Path:
    """Returns the archive of the image. Builds it first if `folder` has none of the same files."""
    archive = folder / f"lakefold-{digest(DOCKERFILE, *_copied())}.tar"
    if archive.exists():
        return archive
    for old in folder.glob("lakefold-*.tar"):
        old.unlink()
    buildah, tag = ["buildah", *storage_options(folder)], f"lakefold:{version()}"
    with tempfile.TemporaryDirectory() as temporary:
        settings = Path(temporary) / "pip.conf"
        settings.write_text(_pip_settings())
        secrets = ["--secret", f"id=pip.conf,src={settings}", "--secret", f"id=ca.crt,src={_authorities()}"]
        chroot = ["--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={base_image()}"]
        run(*buildah, "bud", *chroot, *secrets, "--file", DOCKERFILE, "--tag", tag, ROOT)
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    run(*buildah, "push", "--quiet", tag, f"docker-archive:{part}:{image_name()}")
    return part.rename(archive)


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
