"""The console in headless Chromium, if it is installed: what a person sees, and what happens while they look.

`LAKEFOLD_PICTURES=FOLDER` keeps pictures of the pages there; the README has one of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import lance as pylance
import pyarrow as pa
import pytest

from lakefold import cli
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_table.uri import canonical
from tests.delta_merging import VECTORS, DeltaFolding
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog
from tests.many_tables import long_history, many_tables
from tests.merging import Folding, people
from tests.proposals import append, creation, rows
from tests.servers.chromium import PROGRAM, Browser
from tests.servers.process import cpu_seconds
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

pytestmark = pytest.mark.skipif(not PROGRAM, reason="chromium is not installed")

HOSTILE = "<img src=x onerror=document.title=1>"
TABLES = 10_000
IS_QUIET = "LAKEFOLD_QUIET_MACHINE" in os.environ
FIRST_PAINT_S = 1.0 if IS_QUIET else 120.0
"""A second on a quiet machine. Beside other tests the CPU time has the close limits."""
VERSIONS = 100_000
BROWSER_CPU_S, SERVER_CPU_S = 1.0, 3.0
"""The CPU time that the first list takes in the page and in the committer: 0.06 and 0.3 s were measured."""
ROWS = "[...document.querySelectorAll('main tbody tr:not(.u-series)')]"


LEAST_CONTRAST = """((elements, property, where) => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.querySelector(where)).backgroundColor);
  return [...document.querySelectorAll(elements)].map((each) => {
    const ink = light(getComputedStyle(each)[property]);
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  }).reduce((least, each) => Math.min(least, each), 21);
})"""
"""The least contrast of some elements with their ground, as WCAG 2.2 defines it."""
CONTRAST = f"{LEAST_CONTRAST}('h1, a, .label, .faint, p, .kind', 'color', 'body')"
PLOT = "document.querySelector('.plot canvas')?.toDataURL()"
FITS = """((plots) => plots.length === 4 && [...plots, document.documentElement].every(
  (each) => each.scrollWidth <= each.clientWidth))([...document.querySelectorAll(".plot")])"""
BESIDE = """[...document.querySelectorAll('.scroll tbody td')].every((cell) => {
  const { left, width } = cell.getBoundingClientRect();
  return cell.firstChild.getBoundingClientRect().left >= left + width / 3;
})"""
"""Whether on a phone each value is beside the title of its column, also if it takes several lines."""
STACKED = """((boxes) => boxes.length > 0 && boxes.every((each) => each.scrollWidth <= each.clientWidth) &&
  [...document.querySelectorAll(".scroll td")].every((cell) => cell.dataset.title.length > 0 &&
    getComputedStyle(cell, "::before").content.includes(cell.dataset.title) &&
    cell.getBoundingClientRect().right <= innerWidth))([...document.querySelectorAll(".scroll")])"""
MARKS = f"{LEAST_CONTRAST}('svg.conflict .others, svg.conflict .ours, svg.conflict .both', 'fill', '.scroll')"


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


def both_formats_show_their_conflicts(browser: Browser, own: OwnLog, root: Path, address: str) -> None:
    lance, delta = Folding(root / f"{HOSTILE}rows"), DeltaFolding(root / "delta")
    delta.create(people([0]).schema, VECTORS)
    delta.append(people(list(range(500))))
    uri, answered = canonical(lance.path), len(own.answers())
    with own.proposer() as proposer:
        proposer.send_wait(creation(uri))
        until(lambda: len(own.answers()) == answered + 1, "the table", seconds=120)
        proposer.send_wait(append(uri, rows(range(500)), 1, "app", 6))
    until(lambda: len(own.answers()) == answered + 2, "the rows", seconds=120)
    for folding in (lance, delta):
        shows_its_conflict(browser, own, folding, address)


def shows_its_conflict(browser: Browser, own: OwnLog, folding: Folding | DeltaFolding, address: str) -> None:
    """Two Deletes that were built on the same version remove some rows both."""
    built = [folding.build(DeleteWhere(where)) for where in ("id < 200", "id >= 150 and id < 400")]
    with own.proposer() as proposer:
        _, refused = [proposer.send_wait(envelope) for envelope in built if envelope is not None]
    own.wait_for_answer(refused)
    uri = canonical(folding.path)
    browser.open(f"{address}#/proposal?uri={quote(uri, safe='')}&proposal={refused.offset}")
    # Until then the page may show the conflict of the format before.
    browser.wait_for(f"Proposal {refused.offset:,}")
    browser.wait_for("Where they conflict")
    text = browser.text()
    assert browser.value("document.querySelectorAll('svg.conflict').length") == 1, text
    assert [words for words in ("500", "200: deleted rows", "250", "50") if words not in text] == []
    label = browser.value("document.querySelector('svg.conflict').getAttribute('aria-label')")
    assert "30 to 40 %" in label
    assert "null" not in text
    assert browser.value(PLACES) == {"others": [0, 120], "ours": [90, 150], "both": [90, 30]}
    for scheme in ("light", "dark"):
        show_in(browser, scheme)
        # What differs from its ground by 3:1 is seen; the places differ in their height as well.
        assert browser.value(MARKS) >= 3, scheme
    show_in(browser, "light")
    keep(browser, f"conflict-{folding.path.name.removeprefix(HOSTILE)}")


PLACES = """Object.fromEntries(["others", "ours", "both"].map((kind) => {
  const rect = document.querySelector(`svg.conflict .${kind}`);
  return [kind, ["x", "width"].map((name) => Math.round(Number(rect.getAttribute(name))))];
}))"""
"""Where a conflict is drawn in its bar, which is 300 wide: where it begins, and how wide it is."""


def show_in(browser: Browser, scheme: str) -> None:
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


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
    browser.wait_for("1 refused in the last 10 minutes")
    browser.value("document.querySelector('main td a').click()")
    browser.wait_for("fragments by live rows")
    until(lambda: "1 to 9" in browser.text(), "the fragments", seconds=120)
    browser.wait_for("app:5")
    # The table's own plots: its outcomes and its rows.
    until(
        lambda: browser.value("document.querySelectorAll('.plots canvas').length") == 2,
        "the plots",
        seconds=120,
    )
    keep(browser, "table")
    browser.value(
        "[...document.querySelectorAll('main td a')].find((each) => each.textContent === '2').click()"
    )
    browser.wait_for("data files added")
    browser.wait_for("the version before")
    keep(browser, "version")
    browser.open(f"{address}#/proposal?uri={quote(uri, safe='')}&proposal={refused.offset}")
    browser.wait_for("lakefold explain")
    browser.wait_for("version 2")
    keep(browser, "proposal")
    both_formats_show_their_conflicts(browser, own, tmp_path, address)
    browser.open(f"{address}#/dead-letters")
    browser.wait_for("build it again")
    newest = "document.querySelectorAll('main td .chip').length"
    # The page before this one says so, too.
    until(lambda: browser.value(newest) > 0, "the new dead letters")
    browser.value("[...document.querySelectorAll('main button')].find((each) => !each.hidden).click()")
    assert browser.value(newest) == 0
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


def test_a_page_follows_branches_tags_and_consumers_while_the_log_is_quiet(
    browser: Browser, served: tuple[OwnLog, CommitterProcess], tmp_path: Path
) -> None:
    _, committer = served
    uri, address = canonical(tmp_path / "quiet"), f"http://127.0.0.1:{committer.http_port}/"
    dataset = pylance.write_dataset(pa.table({"id": [1]}), tmp_path / "quiet")
    dataset.add_columns({"twice": "id * 2"})
    for _ in range(30):
        pylance.write_dataset(pa.table({"id": [1], "twice": [2]}), tmp_path / "quiet", mode="append")
    audit = pylance.dataset(tmp_path / "quiet").create_branch("audit")
    assert cli.run(["consumers", uri, "--set", "nightly", "30"]) == 0
    browser.open(f"{address}#/table?uri={quote(uri, safe='')}&branch=audit")
    browser.wait_for("Versions of branch audit")
    until(lambda: "nightly" in browser.text(), "the consumer", seconds=120)
    newest = "document.querySelector('main tbody td')?.innerText"
    until(lambda: browser.value(newest) == f"{audit.version}", "the branch's versions", seconds=120)
    written = pylance.write_dataset(pa.table({"id": [2], "twice": [4]}), audit, mode="append")
    assert written.version == audit.version + 1
    until(lambda: browser.value(newest) == f"{written.version}", "its new version", seconds=120)
    pylance.dataset(tmp_path / "quiet").tags.create("release", 12)
    until(lambda: "release: version 12" in browser.text(), "the tag", seconds=120)
    # Nothing was added to the newest 20 versions.
    assert "added twice" not in browser.text()
    button = (
        "[...document.querySelectorAll('button')].find((each) => each.innerText.startsWith('Search older'))"
    )
    browser.value(f"{button}.click()")
    until(lambda: "version 2: added twice (int64)" in browser.text(), "the change", seconds=120)
    browser.open(address)
    until(lambda: "nightly: 2 behind" in browser.text(), "the list", seconds=120)
    assert cli.run(["consumers", uri, "--set", "nightly", "32"]) == 0
    until(lambda: "nightly: up to date" in browser.text(), "the progress of the consumer", seconds=120)


HOLDS_VERSIONS = """(() => {
  const asked = window.fetch;
  window.held = [];
  window.fetch = (url, ...rest) => (String(url).includes("/api/versions")
    ? new Promise((go) => window.held.push(() => go(asked(url, ...rest)))) : asked(url, ...rest));
})()"""


def test_the_number_of_the_newest_version_is_not_ahead_of_the_list(
    browser: Browser, served: tuple[OwnLog, CommitterProcess], tmp_path: Path
) -> None:
    _, committer = served
    dataset = pylance.write_dataset(pa.table({"id": [1]}), tmp_path / "steps")
    uri = quote(canonical(tmp_path / "steps"), safe="")
    browser.open(f"http://127.0.0.1:{committer.http_port}/#/table?uri={uri}")
    tile = "document.querySelector('main .cards .value').innerText"
    newest = "document.querySelector('main tbody td')?.innerText"
    until(lambda: browser.value(newest) == "1", "the first version", seconds=120)
    browser.value(HOLDS_VERSIONS)
    pylance.write_dataset(pa.table({"id": [2]}), dataset, mode="append")
    until(lambda: browser.value("window.held.length"), "the question for the list", seconds=120)
    assert browser.value(tile) == browser.value(newest) == "1"
    browser.value("window.held.splice(0).forEach((each) => each())")
    until(lambda: browser.value(newest) == "2", "the new version", seconds=120)
    assert browser.value(tile) == "2"


def test_ten_thousand_tables_and_a_hundred_thousand_versions_stay_usable(
    browser: Browser, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    many_tables(tmp_path, TABLES)
    uri = long_history(tmp_path / "z-long", VERSIONS)
    OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path, "--console", "true") as committer:
        committer.wait_until_ready()
        address = f"http://127.0.0.1:{committer.http_port}/"
        until(lambda: "z-long" in committer.get("/api/tables?search=z-long")[1], "the tables", seconds=120)
        # Only what the page itself takes is measured, not what Chromium starts with.
        browser.open(f"{address}#/log")
        browser.wait_for("answered up to")
        began, served = time.monotonic(), cpu_seconds(committer.process.pid)
        browser.measure()
        browser.open(f"{address}#/?order=name")
        browser.wait_for(f"{TABLES + 1:,} tables")
        shown = time.monotonic() - began
        until(lambda: "loading" not in browser.text(), "the tables' figures", seconds=120)
        assert shown < FIRST_PAINT_S
        assert browser.cpu_seconds() < BROWSER_CPU_S
        assert cpu_seconds(committer.process.pid) - served < SERVER_CPU_S
        assert browser.value(f"{ROWS}.length") == 50
        figures = f"{ROWS}.every((row) => row.innerText.includes('3\\t5\\t2'))"
        until(lambda: browser.value(figures), "the figures of each row")
        press_button(browser, "Next")
        browser.wait_for("t00050")
        assert "t00049" not in browser.text()
        browser.open(f"{address}#/?order=name&offset={TABLES - 10}")
        browser.wait_for("z-long")
        browser.open(f"{address}#/table?uri={quote(uri, safe='')}")
        newest = "document.querySelector('main tbody td')?.innerText"
        until(lambda: browser.value(newest) == f"{VERSIONS:,}", "the newest versions", seconds=120)
        press_button(browser, "Older versions")
        until(lambda: browser.value(newest) == f"{VERSIONS - 25:,}", "older versions", seconds=120)
        browser.open(f"{address}#/table?uri={quote(uri, safe='')}&last=50000")
        until(lambda: browser.value(newest) == "50,000", "versions of long ago", seconds=120)


def press_button(browser: Browser, words: str) -> None:
    button = f"[...document.querySelectorAll('button')].find((each) => each.innerText === '{words}')"
    until(lambda: browser.value(f"{button}?.disabled === false"), words, seconds=120)
    browser.value(f"{button}.click()")


def write_some_tables(own: OwnLog, root: Path) -> None:
    """Three tables as several writers fill them; the picture of them is that of the README."""
    uris = [canonical(root / f"{name}.lance") for name in ("clicks", "orders", "sensors")]
    with own.proposer() as proposer:
        for uri in uris:
            proposer.send_wait(creation(uri))
        until(lambda: len(own.answers()) == len(uris), "the tables", seconds=120)
        for batch in range(20):
            for number, uri in enumerate(uris):
                if batch % (number + 1) == 0:
                    proposer.send_wait(append(uri, rows(range(100 * number + 250)), 1, "loader", batch))
        last = proposer.send_wait(creation(uris[0]))
    own.wait_for_answer(last)


def redrawn_plots(browser: Browser, before: str) -> str:
    """The first plot as it is drawn, once it differs from `before`."""
    until(lambda: (browser.value(PLOT) or before) != before, "the plots", seconds=120)
    plot: str = browser.value(PLOT)
    return plot


def press(browser: Browser, key: str) -> None:
    code = {"Tab": 9, "Enter": 13}[key]
    text = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)


def test_the_page_is_read_in_light_and_dark_and_by_the_keyboard(
    browser: Browser, served: tuple[OwnLog, CommitterProcess], tmp_path: Path
) -> None:
    own, committer = served
    write_some_tables(own, tmp_path)
    browser.open(f"http://127.0.0.1:{committer.http_port}/")
    browser.wait_for("sensors.lance")
    until(lambda: "loading" not in browser.text(), "the rows of the list", seconds=120)
    until(lambda: "1\ndead letters" in browser.text(), "the dead letter", seconds=120)
    grounds, plots = set(), ""
    for scheme in ("light", "dark"):
        show_in(browser, scheme)
        grounds.add(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert browser.value(CONTRAST) >= 4.5, scheme
        # The plots are drawn again in the colours of the scheme.
        plots = redrawn_plots(browser, plots)
        keep(browser, scheme)
    assert len(grounds) == 2
    # On a phone the plots end where their cards do, and each cell of a table is below the one before.
    assert not browser.value(STACKED)
    size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    until(lambda: browser.value(FITS), "narrow plots", seconds=120)
    until(lambda: browser.value(STACKED), "narrow tables", seconds=120)
    assert browser.value(BESIDE)
    keep(browser, "narrow")
    browser.call("Emulation.clearDeviceMetricsOverride")
    # The first key leads past the navigation, and stays on the page that is shown.
    press(browser, "Tab")
    assert browser.value("document.activeElement.className") == "skip"
    press(browser, "Enter")
    until(lambda: browser.value("document.activeElement.id") == "main", "the content", seconds=120)
    assert "There is no such page" not in browser.text()
    unnamed = "[...document.querySelectorAll('input, select, button')].filter((each) => "
    unnamed += "!each.labels?.length && !each.ariaLabel && !each.innerText.trim()).length"
    assert browser.value(unnamed) == 0
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("[...document.querySelectorAll('img')].every((each) => each.hasAttribute('alt'))")
    # What can't be shown is said, and nothing looks as if it were still to come.
    missing = quote(canonical(tmp_path / "none"), safe="")
    for page, words in (("table", "no table here yet"), ("proposal", "nothing is known of")):
        browser.open(f"http://127.0.0.1:{committer.http_port}/#/{page}?uri={missing}&proposal=unknown:1")
        browser.wait_for(words)
        assert [word for word in ("reading", "searching", "Fragments") if word in browser.text()] == []
    assert committer.stop() == 0
    browser.wait_for("not connected")
    # The browser's own log has these answers as errors, and the lost connection.
    browser.troubles[:] = [each for each in browser.troubles if "Failed to load resource" not in each]
    browser.troubles[:] = [each for each in browser.troubles if "ERR_" not in each]
