"""The console in headless Chromium, if it is installed: what a person sees, and what happens while they look.

`LAKEFOLD_PICTURES=FOLDER` keeps pictures of the pages there; the README has one of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from lakefold_table.uri import canonical
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog
from tests.proposals import append, creation, rows
from tests.servers.chromium import PROGRAM, Browser
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

pytestmark = pytest.mark.skipif(not PROGRAM, reason="chromium is not installed")

HOSTILE = "<img src=x onerror=document.title=1>"
TABLES = 1_000
FIRST_PAINT_S = 1.0 if "LAKEFOLD_QUIET_MACHINE" in os.environ else 10.0
"""A second on a quiet machine. Beside other tests, whatever is no endless list of tables."""


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running
        assert running.troubles == []


@pytest.fixture
def served(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> Iterator[tuple[OwnLog, CommitterProcess]]:
    own = OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path, "--console", "true") as committer:
        committer.wait_until_ready()
        yield own, committer


def keep(browser: Browser, name: str) -> None:
    if folder := os.environ.get("LAKEFOLD_PICTURES"):
        browser.picture(Path(folder, f"{name}.png"))


def test_a_person_sees_tables_and_their_changes_and_no_name_becomes_a_script(
    browser: Browser, served: tuple[OwnLog, CommitterProcess], tmp_path: Path
) -> None:
    own, committer = served
    uri, address = canonical(tmp_path / HOSTILE), f"http://127.0.0.1:{committer.http_port}/"
    browser.open(address)
    browser.wait_for("No table is known below the roots yet")
    with own.proposer() as proposer:
        proposer.send_wait(creation(uri))
        # The page is not reloaded.
        browser.wait_for(HOSTILE)
        proposer.send_wait(append(uri, rows([1, 2, 3]), 1, "app", 5))
        refused = proposer.send_wait(creation(uri))
    browser.wait_for("rejected")
    browser.value("document.querySelector('main td a').click()")
    browser.wait_for("fragments by live rows")
    until(lambda: "1 to 9" in browser.text(), "the fragments", seconds=30)
    assert "app:5" in browser.text()
    keep(browser, "table")
    browser.open(f"{address}#/proposal?uri={quote(uri, safe='')}&proposal={refused.offset}")
    browser.wait_for("lakefold explain")
    assert "version 2" in browser.text()
    keep(browser, "proposal")
    browser.open(f"{address}#/dead-letters")
    browser.wait_for("lakefold redrive")
    browser.open(f"{address}#/log")
    browser.wait_for("answered up to")
    # Each page has a heading and a place for the keyboard; no text of a table became an element.
    assert browser.value("document.querySelectorAll('main h1').length") == 1
    assert browser.value("document.activeElement.id") == "main"
    assert browser.value("document.querySelectorAll('main img, main script').length") == 0
    assert browser.value("document.title").startswith("Log and committers")
    committer.stop()
    browser.wait_for("not connected")
    # That the connection is lost is said on the page; the browser's own log has it as an error as well.
    browser.troubles[:] = [each for each in browser.troubles if "ERR_" not in each]


def test_a_thousand_tables_are_shown_a_page_at_a_time(
    browser: Browser, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    for number in range(TABLES):
        (tmp_path / f"t{number:04}" / "_versions").mkdir(parents=True)
    OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path, "--console", "true") as committer:
        committer.wait_until_ready()
        until(lambda: "t0999" in committer.get("/api/tables?search=t0999")[1], "the tables", seconds=60)
        started = time.monotonic()
        browser.open(f"http://127.0.0.1:{committer.http_port}/#/?order=name")
        browser.wait_for("1,000 tables")
        assert time.monotonic() - started < FIRST_PAINT_S
        assert browser.value("document.querySelectorAll('tbody tr').length") == 50
        button = "[...document.querySelectorAll('button')].find((each) => each.innerText === 'Next')"
        browser.value(f"{button}.click()")
        browser.wait_for("t0050")
        assert "t0049" not in browser.text()
