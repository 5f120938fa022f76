"""Keeps the logs of pods: a kubelet removes them with the pod, which is often the one that failed."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tests.cluster.machine import NODES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_EVERY_S: Final = 0.2


@contextmanager
def kept_pod_logs(folder: Path, kept: Path) -> Iterator[None]:
    """Links each log that the kubelets have below `folder` into `kept`, as soon as it appears."""
    kept.mkdir()
    stop = threading.Event()

    def keep() -> None:
        while not stop.wait(_EVERY_S):
            _link(folder, kept)

    thread = threading.Thread(target=keep, name="pod-logs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _link(folder: Path, kept: Path) -> None:
    for node in NODES:
        # The folders are named NAMESPACE_POD_UID/CONTAINER/RESTARTS.log.
        for log in (folder / node / "pods").glob("*/*/*.log"):
            pod = log.parts[-3].rpartition("_")[0]
            # It is linked already, or was removed a moment ago.
            with suppress(FileExistsError, FileNotFoundError):
                (kept / f"{pod}_{log.parent.name}_{log.name}").hardlink_to(log)
