"""The manifests against Kubernetes' own schemas, and against what a committer needs to be safe and alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest

from deploy.helm import render
from lakefold.console.settings import read_settings
from lakefold.folding.committer import fixed
from lakefold_committer.process.ordinals import PartitionShare
from tests.deploy.manifests import (
    BASE,
    DEPLOY,
    GOLDEN,
    ROOT,
    Manifest,
    committers_of,
    kustomized,
    listed_by,
    load,
    maintainers_of,
    manifests,
    of_kind,
    pod_of,
    service_of,
)

if TYPE_CHECKING:
    from pathlib import Path

RENDERED = {path.stem: manifests(path) for path in GOLDEN}
ALL: dict[str, list[Manifest]] = {**RENDERED, "kustomize": kustomized()}
OPERATOR = "monitoring.coreos.com/v1"
DEPLOYMENTS = [each for documents in ALL.values() for each in committers_of(documents)]
MAIN = RENDERED["minimal"]


@pytest.mark.parametrize("version", ["1.27", "1.34"])
@pytest.mark.parametrize("where", ALL)
def test_kubernetes_would_take_them(where: str, version: str) -> None:
    known = [each for each in ALL[where] if each["apiVersion"] != OPERATOR]
    assert len(known) >= 6
    for each in known:
        kubernetes_validate.validate(each, version, strict=True)


def test_only_the_operators_kinds_have_no_schema() -> None:
    actual = {each["kind"] for each in ALL["full"] if each["apiVersion"] == OPERATOR}
    assert actual == {"ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_what_was_rendered_is_the_chart_as_it_is(golden: Path) -> None:
    values = render.EXAMPLES / golden.name
    first = golden.read_text(encoding="utf-8").splitlines(keepends=True)[0]
    assert first == render.heading(values), "the chart changed: `make charts`"


def test_every_example_is_rendered() -> None:
    assert [path.name for path in GOLDEN] == sorted(path.name for path in render.EXAMPLES.glob("*.yaml"))


def test_the_charts_copies_are_what_they_copy() -> None:
    assert [
        source.name for source, copy in render.COPIES.items() if source.read_bytes() != copy.read_bytes()
    ] == []


def test_pods_have_no_rights_they_do_not_need() -> None:
    for deployment in DEPLOYMENTS:
        pod = pod_of(deployment)
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_no_partition_has_two_committers() -> None:
    schemes = set()
    for documents in ALL.values():
        claimed: list[int] = []
        committers = committers_of(documents)
        for each in committers:
            spec, answer = each["spec"], _partitions(each)
            if isinstance(answer, tuple):
                claimed += answer
                assert (each["kind"], spec["replicas"], spec["strategy"]) == (
                    "Deployment",
                    1,
                    {"type": "Recreate"},
                )
            else:
                assert len(committers) == 1
            schemes.add(answer if isinstance(answer, str) else "fixed")
        assert len(claimed) == len(set(claimed))
    assert schemes == {"fixed", "shared", "ordinal/3"}
    assert len(committers_of(RENDERED["full"])) == 2


def test_a_pod_that_shares_is_there_before_another_leaves() -> None:
    shared = [each["spec"] for each in DEPLOYMENTS if _partitions(each) == "shared"]
    assert len(shared) == 4
    for spec in shared:
        assert spec["replicas"] > 1
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_pods_that_a_rollout_replaces_do_not_count_for_the_spread() -> None:
    keys = {
        (_partitions(each) == "shared", tuple(spread.get("matchLabelKeys", ())))
        for each in DEPLOYMENTS
        for spread in pod_of(each)["topologySpreadConstraints"]
    }
    assert keys == {(True, ("pod-template-hash",)), (False, ())}


def test_a_drain_does_not_wait_for_brokers() -> None:
    budgets = [each for documents in ALL.values() for each in of_kind(documents, "PodDisruptionBudget")]
    assert {each["spec"]["unhealthyPodEvictionPolicy"] for each in budgets} == {"AlwaysAllow"}
    assert len(budgets) == len(ALL)


def test_verbs_that_are_run_in_a_pod_find_the_settings() -> None:
    for each in DEPLOYMENTS:
        container = pod_of(each)["containers"][0]
        files = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "settings"]
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert [variables["LAKEFOLD_CONFIG"]] == files
        assert [arg for arg in container["args"] if arg.startswith("--config")] == []


def test_pods_that_share_are_members_by_their_names() -> None:
    for each in DEPLOYMENTS:
        variables = {
            variable["name"]: variable.get("valueFrom") for variable in pod_of(each)["containers"][0]["env"]
        }
        name = variables.get("LAKEFOLD_KAFKA__GROUP_INSTANCE_ID")
        assert name == (
            {"fieldRef": {"fieldPath": "metadata.name"}} if _partitions(each) == "shared" else None
        )


def test_a_pod_says_why_it_stopped_and_logs_json_alone() -> None:
    for each in DEPLOYMENTS:
        container = pod_of(each)["containers"][0]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert "--json" in container["args"]


def test_arguments_of_the_runbooks_can_be_given() -> None:
    arguments = {
        where: pod_of(committers_of(documents)[0])["containers"][0]["args"]
        for where, documents in RENDERED.items()
    }
    assert {where for where, args in arguments.items() if "--accept-new-log" in args} == {"kept"}


def test_the_base_does_not_hold_the_claim_of_the_tables() -> None:
    assert of_kind(listed_by(BASE), "PersistentVolumeClaim") == []
    (claim,) = of_kind(kustomized(), "PersistentVolumeClaim")
    volumes = pod_of(committers_of(kustomized())[0])["volumes"]
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each
    ]
    assert claims == [claim["metadata"]["name"]]


def test_helm_test_asks_the_committers_and_is_let_in() -> None:
    for documents in RENDERED.values():
        (pod,) = of_kind(documents, "Pod")
        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
        labels, service = pod["metadata"]["labels"], service_of(documents)
        assert not service["spec"]["selector"].items() <= labels.items()
        script, name, port, replicas = pod["spec"]["containers"][0]["args"]
        compile(script, "ready.py", "exec")
        assert (name, int(port)) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
        assert int(replicas) == sum(each["spec"]["replicas"] for each in committers_of(documents))
        (rule,) = of_kind(documents, "NetworkPolicy")[0]["spec"]["ingress"]
        peers = [each.get("podSelector", {}).get("matchLabels", {"": ""}) for each in rule.get("from", ())]
        assert not peers or any(each.items() <= labels.items() for each in peers)


def test_a_maintainer_has_the_pod_of_a_committer_with_an_image_and_a_verb_of_its_own() -> None:
    assert [where for where, documents in ALL.items() if maintainers_of(documents)] == ["full"]
    documents = RENDERED["full"]
    (maintainer,), committer = maintainers_of(documents), committers_of(documents)[0]
    (own,), (other,) = (pod_of(each)["containers"] for each in (maintainer, committer))
    assert (maintainer["spec"]["replicas"], maintainer["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert own["image"] == "registry.example.com/lakefold-maintainer:0.1.0"
    assert own["args"] == ["maintain", "--json", "--every=300"]
    different = {"name", "image", "args", "resources"}
    assert {**own, **dict.fromkeys(different)} == {**other, **dict.fromkeys(different)}
    pods = [{**pod_of(each), "containers": []} for each in (maintainer, committer)]
    assert pods[0].pop("terminationGracePeriodSeconds") > pods[1].pop("terminationGracePeriodSeconds")
    pods[1].pop("topologySpreadConstraints")
    assert pods[0] == pods[1]


def test_the_console_is_served_with_a_token_of_a_secret_if_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for where, documents in RENDERED.items():
        written = next(
            each["data"]["committer.toml"]
            for each in of_kind(documents, "ConfigMap")
            if "committer.toml" in each["data"]
        )
        (tmp_path / where).write_text(written, encoding="utf-8")
        assert read_settings({}, tmp_path / where).console is (where == "counted")
    (committer,) = committers_of(RENDERED["counted"])
    (container,) = pod_of(committer)["containers"]
    (token,) = (each for each in container["env"] if "secretKeyRef" in each.get("valueFrom", ()))
    assert token["valueFrom"]["secretKeyRef"] == {"name": "lakefold-console", "key": "token"}
    monkeypatch.setenv(token["name"], "not to be seen")
    settings = read_settings({}, tmp_path / "counted")
    assert (settings.console, settings.console_token) == (True, "not to be seen")
    assert "not to be seen" not in str(settings)


def test_a_maintainer_is_scraped_and_may_reach_the_brokers_and_is_no_committer() -> None:
    documents = RENDERED["full"]
    labels = maintainers_of(documents)[0]["spec"]["template"]["metadata"]["labels"]
    policy, monitor = of_kind(documents, "NetworkPolicy")[0], of_kind(documents, "ServiceMonitor")[0]
    for selector in (policy["spec"]["podSelector"], monitor["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
        (component,) = selector["matchExpressions"]
        assert component["key"] == "app.kubernetes.io/component"
        assert component["values"] == ["committer", "maintainer"]
    services = of_kind(documents, "Service")
    assert [each["spec"]["selector"].items() <= labels.items() for each in services].count(True) == 1
    budget = of_kind(documents, "PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"]
    assert not budget.items() <= labels.items()


def test_ordinals_are_those_of_the_pods() -> None:
    (counted,) = [each for each in DEPLOYMENTS if each["kind"] == "StatefulSet"]
    answer, spec = _partitions(counted), counted["spec"]
    assert answer == f"ordinal/{spec['replicas']}"
    service = service_of(RENDERED["counted"])
    assert service["metadata"]["name"] == spec["serviceName"]
    assert service["spec"]["clusterIP"] == "None"
    pods = [f"{counted['metadata']['name']}-{number}" for number in range(spec["replicas"])]
    turns = [fixed(read_settings({"partitions": answer}), pod) for pod in pods]
    assert turns == [PartitionShare(number, len(pods)) for number in range(len(pods))]


def _partitions(committer: Manifest) -> tuple[int, ...] | str | None:
    """What a committer's pods are set to fold."""
    flags = [arg for arg in pod_of(committer)["containers"][0]["args"] if arg.startswith("--partitions=")]
    return read_settings({"partitions": flags[0].partition("=")[2]} if flags else {}).partitions


def test_services_of_the_namespace_can_not_set_settings() -> None:
    # A Service named lakefold-http would otherwise give every pod LAKEFOLD_HTTP_PORT=tcp://…
    assert [pod_of(each)["enableServiceLinks"] for each in DEPLOYMENTS] == [False] * len(DEPLOYMENTS)


def test_probes_ask_for_pages_that_are_served() -> None:
    pages = (ROOT / "committer/lakefold_committer/observability/health.py").read_text(encoding="utf-8")
    for each in DEPLOYMENTS:
        container = pod_of(each)["containers"][0]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert f'"{asked["path"]}"' in pages
            assert asked["port"] in ports


@pytest.mark.parametrize("where", RENDERED)
def test_the_settings_file_is_one_that_a_committer_reads(where: str, tmp_path: Path) -> None:
    written = next(
        each["data"]["committer.toml"]
        for each in of_kind(RENDERED[where], "ConfigMap")
        if "committer.toml" in each["data"]
    )
    file = tmp_path / "committer.toml"
    file.write_text(written, encoding="utf-8")
    settings = read_settings({}, file)
    values = load(render.EXAMPLES / f"{where}.yaml")
    options = values["kafka"].get("options", {})
    storage = values.get("storage", {})
    mount = storage.get("mountPath", "/tables")
    assert settings.bootstrap_servers == values["kafka"]["bootstrapServers"]
    assert settings.kafka == {
        name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()
    }
    assert settings.roots == tuple(storage.get("roots", [f"file://{mount}"]))
    assert (settings.http_host, settings.umask) == ("0.0.0.0", "002")  # noqa: S104 - probes come from the node
    assert settings.storage_options == {
        name: str(value) for name, value in storage.get("options", {}).items()
    }
    assert (
        settings.http_port
        == pod_of(committers_of(RENDERED[where])[0])["containers"][0]["ports"][0]["containerPort"]
    )
    assert {name: getattr(settings, name) for name in values.get("settings", {})} == values.get(
        "settings", {}
    )
    # The brokers' default counts if the setting is left out.
    assert settings.topic_replication == values.get("topics", {}).get("replication", 3)
    assert settings.maintenance == values.get("maintainer", {}).get("policy", {})


def test_the_settings_file_of_the_base_is_one_that_a_committer_reads() -> None:
    settings = read_settings({}, DEPLOY / "kustomize/base/committer.toml")
    assert settings.bootstrap_servers
    assert settings.roots == ("file:///tables",)
    assert (settings.http_host, settings.umask) == ("0.0.0.0", "002")  # noqa: S104 - probes come from the node


def test_secrets_reach_the_client_by_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    container = pod_of(committers_of(RENDERED["full"])[0])["containers"][0]
    secret = [each for each in container["env"] if "secretKeyRef" in each.get("valueFrom", ())]
    assert [each["valueFrom"]["secretKeyRef"] for each in secret] == [
        {"name": "lakefold-kafka", "key": "password"},
        {"name": "lakefold-store", "key": "secret"},
    ]
    for each in secret:
        monkeypatch.setenv(each["name"], "not to be seen")
    settings = read_settings({})
    assert settings.kafka == {"sasl.password": "not to be seen"}
    assert settings.storage_options == {"aws_secret_access_key": "not to be seen"}
    assert "not to be seen" not in str(settings)


STORAGE: dict[str, list[dict[str, Any]]] = {
    "good": [
        {"roots": ["s3://lake/a", "s3a://lake", "s3+ddb://lake/a", "gs://lake", "az://lake"]},
        {"roots": ["abfss://lake@account.dfs.core.windows.net/a", "file:///lake"]},
        {"options": {"aws_access_key_id": "a", "sse_kms_key_id": "b", "timeout": 5}},
    ],
    "bad": [
        *({"roots": [root]} for root in ("/lake", "http://lake", "s3://")),
        *({"options": {name: "x"}} for name in ("aws_secret_access_key", "session_token", "account_key")),
    ],
}


def test_the_values_take_every_store_and_no_secret(tmp_path: Path) -> None:
    for kind, several in STORAGE.items():
        for number, storage in enumerate(several):
            (tmp_path / f"{kind}-{number}.json").write_text(json.dumps({"storage": storage}))
    schema = ["--schemafile", str(DEPLOY / "helm/lakefold/values.schema.json"), "--output-format", "json"]
    names = [sys.executable, "-m", "check_jsonschema", *schema, *map(str, tmp_path.glob("*.json"))]
    stdout = subprocess.run(names, check=False, capture_output=True, text=True).stdout
    refused = {each["filename"] for each in json.loads(stdout)["errors"]}
    assert refused == set(map(str, tmp_path.glob("bad-*.json")))


def test_each_volume_exists_and_tables_are_below_a_root() -> None:
    for documents in ALL.values():
        for deployment in committers_of(documents):
            pod = pod_of(deployment)
            mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_a_volume_for_tables_exists_only_if_tables_are_on_one() -> None:
    with_volume = {
        where
        for where, documents in ALL.items()
        for each in committers_of(documents)
        if any("persistentVolumeClaim" in volume for volume in pod_of(each)["volumes"])
    }
    claims = {where for where, documents in ALL.items() if of_kind(documents, "PersistentVolumeClaim")}
    assert with_volume == ALL.keys() - {"eks"}
    # "kept" names a claim that is there already.
    assert claims == with_volume - {"kept"}


def test_selectors_find_the_pods() -> None:
    for documents in ALL.values():
        pods = [each["spec"]["template"]["metadata"]["labels"] for each in committers_of(documents)]
        selectors = [
            service_of(documents)["spec"]["selector"],
            of_kind(documents, "PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"],
            of_kind(documents, "NetworkPolicy")[0]["spec"]["podSelector"]["matchLabels"],
        ]
        assert [each for each in selectors if not all(each.items() <= pod.items() for pod in pods)] == []


def test_brokers_can_be_reached_through_the_network_policy() -> None:
    for where, values in {name: load(render.EXAMPLES / f"{name}.yaml") for name in RENDERED}.items():
        asked = {int(port) for port in re.findall(r":(\d+)", values["kafka"]["bootstrapServers"])}
        policy = of_kind(RENDERED[where], "NetworkPolicy")[0]
        let = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        assert asked <= let


def test_stores_and_collectors_can_be_reached_through_it_if_there_are_some() -> None:
    rules = {
        where: of_kind(documents, "NetworkPolicy")[0]["spec"]["egress"]
        for where, documents in RENDERED.items()
    }
    let = {
        where: {port["port"] for rule in actual for port in rule["ports"]} - {53}
        for where, actual in rules.items()
    }
    assert let == {
        "minimal": {9092},
        "counted": {9092},
        "kept": {9092},
        "eks": {9096, 443, 4318},
        "full": {9094, 9000},
    }
    assert rules["full"][-1]["to"] == [{"ipBlock": {"cidr": "198.51.100.0/24"}}]
    assert "to" not in rules["eks"][-2]


def test_kustomize_and_helm_run_the_same_pod() -> None:
    assert _comparable(committers_of(kustomized())[0]) == _comparable(committers_of(MAIN)[0])


def _comparable(deployment: Manifest) -> dict[str, Any]:
    """A deployment's pod without the names that the two give differently."""
    pod = dict(pod_of(deployment))
    pod["topologySpreadConstraints"] = [
        {name: value for name, value in each.items() if name != "labelSelector"}
        for each in pod["topologySpreadConstraints"]
    ]
    return pod


def test_the_version_is_that_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = load(DEPLOY / "helm/lakefold/Chart.yaml")
    images = load(DEPLOY / "kustomize/base/kustomization.yaml")["images"]
    compose = load(DEPLOY / "compose/compose.yaml")["services"]["committer"]["image"]
    assert {chart["version"], chart["appVersion"], images[0]["newTag"], compose.partition(":")[2]} == {
        version
    }
