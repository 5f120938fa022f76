"""The releases of the packages that apt installs for the cluster's test. Each run prints and keeps them.

apt has one version of a package at a time, and its security updates replace that, so a whole version can't be
pinned. The mirror checks what it delivers by its signed hashes. A run with another major release than the one
that the figures were measured with is another test: it ends with the names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.cluster.tools import PACKAGES, output

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final[Mapping[str, str]] = {
    "buildah": "1.28.2",
    "conntrack": "1.4.7",
    "containerd": "1.6.20",
    "containernetworking-plugins": "1.1.1",
    "dnsmasq-base": "2.90",
    "etcd-server": "3.4.23",
    "gcc": "12.2.0",
    "golang-github-containernetworking-plugin-dnsname": "1.3.1",
    "iproute2": "6.1.0",
    "iptables": "1.8.9",
    "libc6-dev": "2.36",
    "mmdebstrap": "1.3.5",
    "podman": "4.3.1",
    "podman-compose": "1.0.3",
    "prometheus": "2.42.0",
    "runc": "1.1.5",
    "socat": "1.7.4.4",
    "util-linux": "2.38.1",
}
"""The versions that the figures of docs/operations/size.md were measured with, those of Debian 12."""


def installed() -> dict[str, str]:
    """Returns the versions of the packages. Raises `CalledProcessError` if one of them isn't installed."""
    lines = output("dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *PACKAGES).splitlines()
    return dict(sorted((name, version) for name, _, version in (line.partition(" ") for line in lines)))


def other_releases(versions: Mapping[str, str]) -> str:
    """Returns which packages are of another major release than the known one; empty if none is."""
    other = [
        f"{name} {versions.get(name, 'missing')} (known: {known})"
        for name, known in KNOWN.items()
        if _major(versions.get(name, "")) != _major(known)
    ]
    if not other:
        return ""
    return f"other major releases: {', '.join(other)}. Measure again, and write them into {__name__}"


def _major(version: str) -> str:
    """Returns the first number of a version, which may begin with an epoch."""
    number = re.match(r"(?:\d+:)?(\d+)", version)
    return number[1] if number else ""
