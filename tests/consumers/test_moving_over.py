"""Old consumers and dedupd share one Redis while a fleet moves over: docs/moving-over.md."""

import random
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import servers  # noqa: F401  makes the stubs importable
from old_consumers import GUARD_NS, OldEvents, OldPings, OldTransitions

from dedupd.v1 import dedup_pb2, dedup_pb2_grpc, event_pb2, verdict_pb2

# The built-in namespaces, and the same keys with a lease and in shadow.
CONFIG = """
store: { budget: 5s }  # The machine may be busy.
namespaces:
  transitions:
    { accepts: [transition], window: { tumbling: 2s, guard: 200ms }, ttl: 5m, failure_mode: closed }
  pings:
    accepts: [ping]
    window: { tumbling: 5m }
    place: { resolution: 12 }
    ttl: 6h30m
    failure_mode: open
  events: { accepts: [keyed], window: none, ttl: 48h, failure_mode: closed }
  leased: { accepts: [keyed], window: none, ttl: 48h, failure_mode: closed, lease: 30s }
  watching: { accepts: [keyed], window: none, ttl: 48h, failure_mode: closed, mode: shadow }
"""
TIMEOUT_S = 10
CROSSINGS = 300
KIND = event_pb2.TRANSITION_KIND_ENTER


@pytest.fixture(scope="module")
def dedup(channel):
    return dedup_pb2_grpc.DedupServiceStub(channel)


@pytest.fixture
def chance():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def admit(dedup, namespace, event):
    request = dedup_pb2.AdmitRequest(
        namespace=namespace, request_id=str(uuid.uuid4()), events=[event]
    )
    return dedup.Admit(request, timeout=TIMEOUT_S).verdicts[0]


def said(verdict):
    decision = verdict_pb2.Decision.Name(verdict.decision).removeprefix("DECISION_")
    return decision, verdict_pb2.Reason.Name(verdict.reason).removeprefix("REASON_")


def crossing(device, time_ns):
    transition = event_pb2.Transition(device_id=device, fence_id="depot", kind=KIND)
    return event_pb2.Event(transition=transition, occurred_at_unix_nanos=time_ns)


def ping(asset, time_s, latitude, longitude):
    report = event_pb2.Ping(asset_id=asset)
    report.lat_lng.latitude, report.lat_lng.longitude = latitude, longitude
    return event_pb2.Event(ping=report, occurred_at_unix_nanos=time_s * 1_000_000_000)


def keyed(event_id):
    return event_pb2.Event(keyed=event_pb2.Keyed(event_id=event_id))


def deliver(chance, copies, admits):
    """Hands every copy to the old consumer or to dedupd, four at a time; counts by name."""
    chance.shuffle(copies)
    is_old = [chance.random() < 0.5 for _ in copies]
    with ThreadPoolExecutor(4) as pool:
        admitted = pool.map(admits, copies, is_old)
    return Counter(copy[0] for copy, yes in zip(copies, admitted, strict=True) if yes)


def test_of_copies_of_a_crossing_one_is_admitted_whoever_sees_it_first(
    dedup, redis_server, chance
):
    old = OldTransitions(redis_server.client)
    now = time.time_ns()
    copies = []
    for _ in range(CROSSINGS):
        first = now - chance.randrange(20_000_000_000)
        device = uuid.uuid4().hex
        # Restamped by less than the guard, so across the edges of buckets, too.
        spread = [0, *(chance.randrange(GUARD_NS) for _ in range(3))]
        copies += [(device, first + by) for by in spread]

    def admits(copy, is_old):
        device, time_ns = copy
        if is_old:
            return old.admits(device, "depot", "E", time_ns)
        verdict = admit(dedup, "transitions", crossing(device, time_ns))
        return verdict.decision == verdict_pb2.DECISION_ADMIT

    admitted = deliver(chance, copies, admits)
    assert len(admitted) == CROSSINGS
    assert set(admitted.values()) == {1}


def test_of_copies_of_a_ping_one_is_admitted_whoever_sees_it_first(dedup, redis_server, chance):
    old = OldPings(redis_server.client)
    start = int(time.time()) // 300 * 300 - 300
    copies = []
    for _ in range(CROSSINGS):
        place = chance.uniform(-80, 80), chance.uniform(-179, 179)
        asset = uuid.uuid4().hex
        copies += [(asset, start + chance.randrange(300), *place) for _ in range(4)]

    def admits(copy, is_old):
        if is_old:
            return old.admits(*copy)
        return admit(dedup, "pings", ping(*copy)).decision == verdict_pb2.DECISION_ADMIT

    admitted = deliver(chance, copies, admits)
    assert len(admitted) == CROSSINGS
    assert set(admitted.values()) == {1}


def test_what_an_old_consumer_admitted_is_suppressed_without_details(dedup, redis_server):
    client, device, now = redis_server.client, uuid.uuid4().hex, time.time_ns()
    assert OldTransitions(client).admits(device, "depot", "E", now)
    assert OldEvents(client).admits(device)
    unclassified = ("SUPPRESS", "UNCLASSIFIED")
    assert said(admit(dedup, "transitions", crossing(device, now))) == unclassified
    assert said(admit(dedup, "events", keyed(device))) == unclassified


def test_what_dedupd_admitted_an_old_consumer_drops(dedup, redis_server):
    client, device, now = redis_server.client, uuid.uuid4().hex, time.time_ns()
    assert said(admit(dedup, "transitions", crossing(device, now))) == ("ADMIT", "FIRST_SEEN")
    assert said(admit(dedup, "events", keyed(device))) == ("ADMIT", "FIRST_SEEN")
    assert not OldTransitions(client).admits(device, "depot", "E", now)
    assert not OldEvents(client).admits(device)


def test_a_consumer_that_looks_first_and_sets_later_admits_twice_and_confirm_says_so(
    dedup, redis_server
):
    old, event_id = OldEvents(redis_server.client), uuid.uuid4().hex
    assert old.is_new(event_id)
    verdict = admit(dedup, "events", keyed(event_id))
    assert said(verdict) == ("ADMIT", "FIRST_SEEN")
    old.note(event_id)
    answer = dedup.Confirm(dedup_pb2.ConfirmRequest(claims=[verdict.claim]), timeout=TIMEOUT_S)
    assert answer.outcomes == [verdict_pb2.SETTLE_OUTCOME_NOT_HELD]
    answer = dedup.Release(dedup_pb2.ReleaseRequest(claims=[verdict.claim]), timeout=TIMEOUT_S)
    assert answer.outcomes == [verdict_pb2.SETTLE_OUTCOME_NOT_HELD]
    # Its key still suppresses what comes later.
    assert said(admit(dedup, "events", keyed(event_id))) == ("SUPPRESS", "UNCLASSIFIED")


def test_an_old_consumer_takes_a_pending_claim_for_a_finished_one(dedup, redis_server):
    """So a copy that it drops is lost if the holder then fails and no other copy comes."""
    client, event_id = redis_server.client, uuid.uuid4().hex
    verdict = admit(dedup, "leased", keyed(event_id))
    assert client.set(f"leased:{event_id}", 1, nx=True) is None
    dedup.Release(dedup_pb2.ReleaseRequest(claims=[verdict.claim]), timeout=TIMEOUT_S)
    assert said(admit(dedup, "leased", keyed(event_id))) == ("ADMIT", "FIRST_SEEN")


def test_shadow_mode_claims_too_so_it_must_not_share_the_keys(dedup, redis_server):
    event_id = uuid.uuid4().hex
    assert said(admit(dedup, "watching", keyed(event_id))) == ("ADMIT", "FIRST_SEEN")
    assert redis_server.client.set(f"watching:{event_id}", 1, nx=True) is None
