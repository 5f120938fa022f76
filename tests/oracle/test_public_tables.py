"""Each version of public Delta tables has the rows that delta-rs and the published answers have.

What is refused is listed, and each reason is in the documentation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError

import lakefold
from lakefold_table.errors import InvalidError, LakefoldError, VersionExpiredError
from tests.delta_merging import DeltaFolding
from tests.oracle.public_tables import (
    MISSING,
    OLDER_REFUSED,
    PROJECT,
    REFUSED,
    UNWRITABLE,
    expected,
    is_whole,
    names,
    of_delta_rs,
    ours,
    texts,
    unpacked,
    versions,
)

if TYPE_CHECKING:
    from pathlib import Path

TABLES = names()
pytestmark = pytest.mark.skipif(not TABLES, reason=MISSING)
REFUSALS = (*REFUSED.values(), *OLDER_REFUSED.values(), *UNWRITABLE.values())


@pytest.mark.parametrize("name", [each for each in TABLES if each not in REFUSED])
def test_a_version_has_the_expected_rows(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    for version in (None, *versions(table)):
        if version is not None and name in OLDER_REFUSED and not is_whole(table, version):
            with pytest.raises(VersionExpiredError, match=OLDER_REFUSED[name].error):
                ours(table, version)
            continue
        rows, theirs = ours(table, version), of_delta_rs(table, version)
        assert rows.schema.names == theirs.schema.names
        assert texts(rows, rows.schema.names) == texts(theirs, rows.schema.names)
        assert lakefold.open(table, version).count_rows() == rows.num_rows
    for version, answer in expected(table).items():
        published = pq.read_table(answer)
        assert texts(ours(table, version), published.schema.names) == texts(published, published.schema.names)


@pytest.mark.parametrize("name", [each for each in TABLES if each in REFUSED])
def test_what_is_refused_is_refused_by_delta_rs_as_well(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    with pytest.raises(LakefoldError, match=re.escape(REFUSED[name].error)):
        ours(table)
    with pytest.raises(DeltaError):
        of_delta_rs(table)
    for version in versions(table):
        with pytest.raises(LakefoldError) as refused:
            ours(table, version)
        assert any(each.error in str(refused.value) for each in REFUSED.values())
        with pytest.raises(DeltaError):
            of_delta_rs(table, version)


@pytest.mark.parametrize("name", [each for each in TABLES if each not in REFUSED])
def test_an_append_is_folded_and_read_by_delta_rs(name: str, tmp_path: Path) -> None:
    table = unpacked(name, tmp_path)
    before = ours(table)
    if name in UNWRITABLE:
        with pytest.raises(InvalidError, match=re.escape(UNWRITABLE[name].error)):
            DeltaFolding(table).append(before)
        return
    DeltaFolding(table).append(before)
    twice = sorted(texts(before, before.schema.names) * 2)
    assert texts(ours(table), before.schema.names) == twice
    assert texts(of_delta_rs(table), before.schema.names) == twice


def test_each_reason_is_in_the_documentation() -> None:
    shown = (PROJECT / "docs/format/delta.md").read_text() + (
        PROJECT / "docs/reference/delta-features.md"
    ).read_text()
    assert [each.reason for each in REFUSALS if each.reason not in shown] == []
