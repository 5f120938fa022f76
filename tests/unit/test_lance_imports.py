"""Threads that need pylance first at the same moment wait until one of them has imported all of it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import importlib.machinery, sys, threading
from pathlib import Path
from types import SimpleNamespace
import pyarrow as pa
from lakefold_ingest.lance import data_files

started, execute = threading.Event(), importlib.machinery.SourceFileLoader.exec_module

def slowly(loader, module):
    if module.__name__ == "lance.dataset":
        started.set()
        # As long as the other thread needs to write a file, if it doesn't wait.
        threading.Event().wait(1)
    execute(loader, module)

importlib.machinery.SourceFileLoader.exec_module = slowly
threading.Thread(target=lambda: __import__("lance")).start()
started.wait()
rows = pa.record_batch({"n": [1, 2]})
target = SimpleNamespace(
    uri=Path(sys.argv[1]).as_uri(), fitting=SimpleNamespace(schema=rows.schema),
    data_storage_version="2.0", storage_options={},
)
written = data_files._write_file(target, SimpleNamespace(one_file=lambda: iter([rows]), error=None))
print(written.physical_rows)
"""


def test_a_thread_writes_while_another_one_imports(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
