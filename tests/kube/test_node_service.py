"""On a real node: the shared service, from its installation to its end."""

import json
import os
import re

import pytest

from cluster import CHART, RELEASE_NAMESPACE, servers
from workloads import DEDUPD_REPOSITORY

# The machine may be busy.
PATIENT = {"store": {"budget": "2s"}}
SELECTOR = "app.kubernetes.io/component=service"


def values(window, **service):
    crossings = {"accepts": ["transition"], "window": window, "ttl": "10m", "failure_mode": "open"}
    orders = {"accepts": ["keyed"], "window": "none", "ttl": "10m", "failure_mode": "closed"}
    return {
        "mode": "service",
        "image": {"repository": DEDUPD_REPOSITORY, "tag": "test", "pullPolicy": "Never"},
        "store": {"secret": {"name": "redis"}},
        "policies": {
            "default": PATIENT | {"namespaces": {"crossings": crossings, "orders": orders}}
        },
        "service": service,
    }


def upgrade(node, values, *options, check=True):
    arguments = ["upgrade", "--install", "dedupd", CHART, "--wait", "--timeout", "60s", *options]
    return node.helm(*arguments, values=values, check=check)


def everything(node):
    """Every object that is left, but for what Kubernetes itself makes and keeps, and Redis."""
    kinds = node.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    passing = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "componentstatuses"}
    wanted = sorted(set(kinds) - passing)
    names = "{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
    text = node.kubectl("get", ",".join(wanted), "-A", "-o", f"jsonpath={names}").stdout
    return {line for line in text.splitlines() if " data/" not in line}


def wait_for_nothing_but(node, before):
    left = set()

    def is_gone():
        nonlocal left
        left = everything(node) - before
        return not left

    try:
        servers.wait_until(is_gone, "what was installed is gone")
    except AssertionError:
        raise AssertionError(f"left behind: {sorted(left)}") from None


def prepare(node, *namespaces, **labels):
    """Namespaces with the Secret of the store; what is there afterwards."""
    for namespace in namespaces:
        node.make_namespace(namespace, **labels)
        account = ["get", "serviceaccount", "default", "-n", namespace]
        servers.wait_until(
            lambda account=account: node.kubectl(*account, check=False).returncode == 0, "accounts"
        )
        node.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "redis", "namespace": namespace},
                "stringData": {"url": f"redis://{node.REDIS_ADDRESS}:6379/0"},
            }
        )
    return everything(node)


@pytest.fixture(scope="module")
def before(node):
    return prepare(node, RELEASE_NAMESPACE)


@pytest.fixture(scope="module")
def service(node, before):
    upgrade(node, values({"tumbling": "2s", "guard": "200ms"}))
    return node


def pods(node):
    items = node.get("pods", "-n", RELEASE_NAMESPACE, "-l", SELECTOR)["items"]
    return [it for it in items if "deletionTimestamp" not in it["metadata"]]


def is_ready(pod):
    return any(
        it["type"] == "Ready" and it["status"] == "True"
        for it in pod["status"].get("conditions", [])
    )


def admit(node, pod, namespace, event):
    request = json.dumps({"namespace": namespace, "events": [event]})
    command = [os.environ["DEDUPD_TEST_GRPCURL"], "-plaintext", "-d", request]
    address = f"{pod['status']['podIP']}:50061"
    answer = node.run(*command, address, "dedupd.v1.DedupService/Admit").stdout
    return json.loads(answer)["verdicts"][0]


def test_both_replicas_are_behind_the_headless_service(service):
    found = pods(service)
    assert len(found) == 2 and all(map(is_ready, found))
    slices = service.get("endpointslices", "-n", RELEASE_NAMESPACE)["items"]
    addresses = {
        address for it in slices for end in it["endpoints"] for address in end["addresses"]
    }
    assert addresses == {pod["status"]["podIP"] for pod in found}


def test_a_copy_that_reaches_the_other_replica_is_suppressed(service):
    first, second = pods(service)
    event = {"keyed": {"eventId": "order-1"}}
    assert admit(service, first, "orders", event)["decision"] == "DECISION_ADMIT"
    assert admit(service, second, "orders", event)["reason"] == "REASON_REDELIVERY"


def test_helm_test_makes_a_canary_claim(service):
    replicas = {pod["status"]["podIP"] for pod in pods(service)}
    command = [*service.prefix, "redis-cli", "-h", service.REDIS_ADDRESS, "monitor"]
    monitor = servers.Process(command, service.directory, "monitor")
    monitor.wait_log("OK")
    service.helm("test", "dedupd", "--timeout", "60s")
    monitor.kill()
    writes = re.findall(r'\[0 ([\d.]+):\d+\] "SET" "dedupd:', monitor.log())
    assert set(writes) - replicas, monitor.log()


def test_helm_test_fails_without_a_store_and_says_why(service):
    without = values({"tumbling": "2s", "guard": "200ms"})
    upgrade(service, without | {"store": {"url": f"redis://{service.REDIS_ADDRESS}:1"}})
    done = service.helm("test", "dedupd", "--logs", "--timeout", "60s", check=False)
    assert done.returncode != 0 and "FAILURE  connection" in done.stdout, done.stdout
    upgrade(service, without)
    # Succeeded, its pod goes; failed, it stays to be looked at.
    service.helm("test", "dedupd", "--timeout", "60s")


def test_an_upgrade_with_another_guard_goes_through(service):
    upgrade(service, values({"tumbling": "2s", "guard": "300ms"}))
    for pod in pods(service):
        found = service.metrics(RELEASE_NAMESPACE, pod["metadata"]["name"])
        assert found['dedupd_namespace_refused{namespace="crossings"}'] == 0


def test_an_upgrade_with_another_width_stops_while_the_old_pods_serve(service):
    old = {pod["metadata"]["name"] for pod in pods(service)}
    wider = values({"tumbling": "3s", "guard": "300ms"})
    done = upgrade(service, wider, "--timeout", "20s", check=False)
    assert done.returncode != 0
    found = {pod["metadata"]["name"]: pod for pod in pods(service)}
    assert old <= set(found) and all(is_ready(found[name]) for name in old)
    (new,) = set(found) - old
    assert not is_ready(found[new])
    metrics = service.metrics(RELEASE_NAMESPACE, new)
    assert metrics['dedupd_namespace_refused{namespace="crossings"}'] == 1
    assert metrics['dedupd_namespace_refused{namespace="orders"}'] == 0
    event = {"keyed": {"eventId": "order-2"}}
    assert admit(service, found[old.pop()], "orders", event)["decision"] == "DECISION_ADMIT"
    # Back, as the alert says.
    service.helm("rollback", "dedupd", "--wait", "--timeout", "60s")
    assert all(map(is_ready, pods(service)))


def test_uninstall_leaves_nothing_behind(service, before):
    service.helm("uninstall", "dedupd", "--wait", "--timeout", "60s")
    wait_for_nothing_but(service, before)
