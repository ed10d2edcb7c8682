"""A small fleet under load, scraped by a real Prometheus as it would be in Kubernetes: what the alerts
and the dashboard are about happens to it."""

import json
import threading
import time
import urllib.parse
import urllib.request
import uuid

import grpc
import yaml

from cluster import servers
from injector import Injector

from dedupd.v1 import dedup_pb2, dedup_pb2_grpc, event_pb2  # made by servers

CONFIG = """
store: { budget: 100ms }
namespaces:
  orders: { accepts: [keyed], window: none, ttl: 1h, failure_mode: local, lease: 10s }
  crossings:
    { accepts: [transition], window: { tumbling: 2s, guard: 200ms }, ttl: 5m, failure_mode: open }
  pings: { accepts: [ping], window: { tumbling: 5m }, place: { resolution: 12 }, ttl: 1h, failure_mode: closed }
"""
KUBERNETES_NAMESPACE = "shop"
PAUSE_S = 0.02


class Prometheus:
    """With the target labels that the Prometheus Operator gives to the pods of a PodMonitor."""

    def __init__(self, directory, targets):
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        static = [
            {"targets": [address], "labels": {"namespace": namespace, "pod": pod}}
            for pod, (namespace, address) in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "dedupd", "static_configs": static}],
        }
        file = directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
        ]
        command += [f"--web.listen-address=127.0.0.1:{self.port}"]
        self.process = servers.Process(command, directory, "prometheus")
        servers.wait_until(self.is_ready, "Prometheus is ready")

    def is_ready(self):
        """Until then it listens and answers 503."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10):
                return True
        except OSError:
            return False

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, query):
        result = self.ask("query", query=query)["result"]
        return float(result[0]["value"][1]) if result else 0.0

    def range(self, query, start, end, step_s=1):
        """Of each series its labels, times and values."""
        data = self.ask("query_range", query=query, start=start, end=end, step=step_s)
        return [
            (it["metric"], *zip(*((float(t), float(value)) for t, value in it["values"])))
            for it in data["result"]
        ]


class Load(threading.Thread):
    """One consumer: new events, copies of many of them, and bad ones, until it is told to stop."""

    def __init__(self, name, address):
        super().__init__(daemon=True)
        self.who = name
        self.channel = grpc.insecure_channel(address)
        self.stub = dedup_pb2_grpc.DedupServiceStub(self.channel)
        self.stopped = threading.Event()

    def run(self):
        number = 0
        while not self.stopped.wait(PAUSE_S):
            number += 1
            try:
                self.orders(number)
                self.admit("crossings", *self.crossings(number))
                self.admit("pings", *self.pings(number))
            except grpc.RpcError:
                pass  # A deadline, in the outage.

    def stop(self):
        self.stopped.set()
        self.join()
        self.channel.close()

    def admit(self, namespace, *events):
        request = dedup_pb2.AdmitRequest(
            namespace=namespace, request_id=str(uuid.uuid4()), events=events
        )
        return self.stub.Admit(request, timeout=5).verdicts

    def orders(self, number):
        """Every other one was seen by the other consumer, too."""
        who = "both" if number % 2 else self.who
        keyed = event_pb2.Keyed(event_id=f"{who}-{number}")
        verdicts = self.admit("orders", event_pb2.Event(keyed=keyed), event_pb2.Event(keyed=keyed))
        claims = [verdict.claim for verdict in verdicts if verdict.claim]
        if claims and number % 5:
            self.stub.Confirm(dedup_pb2.ConfirmRequest(claims=claims), timeout=5)

    def crossings(self, number):
        now_ns = time.time_ns()
        crossing = event_pb2.Transition(
            device_id=f"{self.who}-{number}", fence_id="depot", kind=event_pb2.TRANSITION_KIND_ENTER
        )
        yield event_pb2.Event(transition=crossing, occurred_at_unix_nanos=now_ns - 700_000_000)
        if number % 4 == 0:
            yield event_pb2.Event(transition=crossing, occurred_at_unix_nanos=now_ns - 690_000_000)
        if number % 10 == 0:
            yield event_pb2.Event(transition=crossing)

    def pings(self, number):
        now_ns = time.time_ns()
        parked = event_pb2.LatLng(latitude=47.37, longitude=8.54)
        nowhere = event_pb2.LatLng(latitude=0.0, longitude=0.0)
        places = [("stuck", parked), (f"{self.who}-{number}", parked)]
        if number % 20 == 0:
            places.append(("new", nowhere))
        for asset, place in places:
            ping = event_pb2.Ping(asset_id=asset, lat_lng=place)
            yield event_pb2.Event(ping=ping, occurred_at_unix_nanos=now_ns)


class LoadedFleet:
    """A minute of it: a calm time, an outage of Redis, and what comes after."""

    def __init__(self, directory):
        self.processes = []
        try:
            self.live(directory)
        except BaseException:
            self.stop()
            raise

    def live(self, directory):
        redis = self.keep(servers.Redis(directory), lambda it: it.kill())
        redis.client.config_set("maxmemory-policy", "allkeys-lru")
        fleet = []
        configs = [CONFIG, CONFIG, CONFIG.replace("tumbling: 2s", "tumbling: 3s")]
        for name, config in zip("abc", configs, strict=True):
            folder = directory / name
            folder.mkdir()
            fleet.append(servers.Dedupd(folder, redis.url, config))
            self.keep(fleet[-1].process, lambda it: it.kill())
        injector = Injector(directory)
        self.keep(injector.process, lambda it: it.kill())
        targets = {f"app-{n}": (KUBERNETES_NAMESPACE, it.admin) for n, it in enumerate(fleet)}
        targets["dedupd-injector-0"] = ("dedupd-system", injector.admin)
        prometheus = self.keep(Prometheus(directory, targets), lambda it: it.process.stop())
        self.prometheus = prometheus
        servers.wait_until(lambda: prometheus.value("sum(up)") == 4, "all are scraped")
        self.start_s = time.time()
        loads = [Load(name, it.address) for name, it in zip("ab", fleet)]
        for load in loads:
            load.start()
            self.keep(load, Load.stop)
        reviews = (
            [{"inject": "enabled"}] * 12 + [{"inject": "disabled"}] * 3 + [{"inject": "maybe"}]
        )
        for annotations in reviews:
            injector.review(**annotations)
            time.sleep(0.25)  # a rate, not a wait
        admitted = 'sum(dedupd_decisions_total{decision="ADMIT"})'
        servers.wait_until(lambda: prometheus.value(admitted) > 1_500, "events are admitted")
        redis.kill()
        degraded = 'min by () (dedupd_decisions_total{{exported_namespace="{}",reason="{}",pod=~"app-[01]"}})'
        for namespace, reason in [("crossings", "FAIL_OPEN"), ("orders", "FALLBACK")]:
            query = degraded.format(namespace, reason)
            servers.wait_until(lambda query=query: prometheus.value(query) > 150, reason)
        redis.start()
        redis.client.config_set("maxmemory-policy", "allkeys-lru")
        double = "sum(dedupd_double_admissions_total)"
        servers.wait_until(lambda: prometheus.value(double) > 0, "claims are written back")
        written = "sum(dedupd_local_claims)"
        servers.wait_until(lambda: prometheus.value(written) == 0, "all are written back")
        calm_s = time.time()
        servers.wait_until(lambda: time.time() > calm_s + 10, "a while after")
        for load in loads:
            load.stop()
        self.end_s = time.time()

    def keep(self, it, stop):
        self.processes.append((it, stop))
        return it

    def stop(self):
        for it, stop in reversed(self.processes):
            stop(it)
