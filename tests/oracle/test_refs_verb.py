"""`lakefold refs` lists the tags and branches that pylance made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold import cli
from lakefold_table.uri import canonical
from lakefold_table.versions.refs import UnknownRefError
from tests.proposals import rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    lance.write_dataset(rows([1]), tmp_path / "t")
    return lance.write_dataset(rows([2]), tmp_path / "t", mode="append")


def test_tags_and_branches_are_those_that_pylance_lists(
    dataset: lance.LanceDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = canonical(tmp_path / "t")
    assert cli.run(["refs", uri]) == 0
    screen = capsys.readouterr().out
    assert "no tags" in screen
    assert "main" in screen

    dataset.tags.create("b-tag", 2)
    side = dataset.create_branch("side", 1)
    side.delete("id = 1")
    side.tags.create("a-tag", ("side", side.version))
    assert cli.run(["refs", uri, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["table"], document["version"]) == (uri, 2)
    theirs = dataset.tags.list()
    assert [(each["name"], each["version"], each["branch"]) for each in document["tags"]] == [
        (name, theirs[name]["version"], theirs[name]["branch"] or "") for name in ("a-tag", "b-tag")
    ]
    (branch,) = document["branches"]
    listed = dataset.branches.list()["side"]
    assert branch["parent_version"] == listed["parent_version"] == 1
    assert (branch["name"], branch["version"], branch["parent_branch"]) == ("side", side.version, "")
    assert branch["created_at"].endswith("Z")

    # A branch's own root leads to the table.
    assert cli.run(["refs", str(tmp_path / "t" / "tree" / "side"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert cli.run(["refs", uri]) == 0
    screen = capsys.readouterr().out
    assert "a-tag" in screen
    assert f"side    {side.version:>6}  main, version 1" in screen


def test_a_missing_name_is_reported_with_the_verb_that_lists_names(
    dataset: lance.LanceDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (["--tag", "none"], ["--branch", "none"]):
        assert cli.run(["show", dataset.uri, *given]) == 2
        assert "lakefold refs TABLE" in capsys.readouterr().err
    with pytest.raises(UnknownRefError, match="lakefold refs TABLE"):
        cli.VERBS["show"].load().main([dataset.uri, "--tag", "x"], standalone_mode=False)
    assert cli.run(["refs", f"{dataset.uri}/none"]) == 2
