"""Alerts and dashboard: Prometheus can read them, every metric exists, every alert has its section."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
from prometheus_client import Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lakefold_committer.fold.grouping import GroupEnd
from lakefold_committer.observability.metrics import AWAY, OPERATIONS, OUTCOMES, REASONS, FoldStatus, Metrics
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.batch_metrics import SinkMetrics, ended_batch
from lakefold_ingest.writing.report import BatchReport
from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics
from tests.deploy.manifests import DEPLOY, GOLDEN, ROOT, load, manifests, of_kind, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES: list[dict[str, Any]] = [
    rule for group in load(DEPLOY / "alerts/lakefold.yaml")["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "dashboards/lakefold.json").read_text(encoding="utf-8"))
RUNBOOKS = (ROOT / "docs/operations/observe.md").read_text(encoding="utf-8")
VARIABLES = {"$__rate_interval": "5m", "$namespace": "lake", "$job": "lake"}
VALUES = {
    "kind": set(OUTCOMES),
    "operation": set(OPERATIONS),
    "reason": set(REASONS),
    "what": set(AWAY),
    "limit": {end.value for end in GroupEnd},
}
OF_THE_SCRAPE = {"namespace", "job", "instance"}


@cache
def served() -> dict[str, set[str]]:
    """The names that `/metrics` serves, each with its labels."""
    metrics = Metrics()
    metrics.watch(0, lambda: FoldStatus(0), lambda: 0)
    for counted in (metrics.proposals, metrics.gap, metrics.outcomes_lost):
        counted.labels("0")
    metrics.foreign_outcomes.labels("0", "unsigned")
    for gauge in (metrics.held_back_offsets, metrics.held_back_seconds):
        gauge.labels("outcomes", "0")
    pages = [generate_latest(metrics.registry).decode(), maintained(), written_by_spark()]
    names: dict[str, set[str]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                names.setdefault(sample.name, set()).update(sample.labels)
    return names


def written_by_spark() -> str:
    """What a driver serves whose sink has written a batch."""
    metrics = SinkMetrics()
    metrics.note(ended_batch("t", Key("app", 0), "", BatchReport(None)))
    return generate_latest(metrics.registry).decode()


def maintained() -> str:
    """What a maintainer serves that has worked on a table."""
    metrics = MaintenanceMetrics()
    for each in vars(metrics).values():
        if isinstance(each, Gauge | Counter):
            each.labels(*("x" for _ in each._labelnames))
    return generate_latest(metrics.registry).decode()


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with where it stands; Grafana's variables are filled in."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for variable, value in VARIABLES.items():
                text = text.replace(variable, value)
            yield f"panel {panel['title']}", text


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    """What an expression reads."""
    selectors: list[promql_parser.VectorSelector] = []

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    yield from selectors


def unknown(expression: str) -> list[str]:
    """What an expression asks for in vain: metrics that nobody serves, labels that they don't have."""
    names = served()
    wrong = []
    for selector in selectors(expression):
        if selector.name not in names:
            wrong.append(str(selector.name))
            continue
        for matcher in selector.matchers.matchers:
            if matcher.name not in names[selector.name] | OF_THE_SCRAPE:
                wrong.append(f"{selector.name}: {matcher.name}")
            elif matcher.name in VALUES and not set(matcher.value.split("|")) <= VALUES[matcher.name]:
                wrong.append(f"{matcher.name} {matcher.value}")
    return wrong


@pytest.mark.parametrize(("where", "expression"), list(expressions()), ids=lambda text: text[:40])
def test_every_expression_reads_metrics_that_exist(where: str, expression: str) -> None:
    assert list(selectors(expression)), where
    assert unknown(expression) == [], where


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("rate(lakefold_outcome_total[5m])", ["lakefold_outcome_total"]),
        ('lakefold_lag_entries{table="t"}', ["lakefold_lag_entries: table"]),
        ('lakefold_outcomes_total{kind="refused"}', ["kind refused"]),
        ('lakefold_retries_total{what="disk"}', ["what disk"]),
        ("sum(up) + max(lakefold_ready)", ["up"]),
    ],
)
def test_the_check_sees_what_does_not_exist(expression: str, wrong: list[str]) -> None:
    assert unknown(expression) == wrong


def test_the_first_refusal_is_growth() -> None:
    served_at_start = generate_latest(Metrics().registry).decode()
    labels = [f'kind="{kind}",operation="{name}"' for kind in OUTCOMES for name in OPERATIONS]
    assert [each for each in labels if f"lakefold_outcomes_total{{{each}}} 0.0" not in served_at_start] == []


def test_every_alert_has_a_case_for_promtool() -> None:
    cases = (DEPLOY / "alerts/lakefold.test.yaml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in RULES if f'"{rule["alert"]}"' not in cases] == []


def test_labels_that_are_kept_exist() -> None:
    labels = set().union(*served().values()) | OF_THE_SCRAPE
    for where, expression in expressions():
        kept = re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", expression)
        assert {label.strip() for each in kept for label in each.split(",")} <= labels, where


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        str(each.name)
        for where, text in expressions()
        if where.startswith("panel")
        for each in selectors(text)
    }
    families = text_string_to_metric_families(generate_latest(Metrics().registry).decode())
    declared = {family.name for family in families if not family.name.endswith("_created")}
    assert {name for name in declared if not any(each.startswith(name) for each in shown)} == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_its_section(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"] == f"docs/operations/observe.md#{name.lower()}"
    assert f"\n### {name}\n" in RUNBOOKS


def test_every_section_has_its_alert() -> None:
    named = re.findall(r"^### (Lakefold\w+)$", RUNBOOKS, re.MULTILINE)
    assert named == [rule["alert"] for rule in RULES]


def test_the_charts_rule_is_the_rule_file() -> None:
    rendered = next(each for path in GOLDEN for each in of_kind(manifests(path), "PrometheusRule"))
    assert rendered["spec"] == load(DEPLOY / "alerts/lakefold.yaml")


def test_the_charts_dashboard_is_the_dashboard() -> None:
    written = [
        text for path in GOLDEN for each in manifests(path) for text in texts(each) if '"panels"' in text
    ]
    assert [json.loads(text) for text in written] == [DASHBOARD]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        location = panel["gridPos"]
        cells = {
            (location["x"] + x, location["y"] + y) for x in range(location["w"]) for y in range(location["h"])
        }
        assert location["x"] + location["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
