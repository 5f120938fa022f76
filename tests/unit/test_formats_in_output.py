"""Each verb that opens a table says which format the table has: as text, and in its JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakefold import cli
from lakefold.binding.verbs import print_moved
from lakefold.maintaining.maintain import _print
from lakefold_committer.tables.rebinding import Moved
from lakefold_maintenance.scheduling.table_maintenance import RoundReport
from lakefold_table.marks.marks import Rebinding, RebindReason

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ["lance", "delta"]
VERBS = [
    "log",
    "tail",
    "cleanup --dry-run",
    "cleanup --kept",
    "consumers --set nightly latest",
    "compact --dry-run",
    "restore --version 1 --dry-run",
    "replay",
    "show",
    "changes --from 1",
]


def make(path: Path, table_format: str) -> str:
    """Makes a table with the versions 1 and 2."""
    rows = pa.table({"x": [1]})
    for _ in range(2 if table_format == "lance" else 3):
        if table_format == "lance":
            lance.write_dataset(rows, path, mode="append" if path.exists() else "create")
        else:
            write_deltalake(path, rows, mode="append")
    return str(path)


@pytest.mark.parametrize(
    ("table_format", "verb"),
    # Delta tables have no tags and branches.
    [("lance", "refs"), *((table_format, verb) for table_format in FORMATS for verb in VERBS)],
)
def test_a_verb_says_the_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table_format: str, verb: str
) -> None:
    name, *options = verb.split()
    words = [name, make(tmp_path / "t", table_format), *options]
    assert cli.run(words) == 0
    text = capsys.readouterr()
    says = f"({table_format} table)\n"
    if name == "show":
        assert f"\nformat        {table_format}\n" in text.out
    else:
        assert (text.out + text.err).count(says) == 1
        assert text.err.endswith(says), "stdout has rows only"
    assert cli.run([*words, "--json"]) == 0
    printed = capsys.readouterr()
    documents = [json.loads(line) for line in printed.out.splitlines()]
    if name == "changes":
        # A row has the columns of the table.
        assert printed.err.endswith(says)
        assert {"x", "_change_type"} <= documents[0].keys()
        return
    items = documents[0] if name == "consumers" else documents
    assert items
    assert {each["format"] for each in items} == {table_format}


@pytest.mark.parametrize("table_format", FORMATS)
def test_verbs_that_need_a_broker_say_the_format(
    capsys: pytest.CaptureFixture[str], table_format: str
) -> None:
    moved = Moved(3, "id", Rebinding(RebindReason.DETACHED, None, None, 0), table_format)
    report = RoundReport("file:///t", table_format, 3, 1)
    for as_json in (False, True):
        print_moved("file:///t", [("", moved)], as_json=as_json)
        _print(report, dry_run=False, as_json=as_json)
    *text, move, compaction = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"file:///t ({table_format} table): ") for line in text)
    assert len(text) == 2
    assert [json.loads(line)["format"] for line in (move, compaction)] == [table_format] * 2
