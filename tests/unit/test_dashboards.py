"""Unit tests: dashboard and alerts ask only for metrics and labels that are published, and every metric is shown."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from streams.metrics import Metrics

OPS = Path(__file__).resolve().parents[2] / "ops"
DASHBOARD: dict[str, Any] = json.loads((OPS / "dashboards" / "memriver.json").read_text(encoding="utf-8"))
RULES: dict[str, Any] = yaml.safe_load((OPS / "alerts" / "memriver.rules.yml").read_text(encoding="utf-8"))

# Name → labels, as the process would publish them.
METRICS: dict[str, set[str]] = {
    family.name + ("_total" if family.type == "counter" else ""): set(collector._labelnames)
    for collector in vars(Metrics()).values()
    if isinstance(collector, MetricWrapperBase)
    for family in collector.describe()
}

PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in ALERTS]


def _metrics(expression: str) -> set[str]:
    return {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"memriver_\w+", expression)}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_published_metrics_and_their_labels(expression: str) -> None:
    assert _metrics(expression) <= METRICS.keys()
    known = set().union(*(METRICS[name] for name in _metrics(expression))) | {"le", "job"}
    grouped = {
        label.strip() for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in labels.split(",")
    }
    matched = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", expression))
    assert grouped | matched <= known


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*(_metrics(target["expr"]) for panel in PANELS for target in panel["targets"]))
    assert shown == METRICS.keys()


def test_panels_have_their_own_ids_and_say_what_they_mean() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["description"] for panel in PANELS)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_urgent_it_is_and_where_to_look(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]


def test_the_dashboard_asks_the_data_source_that_is_provisioned() -> None:
    file = OPS / "dashboards" / "provisioning" / "datasources" / "prometheus.yaml"
    uid = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"][0]["uid"]
    assert {panel["datasource"]["uid"] for panel in PANELS} == {uid}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_the_first_of_its_kind_is_an_alert_too(rule: dict[str, Any]) -> None:
    """`increase` of a counter whose labels appear with the first event is nothing: something else has to see that one."""
    for name in re.findall(r"\(increase\((\w+)\[\w+\]\)\) > 0(?![.\d])", rule["expr"]):
        gauge = name.removesuffix("_total") + "_waiting"
        assert f"{name} unless {name} offset" in rule["expr"] or gauge in rule["expr"]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("memriver_changes_total", {"change": "deleted"}),
        ("memriver_candidates_total", {"channel": "model", "decision": "quarantine"}),
    ],
)
def test_what_an_alert_counts_is_zero_before_it_is_anything(name: str, labels: dict[str, str]) -> None:
    assert Metrics().registry.get_sample_value(name, labels) == 0.0


SEEN = OPS / "alerts" / "memriver.rules.test.yml"


def test_the_alerts_that_are_tried_are_there() -> None:
    tried = {
        case["alertname"] for test in yaml.safe_load(SEEN.read_text())["tests"] for case in test["alert_rule_test"]
    }
    assert tried <= {rule["alert"] for rule in ALERTS}
    assert {"MemriverDeadLetters", "MemriverMessagesLost"} <= tried


def test_alerts_fire_when_they_should_and_not_otherwise() -> None:
    """By Prometheus' own evaluation of `memriver.rules.test.yml`."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool here (Debian: the package `prometheus`)")
    command = [promtool, "test", "rules", SEEN.name]
    run = subprocess.run(command, cwd=SEEN.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
