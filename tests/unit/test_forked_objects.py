"""Everything with threads, clients or locks of its own, and what becomes of it in a process that was forked.

A new one fails here until it is listed: it works there, or raises at once.

Promises: forked-processes (docs/operations/promises.md).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tests.repository import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES: Final = ("ingest/", "log/", "maintenance/", "reader/", "table/")
"""What is called in any process. The committer, the console and the demo are processes that never fork."""
PROGRAMS: Final = ("committer/", "lakefold/")
RAISES: Final = "tests/integration/test_forked.py: it raises at once"
BEGINS_AGAIN: Final = "tests/unit/test_forked_readers.py: it begins again"
ENDS_WITH_ITS_CALL: Final = "its threads, or its client, end before the call returns"
OF_THE_DRIVER: Final = "Spark's driver, which forks nothing"
OF_THE_COMMITTER: Final = "of a committer, whose process forks nothing"

THREADS: Final = {
    "ingest/lakefold_ingest/merge/lance/deletions.py": ENDS_WITH_ITS_CALL,
    "ingest/lakefold_ingest/writer/batch_writer.py": RAISES,
    "log/lakefold_log/client/admin.py": ENDS_WITH_ITS_CALL,
    "log/lakefold_log/read/consumer.py": ENDS_WITH_ITS_CALL,
    "log/lakefold_log/read/known_end.py": OF_THE_COMMITTER,
    "log/lakefold_log/write/producer.py": RAISES,
    "log/lakefold_log/write/trace_export.py": "at the end of the process",
    "log/lakefold_log/write/transactional_producer.py": OF_THE_COMMITTER,
    "maintenance/lakefold_maintenance/rewriting/on_spark.py": OF_THE_DRIVER,
    "reader/lakefold_reader/tail/wakeup.py": BEGINS_AGAIN,
    "reader/lakefold_reader/versions/prefetch.py": BEGINS_AGAIN,
    "table/lakefold_table/new_threads.py": ENDS_WITH_ITS_CALL,
    "table/lakefold_table/storage/concurrently.py": ENDS_WITH_ITS_CALL,
    "table/lakefold_table/storage/local.py": ENDS_WITH_ITS_CALL,
    "table/lakefold_table/storage/multipart.py": ENDS_WITH_ITS_CALL,
}
STARTING: Final = {"Thread", "ThreadPoolExecutor", "ProcessPoolExecutor", "Timer"}
CLIENTS: Final = {
    "log/lakefold_log/client/connection_probe.py __init__": "it is polled without waiting",
    # The only function of each that makes a client which `own_client` doesn't guard.
    "log/lakefold_log/client/overview.py recent_keys": ENDS_WITH_ITS_CALL,
    "log/lakefold_log/read/record_count.py count_records": ENDS_WITH_ITS_CALL,
    "log/lakefold_log/write/transactional_producer.py _membership": ENDS_WITH_ITS_CALL,
}
PYLANCE: Final = {
    "ingest/lakefold_ingest/lance/data_files.py",
    "ingest/lakefold_ingest/merge/conditions.py",
    "ingest/lakefold_ingest/rows/json_values.py",
    "maintenance/lakefold_maintenance/lance/rewriter.py",
    "reader/lakefold_reader/lance/scan/scan.py",
}
"""The modules that use pylance, which ask `check_process` first."""
KAFKA: Final = {"Producer", "Consumer", "AdminClient", "KeptClient"}
STORES: Final = {
    "table/lakefold_table/storage/aws.py": "a client for each process, by its id",
    "table/lakefold_table/storage/objects.py": "tests/integration/test_google_storage.py: it raises at once",
}
LOCKS: Final = {
    "log/lakefold_log/read/anchor.py": "of a reader of the log, which raises",
    "log/lakefold_log/read/outcomes.py": "of a reader of the log, which raises",
    "ingest/lakefold_ingest/writer/batch_writer.py": "of a Writer, which raises before it takes the lock",
}
"""Locks that are no `ProcessLock`, by their modules."""


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for source in tree.modules():
        if source.path.startswith(folders):
            yield source.path, ast.parse(source.text)


def called(node: ast.AST) -> Iterator[str]:
    """The names of what is called anywhere in here, without what they are attributes of."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            function = each.func
            name = function.id if isinstance(function, ast.Name) else ""
            yield function.attr if isinstance(function, ast.Attribute) else name
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                yield function.value.id


def imports(node: ast.Module, name: str) -> bool:
    """Whether a module imports this library."""
    return any(
        (isinstance(each, ast.Import) and any(alias.name.partition(".")[0] == name for alias in each.names))
        or (isinstance(each, ast.ImportFrom) and (each.module or "").partition(".")[0] == name)
        for each in ast.walk(node)
    )


def test_each_module_that_starts_threads_is_listed() -> None:
    assert {path for path, node in parsed(*LIBRARIES) if STARTING & set(called(node))} == set(THREADS)


def test_each_client_of_kafka_is_guarded_or_ends_with_its_call() -> None:
    unguarded = set()
    for path, module in parsed(*LIBRARIES, *PROGRAMS):
        if imports(module, "confluent_kafka"):
            for node in ast.walk(module):
                if isinstance(node, ast.FunctionDef) and KAFKA & (names := set(called(node))):
                    unguarded |= set() if "own_client" in names else {f"{path} {node.name}"}
    assert unguarded == set(CLIENTS)


def test_each_client_of_a_store_is_listed() -> None:
    clients = ("boto3", "obstore")
    modules = {path for path, node in parsed("") if any(imports(node, each) for each in clients)}
    assert {path for path in modules if path.startswith(LIBRARIES + PROGRAMS)} == set(STORES)


def test_each_lock_is_free_in_a_forked_process_or_listed() -> None:
    kinds = {"Lock", "RLock", "Condition"}
    with_locks = {
        path
        for path, node in parsed(*LIBRARIES)
        if any(
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in kinds
            and ast.unparse(each.func.value) == "threading"
            for each in ast.walk(node)
        )
        or any(
            isinstance(each, ast.ImportFrom)
            and each.module == "threading"
            and any(alias.name in kinds for alias in each.names)
            for each in ast.walk(node)
        )
    }
    assert with_locks == set(LOCKS) | {"table/lakefold_table/own_process.py"}


def test_each_module_that_uses_pylance_asks_for_its_process() -> None:
    modules = dict(parsed(*LIBRARIES))
    assert {path for path, node in modules.items() if imports(node, "lance")} == PYLANCE
    assert {path for path in PYLANCE if "check_process" in set(called(modules[path]))} == PYLANCE


def test_no_part_forks_its_process() -> None:
    """Then the threads of its programs are there. Python's pools of processes fork on Linux."""
    forks = {"fork", "forkpty", "ProcessPoolExecutor", "Process", "Pool"}
    calls = {
        f"{path} {name}" for path, node in parsed(*LIBRARIES, *PROGRAMS) for name in forks & set(called(node))
    }
    assert calls == set()
