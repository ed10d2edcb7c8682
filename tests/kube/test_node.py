"""On a real node: injected sidecars, from the chart's installation to its end, in namespaces that
enforce the restricted Pod Security Standard. The tests go on from each other, in this order."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
import yaml

import workloads
from cluster import CHART, RELEASE_NAMESPACE, find, rendered, servers
from test_node_service import PATIENT, is_ready, prepare, wait_for_nothing_but

APPS = "shop"
HERE = Path(__file__).parent
ADMITTED = 'dedupd_decisions_total{namespace="orders",decision="ADMIT",reason="%s"}'


def values(window="2s", guard="200ms", **injector):
    crossings = {
        "accepts": ["transition"],
        "window": {"tumbling": window, "guard": guard},
        "ttl": "10m",
        "failure_mode": "closed",
    }
    orders = {
        "accepts": ["keyed"],
        "window": "none",
        "ttl": "10m",
        "failure_mode": "open",
        "lease": "20s",
    }
    return {
        "image": {
            "repository": workloads.DEDUPD_REPOSITORY,
            "tag": "test",
            "pullPolicy": "Never",
        },
        "store": {"secret": {"name": "redis"}},
        "policies": {
            "default": PATIENT | {"namespaces": {"crossings": crossings, "orders": orders}}
        },
        "injector": {"certificate": {"validity": "1m"}} | injector,
    }


def upgrade(node, values):
    node.helm("upgrade", "--install", "dedupd", CHART, "--wait", "--timeout", "60s", values=values)
    wait_for_the_old(node)


def wait_for_the_old(node):
    """Injectors that stop answer on for a moment, by what they know."""
    selector = "app.kubernetes.io/component=injector"
    command = ["pods", "-n", RELEASE_NAMESPACE, "-l", selector]
    servers.wait_until(lambda: len(node.get(*command)["items"]) == 2, "the old injectors are gone")


def pods(node, app, namespace=APPS):
    items = node.get("pods", "-n", namespace, "-l", f"app={app}")["items"]
    return [it for it in items if "deletionTimestamp" not in it["metadata"]]


def names(found):
    return {pod["metadata"]["name"] for pod in found}


def rolled_out(node, deployment, namespace=APPS):
    node.kubectl("rollout", "status", "-n", namespace, f"deployment/{deployment}", "--timeout=90s")


def admitted(node, pod, reason):
    found = node.metrics(APPS, pod["metadata"]["name"])
    return found[ADMITTED % reason]


def records(node):
    """How many claims of orders stand in Redis, by the first byte of their records: 0x83 is confirmed."""
    script = """
        local found = {pending = 0, confirmed = 0, other = 0}
        local names = {[0x81] = 'pending', [0x83] = 'confirmed'}
        for _, key in ipairs(redis.call('KEYS', 'orders:*')) do
            local name = names[string.byte(redis.call('GET', key) or ' ')] or 'other'
            found[name] = found[name] + 1
        end
        return cjson.encode(found)
    """
    return json.loads(node.redis("EVAL", script, "0"))


@pytest.fixture(scope="module")
def before(node):
    prepare(node, RELEASE_NAMESPACE)
    return prepare(node, APPS, **{"dedupd.io/inject": "enabled"})


@pytest.fixture(scope="module")
def release(node, before):
    upgrade(node, values())
    return node


@pytest.fixture(scope="module")
def consumers(release):
    release.apply(workloads.consumers(APPS))
    rolled_out(release, "consumer")
    return release


def test_a_deployment_is_injected_through_the_service_where_pods_are_restricted(consumers):
    for pod in pods(consumers, "consumer"):
        (sidecar,) = pod["spec"]["initContainers"]
        assert (sidecar["name"], sidecar["restartPolicy"]) == ("dedupd", "Always")
        (app,) = pod["spec"]["containers"]
        environment = {it["name"]: it.get("value") for it in app["env"]}
        assert environment["DEDUPD_ADDRESS"] == "127.0.0.1:50061"
        # It was there before the app.
        (state,) = pod["status"]["initContainerStatuses"]
        (app_state,) = pod["status"]["containerStatuses"]
        assert state["started"] and state["restartCount"] == 0
        assert state["state"]["running"]["startedAt"] <= app_state["state"]["running"]["startedAt"]


def test_the_apps_admits_are_decided_in_redis(consumers):
    found = pods(consumers, "consumer")
    servers.wait_until(
        lambda: all(admitted(consumers, pod, "FIRST_SEEN") > 3 for pod in found), "all admit"
    )
    assert not any(admitted(consumers, pod, "FAIL_OPEN") for pod in found)
    keys = consumers.redis("--raw", "KEYS", "orders:*").splitlines()
    for name in names(found):
        assert any(key.startswith(f"orders:{name}-") for key in keys)
    # A copy that reaches another pod is known there.
    assert records(consumers)["confirmed"] > 6


def test_a_job_completes_and_its_sidecar_stops_after_it(consumers):
    consumers.apply(workloads.job(APPS))
    consumers.kubectl("wait", "-n", APPS, "--for=condition=complete", "job/job", "--timeout=60s")
    (pod,) = pods(consumers, "job")
    assert pod["status"]["phase"] == "Succeeded"
    (sidecar,) = pod["status"]["initContainerStatuses"]
    (app,) = pod["status"]["containerStatuses"]
    ended, app_ended = sidecar["state"]["terminated"], app["state"]["terminated"]
    assert (ended["exitCode"], app_ended["exitCode"]) == (0, 0)
    assert ended["finishedAt"] >= app_ended["finishedAt"]
    log = consumers.kubectl("logs", "-n", APPS, "job/job", "-c", "app").stdout
    assert log.splitlines() == [f"confirmed: job-{number}" for number in range(1, 6)]


def test_a_rollout_under_load_loses_no_confirm(consumers):
    old = names(pods(consumers, "consumer"))
    done = records(consumers)["confirmed"]
    consumers.kubectl("rollout", "restart", "-n", APPS, "deployment/consumer")
    rolled_out(consumers, "consumer")
    servers.wait_until(lambda: records(consumers)["confirmed"] > done + 20, "the new ones work")
    new = names(pods(consumers, "consumer"))
    assert len(new) == 2 and not new & old
    consumers.kubectl("scale", "-n", APPS, "deployment/consumer", "--replicas=0")
    consumers.kubectl(
        "wait", "-n", APPS, "--for=delete", "pod", "-l", "app=consumer", "--timeout=60s"
    )
    # The lease is longer than all of this: what was not confirmed would be pending.
    assert records(consumers)["pending"] == 0
    for name in old | new:
        last = consumers.redis("--raw", "EXISTS", f"orders:{name}-last")
        assert last == "1", f"{name} could not ask about its last event"
    consumers.kubectl("scale", "-n", APPS, "deployment/consumer", "--replicas=2")
    rolled_out(consumers, "consumer")


def test_without_redis_admissions_are_counted_and_pods_stay_ready(consumers):
    found = pods(consumers, "consumer")
    consumers.kubectl("scale", "-n", "data", "deployment/redis", "--replicas=0")
    servers.wait_until(
        lambda: all(admitted(consumers, pod, "FAIL_OPEN") > 0 for pod in found), "fail-open"
    )
    # Longer than any probe needs to take a pod out.
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        now = pods(consumers, "consumer")
        assert names(now) == names(found) and all(map(is_ready, now))
    restarts = [it["restartCount"] for pod in now for it in pod["status"]["initContainerStatuses"]]
    assert restarts == [0, 0]

    first_seen = [admitted(consumers, pod, "FIRST_SEEN") for pod in found]
    consumers.kubectl("scale", "-n", "data", "deployment/redis", "--replicas=1")
    rolled_out(consumers, "redis", "data")
    servers.wait_until(
        lambda: all(
            admitted(consumers, pod, "FIRST_SEEN") > count + 3
            for pod, count in zip(found, first_seen, strict=True)
        ),
        "decided in Redis again",
    )


def test_a_socket_in_a_shared_volume(release):
    annotations = workloads.ASKS | {"dedupd.io/grpc": "socket"}
    release.apply(workloads.consumers(APPS, 1, annotations, "on-socket"))
    rolled_out(release, "on-socket")
    (pod,) = pods(release, "on-socket")
    servers.wait_until(lambda: admitted(release, pod, "FIRST_SEEN") > 3, "it admits")
    release.kubectl("delete", "-n", APPS, "deployment/on-socket", "--wait=false")


def test_a_refused_pod_says_why_in_its_owners_events(release):
    annotations = workloads.ASKS | {"dedupd.io/cpu-request": "a lot"}
    release.apply(workloads.consumers(APPS, 1, annotations, "refused"))

    def words():
        events = release.get("events", "-n", APPS)["items"]
        return [it for it in events if "dedupd.io/cpu-request" in it.get("message", "")]

    servers.wait_until(words, "an event that names the annotation")
    assert not pods(release, "refused")
    release.kubectl("delete", "-n", APPS, "deployment/refused")


def test_prometheus_scrapes_what_the_pod_monitor_selects(consumers):
    """Debian's Prometheus does not look into Kubernetes: this test does, as the PodMonitor says."""
    spec = find(rendered(values={"podMonitor": {"enabled": True}}), "PodMonitor")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert spec["namespaceSelector"] == {"any": True} and spec["selector"] == {}
    static = []
    running = consumers.get("pods", "-A", "--field-selector=status.phase=Running")["items"]
    for pod in (it for it in running if "deletionTimestamp" not in it["metadata"]):
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            for port in container.get("ports", []):
                if port.get("name") == endpoint["port"]:
                    meta = pod["metadata"]
                    address = f"{pod['status']['podIP']}:{port['containerPort']}"
                    labels = {"namespace": meta["namespace"], "pod": meta["name"]}
                    static.append({"targets": [address], "labels": labels})
    scrape = {
        "job_name": "dedupd",
        "scrape_interval": "1s",
        "metrics_path": endpoint["path"],
        "static_configs": static,
    }
    file = consumers.directory / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    command = [*consumers.prefix, "prometheus", f"--config.file={file}"]
    command += [f"--storage.tsdb.path={consumers.directory / 'tsdb'}"]
    command += ["--web.listen-address=127.0.0.1:9090"]
    prometheus = servers.Process(command, consumers.directory, "prometheus")

    def ask(query):
        command = ["promtool", "query", "instant", "http://127.0.0.1:9090", query]
        text = consumers.run(*command, check=False).stdout
        return dict(re.findall(r"{(.*)} => (\S+) @", text))

    try:
        up = "count(up == 1)"
        servers.wait_until(lambda: ask(up) == {"": str(len(static))}, "all are scraped")
        orders = 'count by (namespace, exported_namespace) (dedupd_decisions_total{exported_namespace="orders"})'
        assert list(ask(orders)) == [f'exported_namespace="orders", namespace="{APPS}"']
        injectors = "count by (namespace) (dedupd_injector_certificate_changes_total)"
        assert ask(injectors) == {f'namespace="{RELEASE_NAMESPACE}"': "2"}
    finally:
        prometheus.stop()


def injectors(node):
    selector = "app.kubernetes.io/component=injector"
    items = node.get("pods", "-n", RELEASE_NAMESPACE, "-l", selector)["items"]
    return [it for it in items if "deletionTimestamp" not in it["metadata"]]


def test_a_certificate_that_is_rotated_under_load_fails_no_admission(release):
    def changes():
        series = "dedupd_injector_certificate_changes_total"
        found = (
            release.metrics(RELEASE_NAMESPACE, name)[series] for name in names(injectors(release))
        )
        return list(found)

    pod = workloads.bare_pod(APPS, "asks", workloads.ASKS)
    file = release.directory / "pod.json"
    file.write_text(json.dumps(pod))
    command = [sys.executable, HERE / "admissions.py", release.kubeconfig]
    load = servers.Process(
        [*release.prefix, "sh", "-c", 'exec "$0" "$@" <' + str(file), *command],
        release.directory,
        "admissions",
    )
    before = changes()
    assert len(before) == 2
    servers.wait_until(
        lambda: all(now > then for now, then in zip(changes(), before, strict=True)),
        "both have changed their certificates",
        timeout_s=120,
    )
    assert load.runs(), load.log()
    load.stop()
    answers = json.loads(load.log())
    assert set(answers) == {"injected"} and answers["injected"] > 100, answers


def admits(node, name, annotations):
    pod = workloads.bare_pod(APPS, name, annotations)
    return node.apply(pod, options=["--dry-run=server", "-o", "json"], check=False)


def stop_injectors(node):
    """All of them; when the pods are gone, so are their processes."""
    node.kubectl("scale", "-n", RELEASE_NAMESPACE, "deployment/dedupd-injector", "--replicas=0")
    selector = "app.kubernetes.io/component=injector"
    node.kubectl("wait", "-n", RELEASE_NAMESPACE, "--for=delete", "pod", "-l", selector)


def test_without_an_injector_fail_blocks_the_pods_that_ask_and_no_others(release):
    stop_injectors(release)
    done = admits(release, "asks", workloads.ASKS)
    assert done.returncode != 0 and "inject.dedupd.io" in done.stderr, done.stderr
    assert admits(release, "does-not", {}).returncode == 0
    # What waited is created once there is an injector again.
    release.apply(workloads.consumers(APPS, 1, name="waiting"))
    servers.wait_until(
        lambda: any(
            "inject.dedupd.io" in it.get("message", "")
            for it in release.get("events", "-n", APPS)["items"]
        ),
        "the ReplicaSet says why",
    )
    release.kubectl("scale", "-n", RELEASE_NAMESPACE, "deployment/dedupd-injector", "--replicas=2")
    rolled_out(release, "waiting")
    release.kubectl("delete", "-n", APPS, "deployment/waiting", "--wait=false")


def test_without_an_injector_ignore_creates_them_without_a_dedupd(release):
    upgrade(release, values(failurePolicy="Ignore"))
    stop_injectors(release)
    done = admits(release, "asks", workloads.ASKS)
    assert done.returncode == 0, done.stderr
    assert "initContainers" not in json.loads(done.stdout)["spec"]
    release.kubectl("scale", "-n", RELEASE_NAMESPACE, "deployment/dedupd-injector", "--replicas=2")
    upgrade(release, values())
    servers.wait_until(
        lambda: "initContainers" in admits(release, "asks", workloads.ASKS).stdout, "injected again"
    )


def test_an_upgrade_with_another_guard_reaches_new_pods(consumers):
    upgrade(consumers, values(guard="300ms"))
    consumers.kubectl("rollout", "restart", "-n", APPS, "deployment/consumer")
    rolled_out(consumers, "consumer")
    for pod in pods(consumers, "consumer"):
        (sidecar,) = pod["spec"]["initContainers"]
        environment = {it["name"]: it.get("value") for it in sidecar["env"]}
        assert "guard: 300ms" in environment["DEDUPD_CONFIG_INLINE"]
        found = consumers.metrics(APPS, pod["metadata"]["name"])
        assert found['dedupd_namespace_refused{namespace="crossings"}'] == 0


def test_an_upgrade_with_another_width_stops_a_rollout_while_the_old_pods_work(consumers):
    old = names(pods(consumers, "consumer"))
    upgrade(consumers, values(window="3s", guard="300ms"))
    consumers.kubectl("rollout", "restart", "-n", APPS, "deployment/consumer")

    def refused():
        for name in names(pods(consumers, "consumer")) - old:
            path = f"/api/v1/namespaces/{APPS}/pods/{name}:9461/proxy/metrics"
            text = consumers.kubectl("get", "--raw", path, check=False).stdout
            return 'dedupd_namespace_refused{namespace="crossings"} 1' in text

    servers.wait_until(refused, "a new pod finds the old contract")
    found = {pod["metadata"]["name"]: pod for pod in pods(consumers, "consumer")}
    assert old <= set(found) and all(is_ready(found[name]) for name in old)
    assert not any(is_ready(found[name]) for name in set(found) - old)
    done = records(consumers)["confirmed"]
    servers.wait_until(lambda: records(consumers)["confirmed"] > done, "the old ones work")
    consumers.helm("rollback", "dedupd", "--wait", "--timeout", "60s")
    wait_for_the_old(consumers)
    consumers.kubectl("rollout", "restart", "-n", APPS, "deployment/consumer")
    rolled_out(consumers, "consumer")


def test_helm_test_passes(release):
    release.helm("test", "dedupd", "--timeout", "60s")


def test_uninstall_leaves_nothing_behind(release, before):
    release.kubectl("delete", "-n", APPS, "deployments,jobs", "--all", "--wait=false")
    release.helm("uninstall", "dedupd", "--wait", "--timeout", "60s")
    wait_for_nothing_but(release, before)
