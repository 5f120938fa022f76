"""With `--log-format json` all that a verb writes to stderr is a JSON object a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakefold import cli
from lakefold.console.logs import configure
from lakefold_log.read.file_log import framed
from lakefold_table.uri import canonical
from tests.proposals import creation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = ("--log-format", "json")


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Later tests have the form that they request."""
    yield
    configure()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines on stderr since the last call."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("verb", cli.VERBS)
def test_each_verb_ends_with_a_json_line(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*JSON, verb, "--no-such-option"]) == cli.USAGE
    (line,) = lines(capsys)
    assert (line["level"], line["event"], line["exit_code"]) == ("error", "failed", cli.USAGE)
    assert "No such option" in line["error"]


@pytest.mark.parametrize(
    "words",
    [
        ("--log-format", "json", "no-such-verb"),
        ("--log-format=json",),
        ("--log-format", "text", "--log-format", "json", "--no-such-option", "show"),
        ("--log-format", "json", "--log-level", "no-such-level", "show"),
    ],
)
def test_a_mistake_before_the_verb_is_a_json_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.run(words) == cli.USAGE
    (line,) = lines(capsys)
    assert (line["event"], line["exit_code"]) == ("failed", cli.USAGE)
    configure()
    monkeypatch.setenv("LAKEFOLD_LOG_FORMAT", "json")
    assert cli.run(["no-such-verb"]) == cli.USAGE
    assert lines(capsys)[0]["error"].startswith("there is no verb")
    configure()
    assert cli.run(["--log-format", "text", "no-such-verb"]) == cli.USAGE
    assert capsys.readouterr().err.startswith("Usage: ")


NO_TABLE = ("show", "log", "tail", "changes", "refs", "consumers", "cleanup", "replay", "adopt", "detach")


@pytest.mark.parametrize("verb", NO_TABLE)
def test_an_error_of_a_verb_has_its_hint_in_the_line(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFOLD_LOG_FORMAT", "json")
    more = ["--file", str(tmp_path / "log")] if verb == "replay" else []
    (tmp_path / "log").touch()
    assert cli.run([verb, str(tmp_path / "t"), *more]) > 1
    (line,) = [line for line in lines(capsys) if line["level"] == "error"]
    assert line["event"] == "failed"
    assert line["hint"] or verb == "changes"


def test_counts_and_names_of_tables_are_json_lines_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, log = str(tmp_path / "t"), tmp_path / "log"
    uri = canonical(path)
    log.write_bytes(framed([creation(uri)]))
    for words, events in (
        (["fold", path, str(log)], ["1 committed"]),
        (["replay", path, "--file", str(log)], ["1 same (lance table)"]),
        (["log", path], [f"{uri} (lance table)"]),
        (["refs", path], [f"{uri} (lance table)"]),
    ):
        assert cli.run([*JSON, *words]) == 0
        assert [line["event"] for line in lines(capsys)] == events
    assert cli.run(["--log-format", "text", "fold", path, str(log)]) == 0
    assert capsys.readouterr().err == "1 duplicate\n"
