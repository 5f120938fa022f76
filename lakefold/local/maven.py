"""Says where Maven artifacts come from on this machine, in the words of Ivy.

Ivy knows nothing of Maven's own set-up, but a company's mirror of Maven Central is written down there. So the
mirror, and the user and password for it, are read from Maven's `settings.xml` and handed on.
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
    """A Maven repository: its root URL and, if it asks for them, a user and a password.

    Without a URL it is Maven Central, whose address Ivy knows.
    """

    url: str
    username: str = ""
    password: str = ""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.url or "Maven Central"


CENTRAL = Repository("")


def find_repository() -> Repository:
    """Give the mirror of Maven Central that Maven's settings name, else Maven Central itself.

    Looks into `~/.m2/settings.xml`, then into the settings of the installed Maven. Raises `SetupError`
    where such a file is not XML.
    """
    for path in _settings_files():
        if path.is_file() and (mirror := _mirror_in(path)) is not None:
            return mirror
    return CENTRAL


def ivy_settings(repository: Repository) -> str:
    """Give the text of an Ivy settings file whose only resolver is `repository`.

    POMs are not read: what is fetched is named one by one.
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
    """Ask the repository for the name under which it wants a login; empty where it wants none.

    Maven doesn't need that name and so its settings don't tell it; Ivy sends no login without it.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/", method="HEAD"), timeout=20).close()  # noqa: S310 - the user's own mirror
    except urllib.error.HTTPError as error:
        with error:
            asked = re.search(r'realm="([^"]*)"', error.headers.get("WWW-Authenticate", ""))
            return asked[1] if asked else ""
    except OSError:
        # Ivy will meet the same trouble and say more about it.
        return ""
    return ""


def proxy_options() -> list[str]:
    """Give the JVM options that name the proxies of the environment (`https_proxy` and so on)."""
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
    """Maven's order: the user's settings win over the installation's."""
    yield Path.home() / ".m2" / "settings.xml"
    if mvn := shutil.which("mvn"):
        yield Path(mvn).resolve().parent.parent / "conf" / "settings.xml"


def _mirror_in(path: Path) -> Repository | None:
    try:
        root = ET.parse(path).getroot()  # noqa: S314 - the user's own set-up, as trusted as the program
    except ET.ParseError as error:
        message = f"this is not XML: {error}"
        raise SetupError(message, where=str(path), hint="mend Maven's settings") from error
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
    """Whether a `mirrorOf` pattern covers Maven Central (id `central`, an external https repository)."""
    parts = {part.strip() for part in mirror_of.split(",")}
    return "!central" not in parts and bool(parts & {"*", "external:*", "central"})


def _text(element: ET.Element, name: str) -> str:
    """Give a child's text with `${env.NAME}` filled in, as Maven does."""
    text = (element.findtext(f"{{*}}{name}") or "").strip()
    return re.sub(r"\$\{env\.([^}]+)\}", lambda match: os.environ.get(match[1], match[0]), text)
