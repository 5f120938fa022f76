"""Prints which share of the product the tests ran, in lines and branches, and the modules with a low share.

`make test-coverage` runs all tests under coverage.py, whose data this program reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

LEAST_PERCENT: Final = 90
"""A module of which less was run is named."""


def percent(run: int, all_of_them: int) -> float:
    """Returns the share in percent, of nothing 100."""
    return 100 * run / all_of_them if all_of_them else 100.0


def shown(report: dict[str, Any]) -> str:
    """Returns the figures of a report of `coverage json`, a line each."""
    totals = report["totals"]
    lines = percent(totals["covered_lines"], totals["num_statements"])
    branches = percent(totals["covered_branches"], totals["num_branches"])
    figures = [f"lines {lines:.1f} %, branches {branches:.1f} %"]
    shares = {path: file["summary"]["percent_covered"] for path, file in report["files"].items()}
    low = sorted((share, path) for path, share in shares.items() if share < LEAST_PERCENT)
    if low:
        figures.append(f"below {LEAST_PERCENT} %:")
    return "\n".join([*figures, *(f"{share:5.1f} %  {path}" for share, path in low)])


def main() -> None:
    """Combines what the processes wrote, and prints the figures."""
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], check=True)
    written = Path("build/coverage/report.json")
    subprocess.run([*coverage, "json", "--quiet", "-o", str(written)], check=True)
    sys.stdout.write(shown(json.loads(written.read_text(encoding="utf-8"))) + "\n")


if __name__ == "__main__":
    main()
