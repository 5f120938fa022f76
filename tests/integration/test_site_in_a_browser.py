"""The documentation's site: built without warnings, and its pages ask no other server for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.chromium import PROGRAM, Browser
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

# The first test builds the site: half a minute on an idle machine, and several on a busy one.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.IGNORECASE
)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Writes no line for each request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as running:
        yield running
        assert running.troubles == []


def test_no_page_names_a_file_of_another_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert [str(page) for page in pages if LOADED.search(page.read_text())] == []


def test_diagrams_are_pictures_and_public_names_have_their_docstrings(site: Path) -> None:
    states = (site / "states.html").read_text()
    assert states.count("diagrams/") == 5
    assert "stateDiagram" not in states
    python = (site / "reference" / "python.html").read_text()
    assert "Appends rows to a table through the log" in python


@pytest.mark.skipif(not PROGRAM, reason="chromium is not installed")
@pytest.mark.parametrize("page", ["index.html", "states.html", "cookbook.html"])
def test_a_page_loads_only_its_own_files(site: Path, browser: Browser, page: str) -> None:
    handler = partial(QuietHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            own = f"http://127.0.0.1:{server.server_port}/"
            browser.open(f"{own}{page}")
            browser.wait_for("Lakefold")
            until(lambda: browser.value("document.readyState") == "complete", "the whole page", seconds=120)
            loaded = browser.value("performance.getEntriesByType('resource').map((each) => each.name)")
        finally:
            server.shutdown()
    assert loaded
    assert [name for name in loaded if not name.startswith(own)] == []
