"""Two nodes of Kubernetes, a control plane and a broker, as processes in the namespaces of `machine`."""

from __future__ import annotations

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.broker import PodsBroker
from tests.cluster.machine import HOST, NODES, call, on_node
from tests.cluster.tools import PROGRAMS
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NAMESPACE: Final = "lake"
DOMAIN: Final = "cluster.local"
API: Final = f"https://{HOST}:6443"
TOKEN: Final = "the-administrator-of-this-cluster"  # noqa: S105 - of an API that only these namespaces reach
CONTAINERD: Final = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{folder}/cni"
"""


class Cluster:
    """The processes of the cluster, with their files in `folder` and their programs in `tools`."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.broker = PodsBroker(folder / "broker")
        self._programs = tools / "bin"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, images: Sequence[Path]) -> None:
        """Starts everything, and waits until both nodes are ready. `images` are archives for the nodes."""
        self.logs.mkdir()
        self._write_access()
        self._start_names()
        # Unpacking the images takes longest. Neither the broker nor the control plane needs them.
        with ThreadPoolExecutor(len(NODES)) as pool:
            imported = [pool.submit(self._start_containerd, node, images) for node in NODES]
            self.broker.start()
            self._start_control_plane()
            for each in imported:
                each.result()
        for node in NODES:
            self._start_kubelet(node)
        until(lambda: self._ready_nodes() == len(NODES), "two ready nodes", seconds=120, every=0.5)

    def stop(self) -> None:
        """Stops the broker. The kernel ends everything else together with the namespaces."""
        self.broker.stop()

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Returns what kubectl prints. Raises `AssertionError` with its errors if it fails."""
        return self._client("kubectl", *words, text=text)

    def helm(self, *words: str, namespace: str = NAMESPACE) -> str:
        """Returns what helm prints. Raises `AssertionError` with its errors if it fails."""
        return self._client("helm", *words, "--namespace", namespace)

    def name_pods(self, service: str, namespace: str = NAMESPACE) -> None:
        """Has a headless service's name resolve to the committers' addresses, as a cluster's DNS would."""
        addresses = [pod["status"]["podIP"] for pod in self.pods(namespace)]
        lines = [f"{address} {service}.{namespace}.svc.{DOMAIN}\n" for address in addresses]
        self._names.write_text("".join(lines))
        self._processes["names"].send_signal(signal.SIGHUP)

    def pods(self, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """Returns the pods of committers that are not being deleted."""
        selector = "app.kubernetes.io/component=committer"
        listed = json.loads(self.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))
        return [pod for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]

    def process_of(self, pod: dict[str, Any]) -> int:
        """Returns the process id of the committer in a pod."""
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        tasks = self.containerd(pod["spec"]["nodeName"], "tasks", "ls")
        return next(int(line.split()[1]) for line in tasks.splitlines() if line.split()[0] == container)

    def containerd(self, node: str, *words: str | Path) -> str:
        """Returns what containerd's client prints on a node. Raises `CalledProcessError` if it fails."""
        address = self.folder / node / "containerd.sock"
        command = ["ctr", "--address", address, "--namespace", "k8s.io", *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def command(self, program: str, *words: str) -> list[str]:
        """Returns the command line of kubectl or helm as the administrator of this cluster."""
        return [str(self._programs / program), "--kubeconfig", str(self._access), *words]

    def _client(self, program: str, *words: str, text: str | None = None) -> str:
        command = self.command(program, *words)
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=text or "")
        assert done.returncode == 0, f"{program} {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def _names(self) -> Path:
        return self.folder / "names"

    def _start_names(self) -> None:
        """A server of names, which pods are configured to ask; it knows those of `name_pods`."""
        self._names.write_text("")
        flags = ["--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root", "--pid-file"]
        addresses = [f"--listen-address={HOST}", "--bind-interfaces", f"--addn-hosts={self._names}"]
        self._start("names", NODES[0], "dnsmasq", *flags, *addresses)

    @property
    def _access(self) -> Path:
        return self.folder / "administrator.json"

    def _write_access(self) -> None:
        """The API's users, its key for service accounts, and how clients reach it."""
        (self.folder / "tokens.csv").write_text(f"{TOKEN},administrator,1,system:masters\n")
        call("openssl", "genrsa", "-out", self.folder / "accounts.key", "2048")
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        self._access.write_text(json.dumps(access))

    def _start(self, name: str, node: str, *command: str | Path) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                on_node(node, *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _start_control_plane(self) -> None:
        first, folder, key = NODES[0], self.folder, self.folder / "accounts.key"
        etcd = ["--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"]
        self._start("etcd", first, "etcd", *etcd)
        server = {
            "etcd-servers": "http://127.0.0.1:2379",
            "bind-address": HOST,
            "advertise-address": HOST,
            "cert-dir": folder / "apiserver",
            "token-auth-file": folder / "tokens.csv",
            "authorization-mode": "Node,RBAC",
            "service-cluster-ip-range": "10.96.0.0/16",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-account-issuer": API,
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
        }
        self._start("apiserver", first, self._programs / PROGRAMS[0], *_flags(server))
        until(self._api_is_ready, "the API server", seconds=120, every=0.5)
        common = {"kubeconfig": self._access, "leader-elect": "false", "bind-address": "127.0.0.1"}
        manager = {**common, "cert-dir": folder / "manager", "service-account-private-key-file": key}
        self._start("manager", first, self._programs / PROGRAMS[1], *_flags(manager))
        scheduler = {**common, "cert-dir": folder / "scheduler"}
        self._start("scheduler", first, self._programs / PROGRAMS[2], *_flags(scheduler))

    def _start_containerd(self, node: str, images: Sequence[Path]) -> None:
        """Starts the runtime of a node, and gives it the images."""
        folder, number = self.folder / node, NODES.index(node) + 1
        (folder / "cni").mkdir(parents=True)
        (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder))
        (folder / "cni/10-bridge.conflist").write_text(json.dumps(_pod_network(folder, number)))
        (folder / "resolv.conf").write_text("")
        (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder, number)))
        settings = ["--config", str(folder / "containerd.toml"), "--log-level", "warn"]
        self._start(f"containerd-{node}", node, "containerd", *settings)
        until((folder / "containerd.sock").exists, f"containerd of {node}", seconds=60)
        until(lambda: self._containerd_answers(node), f"containerd of {node}", seconds=60, every=0.5)
        for image in images:
            self.containerd(node, "images", "import", image)

    def _start_kubelet(self, node: str) -> None:
        folder, number = self.folder / node, NODES.index(node) + 1
        kubelet = {
            "config": folder / "kubelet.json",
            "kubeconfig": self._access,
            "root-dir": folder / "kubelet",
            "hostname-override": node,
            "node-ip": f"10.77.0.{number}",
            "cert-dir": folder / "pki",
        }
        self._start(f"kubelet-{node}", node, self._programs / "kubelet", *_flags(kubelet))

    def _containerd_answers(self, node: str) -> bool:
        command = ["ctr", "--address", str(self.folder / node / "containerd.sock"), "version"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _api_is_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz") == "ok"
        except AssertionError:
            assert self._processes["apiserver"].poll() is None, f"the API server ended: {self.logs}"
            return False

    def _ready_nodes(self) -> int:
        listed = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        conditions = [each for node in listed for each in node["status"].get("conditions", ())]
        return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _flags(values: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def _pod_network(folder: Path, number: int) -> dict[str, Any]:
    """The bridge of a node's pods, and their addresses."""
    addresses = {
        "type": "host-local",
        "dataDir": str(folder / "addresses"),
        "ranges": [[{"subnet": f"10.88.{number}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{**bridge, "ipam": addresses}]}


def _kubelet(folder: Path, number: int) -> dict[str, Any]:
    """The settings of a node's kubelet."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": f"10.77.0.{number}",
        "healthzBindAddress": "127.0.0.1",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/lakefold-n{number}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "protectKernelDefaults": False,
        "makeIPTablesUtilChains": False,
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "nodeStatusUpdateFrequency": "5s",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "podPidsLimit": 1000,
        "seccompDefault": True,
        "resolvConf": str(folder / "resolv.conf"),
        "clusterDNS": [HOST],
        "clusterDomain": DOMAIN,
        "podLogsDir": str(folder / "pods"),
    }
