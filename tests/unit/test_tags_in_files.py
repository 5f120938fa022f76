"""`lakefold fold` and the verbs after it, for a file with tags: on disk, with pylance and delta-rs as judges."""

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

    def run(self, *words: str, code: int | None = 0) -> list[dict[str, Any]]:
        """The JSON lines that a verb prints. `code`: the exit code, None for any."""
        self._output.readouterr()
        ended = cli.run([words[0], str(self.path), *words[1:], "--json"])
        assert code in {None, ended}, self._output.readouterr()
        return [json.loads(line) for line in self._output.readouterr().out.splitlines()]


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
    assert [outcome["committed"]["tag"] for outcome in outcomes[:6]] == ["", "first", "", "gone", "second", "gone"]
    assert outcomes[6]["invalid"]["message"] == "the tag gone does not exist"
    tags = lance.dataset(str(files.path)).tags.list()
    assert set(tags) == {"first", "second"}
    assert lance.dataset(str(files.path), version="second").version == tags["second"]["version"]
    assert all("duplicate" in outcome or "invalid" in outcome for outcome in files.run("fold", log, code=3))
    assert [row["refused"] for row in files.run("log")].count(1) == 1
    files.run("replay", *(f"--file={file}" for file in files.files), "--check")


def test_pylance_takes_the_same_names(files: Files) -> None:
    """What pylance refuses is refused, and what it makes can be folded."""
    files.run("fold", files.write(creation(files.uri)))
    theirs = lance.dataset(str(files.path)).tags
    for name in ("v1.0", "a-b_c", "A" * 200, "main", "1", ".a", "a.", "a..b", "a.lock", "a/b", "a b", "", "a%2F"):
        (outcome,) = files.run("fold", files.write(files.tag(name, 1)), code=None)
        try:
            theirs.create(f"{name}", 1)
        except (OSError, ValueError) as error:
            assert ("committed" in outcome) == ("already exists" in str(error).lower()), (name, error)
        else:
            pytest.fail(f"pylance makes the tag {name!r}, which was answered {outcome}")


def test_a_delta_table_has_no_tags(files: Files) -> None:
    write_deltalake(str(files.path), pa.table({"x": [1]}))
    (outcome,) = files.run("fold", files.write(files.tag("x", 0)), code=3)
    assert outcome["invalid"]["message"] == "Delta tables have no tags"
    assert "number or a time" in outcome["invalid"]["hint"]
