"""Finds the repository for Maven artifacts on this machine, and writes settings for Ivy.

Ivy doesn't read Maven's settings, but companies configure their mirrors of Maven Central there. So the
mirror, with its user and password, is read from Maven's `settings.xml`.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from lakefold.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository: its root URL, and a user and a password if it needs them.

    Without a URL it is Maven Central, whose address is built into Ivy.
    """

    url: str
    username: str = ""
    password: str = ""

    @property
    def name(self) -> str:
        """The name for messages."""
        return self.url or "Maven Central"


CENTRAL = Repository("")


def find_repository() -> Repository:
    """Returns the mirror of Maven Central that Maven's settings name, else Maven Central itself.

    Reads `~/.m2/settings.xml`, then the settings of the installed Maven. Raises `SetupError` if such a file
    is not XML.
    """
    for path in _settings_files():
        if path.is_file() and (mirror := _mirror_in(path)) is not None:
            return mirror
    return CENTRAL


def ivy_settings(repository: Repository) -> str:
    """Returns the text of an Ivy settings file whose only resolver is `repository`.

    POMs are not read, because every jar is named.
    """
    root = ET.Element("ivysettings")
    ET.SubElement(root, "settings", {"defaultResolver": "maven"})
    if repository.username:
        host = urlsplit(repository.url).hostname or ""
        login = {"username": repository.username, "passwd": repository.password}
        ET.SubElement(root, "credentials", {"host": host, "realm": _realm(repository.url), **login})
    limits = {"name": "limits", "connectionTimeout": "20000", "readTimeout": "60000"}
    ET.SubElement(ET.SubElement(root, "timeout-constraints"), "timeout-constraint", limits)
    resolver = {"name": "maven", "m2compatible": "true", "usepoms": "false"}
    if repository.url:
        resolver["root"] = repository.url
    ET.SubElement(ET.SubElement(root, "resolvers"), "ibiblio", {**resolver, "timeoutConstraint": "limits"})
    return ET.tostring(root, encoding="unicode")


def _realm(url: str) -> str:
    """Requests the realm of the repository's login. Returns an empty text if it needs no login.

    Maven's settings don't contain the realm, but Ivy sends no login without it.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/", method="HEAD"), timeout=20).close()  # noqa: S310 - the user's own mirror
    except urllib.error.HTTPError as error:
        with error:
            realm = re.search(r'realm="([^"]*)"', error.headers.get("WWW-Authenticate", ""))
            return realm[1] if realm else ""
    except OSError:
        # Ivy will fail for the same reason and report more about it.
        return ""
    return ""


def proxy_options() -> list[str]:
    """Returns the JVM options for the proxies of the environment (`https_proxy` and so on)."""
    options = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and (direct := proxies.get("no")):
        hosts = (host.strip() for host in direct.split(","))
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{h}" if h.startswith(".") else h for h in hosts))
    return options


def _settings_files() -> Iterable[Path]:
    """Yields the settings files in Maven's order: the user's settings win over those of the installation."""
    yield Path.home() / ".m2" / "settings.xml"
    if mvn := shutil.which("mvn"):
        yield Path(mvn).resolve().parent.parent / "conf" / "settings.xml"


def _mirror_in(path: Path) -> Repository | None:
    try:
        root = ET.parse(path).getroot()  # noqa: S314 - the user's own set-up, as trusted as the program
    except ET.ParseError as error:
        message = f"this is not XML: {error}"
        raise SetupError(message, where=str(path), hint="correct Maven's settings") from error
    logins = {_text(server, "id"): server for server in root.iterfind("{*}servers/{*}server")}
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        if _is_for_central(_text(mirror, "mirrorOf")):
            login = logins.get(_text(mirror, "id"))
            url = _text(mirror, "url").rstrip("/")
            if login is None:
                return Repository(url)
            return Repository(url, _text(login, "username"), _text(login, "password"))
    return None


def _is_for_central(mirror_of: str) -> bool:
    """Returns whether a `mirrorOf` pattern covers Maven Central (id `central`, external, https)."""
    parts = {part.strip() for part in mirror_of.split(",")}
    return "!central" not in parts and bool(parts & {"*", "external:*", "central"})


def _text(element: ET.Element, name: str) -> str:
    """Returns a child's text with `${env.NAME}` replaced by its value, as in Maven."""
    text = (element.findtext(f"{{*}}{name}") or "").strip()
    return re.sub(r"\$\{env\.([^}]+)\}", lambda match: os.environ.get(match[1], match[0]), text)
