"""The README shows what the tests with other clients found."""

from __future__ import annotations

import json

from tests.clients.matrix import RESULTS, table_of


def test_the_readme_shows_the_results_of_the_clients() -> None:
    readme = (RESULTS.parents[2] / "README.md").read_text()
    assert table_of(json.loads(RESULTS.read_text())) in readme
