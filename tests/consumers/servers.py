"""What the tests of consumers run against: the real dedupd, Redis and brokers, as processes on free
loopback ports, each stopped by its own pid."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import grpc_tools
import redis
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
DEDUPD = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/dedupd"
TIMEOUT_S = 60


def generate_stubs():
    """Compiles the repository's own `proto/` and makes it importable, here and in examples."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    files = [str(path) for path in sorted((ROOT / "proto").glob("dedupd/v1/*.proto"))]
    out = tempfile.TemporaryDirectory(prefix="dedupd-stubs-")
    arguments = [f"-I{ROOT / 'proto'}", f"-I{well_known}"]
    arguments += [f"--python_out={out.name}", f"--grpc_python_out={out.name}"]
    assert protoc.main(["protoc", *arguments, *files]) == 0
    sys.path.insert(0, out.name)
    return out


STUBS = generate_stubs()


def orders_config(lease_s):
    """What the examples expect, with a short lease; and the machine may be busy."""
    text = (ROOT / "examples/orders.yaml").read_text()
    assert "lease: 30s" in text
    return "store: { budget: 2s }\n" + text.replace("lease: 30s", f"lease: {lease_s}s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what, timeout_s=TIMEOUT_S):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.05)
    return found


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """A child with its output in a file."""

    is_ended_by_us = False

    def __init__(self, command, directory, name, env=None):
        self.log_path = Path(directory) / f"{name}.log"
        clean = {key: value for key, value in os.environ.items() if "DEDUPD_" not in key}
        with self.log_path.open("ab") as log:
            self.child = subprocess.Popen(
                [str(word) for word in command],
                cwd=directory,
                env=clean | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self):
        return self.log_path.read_text(errors="replace")

    def runs(self):
        return self.child.poll() is None

    def wait_log(self, pattern):
        def found():
            match = re.search(pattern, self.log())
            assert match or self.runs(), self.log()
            return match

        return wait_until(found, f"{pattern} in {self.log_path}")

    def kill(self):
        """SIGKILL: nothing is put in order."""
        self.is_ended_by_us = True
        self.child.kill()
        self.child.wait()

    def stop(self):
        """SIGTERM, and what it left behind if it does not heed that."""
        self.is_ended_by_us = True
        self.child.terminate()
        try:
            return self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class Redis:
    """Every write is the kernel's before it is answered, so that a kill forgets nothing."""

    def __init__(self, directory):
        self.directory = directory
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.client = redis.Redis(port=self.port)
        self.start()

    def start(self):
        command = ["redis-server", "--bind", "127.0.0.1", "--port", self.port]
        command += ["--dir", self.directory, "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "no"]
        self.process = Process(command, self.directory, "redis")
        wait_until(lambda: listens(self.port), "redis-server listens")

    def kill(self):
        self.process.kill()

    def let_time_pass(self, seconds):
        """Takes `seconds` off what every key has left to live.

        The remaining life of its record is the only time that a claim of a keyed event knows.
        """
        for key in self.client.scan_iter():
            left_ms = self.client.pttl(key)
            if left_ms > 0:
                self.client.pexpire(key, left_ms - round(seconds * 1000))


class Dedupd:
    def __init__(self, directory, store_url, config=None):
        command = [DEDUPD, "serve", "--log-format", "json"]
        command += ["--store", store_url]
        command += ["--grpc-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        env = {"DEDUPD_CONFIG_INLINE": config} if config else {}
        self.process = Process(command, directory, "dedupd", env)
        line = self.process.wait_log(r".*\"listening\".*").group()
        fields = json.loads(line)["fields"]
        address = r"127\.0\.0\.1:\d+"
        self.address = re.search(address, str(fields["grpc"])).group()
        self.admin = re.search(address, str(fields["admin"])).group()

    def decisions(self, namespace):
        """How many events so far, by (decision, reason); zeros left out."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found = Counter()
        for labels, value in re.findall(r"^dedupd_decisions_total\{(.*)\} (\d+)$", text, re.M):
            label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if label["namespace"] == namespace and int(value):
                found[label["decision"], label["reason"]] = int(value)
        return found


class Nats:
    def __init__(self, directory):
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        command = ["nats-server", "--addr", "127.0.0.1", "--port", self.port]
        command += ["--jetstream", "--store_dir", Path(directory) / "jetstream"]
        self.process = Process(command, directory, "nats")
        self.process.wait_log("Server is ready")


class Kafka:
    """One broker in KRaft mode that is its own controller."""

    def __init__(self, directory):
        self.port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": Path(directory) / "kafka",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
        }
        file = Path(directory) / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        jars = Path(os.environ["DEDUPD_TEST_KAFKA"]) / "*"
        java = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars]
        tool = [*java, "kafka.tools.StorageTool", "format", "--config", file]
        subprocess.run(
            [str(word) for word in [*tool, "--cluster-id", "dedupd-tests-0000000000"]],
            check=True,
            capture_output=True,
        )
        self.process = Process([*java, "kafka.Kafka", file], directory, "kafka")
        wait_until(lambda: listens(self.port) or not self.process.runs(), "Kafka listens")
        assert self.process.runs(), self.process.log()
