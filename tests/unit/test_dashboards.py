"""Unit tests: dashboard and alerts ask only for metrics and labels that are published, and every metric is shown."""

from __future__ import annotations

import json
import re
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
