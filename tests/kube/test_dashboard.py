"""The dashboard's queries and the alerts' expressions on what a loaded fleet exposes.

With DEDUPD_WRITE_DASHBOARD=docs/dashboard.png the data of each panel are drawn there."""

import json
import math
import os
import re

import pytest

import loaded
from cluster import CHART, find, rendered

DASHBOARD = json.loads((CHART / "files/dashboard.json").read_text())
PANELS = DASHBOARD["panels"]
METRIC = re.compile(r"\bdedupd_[a-z_]+\b")
VARIABLES = {
    "$__rate_interval": "5s",
    "$namespace": ".*",
    "$policy_namespace": "orders|crossings|pings",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    fleet = loaded.LoadedFleet(tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.stop()


def asked(expression):
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def series(fleet, target):
    return fleet.prometheus.range(asked(target["expr"]), fleet.start_s, fleet.end_s)


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_shows_something(fleet, panel):
    for target in panel["targets"]:
        found = series(fleet, target)
        shown = [value for _, _, values in found for value in values if not math.isnan(value)]
        assert any(value > 0 for value in shown), f"{target['expr']}: {found}"
        labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
        for metric, _, _ in found:
            assert set(labels) <= set(metric), f"{target['legendFormat']} of {metric}"


def test_the_outage_is_seen_where_it_should_be(fleet):
    def most(title, **labels):
        (panel,) = [panel for panel in PANELS if panel["title"] == title]
        return max(
            (
                value
                for target in panel["targets"]
                for metric, _, values in series(fleet, target)
                if labels.items() <= metric.items()
                for value in values
                if not math.isnan(value)
            ),
            default=0,
        )

    crossings, orders = {"exported_namespace": "crossings"}, {"exported_namespace": "orders"}
    assert most("Admitted without the store", reason="FAIL_OPEN", **crossings) > 1
    assert most("Admitted without the store", reason="FALLBACK", **orders) > 1
    assert most("Instances by breaker state", state="tripped") >= 1
    assert most("Suppressed share of the noisiest subject", exported_namespace="pings") > 0.95
    assert most("Findings about the store", check="eviction") == 3
    assert most("Findings about the store", **crossings) == 1
    assert most("Retries and dead letters", reason="MISSING_TIME") > 0
    assert most("Injections", reason="bad_annotation") > 0


def test_every_metric_is_one_that_dedupd_exposes(fleet):
    exposed = set(fleet.prometheus.ask("label/__name__/values"))
    rule = find(rendered(values={"prometheusRule": {"enabled": True}}), "PrometheusRule")
    expressions = [rule["expr"] for group in rule["spec"]["groups"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in PANELS for target in panel["targets"]]
    expressions += [it["query"] for it in DASHBOARD["templating"]["list"]]
    named = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(named) > 15
    assert named <= exposed


def test_the_variables_find_their_values(fleet):
    values = {
        it["name"]: re.fullmatch(r"label_values\((.*), (\w+)\)", it["query"])
        for it in DASHBOARD["templating"]["list"]
        if it["type"] == "query"
    }
    for name, expected in [
        ("namespace", {"shop", "dedupd-system"}),
        ("policy_namespace", {"orders", "crossings", "pings"}),
    ]:
        selector, label = values[name].groups()
        found = fleet.prometheus.ask(f"label/{label}/values", **{"match[]": asked(selector)})
        assert set(found) == expected


def test_the_dashboard_is_in_its_config_map():
    it = find(rendered(values={"dashboard": {"enabled": True}}), "ConfigMap", "-dashboard")
    assert json.loads(it["data"]["dedupd.json"]) == DASHBOARD
    assert it["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.skipif(
    "DEDUPD_WRITE_DASHBOARD" not in os.environ, reason="draws the documents' picture"
)
def test_draw(fleet):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    columns = 4
    rows = math.ceil(len(PANELS) / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(17, 2.6 * rows), layout="constrained")
    for axis in axes.flat[len(PANELS) :]:
        axis.axis("off")
    for panel, axis in zip(PANELS, axes.flat):
        drawn = []
        for target in panel["targets"]:
            for metric, times, values in series(fleet, target):
                legend = re.sub(r"{{(\w+)}}", lambda it: metric[it[1]], target["legendFormat"])
                drawn.append((legend, [t - fleet.start_s for t in times], values))
        for legend, times, values in drawn:
            axis.plot(times, values, label=legend, linewidth=1.2)
        axis.set_title(panel["title"], fontsize=10, loc="left")
        axis.set_xlim(0, fleet.end_s - fleet.start_s)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6, loc="upper left", framealpha=0.6)
    figure.savefig(os.environ["DEDUPD_WRITE_DASHBOARD"], dpi=75)
