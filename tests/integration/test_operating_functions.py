"""What operators do from Python, through a real log: names, branches, restores, questions, clean-ups."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from lakefold_reader.versions.listing import OtherFormatError
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames


@pytest.fixture
def options(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[dict[str, Any]]:
    topics = {"transactions_topic": topic_names.transactions, "outcomes_topic": topic_names.outcomes}
    with ready_committer(bootstrap, topic_names, tmp_path):
        yield {"bootstrap_servers": bootstrap, "timeout": 120.0, **topics}
    close_clients()


def numbers(table: Path, **chosen: Any) -> list[int]:  # noqa: ANN401 - as `lakefold.open` takes them
    return sorted(pa.table(lakefold.open(table, **chosen).to_arrow())["n"].to_pylist())


def test_a_lance_table(options: dict[str, Any], tmp_path: Path) -> None:
    table = tmp_path / "t.lance"
    for number in range(3):
        lakefold.append(table, pa.table({"n": [number]}), app_id="loader", batch_id=number, **options)
    newest = lakefold.open(table).version
    named = lakefold.tag(table, "good", version=newest - 1, **options)
    assert (named.kind, named.version) == ("committed", newest - 1)
    with pytest.raises(lakefold.RefusedError, match="good") as refused:
        lakefold.tag(table, "good", **options)
    assert refused.value.outcome.kind == "invalid"
    lakefold.tag(table, "good", move=True, commit_message="checked again", **options)
    assert lance.dataset(table).tags.list()["good"]["version"] == newest
    lakefold.tag(table, "good", version=newest - 1, move=True, **options)
    begun = lakefold.branch(table, "audit", tag="good", **options)
    assert begun is not None
    assert begun.kind == "committed"
    assert numbers(table, branch="audit") == [0, 1]
    refs = lakefold.refs(table)
    assert [tag["name"] for tag in refs["tags"]] == ["good"]
    assert [branch["name"] for branch in refs["branches"]] == ["audit"]
    back = lakefold.restore(table, tag="good", commit_message="the last one was wrong", **options)
    assert back.version == newest + 1
    assert numbers(table) == sorted(lance.dataset(table).to_table()["n"].to_pylist()) == [0, 1]
    (restored,) = lakefold.history(table, operation="restore")
    assert restored.authors[0].message == "the last one was wrong"
    assert [row.version for row in lakefold.history(table, app="loader", most=2)] == [newest, newest - 1]
    assert [row.version for row in lakefold.history(table, row={"n": 2})] == [newest + 1, newest]
    explanation = lakefold.explain(table, "loader:2", **options)
    assert (explanation.state, explanation.version, explanation.rolled_back_by) == (
        "committed",
        newest,
        newest + 1,
    )
    assert lakefold.branch(table, "audit", delete=True, **options) is not None
    assert lakefold.refs(table)["branches"] == []
    with pytest.raises(lakefold.RefusedError, match="audit"):
        lakefold.branch(table, "audit", delete=True, **options)
    lakefold.tag(table, "good", delete=True, **options)
    planned = lakefold.cleanup(table, older_than=timedelta(0), dry_run=True)
    assert lakefold.cleanup(table, older_than=timedelta(0)) == planned
    assert [version["version"] for version in lance.dataset(table).versions()] == [newest + 1]


def test_a_delta_table(options: dict[str, Any], tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(3):
        rows = pa.table({"n": [number]})
        lakefold.append(table, rows, app_id="loader", batch_id=number, format="delta", **options)
    newest = lakefold.open(table).version
    assert lakefold.restore(table, version=newest - 1, **options).version == newest + 1
    assert numbers(table) == sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist()) == [0, 1]
    (restored,) = lakefold.history(table, operation="RESTORE")
    assert restored.version == newest + 1
    assert lakefold.explain(table, "loader:2", **options).rolled_back_by == newest + 1
    for ask in (lambda: lakefold.refs(table), lambda: lakefold.tag(table, "good", **options)):
        with pytest.raises(OtherFormatError):
            ask()


def test_options_that_mean_nothing(tmp_path: Path) -> None:
    table = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"n": [1]}), table)
    wrong: list[tuple[Any, str]] = [
        (lambda: lakefold.restore(table), "no version is named"),
        (lambda: lakefold.restore(table, version=1, tag="good"), "chosen by one of"),
        (lambda: lakefold.tag(table, "good", versoin=1), "there is no option 'versoin'"),  # type: ignore[call-arg]
        (lambda: lakefold.tag(table, "lakefold-consumer-x"), "belongs to a named consumer"),
        (lambda: lakefold.branch(table, "a/../b"), "branch"),
        (lambda: lakefold.tag(table, "good", commit_message="x" * 501), "501 characters"),
        (lambda: lakefold.cleanup(table, keep=0), "one version stays"),
        (lambda: lakefold.explain(table, "nobody:1", bootstrap_servers=""), "nothing is known"),
    ]
    for ask, message in wrong:
        with pytest.raises(lakefold.InvalidError, match=message):
            ask()
