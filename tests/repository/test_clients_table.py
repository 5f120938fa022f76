"""The page of clients shows what the tests with other clients found."""

from __future__ import annotations

import json
import re

from tests.clients.matrix import RESULTS, table_of


def test_the_page_shows_the_results_of_the_clients() -> None:
    page = (RESULTS.parents[2] / "docs/reference/clients.md").read_text()
    assert table_of(json.loads(RESULTS.read_text())) in page


def test_the_versions_of_clients_of_delta_tables_are_those_of_the_tests() -> None:
    root = RESULTS.parents[2]
    page = (root / "docs/reference/clients.md").read_text().partition("## Delta tables")[2]
    lock, readme = (root / "requirements.lock").read_text(), (root / "README.md").read_text()
    jars = (root / "lakefold/local/jars.lock").read_text()
    for named, package in (
        ("delta-rs", "deltalake"),
        *((each, each) for each in ("duckdb", "polars", "pandas")),
    ):
        version = re.search(rf"^{package}==([0-9.]+) ", lock, re.MULTILINE)
        assert version is not None
        assert f"| {named} {version[1]}" in page
        if package in ("deltalake", "duckdb"):
            assert f"{named} {'.'.join(version[1].split('.')[:2])} " in readme
    spark = re.search(r":delta-spark_([0-9.]+)_[0-9.]+:([0-9.]+) ", jars)
    assert spark is not None
    assert f"| delta-spark {spark[2]}, Spark {spark[1]} |" in page
