"""The chart and injected pods before a real API server, without a node: does it take them, where the
restricted Pod Security Standard is enforced?"""

import base64
import copy
import json
import re

import pytest
import yaml

import cluster
from cluster import CHART, ROOT, documents, find, rendered, run, servers
from injector import Injector
from test_chart import MATRIX, ORDERS

POD_TEMPLATES = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job")


@pytest.fixture(scope="module")
def kubernetes(api_server):
    api_server.make_namespace(cluster.RELEASE_NAMESPACE)
    make_service_account(api_server, cluster.RELEASE_NAMESPACE)
    return api_server


def make_service_account(kubernetes, namespace):
    """There is no controller that would."""
    meta = {"name": "default", "namespace": namespace}
    kubernetes.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


def pods(objects):
    """As the controllers would make them, but for the service account."""
    for it in copy.deepcopy(objects):
        if it["kind"] == "Pod":
            yield it
        elif it["kind"] in POD_TEMPLATES:
            template = it["spec"]["template"]
            template["spec"].pop("serviceAccountName", None)
            meta = template["metadata"] | {"namespace": it["metadata"]["namespace"]}
            meta["name"] = it["metadata"]["name"]
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_the_api_server_takes_every_object_as_it_is_meant(kubernetes, values):
    done = kubernetes.apply(
        *rendered(values=values), options=["--dry-run=server", "--validate=strict"]
    )
    assert "Warning" not in done.stderr, done.stderr


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_every_pod_is_allowed_where_the_restricted_standard_is_enforced(kubernetes, values):
    made = list(pods(rendered(values=values)))
    assert len(made) == 2
    for pod in made:
        kubernetes.apply(pod, options=["--dry-run=server"])


def test_a_pod_that_is_not_restricted_is_refused_here(kubernetes):
    """The test above can fail."""
    pod = next(pods(rendered()))
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    done = kubernetes.apply(pod, options=["--dry-run=server"], check=False)
    assert done.returncode != 0 and "PodSecurity" in done.stderr, done.stderr


def notes(kubernetes, values):
    """What `helm install` says in the end."""
    done = kubernetes.helm("install", "dedupd", CHART, "--dry-run=server", values=values)
    return re.sub(r"\s+", " ", done.stdout.split("NOTES:")[1])


REDIS = {"store": {"url": "redis://redis.data:6379/0"}}
ALERTS = {"prometheusRule": {"enabled": True}}
CLOSED = {
    "policies": {"default": {"namespaces": {"orders": ORDERS["default"]["namespaces"]["orders"]}}}
}
SERVICE = {"mode": "service"}


@pytest.mark.parametrize(
    "values, warnings",
    [
        (REDIS | CLOSED, []),
        (REDIS | ALERTS, []),
        (CLOSED, ["each pod knows its own events only"]),
        (CLOSED | {"store": {"secret": {"name": "redis"}}}, []),
        (REDIS, ["no alert says so: default/pings"]),
        (REDIS | {"policies": ORDERS}, ["no alert says so: default/crossings, default/pings"]),
        (REDIS | CLOSED | {"injector": {"replicas": 1}}, ["one injector"]),
        (REDIS | CLOSED | {"injector": {"failurePolicy": "Ignore"}}, ["failurePolicy Ignore"]),
        (SERVICE | CLOSED | ALERTS, ["memory:// with 2 replicas", "gRPC is plain"]),
        (
            SERVICE | CLOSED | {"service": {"replicas": 1, "tlsSecret": "tls"}},
            ["forgotten whenever the pod restarts"],
        ),
        (SERVICE | CLOSED | REDIS | {"networkPolicy": {"enabled": True}}, []),
    ],
)
def test_risky_choices_are_warned_about_and_others_are_not(kubernetes, values, warnings):
    text = notes(kubernetes, values)
    assert text.count("WARNING") == len(warnings), text
    for warning in warnings:
        assert warning in text, text


def test_the_notes_say_how_a_pod_asks(kubernetes):
    text = notes(kubernetes, REDIS)
    assert "kubectl label namespace NAMESPACE dedupd.io/inject=enabled" in text
    assert "dns:///dedupd.dedupd-system.svc:50061" in notes(kubernetes, SERVICE)


def test_only_pods_that_say_something_are_sent_to_the_webhook(kubernetes):
    """Nobody answers here, and the failure policy is Fail: who is refused was sent."""
    configuration = find(rendered(), "MutatingWebhookConfiguration")
    kubernetes.apply(configuration)
    workloads = {"labelled": {"dedupd.io/inject": "enabled"}, "plain": {}}
    try:
        for namespace, labels in workloads.items():
            kubernetes.make_namespace(namespace, **labels)
            make_service_account(kubernetes, namespace)
        kubernetes.kubectl("label", "namespace", "dedupd-system", "dedupd.io/inject=enabled")

        def is_sent(namespace, annotations):
            pod = next(pods(rendered()))
            meta = {"name": "app", "namespace": namespace, "annotations": annotations}
            pod["metadata"] = meta
            done = kubernetes.apply(pod, options=["--dry-run=server"], check=False)
            assert done.returncode == 0 or "inject.dedupd.io" in done.stderr, done.stderr
            return done.returncode != 0

        asks = {"dedupd.io/inject": "enabled"}
        # A new configuration takes a moment to be followed.
        servers.wait_until(lambda: is_sent("labelled", asks), "the webhook is asked")
        assert is_sent("labelled", {"dedupd.io/inject": "no word for it"})
        assert not is_sent("labelled", {"dedupd.io/config": "orders"})
        assert not is_sent("labelled", {})
        assert not is_sent("plain", asks)
        assert not is_sent("dedupd-system", asks)
    finally:
        kubernetes.kubectl("delete", "mutatingwebhookconfiguration", "dedupd-injector")


SHAPES = ROOT / "tests/data/inject"
SHAPE_FILES = sorted(set(SHAPES.glob("*.yaml")) - {SHAPES / "injector.yaml"})
INJECTOR = yaml.safe_load((SHAPES / "injector.yaml").read_text())


def flat(objects):
    return [item for it in objects for item in (it["items"] if it["kind"] == "List" else [it])]


@pytest.fixture(scope="module")
def webhook(kubernetes, tmp_path_factory):
    """A real injector that the API server asks by URL, about every pod of a namespace."""
    injector = Injector(tmp_path_factory.mktemp("injector"), INJECTOR["sidecar"])
    try:
        configuration = find(rendered(), "MutatingWebhookConfiguration")
        (hook,) = configuration["webhooks"]
        certificate = base64.b64encode(injector.certificate).decode()
        hook["clientConfig"] = {"url": injector.url, "caBundle": certificate}
        kubernetes.apply(configuration)
        labels = {"dedupd.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "privileged"}
        kubernetes.make_namespace("shapes", **labels)
        make_service_account(kubernetes, "shapes")
        asks = a_pod({"dedupd.io/inject": "enabled"})
        servers.wait_until(
            lambda: "initContainers" in created(kubernetes, asks).stdout, "the injector is asked"
        )
        yield kubernetes
        kubernetes.kubectl("delete", "mutatingwebhookconfiguration", "dedupd-injector")
    finally:
        injector.process.kill()


def a_pod(annotations, **container):
    meta = {"name": "app", "annotations": annotations}
    spec = {"containers": [{"name": "app", "image": "app"} | container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def created(kubernetes, pod):
    """`create`, since it does not carry the whole object once more as an annotation."""
    options = [
        "create",
        "-n",
        "shapes",
        "-f",
        "-",
        "-o",
        "json",
        "--dry-run=server",
        "--validate=strict",
    ]
    return kubernetes.kubectl(*options, text=json.dumps(pod), check=False)


@pytest.mark.parametrize("file", SHAPE_FILES, ids=[file.stem for file in SHAPE_FILES])
def test_the_api_server_takes_every_shape_of_pod_as_the_command_injects_it(webhook, file):
    command = [servers.DEDUPD, "inject", "--injector-config", SHAPES / "injector.yaml", "-f", file]
    done = run(command, check=False)
    if file.stem == "refused":
        assert done.returncode == 65
        return
    if file.stem == "mirror":
        return  # A kubelet alone may create one; see the golden patch.
    before, after = flat(documents(file.read_text())), flat(documents(done.stdout))
    for original, injected in zip(before, after, strict=True):
        for it in (original, injected):
            it["metadata"].pop("namespace", None)
        answer = created(webhook, injected)
        assert answer.returncode == 0, answer.stderr
        if original["kind"] != "Pod":
            continue
        # And the webhook does the same, up to what the API server fills in.
        answer = created(webhook, original)
        assert answer.returncode == 0, answer.stderr
        found = json.loads(answer.stdout)
        for field in ("initContainers", "containers", "volumes"):
            names = [it["name"] for it in found["spec"].get(field, [])]
            if field == "volumes":  # of the service account
                names = [name for name in names if not name.startswith("kube-api-access")]
            assert names == [it["name"] for it in injected["spec"].get(field, [])]
        is_injected = "dedupd.io/injected" in found["metadata"].get("annotations", {})
        assert is_injected == ("dedupd.io/injected" in injected["metadata"].get("annotations", {}))


def test_a_refused_pod_is_refused_in_words(webhook):
    (shapes,) = documents((SHAPES / "refused.yaml").read_text())
    golden = json.loads((SHAPES / "refused.golden.json").read_text())
    for pod in shapes["items"]:
        done = created(webhook, pod)
        assert done.returncode != 0
        name = pod["metadata"]["name"]
        if name == "empty":
            assert 'inject.dedupd.io" denied' in done.stderr or "spec" in done.stderr
            continue
        words = golden[f"Pod/{name}"].split(": ", 2)[2]
        assert words in done.stderr, f"{words!r} is not in {done.stderr}"


def test_a_pod_as_large_as_the_api_server_takes_is_injected(webhook):
    """It takes 3 MiB, and sends the webhook no less."""
    text = "x" * (3 * 1024 * 1024 - 2048)
    pod = a_pod({"dedupd.io/inject": "enabled"}, env=[{"name": "LARGE", "value": text}])
    done = created(webhook, pod)
    assert done.returncode == 0, done.stderr[-500:]
    assert json.loads(done.stdout)["spec"]["initContainers"][0]["name"] == "dedupd"
