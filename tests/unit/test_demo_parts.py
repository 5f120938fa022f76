"""The demo's smaller parts: its folder, its screens, how what it started ends with it, its advice."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import lance
import pyarrow as pa
import pytest

from lakefold.demo import demo
from lakefold.demo.children import Child, NewLines
from lakefold.demo.folder import Folder, claim
from lakefold.demo.report import advice_for
from lakefold.demo.run import in_thread
from lakefold.demo.screen import DemoProgress, Screen
from lakefold.demo.verification import Checksum, DemoVerification, judge, question_services
from lakefold.errors import SetupError
from lakefold_table.errors import DamagedError, RetryError
from tests.waiting import until

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def alive(pid: int) -> bool:
    """Whether a process runs; a process that has ended and waits for its parent doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_new_run_replaces_the_last_one(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    with claim(root) as folder:
        for path in (folder.table, folder.broker, folder.checkpoint):
            path.mkdir()
        (folder.table / "old").touch()
        (root / "mine").touch()
        assert folder.scratch.is_dir()
    assert not folder.scratch.exists()
    assert folder.table.exists()
    with claim(root) as folder:
        assert sorted(path.name for path in root.iterdir()) == ["demo.lock", "logs", "mine", "scratch"]


@pytest.mark.parametrize("is_table", [True, False])
def test_the_table_of_an_earlier_release_is_replaced_too(tmp_path: Path, *, is_table: bool) -> None:
    """It was called otherwise, and is bound to a log that is removed with the broker."""
    with claim(tmp_path / "demo"):
        pass
    (tmp_path / "demo" / "flights" / ("_versions" if is_table else "mine")).mkdir(parents=True)
    with claim(tmp_path / "demo") as folder:
        assert (folder.root / "flights").exists() is not is_table


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "flights").mkdir()
    with pytest.raises(SetupError, match="files that are not of an earlier demo"), claim(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["flights"]
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="a file, not a folder"), claim(tmp_path / "file"):
        pass


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with claim(tmp_path / "demo") as folder:
        (folder.logs / "kept").touch()
        with pytest.raises(SetupError, match="another demo runs"), claim(tmp_path / "demo"):
            pass
        assert (folder.logs / "kept").exists()


def test_plain_lines_become_rarer_until_something_happens() -> None:
    now, reported = 0.0, []
    stream = io.StringIO()
    state = DemoProgress(100, doing="starting")
    screen = Screen(stream, state, clock=lambda: now)
    for tick in range(4000):
        now = tick * 0.05
        before = stream.tell()
        if tick == 2000:
            state.note("something")
        screen.refresh()
        if stream.tell() > before:
            reported.append(now)
    pauses = [after - before for before, after in pairwise([0.0, *reported])]
    assert pauses[0] < 2
    assert max(pauses) < 16
    assert next(pause for time, pause in zip(reported, pauses, strict=True) if time > 100) < 2
    assert len(reported) < 25
    assert stream.getvalue().isascii()


def test_the_plain_line_shows_rows_in_versions_lag_and_speed() -> None:
    stream = io.StringIO()
    state = DemoProgress(100_000, sent=90_000)
    state.saw(30_000, version=5)
    Screen(stream, state, clock=iter([0.0, 9.0, 9.0]).__next__).refresh()
    line = stream.getvalue()
    for part in ("90,000 of 100,000 events", "version 5", "30,000 rows read", "lag 60,000 rows", "rows/s"):
        assert part in line


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [70, 120])
def test_the_picture_fits_and_shows_the_same(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    state = DemoProgress(100_000, doing="d" * 130, sent=90_000, committer="pid 77, folding")
    state.saw(30_000, version=5)
    stream = Terminal()
    screen = Screen(stream, state, clock=iter([0.0, 9.0, 9.0, 9.1, 9.1, 9.1]).__next__)
    screen.refresh()
    shown = stream.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for part in ("90,000 of 100,000", "version 5", "30,000 rows read", "60,000 rows", "pid 77, folding"):
        assert part in shown
    state.note("a note")
    screen.close()
    above, _, below = stream.getvalue().removeprefix(shown).partition("a note\n")
    assert above.startswith(f"\x1b[{shown.count(chr(10))}F\x1b[J[")
    assert below.startswith(shown[:60])
    assert below.endswith(f"\x1b[{shown.count(chr(10))}F\x1b[J")


def test_what_is_no_terminal_gets_plain_lines() -> None:
    state = DemoProgress(1)
    state.note("a note")
    screen = Screen(stream := io.StringIO(), state)
    screen.refresh()
    screen.close()
    assert [line.endswith("] a note") for line in stream.getvalue().splitlines()] == [True]


def test_speed_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("lakefold.demo.screen.time.monotonic", lambda: now)
    state = DemoProgress(10_000)
    for second, visible in [(0.0, 0), (10.0, 5_000), (11.0, 6_000), (12.0, 8_000)]:
        now = second
        state.saw(visible, version=1)
    assert state.rate == 1_500


def test_progress_is_read_line_by_line_as_it_is_written(tmp_path: Path) -> None:
    progress = NewLines(tmp_path / "progress")
    with (tmp_path / "progress").open("a") as file:
        file.write('{"a": 1}\n{"b"')
        file.flush()
        assert list(progress.read()) == ['{"a": 1}']
        assert list(progress.read()) == []
        file.write(": 2}\n")
        file.flush()
        assert list(progress.read()) == ['{"b": 2}']


def test_a_signal_is_kept_until_asked_for() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with demo.recorded_signals() as check:
        check()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(demo.Interrupted) as caught:
            check()
    assert caught.value.number is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_work_in_a_thread_returns_its_result_or_error() -> None:
    def fail() -> None:
        raise KeyError("this")

    assert in_thread(lambda: 7).result(120) == 7
    with pytest.raises(KeyError, match="this"):
        in_thread(fail).result(120)


def test_a_child_ends_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "parents.py").write_text(
        "import subprocess, sys\n"
        f"print(subprocess.Popen({SLEEPER!r}).pid, flush=True)\n"
        "sys.stdin.read() or __import__('time').sleep(600)\n"
    )
    log = tmp_path / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        child = Child("parent", "parents", (), log=log, scratch=tmp_path)
        grandchild = int(until(log.read_text, "the grandchild's id"))
        child.end()
    assert not alive(child.pid)
    until(lambda: not alive(grandchild), "the grandchild's end")


def test_a_failed_child_is_reported_with_its_last_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child("committer", "lakefold", ["no-such-verb"], log=log, scratch=tmp_path)
    until(lambda: child.exit_code is not None, "its end")
    failure = child.failure()
    child.end()
    assert isinstance(failure, SetupError)
    assert "the committer exited with code 2" in failure.message
    assert "no-such-verb" in failure.message
    assert str(log) in failure.hint


def test_a_killed_child_is_reported_with_the_signal(tmp_path: Path) -> None:
    child = Child("x", "http.server", ["0"], log=tmp_path / "log", scratch=tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: child.exit_code is not None, "its end")
    failure = child.failure()
    child.end()
    assert isinstance(failure, RetryError)
    assert "was ended by SIGKILL" in failure.message


def test_settings_for_other_work_do_not_reach_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFOLD_GROUP", "production")
    monkeypatch.setenv("SPARK_HOME", "elsewhere")
    monkeypatch.setenv("LAKEFOLD_CACHE", "kept")
    (tmp_path / "telling.py").write_text("import os; print(*sorted(os.environ), os.environ['TMPDIR'])\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"
    child = Child("telling", "telling", (), log=log, scratch=tmp_path)
    child.end(120)
    names = log.read_text().split()
    assert "LAKEFOLD_CACHE" in names
    assert not {"LAKEFOLD_GROUP", "SPARK_HOME"} & set(names)
    assert names[-1] == str(tmp_path)


DEMO_THAT_DIES = """
import os, signal, subprocess, sys
from pathlib import Path
from lakefold.local.kill_on_exit import KillOnExit

folder, end = Path(sys.argv[1]), sys.argv[2]
sleeper = subprocess.Popen({sleeper!r}, stdout=subprocess.DEVNULL, start_new_session=True)
kept = KillOnExit(sleeper.pid, remove=folder / "scratch")
print(sleeper.pid, flush=True)
if end == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
kept.release()
"""


@pytest.mark.parametrize("how", ["dies", "ends in order"])
def test_the_watch_ends_what_a_dead_demo_leaves(tmp_path: Path, how: str) -> None:
    (tmp_path / "scratch").mkdir()
    program = DEMO_THAT_DIES.format(sleeper=SLEEPER)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), how], check=False, stdout=subprocess.PIPE, text=True
    )
    sleeper = int(done.stdout)
    try:
        if how == "dies":
            assert done.returncode == -signal.SIGKILL
            until(lambda: not alive(sleeper), "the end of what it left")
            until(lambda: not (tmp_path / "scratch").exists(), "the scratch folder to go")
        else:
            assert done.returncode == 0
            assert alive(sleeper)
            assert (tmp_path / "scratch").exists()
    finally:
        if alive(sleeper):
            os.kill(sleeper, signal.SIGKILL)


def test_what_is_missing_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    demo.check_needs(0)
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name in {"pyspark", "lance"} else object())
    with pytest.raises(SetupError, match="not installed: pylance, pyspark"):
        demo.check_needs(0)
    with pytest.raises(SetupError, match="not installed: pyspark"):
        demo.check_needs(0, "delta")


def test_advice_can_be_pasted_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path / "my lake" / "demo")
    monkeypatch.chdir(tmp_path)
    table, prompt, _ = advice_for(folder).values()
    assert shlex.split(table[0])[-2:] == ["log", "my lake/demo/flights.lance"]
    assert "lakefold.open('my lake/demo/flights.lance')" in prompt[1]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert shlex.split(next(iter(advice_for(folder).values()))[0])[-1] == str(folder.table)


@pytest.mark.parametrize(
    ("numbers", "same"), [((0, 1, 2), True), ((0, 2), False), ((0, 1, 1, 2), False), ((0, 1, 2, 3), False)]
)
def test_each_row_of_a_service_must_be_there_once(
    tmp_path: Path, numbers: tuple[int, ...], *, same: bool
) -> None:
    folder = Folder(tmp_path)
    rows = [(0, number) for number in numbers] + [(1, 0)]
    table = pa.table({"service": [row[0] for row in rows], "number": [row[1] for row in rows]})
    lance.write_dataset(table, str(folder.services_table))
    proof = question_services([3, 1], 2, folder)
    assert (proof.rows, proof.same) == (len(rows), same)
    sent = [DemoVerification("the CSV file", Checksum(1, 1), same=True)]
    if same:
        judge(sent, proof)
    else:
        with pytest.raises(DamagedError, match="rows, which are not those that they appended"):
            judge(sent, proof)


def test_the_verb_takes_no_more_rows_than_there_are() -> None:
    from lakefold.demo.demo import command

    with pytest.raises(click.BadParameter, match="336776"):
        command.make_context("demo", ["--rows", "336777"])
