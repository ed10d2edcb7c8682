"""What the chart renders, says and refuses, without a cluster; its README, the Dockerfile, scripts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import cluster
from cluster import CHART, ROOT, find, rendered, run, servers, template

# Shapes of releases; each is rendered here, and taken by an API server in test_api_server.py.
ORDERS = {
    "default": {
        "store": {"budget": "100ms"},
        "limits": {"max_events_per_request": 1000, "max_request_bytes": "1MiB"},
        "drain": {"quiet": "1s", "deadline": "20s"},
        "inspect": {"allow_forget": True},
        "namespaces": {
            "orders": {
                "accepts": ["keyed"],
                "window": "none",
                "ttl": "48h",
                "failure_mode": "closed",
                "lease": "30s",
                "content_mismatch": "dead_letter",
            },
            "crossings": {
                "accepts": ["transition"],
                "window": {"tumbling": "2s", "guard": "200ms"},
                "ttl": {"retry_delays": ["1s", "10s"], "outage_margin": "5m"},
                "failure_mode": "open",
                "key": {"prefix": "idem:", "layout": "tagged", "digest": "blake2b"},
                "bounds": {"max_duplicate_spread": "150ms", "min_revisit": "5s"},
                "time": {"max_future": "5m", "max_age": "off", "implausible": "clamp"},
            },
            "pings": {
                "accepts": ["ping"],
                "window": {"session": "10m"},
                "place": {
                    "resolution": 12,
                    "jitter_radius_m": 20,
                    "region": [45.8, 5.9, 47.9, 10.6],
                },
                "ttl": "6h30m",
                "failure_mode": "open",
                "mode": "shadow",
            },
        },
    }
}
MONITORED = {
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    "prometheusRule": {"enabled": True, "alertLabels": {"team": "streams"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Streams"}},
    "networkPolicy": {"enabled": True},
}
NEAR = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
PLACED = {
    "podLabels": {"team": "streams"},
    "podAnnotations": {"example.com/note": "yes"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": NEAR}
            ]
        }
    },
}
SECRETS = {
    "secret": {"name": "redis", "key": "address"},
    "password": {"secret": "redis", "key": "password"},
    "filesSecret": "redis-files",
}
MATRIX = {
    "defaults": {},
    "orders on a Redis": {"store": {"url": "redis://10.96.0.20:6379/0"}, "policies": ORDERS},
    "all of it": MONITORED
    | {
        "store": SECRETS,
        "policies": ORDERS | {"audit": {}},
        "imagePullSecrets": [{"name": "registry"}],
        "image": {"digest": "sha256:" + "0" * 64},
        "commonLabels": {"owner": "streams"},
        "logFilter": "warn,dedupd=debug",
        "sidecar": {"grpc": "socket", "logLevel": "debug", "runAsUser": "none"},
        "injector": PLACED | {"replicas": 3, "failurePolicy": "Ignore"},
    },
    "certificates of cert-manager": {"injector": {"certificate": {"source": "cert-manager"}}},
    "an issuer of the cluster's": {
        "injector": {
            "certificate": {
                "source": "cert-manager",
                "issuerRef": {"name": "internal", "kind": "ClusterIssuer"},
            }
        }
    },
    "a service": {"mode": "service"},
    "a service with all of it": MONITORED
    | {
        "mode": "service",
        "store": SECRETS,
        "policies": ORDERS,
        "nameOverride": "dedup",
        "fullnameOverride": "stream-dedup",
        "service": PLACED
        | {"replicas": 3, "tlsSecret": "grpc-tls", "requireClientCertificate": True},
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {"matchLabels": {"app": "consumer"}}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "store": [{"ipBlock": {"cidr": "10.96.0.20/32"}}],
        },
    },
}


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_lint(values):
    command = [cluster.HELM, "lint", "--strict", "--kube-version", cluster.VERSION]
    run([*command, CHART, "--values", "-"], yaml.safe_dump(values))


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_every_object_has_its_labels_and_a_name_of_its_own(values):
    names = set()
    for it in rendered(values=values):
        meta = it["metadata"]
        assert (it["kind"], meta["name"]) not in names
        names.add((it["kind"], meta["name"]))
        assert meta["labels"]["app.kubernetes.io/instance"] == "dedupd", it
        cluster_wide = it["kind"].startswith(("Cluster", "MutatingWebhook"))
        assert cluster_wide or meta["namespace"] == "dedupd-system", it


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_dedupd_takes_every_configuration_that_is_rendered(values, tmp_path):
    objects = rendered(values=values)
    texts = []
    for it in objects:
        for name, text in it.get("data", {}).items():
            if name == "injector.yaml":
                texts += yaml.safe_load(text)["sidecar"]["policies"].values()
            elif name == "dedupd.yaml":
                # The certificates are in the pod.
                config = yaml.safe_load(text)
                config["listen"].pop("tls", None)
                texts.append(yaml.safe_dump(config))
    assert texts
    for text in texts:
        file = tmp_path / "dedupd.yaml"
        file.write_text(text)
        run([servers.DEDUPD, "check", "--config", file])


def test_an_empty_policy_is_dedupds_own():
    text = yaml.safe_load(find(rendered(), "ConfigMap", "-injector")["data"]["injector.yaml"])
    built_in = yaml.safe_load((ROOT / "src/config/built_in.yaml").read_text())
    assert yaml.safe_load(text["sidecar"]["policies"]["default"]) == built_in
    # The chart cannot read outside of itself.
    assert (CHART / "files/built_in.yaml").read_text() == (
        ROOT / "src/config/built_in.yaml"
    ).read_text()


def test_a_changed_policy_restarts_what_reads_it():
    for mode, suffix in [("sidecar", "-injector"), ("service", "")]:

        def checksum(ttl):
            policy = {"namespaces": {"events": {"ttl": ttl}}}
            policy["namespaces"]["events"] |= {
                "accepts": ["keyed"],
                "window": "none",
                "failure_mode": "closed",
            }
            objects = rendered(values={"mode": mode, "policies": {"default": policy}})
            template = find(objects, "Deployment", suffix)["spec"]["template"]
            return template["metadata"]["annotations"]["checksum/config"]

        assert checksum("1h") == checksum("1h") != checksum("2h")


def set_at(path, value):
    values = value
    for name in reversed(path.split(".")):
        values = {name: values}
    return values


def mappings(schema, definitions, path=""):
    """Every mapping of the schema that has fixed keys, by the path to it."""
    schema = definitions.get(schema.get("$ref", "").removeprefix("#/$defs/"), schema)
    for option in schema.get("anyOf", []):
        yield from mappings(option, definitions, path)
    if "properties" in schema:
        yield path, schema
        for name, inner in schema["properties"].items():
            yield from mappings(inner, definitions, f"{path}.{name}" if path else name)
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from mappings(schema["additionalProperties"], definitions, f"{path}.default")


SCHEMA = json.loads((CHART / "values.schema.json").read_text())
MAPPINGS = sorted({path for path, _ in mappings(SCHEMA, SCHEMA["$defs"])})


def test_the_schema_closes_every_mapping():
    assert len(MAPPINGS) >= 40
    for path, schema in mappings(SCHEMA, SCHEMA["$defs"]):
        assert schema["additionalProperties"] is False, path


@pytest.mark.parametrize("path", MAPPINGS)
def test_an_unknown_key_is_refused_by_its_name(path):
    done = template(values=set_at(f"{path}.replcias".lstrip("."), 3), check=False)
    assert done.returncode != 0 and "replcias" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "path, value, word",
    [
        ("mode", "daemonset", "mode"),
        ("store.url", "http://redis", "pattern"),
        ("store.url", "redis://app:secret@redis:6379", "store.secret.name"),
        ("injector.replicas", 0, "replicas"),
        ("injector.replicas", "2", "replicas"),
        ("injector.failurePolicy", "fail", "failurePolicy"),
        ("injector.certificate.validity", "90 days", "validity"),
        ("sidecar.grpcPort", 80, "grpcPort"),
        ("sidecar.resources.limits.nvidia.com/gpu", 1, "nvidia"),
        ("image.digest", "latest", "digest"),
        ("policies", {"default": None, "other": {}}, "default"),
        ("policies.Default", {}, "Default"),
        ("policies.default.listen", {"grpc": []}, "listen"),
        ("policies.default.store.url", "redis://redis", "url"),
        ("policies.default.namespaces.Orders", {}, "Orders"),
        ("policies.default.namespaces.orders", {"accepts": ["keyed"]}, "failure_mode"),
        ("policies.default.namespaces.orders.time.max_age", False, "max_age"),
        (
            "policies.default.namespaces.orders.window",
            {"tumbling": "2s", "session": "1m"},
            "window",
        ),
        ("policies.default.namespaces.orders.accepts", ["order"], "accepts"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(path, value, word):
    done = template(values=set_at(path, value), check=False)
    assert done.returncode != 0 and word in done.stderr, done.stderr
    assert "secret@" not in done.stderr


def test_client_certificates_need_tls():
    values = {"mode": "service", "service": {"requireClientCertificate": True}}
    done = template(values=values, check=False)
    assert done.returncode != 0 and "service.tlsSecret" in done.stderr


def test_an_old_cluster_is_refused():
    done = template("--kube-version", "1.29.0", check=False)
    assert done.returncode != 0 and "kubeVersion" in done.stderr


def test_uninstall_leaves_no_secret_and_the_injector_reads_no_other():
    objects = rendered()
    secret = find(objects, "Secret")
    assert "data" not in secret
    rules = find(objects, "Role")["rules"] + find(objects, "ClusterRole")["rules"]
    for rule in rules:
        named = rule.get("resourceNames")
        assert named or (rule["resources"], rule["verbs"]) == (["events"], ["create"]), rule
    secrets = [rule for rule in rules if rule["resources"] == ["secrets"]]
    assert [rule["resourceNames"] for rule in secrets] == [[secret["metadata"]["name"]]]
    assert not [it for it in rendered(values=MATRIX["a service"]) if "Role" in it["kind"]]


def test_a_password_is_nowhere_but_in_its_secret():
    text = template(values=MATRIX["all of it"]).stdout
    assert "redis://" not in text and "memory://" not in text


def test_the_readme_is_current(tmp_path):
    chart = tmp_path / "dedupd"
    shutil.copytree(CHART, chart)
    (chart / "README.md").unlink()
    run(
        [
            os.environ["DEDUPD_TEST_HELM_DOCS"],
            "--chart-search-root",
            tmp_path,
            "--sort-values-order",
            "file",
        ]
    )
    assert (chart / "README.md").read_text() == (CHART / "README.md").read_text()


def test_what_the_schema_knows_stands_in_the_values_and_so_in_the_readme():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    # What is left empty there is described by Kubernetes, or by docs/configuration.md.
    elsewhere = (
        "policies.",
        "global",
        "sidecar.resources",
        "injector.resources",
        "service.resources",
    )
    for path, schema in mappings(SCHEMA, SCHEMA["$defs"]):
        if path.startswith(elsewhere) or path.endswith(("issuerRef", "default")):
            continue
        written = values
        for name in filter(None, path.split(".")):
            written = written[name]
        assert set(written) == set(schema["properties"]) - {"global"}, path


PAGE = (ROOT / "docs/kubernetes.md").read_text()


def test_the_values_of_the_page_are_taken():
    block = re.search(r"```yaml\n# values.yaml\n(.*?)```", PAGE, re.S)[1]
    kinds = {it["kind"] for it in rendered(values=yaml.safe_load(block))}
    assert {"MutatingWebhookConfiguration", "PrometheusRule", "PodMonitor"} <= kinds


def test_the_page_explains_every_alert():
    rule = find(rendered(values={"prometheusRule": {"enabled": True}}), "PrometheusRule")
    alerts = [
        it["alert"] for group in rule["spec"]["groups"] for it in group["rules"] if "alert" in it
    ]
    assert re.findall(r"^\| (Dedupd\w+) \|", PAGE, re.M) == alerts


def test_links_of_the_page_lead_somewhere():
    for page in (ROOT / "docs/kubernetes.md", CHART / "README.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), target


def test_hadolint():
    tool = Path(sys.executable).parent / "hadolint"
    run([tool, "--failure-threshold", "info", ROOT / "Dockerfile"])


def test_shellcheck():
    tool = Path(sys.executable).parent / "shellcheck"
    scripts = [*ROOT.glob("tests/kube/*.sh"), *ROOT.glob("tests/*.sh")]
    run(
        [
            tool,
            "--severity",
            "warning",
            "--shell",
            "bash",
            "--exclude",
            "SC1091,SC2034,SC2154",
            *scripts,
        ]
    )


def test_the_image_needs_no_library_that_its_base_lacks():
    """distroless/cc has the C library and the compiler's."""
    linked = run(["ldd", servers.DEDUPD]).stdout
    names = {line.split()[0].rsplit("/", 1)[-1] for line in linked.splitlines()}
    base = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "linux-vdso.so.1"}
    assert {name for name in names if not name.startswith("ld-linux")} <= base
    assert "gcr.io/distroless/cc-" in (ROOT / "Dockerfile").read_text()


def test_doctor_fails_on_what_it_is_told_to(tmp_path):
    redis = servers.Redis(tmp_path)
    try:
        redis.client.config_set("maxmemory-policy", "allkeys-lru")

        def code(*options):
            environment = os.environ | {"DEDUPD_STORE_URL": redis.url}
            return subprocess.run([servers.DEDUPD, "doctor", *options], env=environment).returncode

        assert (code(), code("--fail-on", "failure")) == (1, 0)
        redis.kill()
        assert code("--fail-on", "failure", "--timeout", "2s") == 2
    finally:
        redis.kill()
