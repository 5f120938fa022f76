"""A table with 100,000 versions: its page costs what the versions on it cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakefold.web.documents import kept_document, schemas_document, table_document, versions_document
from tests.many_tables import long_history

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = 100_000
CPU_S = 10.0
"""Reading all versions takes minutes; a page takes a fraction of a second on a quiet machine."""


def test_the_page_of_a_table_with_100000_versions_stays_usable(tmp_path: Path) -> None:
    uri = long_history(tmp_path / "long", VERSIONS)
    began = time.process_time()
    assert table_document(uri, {})["version"] == VERSIONS
    page = versions_document(uri, {}, branch="", last=None, most=25)
    assert [version["version"] for version in page["versions"]] == list(range(VERSIONS, VERSIONS - 25, -1))
    older = versions_document(uri, {}, branch="", last=50_000, most=25)
    assert older["versions"][0]["version"] == 50_000
    assert older["older"] == 50_000 - 25
    assert schemas_document(uri, {}, most=20)["searched_from"] == VERSIONS - 20
    assert "too many" in kept_document(uri, {})["note"]
    assert time.process_time() - began < CPU_S
