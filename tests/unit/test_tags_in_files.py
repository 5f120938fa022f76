"""`lakefold fold` and the verbs after it, for a file with tags, with pylance and delta-rs as judges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakefold import cli
from lakefold_log.read.file_log import framed
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_table.errors import RetryError
from lakefold_table.uri import canonical
from tests.proposals import append, creation, rows

if TYPE_CHECKING:
    from pathlib import Path


class Files:
    """A table that is folded from files of envelopes."""

    def __init__(self, folder: Path, output: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "t"
        self.uri = canonical(self.path)
        self._output = output
        self.files: list[str] = []

    def tag(self, name: str, version: int | None = None, **fields: Any) -> Envelope:  # noqa: ANN401 - of a message
        return Envelope(table=self.uri, tag=Tag(name=name, version=version, uuid=name, **fields))

    def write(self, *envelopes: Envelope) -> str:
        self.files.append(str(self.path.parent / f"{len(self.files)}.bin"))
        (self.path.parent / self.files[-1]).write_bytes(framed(envelopes))
        return self.files[-1]

    def run(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """The JSON lines that a verb prints. `code`: its exit code."""
        self._output.readouterr()
        assert cli.run([words[0], str(self.path), *words[1:], "--json"]) == code, self._output.readouterr()
        return [json.loads(line) for line in self._output.readouterr().out.splitlines()]

    def error(self) -> str:
        """What was written to the standard error since the last call or `run`."""
        return self._output.readouterr().err


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_a_file_sets_tags_that_pylance_reads(files: Files) -> None:
    files.run("fold", files.write(creation(files.uri)))
    added = [append(files.uri, rows([number]), 1) for number in range(2)]
    log = files.write(
        added[0],
        files.tag("first", 2),
        added[1],
        files.tag("gone", 1),
        files.tag("second", 3),
        files.tag("gone", delete=True),
        files.tag("gone", delete=True),
    )
    before = sorted(path.name for path in files.path.rglob("*"))
    dry = files.run("fold", log, "--dry-run", "--group-max-entries", "1", code=3)
    assert sorted(path.name for path in files.path.rglob("*")) == before
    outcomes = files.run("fold", log, "--group-max-entries", "1", code=3)
    assert [outcome.get("committed", outcome.get("invalid")) for outcome in dry[:6]] == [
        outcome.get("committed", outcome.get("invalid")) for outcome in outcomes[:6]
    ]
    names = [outcome["committed"].get("tag", "") for outcome in outcomes[:6]]
    assert names == ["", "first", "", "gone", "second", "gone"]
    assert outcomes[6]["invalid"]["message"] == "the tag gone does not exist"
    tags = lance.dataset(str(files.path)).tags.list()
    assert set(tags) == {"first", "second"}
    assert lance.dataset(str(files.path), version="second").version == tags["second"]["version"]
    assert all("duplicate" in outcome or "invalid" in outcome for outcome in files.run("fold", log, code=3))
    assert [row["refused"] for row in files.run("log")].count(1) == 1
    files.run("replay", *(f"--file={file}" for file in files.files), "--check")


GOOD = ("v1.0", "a-b_c", "A" * 200, "main", "1")
BAD = (".a", "a.", "a..b", "a.lock", "a/b", "a b", "", "a%2F")


def test_pylance_takes_the_same_names(files: Files) -> None:
    files.run("fold", files.write(creation(files.uri)))
    theirs = lance.dataset(str(files.path)).tags
    files.run("fold", files.write(*(files.tag(name, 1) for name in GOOD)))
    assert set(theirs.list()) == set(GOOD)
    for name in GOOD:
        with pytest.raises(ValueError, match="already exists"):
            theirs.create(name, 1)
    outcomes = files.run("fold", files.write(*(files.tag(name, 1) for name in BAD)), code=3)
    assert ["invalid" in outcome for outcome in outcomes] == [True] * len(BAD)
    for name in BAD:
        with pytest.raises((OSError, ValueError), match="Ref"):
            theirs.create(name, 1)


def test_a_folder_of_tags_that_leads_elsewhere_stops_no_committer(files: Files, tmp_path: Path) -> None:
    files.run("fold", files.write(creation(files.uri)))
    (tmp_path / "elsewhere").mkdir()
    (files.path / "_refs").symlink_to(tmp_path / "elsewhere")
    (outcome,) = files.run("fold", files.write(files.tag("x", 1)), code=3)
    assert outcome["invalid"]["message"] == "the store has no file for the tag x"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_with_the_path_of_a_tag_is_named_and_not_tried_forever(files: Files) -> None:
    files.run("fold", files.write(creation(files.uri)))
    folder = files.path / "_refs/tags/x.json"
    folder.mkdir(parents=True)
    log = files.write(files.tag("x", 1))
    assert cli.run(["fold", str(files.path), log]) == RetryError.exit_code
    assert "x.json: the tag's file can't be created or read" in files.error()
    folder.rmdir()
    (outcome,) = files.run("fold", log)
    assert outcome["committed"]["tag"] == "x"


def test_a_branch_that_is_damaged_stops_no_proposal_of_the_main_branch(files: Files) -> None:
    files.run("fold", files.write(creation(files.uri)))
    versions = files.path / "tree/dev/_versions"
    versions.mkdir(parents=True)
    for name in ("1.manifest", "18446744073709551613.manifest"):
        (versions / name).touch()
    (outcome,) = files.run("fold", files.write(files.tag("x", 1, branch="dev")), code=3)
    assert outcome["invalid"]["message"] == "there is no version 1 on branch dev"


def test_a_delta_table_has_no_tags(files: Files) -> None:
    write_deltalake(str(files.path), pa.table({"x": [1]}))
    (outcome,) = files.run("fold", files.write(files.tag("x", 0)), code=3)
    assert outcome["invalid"]["message"] == "Delta tables have no tags"
    assert "number or a time" in outcome["invalid"]["hint"]
