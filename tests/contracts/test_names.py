"""The names that outsiders rely on: verbs and their flags, settings, messages, Python's calls, metrics.

Operators' scripts, other languages and alerts are written against them. Adding a name is free; a name that is
missing here breaks other programs, and needs a decision and a line in the CHANGELOG (CONTRIBUTING.md).
"""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import Counter, Metric

import lakefold
from lakefold import cli
from lakefold.console.settings import Settings
from lakefold_committer.observability.metrics import Metrics
from lakefold_protos.lakefold import log_pb2
from lakefold_reader.snapshot.snapshot import Table
from lakefold_reader.tail.change import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor

REPOSITORY = Path(__file__).parents[2]
KAFKA = "--config --bootstrap-servers --kafka"
TOPICS = "--transactions-topic --outcomes-topic --dead-letters-topic"
STORE = "--config --storage-option --storage-options"
VERBS = {
    "up": "--port --dir",
    "down": "--dir",
    "status": f"{KAFKA} {TOPICS} --group --root --roots",
    "console": f"{KAFKA} {TOPICS} {STORE} --group --root --roots --host --port --token",
    "catalog": f"{KAFKA} {TOPICS} {STORE} --group --root --roots --host --port --token --suffix",
    "demo": "--rows --dir --port --format",
    "committer": f"{KAFKA} {TOPICS} {STORE} --until-caught-up --accept-new-log --print-config --partitions "
    "--ordinal --group --root --roots --http-port --http-host --group-max-entries --group-max-bytes "
    "--group-max-wait --topic-partitions --topic-replication --table-memory",
    "propose": f"TABLE {KAFKA} {TOPICS} {STORE} --transaction --app-id --batch-id --wait --branch --create "
    "--affected-rows --fragment-reuse-index --into",
    "create": f"TABLE {KAFKA} {TOPICS} {STORE} --schema --format --partition-by --property --if-not-exists "
    "--wait --commit-message",
    "alter": f"TABLE {KAFKA} {TOPICS} {STORE} --add --rename --drop --widen --set --unset --app-id "
    "--batch-id --wait --commit-message",
    "append": f"TABLE FILES {KAFKA} {TOPICS} {STORE} --app-id --batch-id --wait --format --partition-by",
    "upsert": f"TABLE FILES {KAFKA} {TOPICS} {STORE} --keys --order-by --app-id --batch-id --wait",
    "delete": f"TABLE FILES {KAFKA} {TOPICS} {STORE} --where --keys --app-id --batch-id --wait",
    "apply-changes": f"TABLE FILES {KAFKA} {TOPICS} {STORE} --keys --order-by --operation-column "
    "--operations --envelope --app-id --batch-id --wait",
    "fold": f"TABLE FILE {STORE} --dry-run --log-id",
    "ls": f"ROOT {STORE}",
    "head": f"TABLE {STORE} -n --rows --columns --where --version --tag --as-of --at-position --branch",
    "show": f"TABLE {STORE} --version --tag --as-of --at-position --branch",
    "log": f"TABLE {STORE} --from --to --tag --as-of --at-position --branch",
    "tail": f"TABLE {STORE} --from --follow --rows --consumer --max-versions --as-of --at-position --branch",
    "changes": f"TABLE {STORE} --from --to --columns --branch --rewritten",
    "diff": f"TABLE A B {STORE} --branch --rows",
    "refs": f"TABLE {STORE}",
    "tag": f"TABLE NAME {STORE} --version --tag --as-of --delete",
    "branch": f"TABLE NAME {KAFKA} {TOPICS} {STORE} --version --tag --as-of --delete --promote --dry-run",
    "restore": f"TABLE {KAFKA} {TOPICS} {STORE} --version --tag --as-of",
    "revert": f"TABLE BATCHES {KAFKA} {TOPICS} {STORE} --version --positions --branch --keys --keep-later "
    "--with-dependents --dry-run --wait",
    "forget": f"TABLE APP_ID {KAFKA} {TOPICS} {STORE} --branch --dry-run --yes --wait",
    "consumers": f"TABLE {STORE} --set --drop --branch",
    "cleanup": f"TABLE {STORE} --older-than --keep --dry-run --branch",
    "compact": f"TABLE {KAFKA} {TOPICS} {STORE} --branch --by-policy --threads --wait --engine --dry-run",
    "optimize-indices": f"TABLE {STORE} --branch --dry-run",
    "maintain": f"TABLES {KAFKA} {TOPICS} {STORE} --once --dry-run --every --engine --roots --http-port "
    "--http-host --niceness",
    "explain": f"TABLE PROPOSAL {KAFKA} {TOPICS} {STORE} --group --branch --versions --timeout",
    "replay": f"TABLE {KAFKA} {STORE} --check --from --to --branch --file --log-id",
    "redrive": f"{KAFKA} {TOPICS} {STORE} --table --offset --all --dry-run --wait",
    "adopt": f"TABLE {KAFKA} {TOPICS} {STORE} --partition --group --unproven",
    "rebind": f"TABLE {KAFKA} {TOPICS} {STORE} --partition --group --unanswered --restored --fold-again",
    "detach": f"TABLE {KAFKA} {TOPICS} {STORE} --group --unanswered",
    "drop": f"TABLE {STORE} --yes",
}
SETTINGS: dict[str, object] = {
    "bootstrap_servers": "",
    "kafka": {},
    "transactions_topic": "lakefold.transactions",
    "outcomes_topic": "lakefold.outcomes",
    "dead_letters_topic": "lakefold.dead-letters",
    "partitions": None,
    "group": "lakefold",
    "storage_options": {},
    "http_port": 8080,
}
MESSAGES = {
    "Envelope": "1 table string, 2 app_id string, 3 batch_id uint64?, 4 affected_rows AffectedRowsEntry*, "
    "5 create CreateOptions?, 6 fragment_reuse_index IndexMetadata?, 7 branch string, "
    "8 proposed_at Timestamp?, 10 lance Transaction?, 11 delta DeltaProposal?, 15 claim Claim?",
    "DeltaProposal": "1 read_version int64?, 2 actions bytes, 3 read_predicates string*, "
    "4 read_whole_table bool, 5 read_files string*, 6 isolation string, 7 operation string, "
    "8 operation_parameters OperationParametersEntry*, 9 read_app_ids string*, "
    "10 affected_rows AffectedRowsEntry*",
    "DeltaProposal.AffectedRowsEntry": "1 key string, 2 value bytes",
    "DeltaProposal.OperationParametersEntry": "1 key string, 2 value string",
    "Envelope.AffectedRowsEntry": "1 key uint64, 2 value bytes",
    "CreateOptions": "1 stable_row_ids bool, 2 data_storage_version string, 3 v1_manifest_paths bool",
    "Claim": "1 uri string, 2 size uint64, 3 sha256 bytes",
    "Position": "1 cluster_id string, 2 topic_id string, 3 topic string, 4 partition int32, 5 offset int64",
    "Outcome": "1 table string, 2 uuid string, 3 app_id string, 4 batch_id uint64?, 5 position Position?, "
    "6 table_id string, 7 branch string, 10 committed Committed?, 11 duplicate Duplicate?, "
    "12 rejected Rejected?, 13 invalid Invalid?",
    "Outcome.Committed": "1 version uint64, 2 rebased bool, 3 rows_added uint64, 4 rows_deleted uint64, "
    "5 first_fragment_id uint64, 6 num_fragment_ids uint64",
    "Outcome.Duplicate": "1 version uint64",
    "Outcome.Rejected": "1 retryable bool, 2 other_version uint64, 3 other_operation string, "
    "4 fragment_ids uint64*, 5 field_ids int32*, 6 keys string*, 7 message string",
    "Outcome.Invalid": "1 message string, 2 hint string",
}
KINDS = {3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 12: "bytes"}
TARGETS = "demo test help lint types test-fast bench docs clean"
CALLS: dict[str, tuple[Callable[..., object], str]] = {
    "open": (lakefold.open, "uri version tag as_of branch at_position storage_options"),
    "tail": (lakefold.tail, "uri start follow branch storage_options"),
    "diff": (lakefold.diff, "table a b branch storage_options rows"),
    "changes": (lakefold.changes, "uri after to columns branch storage_options"),
    "create": (
        lakefold.create,
        "table schema format partition_by properties stable_row_ids if_not_exists options",
    ),
    "alter": (lakefold.alter, "table add rename drop widen properties app_id batch_id options"),
    "overwrite": (lakefold.overwrite, "table rows where overwrite_schema app_id batch_id options"),
    "status": (lakefold.status, "options"),
    "redrive": (lakefold.redrive, "table offsets every dry_run options"),
    "tag": (lakefold.tag, "table name move delete options"),
    "branch": (lakefold.branch, "table name delete options"),
    "restore": (lakefold.restore, "table options"),
    "refs": (lakefold.refs, "table storage_options"),
    "history": (lakefold.history, "table branch app operation since row most storage_options"),
    "explain": (lakefold.explain, "table proposal branch options"),
    "cleanup": (lakefold.cleanup, "table older_than keep branch dry_run storage_options"),
}


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_takes_what_it_took(verb: str) -> None:
    command = cli.VERBS[verb].load()
    taken = {
        name for parameter in command.params for name in (*parameter.opts, (parameter.name or "").upper())
    }
    assert {*VERBS[verb].split(), "--json"} - taken == set()


def test_every_verb_is_named_here() -> None:
    assert VERBS.keys() == cli.VERBS.keys()


def test_settings_have_their_names_and_defaults() -> None:
    made = Settings().model_dump()
    assert {name: made[name] for name in SETTINGS} == SETTINGS
    assert {"roots", "group_max_entries", "group_max_bytes", "group_max_wait"} <= made.keys()


@pytest.mark.parametrize("name", list(MESSAGES))
def test_a_message_has_its_fields(name: str) -> None:
    descriptor: Descriptor = log_pb2.DESCRIPTOR.message_types_by_name[name.partition(".")[0]]
    for inner in name.split(".")[1:]:
        descriptor = descriptor.nested_types_by_name[inner]
    assert descriptor.full_name == f"lakefold.log.v1.{name}"
    fields = set()
    for field in descriptor.fields:
        kind = KINDS.get(field.type) or (field.message_type and field.message_type.name)
        many = "*" if field.is_repeated else "?" if field.has_presence else ""
        fields.add(f"{field.number} {field.name} {kind}{many}")
    assert set(MESSAGES[name].split(", ")) - fields == set()


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_takes_its_arguments_by_name(name: str) -> None:
    call, names = CALLS[name]
    taken = inspect.signature(call).parameters
    assert set(names.split()) - taken.keys() == set()
    assert getattr(lakefold, name) is call


def test_what_the_texts_of_a_table_and_a_change_show() -> None:
    table = "version schema count_rows history to_arrow __arrow_c_stream__ take"
    change = "version timestamp position inserted cursor"
    for kind, names in ((Table, table), (Change, change)):
        existing = {*dir(kind), *kind.__annotations__}
        assert set(names.split()) - existing == set()
    assert {"columns", "filter"} <= inspect.signature(Table.to_arrow).parameters.keys()


def test_the_sink_takes_its_arguments_in_their_order() -> None:
    from lakefold.spark import sink

    taken = list(inspect.signature(sink).parameters)
    assert taken[:4] == ["table", "bootstrap_servers", "app_id", "wait"]


def test_metrics_are_named_by_what_they_count() -> None:
    metrics: list[Metric] = list(Metrics().registry.collect())
    assert len(metrics) > 10
    for metric in metrics:
        name = metric.name + ("_total" if metric.type == Counter.__name__.lower() else "")
        if name.startswith(("process_", "python_")):
            continue
        assert re.fullmatch(r"lakefold_[a-z_]+", name)
        assert metric.documentation
        if metric.type == "histogram":
            assert name.endswith(("_seconds", "_bytes", "_entries")), name


def test_make_has_its_targets() -> None:
    process = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^\W*(?:\[1m)?([a-z-]+)", process.stdout.replace("\x1b", ""), re.MULTILINE))
    assert set(TARGETS.split()) - listed == set()


def test_the_readme_names_only_verbs_that_exist() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    answer = {verb for page in pages for verb in re.findall(r"`?lakefold ([a-z]+)\b(?! =)", page.read_text())}
    known = {*cli.VERBS, "version"}
    quoted = {verb for page in pages for verb in re.findall(r"`lakefold ([a-z-]+)\b", page.read_text())}
    assert quoted <= known
    assert {"up", "committer"} <= answer
