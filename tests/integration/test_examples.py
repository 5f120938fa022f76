"""The examples run as they are, in a folder with a broker and a committer, and check their own results.

Each is the main program of one Python process in turn, so that Java and the imports begin once for all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefold.local.home import known_broker
from lakefold.local.jars import fetch_jars
from tests.integration.python_session import PythonSession
from tests.integration.terminal import BESIDE, Terminal, terminal_in

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTEBOOK = Path(__file__).parents[2] / "examples" / "measurements.ipynb"
PLOTS, NOTEBOOK_SECONDS = 4, "SECONDS = 4.0"
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SHORT = {"service": "1", "dashboard": "2", "backfill": "100000"}
"""Arguments with which an example takes less time."""
WITH_KAFKA = {"kafka_json", "debezium_cdc"}
"""Examples whose Spark reads a topic."""
LINES = 80
"""An example is read at one glance."""


@pytest.fixture(scope="module")
def terminal(_quick_workers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with terminal_in(tmp_path_factory.mktemp("examples")) as terminal:
        terminal.run("lakefold up")
        terminal.run(f"lakefold committer  # {BESIDE}")
        yield terminal


@pytest.fixture(scope="module")
def session(terminal: Terminal) -> Iterator[PythonSession]:
    """The process of the examples: its sessions of Spark can read Kafka's topics."""
    jars = ",".join(map(str, fetch_jars("spark")))
    variables = terminal.variables | {"PYSPARK_SUBMIT_ARGS": f'--jars "{jars}" pyspark-shell'}
    with PythonSession(terminal.folder, variables) as session:
        yield session


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(terminal: Terminal, session: PythonSession, example: Path) -> None:
    assert example.read_text().count("\n") < LINES
    argument = SHORT.get(example.stem, "")
    if example.stem in WITH_KAFKA:
        broker = known_broker(terminal.folder)
        assert broker is not None
        argument = broker.bootstrap_servers
    words = [str(example), *filter(None, [argument])]
    printed = session.run(
        f"import runpy, sys; sys.argv = {words}; runpy.run_path({words[0]!r}, run_name='__main__')",
        example.name,
    )
    assert printed.strip(), f"{example.name} says nothing"


def test_the_notebook_runs_and_draws_its_plots(terminal: Terminal) -> None:
    text = NOTEBOOK.read_text()
    assert NOTEBOOK_SECONDS in text
    (terminal.folder / NOTEBOOK.name).write_text(text.replace(NOTEBOOK_SECONDS, "SECONDS = 1.0"))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        terminal.variables[name] = str(terminal.folder / "jupyter")
    terminal.run("jupyter-execute --timeout=120 --output=executed measurements.ipynb && ls executed.ipynb")
    cells = json.loads((terminal.folder / "executed.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == PLOTS
