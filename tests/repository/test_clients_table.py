"""The page of clients shows what the tests with other clients found."""

from __future__ import annotations

import json

from tests.clients.matrix import RESULTS, table_of


def test_the_page_shows_the_results_of_the_clients() -> None:
    page = (RESULTS.parents[2] / "docs/reference/clients.md").read_text()
    assert table_of(json.loads(RESULTS.read_text())) in page
