"""`dedupd webhook` as a process on loopback, with a certificate from files."""

import json
import ssl
import urllib.request
import uuid

import yaml

from cluster import run, servers


class Injector:
    """`dedupd webhook`, with a certificate from files."""

    def __init__(self, directory, sidecar=None):
        certificate, key = directory / "tls.crt", directory / "tls.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
        command += [
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "20",
            "-subj",
            "/CN=injector",
        ]
        command += ["-addext", "subjectAltName=IP:127.0.0.1"]
        run([*command, "-keyout", key, "-out", certificate])
        port, admin = servers.free_port(), servers.free_port()
        self.url, self.certificate = f"https://127.0.0.1:{port}/mutate", certificate.read_bytes()
        self.admin = f"127.0.0.1:{admin}"
        config = {
            "listen": f"127.0.0.1:{port}",
            "admin_listen": self.admin,
            "tls": {"files": {"cert": str(certificate), "key": str(key)}},
            "events": False,
            "sidecar": sidecar or {},
        }
        file = directory / "injector.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [servers.DEDUPD, "webhook", "--config", file]
        self.process = servers.Process(command, directory, "injector")
        servers.wait_until(lambda: servers.listens(admin) or not self.process.runs(), "it listens")
        assert self.process.runs(), self.process.log()

    def review(self, **annotations):
        annotations = {f"dedupd.io/{name}": value for name, value in annotations.items()}
        meta = {"name": "app", "annotations": annotations}
        container = {"name": "app", "image": "app"}
        pod = {"metadata": meta, "spec": {"containers": [container]}}
        request = {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {},
            "object": {"apiVersion": "v1", "kind": "Pod"} | pod,
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        context = ssl.create_default_context(cadata=self.certificate.decode())
        post = urllib.request.Request(
            self.url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(post, timeout=5, context=context) as answer:
            return json.load(answer)["response"]
