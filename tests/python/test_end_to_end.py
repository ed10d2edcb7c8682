"""What a client in another language sees: generated stubs against a running dedupd.

`DEDUPD_ADDRESS` names the service, which has its built-in namespaces. Every run uses fresh ids, so
it may be repeated against the same service.
"""

import os
import queue
import time
import uuid

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status
from stubs import dedup_pb2, dedup_pb2_grpc, event_pb2, verdict_pb2

TIMEOUT_S = 10
SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
ZURICH = (47.3769, 8.5417)


# Events, with fresh ids and times that fit the built-in windows.


def fresh_id():
    return uuid.uuid4().hex


def stamp(unix_nanos):
    return Timestamp(seconds=unix_nanos // SECOND_NS, nanos=unix_nanos % SECOND_NS)


def in_bucket(width_s, offset_s):
    """A recent time, `offset_s` after the start of a bucket of `width_s`."""
    width_ns = width_s * SECOND_NS
    return (time.time_ns() // width_ns - 1) * width_ns + round(offset_s * SECOND_NS)


def transition(device_id, unix_nanos, kind=event_pb2.TRANSITION_KIND_ENTER):
    crossing = event_pb2.Transition(device_id=device_id, fence_id="depot|1", kind=kind)
    return event_pb2.Event(transition=crossing, occurred_at_unix_nanos=unix_nanos)


def ping(asset_id, unix_nanos, position=ZURICH):
    latitude, longitude = position
    report = event_pb2.Ping(asset_id=asset_id)
    report.lat_lng.latitude = latitude
    report.lat_lng.longitude = longitude
    return event_pb2.Event(ping=report, occurred_at=stamp(unix_nanos))


def keyed(event_id):
    return event_pb2.Event(keyed=event_pb2.Keyed(event_id=event_id))


# Asking, and reading answers.


@pytest.fixture(scope="module")
def channel():
    address = os.environ.get("DEDUPD_ADDRESS")
    if not address:
        pytest.fail("DEDUPD_ADDRESS must name a running dedupd, such as 127.0.0.1:50061")
    with grpc.insecure_channel(address) as channel:
        yield channel


@pytest.fixture(scope="module")
def dedup(channel):
    return dedup_pb2_grpc.DedupServiceStub(channel)


def admit_request(namespace, events, request_id=None, omit_claims=False):
    return dedup_pb2.AdmitRequest(
        namespace=namespace,
        request_id=str(uuid.uuid4()) if request_id is None else request_id,
        events=events,
        omit_claims=omit_claims,
    )


def admit(dedup, namespace, events, **options):
    request = admit_request(namespace, events, **options)
    return list(dedup.Admit(request, timeout=TIMEOUT_S).verdicts)


def said(verdict):
    """Decision and reason in one word, such as `ADMIT/FIRST_SEEN`."""
    decision = verdict_pb2.Decision.Name(verdict.decision).removeprefix("DECISION_")
    return f"{decision}/{verdict_pb2.Reason.Name(verdict.reason).removeprefix('REASON_')}"


def all_said(verdicts):
    return [said(verdict) for verdict in verdicts]


def outcomes(response):
    names = map(verdict_pb2.SettleOutcome.Name, response.outcomes)
    return [name.removeprefix("SETTLE_OUTCOME_") for name in names]


def confirm(dedup, *claims):
    return outcomes(dedup.Confirm(dedup_pb2.ConfirmRequest(claims=claims), timeout=TIMEOUT_S))


def release(dedup, *claims):
    return outcomes(dedup.Release(dedup_pb2.ReleaseRequest(claims=claims), timeout=TIMEOUT_S))


def renew(dedup, *claims):
    return outcomes(dedup.Renew(dedup_pb2.RenewRequest(claims=claims), timeout=TIMEOUT_S))


def claim_one(dedup):
    """Admits a fresh keyed event; returns it with its claim token."""
    event = keyed(fresh_id())
    (verdict,) = admit(dedup, "events", [event])
    assert said(verdict) == "ADMIT/FIRST_SEEN"
    assert 0 < len(verdict.claim) <= 600
    return event, verdict.claim


class Conversation:
    """A stream on which the next request may depend on the last answer."""

    def __init__(self, dedup):
        self.requests = queue.SimpleQueue()
        self.answers = dedup.Stream(iter(self.requests.get, None), timeout=TIMEOUT_S)
        self.batch_id = 0

    def ask(self, **operation):
        self.batch_id += 1
        self.requests.put(dedup_pb2.StreamRequest(batch_id=self.batch_id, **operation))
        answer = next(self.answers)
        assert answer.batch_id == self.batch_id
        return answer

    def end(self):
        self.requests.put(None)
        assert list(self.answers) == []
        assert self.answers.code() == grpc.StatusCode.OK


# Verdicts.


def test_a_batch_of_transitions(dedup):
    device, edge = fresh_id(), fresh_id()
    at, end = in_bucket(2, 0.8), in_bucket(2, 2)
    verdicts = admit(dedup, "transitions", [
        transition(device, at),
        transition(device, at),
        transition(device, at + SECOND_NS // 10),
        transition(device, at, event_pb2.TRANSITION_KIND_EXIT),
        transition(edge, end - SECOND_NS // 20),
        transition(edge, end + SECOND_NS // 20),
        transition(edge, end + SECOND_NS),
    ])
    assert all_said(verdicts) == [
        "ADMIT/FIRST_SEEN",
        "SUPPRESS/REDELIVERY",
        "SUPPRESS/RESTAMPED",
        "ADMIT/FIRST_SEEN",
        "ADMIT/FIRST_SEEN",
        "SUPPRESS/BOUNDARY",
        "ADMIT/FIRST_SEEN",
    ]
    assert verdicts[2].first_occurred_at == stamp(at)


def test_a_batch_of_pings(dedup):
    asset, at = fresh_id(), in_bucket(300, 100)
    latitude, longitude = ZURICH
    verdicts = admit(dedup, "pings", [
        ping(asset, at),
        ping(asset, at),
        ping(asset, at + 10 * SECOND_NS),
        ping(asset, at + 20 * SECOND_NS, (latitude + 1e-7, longitude)),
        ping(asset, at + 30 * SECOND_NS, (latitude + 0.01, longitude)),
        ping(asset, at - 300 * SECOND_NS),
    ])
    assert all_said(verdicts) == [
        "ADMIT/FIRST_SEEN",
        "SUPPRESS/REDELIVERY",
        "SUPPRESS/REOBSERVATION",
        "SUPPRESS/JITTER",
        "ADMIT/FIRST_SEEN",
        "ADMIT/FIRST_SEEN",
    ]


def test_a_batch_of_keyed_events(dedup):
    first, second = fresh_id(), "Zürich|" + fresh_id()
    verdicts = admit(dedup, "events", [keyed(first), keyed(second), keyed(first)])
    assert all_said(verdicts) == ["ADMIT/FIRST_SEEN", "ADMIT/FIRST_SEEN", "SUPPRESS/REDELIVERY"]
    again = admit(dedup, "events", [keyed(second), keyed(first)])
    assert all_said(again) == ["SUPPRESS/REDELIVERY"] * 2
    assert not any(verdict.claim for verdict in again)


def test_copies_name_the_first_of_their_request(dedup):
    first, other, known = fresh_id(), fresh_id(), fresh_id()
    admit(dedup, "events", [keyed(known)])
    batch = [keyed(known), keyed(first), keyed(other), keyed(first), keyed(first)]
    verdicts = admit(dedup, "events", batch)
    copies = [v.copy_of_index if v.HasField("copy_of_index") else None for v in verdicts]
    assert copies == [None, None, None, 1, 1]
    assert [bool(verdict.claim) for verdict in verdicts] == [False, True, True, False, False]


def test_a_late_event_is_admitted_as_late(dedup):
    (verdict,) = admit(dedup, "transitions", [transition(fresh_id(), time.time_ns() - HOUR_NS)])
    assert said(verdict) == "ADMIT/LATE"


def bad_times():
    yield "MISSING_TIME", {}
    yield "MALFORMED_TIME", {"occurred_at": Timestamp(seconds=1, nanos=SECOND_NS)}
    yield "MALFORMED_TIME", {"occurred_at_text": "yesterday"}
    yield "NAIVE_TIME", {"occurred_at_text": "2026-01-02T03:04:05"}
    yield "TIME_TOO_OLD", {"occurred_at": stamp(time.time_ns() - 31 * 24 * HOUR_NS)}
    yield "TIME_TOO_NEW", {"occurred_at": stamp(time.time_ns() + HOUR_NS)}


def bad_transitions():
    now = time.time_ns()
    yield "MISSING_IDENTITY", transition("", now)
    yield "MISSING_IDENTITY", transition(" \u2003\t", now)
    yield "MISSING_IDENTITY", transition(fresh_id(), now, event_pb2.TRANSITION_KIND_UNSPECIFIED)
    yield "OVERSIZED_IDENTITY", transition("x" * 513, now)
    yield "WRONG_KIND", transition(fresh_id(), now, 9)
    yield "WRONG_KIND", keyed(fresh_id())
    for reason, fields in bad_times():
        crossing = transition(fresh_id(), now).transition
        yield reason, event_pb2.Event(transition=crossing, **fields)


def bad_pings():
    now = time.time_ns()
    projected = event_pb2.ProjectedPoint(x=1, y=2, epsg=1)
    for reason, report in [
        ("MISSING_POSITION", event_pb2.Ping(asset_id=fresh_id())),
        ("UNKNOWN_CRS", event_pb2.Ping(asset_id=fresh_id(), projected=projected)),
    ]:
        yield reason, event_pb2.Event(ping=report, occurred_at=stamp(now))
    yield "INVALID_POSITION", ping(fresh_id(), now, (90.5, 0))
    yield "INVALID_POSITION", ping(fresh_id(), now, (float("nan"), 8))
    yield "NULL_ISLAND", ping(fresh_id(), now, (0.0, -0.0))


@pytest.mark.parametrize(
    ("namespace", "bad", "good"),
    [
        ("transitions", bad_transitions, lambda: transition(fresh_id(), time.time_ns())),
        ("pings", bad_pings, lambda: ping(fresh_id(), time.time_ns())),
    ],
    ids=["transitions", "pings"],
)
def test_bad_events_are_values_and_spare_their_batch(dedup, namespace, bad, good):
    reasons, events = zip(*bad())
    verdicts = admit(dedup, namespace, [good(), *events, good()])
    expected = [f"DEAD_LETTER/{reason}" for reason in reasons]
    assert all_said(verdicts) == ["ADMIT/FIRST_SEEN", *expected, "ADMIT/FIRST_SEEN"]
    assert all(verdict.detail and not verdict.claim for verdict in verdicts[1:-1])


# Settling.


def test_a_claim_is_confirmed(dedup):
    event, claim = claim_one(dedup)
    assert renew(dedup, claim) == ["ALREADY_APPLIED"]
    assert confirm(dedup, claim, claim) == ["APPLIED", "ALREADY_APPLIED"]
    assert release(dedup, claim) == ["ALREADY_CONFIRMED"]
    assert renew(dedup, claim) == ["ALREADY_CONFIRMED"]
    assert all_said(admit(dedup, "events", [event])) == ["SUPPRESS/REDELIVERY"]


def test_a_claim_is_released(dedup):
    event, claim = claim_one(dedup)
    assert release(dedup, claim, claim) == ["APPLIED", "NOT_HELD"]
    assert confirm(dedup, claim) == ["NOT_HELD"]
    assert renew(dedup, claim) == ["NOT_HELD"]
    (verdict,) = admit(dedup, "events", [event])
    assert said(verdict) == "ADMIT/FIRST_SEEN"
    # The late holder must not settle its successor's claim.
    assert release(dedup, claim) == ["NOT_HELD"]
    assert confirm(dedup, verdict.claim) == ["APPLIED"]


def test_a_token_that_is_none_spoils_no_other(dedup):
    _, claim = claim_one(dedup)
    assert confirm(dedup, b"", claim, b"no token") == ["MALFORMED", "APPLIED", "MALFORMED"]


def test_a_retry_under_the_same_request_id_is_admitted_again(dedup):
    event, request_id = keyed(fresh_id()), str(uuid.uuid4())
    (first,) = admit(dedup, "events", [event], request_id=request_id)
    (again,) = admit(dedup, "events", [event], request_id=request_id)
    assert all_said([first, again]) == ["ADMIT/FIRST_SEEN"] * 2
    assert all_said(admit(dedup, "events", [event])) == ["SUPPRESS/REDELIVERY"]
    assert confirm(dedup, again.claim) == ["APPLIED"]
    settled = admit(dedup, "events", [event], request_id=request_id)
    assert all_said(settled) == ["SUPPRESS/REDELIVERY"]


def test_omitted_claims_need_no_settling(dedup):
    event, request_id = keyed(fresh_id()), str(uuid.uuid4())
    for _ in range(2):
        (verdict,) = admit(dedup, "events", [event], request_id=request_id, omit_claims=True)
        assert (said(verdict), verdict.claim) == ("ADMIT/FIRST_SEEN", b"")
    assert all_said(admit(dedup, "events", [event])) == ["SUPPRESS/REDELIVERY"]


# The stream.


def test_a_stream_admits_confirms_and_releases_in_order(dedup):
    stream = Conversation(dedup)
    events = [keyed(fresh_id()), keyed(fresh_id())]
    admitted = stream.ask(admit=admit_request("events", events)).admit.verdicts
    assert all_said(admitted) == ["ADMIT/FIRST_SEEN"] * 2
    kept, given_back = (verdict.claim for verdict in admitted)
    confirmed = stream.ask(confirm=dedup_pb2.ConfirmRequest(claims=[kept]))
    assert outcomes(confirmed.confirm) == ["APPLIED"]
    released = stream.ask(release=dedup_pb2.ReleaseRequest(claims=[given_back]))
    assert outcomes(released.release) == ["APPLIED"]
    renewed = stream.ask(renew=dedup_pb2.RenewRequest(claims=[kept, given_back]))
    assert outcomes(renewed.renew) == ["ALREADY_CONFIRMED", "NOT_HELD"]
    again = stream.ask(admit=admit_request("events", events)).admit.verdicts
    assert all_said(again) == ["SUPPRESS/REDELIVERY", "ADMIT/FIRST_SEEN"]
    stream.end()


def test_a_refused_operation_leaves_the_stream_alive(dedup):
    stream = Conversation(dedup)
    error = stream.ask(admit=admit_request("no-such", [keyed("a")])).error
    assert error.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert error.reason == "UNKNOWN_NAMESPACE"
    good = stream.ask(admit=admit_request("events", [keyed(fresh_id())]))
    assert all_said(good.admit.verdicts) == ["ADMIT/FIRST_SEEN"]
    stream.end()


@pytest.mark.parametrize("count", [0, 1000])
def test_every_verdict_comes_after_a_half_close(dedup, count):
    event = keyed(fresh_id())
    requests = [
        dedup_pb2.StreamRequest(batch_id=number, admit=admit_request("events", [event]))
        for number in range(count)
    ]
    call = dedup.Stream(iter(requests), timeout=TIMEOUT_S)
    answers = list(call)
    assert call.code() == grpc.StatusCode.OK
    assert [answer.batch_id for answer in answers] == list(range(count))
    verdicts = [said(answer.admit.verdicts[0]) for answer in answers]
    assert verdicts == (["ADMIT/FIRST_SEEN"] + ["SUPPRESS/REDELIVERY"] * (count - 1))[:count]


# Whole requests that are refused, and what every gRPC server offers.


@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (admit_request("no-such", [keyed("a")]), grpc.StatusCode.NOT_FOUND, "UNKNOWN_NAMESPACE"),
        (admit_request("events", []), grpc.StatusCode.INVALID_ARGUMENT, None),
        (
            admit_request("events", [keyed("a")], request_id="message-17"),
            grpc.StatusCode.INVALID_ARGUMENT,
            None,
        ),
    ],
    ids=["unknown namespace", "empty batch", "bad request id"],
)
def test_a_refused_request_says_why(dedup, request_, code, reason):
    with pytest.raises(grpc.RpcError) as refused:
        dedup.Admit(request_, timeout=TIMEOUT_S)
    assert refused.value.code() == code
    status = rpc_status.from_call(refused.value)
    assert status is not None, "the status carries no details"
    assert status.message
    info = error_details_pb2.ErrorInfo()
    reasons = [info.reason for detail in status.details if detail.Unpack(info)]
    assert reasons and (reason is None or reasons == [reason])


@pytest.mark.parametrize(
    "service", ["", "dedupd.v1.DedupService", "dedupd.v1.InspectService", "store"]
)
def test_health(channel, dedup, service):
    claim_one(dedup)
    health = health_pb2_grpc.HealthStub(channel)
    answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_the_services(channel, version):
    # The two versions differ in their names only, and grpcio-reflection has but one.
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = call(iter([question]), timeout=TIMEOUT_S)
    names = {service.name for service in answer.list_services_response.service}
    assert {"dedupd.v1.DedupService", "dedupd.v1.InspectService"} <= names
