"""Kubernetes for the tests: an API server alone on loopback, or a node with all that belongs to it."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/consumers"))
import servers  # noqa: E402

CHART = ROOT / "helm/dedupd"
# tests/kube/tools.sh gets and exports these.
KUBERNETES = Path(os.environ["DEDUPD_TEST_KUBERNETES"])
HELM = os.environ["DEDUPD_TEST_HELM"]
VERSION = KUBERNETES.name.removeprefix("kubernetes-")
RELEASE_NAMESPACE = "dedupd-system"


def run(command, text="", check=True, timeout_s=180, **options):
    done = subprocess.run(
        [str(word) for word in command],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        **options,
    )
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


def template(*arguments, values=None, check=True):
    """`helm template`, without a cluster: what it wrote."""
    command = [HELM, "template", "dedupd", CHART, "--namespace", RELEASE_NAMESPACE]
    command += ["--kube-version", VERSION, "--values", "-", *arguments]
    return run(command, yaml.safe_dump(values or {}), check)


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def rendered(*arguments, values=None):
    return documents(template(*arguments, values=values).stdout)


def find(objects, kind, suffix=""):
    found = [it for it in objects if it["kind"] == kind and it["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, f"{kind} …{suffix}: {[it['metadata']['name'] for it in found]}"
    return found[0]


class Cluster:
    prefix = ()
    kubeconfig = None

    def kubectl(self, *arguments, text="", check=True, timeout_s=180):
        command = [*self.prefix, KUBERNETES / "kubectl"]
        command += ["--kubeconfig", self.kubeconfig, *arguments]
        return run(command, text, check, timeout_s)

    def helm(self, *arguments, values=None, check=True, timeout_s=300):
        command = [*self.prefix, HELM, "--kubeconfig", self.kubeconfig]
        command += ["--namespace", RELEASE_NAMESPACE, *arguments]
        if values is not None:
            command += ["--values", "-"]
        return run(command, yaml.safe_dump(values or {}), check, timeout_s)

    def apply(self, *objects, options=(), check=True):
        text = yaml.safe_dump_all(objects)
        return self.kubectl("apply", "-f", "-", *options, text=text, check=check)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", "-o", "json", *arguments).stdout)

    def make_namespace(self, name, **labels):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"} | labels
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": labels},
            }
        )


class ApiServer(Cluster):
    """With its etcd, on free ports, as whoever runs the tests: it takes objects and refuses them, and
    nothing comes of them."""

    def __init__(self, directory):
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        etcd, peer, self.port = (servers.free_port() for _ in range(3))
        self.url = f"https://127.0.0.1:{self.port}"
        token = secrets.token_hex(16)
        (directory / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        key = ["openssl", "genpkey", "-algorithm", "RSA", "-out", directory / "sa.key"]
        run(key)
        run(
            [
                "openssl",
                "pkey",
                "-in",
                directory / "sa.key",
                "-pubout",
                "-out",
                directory / "sa.pub",
            ]
        )
        user = {"name": "admin", "user": {"token": token}}
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        context = {"cluster": "tests", "user": "admin"}
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tests", "cluster": cluster}],
                    "users": [user],
                    "contexts": [{"name": "tests", "context": context}],
                    "current-context": "tests",
                }
            )
        )
        etcd_url = f"http://127.0.0.1:{etcd}"
        peers = f"http://127.0.0.1:{peer}"
        command = ["etcd", "--data-dir", directory / "etcd", "--unsafe-no-fsync"]
        command += ["--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url]
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        command += ["--initial-cluster", f"default={peers}"]
        self.processes = [servers.Process(command, directory, "etcd")]
        command = [KUBERNETES / "kube-apiserver", f"--etcd-servers={etcd_url}"]
        command += ["--bind-address=127.0.0.1", f"--secure-port={self.port}", "--cert-dir=certs"]
        command += ["--advertise-address=192.0.2.10", "--service-cluster-ip-range=10.96.0.0/16"]
        command += ["--service-account-issuer=https://kubernetes.default.svc"]
        command += [
            "--service-account-key-file=sa.pub",
            "--service-account-signing-key-file=sa.key",
        ]
        command += ["--token-auth-file=tokens.csv", "--authorization-mode=RBAC"]
        self.processes.append(servers.Process(command, directory, "apiserver"))

    def wait_ready(self):
        servers.wait_until(self.is_ready, f"the API server is ready; see {self.directory}")

    def is_ready(self):
        assert all(process.runs() for process in self.processes), self.processes[-1].log()[-3000:]
        return self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0

    def stop(self):
        for process in reversed(self.processes):
            process.kill()


class Node(Cluster):
    """All of Kubernetes, in a network of its own; root alone can have it. See node.sh."""

    REDIS_ADDRESS = "10.96.0.20"

    def __init__(self, directory):
        self.directory = directory
        self.state = Path(f"/tmp/dedupd-node-{os.getpid()}")
        self.kubeconfig = self.state / "kubeconfig"
        self.script = ROOT / "tests/kube/node.sh"
        self.environment = os.environ | {"STATE": str(self.state)}
        self.prefix = ["env", f"STATE={self.state}", self.script, "exec"]

    def up(self):
        self.node("up")

    def node(self, *arguments, timeout_s=180):
        # Not captured: what it starts keeps its output open.
        log = (self.directory / "node.log").open("a")
        command = [self.script, *map(str, arguments)]
        done = subprocess.run(
            command, stdout=log, stderr=log, env=self.environment, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, (self.directory / "node.log").read_text()

    def down(self):
        logs = os.environ.get("DEDUPD_TEST_KEEP_LOGS")
        if logs:
            shutil.copytree(self.state / "log", logs, dirs_exist_ok=True)
        self.node("down")

    def load_image(self, tag, entrypoint, *specs):
        archive = self.directory / "image.tar"
        image = ROOT / "tests/kube/image.py"
        run([sys.executable, image, tag, archive, json.dumps(entrypoint), *specs])
        self.node("load", archive)
        archive.unlink()

    def run(self, *command, **options):
        """In the node's network."""
        return run([*self.prefix, *command], **options)

    def metrics(self, namespace, pod, port=9461):
        """What an instance exposes, by series; through the API server."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics"
        lines = self.kubectl("get", "--raw", path).stdout.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, value in pairs}

    def redis(self, *words):
        return self.run("redis-cli", "-h", self.REDIS_ADDRESS, *words).stdout.strip()
