"""The chart's alerts, by promtool: alerts_test.yaml says when each fires and when not."""

import shutil
from pathlib import Path

import pytest
import yaml

from cluster import find, rendered, run

CASES = Path(__file__).parent / "alerts_test.yaml"


def rules(tmp_path, **values):
    rule = find(rendered(values={"prometheusRule": {"enabled": True} | values}), "PrometheusRule")
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    return file, rule["spec"]["groups"]


def test_the_cases_come_out_as_written(tmp_path):
    file, _ = rules(tmp_path)
    run(["promtool", "check", "rules", "--lint-fatal", file])
    shutil.copy(CASES, tmp_path)
    run(["promtool", "test", "rules", tmp_path / CASES.name])


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(tmp_path):
    _, groups = rules(tmp_path)
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    cases = yaml.safe_load(CASES.read_text())["tests"]
    outcomes = {
        (test["alertname"], bool(test["exp_alerts"]))
        for case in cases
        for test in case["alert_rule_test"]
    }
    assert outcomes == {(alert, fires) for alert in alerts for fires in (True, False)}


@pytest.mark.parametrize(
    "name, value, alert",
    [
        ("suppressionRatioChange", 0.5, "DedupdSuppressionRatioChanged"),
        ("redeliveryFactor", 12, "DedupdRedeliveriesRise"),
        ("stuckSubjectRatio", 0.999, "DedupdSubjectStuck"),
        ("stuckSubjectMinEvents", 500, "DedupdSubjectStuck"),
        ("minEventsPerSecond", 20, "DedupdRedeliveriesRise"),
        ("certificateRemainingHours", 24, "DedupdInjectorCertificateExpires"),
    ],
)
def test_a_threshold_counts(tmp_path, name, value, alert):
    rules(tmp_path, thresholds={name: value})
    shutil.copy(CASES, tmp_path)
    done = run(["promtool", "test", "rules", tmp_path / CASES.name], check=False)
    assert done.returncode != 0 and alert in done.stdout + done.stderr


def test_labels_for_routing_reach_alerts_and_no_records(tmp_path):
    _, groups = rules(tmp_path, alertLabels={"team": "streams", "severity": "page"})
    for group in groups:
        for rule in group["rules"]:
            labels = rule.get("labels")
            assert labels == ({"team": "streams", "severity": "page"} if "alert" in rule else None)


def test_without_an_injector_nobody_misses_it(tmp_path):
    rule = find(
        rendered(values={"mode": "service", "prometheusRule": {"enabled": True}}), "PrometheusRule"
    )
    assert [group["name"] for group in rule["spec"]["groups"]] == ["dedupd"]
