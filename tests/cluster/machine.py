"""Namespaces for two nodes on this machine: what the cluster mounts and connects is not seen outside of them.

`in_namespaces` starts a program in namespaces of its own for mounts, processes and the network. When it ends,
however it ends, the kernel ends every process that was started in them and removes mounts, bridges and links.
Only control groups are left: `remove_groups` removes them.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES: Final = ("n1", "n2")
NODE_GROUPS: Final = tuple(f"lakefold-{node}" for node in NODES)
"""The control groups of the nodes' pods."""
HOST: Final = "10.77.0.1"
"""The address of the first node, which also has the control plane, the broker and the writer."""
TABLES: Final = Path("/srv")
"""Where nodes, pods and the writer have the volume of the tables: a folder that every Linux has."""
_GROUPS: Final = Path("/sys/fs/cgroup")
_KERNEL: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Settings of the kernel that a kubelet would change for the machine. It gets copies with these values."""
_NAMES: Final = {
    "hosts": f"127.0.0.1 localhost\n{HOST} n1\n10.77.0.2 n2\n",
    "resolv.conf": f"nameserver {HOST}\n",
}
"""Files in /etc. A broker asks for the name of its own address; the machine's servers can't be reached."""
_EMPTIED: Final = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")
"""Folders in which programs of the cluster write whatever their settings say."""


def in_namespaces(command: Sequence[str | Path], log: IO[bytes] | None = None) -> int:
    """Runs a command in new namespaces, and returns its exit code once all its processes have ended.

    If `log` is given, it gets what the command prints.
    """
    new = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]
    # The shell is process 1 of the namespace: it waits for processes that have lost their parents.
    shell = ["bash", "-c", '"$@"; exit $?', "cluster"]
    return subprocess.run(["unshare", *new, *shell, *command], check=False, stdout=log, stderr=log).returncode


def call(*command: str | Path) -> None:
    """Runs a command of the system. Raises `CalledProcessError` if it fails."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def on_node(node: str, *command: str | Path) -> list[str | Path]:
    """Returns the command line that runs a command in the network of a node."""
    return [*command] if node == NODES[0] else ["nsenter", f"--net=/run/netns/{node}", *command]


def prepare_machine(folder: Path) -> None:
    """Mounts and connects what the nodes need. Must be called inside of the namespaces."""
    call("mount", "--make-rshared", "/")
    for emptied in _EMPTIED:
        Path(emptied).mkdir(parents=True, exist_ok=True)
        call("mount", "-t", "tmpfs", "tmpfs", emptied)
    for name in ("tables", "kernel"):
        (folder / name).mkdir()
    call("mount", "--bind", folder / "tables", TABLES)
    for name, value in _KERNEL.items():
        copy = folder / "kernel" / name.replace("/", "_")
        copy.write_text(value + "\n")
        call("mount", "--bind", copy, Path("/proc/sys") / name)
    for name, text in _NAMES.items():
        file = folder / "kernel" / name
        file.write_text(text)
        call("mount", "--bind", file, Path("/etc") / name)
    _create_groups()
    _connect()


def cut_off(*, is_cut: bool) -> None:
    """Takes the second node's link down, or up again."""
    call("ip", "link", "set", "up2", "down" if is_cut else "up")


def _connect() -> None:
    """Connects the nodes by a link, and routes the addresses of their pods over it."""
    second = ["ip", "-n", "n2"]
    call("ip", "netns", "add", "n2")
    call("ip", "link", "set", "lo", "up")
    call(*second, "link", "set", "lo", "up")
    call("ip", "link", "add", "node0", "type", "bridge")
    call("ip", "addr", "add", f"{HOST}/24", "dev", "node0")
    call("ip", "link", "set", "node0", "up")
    call("ip", "link", "add", "up2", "type", "veth", "peer", "name", "eth0", "netns", "n2")
    call("ip", "link", "set", "up2", "master", "node0", "up")
    call(*second, "addr", "add", "10.77.0.2/24", "dev", "eth0")
    call(*second, "link", "set", "eth0", "up")
    call("ip", "route", "add", "default", "via", "10.77.0.2")
    call(*second, "route", "add", "default", "via", HOST)
    call("ip", "route", "add", "10.88.2.0/24", "via", "10.77.0.2")
    call(*second, "route", "add", "10.88.1.0/24", "via", HOST)
    for node in NODES:
        call(*on_node(node, "sysctl", "-qw", "net.ipv4.ip_forward=1"))


def _hierarchies() -> list[Path]:
    """The hierarchies of control groups: one for each controller in version 1, a single one in version 2."""
    if (_GROUPS / "cgroup.controllers").exists():
        return [_GROUPS]
    return [path for path in _GROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _create_groups() -> None:
    for hierarchy in _hierarchies():
        for node_group in NODE_GROUPS:
            group = hierarchy / node_group
            group.mkdir(exist_ok=True)
            # In version 1 a new group has no processors until they are written to it.
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / name).exists() and hierarchy != _GROUPS:
                    (group / name).write_text((hierarchy / name).read_text())


def remove_groups(*names: str) -> None:
    """Removes these control groups and those below them. A group that still has a process stays."""
    for hierarchy in _hierarchies():
        for top in (hierarchy / name for name in names):
            groups = [path for path in top.rglob("*") if path.is_dir()] if top.exists() else []
            # The deepest first.
            for group in [*sorted(groups, key=lambda path: -len(path.parts)), top]:
                with suppress(OSError):
                    group.rmdir()
