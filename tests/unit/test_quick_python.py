"""The Python processes of Spark sessions, which are copies in tests, behave as processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.quick_python import IMPORTED, quick_python


def test_each_of_our_modules_can_be_imported_first() -> None:
    """A copy has imported all of them, so a circle of imports would not show in it."""
    ours = [module for module in IMPORTED if module.startswith("lakefold_")]
    assert ours
    processes = {
        module: subprocess.Popen([sys.executable, "-c", f"import {module}"], stderr=subprocess.PIPE)
        for module in ours
    }
    said = {module: process.communicate()[1].decode() for module, process in processes.items()}
    assert {module: said[module] for module in ours if processes[module].returncode != 0} == {}


def test_a_copy_gets_the_signal_by_which_spark_ends_a_process() -> None:
    # The path of a socket has a limit.
    with TemporaryDirectory(prefix="lakefold-python-") as folder, quick_python(Path(folder)) as program:
        command = [str(program), "-m", "pyspark.daemon", "pyspark.worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout as written:
            assert len(written.read(4)) == 4, "the port of the daemon, when it has begun"
            process.send_signal(signal.SIGTERM)
            assert process.wait() > 0, "it ends as the copy does, not by the signal"
            # The copy had it open as well.
            assert written.read() == b""
