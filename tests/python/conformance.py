"""Takes the steps of a script against a running dedupd and prints what was answered.

See ../conformance/README.md.
"""

import json
import os
import queue
import sys
import time

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from stubs import dedup_pb2, dedup_pb2_grpc, event_pb2, inspect_pb2, inspect_pb2_grpc, verdict_pb2

TIMEOUT_S = 30
# Whether the client or the service says these first is a matter of microseconds: their texts differ.
EITHER_SIDE = {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}

# Tokens by name, and the name under which each was first seen.
tokens = {}
names = {}


# From the script's JSON to messages.


def stamp(written):
    return Timestamp(seconds=int(written["seconds"]), nanos=written["nanos"])


def event(written):
    message = event_pb2.Event()
    if "transition" in written:
        fields = dict(written["transition"])
        for name in ("sequence", "sequence_epoch"):
            if name in fields:
                fields[name] = int(fields[name])
        message.transition.CopyFrom(event_pb2.Transition(**fields))
    if "ping" in written:
        fields = written["ping"]
        ping = event_pb2.Ping(asset_id=fields["asset_id"])
        if "lat_lng" in fields:
            degrees = {name: float(value) for name, value in fields["lat_lng"].items()}
            ping.lat_lng.CopyFrom(event_pb2.LatLng(**degrees))
        if "projected" in fields:
            point = {name: int(value) if name == "epsg" else float(value) for name, value in fields["projected"].items()}
            ping.projected.CopyFrom(event_pb2.ProjectedPoint(**point))
        message.ping.CopyFrom(ping)
    if "keyed" in written:
        message.keyed.CopyFrom(event_pb2.Keyed(**written["keyed"]))
    if "occurred_at" in written:
        message.occurred_at.CopyFrom(stamp(written["occurred_at"]))
    if "text" in written:
        message.occurred_at_text = written["text"]
    if "unix_nanos" in written:
        message.occurred_at_unix_nanos = int(written["unix_nanos"])
    if "ingested_at" in written:
        message.ingested_at.CopyFrom(stamp(written["ingested_at"]))
    if "content_hash" in written:
        message.content_hash = int(written["content_hash"])
    return message


def admit_request(step):
    return dedup_pb2.AdmitRequest(
        namespace=step["namespace"],
        request_id=step.get("request_id", ""),
        events=[event(written) for written in step["events"]] * step.get("repeat", 1),
        omit_claims=step.get("omit_claims", False),
    )


def claims(step):
    return [bytes.fromhex(name[4:]) if name.startswith("hex:") else tokens[name] for name in step["claims"]]


def operation(step):
    match step["do"]:
        case "admit":
            return {"admit": admit_request(step)}
        case "confirm":
            return {"confirm": dedup_pb2.ConfirmRequest(claims=claims(step))}
        case "release":
            return {"release": dedup_pb2.ReleaseRequest(claims=claims(step))}
        case "renew":
            return {"renew": dedup_pb2.RenewRequest(claims=claims(step))}
        case "nothing":
            return {}


# From messages to lines.


def line(*words):
    print(" ", *words)


def name_of(enum, value):
    prefix = {verdict_pb2.Decision: "DECISION_", verdict_pb2.Reason: "REASON_", verdict_pb2.SettleOutcome: "SETTLE_OUTCOME_",
              inspect_pb2.ClaimState: "CLAIM_STATE_"}[enum]
    return enum.Name(value).removeprefix(prefix)


def seconds(span):
    return f"{span.seconds}.{span.nanos:09}"


def verdict_line(verdict, name):
    words = [name_of(verdict_pb2.Decision, verdict.decision), name_of(verdict_pb2.Reason, verdict.reason)]
    if verdict.claim:
        tokens[name] = verdict.claim
        words.append(f"claim={names.setdefault(verdict.claim, name)}")
    if verdict.HasField("retry_after"):
        # When the breaker probes next depends on when it was asked.
        outage = verdict.reason == verdict_pb2.REASON_STORE_UNAVAILABLE
        words.append("retry_after=" + ("soon" if outage else seconds(verdict.retry_after)))
    if verdict.HasField("first_occurred_at"):
        words.append(f"first_occurred_at={seconds(verdict.first_occurred_at)}")
    words += [flag for flag in ("degraded", "shadow", "time_clamped") if getattr(verdict, flag)]
    if verdict.HasField("copy_of_index"):
        words.append(f"copy_of_index={verdict.copy_of_index}")
    if verdict.detail:
        words.append(f"detail={verdict.detail}")
    line(*words)


def admitted(response, name):
    for index, verdict in enumerate(response.verdicts):
        verdict_line(verdict, f"{name}.{index}")
    if response.HasField("lease"):
        line(f"lease={seconds(response.lease)}")


def settled(response):
    line(*(name_of(verdict_pb2.SettleOutcome, outcome) for outcome in response.outcomes))


def refused(error):
    code = error.code()
    if code in EITHER_SIDE:
        return line(f"! {code.name}")
    line(f"! {code.name} {error.details()}")
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            line(f"! {info.domain} {info.reason}", *(f"{key}={value}" for key, value in sorted(info.metadata.items())))
        elif detail.Unpack(bad):
            for violation in bad.field_violations:
                line(f"! field {violation.field}: {violation.description}")


def explained(response):
    verdict_line(response.verdict, "none")
    for key in response.keys:
        line(f"key={key}")
    line(f"material={response.material}")
    line(f"contract={response.contract}")
    if response.HasField("occurred_at"):
        line(f"occurred_at={seconds(response.occurred_at)}")
    if response.HasField("position"):
        line("position=" + degrees(response.position), f"cell={response.cell}")
    for claim in response.claims:
        words = [f"claim={name_of(inspect_pb2.ClaimState, claim.state)}", f"key={claim.key}"]
        if claim.HasField("occurred_at"):
            words.append(f"occurred_at={seconds(claim.occurred_at)}")
        if claim.HasField("position"):
            words.append("position=" + degrees(claim.position))
        line(*words, *(["near"] if claim.near else []))


def degrees(position):
    return f"{position.latitude:.5f},{position.longitude:.5f}"


def counted(counters):
    for counter in counters:
        if counter.events:
            decision, reason = name_of(verdict_pb2.Decision, counter.decision), name_of(verdict_pb2.Reason, counter.reason)
            line(counter.namespace, decision, reason, counter.events)


def namespaces(response):
    for namespace in response.namespaces:
        line(namespace.name, f"ttl={seconds(namespace.ttl)}", f"lease={seconds(namespace.lease)}", namespace.failure_mode, namespace.mode)
        line(f"  contract={namespace.contract}")
        if namespace.refused:
            line(f"  refused={namespace.refused}")


# The steps.


class Place:
    """One of the addresses that the script talks to."""

    def __init__(self, target, options=()):
        channel = grpc.insecure_channel(target, options=options)
        self.dedup = dedup_pb2_grpc.DedupServiceStub(channel)
        self.inspect = inspect_pb2_grpc.InspectServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)


def stream(place, number, step):
    def requests():
        for written in step["operations"]:
            yield dedup_pb2.StreamRequest(batch_id=int(written["batch_id"]), **operation(written))

    def answer(response, index):
        line(f"batch {response.batch_id}")
        match response.WhichOneof("result"):
            case "admit":
                admitted(response.admit, f"{number}.{index}")
            case "confirm" | "release" | "renew" as result:
                settled(getattr(response, result))
            case "error":
                error = response.error
                retry = [f"retry_after={seconds(error.retry_after)}"] if error.HasField("retry_after") else []
                line(f"! {error.code} {error.message}", *retry)
                line(f"! {error.reason}", *(f"{key}={value}" for key, value in sorted(error.metadata.items())))
                if error.field:
                    line(f"! field {error.field}")

    with Requests() as sent:
        timeout = step.get("timeout_milliseconds", 1000 * TIMEOUT_S) / 1000
        call = place.dedup.Stream(iter(sent), timeout=timeout)
        if step.get("pipelined"):
            for request in requests():
                sent.put(request)
            for index in range(len(step["operations"])):
                answer(next(call), index)
        else:
            for index, request in enumerate(requests()):
                sent.put(request)
                answer(next(call), index)
        if step.get("cancel"):
            call.cancel()
        elif "timeout_milliseconds" not in step:
            sent.end()
        for _ in call:
            raise AssertionError("an answer to nothing")
        line("end")


class Requests:
    """What is put in is sent, until the end."""

    def __init__(self):
        self.queue = queue.SimpleQueue()
        self.put = self.queue.put

    def __iter__(self):
        return iter(self.queue.get, None)

    def end(self):
        self.queue.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def watch(place, step):
    interval = Duration()
    interval.FromMilliseconds(step["interval_milliseconds"])
    request = inspect_pb2.WatchCountersRequest(namespace=step["namespace"], interval=interval)
    timeout = step.get("timeout_milliseconds", 1000 * TIMEOUT_S) / 1000
    call = place.inspect.WatchCounters(request, timeout=timeout)
    for _ in range(step["looks"]):
        counted(next(call).counters)
    if "timeout_milliseconds" not in step:
        call.cancel()
    next(call)


def take(place, number, step):
    subject = {"namespace": step.get("namespace", "")}
    if "event" in step:
        subject["event"] = event(step["event"])
    match step["do"]:
        case "admit":
            admitted(place.dedup.Admit(admit_request(step), timeout=TIMEOUT_S), number)
        case "confirm":
            settled(place.dedup.Confirm(operation(step)["confirm"], timeout=TIMEOUT_S))
        case "release":
            settled(place.dedup.Release(operation(step)["release"], timeout=TIMEOUT_S))
        case "renew":
            settled(place.dedup.Renew(operation(step)["renew"], timeout=TIMEOUT_S))
        case "stream":
            stream(place, number, step)
        case "explain":
            explained(place.inspect.Explain(inspect_pb2.ExplainRequest(**subject), timeout=TIMEOUT_S))
        case "forget":
            response = place.inspect.Forget(inspect_pb2.ForgetRequest(**subject), timeout=TIMEOUT_S)
            line("forgotten", *response.keys)
        case "counters":
            counted(place.inspect.GetCounters(inspect_pb2.GetCountersRequest(**subject), timeout=TIMEOUT_S).counters)
        case "watch":
            watch(place, step)
        case "namespaces":
            namespaces(place.inspect.ListNamespaces(inspect_pb2.ListNamespacesRequest(), timeout=TIMEOUT_S))
        case "noisy":
            request = inspect_pb2.ListNoisySubjectsRequest(limit=step["limit"], **subject)
            response = place.inspect.ListNoisySubjects(request, timeout=TIMEOUT_S)
            line("noisy", *(subject.id for subject in response.subjects))
        case "health":
            request = health_pb2.HealthCheckRequest(service=step["service"])
            status = place.health.Check(request, timeout=TIMEOUT_S).status
            line(health_pb2.HealthCheckResponse.ServingStatus.Name(status))
        case "sleep":
            time.sleep(step["milliseconds"] / 1000)
        case unknown:
            raise AssertionError(unknown)


def main():
    places = {
        "here": Place(os.environ["DEDUPD_ADDRESS"]),
        # The C core sends the socket's path as the authority, which is none.
        "socket": Place("unix:" + os.environ["DEDUPD_SOCKET"], [("grpc.default_authority", "localhost")]),
        "away": Place(os.environ["DEDUPD_AWAY"]),
    }
    with open(sys.argv[1], encoding="utf-8") as script:
        for number, written in enumerate(script, 1):
            step = json.loads(written)
            print(number, step["do"], *filter(None, [step.get("namespace")]))
            try:
                take(places[step.get("through", "here")], number, step)
            except grpc.RpcError as error:
                refused(error)


main()
