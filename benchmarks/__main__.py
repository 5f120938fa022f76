"""Runs the measurements and prints them: `python -m benchmarks [--only PART …] [--quick]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks import (
    batches,
    carried,
    catalog,
    changes,
    commits,
    contended,
    delta,
    delta_log,
    fairness,
    folding,
    large,
    latency,
    maintenance,
    memory,
    mixed,
    opening,
    producers,
    queries,
    restart,
    reverting,
    s3,
    scan,
    spark_source,
    streaming,
    tail,
    upkeep,
    upserts,
    versions,
    writer,
)
from benchmarks.goals import GOALS
from benchmarks.ground import prepare
from lakefold.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.ground import Ground

RESULTS = Path(__file__).parent / "results"
QUICK = 10
"""By how much a quick run is smaller: to see that everything works, not to quote."""


def main() -> None:
    """Measures, prints, keeps the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*_parts(1, soak=False), *_parts_without_log(1, soak=False)],
        help="measure these parts only",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: figures not to be quoted")
    soak = (
        "maintenance: half an hour instead of a minute; reverting: 10,000 versions and up to 100 million rows"
    )
    parser.add_argument("--soak", action="store_true", help=soak)
    arguments = parser.parse_args()
    share = QUICK if arguments.quick else 1
    parts = _parts(share, soak=arguments.soak)
    alone = _parts_without_log(share, soak=arguments.soak)
    chosen = arguments.only or [*parts, *alone]
    console = Console()
    figures: dict[str, dict[str, float]] = {}
    with TemporaryDirectory(prefix="lakefold-bench-") as folder:
        for name in chosen:
            console.print(f"measuring {name} …")
            root = Path(folder) / name
            root.mkdir()
            if name in alone:
                figures[name] = alone[name](root)
            else:
                with Broker(Path(folder) / f"broker-{name}") as broker:
                    figures[name] = parts[name](prepare(broker.bootstrap_servers, root, name))
            _print(console, name, figures[name])
    _keep(figures, quick=arguments.quick)


def _parts(share: int, *, soak: bool) -> dict[str, Callable[[Ground], dict[str, float]]]:
    return {
        "batches": partial(batches.measure, batches=80 // share),
        "catalog": partial(catalog.measure, commits=320 // share, inserts=640 // share),
        "commits": partial(commits.measure, transactions=100_000 // share),
        "contended": partial(contended.measure, upserts=498 // share),
        "delta": partial(delta.measure, transactions=48_000 // share, share=share),
        "producers": partial(producers.measure, transactions=32_000 // share),
        "fairness": partial(fairness.measure, unknown=60_000 // share, large=200 // share),
        "latency": partial(latency.measure, proposals=1_000 // share, fragments=100_000 // share),
        "large": partial(large.measure, transactions=20_000 // share, fragments=100_000 // share),
        "maintenance": partial(
            maintenance.measure, seconds=45 / share, maintained_seconds=1800 if soak else 90 / share
        ),
        "mixed": partial(mixed.measure, transactions=20_000 // share, fragments=10_000 // share),
        "memory": partial(memory.measure, fragments=1_000_000 // share),
        "queries": partial(queries.measure, rows=4_000_000 // share),
        "restart": partial(restart.measure, fragments=100_000 // share, versions=100_000 // share),
        "streaming": partial(streaming.measure, rows=4_000_000 // share),
        "upkeep": partial(upkeep.measure, fragments=100_000 // share, waiting=100_000 // share),
        "upserts": partial(upserts.measure, rows=10_000_000 // share),
        "writer": partial(writer.measure, seconds=20 / share),
    }


def _parts_without_log(share: int, *, soak: bool) -> dict[str, Callable[[Path], dict[str, float]]]:
    return {
        "carried": partial(carried.measure, share=share),
        "changes": partial(changes.measure, share=share),
        "delta-log": partial(delta_log.measure, share=share),
        "fold": partial(folding.measure, share=share),
        "opening": partial(opening.measure, share=share),
        "reverting": partial(reverting.measure, share=share, soak=soak),
        "s3": partial(s3.measure, share=share),
        "scan": partial(scan.measure, share=share),
        "spark-source": partial(spark_source.measure, share=share),
        "tail": partial(tail.measure, share=share),
        "versions": partial(versions.measure, share=share),
    }


def _print(console: Console, name: str, figures: dict[str, float]) -> None:
    table = Table("figure", "value", "goal", "", title=name)
    goals = GOALS.get(name, {})
    for figure, value in figures.items():
        shown = f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
        goal = goals.get(figure)
        verdict = "" if goal is None else ("reached" if goal.reached(value) else "MISSED")
        table.add_row(figure, shown, "" if goal is None else str(goal), verdict)
    console.print(table)


def _keep(figures: dict[str, dict[str, float]], *, quick: bool) -> None:
    """Writes each part's figures with what they were measured on. A quick run is kept apart."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False)
    stamp = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("quick.json" if quick else "latest.json")
    earlier = json.loads(path.read_text()) if path.exists() else {}
    measured = {name: {**stamp, "figures": each, **_judged(name, each)} for name, each in figures.items()}
    kept = earlier | measured
    path.write_text(json.dumps(kept, indent=2) + "\n")


def _judged(name: str, figures: dict[str, float]) -> dict[str, dict[str, str]]:
    """The goals of a part, each with whether it was reached."""
    values = {
        figure: f"{goal}: {'reached' if goal.reached(figures[figure]) else 'missed'}"
        for figure, goal in GOALS.get(name, {}).items()
        if figure in figures
    }
    return {"goals": values} if values else {}


if __name__ == "__main__":
    main()
