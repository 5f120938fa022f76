"""A mirror that Maven's own settings name is used, with its login, in the way that Maven reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.errors import SetupError
from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from lakefold.local.maven import CENTRAL, Repository, find_repository, proxy_options
from lakefold.local.pins import JarSet, pinned_jars

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
  <servers><server><id>m</id><username>u</username><password>${{env.MIRROR_PASSWORD}}</password></server></servers>
  <mirrors>
    <mirror><id>blocked</id><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url></mirror>
    <mirror><id>m</id><mirrorOf>{mirror_of}</mirrorOf><url>https://mirror.example/maven/</url></mirror>
  </mirrors>
</settings>
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with an empty `.m2`, and no Maven on the PATH."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".m2").mkdir()
    return tmp_path


def test_without_settings_it_is_maven_central(home: Path) -> None:
    assert find_repository() == CENTRAL
    (home / ".m2" / "settings.xml").write_text("<settings/>")
    assert find_repository() == CENTRAL


@pytest.mark.parametrize("mirror_of", ["*", "central", "external:*", "other, central", "*,!other"])
def test_a_mirror_of_central_is_taken_with_its_login(
    mirror_of: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_PASSWORD", 'p<"&')
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(mirror_of=mirror_of))
    repository = find_repository()
    assert repository == Repository("https://mirror.example/maven", "u", 'p<"&')


@pytest.mark.parametrize("mirror_of", ["other", "*,!central", "external:http:*"])
def test_a_mirror_of_something_else_is_not(mirror_of: str, home: Path) -> None:
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(mirror_of=mirror_of))
    assert find_repository() == CENTRAL


def test_the_settings_of_an_installed_maven_count_too(home: Path) -> None:
    (home / "mvn-home" / "bin").mkdir(parents=True)
    (home / "mvn-home" / "conf").mkdir()
    (home / "mvn-home" / "bin" / "mvn").touch(mode=0o755)
    (home / "mvn").symlink_to(home / "mvn-home" / "bin" / "mvn")
    (home / "mvn-home" / "conf" / "settings.xml").write_text(SETTINGS.format(mirror_of="*"))
    assert find_repository().url == "https://mirror.example/maven"


def test_settings_that_are_not_xml_are_named(home: Path) -> None:
    path = home / ".m2" / "settings.xml"
    path.write_text("<settings>")
    with pytest.raises(SetupError, match="not XML") as caught:
        find_repository()
    assert caught.value.where == str(path)


def test_proxies_of_the_environment_reach_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert proxy_options() == []
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost,.inside")
    assert proxy_options() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.inside",
    ]


def test_a_missing_or_old_java_is_named_with_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SetupError, match="java was not found") as missing:
        find_java()
    assert "install Java 17" in missing.value.hint
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SetupError, match="too old: openjdk version"):
        find_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\" 2023-09-19' >&2\n")
    assert find_java() == java


def test_without_pyspark_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefold.local.ivy.find_spec", lambda _: None)
    monkeypatch.setenv("LAKEFOLD_CACHE", str(tmp_path))
    with pytest.raises(SetupError, match="pyspark is not installed") as caught:
        fetch_jars("broker")
    assert "lakefold[ingest]" in caught.value.hint
    assert not list(tmp_path.rglob("*.jar"))


def test_every_pinned_jar_has_a_version_and_a_hash() -> None:
    expected: dict[JarSet, int] = {"broker": 46, "delta": 7, "lance-spark": 17, "spark": 4}
    for name, count in expected.items():
        jars = pinned_jars(name)
        assert len({jar.file_name for jar in jars}) == count
        assert all(len(jar.sha256) == 64 and jar.revision[0].isdigit() for jar in jars)
