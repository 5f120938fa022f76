"""Every verb, run with the image's packages, works or says in one line what the image lacks."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topics import describe
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read.file_log import framed
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_table.uri import canonical
from tests.cluster.cluster import NAMESPACE
from tests.cluster.load import TOPICS
from tests.cluster.machine import TABLES
from tests.proposals import append, creation, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakefold_log.client.topic_names import Topics
    from tests.cluster.cluster import Cluster

LACKING: Final = {
    "tail": ["{table}", "--from", "1", "--rows"],
    "changes": ["{table}", "--from", "1"],
    "append": ["{table}", "{folder}/rows.csv"],
    "upsert": ["{table}", "{folder}/rows.csv", "--keys", "id"],
    "apply-changes": ["{table}", "{folder}/changes.json", "--keys", "id", "--envelope", "debezium"],
    "delete": ["{table}", "--where", "id = 1"],
    "head": ["{table}"],
    "catalog": ["--root", "{folder}", "--port", "0"],
    "demo": ["--dir", "{folder}/demo"],
    "up": ["--dir", "{folder}/up"],
}
"""Verbs with arguments for which pylance, Spark or Java is needed. The image has none of these."""
REASONS: Final = ("not installed", "has no pylance", "java was not found")

PROPOSED: Final = [
    "--transaction",
    "{folder}/append.txn",
    "--app-id",
    "verbs",
    "--batch-id",
    "1",
    "--wait",
    "60",
]
WORKING: Final = {
    "propose": ["{table}", *PROPOSED],
    "status": [],
    "create": ["{created}", "--schema", "{folder}/columns.json"],
    "alter": ["{created}", "--add", "n=long"],
    "ls": ["{folder}"],
    "show": ["{table}"],
    "log": ["{table}"],
    "refs": ["{table}"],
    "consumers": ["{table}"],
    "tag": ["{table}", "first", "--version", "1"],
    "restore": ["{table}", "--tag", "first", "--dry-run"],
    "branch": ["{table}", "other"],
    "explain": ["{table}", "verbs:1"],
    "diff": ["{table}", "1", "2"],
    "revert": ["{table}", "verbs:1", "--dry-run"],
    "replay": ["{table}", "--check"],
    "forget": ["{table}", "verbs", "--yes"],
    "redrive": [],
    # A table without small fragments and indices needs no rewrite, so pylance isn't loaded.
    "compact": ["{table}"],
    "optimize-indices": ["{table}"],
    "cleanup": ["{table}", "--dry-run"],
    "maintain": ["{table}", "--once", "--dry-run"],
    "fold": ["{other}", "{folder}/creation.bin"],
    "drop": ["{other}", "--yes"],
    "detach": ["{table}"],
    "adopt": ["{table}"],
    "rebind": ["{table}", "--partition", "{another}"],
    "down": ["--dir", "{folder}/up"],
}
"""Verbs that work in the image, without those that serve: `committer`, which the pod runs, and `console`."""


def every_verb(cluster: Cluster) -> None:
    """Runs each verb in a pod, with the settings of the pod, on a table that the committers have made."""
    config = KafkaConfig(cluster.broker.bootstrap_servers)
    command = cluster.command(
        "kubectl", "-n", NAMESPACE, "exec", "deployment/lakefold-main", "--", "lakefold"
    )

    def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], check=False, capture_output=True, text=True, timeout=120)

    check_verbs(run, config, TOPICS, TABLES)


def check_verbs(
    run: Callable[[Sequence[str]], subprocess.CompletedProcess[str]],
    config: KafkaConfig,
    topics: Topics,
    root: Path,
) -> None:
    """Requires that each verb works, or says in one line what it lacks.

    `run` runs it as an installation would that has the image's packages. A committer folds tables below
    `root`.
    """
    folder, table, other = root / "verbs-files", root / "verbs", root / "verbs-other"
    uri, made = canonical(str(table)), creation(canonical(str(table)))
    with Proposer(config, topics) as proposer, OutcomeWaiter(config, topics, uri) as waiter:
        waiter.wait(proposer.send_wait(made), made, 60)
    folder.mkdir()
    # The committers' user writes below it.
    folder.chmod(0o777)
    (folder / "rows.csv").write_text("id\n1\n")
    (folder / "changes.json").write_text("")
    (folder / "columns.json").write_text('{"id": "long"}')
    (folder / "creation.bin").write_bytes(framed([creation(canonical(str(other)))]))
    (folder / "append.txn").write_bytes(append(uri, rows([1]), 1).lance.SerializeToString())
    partitions = describe(Admin(config), topics.transactions).partitions
    another = (partition_of(uri, partitions) + 1) % partitions
    names = {"table": str(table), "other": str(other), "folder": str(folder), "another": str(another)}
    names["created"] = str(root / "verbs-created")
    failed = {}
    for verb, words in WORKING.items():
        done = run([verb, *(word.format(**names) for word in words)])
        if done.returncode != 0:
            failed[verb] = done.stdout + done.stderr
    for verb, words in LACKING.items():
        done = run([verb, *(word.format(**names) for word in words)])
        errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        lacks = len(errors) == 1 and any(reason in errors[0] for reason in REASONS)
        if not lacks or done.returncode != 2 or "Traceback" in done.stderr:
            failed[verb] = f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    assert not failed, "\n".join(f"{verb}: {text}" for verb, text in failed.items())
