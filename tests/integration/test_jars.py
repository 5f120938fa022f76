"""Jars come from a real (small) Maven mirror over HTTP: once, checked, with a clear word when not."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from lakefold.local.jars import fetch_jars
from lakefold.local.pins import pinned_jars
from lakefold.local.ports import free_port
from lakefold_table.errors import DamagedError, RetryError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGIN = "Basic " + base64.b64encode(b"user:word").decode()
SETTINGS = (
    "<settings><servers><server><id>m</id><username>user</username><password>word</password></server></servers>"
    "<mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>{}</url></mirror></mirrors></settings>"
)


class Mirror:
    """A Maven repository that asks for a login, serves `files` and counts what was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.served: Counter[str] = Counter()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(with_body=True)

            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def answer(self, *, with_body: bool) -> None:
                body = mirror.files.get(self.path)
                if self.headers.get("Authorization") != LOGIN:
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="maven"')
                    body = b""
                else:
                    self.send_response(200 if body is not None else 404)
                    mirror.served[self.path] += with_body and body is not None
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if with_body:
                    self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror of Spark's connector, named in Maven's settings; the cache is empty."""
    files = {}
    for jar, path in zip(pinned_jars("spark"), fetch_jars("spark"), strict=True):
        folder = f"/{jar.group.replace('.', '/')}/{jar.artifact}/{jar.revision}"
        files[f"{folder}/{jar.file_name}"] = path.read_bytes()
    mirror = Mirror(files)
    with mirror.running():
        use(mirror.url, tmp_path, monkeypatch)
        yield mirror


def use(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `url` be the mirror of Maven Central, and keep fetched jars below `folder`."""
    (folder / ".m2").mkdir()
    (folder / ".m2" / "settings.xml").write_text(SETTINGS.format(url))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("LAKEFOLD_CACHE", str(folder / "cache"))


def test_jars_are_fetched_once_with_the_login_of_the_mirror(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = fetch_jars("spark")
    assert [path.name for path in paths] == [jar.file_name for jar in pinned_jars("spark")]
    assert all(path.is_relative_to(tmp_path / "cache") for path in paths)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"downloading 4 jars (spark) from {mirror.url}" in captured.err
    before = mirror.served.total()
    assert fetch_jars("spark") == paths
    assert mirror.served.total() == before
    assert capsys.readouterr().err == ""
    kept = {path.relative_to(tmp_path / "cache").parts[0] for path in (tmp_path / "cache").rglob("*")}
    assert kept == {"fetch.lock", "jars"}


def test_two_processes_at_once_fetch_each_jar_once(mirror: Mirror) -> None:
    command = [sys.executable, "-c", "from lakefold.local.jars import fetch_jars; fetch_jars('spark')"]
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert +mirror.served == dict.fromkeys(mirror.files, 1)


def test_a_jar_altered_in_the_cache_is_fetched_again(mirror: Mirror) -> None:
    path = fetch_jars("spark")[0]
    path.write_bytes(b"other")
    assert path in fetch_jars("spark")
    assert mirror.files[next(name for name in mirror.files if name.endswith(path.name))] == path.read_bytes()


def test_another_jar_than_the_pinned_one_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    name = next(iter(mirror.files))
    mirror.files[name] += b"more"
    with pytest.raises(DamagedError, match=f"not the pinned jars: {Path(name).name}"):
        fetch_jars("spark")
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_mirror_that_lacks_a_jar_is_named(mirror: Mirror) -> None:
    mirror.files = {name: body for name, body in mirror.files.items() if "commons-pool2" not in name}
    with pytest.raises(RetryError, match=r"not found.*commons-pool2") as caught:
        fetch_jars("spark")
    assert caught.value.where == mirror.url


def test_a_mirror_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    use(url, tmp_path, monkeypatch)
    with pytest.raises(RetryError, match="refused") as caught:
        fetch_jars("spark")
    assert caught.value.where == url
    assert "settings.xml" in caught.value.hint
